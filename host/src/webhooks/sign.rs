//! Signatures as Standard Webhooks 1.0.0 has them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::secret::WEBHOOK_SECRET_PREFIX;

/// Shortest secret of a user's own, in characters.
const SECRET_CHARS_MIN: usize = 16;
/// Longest, in bytes.
const SECRET_BYTES_MAX: usize = 256;
/// Bytes behind the base64 of a secret with the prefix.
const KEY_BYTES_MIN: usize = 24;
const KEY_BYTES_MAX: usize = 64;

/// Why a secret cannot sign; a part of a sentence that begins with the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Too short or too long.
    #[error(
        "must have at least {SECRET_CHARS_MIN} characters and at most {SECRET_BYTES_MAX} bytes, or be \"auto\""
    )]
    Length,
    /// The prefix, and no base64 of the right length behind it.
    #[error(
        "must have base64 of {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes behind {WEBHOOK_SECRET_PREFIX}, or be \"auto\""
    )]
    Base64,
}

/// Whether a secret can sign.
///
/// # Errors
/// What is wrong with it; never a part of it.
pub fn check_secret(secret: &str) -> Result<(), SecretError> {
    key_of(secret).map(drop)
}

/// The bytes that sign: base64 behind the prefix is decoded, anything else is taken as it is.
fn key_of(secret: &str) -> Result<Vec<u8>, SecretError> {
    if let Some(text) = secret.strip_prefix(WEBHOOK_SECRET_PREFIX) {
        let key = BASE64.decode(text).map_err(|_| SecretError::Base64)?;
        let fits = (KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len());
        return if fits { Ok(key) } else { Err(SecretError::Base64) };
    }
    if secret.chars().count() < SECRET_CHARS_MIN || secret.len() > SECRET_BYTES_MAX {
        return Err(SecretError::Length);
    }
    Ok(secret.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::new_webhook_secret;

    #[test]
    fn secrets_have_a_length_and_those_with_the_prefix_are_decoded() {
        let coded = |bytes: usize| format!("{WEBHOOK_SECRET_PREFIX}{}", BASE64.encode(vec![7; bytes]));
        assert_eq!(key_of(&coded(24)), Ok(vec![7; 24]));
        assert_eq!(key_of(&coded(64)), Ok(vec![7; 64]));
        for text in [coded(23), coded(65), "whsec_not base64 at all!!".to_owned(), "whsec_".to_owned()] {
            assert_eq!(check_secret(&text), Err(SecretError::Base64), "{text}");
        }
        assert_eq!(key_of("sixteen letters!"), Ok(b"sixteen letters!".to_vec()));
        for text in ["", "fifteen letters", &"x".repeat(257)] {
            assert_eq!(check_secret(text), Err(SecretError::Length), "{text}");
        }
        assert_eq!(check_secret(&"x".repeat(256)), Ok(()));
    }

    #[test]
    fn a_secret_of_our_own_can_sign_and_is_new_each_time() {
        let secret = new_webhook_secret();
        assert_eq!(key_of(secret.expose()).unwrap().len(), 32);
        assert_ne!(secret, new_webhook_secret());
    }
}
