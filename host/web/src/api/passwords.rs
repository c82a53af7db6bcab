//! Hashes and compares passwords on blocking threads, few at once: each takes tens of milliseconds and 19 MiB.

use super::app::{App, HASHING_WAIT};
use crate::auth::password::{self, PasswordError};
use crate::base::{ApiError, Code};
use satcast_core::secret::Redacted;

/// A hash that matches no password: an unknown name must take as long as a wrong password.
const NOBODYS_HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Hashes a new password; `field` is its name in errors.
pub(super) async fn hashed(
    app: &App,
    password: String,
    field: &str,
) -> std::result::Result<Redacted<String>, ApiError> {
    let hashed = on_own_thread(app, move || password::hash(&Redacted::new(password))).await?;
    hashed.map_err(|error| match error {
        PasswordError::Hash => ApiError::internal(),
        error => ApiError::refused(Code::PasswordRefused, format!("Field `{field}`: {error}")),
    })
}

/// Whether the password matches the stored hash; takes as long when there is none.
pub(super) async fn is_password(
    app: &App,
    password: Redacted<String>,
    stored: Option<Redacted<String>>,
) -> std::result::Result<bool, ApiError> {
    on_own_thread(app, move || {
        let real = stored.is_some();
        let stored = stored.unwrap_or_else(|| Redacted::new(NOBODYS_HASH.to_owned()));
        password::verify(&password, &stored) && real
    })
    .await
}

async fn on_own_thread<R: Send + 'static>(
    app: &App,
    work: impl FnOnce() -> R + Send + 'static,
) -> std::result::Result<R, ApiError> {
    let acquired = app.clock.timeout(HASHING_WAIT, app.limits.hashing.clone().acquire_owned()).await;
    // The semaphore is never closed.
    let permit = acquired.ok_or_else(ApiError::busy)?.map_err(|_| ApiError::internal())?;
    let done = tokio::task::spawn_blocking(move || {
        let result = work();
        drop(permit);
        result
    });
    done.await.map_err(|_| ApiError::internal())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dummy_hash_is_a_valid_hash() {
        let stored = Redacted::new(NOBODYS_HASH.to_owned());
        assert!(argon2::password_hash::phc::PasswordHash::new(stored.expose()).is_ok());
        assert!(!password::verify(&Redacted::new("hunter2hunter2".into()), &stored));
    }
}
