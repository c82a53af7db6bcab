//! The connection of a wallet: kind, address and secret, and its display form.

use super::address::HttpAddress;
use super::nwc::uri::Uri;
use super::refusal::check_secret;
pub use super::refusal::{ConnectionFault, SECRET_BYTES_MAX, URL_BYTES_MAX};
use satcast_core::ids::WalletKind;
use satcast_core::secret::{Redacted, mask_key};
use satcast_net::outbound::Guard;

/// How a wallet is reached. The secret of a wallet that pays gives access to its money.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The wallet's protocol.
    pub kind: WalletKind,
    /// `https://host[:port][/path]` for LNbits and phoenixd; for NWC the whole `nostr+walletconnect://` URI, which
    /// holds the secret too.
    pub url: Redacted<String>,
    /// LNbits' admin or invoice key, phoenixd's password; empty for NWC.
    pub secret: Redacted<String>,
}

/// Reason why a wallet cannot be connected. It names the field, and repeats no part of its value except an address that
/// the guard refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {reason}")]
pub struct ConnectionError {
    /// `url` or `secret`.
    pub field: &'static str,
    pub reason: ConnectionFault,
}

impl ConnectionFault {
    fn of_url(self) -> ConnectionError {
        ConnectionError { field: "url", reason: self }
    }

    fn of_secret(self) -> ConnectionError {
        ConnectionError { field: "secret", reason: self }
    }
}

impl Connection {
    /// Checks a connection as far as this is possible without the network. `secret` is empty for NWC.
    ///
    /// # Errors
    /// The first fault.
    pub fn checked(
        kind: WalletKind,
        url: &str,
        secret: &str,
        guard: &Guard,
    ) -> Result<Self, ConnectionError> {
        if url.len() > URL_BYTES_MAX {
            return Err(ConnectionFault::UrlTooLong.of_url());
        }
        if kind == WalletKind::Nwc {
            Uri::parse(url).and_then(|uri| uri.check(guard)).map_err(ConnectionFault::of_url)?;
            if !secret.is_empty() {
                return Err(ConnectionFault::SecretInUrl.of_secret());
            }
        } else {
            HttpAddress::parse(url)
                .and_then(|address| address.check(guard))
                .map_err(ConnectionFault::of_url)?;
            check_secret(secret).map_err(ConnectionFault::of_secret)?;
        }
        let hidden = |text: &str| Redacted::new(text.to_owned());
        Ok(Self { kind, url: hidden(url), secret: hidden(secret) })
    }

    /// The display form, also for other readers than the owner: scheme, host and path; for NWC the hosts of the relays
    /// and both ends of the wallet's public key. `***` for an unreadable connection.
    pub fn shown(&self) -> String {
        let url = self.url.expose();
        let shown = match self.kind {
            WalletKind::Nwc => Uri::parse(url).map(|uri| {
                let relays: Vec<String> = uri.relays().iter().map(HttpAddress::authority).collect();
                let wallet = mask_key(&uri.wallet().to_hex());
                format!("nostr+walletconnect://{wallet} via {}", relays.join(", "))
            }),
            WalletKind::Lnbits | WalletKind::Phoenixd => HttpAddress::parse(url).map(|url| url.to_string()),
        };
        shown.unwrap_or_else(|_| "***".to_owned())
    }
}
