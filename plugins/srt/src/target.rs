//! Reads the configuration of a destination: the address, what may stand behind its `?`, and the fields.

use std::fmt;

use satcast_media::srt::Call;
use satcast_media::srt::limits::{LATENCY_MS_MAX, LATENCY_MS_MIN, PASSPHRASE_BYTES, STREAM_ID_BYTES_MAX};
use satcast_plugin_api::Error;

use crate::{Config, Mode};

/// Longest address in bytes.
pub const URL_BYTES_MAX: usize = 2_048;
/// Latency in milliseconds of a destination that names none.
pub const LATENCY_MS_DEFAULT: u16 = 1_000;
/// Longest host name in bytes.
const HOST_BYTES_MAX: usize = 253;

/// Where the stream goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The service calls.
    Receiver {
        /// Name or literal address, without brackets.
        host: String,
        /// UDP port.
        port: u16,
    },
    /// Receivers call this UDP port.
    Port(u16),
}

/// A configuration that was read. `Debug` shows no secret.
#[derive(Clone)]
pub struct Target {
    /// Where the stream goes.
    pub place: Place,
    /// Stream id; may be empty.
    pub(crate) stream_id: String,
    pub(crate) passphrase: Option<String>,
    pub(crate) latency_ms: u16,
    pub(crate) key_bytes: usize,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("place", &self.place).finish_non_exhaustive()
    }
}

/// The part that may be shown: host and port.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Receiver { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Receiver { host, port } => write!(f, "{host}:{port}"),
            Place::Port(port) => write!(f, "port {port}"),
        }
    }
}

/// What stands behind the `?` of an address, as ffmpeg, OBS and other programs write it.
#[derive(Default)]
struct Written {
    mode: Option<Mode>,
    stream_id: Option<String>,
    passphrase: Option<String>,
    key_bytes: Option<u8>,
}

impl Target {
    /// Reads a configuration.
    ///
    /// # Errors
    /// Class `Config`; the text begins with the name of the field and repeats no value.
    pub fn of(config: &Config) -> Result<Self, Error> {
        let url = config.url.expose();
        if url.len() > URL_BYTES_MAX {
            return Err(wrong("url", format!("has more than {URL_BYTES_MAX} bytes")));
        }
        let rest = url.trim().strip_prefix("srt://").ok_or_else(|| wrong("url", "must begin with srt://"))?;
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let written = Written::read(query)?;
        let mode = match (config.mode, written.mode) {
            (Mode::Caller, Some(mode)) => mode,
            (mode, _) => mode,
        };
        let place = place(address.trim_end_matches('/'), mode)?;
        let given = |field: &Option<satcast_plugin_api::Secret<String>>| {
            field.as_ref().map(|text| text.expose().clone()).filter(|text| !text.is_empty())
        };
        let stream_id = one("streamid", given(&config.streamid), written.stream_id)?.unwrap_or_default();
        let passphrase = one("passphrase", given(&config.passphrase), written.passphrase)?;
        if stream_id.len() > STREAM_ID_BYTES_MAX || stream_id.chars().any(char::is_control) {
            let rule = format!("must have at most {STREAM_ID_BYTES_MAX} bytes and no control characters");
            return Err(wrong("streamid", rule));
        }
        if passphrase.as_ref().is_some_and(|text| !PASSPHRASE_BYTES.contains(&text.len())) {
            let (least, most) = (PASSPHRASE_BYTES.start(), PASSPHRASE_BYTES.end());
            return Err(wrong("passphrase", format!("must have {least} to {most} bytes")));
        }
        let key_bytes = written.key_bytes.unwrap_or(config.pbkeylen);
        if ![16, 32].contains(&key_bytes) {
            return Err(wrong("pbkeylen", "must be 16 for AES-128 or 32 for AES-256"));
        }
        if !(LATENCY_MS_MIN..=LATENCY_MS_MAX).contains(&config.latency) {
            return Err(wrong(
                "latency",
                format!("must be {LATENCY_MS_MIN} to {LATENCY_MS_MAX} milliseconds"),
            ));
        }
        let (latency_ms, key_bytes) = (config.latency, key_bytes.into());
        Ok(Self { place, stream_id, passphrase, latency_ms, key_bytes })
    }

    /// What the receiver is asked for.
    pub(crate) fn call(&self) -> Call {
        let secret = self.passphrase.clone().map(|passphrase| (passphrase, self.key_bytes));
        Call { stream_id: self.stream_id.clone(), latency_ms: self.latency_ms, secret }
    }
}

impl Written {
    fn read(query: &str) -> Result<Self, Error> {
        let mut written = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = unescape(value);
            match name {
                "mode" if value == "caller" => written.mode = Some(Mode::Caller),
                "mode" if value == "listener" => written.mode = Some(Mode::Listener),
                "mode" => {
                    return Err(wrong("url", "mode is caller or listener; rendezvous is not supported"));
                }
                "streamid" | "srt_streamid" => {
                    written.stream_id = Some(value).filter(|text| !text.is_empty())
                }
                "passphrase" => written.passphrase = Some(value).filter(|text| !text.is_empty()),
                "pbkeylen" => {
                    let bytes = value.parse().map_err(|_| wrong("url", "pbkeylen is 16 or 32"))?;
                    written.key_bytes = Some(bytes).filter(|bytes| *bytes != 0);
                }
                "transtype" if value == "live" => {}
                "pkt_size" | "payload_size" => {}
                "latency" | "rcvlatency" | "peerlatency" => {
                    let reason = "a latency behind ? is in microseconds for some programs and in milliseconds for \
                                  others; leave it out and give milliseconds in the field latency";
                    return Err(wrong("url", reason));
                }
                _ => {
                    let reason = "only mode, streamid, passphrase and pbkeylen may follow the ?; leave out the rest, \
                                  and use the fields streamid, passphrase, latency and pbkeylen";
                    return Err(wrong("url", reason));
                }
            }
        }
        Ok(written)
    }
}

/// A value that may stand in its field or in the address.
fn one(name: &str, field: Option<String>, written: Option<String>) -> Result<Option<String>, Error> {
    match (field, written) {
        (Some(field), Some(written)) if field != written => {
            Err(wrong(name, "differs from the value in url; leave one of them out"))
        }
        (field, written) => Ok(field.or(written)),
    }
}

fn place(address: &str, mode: Mode) -> Result<Place, Error> {
    let (host, port) =
        address.rsplit_once(':').ok_or_else(|| wrong("url", "has no port; write srt://host:port"))?;
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|port: &u16| digits && *port != 0);
    let port = port.ok_or_else(|| wrong("url", "ends with a port of 1 to 65535: srt://host:port"))?;
    if mode == Mode::Listener {
        return match host {
            "" | "0.0.0.0" | "[::]" => Ok(Place::Port(port)),
            _ => {
                Err(wrong("url", "has no host in mode listener, which only opens a port; write srt://:port"))
            }
        };
    }
    let host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(literal) => literal.parse::<std::net::Ipv6Addr>().is_ok().then_some(literal),
        None => {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            let is_name = (1..=HOST_BYTES_MAX).contains(&host.len()) && host.bytes().all(known);
            is_name.then_some(host)
        }
    };
    let reason = "has no valid host; write srt://host:port, or choose mode listener for srt://:port";
    let host = host.ok_or_else(|| wrong("url", reason))?.to_owned();
    Ok(Place::Receiver { host, port })
}

fn wrong(field: &str, reason: impl fmt::Display) -> Error {
    Error::config(format!("{field}: {reason}"))
}

/// Decodes percent escapes; invalid ones stay as they are.
fn unescape(text: &str) -> String {
    let (bytes, mut plain, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while at < bytes.len() {
        let escape = bytes
            .get(at + 1..at + 3)
            .filter(|hex| bytes[at] == b'%' && hex.iter().all(u8::is_ascii_hexdigit));
        let value = escape.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        plain.push(value.unwrap_or(bytes[at]));
        at += if value.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(config: Value) -> Result<Target, Error> {
        Target::of(&serde_json::from_value(config).unwrap())
    }

    fn receiver(host: &str, port: u16) -> Place {
        Place::Receiver { host: host.to_owned(), port }
    }

    #[test]
    fn addresses_are_read_in_both_modes() {
        for (url, place, shown) in [
            ("srt://a.example:9000", receiver("a.example", 9_000), "a.example:9000"),
            ("srt://192.0.2.1:1/", receiver("192.0.2.1", 1), "192.0.2.1:1"),
            ("srt://[2001:db8::1]:9000?mode=caller", receiver("2001:db8::1", 9_000), "[2001:db8::1]:9000"),
            ("srt://:9000?mode=listener", Place::Port(9_000), "port 9000"),
            ("srt://0.0.0.0:9000?mode=listener", Place::Port(9_000), "port 9000"),
        ] {
            let target = read(json!({ "url": url })).unwrap();
            assert_eq!((&target.place, target.to_string().as_str()), (&place, shown), "{url}");
        }
        assert_eq!(read(json!({ "url": "srt://:7", "mode": "listener" })).unwrap().place, Place::Port(7));
    }

    #[test]
    fn values_stand_in_the_fields_or_in_the_address() {
        let plain = read(json!({ "url": "srt://a:9" })).unwrap();
        assert_eq!((plain.stream_id.as_str(), &plain.passphrase), ("", &None));
        assert_eq!((plain.latency_ms, plain.key_bytes), (LATENCY_MS_DEFAULT, 16));
        let fields = json!({ "url": "srt://a:9", "streamid": "#!::r=x,m=publish", "passphrase": "correct horse",
            "latency": 2_000, "pbkeylen": 32 });
        let url =
            "srt://a:9?streamid=%23!::r=x,m=publish&passphrase=correct%20horse&pbkeylen=32&transtype=live";
        for (config, latency_ms) in [(fields, 2_000), (json!({ "url": url }), LATENCY_MS_DEFAULT)] {
            let target = read(config).unwrap();
            assert_eq!(target.stream_id, "#!::r=x,m=publish");
            assert_eq!(target.passphrase.as_deref(), Some("correct horse"));
            assert_eq!((target.latency_ms, target.key_bytes), (latency_ms, 32));
        }
        let same = json!({ "url": "srt://a:9?streamid=x", "streamid": "x", "passphrase": "" });
        assert_eq!(read(same).unwrap().passphrase, None);
    }

    #[test]
    fn refusals_name_their_field_and_repeat_no_value() {
        let of = |url: &str| json!({ "url": url });
        let long = "x".repeat(URL_BYTES_MAX);
        for (config, field) in [
            (of("http://a.example:9"), "url"),
            (of(&format!("srt://a:9?streamid={long}")), "url"),
            (of("srt://a.example"), "url"),
            (of("srt://a.example:0"), "url"),
            (of("srt://a.example:+9"), "url"),
            (of("srt://:9000"), "url"),
            (of("srt://user@a:9"), "url"),
            (of("srt://[a]:9"), "url"),
            (of("srt://a:9?mode=rendezvous"), "url"),
            (of("srt://a:9?latency=200"), "url"),
            (of("srt://a:9?packetfilter=fec"), "url"),
            (of("srt://a:9?pbkeylen=x"), "url"),
            (json!({ "url": "srt://a:9", "mode": "listener" }), "url"),
            (json!({ "url": "srt://a:9?streamid=sesame", "streamid": "other" }), "streamid"),
            (json!({ "url": "srt://a:9", "streamid": "x".repeat(STREAM_ID_BYTES_MAX + 1) }), "streamid"),
            (json!({ "url": "srt://a:9", "streamid": "a\nb" }), "streamid"),
            (json!({ "url": "srt://a:9", "passphrase": "sesame" }), "passphrase"),
            (json!({ "url": "srt://a:9", "passphrase": "x".repeat(80) }), "passphrase"),
            (json!({ "url": "srt://a:9", "pbkeylen": 24 }), "pbkeylen"),
            (json!({ "url": "srt://a:9", "latency": 119 }), "latency"),
            (json!({ "url": "srt://a:9", "latency": 8_001 }), "latency"),
        ] {
            let error = read(config).unwrap_err();
            assert_eq!(error.class, satcast_plugin_api::Class::Config);
            assert_eq!(error.message.split(": ").next(), Some(field), "{error}");
            assert!(!error.message.contains("sesame"), "{error}");
        }
    }
}
