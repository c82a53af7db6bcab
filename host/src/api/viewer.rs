//! The caller of a public operation about one destination: a website or a player with the destination's public key.

use poem::Request;

use super::caller::{key_extractor, known_key, note_use};
use super::{ApiError, App, RequestContext};
use crate::auth::presented_key;
use crate::secret::Redacted;
use crate::store::PlaybackRecord;

/// A public key and the destination it belongs to, which is enabled.
#[derive(Clone, Debug)]
pub(super) struct Viewer {
    /// The destination.
    pub(super) destination: PlaybackRecord,
    /// The key as it was presented.
    pub(super) key: Redacted<String>,
}

impl Viewer {
    /// Finds the destination of a request's public key and counts the request against the key's limit.
    ///
    /// # Errors
    /// 400 without a key; 401 for one that is unknown, revoked or permanent, and when its destination is disabled or
    /// deleted; 429 over a limit, 502 from the store.
    async fn of(app: &App, request: &Request) -> std::result::Result<Self, ApiError> {
        let context = RequestContext::of(request);
        let key = presented_key(request).ok_or_else(ApiError::public_key_required)?;
        let known = known_key(app, &context, &key, ApiError::invalid_public_key()).await?;
        context.count(app.limits.status.hit(known.id, app.clock.monotonic()))?;
        // A permanent key has no destination.
        let destination = app.store.playback_by_key(known.id).await?.filter(|record| record.enabled);
        let destination = destination.ok_or_else(ApiError::invalid_public_key)?;
        note_use(app, &known);
        Ok(Self { destination, key })
    }
}

key_extractor!(Viewer);
