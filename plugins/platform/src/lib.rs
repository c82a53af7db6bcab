//! Destination types `twitch`, `youtube`, `kick` and others: one for each streaming platform this driver knows.
//!
//! [`data`] holds what is known of each; publishing is the rtmp driver's. A platform is a target with its address filled in, a
//! backup where it has one, the codecs it takes, and a longer rest between tries, since platforms shut out who knocks often.
//!
//! An operator may give a platform other servers ([`Settings`]); which types there are is fixed, as a driver names them before it is
//! told any setting.
//!
//! Invariants: limits of bit rate and keyframes are described, never enforced; no text that leaves this crate holds a key.

pub mod data;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use satcast_driver_rtmp::push::Push;
use satcast_driver_rtmp::target::TEXT_BYTES_MAX;
use satcast_driver_rtmp::timing::Timing;
use satcast_driver_rtmp::tls::Trust;
use satcast_plugin_api::driver::{self, Ctx, Destination, Driver, DriverInfo, DynDestination, Media};
use satcast_plugin_api::manifest::SettingsSchema;
use satcast_plugin_api::{DestType, Error, Secret};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use data::{Platform, platforms};

/// Floor before the next try after any failure.
pub const RETRY_FLOOR: Duration = Duration::from_secs(10);

/// Audio codecs that every platform takes, and no other.
const AUDIO_CODECS: [&str; 1] = ["aac"];

/// Configuration of a destination of any platform's type.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Stream key, as the platform shows it.
    #[schemars(extend("minLength" = 1, "maxLength" = TEXT_BYTES_MAX))]
    pub key: Secret<String>,
    /// Address to publish to.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("x-secret-url" = true, "maxLength" = TEXT_BYTES_MAX))]
    pub server: Option<Secret<String>>,
}

/// `[driver.platform]`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Servers in place of those this driver knows, by destination type.
    #[serde(default)]
    pub servers: BTreeMap<String, Servers>,
}

/// Where one platform is published to.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Servers {
    /// Address to publish to, without a key.
    pub server: String,
    /// The one to try while `server` cannot be reached.
    #[serde(default)]
    pub backup: Option<String>,
}

/// The driver.
pub struct Platforms {
    platforms: Vec<Platform>,
    trust: Trust,
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

    fn load(host: &driver::Host) -> Result<Self, Error> {
        Ok(Platforms { platforms: with_servers(host.settings()?)?, trust: Trust::system() })
    }

    fn validate(&self, config: driver::Config<'_>) -> Result<(), Error> {
        self.push(config).map(drop)
    }

    fn open(&self, config: driver::Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        Ok(Arc::new(Patient(Arc::new(self.push(config)?))))
    }
}

impl Platforms {
    fn push(&self, config: driver::Config<'_>) -> Result<Push, Error> {
        let name = config.type_name();
        let platform = self.platforms.iter().find(|platform| platform.name == name);
        let platform = platform.ok_or_else(|| Error::config(format!("{name} is no platform known here")))?;
        let config = config.parse::<Config>()?;
        let server = config.server.as_ref().map(|server| server.expose().as_str());
        let mut targets = platform.targets(server, config.key.expose()).map_err(Error::config)?.into_iter();
        let first = targets.next().ok_or_else(|| Error::internal("a platform without a server"))?;
        let codecs = platform.video_codecs.iter().map(String::as_str).chain(AUDIO_CODECS);
        Ok(Push::new(first, Timing::default(), self.trust.clone())
            .with_backups(targets.collect())
            .taking(codecs, &platform.title))
    }
}

/// All platforms, with the operator's servers.
///
/// # Errors
/// Names the entry that is of no platform, or no address.
fn with_servers(settings: Settings) -> Result<Vec<Platform>, Error> {
    let mut platforms = platforms().to_vec();
    for (name, servers) in settings.servers {
        let platform = platforms.iter_mut().find(|platform| platform.name == name);
        let platform = platform.ok_or_else(|| {
            Error::config(format!("servers.{name} in [driver.platform] is of no platform known here"))
        })?;
        (platform.server, platform.backup) = (Some(servers.server), servers.backup);
        platform
            .targets(None, "key")
            .map_err(|error| Error::config(format!("servers.{name} in [driver.platform]: {error}")))?;
    }
    Ok(platforms)
}

/// A push whose failures rest for [`RETRY_FLOOR`] at least.
struct Patient(Arc<Push>);

impl Destination for Patient {
    async fn run(self: Arc<Self>, ctx: Ctx, media: Media) -> Result<(), Error> {
        self.0.clone().run(ctx, media).await.map_err(|error| {
            let floor = error.retry_after.unwrap_or_default().max(RETRY_FLOOR);
            error.retry_after(floor)
        })
    }
}

/// The type of one platform: the common fields, with what is known of the platform written into their schema.
fn dest_type(platform: &Platform) -> DestType {
    let codecs: Vec<&str> = platform.video_codecs.iter().map(String::as_str).chain(AUDIO_CODECS).collect();
    let mut kind = DestType::of::<Config>(&platform.name).title(&platform.title).codecs(&codecs);
    let schema = &mut kind.schema;
    schema["title"] = json!(platform.title);
    schema["description"] = json!(platform.description());
    schema["properties"]["key"]["description"] =
        json!(format!("Stream key: {} ({}).", platform.key_help, platform.key_link));
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
    fn an_operator_may_give_other_servers_to_known_platforms() {
        let set = |name: &str, server: &str| {
            let servers = Servers { server: server.to_owned(), backup: None };
            with_servers(Settings { servers: [(name.to_owned(), servers)].into() })
        };
        let changed = set("youtube", "rtmp://a.example/app").unwrap();
        assert_eq!(changed.len(), platforms().len());
        let youtube = changed.iter().find(|platform| platform.name == "youtube").unwrap();
        assert_eq!(youtube.targets(None, "k").unwrap().len(), 1, "its own backup is not one of that server");
        let unknown = set("utube", "rtmp://a.example/app").unwrap_err();
        assert_eq!(unknown.message, "servers.utube in [driver.platform] is of no platform known here");
        let wrong = set("kick", "a.example").unwrap_err();
        assert!(
            wrong.message.starts_with("servers.kick in [driver.platform]: server: must begin"),
            "{wrong}"
        );
        assert!(with_servers(Settings::default()).unwrap().iter().any(|platform| platform.name == "x"));
    }

    #[test]
    fn every_type_masks_its_key_and_says_what_the_platform_wants() {
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
        assert!(twitch.schema["description"].as_str().unwrap().contains("up to 6000 kbit/s"));
        assert_eq!(twitch.schema["x-platform"]["videoKbpsMax"], 6000);
    }
}
