//! Tokens, which replace the key in a viewer's URLs.
//!
//! `base64url(version | kind | key id | destination id | session | MAC)`, where the MAC is HMAC-SHA-256 over the other fields and the
//! playback path, truncated to 128 bits. Nothing is stored: all viewers with the same key and session have the same token, so they
//! share cached responses, and a token survives a restart. A token is valid for one session only.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use satcast_core::ids::{DestinationId, KeyId};
use satcast_core::secret::{Redacted, Vault};

const VERSION: u8 = 1;
const KIND_KEY: u8 = 1;
const KIND_PREVIEW: u8 = 2;
/// Bytes of a MAC: HMAC-SHA-256 truncated to 128 bits.
pub(super) const MAC_BYTES: usize = 16;
/// Version, kind, key id, destination id.
const HEAD_BYTES: usize = 1 + 1 + 8 + 8;
/// Longest session id in a token.
const SESSION_BYTES_MAX: usize = 64;
/// Longest token text that is decoded.
const TOKEN_CHARS_MAX: usize = (HEAD_BYTES + SESSION_BYTES_MAX + MAC_BYTES).div_ceil(3) * 4;
/// Block of SHA-256.
const BLOCK_BYTES: usize = 64;
/// Label for deriving the secret; a new label makes all tokens invalid.
const SECRET_LABEL: &str = "playback token 1";

/// The secret of all tokens.
#[derive(Debug)]
pub struct PlaybackSecret(Redacted<[u8; 32]>);

impl PlaybackSecret {
    /// Derives the secret from the service's key.
    pub fn of(vault: &Vault) -> Self {
        Self(vault.derive(SECRET_LABEL))
    }
}

/// Kind of viewers that a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grant {
    /// Viewers with this public key.
    Key(KeyId),
    /// Viewers of the preview.
    Preview,
}

/// Content of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) grant: Grant,
    pub(super) destination: DestinationId,
    pub(super) session: String,
    /// Hash that identifies the token in tables.
    pub(super) mac: [u8; MAC_BYTES],
}

/// Makes and reads tokens.
pub(super) struct Mint(Hmac<Sha256>);

impl std::fmt::Debug for Mint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mint(***)")
    }
}

impl Mint {
    pub(super) fn new(secret: &PlaybackSecret) -> Self {
        let secret = secret.0.expose();
        let mut block = [0; BLOCK_BYTES];
        block[..secret.len()].copy_from_slice(secret);
        Self(Hmac::new(&block.into()))
    }

    /// The MAC's state after the `said` part of a token and the playback path. The length between the two separates them
    /// unambiguously.
    fn mac(&self, said: &[u8], path: &str) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(&(said.len() as u64).to_be_bytes());
        mac.update(said);
        mac.update(path.as_bytes());
        mac
    }

    /// The token of a session for the playback path.
    pub(super) fn token(
        &self,
        grant: Grant,
        destination: DestinationId,
        session: &str,
        path: &str,
    ) -> String {
        let (kind, key) = match grant {
            Grant::Key(key) => (KIND_KEY, key.0),
            Grant::Preview => (KIND_PREVIEW, 0),
        };
        let mut bytes = Vec::with_capacity(HEAD_BYTES + session.len() + MAC_BYTES);
        bytes.extend_from_slice(&[VERSION, kind]);
        bytes.extend_from_slice(&key.to_be_bytes());
        bytes.extend_from_slice(&destination.0.to_be_bytes());
        bytes.extend_from_slice(session.as_bytes());
        let mac = self.mac(&bytes, path).finalize().into_bytes();
        bytes.extend_from_slice(&mac[..MAC_BYTES]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The content of a token, if its MAC is valid for the playback path.
    pub(super) fn read(&self, token: &str, path: &str) -> Option<Ticket> {
        if token.len() > TOKEN_CHARS_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (said, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)?;
        self.mac(said, path).verify_truncated_left(mac).ok()?;
        let (head, session) = said.split_at_checked(HEAD_BYTES)?;
        let number = |at: usize| Some(i64::from_be_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let grant = match (head[0], head[1]) {
            (VERSION, KIND_KEY) => Grant::Key(KeyId(number(2)?)),
            (VERSION, KIND_PREVIEW) => Grant::Preview,
            _ => return None,
        };
        Some(Ticket {
            grant,
            destination: DestinationId(number(10)?),
            session: String::from_utf8(session.to_vec()).ok()?,
            mac: mac.try_into().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: &str = "ses_0123456789abcdefghijkl";
    const PATH: &str = "AbCdEfGhIjKlMnOpQrStUv";
    const KEY: Grant = Grant::Key(KeyId(7));

    fn mint(key: u8) -> Mint {
        Mint::new(&PlaybackSecret::of(&Vault::new(&[key; 32])))
    }

    fn token(grant: Grant) -> String {
        mint(1).token(grant, DestinationId(-3), SESSION, PATH)
    }

    #[test]
    fn a_token_returns_its_content_and_is_deterministic() {
        for grant in [KEY, Grant::Preview] {
            let ticket = mint(1).read(&token(grant), PATH).unwrap();
            assert_eq!((ticket.grant, ticket.destination), (grant, DestinationId(-3)));
            assert_eq!(ticket.session, SESSION);
            assert_eq!(token(grant), token(grant));
        }
        assert_ne!(token(KEY), token(Grant::Preview));
        assert!(token(KEY).bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
    }

    #[test]
    fn any_changed_bit_another_path_and_another_secret_are_refused() {
        let token = token(KEY);
        let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(mint(1).read(&URL_SAFE_NO_PAD.encode(changed), PATH), None, "bit {bit}");
        }
        for index in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[index] = if changed[index] == b'A' { b'B' } else { b'A' };
            assert_eq!(mint(1).read(std::str::from_utf8(&changed).unwrap(), PATH), None, "character {index}");
            assert_eq!(mint(1).read(&token[..index], PATH), None, "cut at {index}");
        }
        assert_eq!(mint(1).read(&token, "AbCdEfGhIjKlMnOpQrStUw"), None);
        assert_eq!(mint(2).read(&token, PATH), None);
        assert_eq!(mint(1).read(&format!("{token}="), PATH), None);
    }

    #[test]
    fn session_and_path_are_separated_unambiguously() {
        let token = mint(1).token(KEY, DestinationId(1), "ab", "c");
        let bytes = URL_SAFE_NO_PAD.decode(token).unwrap();
        let (said, mac) = bytes.split_at(bytes.len() - MAC_BYTES);
        let moved = [&said[..said.len() - 1], mac].concat();
        assert_eq!(mint(1).read(&URL_SAFE_NO_PAD.encode(moved), "bc"), None);
    }

    #[test]
    fn hostile_texts_are_refused_and_long_ones_not_decoded() {
        let long = mint(1).token(KEY, DestinationId(1), &"s".repeat(SESSION_BYTES_MAX), PATH);
        assert!(long.len() <= TOKEN_CHARS_MAX && mint(1).read(&long, PATH).is_some());
        let longer = mint(1).token(KEY, DestinationId(1), &"s".repeat(SESSION_BYTES_MAX + 3), PATH);
        assert_eq!(mint(1).read(&longer, PATH), None);
        for text in [
            "",
            "A",
            "====",
            "\u{e4}\u{e4}\u{e4}\u{e4}",
            &"A".repeat(TOKEN_CHARS_MAX),
            &"A".repeat(1_000_000),
        ] {
            assert_eq!(mint(1).read(text, PATH), None, "{} characters", text.len());
        }
    }

    #[test]
    fn a_well_made_token_of_another_version_or_kind_is_refused() {
        for (version, kind) in [(0, KIND_KEY), (2, KIND_KEY), (VERSION, 0), (VERSION, 3)] {
            let mut said = vec![version, kind];
            said.extend_from_slice(&[0; 16]);
            let mac = mint(1).mac(&said, PATH).finalize().into_bytes();
            said.extend_from_slice(&mac[..MAC_BYTES]);
            assert_eq!(mint(1).read(&URL_SAFE_NO_PAD.encode(said), PATH), None, "{version} {kind}");
        }
    }

    #[test]
    fn tokens_of_earlier_releases_stay_valid() {
        let fixed = mint(1).token(KEY, DestinationId(1), SESSION, PATH);
        assert_eq!(fixed.len(), 80);
        assert!(fixed.starts_with("AQEAAAAAAAAABwAAAAAAAAABc2VzXz"), "{fixed}");
    }

    #[test]
    fn secrets_are_not_printed() {
        let secret = PlaybackSecret::of(&Vault::new(&[1; 32]));
        assert_eq!(format!("{secret:?} {:?}", Mint::new(&secret)), "PlaybackSecret(***) Mint(***)");
    }
}
