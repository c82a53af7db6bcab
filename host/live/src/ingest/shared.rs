//! What all connections of the ports share.

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

/// What all connections share.
#[derive(Debug)]
pub(super) struct Shared<A> {
    pub(super) store: Store,
    pub(super) admission: A,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
    /// How publishing connections are read; `None`: at once.
    pub(super) pace: Option<Pace>,
    /// Zero of the pace's grid.
    pub(super) started: Instant,
    pub(super) keys: KeyAttempts,
    pub(super) warnings: LogLimit,
}

/// Whose connection a warning is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose<'a> {
    Unknown,
    /// It sent this key, masked.
    Key(&'a str),
    /// It was let in.
    Stream {
        account: AccountId,
        stream: StreamId,
    },
}

impl<A> Shared<A> {
    /// One warning about a connection, unless a flood of them is going on.
    pub(super) fn warn(&self, peer: SocketAddr, whose: Whose<'_>, what: &str) {
        let Some(withheld) = self.warnings.admit(self.clock.monotonic()) else { return };
        if withheld > 0 {
            warn!("{withheld} more warnings about RTMP connections were left out");
        }
        match whose {
            Whose::Unknown => warn!(peer = %peer, "RTMP connection: {what}"),
            Whose::Key(key) => warn!(peer = %peer, key, "RTMP connection: {what}"),
            Whose::Stream { account, stream } => {
                warn!(peer = %peer, account = %account, stream = %stream, "RTMP connection: {what}");
            }
        }
    }
}
