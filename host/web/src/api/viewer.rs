//! The caller of a public operation about one destination: a website or a player with the destination's public key.

use std::sync::Arc;

use poem::Request;

use super::app::App;
use super::caller::{count_invalid, key_extractor};
use super::known::Known;
use crate::auth::presented_key;
use crate::base::{ApiError, RequestContext};
use satcast_core::secret::{Redacted, api_key_kind, key_hash};
use satcast_store::PlaybackRecord;

/// A public key and its destination, which is enabled.
#[derive(Clone, Debug)]
pub(super) struct Viewer {
    known: Arc<Known>,
    pub(super) key: Redacted<String>,
}

impl Viewer {
    /// Authenticates the public key of a request and counts the request against the key's limit.
    ///
    /// # Errors
    /// 400 without a key; 401 for a key that is unknown, revoked or permanent, or whose destination is disabled or deleted;
    /// 429 over a limit, 502 from the store.
    async fn of(app: &App, request: &Request) -> std::result::Result<Self, ApiError> {
        let context = RequestContext::of(request);
        let key = presented_key(request).ok_or_else(ApiError::public_key_required)?;
        let refused = ApiError::invalid_public_key;
        let known = match api_key_kind(key.expose()) {
            Some(_) => app.known.find(&app.store, &app.clock, key_hash(key.expose())).await?,
            None => None,
        };
        let known = known.ok_or_else(|| count_invalid(app, &context, refused()))?;
        context.count(app.limits.status.hit(known.key.id, app.clock.monotonic()))?;
        // A permanent key has no destination.
        if !known.destination.as_ref().is_some_and(|destination| destination.enabled) {
            return Err(refused());
        }
        app.key_uses.note(&app.store, &known.key, app.clock.now());
        Ok(Self { known, key })
    }

    /// The destination.
    ///
    /// # Errors
    /// 401 without a destination, which [`Viewer::of`] already refuses.
    pub(super) fn destination(&self) -> std::result::Result<&PlaybackRecord, ApiError> {
        self.known.destination.as_ref().ok_or_else(ApiError::invalid_public_key)
    }
}

key_extractor!(Viewer);
