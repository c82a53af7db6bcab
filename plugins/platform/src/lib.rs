//! Destination types `twitch`, `youtube`, `kick` and others: one for each streaming platform this driver knows.
//!
//! [`data`] holds the facts about each; the rtmp driver publishes. A platform is a target with a preset address, a backup if it
//! has one, the codecs it accepts, and a longer back-off, since platforms block clients that connect too often.
//!
//! An operator may change platforms and add others ([`settings`]). A driver names its types before it gets any settings, so the host
//! makes the types that the setting `types` adds from a pattern, and the driver reads their entries when it is loaded.
//!
//! Invariants: limits of bit rate and keyframes are described, never enforced; no text that leaves this crate holds a key.

pub mod data;
pub mod ingests;
pub mod settings;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use satcast_driver_rtmp::attempts::Attempts;
use satcast_driver_rtmp::push::Push;
use satcast_driver_rtmp::target::{TEXT_BYTES_MAX, Target};
use satcast_driver_rtmp::timing::Timing;
use satcast_driver_rtmp::tls::Trust;
use satcast_plugin_api::driver::{self, Ctx, Destination, Driver, DriverInfo, DynDestination, Media};
use satcast_plugin_api::manifest::{SettingsSchema, TypesSetting};
use satcast_plugin_api::{DestType, Error, Secret};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use data::{Platform, platforms};
use ingests::Ingests;
use settings::Settings;

/// Minimum wait before the next try after any failure.
pub const RETRY_FLOOR: Duration = Duration::from_secs(10);

/// The audio codecs of every platform.
const AUDIO_CODECS: [&str; 1] = ["aac"];

/// Configuration of a destination of any platform.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-address" = "{server}/{key}"))]
pub struct Config {
    /// Stream key, as the platform shows it.
    #[schemars(extend("minLength" = 1, "maxLength" = TEXT_BYTES_MAX))]
    pub key: Secret<String>,
    /// Address to publish to.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("x-secret-url" = true, "maxLength" = TEXT_BYTES_MAX))]
    pub server: Option<Secret<String>>,
}

pub struct Platforms {
    platforms: Vec<Platform>,
    /// Lists of servers, by type.
    ingests: BTreeMap<String, Arc<Ingests>>,
    trust: Trust,
    attempts: Attempts,
}

impl Driver for Platforms {
    const INFO: DriverInfo =
        DriverInfo { id: "platform", version: env!("CARGO_PKG_VERSION"), title: "Streaming platforms" };

    fn types() -> Vec<DestType> {
        platforms().iter().map(dest_type).collect()
    }

    fn settings() -> Option<SettingsSchema> {
        Some(SettingsSchema::of::<Settings>())
    }

    fn made_types() -> Option<TypesSetting> {
        Some(TypesSetting { setting: settings::TYPES.to_owned(), like: settings::plain_type() })
    }

    fn load(host: &driver::Host) -> Result<Self, Error> {
        let (platforms, trust) = (settings::with_settings(host.settings()?)?, Trust::system());
        // Without a folder a list lasts as long as the process.
        let ingests = lists(&platforms, host.data_dir().ok().as_deref(), &trust)?;
        Ok(Platforms { platforms, ingests, trust, attempts: Attempts::default() })
    }

    fn validate(&self, config: driver::Config<'_>) -> Result<(), Error> {
        self.push_for(config).map(drop)
    }

    fn open(&self, config: driver::Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        Ok(Arc::new(self.push_for(config)?))
    }
}

impl Platforms {
    fn push_for(&self, config: driver::Config<'_>) -> Result<PlatformPush, Error> {
        let name = config.type_name();
        let platform = self.platforms.iter().find(|platform| platform.name == name);
        let platform = platform.ok_or_else(|| {
            Error::config(format!("this driver has no platform {name}; use one of its destination types"))
        })?;
        let config = config.parse::<Config>()?;
        let server = config.server.as_ref().map(|server| server.expose().as_str());
        let server = server.filter(|server| !server.is_empty());
        let key = checked_key(config.key.expose())?;
        let targets = platform.targets(server, key.expose()).map_err(Error::config)?;
        // A configured server replaces the list.
        let ingests = self.ingests.get(name).filter(|_| server.is_none()).cloned();
        let codecs = platform.video_codecs.clone();
        let (title, trust) = (platform.title.clone(), self.trust.clone());
        let attempts = self.attempts.clone();
        Ok(PlatformPush { targets, ingests, key, codecs, title, trust, attempts })
    }
}

const KEY_IS_ADDRESS: &str = "key: is an address; enter only the stream key";
const KEY_HAS_SPACE: &str = "key: contains a space or a line break; copy only the stream key";

/// The key without the spaces and line breaks around it, which come with a copy from a page.
fn checked_key(pasted: &str) -> Result<Secret<String>, Error> {
    let key = pasted.trim();
    if key.contains("://") {
        return Err(Error::config(KEY_IS_ADDRESS));
    }
    if key.chars().any(char::is_whitespace) {
        return Err(Error::config(KEY_HAS_SPACE));
    }
    Ok(Secret::new(key.to_owned()))
}

fn lists(
    platforms: &[Platform],
    folder: Option<&Path>,
    trust: &Trust,
) -> Result<BTreeMap<String, Arc<Ingests>>, Error> {
    let listed = platforms.iter().filter_map(|platform| Some((&platform.name, platform.ingests.as_ref()?)));
    let list = |(name, address): (&String, &String)| {
        let list = Ingests::new(name, address, folder, trust.clone());
        let list = list.map_err(|fault| settings::in_entry(name, &format!("ingests: {fault}")))?;
        Ok((name.clone(), Arc::new(list)))
    };
    listed.map(list).collect()
}

/// Pushes to the nearest server, else to the usual ones. Waits at least [`RETRY_FLOOR`] after a failure.
struct PlatformPush {
    /// The usual servers, in the order of the attempts.
    targets: Vec<Target>,
    ingests: Option<Arc<Ingests>>,
    key: Secret<String>,
    codecs: Vec<String>,
    title: String,
    trust: Trust,
    attempts: Attempts,
}

impl PlatformPush {
    async fn push(&self, ctx: &Ctx) -> Result<Push, Error> {
        let near = match &self.ingests {
            Some(ingests) => ingests.nearest(ctx).await,
            None => Arc::default(),
        };
        let near = near.iter().filter_map(|server| Target::parse(server, Some(self.key.expose())).ok());
        let mut targets = near.chain(self.targets.iter().cloned());
        let first = targets.next().ok_or_else(|| Error::internal("the platform has no server"))?;
        let codecs = self.codecs.iter().map(String::as_str).chain(AUDIO_CODECS);
        Ok(Push::new(first, Timing::default(), self.trust.clone())
            .with_backups(targets.collect())
            .with_attempts(&self.attempts)
            .with_codecs(codecs, &self.title))
    }

    async fn try_once(&self, ctx: Ctx, media: Media) -> Result<(), Error> {
        let push = tokio::select! {
            biased;
            () = ctx.stopping() => return Ok(()),
            push = self.push(&ctx) => Arc::new(push?),
        };
        push.run(ctx, media).await
    }
}

impl Destination for PlatformPush {
    async fn run(self: Arc<Self>, ctx: Ctx, media: Media) -> Result<(), Error> {
        self.try_once(ctx, media).await.map_err(|error| {
            let floor = error.retry_after.unwrap_or_default().max(RETRY_FLOOR);
            error.retry_after(floor)
        })
    }
}

/// The type of a platform: the common fields, with the facts about the platform in their schema.
fn dest_type(platform: &Platform) -> DestType {
    let codecs: Vec<&str> = platform.video_codecs.iter().map(String::as_str).chain(AUDIO_CODECS).collect();
    let mut kind = DestType::of::<Config>(&platform.name).title(&platform.title).codecs(&codecs);
    let schema = &mut kind.schema;
    schema["title"] = json!(platform.title);
    schema["description"] = json!(platform.description());
    schema["properties"]["key"]["description"] =
        json!(format!("Where to find it: {}.", platform.key_help_text()));
    let server = &mut schema["properties"]["server"];
    server["description"] = json!(platform.server_description());
    match &platform.server {
        Some(address) => server["default"] = json!(address),
        None => {
            server["type"] = json!("string");
            if let Some(fields) = server.as_object_mut() {
                fields.remove("default");
            }
            schema["required"] = json!(["key", "server"]);
        }
    }
    schema["x-platform"] = facts(platform);
    kind
}

/// The limits as numbers, for programs that read the schema; the host compares streams with them.
fn facts(platform: &Platform) -> Value {
    json!({
        "videoCodecs": platform.video_codecs,
        "audioCodecs": AUDIO_CODECS,
        "videoKbpsMax": platform.video_kbps_max,
        "audioKbpsMax": platform.audio_kbps_max,
        "keyframeSeconds": platform.keyframe_seconds,
        "keyframeSecondsMax": platform.keyframe_seconds_max.unwrap_or(platform.keyframe_seconds),
        "frameRateMax": platform.frame_rate_max,
        "bFrames": platform.b_frames.unwrap_or(true),
        "needsAudio": platform.needs_audio,
        "keyHelp": platform.key_help,
        "keyLink": platform.key_link,
        "hasBackup": platform.backup.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::data::platform;
    use super::*;

    #[test]
    fn every_type_masks_its_key_and_describes_its_platform() {
        for kind in Platforms::types() {
            let (schema, name) = (&kind.schema, &kind.name);
            assert_eq!(schema["properties"]["key"]["x-secret"], true, "{schema}");
            assert_eq!(schema["properties"]["server"]["x-secret-url"], true, "{schema}");
            assert_eq!(schema["additionalProperties"], false, "{name}");
            assert!(
                schema["properties"]["key"]["description"].as_str().unwrap().contains("https://"),
                "{name}"
            );
            assert!(schema["x-platform"]["keyframeSeconds"].as_u64().is_some(), "{name}");
            let needs_server = schema["required"].as_array().unwrap().contains(&json!("server"));
            assert_eq!(needs_server, platform(name).unwrap().server.is_none(), "{name}");
            assert_eq!(schema["properties"]["server"].get("default").is_none(), needs_server, "{schema}");
            assert!(kind.codecs.contains(&"aac".to_owned()), "{name}");
        }
        let twitch = dest_type(platform("twitch").unwrap());
        assert_eq!(twitch.schema["description"], platform("twitch").unwrap().description());
        assert_eq!(twitch.schema["x-platform"]["videoKbpsMax"], 6000);
    }

    #[test]
    fn keys_texts() {
        let refused = |key: &str| checked_key(key).unwrap_err();
        assert_eq!(checked_key(" a\r\n").unwrap().expose(), "a");
        for (key, text) in [
            ("rtmp://a.example/k", "key: is an address; enter only the stream key"),
            ("a b", "key: contains a space or a line break; copy only the stream key"),
            ("a\nb", "key: contains a space or a line break; copy only the stream key"),
        ] {
            assert_eq!(refused(key), Error::config(text));
        }
    }

    #[test]
    fn description_text() {
        let church = Platform {
            title: "Church TV".into(),
            key_help: "ask the sexton".into(),
            key_link: "https://a.example".into(),
            video_codecs: vec!["h264".into(), "hevc".into()],
            video_kbps_max: Some(6000),
            audio_kbps_max: Some(320),
            keyframe_seconds: 2,
            keyframe_seconds_max: Some(4),
            frame_rate_max: Some(60),
            b_frames: Some(false),
            notes: Some("On Sundays.".into()),
            ..platform("twitch").unwrap().clone()
        };
        let text = "Stream to Church TV. Video: h264, hevc up to 6000 kbit/s, a keyframe every 2 s (4 s at most), at most 60 \
                    frames per second, no B-frames. Audio: aac up to 320 kbit/s. On Sundays.";
        let schema = dest_type(&church).schema;
        assert_eq!(schema["description"], text);
        let key = "Where to find it: ask the sexton (https://a.example).";
        assert_eq!(schema["properties"]["key"]["description"], key);
    }
}
