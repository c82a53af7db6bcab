//! Configuration of a destination.

use satcast_media::playlist::WINDOW_SECONDS_MAX;
use satcast_plugin_api::Error;
use schemars::JsonSchema;
use serde::Deserialize;

/// Longest rewind in seconds.
pub const DVR_SECONDS_MAX: u32 = WINDOW_SECONDS_MAX;
/// Most origins.
pub const ORIGINS_MAX: usize = 32;
/// Longest origin in bytes.
pub const ORIGIN_BYTES_MAX: usize = 256;

/// Configuration of a destination of type `self-hosted`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// How far back viewers can go, in seconds; 0 = no rewind, and nothing is written to disk.
    #[serde(default = "dvr_seconds_default")]
    #[schemars(extend("maximum" = DVR_SECONDS_MAX))]
    pub dvr_seconds: u32,
    /// Sites whose pages may play it, as browsers name them: https://example.org or https://example.org:8443. Empty = all.
    #[serde(default)]
    #[schemars(extend("maxItems" = ORIGINS_MAX), inner(length(max = ORIGIN_BYTES_MAX)))]
    pub allowed_origins: Vec<String>,
}

fn dvr_seconds_default() -> u32 {
    DVR_SECONDS_MAX
}

impl Config {
    /// Checks what the schema cannot.
    ///
    /// # Errors
    /// An error of class `Config` that begins with the name of the field.
    pub fn check(&self) -> Result<(), Error> {
        if self.dvr_seconds > DVR_SECONDS_MAX {
            return Err(Error::config(format!("dvrSeconds must be 0 to {DVR_SECONDS_MAX}")));
        }
        if self.allowed_origins.len() > ORIGINS_MAX {
            return Err(Error::config(format!("allowedOrigins may have at most {ORIGINS_MAX} entries")));
        }
        for (index, origin) in self.allowed_origins.iter().enumerate() {
            if let Err(reason) = check_origin(origin) {
                return Err(Error::config(format!("allowedOrigins[{index}] {reason}")));
            }
        }
        Ok(())
    }
}

/// An origin as browsers write it (RFC 6454, section 6.2): the host compares it letter by letter, so what no browser sends would
/// silently never match.
fn check_origin(origin: &str) -> Result<(), String> {
    if origin.len() > ORIGIN_BYTES_MAX {
        return Err(format!("is longer than {ORIGIN_BYTES_MAX} bytes"));
    }
    let form = "must be scheme://host or scheme://host:port, like https://example.org";
    let (scheme, authority) = origin.split_once("://").ok_or(form)?;
    let (host, port) = match authority.rsplit_once(':') {
        // A colon inside the brackets of an IPv6 address is none of a port.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if origin.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err("must be in lower case, as browsers send it".to_owned());
    }
    if authority.contains(['/', '?', '#', '@']) {
        return Err(format!("{form}; leave out what follows the host, the last slash too"));
    }
    if !is_scheme(scheme) || !is_host(host) {
        return Err(form.to_owned());
    }
    let Some(port) = port else { return Ok(()) };
    let number: u16 = port.parse().map_err(|_| "has a port that is no number from 1 to 65535")?;
    if number == 0 || number.to_string() != port {
        return Err("has a port that is no number from 1 to 65535".to_owned());
    }
    if matches!((scheme, number), ("http", 80) | ("https", 443)) {
        return Err(format!("must leave out :{number}: browsers do not send the scheme's own port"));
    }
    Ok(())
}

fn is_scheme(scheme: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
    scheme.starts_with(|first: char| first.is_ascii_lowercase()) && scheme.bytes().all(rest)
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
    fn an_empty_configuration_is_an_hour_for_all_sites() {
        assert_eq!(check(json!({})), Ok(Config { dvr_seconds: 3600, allowed_origins: vec![] }));
        assert_eq!(check(json!({ "dvrSeconds": 0 })).unwrap().dvr_seconds, 0);
    }

    #[test]
    fn every_limit_refuses() {
        assert!(check(json!({ "dvrSeconds": 3601 })).unwrap_err().starts_with("dvrSeconds must"));
        assert!(check(json!({ "dvrSeconds": -1 })).is_err());
        assert!(check(json!({ "dvr": 1 })).unwrap_err().contains("unknown field"));
        let many = vec!["https://a.example"; ORIGINS_MAX];
        assert!(check(json!({ "allowedOrigins": many })).is_ok());
        let more = [&many[..], &["https://b.example"]].concat();
        assert!(check(json!({ "allowedOrigins": more })).unwrap_err().contains("at most 32"));
        let host = "a".repeat(ORIGIN_BYTES_MAX - "https://".len());
        assert!(check(json!({ "allowedOrigins": [format!("https://{host}")] })).is_ok());
        let long = check(json!({ "allowedOrigins": [format!("https://{host}a")] }));
        assert!(long.unwrap_err().contains("256 bytes"));
    }

    #[test]
    fn origins_are_those_that_browsers_send() {
        for good in [
            "https://example.org",
            "http://localhost:3000",
            "http://127.0.0.1:8080",
            "https://[2001:db8::1]",
            "http://[::1]:8080",
            "capacitor://localhost",
            "https://xn--bcher-kva.example",
        ] {
            assert_eq!(check_origin(good), Ok(()), "{good}");
        }
        for (bad, says) in [
            ("example.org", "scheme://host"),
            ("*", "scheme://host"),
            ("null", "scheme://host"),
            ("https://", "scheme://host"),
            ("https://*.example.org", "scheme://host"),
            ("https://b\u{fc}cher.example", "scheme://host"),
            ("https://a b", "scheme://host"),
            ("https://[::1", "scheme://host"),
            ("https://example.org/", "last slash"),
            ("https://u@example.org", "what follows"),
            ("https://Example.org", "lower case"),
            ("https://example.org:443", "leave out :443"),
            ("http://example.org:080", "no number"),
            ("http://example.org:0", "no number"),
            ("http://example.org:70000", "no number"),
            ("http://example.org:", "no number"),
        ] {
            let said = check_origin(bad).unwrap_err();
            assert!(said.contains(says), "{bad}: {said}");
        }
    }

    #[test]
    fn the_schema_names_its_limits() {
        let schema = serde_json::to_value(schemars::schema_for!(Config)).unwrap();
        let fields = &schema["properties"];
        assert_eq!(fields["dvrSeconds"]["maximum"], 3600, "{schema}");
        assert_eq!(fields["dvrSeconds"]["default"], 3600, "{schema}");
        assert_eq!(fields["allowedOrigins"]["maxItems"], 32, "{schema}");
        assert_eq!(fields["allowedOrigins"]["items"]["maxLength"], 256, "{schema}");
        assert_eq!(schema["additionalProperties"], false, "{schema}");
        assert!(schema.get("required").is_none(), "{schema}");
    }
}
