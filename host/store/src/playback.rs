//! Playback: which destination a viewer's key or path belongs to, and how many bytes were sent.

use serde_json::Value;

use satcast_core::ids::{AccountId, DestinationId, StreamId, UnixMillis};

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
