//! Signatures according to Standard Webhooks 1.0.0.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use satcast_core::secret::{Redacted, WEBHOOK_SECRET_PREFIX};

/// Shortest secret chosen by a user, in characters.
const SECRET_CHARS_MIN: usize = 16;
/// Longest, in bytes.
const SECRET_BYTES_MAX: usize = 256;
/// Decoded bytes of a secret with the prefix.
const KEY_BYTES_MIN: usize = 24;
const KEY_BYTES_MAX: usize = 64;

/// Reason why a secret cannot sign; completes a sentence that begins with the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Too short or too long.
    #[error(
        "must have at least {SECRET_CHARS_MIN} characters and at most {SECRET_BYTES_MAX} bytes, or be \"auto\""
    )]
    Length,
    /// A secret with the prefix whose base64 is invalid or has the wrong length.
    #[error(
        "must have base64 of {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes after {WEBHOOK_SECRET_PREFIX}, or be \"auto\""
    )]
    Base64,
}

/// Whether a secret can sign.
///
/// # Errors
/// The fault of the secret; never a part of it.
pub fn check_secret(secret: &str) -> Result<(), SecretError> {
    key_of(secret).map(drop)
}

/// The key bytes: base64 after the prefix is decoded, any other secret is used as it is.
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

/// The value of `webhook-signature`: one signature for each secret, over the id, the time of the attempt and the body.
/// `None` without a usable secret.
pub(super) fn signatures(
    secrets: &[Redacted<String>],
    id: &str,
    timestamp_secs: i64,
    body: &[u8],
) -> Option<String> {
    let sign = |secret: &Redacted<String>| {
        let key = key_of(secret.expose()).ok()?;
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).ok()?;
        mac.update(format!("{id}.{timestamp_secs}.").as_bytes());
        mac.update(body);
        Some(format!("v1,{}", BASE64.encode(mac.finalize().into_bytes())))
    };
    let signatures: Vec<String> = secrets.iter().filter_map(sign).collect();
    (!signatures.is_empty()).then(|| signatures.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use satcast_core::secret::new_webhook_secret;

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
    fn signatures_match_the_reference() {
        // The example of the reference libraries.
        let secret = Redacted::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
        let (id, at) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330);
        let body = br#"{"test": 2432232314}"#;
        let first = signatures(std::slice::from_ref(&secret), id, at, body).unwrap();
        assert_eq!(first, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let plain = Redacted::new("sixteen letters!".to_owned());
        let both = signatures(&[secret, plain.clone()], id, at, body).unwrap();
        let second = signatures(&[plain], id, at, body).unwrap();
        assert_eq!(both, format!("{first} {second}"));
        assert_eq!(signatures(&[], id, at, body), None);
    }

    #[test]
    fn a_secret_of_our_own_can_sign_and_is_new_each_time() {
        let secret = new_webhook_secret();
        assert_eq!(key_of(secret.expose()).unwrap().len(), 32);
        assert_ne!(secret, new_webhook_secret());
    }
}
