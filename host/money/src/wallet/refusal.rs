//! Faults of the settings of a wallet connection.

use satcast_net::outbound::Refused;

/// Longest url of a wallet in bytes; a `nostr+walletconnect://` URI with several relays has some 400.
pub const URL_BYTES_MAX: usize = 2_048;
/// Longest key or password of a wallet in bytes.
pub const SECRET_BYTES_MAX: usize = 256;
/// Most relays of one URI; a URI with more is refused.
pub const RELAYS_MAX: usize = 5;

/// The fault of a field; completes a sentence that begins with the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionFault {
    /// Longer than [`URL_BYTES_MAX`].
    #[error("must have at most {URL_BYTES_MAX} bytes")]
    UrlTooLong,
    /// Longer than [`SECRET_BYTES_MAX`].
    #[error("must have at most {SECRET_BYTES_MAX} bytes")]
    SecretTooLong,
    /// Not the address of a server.
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
    /// The guard refuses the host, or the host of a relay.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Not a NIP-47 URI.
    #[error("must be the whole connection text of the wallet, which begins with nostr+walletconnect://")]
    NotNwc,
    /// The URI lacks the wallet's key or our key.
    #[error("is cut off or changed: its keys must have 64 hexadecimal digits; copy it from the wallet again")]
    NwcKeys,
    /// No relay in the URI, or more than [`RELAYS_MAX`].
    #[error("must name 1 to {max} relays; copy it from the wallet again", max = RELAYS_MAX)]
    NwcRelays,
    /// A relay without TLS.
    #[error("names a relay that does not begin with wss://; for ws ask the operator to add its host to {setting}", setting = SETTING)]
    NotWss,
    /// A key or password is required.
    #[error("must hold the wallet's key or password")]
    NoSecret,
    /// It cannot be sent in a header.
    #[error("must consist of visible ASCII characters without spaces; copy it from the wallet again")]
    BadSecret,
    /// The URI holds the secret.
    #[error("must be left out: the connection text in `url` holds it")]
    SecretInUrl,
}

/// The setting that allows private hosts and addresses without TLS.
const SETTING: &str = "[outbound] allow";

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
