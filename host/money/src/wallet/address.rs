//! The parsed address of a wallet's server or of a relay.

use std::fmt;

use url::Url;

use super::refusal::ConnectionFault;
use satcast_net::outbound::Guard;
use satcast_net::outbound::http::Place;

/// `http`, `https`, `ws` or `wss`, a host, a port, and a path without a slash at its end. Holds nothing secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HttpAddress {
    scheme: &'static str,
    /// The normalized host that is connected to.
    host: String,
    port: Option<u16>,
    /// Empty, or begins with a slash and does not end with one.
    path: String,
}

impl HttpAddress {
    /// Reads the address of an HTTP server.
    pub(super) fn parse(text: &str) -> Result<Self, ConnectionFault> {
        let faults = (ConnectionFault::Malformed, ConnectionFault::NotHttps);
        Self::read(text, ["https", "http"], faults)
    }

    /// Reads the address of a relay.
    pub(super) fn parse_relay(text: &str) -> Result<Self, ConnectionFault> {
        Self::read(text, ["wss", "ws"], (ConnectionFault::NotNwc, ConnectionFault::NotWss))
    }

    fn read(
        text: &str,
        schemes: [&'static str; 2],
        (malformed, scheme): (ConnectionFault, ConnectionFault),
    ) -> Result<Self, ConnectionFault> {
        // The URL parser would silently remove these characters.
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(malformed);
        }
        let Ok(url) = Url::parse(text) else { return Err(malformed) };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ConnectionFault::UserInfo);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(ConnectionFault::Query);
        }
        let scheme = schemes.into_iter().find(|name| *name == url.scheme()).ok_or(scheme)?;
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else { return Err(malformed) };
        let host = host.strip_suffix('.').unwrap_or(host).to_owned();
        let path = url.path().trim_end_matches('/').to_owned();
        Ok(Self { scheme, host, port: url.port(), path })
    }

    /// Whether the address may be connected to, as far as this can be decided without a name lookup.
    pub(super) fn check(&self, guard: &Guard) -> Result<(), ConnectionFault> {
        if !self.is_tls() && !guard.is_listed(&self.host) {
            let relay = self.scheme == "ws";
            return Err(if relay { ConnectionFault::NotWss } else { ConnectionFault::NotHttps });
        }
        Ok(guard.check_literal(&self.host)?)
    }

    fn is_tls(&self) -> bool {
        matches!(self.scheme, "https" | "wss")
    }

    /// Where connections go.
    pub(super) fn place(&self) -> Place<'_> {
        let tls = self.is_tls();
        Place { host: &self.host, port: self.port.unwrap_or(if tls { 443 } else { 80 }), tls }
    }

    /// Host and port for the header `Host`.
    pub(super) fn authority(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        }
    }

    /// The URL of a request below this address; `below` begins with a slash.
    pub(super) fn url(&self, below: &str) -> Option<Url> {
        Url::parse(&format!("{self}{below}")).ok()
    }
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority(), self.path)
    }
}
