//! What a destination is made with.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::hub::Hub;
use crate::spool::Shares;
use crate::teller::Teller;
use crate::via::Via;
use satcast_core::clock::Clock;
use satcast_core::feed::Feed;
use satcast_core::ids::{AccountId, DestinationId, SessionId, UnixMillis};
use satcast_core::troubles::Troubles;
use satcast_drivers::Drivers;
use satcast_drivers::published::Openings;
use satcast_usage::Usage;

/// What a destination needs of its session.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) drivers: Drivers,
    pub(crate) clock: Clock,
    /// What it is given to flush and end.
    pub(crate) stop_deadline: Duration,
    pub(crate) hub: Arc<Hub>,
    pub(crate) source: u64,
    /// Which streams the media has come through before this one, and the mark of this one.
    pub(crate) via: Arc<Mutex<Via>>,
    pub(crate) mark: String,
    pub(crate) session: SessionId,
    /// Of the stream.
    pub(crate) label: String,
    /// Time of the session's first media.
    pub(crate) started_at: UnixMillis,
    pub(crate) openings: Arc<Openings>,
    pub(crate) spools: Arc<Shares>,
    pub(crate) troubles: Arc<Troubles<DestinationId, String>>,
    pub(crate) feed: Feed,
    pub(crate) teller: Teller,
    /// Whose the stream is.
    pub(crate) account: AccountId,
    pub(crate) usage: Arc<dyn Usage>,
    /// Media of the present encoder comes.
    pub(crate) flows: watch::Receiver<bool>,
    /// Destinations of the session that get no backfill any more.
    pub(crate) had_backfill: Arc<Mutex<HashSet<DestinationId>>>,
}
