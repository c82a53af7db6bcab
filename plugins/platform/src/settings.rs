//! `[driver.platform]`: platforms that operators add, and changes of known ones.

use std::collections::BTreeMap;

use satcast_driver_rtmp::target::TEXT_BYTES_MAX;
use satcast_plugin_api::{Codec, DestType, Error};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::data::{Platform, platforms};
use crate::dest_type;

/// Name of the setting that adds types; the host reads it as well.
pub(crate) const TYPES: &str = "types";

const BACKUP_ALONE: &str = "backup needs a server; set server, too";

/// `[driver.platform]`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Platforms by destination type. An entry for a known platform changes it; others are added.
    #[serde(default)]
    pub types: BTreeMap<String, Described>,
}

/// An operator's description of a platform. A missing field keeps its known value, or means no limit.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(inline)]
pub struct Described {
    /// Name for people.
    #[schemars(length(min = 1, max = 100))]
    pub title: Option<String>,
    /// Notes for its users, shown in the API document.
    #[schemars(length(max = 1000))]
    pub description: Option<String>,
    /// Server for all accounts, without a key. Without it each destination has its own server.
    #[schemars(extend("maxLength" = TEXT_BYTES_MAX))]
    pub server: Option<String>,
    /// Server to use while `server` cannot be reached.
    #[schemars(extend("maxLength" = TEXT_BYTES_MAX, "x-private" = "hasBackup"))]
    pub backup: Option<String>,
    /// Address of the platform's list of nearby servers, in the form of Twitch's list. An empty text turns it off.
    #[schemars(extend("maxLength" = TEXT_BYTES_MAX, "x-private" = true))]
    pub ingests: Option<String>,
    /// Video codecs it takes: `h264`, `hevc`, `av1`.
    // A plain list, so that an error can name the choices; the host refuses everything else.
    #[schemars(with = "Option<Vec<String>>", length(min = 1, max = 3), extend("items" = { "enum": ["h264", "hevc", "av1"] }))]
    pub video_codecs: Option<Vec<Codec>>,
    /// Highest video bit rate, in kbit/s.
    #[schemars(range(min = 1))]
    pub video_kbps_max: Option<u32>,
    /// Highest audio bit rate, in kbit/s.
    #[schemars(range(min = 1))]
    pub audio_kbps_max: Option<u32>,
    /// Keyframe distance it asks for, in seconds.
    #[schemars(range(min = 1, max = 60))]
    pub keyframe_seconds: Option<u32>,
    /// Longest keyframe distance it takes, in seconds.
    #[schemars(range(min = 1, max = 60))]
    pub keyframe_seconds_max: Option<u32>,
    /// Highest frame rate, in frames per second.
    #[schemars(range(min = 1, max = 1000))]
    pub frame_rate_max: Option<u32>,
    /// Whether it takes B-frames.
    pub b_frames: Option<bool>,
    /// It takes no stream without audio.
    pub needs_audio: Option<bool>,
}

/// A platform without known facts.
fn plain(name: &str) -> Platform {
    Platform {
        name: name.to_owned(),
        title: name.to_owned(),
        server: None,
        backup: None,
        ingests: None,
        server_help: None,
        key_help: "as the platform shows it".to_owned(),
        key_link: String::new(),
        video_codecs: vec!["h264".to_owned()],
        video_kbps_max: None,
        audio_kbps_max: None,
        keyframe_seconds: 2,
        keyframe_seconds_max: None,
        frame_rate_max: None,
        b_frames: None,
        needs_audio: false,
        notes: None,
    }
}

/// The pattern for the types that operators add.
pub(crate) fn plain_type() -> DestType {
    dest_type(&plain("platform"))
}

/// All platforms, with the operator's changes.
///
/// # Errors
/// `Config`, naming the entry of a platform that could not be used.
pub(crate) fn with_settings(settings: Settings) -> Result<Vec<Platform>, Error> {
    let mut all = platforms().to_vec();
    for (name, described) in settings.types {
        let known = all.iter().position(|platform| platform.name == name);
        let index = known.unwrap_or_else(|| {
            all.push(plain(&name));
            all.len() - 1
        });
        let (has_server, has_backup) = (described.server.is_some(), described.backup.is_some());
        let platform = &mut all[index];
        described.write_into(platform);
        if has_server {
            platform.targets(None, "key").map_err(|fault| in_entry(&name, &fault))?;
        } else if has_backup {
            return Err(in_entry(&name, BACKUP_ALONE));
        }
    }
    Ok(all)
}

/// An error in the operator's entry of a platform, with the path of the entry.
pub(crate) fn in_entry(name: &str, fault: &str) -> Error {
    Error::config(format!("{TYPES}.{name} in [driver.platform]: {fault}"))
}

impl Described {
    fn write_into(self, platform: &mut Platform) {
        if let Some(server) = self.server {
            // The known backup does not belong to that server.
            (platform.server, platform.backup) = (Some(server), self.backup);
            platform.ingests = None;
        }
        if let Some(ingests) = self.ingests {
            platform.ingests = Some(ingests).filter(|address| !address.is_empty());
        }
        if let Some(codecs) = self.video_codecs {
            platform.video_codecs = codecs.into_iter().map(|codec| codec.name().to_owned()).collect();
        }
        if let Some(title) = self.title {
            platform.title = title;
        }
        // The host shows the limits; publishing needs none of them.
    }
}

#[cfg(test)]
mod tests {
    use satcast_driver_rtmp::target::TargetError;
    use serde_json::{Value, json};

    use super::*;
    use crate::data::of_field;

    fn tried(types: Value) -> Result<Vec<Platform>, Error> {
        with_settings(serde_json::from_value(json!({ "types": types })).unwrap())
    }

    fn with(types: Value) -> Vec<Platform> {
        tried(types).unwrap()
    }

    fn found(all: &[Platform], name: &str) -> Platform {
        all.iter().find(|platform| platform.name == name).unwrap().clone()
    }

    #[test]
    fn an_operator_may_change_known_platforms_and_add_others() {
        let all = with(json!({
            "youtube": { "server": "rtmp://a.example/app", "videoCodecs": ["h264"] },
            "twitch": { "videoKbpsMax": 8000 },
            "church-tv": { "title": "Church TV", "server": "rtmp://b.example/app", "backup": "rtmp://c.example/app" },
            "own": {},
        }));
        assert_eq!(all.len(), platforms().len() + 2);
        let youtube = found(&all, "youtube");
        assert_eq!(
            youtube.targets(None, "k").unwrap().len(),
            1,
            "the known backup does not belong to that server"
        );
        assert_eq!(youtube.video_codecs, ["h264"]);
        let twitch = found(&all, "twitch");
        assert_eq!((twitch.targets(None, "k").unwrap().len(), twitch.ingests.is_some()), (2, true));
        let church = found(&all, "church-tv");
        assert_eq!((church.title.as_str(), church.targets(None, "k").unwrap().len()), ("Church TV", 2));
        let own = found(&all, "own");
        assert_eq!(own.targets(None, "k").unwrap_err(), own.needs_server());
        assert_eq!(with(json!({})).len(), platforms().len());
    }

    #[test]
    fn the_list_of_servers_belongs_to_the_usual_server() {
        let ingests = |entry: Value| found(&with(json!({ "twitch": entry })), "twitch").ingests;
        assert_eq!(
            ingests(json!({ "server": "rtmp://a.example/app" })),
            None,
            "an operator's server replaces the list"
        );
        assert_eq!(ingests(json!({ "ingests": "" })), None);
        assert_eq!(
            ingests(json!({ "ingests": "https://a.example/" })).as_deref(),
            Some("https://a.example/")
        );
    }

    #[test]
    fn no_text_of_the_schema_is_secret() {
        let schema = schemars::schema_for!(Settings).to_value();
        let entry = &schema["properties"]["types"]["additionalProperties"]["properties"];
        for field in ["title", "server", "ingests"] {
            assert_eq!(entry[field]["type"], json!(["string", "null"]), "{schema}");
        }
        assert_eq!(entry["videoCodecs"]["items"], json!({ "enum": ["h264", "hevc", "av1"] }), "{schema}");
        assert!(
            !schema.to_string().contains("$ref"),
            "the target of a reference would count as a secret: {schema}"
        );
    }

    #[test]
    fn faults_texts() {
        assert_eq!(
            in_entry("mux", BACKUP_ALONE).message,
            "types.mux in [driver.platform]: backup needs a server; set server, too"
        );
    }

    #[test]
    fn errors_name_the_invalid_entry() {
        for (name, entry, fault) in [
            ("kick", json!({ "server": "a.example" }), &of_field("server", TargetError::Scheme)[..]),
            (
                "kick",
                json!({ "server": "rtmp://a.example/app", "backup": "b.example" }),
                &of_field("backup", TargetError::Scheme),
            ),
            ("mux", json!({ "backup": "rtmp://a.example/app" }), BACKUP_ALONE),
        ] {
            assert_eq!(tried(json!({ name: entry })).unwrap_err(), in_entry(name, fault));
        }
        for wrong in [json!({ "a": { "servre": "x" } }), json!({ "a": { "videoCodecs": ["vp9"] } })] {
            assert!(serde_json::from_value::<Settings>(json!({ "types": wrong })).is_err(), "{wrong}");
        }
    }
}
