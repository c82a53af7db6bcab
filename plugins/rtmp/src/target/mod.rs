//! Where to push: reads a destination's `url` and `key`.

use std::fmt;
use std::net::Ipv6Addr;

use crate::login::Login;

/// Longest `url` and longest `key`, in bytes.
pub const TEXT_BYTES_MAX: usize = 2048;
/// Longest host name in bytes (RFC 1035, 2.3.4, written with dots).
pub const HOST_BYTES_MAX: usize = 253;
/// Port of `rtmp://` when the URL names none.
pub const PORT_DEFAULT: u16 = 1935;
/// Port of `rtmps://` when the URL names none, as in every encoder.
pub const TLS_PORT_DEFAULT: u16 = 443;

/// Why a `url` and `key` are invalid. Each text begins with the name of the field and holds nothing of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Longer than [`TEXT_BYTES_MAX`].
    #[error("{0}: longer than {TEXT_BYTES_MAX} bytes; check that only the address was pasted")]
    TooLong(&'static str),
    /// A control or invisible character, or white space in the URL or around the key.
    #[error("{0}: has a space, line break, control or invisible character; remove it")]
    BadCharacter(&'static str),
    /// Neither `rtmp://` nor `rtmps://`.
    #[error("url: must begin with rtmp:// or rtmps://")]
    Scheme,
    /// `#...`.
    #[error("url: a # is not allowed; give a stream key that has one in key")]
    Fragment,
    /// No host, or one with characters that no host has.
    #[error("url: has no valid host name or address after ://")]
    Host,
    /// An IPv6 address without brackets, or brackets around something else.
    #[error("url: an IPv6 address needs brackets, as in rtmp://[2001:db8::1]/app")]
    Ipv6,
    /// Not 1 to 65535.
    #[error("url: the port must be a number from 1 to 65535")]
    Port,
    /// The address ends at a slash, and an @ comes after it.
    #[error("url: the login before @ has a character that ends an address; write / as %2F, ? as %3F")]
    Login,
    #[error("url: has no app; give rtmp://host/app/key, or rtmp://host/app and the stream key in key")]
    App,
}

/// A parsed target. `Debug` shows host and port only.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    tls: bool,
    host: String,
    port: u16,
    app: String,
    tc_url: String,
    publish_name: String,
    login: Option<String>,
}

impl Target {
    /// Reads a destination's address from the right. With a `key` the whole path is the app. Without one the last
    /// path part with its query is the publish name, which is empty when the path is an app alone. Slashes at the end
    /// of the path are ignored. Escapes (`%20`) are kept as typed. A login (`user:password@`) is used for a server
    /// that asks for one.
    ///
    /// # Errors
    /// Any [`TargetError`].
    pub fn parse(url: &str, key: Option<&str>) -> Result<Self, TargetError> {
        let key = key.filter(|key| !key.is_empty());
        check_text(url, key)?;
        let (scheme, rest) = url.split_once("://").ok_or(TargetError::Scheme)?;
        let (scheme, port_default) = match scheme.to_ascii_lowercase().as_str() {
            "rtmp" => ("rtmp", PORT_DEFAULT),
            "rtmps" => ("rtmps", TLS_PORT_DEFAULT),
            _ => return Err(TargetError::Scheme),
        };
        if rest.contains('#') {
            return Err(TargetError::Fragment);
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (login, address) = match authority.rsplit_once('@') {
            Some((login, address)) => (Some(login.to_owned()), address),
            None => (None, authority),
        };
        let (host, port) = split_address(address).map_err(|error| match error {
            // `user:pa` of `user:pa/ss@host` looks like a host and its port.
            TargetError::Port if login.is_none() && path.contains('@') => TargetError::Login,
            error => error,
        })?;
        let (app, publish_name) = split_path(path, key)?;
        Ok(Target {
            tls: scheme == "rtmps",
            host: host.to_owned(),
            port: port.unwrap_or(port_default),
            tc_url: format!("{scheme}://{address}/{app}"),
            app,
            publish_name,
            login,
        })
    }

    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Host name or address; an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// May hold a secret.
    pub fn app(&self) -> &str {
        &self.app
    }

    /// `rtmp://host[:port]/app` or the same with `rtmps`, without login. May hold a secret.
    pub fn tc_url(&self) -> &str {
        &self.tc_url
    }

    /// Stream key with its query, as sent to the server. Secret.
    pub fn publish_name(&self) -> &str {
        &self.publish_name
    }

    pub fn has_login(&self) -> bool {
        self.login.is_some()
    }

    /// User and password of the URL, percent escapes decoded.
    pub(crate) fn login(&self) -> Option<Login> {
        let login = self.login.as_deref()?;
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        Some(Login { user: unescape(user), password: unescape(password) })
    }

    /// Every text that must not be shown, the longest forms first.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        let name = [self.publish_name.as_str(), before_query(&self.publish_name)];
        // Only the app's first part is certainly no key: users put a key after it, as an instance or by mistake.
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

/// Invisible characters (Unicode's control and format characters, line and paragraph separators, and fillers): they
/// are copied along from a web page, and can make a text look like another one.
fn is_invisible(character: char) -> bool {
    let is_format = matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
            | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    );
    is_format || character.is_control()
}

fn check_text(url: &str, key: Option<&str>) -> Result<(), TargetError> {
    for (field, text) in [("url", url), ("key", key.unwrap_or_default())] {
        if text.len() > TEXT_BYTES_MAX {
            return Err(TargetError::TooLong(field));
        }
        if text.chars().any(is_invisible) || text.trim() != text {
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
        // An app alone: servers that identify streams by the app or by the query take an empty name.
        None => Ok((with_query(parts), String::new())),
    }
}

fn before_query(text: &str) -> &str {
    text.split_once('?').map_or(text, |(before, _)| before)
}

fn query(text: &str) -> Option<&str> {
    text.split_once('?').map(|(_, query)| query)
}

/// Decodes percent escapes; invalid escapes and invalid UTF-8 stay readable.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let value = escape.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        plain.push(value.unwrap_or(bytes[at]));
        at += if value.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests;
