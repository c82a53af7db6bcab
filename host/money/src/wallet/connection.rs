//! Which wallet: kind, address and secret; what of it may be shown.

use super::address::HttpAddress;
use super::nwc::Uri;
use satcast_core::ids::WalletKind;
use satcast_core::secret::{Redacted, mask_key};
use satcast_net::outbound::{Guard, Refused};

/// Longest url of a wallet in bytes; a `nostr+walletconnect://` URI with several relays has some 400.
pub const URL_BYTES_MAX: usize = 2_048;
/// Longest key or password of a wallet in bytes.
pub const SECRET_BYTES_MAX: usize = 256;

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

/// What is wrong with a field; a part of a sentence that begins with the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionFault {
    /// Longer than [`URL_BYTES_MAX`].
    #[error("must have at most {URL_BYTES_MAX} bytes")]
    UrlTooLong,
    /// Longer than [`SECRET_BYTES_MAX`].
    #[error("must have at most {SECRET_BYTES_MAX} bytes")]
    SecretTooLong,
    /// No address of a server.
    #[error("must be the address of the wallet's server such as https://wallet.example.com, without spaces")]
    Malformed,
    /// User or password in the url.
    #[error("must not hold a user or password; put the key or password into `secret`")]
    UserInfo,
    /// A query or a fragment in the url.
    #[error("must end with its path, without ? and #; put the key into `secret`")]
    Query,
    /// Another scheme, or `http` to a host that is not listed.
    #[error("must begin with https://; for http ask the operator to add its host to {setting}", setting = SETTING)]
    NotHttps,
    /// The guard refuses the host, or that of a relay.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// No NIP-47 URI.
    #[error("must be the whole connection text of the wallet, which begins with nostr+walletconnect://")]
    NotNwc,
    /// No key of the wallet, or of ours, in the URI.
    #[error("is cut off or changed: its keys must have 64 hexadecimal digits; copy it from the wallet again")]
    NwcKeys,
    /// No relay in the URI, or more than are tried.
    #[error("must name 1 to {max} relays; copy it from the wallet again", max = super::nwc::RELAYS_MAX)]
    NwcRelays,
    /// A relay that is not spoken to with TLS.
    #[error("names a relay that does not begin with wss://; for ws ask the operator to add its host to {setting}", setting = SETTING)]
    NotWss,
    /// A key or password is needed.
    #[error("must hold the wallet's key or password")]
    NoSecret,
    /// It cannot stand in a header.
    #[error("must consist of visible ASCII characters without spaces; copy it from the wallet again")]
    BadSecret,
    /// The URI holds the secret.
    #[error("must be left out: the connection text in `url` holds it")]
    SecretInUrl,
}

/// The setting that lets private hosts and addresses without TLS through.
const SETTING: &str = "[outbound] allow";

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

/// Whether a text can be sent as a key or password.
pub(super) fn check_secret(secret: &str) -> Result<(), ConnectionFault> {
    if secret.is_empty() {
        return Err(ConnectionFault::NoSecret);
    }
    if secret.len() > SECRET_BYTES_MAX {
        return Err(ConnectionFault::SecretTooLong);
    }
    if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ConnectionFault::BadSecret);
    }
    Ok(())
}
