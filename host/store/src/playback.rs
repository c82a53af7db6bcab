//! Playback: which destination a viewer's key or path belongs to, and how many bytes were sent.

use async_trait::async_trait;
use serde_json::Value;

use super::Result;
use satcast_core::ids::{AccountId, DestinationId, KeyId, StreamId, UnixMillis};

/// A destination that viewers can play; neither it nor its stream is deleted.
#[derive(Clone, PartialEq)]
pub struct PlaybackRecord {
    /// The destination.
    pub destination_id: DestinationId,
    /// Its stream.
    pub stream_id: StreamId,
    /// Its destination type.
    pub kind: String,
    /// Whose it is.
    pub account_id: AccountId,
    /// The stream's name for people.
    pub label: String,
    /// The part of its URL that names it: 22 random base62 characters.
    pub playback_path: String,
    /// Whether it takes part in sessions; viewers of a disabled one are refused.
    pub enabled: bool,
    /// The driver's configuration in clear, secrets included.
    pub config: Value,
}

impl std::fmt::Debug for PlaybackRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `config` may hold secrets.
        f.debug_struct("PlaybackRecord")
            .field("destination_id", &self.destination_id)
            .field("stream_id", &self.stream_id)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

/// Bytes sent to the viewers of a destination, to be added to what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// Whose destination it is.
    pub account: AccountId,
    /// The destination, deleted or not.
    pub destination: DestinationId,
    /// The UTC clock hour in which they were sent; see [`UnixMillis::hour_start`].
    pub hour_start: UnixMillis,
    /// How many. A destination's hour counts up to 2^53 - 1, what is above is not counted.
    pub bytes: u64,
}

/// What playback needs of the database.
///
/// # Errors
/// Reading a destination whose stored configuration was damaged is a [`StoreError::Vault`](super::StoreError::Vault).
#[async_trait]
pub trait Playback: Send + Sync {
    /// The public key with that SHA-256, unless revoked, and its destination.
    async fn playback_by_key_hash(&self, hash: &[u8; 32]) -> Result<Option<(KeyId, PlaybackRecord)>>;
    /// The destination of a public key, unless revoked.
    async fn playback_by_key(&self, key: KeyId) -> Result<Option<PlaybackRecord>>;
    /// The destination with that path.
    async fn playback_by_path(&self, path: &str) -> Result<Option<PlaybackRecord>>;
    /// Adds bytes to what is stored: all of them or, on an error, none.
    async fn add_bandwidth(&self, sent: &[Bandwidth]) -> Result<()>;
    /// Bytes stored for all destinations of an account in the UTC clock hour that begins at `hour_start`, deleted
    /// destinations included.
    async fn bandwidth_of_hour(&self, account: AccountId, hour_start: UnixMillis) -> Result<u64>;
}
