//! The dependencies of a destination.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::hub::Hub;
use crate::notifier::Notifier;
use crate::spool::Shares;
use crate::via::Via;
use satcast_core::clock::Clock;
use satcast_core::feed::Feed;
use satcast_core::ids::{AccountId, DestinationId, SessionId, UnixMillis};
use satcast_core::troubles::Troubles;
use satcast_drivers::Drivers;
use satcast_drivers::published::Openings;
use satcast_usage::Usage;

/// What a session gives to each destination.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) drivers: Drivers,
    pub(crate) clock: Clock,
    /// Time to flush and end.
    pub(crate) stop_deadline: Duration,
    pub(crate) hub: Arc<Hub>,
    pub(crate) source: u64,
    /// The streams that the media has passed through before this one; `mark` is that of this stream.
    pub(crate) via: Arc<Mutex<Via>>,
    pub(crate) mark: String,
    pub(crate) session: SessionId,
    /// Label of the stream.
    pub(crate) label: String,
    /// Time of the session's first media.
    pub(crate) started_at: UnixMillis,
    pub(crate) openings: Arc<Openings>,
    pub(crate) spools: Arc<Shares>,
    pub(crate) troubles: Arc<Troubles<DestinationId, String>>,
    pub(crate) feed: Feed,
    pub(crate) notifier: Notifier,
    /// Owner of the stream.
    pub(crate) account: AccountId,
    pub(crate) usage: Arc<dyn Usage>,
    /// The current encoder sends media.
    pub(crate) flows: watch::Receiver<bool>,
    /// Destinations of the session that get no further backfill.
    pub(crate) had_backfill: Arc<Mutex<HashSet<DestinationId>>>,
}
