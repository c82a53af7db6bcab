//! Where to push: what a destination's `url` and `key` mean.

use std::fmt;
use std::net::Ipv6Addr;

/// Longest `url` and longest `key`, in bytes.
pub const TEXT_BYTES_MAX: usize = 2048;
/// Longest host name in bytes (RFC 1035, 2.3.4, written with dots).
pub const HOST_BYTES_MAX: usize = 253;
/// Port of `rtmp://` when the URL names none.
pub const PORT_DEFAULT: u16 = 1935;

/// Why a `url` and `key` are no target. Each text begins with the name of the field and holds nothing of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Longer than [`TEXT_BYTES_MAX`].
    #[error("{0}: longer than {TEXT_BYTES_MAX} bytes; check that only the address was pasted")]
    TooLong(&'static str),
    /// A control character, or white space in the URL or round the key.
    #[error("{0}: has a space, line break or control character; remove it")]
    BadCharacter(&'static str),
    /// `rtmps://`.
    #[error("url: rtmps:// is not supported in this version; use rtmp://")]
    Tls,
    /// Another scheme or none.
    #[error("url: must begin with rtmp://")]
    Scheme,
    /// `#...`.
    #[error("url: a # is not allowed; give a stream key that has one in key")]
    Fragment,
    /// No host, or one with characters that no host has.
    #[error("url: has no valid host name or address after rtmp://")]
    Host,
    /// An IPv6 address without brackets, or brackets round something else.
    #[error("url: an IPv6 address stands in brackets, as in rtmp://[2001:db8::1]/app")]
    Ipv6,
    /// Not 1 to 65535.
    #[error("url: the port must be a number from 1 to 65535")]
    Port,
    /// No path, or nothing in it.
    #[error("url: has no app; give rtmp://host/app/key, or rtmp://host/app and the stream key in key")]
    App,
}

/// A parsed target. `Debug` shows host and port only.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    host: String,
    port: u16,
    app: String,
    tc_url: String,
    publish_name: String,
    login: Option<String>,
}

impl Target {
    /// Reads a destination's address from the right: with a `key` the whole path is the app; without one the last path
    /// part with its query is the publish name, which is empty when the path is an app alone. Slashes at the end of the
    /// path mean nothing. Escapes (`%20`) are kept as typed. A login (`user:password@`) is accepted and never sent.
    ///
    /// # Errors
    /// Any [`TargetError`].
    pub fn parse(url: &str, key: Option<&str>) -> Result<Self, TargetError> {
        let key = key.filter(|key| !key.is_empty());
        check_text(url, key)?;
        let (scheme, rest) = url.split_once("://").ok_or(TargetError::Scheme)?;
        if scheme.eq_ignore_ascii_case("rtmps") {
            return Err(TargetError::Tls);
        }
        if !scheme.eq_ignore_ascii_case("rtmp") {
            return Err(TargetError::Scheme);
        }
        if rest.contains('#') {
            return Err(TargetError::Fragment);
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (login, address) = match authority.rsplit_once('@') {
            Some((login, address)) => (Some(login.to_owned()), address),
            None => (None, authority),
        };
        let (host, port) = split_address(address)?;
        let (app, publish_name) = split_path(path, key)?;
        Ok(Target {
            host: host.to_owned(),
            port: port.unwrap_or(PORT_DEFAULT),
            tc_url: format!("rtmp://{address}/{app}"),
            app,
            publish_name,
            login,
        })
    }

    /// Host name or address; an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Application name. May hold a secret.
    pub fn app(&self) -> &str {
        &self.app
    }

    /// `rtmp://host[:port]/app`, without login. May hold a secret.
    pub fn tc_url(&self) -> &str {
        &self.tc_url
    }

    /// Stream key with its query, as the server gets it. Secret.
    pub fn publish_name(&self) -> &str {
        &self.publish_name
    }

    /// The URL has a login, which is not sent.
    pub fn has_login(&self) -> bool {
        self.login.is_some()
    }

    /// Every text that must not be shown, the longest forms first.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        let name = [self.publish_name.as_str(), before_query(&self.publish_name)];
        // Only the app's first part is surely no key: users put theirs behind it, as an instance or by mistake.
        let instances = before_query(&self.app).split('/').skip(1);
        let queries = [query(&self.publish_name), query(&self.app)];
        let login = self.login.as_deref().into_iter().flat_map(|login| {
            [Some(login), login.split_once(':').map(|(_, password)| password)].into_iter().flatten()
        });
        let all = name.into_iter().chain(queries.into_iter().flatten()).chain(instances).chain(login);
        all.filter(|text| !text.is_empty())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// `host:port` with an IPv6 address in brackets: the part of a target that may be shown.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

fn check_text(url: &str, key: Option<&str>) -> Result<(), TargetError> {
    for (field, text) in [("url", url), ("key", key.unwrap_or_default())] {
        if text.len() > TEXT_BYTES_MAX {
            return Err(TargetError::TooLong(field));
        }
        if text.chars().any(char::is_control) || text.trim() != text {
            return Err(TargetError::BadCharacter(field));
        }
    }
    if url.chars().any(char::is_whitespace) {
        return Err(TargetError::BadCharacter("url"));
    }
    Ok(())
}

/// Host without brackets and the port, if there is one.
fn split_address(address: &str) -> Result<(&str, Option<u16>), TargetError> {
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(TargetError::Ipv6)?;
            host.parse::<Ipv6Addr>().map_err(|_| TargetError::Ipv6)?;
            let port =
                if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or(TargetError::Port)?) };
            (host, port)
        }
        None => match address.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err(TargetError::Ipv6),
            Some((host, port)) => (check_host(host)?, Some(port)),
            None => (check_host(address)?, None),
        },
    };
    Ok((host, port.map(parse_port).transpose()?))
}

fn check_host(host: &str) -> Result<&str, TargetError> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let good = (1..=HOST_BYTES_MAX).contains(&host.len()) && host.bytes().all(known);
    if good { Ok(host) } else { Err(TargetError::Host) }
}

fn parse_port(port: &str) -> Result<u16, TargetError> {
    // `u16::from_str` takes a plus sign, which no port has.
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse().ok().filter(|port| digits && *port != 0).ok_or(TargetError::Port)
}

/// App and publish name.
fn split_path(path: &str, key: Option<&str>) -> Result<(String, String), TargetError> {
    let (parts, query) = (before_query(path).trim_matches('/'), query(path));
    let with_query = |text: &str| match query {
        Some(query) => format!("{text}?{query}"),
        None => text.to_owned(),
    };
    if parts.is_empty() {
        return Err(TargetError::App);
    }
    if let Some(key) = key {
        return Ok((with_query(parts), key.to_owned()));
    }
    match parts.rsplit_once('/') {
        Some((app, name)) => Ok((app.trim_end_matches('/').to_owned(), with_query(name))),
        // An app alone: servers that tell streams apart by the app or by the query take an empty name.
        None => Ok((with_query(parts), String::new())),
    }
}

fn before_query(text: &str) -> &str {
    text.split_once('?').map_or(text, |(before, _)| before)
}

fn query(text: &str) -> Option<&str> {
    text.split_once('?').map(|(_, query)| query)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// url, key; host, port, app, tcUrl, publish name
    type Good =
        ((&'static str, Option<&'static str>), (&'static str, u16, &'static str, &'static str, &'static str));

    const GOOD: &[Good] = &[
        (("rtmp://a.example/live/k1", None), ("a.example", 1935, "live", "rtmp://a.example/live", "k1")),
        (
            ("RTMP://A.example:1936/live/k1", None),
            ("A.example", 1936, "live", "rtmp://A.example:1936/live", "k1"),
        ),
        (
            ("rtmp://a.example/app/inst/k1", None),
            ("a.example", 1935, "app/inst", "rtmp://a.example/app/inst", "k1"),
        ),
        (
            ("rtmp://a.example/live/k1?token=a%20b&x=/1?", None),
            ("a.example", 1935, "live", "rtmp://a.example/live", "k1?token=a%20b&x=/1?"),
        ),
        (
            ("rtmp://a.example/live", Some("k1?a=1&b=2/#")),
            ("a.example", 1935, "live", "rtmp://a.example/live", "k1?a=1&b=2/#"),
        ),
        (
            ("rtmp://a.example/live/", Some("my key")),
            ("a.example", 1935, "live", "rtmp://a.example/live", "my key"),
        ),
        (
            ("rtmp://a.example/app/inst", Some("k")),
            ("a.example", 1935, "app/inst", "rtmp://a.example/app/inst", "k"),
        ),
        (
            ("rtmp://a.example/live?token=1", Some("k")),
            ("a.example", 1935, "live?token=1", "rtmp://a.example/live?token=1", "k"),
        ),
        (("rtmp://a.example/live/k1", Some("")), ("a.example", 1935, "live", "rtmp://a.example/live", "k1")),
        (("rtmp://a.example//live//k1", None), ("a.example", 1935, "live", "rtmp://a.example/live", "k1")),
        (("rtmp://a.example/live/k1/", None), ("a.example", 1935, "live", "rtmp://a.example/live", "k1")),
        (
            ("rtmp://a.example/app/inst/k1//?x=/1", None),
            ("a.example", 1935, "app/inst", "rtmp://a.example/app/inst", "k1?x=/1"),
        ),
        (("rtmp://u:p@ss@a.example/live/k", None), ("a.example", 1935, "live", "rtmp://a.example/live", "k")),
        (("rtmp://u@127.0.0.1:1/live/k", None), ("127.0.0.1", 1, "live", "rtmp://127.0.0.1:1/live", "k")),
        (
            ("rtmp://[2001:db8::1]/live/k", None),
            ("2001:db8::1", 1935, "live", "rtmp://[2001:db8::1]/live", "k"),
        ),
        (("rtmp://[::1]:65535/live/k", None), ("::1", 65535, "live", "rtmp://[::1]:65535/live", "k")),
        (
            ("rtmp://my_host/live/k@home:x", None),
            ("my_host", 1935, "live", "rtmp://my_host/live", "k@home:x"),
        ),
    ];

    /// An app and no stream key: url, app.
    const APP_ALONE: &[(&str, &str)] = &[
        ("rtmp://a.example/live", "live"),
        ("rtmp://a.example/live/", "live"),
        ("rtmp://a.example/live/?x=1", "live?x=1"),
        ("rtmp://a.example/live?k=/x", "live?k=/x"),
    ];

    #[test]
    fn an_app_alone_has_an_empty_name() {
        for (url, app) in APP_ALONE {
            let target = Target::parse(url, None).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!((target.app(), target.publish_name()), (*app, ""), "{url}");
        }
    }

    #[test]
    fn every_good_form() {
        for ((url, key), (host, port, app, tc_url, name)) in GOOD {
            let target = Target::parse(url, *key).unwrap_or_else(|error| panic!("{url} {key:?}: {error}"));
            let got = (target.host(), target.port(), target.app(), target.tc_url(), target.publish_name());
            assert_eq!(got, (*host, *port, *app, *tc_url, *name), "{url} {key:?}");
        }
    }

    #[test]
    fn every_refusal() {
        use TargetError::{App, BadCharacter, Fragment, Host, Ipv6, Port, Scheme, Tls};
        let long_host = format!("rtmp://{}/live/k", "a".repeat(HOST_BYTES_MAX + 1));
        for (url, key, error) in [
            ("", None, Scheme),
            ("a.example/live/k", None, Scheme),
            ("http://a.example/live/k", None, Scheme),
            ("rtmpt://a.example/live/k", None, Scheme),
            ("rtmps://a.example/live/k", None, Tls),
            ("RTMPS://", None, Tls),
            ("rtmp://a.example/live/k#x", None, Fragment),
            ("rtmp:///live/k", None, Host),
            ("rtmp://u:p@/live/k", None, Host),
            ("rtmp://:1935/live/k", None, Host),
            ("rtmp://exämple/live/k", None, Host),
            ("rtmp://a%2eb/live/k", None, Host),
            (&long_host, None, Host),
            ("rtmp://2001:db8::1/live/k", None, Ipv6),
            ("rtmp://[2001:db8::1/live/k", None, Ipv6),
            ("rtmp://[a.example]/live/k", None, Ipv6),
            ("rtmp://[fe80::1%eth0]/live/k", None, Ipv6),
            ("rtmp://[::1]1935/live/k", None, Port),
            ("rtmp://a.example:/live/k", None, Port),
            ("rtmp://a.example:0/live/k", None, Port),
            ("rtmp://a.example:+80/live/k", None, Port),
            ("rtmp://a.example:65536/live/k", None, Port),
            ("rtmp://a.example:x/live/k", None, Port),
            ("rtmp://a.example", None, App),
            ("rtmp://a.example/", Some("k"), App),
            ("rtmp://a.example//", None, App),
            ("rtmp://a.example?x=1", Some("k"), App),
            ("rtmp://a.example/?x=1", None, App),
            (" rtmp://a.example/live/k", None, BadCharacter("url")),
            ("rtmp://a.example/li ve/k", None, BadCharacter("url")),
            ("rtmp://a.example/live/k\n", None, BadCharacter("url")),
            ("rtmp://a.example/live/k\u{7f}", None, BadCharacter("url")),
            ("rtmp://a.example/live", Some("k\0"), BadCharacter("key")),
            ("rtmp://a.example/live", Some("k "), BadCharacter("key")),
        ] {
            assert_eq!(Target::parse(url, key), Err(error), "{url:?} {key:?}");
        }
    }

    #[test]
    fn length_limits() {
        let fit = |bytes: usize| format!("rtmp://a.example/live/{}", "k".repeat(bytes - 22));
        assert!(Target::parse(&fit(TEXT_BYTES_MAX), None).is_ok());
        assert_eq!(Target::parse(&fit(TEXT_BYTES_MAX + 1), None), Err(TargetError::TooLong("url")));
        let key = "k".repeat(TEXT_BYTES_MAX);
        assert!(Target::parse("rtmp://a/b", Some(&key)).is_ok());
        let key = "k".repeat(TEXT_BYTES_MAX + 1);
        assert_eq!(Target::parse("rtmp://a/b", Some(&key)), Err(TargetError::TooLong("key")));
    }

    #[test]
    fn nothing_shown_is_secret() {
        let target = Target::parse("rtmp://user:hunter2@[::1]:99/app/sesame?token=open", None).unwrap();
        let shown = format!("{target:?} {target}");
        for secret in ["sesame", "open", "hunter2", "user", "app"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert_eq!(target.to_string(), "[::1]:99");
        let secrets: Vec<_> = target.secrets().collect();
        assert_eq!(secrets, ["sesame?token=open", "sesame", "token=open", "user:hunter2", "hunter2"]);
        let target = Target::parse("rtmp://a.example/app/inst//sesame/?token=open", Some("key")).unwrap();
        let secrets: Vec<_> = target.secrets().collect();
        assert_eq!(secrets, ["key", "key", "token=open", "inst", "sesame"]);
    }
}
