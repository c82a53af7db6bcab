//! Destination type `srt`: one stream as MPEG-TS by SRT, to a receiver that is called, or to receivers that call.
//!
//! [`target`] reads the configuration, `ports` the operator's settings, `push` calls and sends, `listen` serves callers,
//! `feed` makes transport stream packets of media, `outlet` joins and leaves one connection at keyframes, `wire` reads and
//! writes a socket, [`refusal`] has the error texts.
//!
//! Invariants: nothing here retries or resolves a name; the protocol is `satcast_media::srt`; no text that leaves this
//! crate holds a passphrase or a stream id.

mod feed;
mod listen;
mod outlet;
mod ports;
mod push;
pub mod refusal;
pub mod target;
mod timing;
mod wire;

use std::sync::Arc;

use satcast_media::srt::limits::{LATENCY_MS_MAX, LATENCY_MS_MIN};
use satcast_plugin_api::driver::{self, Driver, DriverInfo, DynDestination, SettingsSchema};
use satcast_plugin_api::{DestType, Error, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use listen::Listen;
pub use listen::{CALLERS_MAX, UNWRAPS_PER_SEC_MAX};
pub use ports::Settings;
use push::Push;
use target::{LATENCY_MS_DEFAULT, Place, Target};
pub use timing::Timing;

/// Name of the destination type.
pub const TYPE: &str = "srt";

/// Sends the stream as MPEG-TS by SRT, with H.264 or HEVC and AAC or Opus.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend(
    "x-address" = "{url}",
    "x-order" = ["url", "mode", "streamid", "passphrase", "latency"]
))]
pub struct Config {
    /// Address of the receiver: srt://host:port. In mode listener it is the port that receivers call: srt://:port.
    #[schemars(with = "String", extend("x-secret-url" = true, "maxLength" = target::URL_BYTES_MAX))]
    pub url: Secret<String>,
    /// caller: the service calls the receiver. listener: receivers call the service; the operator decides about ports.
    #[serde(default)]
    pub mode: Mode,
    /// Stream id. As a caller it is what the receiver asks for; as a listener every receiver must send it. It may be empty.
    #[serde(default)]
    pub streamid: Option<Secret<String>>,
    /// Passphrase of 10 to 79 bytes. Leave it empty to send without encryption.
    #[serde(default)]
    pub passphrase: Option<Secret<String>>,
    /// Latency in milliseconds: the time in which lost packets are sent again. Four times the round-trip time is a good value.
    #[serde(default = "latency_default")]
    #[schemars(extend("minimum" = LATENCY_MS_MIN, "maximum" = LATENCY_MS_MAX))]
    pub latency: u16,
    /// Bytes of the key that a caller encrypts with: 16 for AES-128 or 32 for AES-256.
    #[serde(default = "pbkeylen_default")]
    #[schemars(range(min = 16, max = 32))]
    pub pbkeylen: u8,
}

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Mode {
    #[default]
    Caller,
    Listener,
}

fn latency_default() -> u16 {
    LATENCY_MS_DEFAULT
}

fn pbkeylen_default() -> u8 {
    16
}

/// The driver.
pub struct Srt {
    settings: Settings,
    timing: Timing,
}

impl Srt {
    /// The driver with other time limits, for tests.
    ///
    /// # Errors
    /// As [`Driver::load`].
    pub fn with_timing(host: &driver::Host, timing: Timing) -> Result<Self, Error> {
        Ok(Self { settings: host.settings()?, timing })
    }

    fn target(&self, config: driver::Config<'_>) -> Result<Target, Error> {
        let target = Target::of(&config.parse::<Config>()?)?;
        if let Place::Port(port) = target.place
            && !self.settings.listener_ports.hold(port)
        {
            return Err(refusal::closed_port(port));
        }
        Ok(target)
    }
}

impl Driver for Srt {
    const INFO: DriverInfo =
        DriverInfo { id: "srt", version: env!("CARGO_PKG_VERSION"), title: "SRT output" };

    fn types() -> Vec<DestType> {
        let codecs = ["h264", "hevc", "aac", "opus"];
        vec![DestType::of::<Config>(TYPE).title("SRT").codecs(&codecs)]
    }

    fn settings() -> Option<SettingsSchema> {
        Some(SettingsSchema::of::<Settings>())
    }

    fn load(host: &driver::Host) -> Result<Self, Error> {
        Self::with_timing(host, Timing::default())
    }

    fn validate(&self, config: driver::Config<'_>) -> Result<(), Error> {
        self.target(config).map(drop)
    }

    fn open(&self, config: driver::Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        let target = self.target(config)?;
        Ok(match target.place.clone() {
            Place::Receiver { host, port } => Arc::new(Push::new(target, host, port, self.timing)),
            Place::Port(port) => {
                let address = (self.settings.listener_address, port).into();
                Arc::new(Listen::new(target, address, self.timing))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_marks_the_secrets_and_shows_the_rest() {
        let schema = Srt::types()[0].schema.clone();
        let fields = &schema["properties"];
        for secret in ["streamid", "passphrase"] {
            assert_eq!(fields[secret]["x-secret"], true, "{schema}");
        }
        assert_eq!(fields["url"]["type"], "string", "{schema}");
        assert_eq!(fields["mode"]["enum"], serde_json::json!(["caller", "listener"]), "{schema}");
        assert_eq!(fields["mode"]["default"], "caller", "{schema}");
        assert_eq!(fields["latency"]["default"], LATENCY_MS_DEFAULT, "{schema}");
        assert_eq!(schema["required"], serde_json::json!(["url"]));
        assert_eq!(schema["additionalProperties"], false);
        let settings = Srt::settings().unwrap().into_json();
        assert_eq!(settings["properties"]["listener_ports"]["default"], serde_json::json!([]), "{settings}");
    }

    #[test]
    fn debug_of_a_configuration_shows_nothing() {
        let config: Config = serde_json::from_value(serde_json::json!({
            "url": "srt://a.example:9?passphrase=sesame12345",
            "streamid": "hunter2",
            "passphrase": "correct horse",
        }))
        .unwrap();
        let shown = format!("{config:?} {:?}", Target::of(&config));
        for secret in ["sesame", "hunter2", "correct"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}
