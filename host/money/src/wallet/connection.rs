//! Which wallet: kind, address and secret; what of it may be shown.

use super::address::HttpAddress;
use super::nwc::uri::Uri;
use super::refusal::check_secret;
pub use super::refusal::{ConnectionFault, SECRET_BYTES_MAX, URL_BYTES_MAX};
use satcast_core::ids::WalletKind;
use satcast_core::secret::{Redacted, mask_key};
use satcast_net::outbound::Guard;

/// How a wallet is reached. The secret of one that pays is as good as the money in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// What it speaks.
    pub kind: WalletKind,
    /// Where: `https://host[:port][/path]` for LNbits and phoenixd; for NWC the whole `nostr+walletconnect://` URI, which
    /// holds the secret too.
    pub url: Redacted<String>,
    /// LNbits' admin or invoice key, phoenixd's password; empty for NWC.
    pub secret: Redacted<String>,
}

/// Why a wallet cannot be connected; names the field, repeats nothing of its value but an address that the guard refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {reason}")]
pub struct ConnectionError {
    /// `url` or `secret`.
    pub field: &'static str,
    /// What is wrong with it.
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
    /// A connection of which everything is right that can be known without the network. `secret` is empty for NWC.
    ///
    /// # Errors
    /// The first thing against it.
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

    /// What its owner, and whoever else may read it, is shown: scheme, host and path; for NWC the hosts of the relays and
    /// both ends of the wallet's public key. `***` for what cannot be read.
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
