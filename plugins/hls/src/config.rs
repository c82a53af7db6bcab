//! Configuration of a destination.

use std::fmt;

use satcast_media::playlist::WINDOW_SECONDS_MAX;
use satcast_plugin_api::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use crate::limits::WINDOW_QUOTA_BYTES;

/// Longest rewind in seconds.
pub const DVR_SECONDS_MAX: u32 = WINDOW_SECONDS_MAX;
pub const ORIGINS_MAX: usize = 32;
pub const ORIGIN_BYTES_MAX: usize = 256;

/// Viewers play the stream on the player page or on your website. Changes apply at once to a live stream.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("x-order" = ["dvrSeconds", "lowLatency", "allowedOrigins"], "x-platform" = {
    "keyframeSeconds": 2, "keyframeSecondsMax": 4, "keyframeWhy": "viewers are at least three keyframe intervals behind", "needsVideo": false
}))]
pub struct Config {
    /// How far back viewers can go. 0 turns rewind off, and nothing is written to disk.
    #[serde(default = "dvr_seconds_default", deserialize_with = "integer")]
    #[schemars(with = "u32", extend("maximum" = DVR_SECONDS_MAX))]
    pub dvr_seconds: u32,
    /// Viewers are about two seconds behind instead of six or more, and their players send four times as many
    /// requests. A change during a live stream starts new segments: viewers cannot go back beyond that point.
    #[serde(default)]
    pub low_latency: bool,
    /// Websites whose pages may play the stream, such as https://example.org or https://example.org:8443. Leave it
    /// empty to allow all.
    #[serde(default)]
    #[schemars(extend("maxItems" = ORIGINS_MAX, "x-origins" = true), inner(length(max = ORIGIN_BYTES_MAX)))]
    pub allowed_origins: Vec<String>,
}

/// Operator settings in `[driver.hls]`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Settings {
    /// Bytes of disk that the window of one destination may use. Beyond it viewers cannot go back as far as
    /// `dvrSeconds`.
    #[schemars(range(min = 1))]
    pub window_quota_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { window_quota_bytes: WINDOW_QUOTA_BYTES }
    }
}

fn dvr_seconds_default() -> u32 {
    DVR_SECONDS_MAX
}

/// An integer in the sense of JSON Schema, which includes 10.0 and 1e2. A number that is too large for the type becomes
/// the largest value.
fn integer<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let number = serde_json::Number::deserialize(from)?;
    let whole = number.as_f64().filter(|value| value.fract() == 0.0 && *value >= 0.0);
    let whole = whole.ok_or_else(|| serde::de::Error::custom("must be a whole number of 0 or more"))?;
    // A double holds every u32; the cast saturates.
    Ok(whole as u32)
}

impl Config {
    /// Checks the rules that the schema cannot express.
    ///
    /// # Errors
    /// An error of class `Config` that begins with the name of the field.
    pub fn check(&self) -> Result<(), Error> {
        if self.dvr_seconds > DVR_SECONDS_MAX {
            return Err(dvr_too_long());
        }
        if self.allowed_origins.len() > ORIGINS_MAX {
            return Err(too_many_origins());
        }
        for (index, origin) in self.allowed_origins.iter().enumerate() {
            check_origin(origin).map_err(|fault| fault.at(index))?;
        }
        Ok(())
    }
}

fn dvr_too_long() -> Error {
    Error::config(format!("dvrSeconds must be 0 to {DVR_SECONDS_MAX}"))
}

fn too_many_origins() -> Error {
    Error::config(format!("allowedOrigins may have at most {ORIGINS_MAX} entries"))
}

/// Why no browser would send an origin.
#[derive(Debug, PartialEq, Eq)]
enum OriginFault {
    TooLong,
    Form,
    /// A path, a query or a user.
    MoreThanOrigin,
    UpperCase,
    Port,
    /// The default port of the scheme.
    OwnPort(u16),
}

impl OriginFault {
    fn at(&self, index: usize) -> Error {
        Error::config(format!("allowedOrigins[{index}] {self}"))
    }
}

impl fmt::Display for OriginFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = "must be http or https with a host, and a port if it needs one, like https://example.org";
        match self {
            OriginFault::TooLong => write!(f, "is longer than {ORIGIN_BYTES_MAX} bytes"),
            OriginFault::Form => f.write_str(form),
            OriginFault::MoreThanOrigin => {
                write!(f, "{form}; remove everything after the host and port, including the last slash")
            }
            OriginFault::UpperCase => f.write_str("must be in lower case, as browsers send it"),
            OriginFault::Port => f.write_str("has a port that is not a number from 1 to 65535"),
            OriginFault::OwnPort(number) => {
                write!(f, "must leave out :{number}, because browsers do not send the default port")
            }
        }
    }
}

/// An origin as browsers write it (RFC 6454, section 6.2). The host compares origins byte by byte, so another form
/// would silently never match.
fn check_origin(origin: &str) -> Result<(), OriginFault> {
    if origin.len() > ORIGIN_BYTES_MAX {
        return Err(OriginFault::TooLong);
    }
    let (scheme, authority) = origin.split_once("://").ok_or(OriginFault::Form)?;
    let (host, port) = match authority.rsplit_once(':') {
        // A colon inside the brackets of an IPv6 address does not start a port.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if origin.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(OriginFault::UpperCase);
    }
    if authority.contains(['/', '?', '#', '@']) {
        return Err(OriginFault::MoreThanOrigin);
    }
    if !matches!(scheme, "http" | "https") || !is_host(host) {
        return Err(OriginFault::Form);
    }
    let Some(port) = port else { return Ok(()) };
    let number: u16 = port.parse().map_err(|_| OriginFault::Port)?;
    if number == 0 || number.to_string() != port {
        return Err(OriginFault::Port);
    }
    if matches!((scheme, number), ("http", 80) | ("https", 443)) {
        return Err(OriginFault::OwnPort(number));
    }
    Ok(())
}

fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    !host.is_empty() && host.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(config: Value) -> Result<Config, String> {
        let config: Config = serde_json::from_value(config).map_err(|error| error.to_string())?;
        config.check().map(|()| config).map_err(|error| error.message)
    }

    #[test]
    fn an_empty_configuration_means_an_hour_for_all_sites() {
        assert_eq!(
            check(json!({})),
            Ok(Config { dvr_seconds: 3600, low_latency: false, allowed_origins: vec![] })
        );
        assert_eq!(check(json!({ "dvrSeconds": 0 })).unwrap().dvr_seconds, 0);
        assert!(check(json!({ "lowLatency": true })).unwrap().low_latency);
        assert!(check(json!({ "lowLatency": 1 })).is_err());
    }

    #[test]
    fn whole_numbers_may_be_written_as_any_number() {
        let texts = [("10", 10), ("10.0", 10), ("1e2", 100), ("3.6e3", 3600), ("0.0", 0), ("-0.0", 0)];
        for (text, seconds) in texts {
            let config = check(serde_json::from_str(&format!("{{\"dvrSeconds\":{text}}}")).unwrap());
            assert_eq!(config.unwrap().dvr_seconds, seconds, "{text}");
        }
        for text in ["10.5", "-1", "-1.0", "1e-2", "\"10\"", "true", "null", "[10]"] {
            let config = check(serde_json::from_str(&format!("{{\"dvrSeconds\":{text}}}")).unwrap());
            assert!(config.is_err(), "{text}: {config:?}");
        }
        for text in ["3600.5e1", "1e300", "4294967296", "18446744073709551616"] {
            let config = check(serde_json::from_str(&format!("{{\"dvrSeconds\":{text}}}")).unwrap());
            assert_eq!(config, Err(dvr_too_long().message), "{text}");
        }
    }

    #[test]
    fn every_limit_refuses() {
        assert_eq!(check(json!({ "dvrSeconds": 3601 })), Err(dvr_too_long().message));
        assert!(check(json!({ "dvrSeconds": -1 })).is_err());
        assert!(check(json!({ "dvr": 1 })).unwrap_err().contains("`dvr`"));
        let many = vec!["https://a.example"; ORIGINS_MAX];
        assert!(check(json!({ "allowedOrigins": many })).is_ok());
        let more = [&many[..], &["https://b.example"]].concat();
        assert_eq!(check(json!({ "allowedOrigins": more })), Err(too_many_origins().message));
        let host = "a".repeat(ORIGIN_BYTES_MAX - "https://".len());
        assert!(check(json!({ "allowedOrigins": [format!("https://{host}")] })).is_ok());
        let long = check(json!({ "allowedOrigins": [format!("https://{host}a")] }));
        assert_eq!(long, Err(OriginFault::TooLong.at(0).message));
    }

    #[test]
    fn origins_are_those_that_browsers_send() {
        for good in [
            "https://example.org",
            "http://localhost:3000",
            "http://127.0.0.1:8080",
            "https://[2001:db8::1]",
            "http://[::1]:8080",
            "https://xn--bcher-kva.example",
        ] {
            assert_eq!(check_origin(good), Ok(()), "{good}");
        }
        for (bad, fault) in [
            ("example.org", OriginFault::Form),
            ("*", OriginFault::Form),
            ("null", OriginFault::Form),
            ("capacitor://localhost", OriginFault::Form),
            ("ftp://example.org", OriginFault::Form),
            ("javascript://example.org", OriginFault::Form),
            ("http.s://example.org", OriginFault::Form),
            ("://example.org", OriginFault::Form),
            ("https://", OriginFault::Form),
            ("https://*.example.org", OriginFault::Form),
            ("https://b\u{fc}cher.example", OriginFault::Form),
            ("https://a b", OriginFault::Form),
            ("https://[::1", OriginFault::Form),
            ("https://example.org/", OriginFault::MoreThanOrigin),
            ("https://u@example.org", OriginFault::MoreThanOrigin),
            ("https://Example.org", OriginFault::UpperCase),
            ("https://example.org:443", OriginFault::OwnPort(443)),
            ("http://example.org:080", OriginFault::Port),
            ("http://example.org:0", OriginFault::Port),
            ("http://example.org:70000", OriginFault::Port),
            ("http://example.org:", OriginFault::Port),
        ] {
            assert_eq!(check_origin(bad), Err(fault), "{bad}");
        }
    }

    #[test]
    fn refusals_texts() {
        let form = "must be http or https with a host, and a port if it needs one, like https://example.org";
        let more = format!("{form}; remove everything after the host and port, including the last slash");
        for (fault, text) in [
            (OriginFault::TooLong, "is longer than 256 bytes"),
            (OriginFault::Form, form),
            (OriginFault::MoreThanOrigin, &more),
            (OriginFault::UpperCase, "must be in lower case, as browsers send it"),
            (OriginFault::Port, "has a port that is not a number from 1 to 65535"),
            (OriginFault::OwnPort(80), "must leave out :80, because browsers do not send the default port"),
        ] {
            assert_eq!(fault.at(2), Error::config(format!("allowedOrigins[2] {text}")));
        }
        assert_eq!(dvr_too_long(), Error::config("dvrSeconds must be 0 to 3600"));
        assert_eq!(too_many_origins(), Error::config("allowedOrigins may have at most 32 entries"));
    }

    #[test]
    fn the_schema_names_its_limits() {
        let schema = serde_json::to_value(schemars::schema_for!(Config)).unwrap();
        let fields = &schema["properties"];
        assert_eq!(fields["dvrSeconds"]["type"], "integer", "{schema}");
        assert_eq!(
            (&fields["dvrSeconds"]["minimum"], &fields["dvrSeconds"]["maximum"]),
            (&0.into(), &3600.into())
        );
        assert_eq!(fields["dvrSeconds"]["default"], 3600, "{schema}");
        assert_eq!(fields["lowLatency"]["default"], false, "{schema}");
        assert_eq!(fields["allowedOrigins"]["maxItems"], 32, "{schema}");
        assert_eq!(fields["allowedOrigins"]["items"]["maxLength"], 256, "{schema}");
        assert_eq!(schema["additionalProperties"], false, "{schema}");
        assert!(schema.get("required").is_none(), "{schema}");
    }
}
