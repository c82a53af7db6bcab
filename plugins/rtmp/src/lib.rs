//! Destination type `rtmp`: one stream pushed to one RTMP server.
//!
//! [`target`] reads the address, [`tls`] checks certificates, [`push`] owns the connection from connect to end,
//! `feed` puts packets into the RTMP session, `watch` decides when the destination is live and when silence is a
//! failure, [`attempts`] remembers how attempts ended, [`refusal`] builds the error texts and keeps the key out of
//! them.
//!
//! Invariants: nothing here retries, resolves a name or spawns a task; the protocol itself is
//! `satcast_media::rtmp::client`; no text that leaves this crate holds the key, the query or the login of a target.

pub mod attempts;
mod codec_policy;
mod feed;
mod link;
mod login;
pub mod push;
pub mod refusal;
pub mod target;
pub mod timing;
pub mod tls;
mod watch;

use std::sync::Arc;

use satcast_plugin_api::driver::{self, Driver, DriverInfo, DynDestination};
use satcast_plugin_api::{DestType, Error, Secret};
use schemars::JsonSchema;
use serde::Deserialize;

use attempts::Attempts;
use push::Push;
use target::Target;
use timing::Timing;
use tls::Trust;

pub const TYPE: &str = "rtmp";

/// Sends the stream to any server that takes RTMP.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-address" = "{url}/{key}", "x-order" = ["url", "key"]))]
pub struct Config {
    /// Address of the server, such as rtmp://host/app; rtmps:// encrypts the connection. A login goes before the host:
    /// rtmp://user:password@host/app.
    #[schemars(with = "String", extend("x-secret-url" = true, "maxLength" = target::TEXT_BYTES_MAX))]
    pub url: Secret<String>,
    /// Leave it empty if the address ends with the stream key.
    #[serde(default)]
    #[schemars(extend("maxLength" = target::TEXT_BYTES_MAX))]
    pub key: Option<Secret<String>>,
    /// Sends HEVC, AV1 and Opus also to a server that does not announce them. Without this option such a stream fails,
    /// because most servers would drop it without an error.
    #[serde(default, rename = "forceEnhanced")]
    pub force_enhanced: bool,
}

impl Config {
    /// The target that the configuration names.
    ///
    /// # Errors
    /// An error of class `Config` that begins with the name of the field.
    pub fn target(&self) -> Result<Target, Error> {
        let key = self.key.as_ref().map(|key| key.expose().as_str());
        Target::parse(self.url.expose(), key).map_err(|error| Error::config(error.to_string()))
    }
}

pub struct Rtmp {
    trust: Trust,
    attempts: Attempts,
}

impl Driver for Rtmp {
    const INFO: DriverInfo =
        DriverInfo { id: "rtmp", version: env!("CARGO_PKG_VERSION"), title: "RTMP push" };

    fn types() -> Vec<DestType> {
        let codecs = ["h264", "hevc", "av1", "aac", "opus"];
        vec![DestType::of::<Config>(TYPE).title("RTMP server").codecs(&codecs)]
    }

    fn load(_: &driver::Host) -> Result<Self, Error> {
        Ok(Rtmp { trust: Trust::system(), attempts: Attempts::default() })
    }

    fn validate(&self, config: driver::Config<'_>) -> Result<(), Error> {
        config.parse::<Config>()?.target().map(drop)
    }

    fn open(&self, config: driver::Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        let config = config.parse::<Config>()?;
        let push =
            Push::new(config.target()?, Timing::default(), self.trust.clone()).with_attempts(&self.attempts);
        Ok(Arc::new(if config.force_enhanced { push.with_all_codecs() } else { push }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_marks_both_secrets() {
        let schema = Rtmp::types()[0].schema.clone();
        let fields = &schema["properties"];
        assert_eq!(fields["url"]["x-secret-url"], true, "{schema}");
        assert_eq!(fields["url"]["type"], "string", "{schema}");
        assert_eq!(fields["key"]["x-secret"], true, "{schema}");
        assert_eq!(fields["key"]["type"], serde_json::json!(["string", "null"]), "{schema}");
        assert_eq!(schema["required"], serde_json::json!(["url"]));
        assert_eq!(schema["additionalProperties"], false);
    }

    #[test]
    fn debug_of_a_configuration_shows_nothing() {
        let config: Config = serde_json::from_value(serde_json::json!({
            "url": "rtmp://a.example/live/sesame",
            "key": "hunter2",
        }))
        .unwrap();
        let shown = format!("{config:?}");
        assert!(!shown.contains("sesame") && !shown.contains("hunter2"), "{shown}");
    }
}
