//! The known platforms: reads and checks `platforms.json`.

use std::fmt::Write as _;
use std::sync::OnceLock;

use satcast_driver_rtmp::target::{Target, TargetError};
use serde::Deserialize;

const TEXT: &str = include_str!("../platforms.json");

/// A platform. Numbers come from its documentation or its own tools; none is enforced.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Platform {
    /// Name of the destination type.
    #[serde(rename = "type")]
    pub name: String,
    /// Name for people.
    pub title: String,
    /// Server for all accounts; `None`: each account, event or source has its own server.
    pub server: Option<String>,
    /// Server to use while `server` does not answer.
    pub backup: Option<String>,
    /// Address of the platform's list of nearby servers, in the form of Twitch's list.
    pub ingests: Option<String>,
    /// How to find one's own server.
    pub server_help: Option<String>,
    /// How to find the key: the way through the platform's pages.
    pub key_help: String,
    /// Page at which that way begins.
    pub key_link: String,
    /// Video codecs it takes, as in `Codec::name`; audio is AAC everywhere.
    pub video_codecs: Vec<String>,
    /// Highest video bit rate, in kbit/s.
    pub video_kbps_max: Option<u32>,
    /// Highest audio bit rate, in kbit/s.
    pub audio_kbps_max: Option<u32>,
    /// Keyframe distance it asks for, in seconds.
    pub keyframe_seconds: u32,
    /// Longest keyframe distance it takes, in seconds; `None`: as `keyframe_seconds`.
    pub keyframe_seconds_max: Option<u32>,
    /// Highest frame rate, in frames per second.
    pub frame_rate_max: Option<u32>,
    /// Whether it takes B-frames; `None`: it does.
    pub b_frames: Option<bool>,
    /// It takes no stream without audio.
    #[serde(default)]
    pub needs_audio: bool,
    /// Further notes for users.
    pub notes: Option<String>,
}

/// All platforms, in the order of the file.
pub fn platforms() -> &'static [Platform] {
    static PLATFORMS: OnceLock<Vec<Platform>> = OnceLock::new();
    // The file is part of this library and read by its tests; if it were broken, no type would be served.
    PLATFORMS.get_or_init(|| serde_json::from_str(TEXT).unwrap_or_default())
}

/// The platform whose type is `name`.
pub fn platform(name: &str) -> Option<&'static Platform> {
    platforms().iter().find(|platform| platform.name == name)
}

impl Platform {
    /// Limits, for people.
    pub fn description(&self) -> String {
        let mut text = format!("Stream to {}.", self.title);
        // Writing to a String cannot fail.
        let _ = write!(text, " Video: {}", self.video_codecs.join(", "));
        if let Some(kbps) = self.video_kbps_max {
            let _ = write!(text, " up to {kbps} kbit/s");
        }
        let _ = write!(text, ", a keyframe every {} s", self.keyframe_seconds);
        if let Some(seconds) = self.keyframe_seconds_max {
            let _ = write!(text, " ({seconds} s at most)");
        }
        if let Some(rate) = self.frame_rate_max {
            let _ = write!(text, ", at most {rate} frames per second");
        }
        if self.b_frames == Some(false) {
            text.push_str(", no B-frames");
        }
        text.push_str(". Audio: aac");
        if let Some(kbps) = self.audio_kbps_max {
            let _ = write!(text, " up to {kbps} kbit/s");
        }
        text.push('.');
        if let Some(notes) = &self.notes {
            let _ = write!(text, " {notes}");
        }
        text
    }

    /// How to find the key.
    pub fn key_help_text(&self) -> String {
        match self.key_link.as_str() {
            "" => self.key_help.clone(),
            link => format!("{} ({link})", self.key_help),
        }
    }

    /// Description of the field `server`.
    pub fn server_description(&self) -> String {
        match (&self.server, &self.server_help) {
            (Some(_), _) => {
                "Address to publish to, without the key. Leave it empty for the usual server.".to_owned()
            }
            (None, Some(help)) => format!("Address to publish to, without the key. {help}"),
            (None, None) => "Address to publish to, without the key.".to_owned(),
        }
    }

    /// The addresses to publish to with `key`, in the order of the attempts: only `server` when it is given, else the
    /// platform's own server and its backup.
    ///
    /// # Errors
    /// A sentence that begins with the name of the field.
    pub fn targets(&self, server: Option<&str>, key: &str) -> Result<Vec<Target>, String> {
        let servers: Vec<(&str, &str)> = match server.filter(|server| !server.is_empty()) {
            Some(server) => vec![("server", server)],
            None => {
                let own = [("server", self.server.as_deref()), ("backup", self.backup.as_deref())];
                own.into_iter().filter_map(|(field, server)| Some((field, server?))).collect()
            }
        };
        if servers.is_empty() {
            return Err(self.needs_server());
        }
        if key.is_empty() {
            return Err(self.needs_key());
        }
        let parse =
            |(field, server)| Target::parse(server, Some(key)).map_err(|error| of_field(field, error));
        servers.into_iter().map(parse).collect()
    }

    /// Error for a platform without a common server.
    pub(crate) fn needs_server(&self) -> String {
        let help = self.server_help.as_deref().unwrap_or_default();
        format!("server: {} needs the address to publish to. {help}", self.title)
    }

    fn needs_key(&self) -> String {
        format!("key: is empty; {}", self.key_help)
    }
}

/// The text of an error, with the field's name in this driver.
pub(crate) fn of_field(field: &str, error: TargetError) -> String {
    let text = error.to_string();
    text.strip_prefix("url:").map_or(text.clone(), |rest| format!("{field}:{rest}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use satcast_plugin_api::Codec;
    use satcast_plugin_api::manifest::is_name;

    use super::*;

    #[test]
    fn every_entry_of_the_file_is_valid() {
        let read: Vec<Platform> = serde_json::from_str(TEXT).unwrap();
        assert_eq!(read.len(), platforms().len());
        let names: BTreeSet<_> = read.iter().map(|platform| platform.name.as_str()).collect();
        assert_eq!(names.len(), read.len(), "a name is repeated");
        for name in [
            "twitch", "youtube", "kick", "facebook", "x", "tiktok", "linkedin", "trovo", "rumble", "mux",
            "ivs",
        ] {
            assert!(names.contains(name), "{name}");
        }
        let codecs = [Codec::H264, Codec::Hevc, Codec::Av1].map(Codec::name);
        for platform in &read {
            let name = &platform.name;
            assert!(
                is_name(name) && !["rtmp", "self-hosted", "cloud-archive"].contains(&name.as_str()),
                "{name}"
            );
            assert!(platform.video_codecs.contains(&"h264".to_owned()), "{name}");
            assert!(platform.video_codecs.iter().all(|codec| codecs.contains(&codec.as_str())), "{name}");
            assert!(platform.key_link.starts_with("https://"), "{name}");
            assert!((1..=4).contains(&platform.keyframe_seconds), "{name}");
            assert!(
                platform.server.is_some() || platform.server_help.is_some(),
                "{name} needs a server or help"
            );
            assert!(platform.backup.is_none() || platform.server.is_some(), "{name}");
            assert!(
                platform.ingests.is_none() || platform.server.is_some(),
                "{name} needs a server besides the list"
            );
            assert!(platform.description().chars().count() < 1000, "{name}: cut in the API document");
            match platform.targets(None, "a-key?x=1&y=2") {
                Ok(targets) => targets.iter().for_each(|target| {
                    assert_eq!(target.publish_name(), "a-key?x=1&y=2", "{name}");
                    assert!(!target.app().is_empty(), "{name}");
                }),
                Err(error) => assert!(error.starts_with("server: ") && platform.server.is_none(), "{error}"),
            }
        }
    }

    #[test]
    fn backups_come_second_and_a_custom_server_has_no_backup() {
        let youtube = platform("youtube").unwrap();
        let shown = |targets: Vec<Target>| targets.iter().map(Target::to_string).collect::<Vec<_>>();
        let both = youtube.targets(None, "key").unwrap();
        assert_eq!(both[1].app(), "live2?backup=1");
        assert_eq!(shown(both), ["a.rtmps.youtube.com:443", "b.rtmps.youtube.com:443"]);
        let own = youtube.targets(Some("rtmp://a.example/app"), "key").unwrap();
        assert_eq!(shown(own), ["a.example:1935"]);
        assert_eq!(youtube.targets(Some(""), "key").unwrap().len(), 2);
        for (server, key, refusal) in [
            (Some("https://a.example/app"), "key", of_field("server", TargetError::Scheme)),
            (Some("rtmps://a.example"), "key", of_field("server", TargetError::App)),
            (None, "key ", of_field("server", TargetError::BadCharacter("key"))),
            (None, "", youtube.needs_key()),
        ] {
            assert_eq!(youtube.targets(server, key).unwrap_err(), refusal);
        }
        let kick = platform("kick").unwrap();
        assert_eq!(kick.targets(None, "key").unwrap_err(), kick.needs_server());
    }

    #[test]
    fn refusals_texts() {
        let platform = Platform {
            title: "Church TV".into(),
            key_help: "ask the sexton".into(),
            server_help: Some("It is on the door.".into()),
            ..platform("kick").unwrap().clone()
        };
        assert_eq!(
            platform.needs_server(),
            "server: Church TV needs the address to publish to. It is on the door."
        );
        assert_eq!(platform.needs_key(), "key: is empty; ask the sexton");
        assert_eq!(
            of_field("backup", TargetError::Scheme),
            TargetError::Scheme.to_string().replace("url:", "backup:")
        );
    }
}
