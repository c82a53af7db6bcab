//! Passwords: argon2id with the crate's defaults (19 MiB, 2 passes, 1 lane, OWASP's minimum), in PHC form.

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _, phc::PasswordHash};

use satcast_core::secret::{Redacted, fill_random};

/// Shortest password in characters.
pub const PASSWORD_CHARS_MIN: usize = 8;
/// Longest password in bytes; hashing longer ones would only cost time.
pub const PASSWORD_BYTES_MAX: usize = 1_024;
/// Random bytes of a salt.
const SALT_BYTES: usize = 16;

/// Why a password cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PasswordError {
    /// Too few characters.
    #[error("the password is too short; use at least {PASSWORD_CHARS_MIN} characters")]
    TooShort,
    /// Too many bytes.
    #[error("the password is too long; use at most {PASSWORD_BYTES_MAX} bytes")]
    TooLong,
    /// The hash could not be made or read.
    #[error("the password could not be hashed; try again")]
    Hash,
}

/// Hashes a password; takes tens of milliseconds, so call it on a blocking thread.
///
/// # Errors
/// The password is too short or too long.
pub fn hash(password: &Redacted<String>) -> Result<Redacted<String>, PasswordError> {
    let text = password.expose();
    if text.chars().count() < PASSWORD_CHARS_MIN {
        return Err(PasswordError::TooShort);
    }
    if text.len() > PASSWORD_BYTES_MAX {
        return Err(PasswordError::TooLong);
    }
    let mut salt = [0; SALT_BYTES];
    fill_random(&mut salt);
    let hash = Argon2::default().hash_password_with_salt(text.as_bytes(), &salt);
    hash.map(|hash| Redacted::new(hash.to_string())).map_err(|_| PasswordError::Hash)
}

/// Whether `stored` is the hash of `password`; `false` if `stored` is not a hash.
pub fn verify(password: &Redacted<String>, stored: &Redacted<String>) -> bool {
    let Ok(stored) = PasswordHash::new(stored.expose()) else { return false };
    password.expose().len() <= PASSWORD_BYTES_MAX
        && Argon2::default().verify_password(password.expose().as_bytes(), &stored).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Redacted<String> {
        Redacted::new(text.to_owned())
    }

    #[test]
    fn only_the_right_password_matches_its_hash() {
        let stored = hash(&secret("correct horse")).unwrap();
        assert!(stored.expose().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "OWASP's minimum");
        assert!(verify(&secret("correct horse"), &stored));
        assert!(!verify(&secret("correct horsf"), &stored));
        assert_ne!(hash(&secret("correct horse")).unwrap(), stored, "the salt is random");
        assert!(!verify(&secret("correct horse"), &secret("not a hash")));
    }

    #[test]
    fn lengths_are_limited_on_both_sides() {
        assert_eq!(hash(&secret("1234567")), Err(PasswordError::TooShort));
        assert_eq!(hash(&secret(&"x".repeat(PASSWORD_BYTES_MAX + 1))), Err(PasswordError::TooLong));
    }
}
