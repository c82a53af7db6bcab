//! State shared by all connections of the ports.

use std::net::SocketAddr;

use tokio::time::Instant;
use tracing::warn;

use super::keys::KeyAttempts;
use super::limits::Limits;
use super::pace::Pace;
use satcast_core::clock::Clock;
use satcast_core::ids::{AccountId, StreamId};
use satcast_core::log_limit::LogLimit;
use satcast_store::Store;

#[derive(Debug)]
pub(super) struct Shared<A> {
    pub(super) store: Store,
    pub(super) admission: A,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
    /// Times of the reads of publishing connections; `None`: as bytes arrive.
    pub(super) pace: Option<Pace>,
    /// Start of the grid of `pace`.
    pub(super) started: Instant,
    pub(super) keys: KeyAttempts,
    pub(super) warnings: LogLimit,
}

/// The connection that a warning is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subject<'a> {
    Unknown,
    /// Refused with this key, masked.
    Key(&'a str),
    /// Admitted.
    Stream {
        account: AccountId,
        stream: StreamId,
    },
}

impl<A> Shared<A> {
    /// Logs one warning about a connection, subject to the log limit.
    pub(super) fn warn(&self, peer: SocketAddr, subject: Subject<'_>, text: &str) {
        let Some(withheld) = self.warnings.admit(self.clock.monotonic()) else { return };
        if withheld > 0 {
            warn!("{withheld} more warnings about RTMP connections were left out");
        }
        match subject {
            Subject::Unknown => warn!(peer = %peer, "RTMP connection: {text}"),
            Subject::Key(key) => warn!(peer = %peer, key, "RTMP connection: {text}"),
            Subject::Stream { account, stream } => {
                warn!(peer = %peer, account = %account, stream = %stream, "RTMP connection: {text}");
            }
        }
    }
}
