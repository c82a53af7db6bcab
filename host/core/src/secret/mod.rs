//! Creation, recognition, hashing, encryption and masking of secrets.
//!
//! This is the service's only source of randomness for secrets. A secret lives in a [`Redacted`], which cannot be printed
//! by accident. [`Vault`] encrypts secrets that are shown again; all others are kept as a hash only.

mod mask;
mod vault;

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rand::TryRng as _;
use rand::rngs::SysRng;
use sha2::{Digest, Sha256};

pub use mask::{is_masked_key, mask_key, mask_url};
pub use vault::{Vault, VaultError};

use crate::ids::SessionId;

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Random characters of API keys and stream keys: 190 bits.
const KEY_BODY_CHARS: usize = 32;
/// Characters of an API key's checksum; 62^6 is above 2^32.
const KEY_CHECKSUM_CHARS: usize = 6;
/// Random characters of a session id: 131 bits.
const SESSION_ID_CHARS: usize = 22;
/// Random characters of a playback path: 131 bits.
const PLAYBACK_PATH_CHARS: usize = 22;
/// Characters of a request id: 95 bits.
const REQUEST_ID_CHARS: usize = 16;
/// Characters made of one hash of 64 bits.
const REQUEST_ID_PART_CHARS: usize = 8;
const REQUEST_ID_PREFIX: &str = "req_";
/// Largest random byte that maps to base62 without bias (4 x 62).
const BASE62_BYTE_LIMIT: u8 = 248;
/// Prefix of stream keys.
pub const STREAM_KEY_PREFIX: &str = "live_";
/// Prefix of the key for a stream's backup encoder, before the same random characters as in the stream key.
pub const BACKUP_KEY_PREFIX: &str = "backup_";
/// Longest text accepted as a stream key or API key; longer texts are refused without hashing.
pub const KEY_TEXT_MAX_BYTES: usize = 256;

/// A value that is never printed: `Debug` shows `***`, there is no `Display`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Redacted<T>(T);

impl<T> Redacted<T> {
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The hidden value. Audits of secrets start from the callers of this function.
    pub fn expose(&self) -> &T {
        &self.0
    }

    /// Takes the hidden value out.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> fmt::Debug for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The two kinds of API keys, distinguished by their prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// `pk_`: reads status, playback and cost of one self-hosted destination.
    Public,
    /// `sk_`: manages the whole account.
    Permanent,
}

impl KeyKind {
    /// The first three characters of such a key.
    pub fn prefix(self) -> &'static str {
        match self {
            KeyKind::Public => "pk_",
            KeyKind::Permanent => "sk_",
        }
    }

    /// The name used in the API, on the command line and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            KeyKind::Public => "public",
            KeyKind::Permanent => "permanent",
        }
    }

    /// The kind with that name, or `None`.
    pub fn parse(name: &str) -> Option<Self> {
        [KeyKind::Public, KeyKind::Permanent].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// Fills `buffer` from the system's random source.
///
/// Panics when the source fails: without randomness, keys and nonces would not be safe.
pub fn fill_random(buffer: &mut [u8]) {
    if let Err(error) = SysRng.try_fill_bytes(buffer) {
        panic!("the system's random source failed: {error}");
    }
}

/// A random number, for jitter.
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// `chars` random base62 characters.
fn random_base62(chars: usize) -> String {
    let mut text = String::with_capacity(chars);
    let mut block = [0u8; 64];
    while text.len() < chars {
        fill_random(&mut block);
        let wanted = chars - text.len();
        let fair = block.iter().filter(|byte| **byte < BASE62_BYTE_LIMIT);
        text.extend(fair.take(wanted).map(|byte| char::from(BASE62[usize::from(byte % 62)])));
    }
    text
}

/// CRC32 of `text` as six base62 characters, most significant first.
fn checksum(text: &str) -> String {
    let mut rest = crc32fast::hash(text.as_bytes());
    let mut digits = [b'0'; KEY_CHECKSUM_CHARS];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[(rest % 62) as usize];
        rest /= 62;
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

/// A new API key: prefix, 32 random base62 characters, 6 characters of CRC32.
pub fn new_api_key(kind: KeyKind) -> Redacted<String> {
    checked_token(kind.prefix())
}

/// The kind of an API key, by form and checksum only; `None` for any other text.
///
/// Typos, guesses and keys of other services are refused here, without a database query.
pub fn api_key_kind(key: &str) -> Option<KeyKind> {
    [KeyKind::Public, KeyKind::Permanent].into_iter().find(|kind| is_checked_token(kind.prefix(), key))
}

/// Prefix of login tokens.
const LOGIN_PREFIX: &str = "st_";
/// Prefix of invite tokens.
const INVITE_PREFIX: &str = "inv_";

/// A new token of a login session, with a checksum like API keys.
pub fn new_login_token() -> Redacted<String> {
    checked_token(LOGIN_PREFIX)
}

/// A new token of a link that creates an account.
pub fn new_invite_token() -> Redacted<String> {
    checked_token(INVITE_PREFIX)
}

/// Whether a text has the form and checksum of a login token.
pub fn is_login_token(token: &str) -> bool {
    is_checked_token(LOGIN_PREFIX, token)
}

/// Whether a text has the form and checksum of an invite token.
pub fn is_invite_token(token: &str) -> bool {
    is_checked_token(INVITE_PREFIX, token)
}

fn checked_token(prefix: &str) -> Redacted<String> {
    let mut token = format!("{prefix}{}", random_base62(KEY_BODY_CHARS));
    token.push_str(&checksum(&token));
    Redacted::new(token)
}

fn is_checked_token(prefix: &str, token: &str) -> bool {
    let body_end = prefix.len() + KEY_BODY_CHARS;
    token.len() == body_end + KEY_CHECKSUM_CHARS
        && token
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        && checksum(&token[..body_end]) == token[body_end..]
}

/// Prefix of a signing secret; base64 follows (Standard Webhooks 1.0.0).
pub const WEBHOOK_SECRET_PREFIX: &str = "whsec_";
/// Random bytes of such a secret; 24 to 64 are allowed.
const WEBHOOK_SECRET_BYTES: usize = 32;

/// A new secret that signs webhooks.
pub fn new_webhook_secret() -> Redacted<String> {
    let mut bytes = [0; WEBHOOK_SECRET_BYTES];
    fill_random(&mut bytes);
    Redacted::new(format!("{WEBHOOK_SECRET_PREFIX}{}", BASE64.encode(bytes)))
}

/// A new id of a webhook event.
pub fn new_event_id() -> String {
    format!("evt_{}", random_base62(SESSION_ID_CHARS))
}

/// A new stream key: `live_` and 32 random base62 characters.
pub fn new_stream_key() -> Redacted<String> {
    Redacted::new(format!("{STREAM_KEY_PREFIX}{}", random_base62(KEY_BODY_CHARS)))
}

/// The key for the backup encoder of a stream; it changes with the stream key.
pub fn backup_key(stream_key: &str) -> Redacted<String> {
    let body = stream_key.strip_prefix(STREAM_KEY_PREFIX).unwrap_or(stream_key);
    Redacted::new(format!("{BACKUP_KEY_PREFIX}{body}"))
}

/// A new session id.
pub fn new_session_id() -> SessionId {
    SessionId(format!("ses_{}", random_base62(SESSION_ID_CHARS)))
}

/// A new playback path, the name of a self-hosted destination in its URL; unrelated to its stream key.
pub fn new_playback_path() -> String {
    random_base62(PLAYBACK_PATH_CHARS)
}

/// A new request id, shown in `X-Request-Id`, error bodies and the access log. It is unique and no secret, so a number is
/// hashed with a random key of this process: asking the system for each id costs more than many answers.
pub fn new_request_id() -> String {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut id = String::with_capacity(REQUEST_ID_PREFIX.len() + REQUEST_ID_CHARS);
    id.push_str(REQUEST_ID_PREFIX);
    for part in 0..REQUEST_ID_CHARS / REQUEST_ID_PART_CHARS {
        let mut rest = KEY.hash_one((number, part));
        for _ in 0..REQUEST_ID_PART_CHARS {
            id.push(char::from(BASE62[(rest % 62) as usize]));
            rest /= 62;
        }
    }
    id
}

/// A random name for one ledger posting or one database row.
pub fn new_uid() -> String {
    random_base62(SESSION_ID_CHARS)
}

/// SHA-256 of a key, used for storage and lookup.
///
/// Keys hold 190 random bits, so a plain hash cannot be searched; equality of hashes is the comparison.
pub fn key_hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_have_the_documented_form_and_differ() {
        let ids: std::collections::HashSet<String> = (0..10_000).map(|_| new_request_id()).collect();
        assert_eq!(ids.len(), 10_000);
        for id in ids {
            let rest = id.strip_prefix(REQUEST_ID_PREFIX).unwrap();
            assert!(rest.len() == REQUEST_ID_CHARS && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        }
    }

    #[test]
    fn new_keys_have_the_documented_form_and_differ() {
        for kind in [KeyKind::Public, KeyKind::Permanent] {
            let key = new_api_key(kind);
            assert_eq!(key.expose().len(), 3 + 32 + 6);
            assert_eq!(api_key_kind(key.expose()), Some(kind));
            assert_ne!(new_api_key(kind), key);
        }
        assert_eq!(new_stream_key().expose().len(), STREAM_KEY_PREFIX.len() + 32);
        assert_eq!(backup_key("live_abc").expose(), "backup_abc");
        assert_eq!(new_session_id().as_str().len(), 4 + 22);
        assert_eq!(new_playback_path().len(), 22);
    }

    #[test]
    fn one_wrong_character_anywhere_is_detected() {
        let key = new_api_key(KeyKind::Permanent).into_inner();
        for index in 0..key.len() {
            let mut bytes = key.clone().into_bytes();
            bytes[index] = if bytes[index] == b'a' { b'b' } else { b'a' };
            let changed = String::from_utf8(bytes).unwrap();
            assert_eq!(api_key_kind(&changed), None, "change at {index}");
        }
    }

    #[test]
    fn other_texts_are_not_accepted_as_keys() {
        let not_ascii = format!("sk_{}", "ä".repeat(19));
        for text in ["", "sk_", "pk_short", "sk_us-east-1_abcdefghijklmnopqrstuvwxyz0123", &not_ascii] {
            assert_eq!(api_key_kind(text), None, "{text}");
        }
    }

    #[test]
    fn checksum_is_fixed_because_stored_keys_depend_on_it() {
        // CRC-32 (ISO-HDLC) of "123456789" is 0xCBF43926 = 3421780262 = "3jZRxS" in base62.
        assert_eq!(checksum("123456789"), base62_of(0xCBF4_3926));
    }

    fn base62_of(number: u64) -> String {
        (0..6).rev().map(|place| char::from(BASE62[(number / 62u64.pow(place) % 62) as usize])).collect()
    }

    #[test]
    fn redacted_never_prints_its_value() {
        let secret = Redacted::new("hunter2".to_owned());
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "*** Some(***)");
        assert_eq!(secret.expose(), "hunter2");
    }
}
