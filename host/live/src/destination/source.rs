//! The media source of one opening: a backfill if the driver wants one, then the queue; and the flush of the queue at the end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use satcast_plugin_api::host::MediaSource;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tracing::Span;

use super::Parts;
use crate::backfill::Backfill;
use crate::hub::{Codecs, Hub};
use crate::queue::{Bounds, Queue};
use crate::spool::{FREE_BYTES_MIN, Spool};
use satcast_core::clock::Clock;
use satcast_core::config::QueueLimits;
use satcast_core::ids::DestinationId;
use satcast_drivers::{SpoolPlace, Waker};

/// Time for a lossless driver to take the rest of its queue when its destination ends.
pub(crate) const SETTLE_MAX: Duration = Duration::from_secs(10);
/// How often the queue is checked for being empty.
const SETTLE_LOOK: Duration = Duration::from_millis(50);
/// How often it is checked whether a driver holds the maximum of unreleased bytes.
const HOARDING_LOOK: Duration = Duration::from_secs(5);

const BYTES_PER_MB: usize = 1024 * 1024;

/// The media of one opening.
pub(super) struct Source {
    queue: Arc<Queue>,
    waker: Waker,
    backfill: Option<Arc<Backfill>>,
    /// The driver must not lose packets.
    is_lossless: bool,
    /// Packets lost so far by the destination; `dropped_before`: their number when the end began.
    dropped: Arc<AtomicU64>,
    dropped_before: OnceLock<u64>,
    clock: Clock,
}

impl Source {
    /// Attaches a queue that gets the session's media from now on, with a disk behind it for a lossless driver. Lost packets are added
    /// to `dropped`.
    pub(super) fn attached(
        parts: &Parts,
        destination: DestinationId,
        kind: &str,
        waker: &Waker,
        dropped: &Arc<AtomicU64>,
    ) -> Self {
        let place = parts.drivers.spool(kind);
        let is_lossless = place.is_some();
        let queue = match place {
            None => Queue::new(dropped.clone(), bounds(parts.drivers.queue(kind))),
            Some(SpoolPlace { folder, bytes_max }) => {
                let (account, shares, waker) = (parts.account, parts.spools.clone(), waker.clone());
                let free_bytes_min = FREE_BYTES_MIN;
                let (clock, span) = (parts.clock.clone(), Span::current());
                let spool = Spool { account, shares, folder, bytes_max, free_bytes_min, waker, clock, span };
                Queue::spilling(dropped.clone(), Arc::new(spool))
            }
        };
        let queue = Arc::new(queue);
        parts.hub.attach(queue.clone(), waker.clone(), parts.clock.monotonic());
        let backfill = backfill(parts, destination, kind, &queue, waker);
        let (waker, dropped) = (waker.clone(), dropped.clone());
        let (dropped_before, clock) = (OnceLock::new(), parts.clock.clone());
        Self { queue, waker, backfill, is_lossless, dropped, dropped_before, clock }
    }

    pub(super) fn queue(&self) -> Weak<Queue> {
        Arc::downgrade(&self.queue)
    }

    pub(super) fn media(&self) -> Arc<dyn MediaSource> {
        match &self.backfill {
            Some(backfill) => backfill.clone(),
            None => self.queue.clone(),
        }
    }

    /// The driver has opened: starts the backfill.
    pub(super) fn start(&self) {
        self.backfill.iter().for_each(|backfill| backfill.start());
    }

    /// Codecs of video and audio that the driver got last.
    pub(super) fn given(&self) -> Codecs {
        self.queue.given()
    }

    /// There is no backfill, or the driver has taken all of it.
    pub(super) fn is_backfill_taken(&self) -> bool {
        self.backfill.as_ref().is_none_or(|backfill| backfill.is_taken())
    }

    /// Closes the queue, and gives a lossless driver the time to take the rest.
    pub(super) async fn settle(&self) {
        let until = self.clock.monotonic() + SETTLE_MAX;
        let is_read = || self.backfill.as_ref().is_none_or(|backfill| backfill.is_over());
        self.wait_for(is_read, until).await;
        self.waker.wake(self.queue.close());
        if !self.is_lossless {
            return;
        }
        let _ = self.dropped_before.set(self.dropped.load(Ordering::Relaxed));
        // Packets that are left then are counted in `end`.
        self.wait_for(|| self.queue.media_waiting() == 0, until).await;
    }

    async fn wait_for(&self, is_so: impl Fn() -> bool, until: Duration) {
        let looks = async {
            while !is_so() {
                tokio::time::sleep(SETTLE_LOOK).await;
            }
        };
        self.clock.timeout_at(until, looks).await;
    }

    /// The opening has ended. Returns the number of packets that a lossless driver lost since the end began.
    pub(super) fn end(&self, hub: &Hub) -> u64 {
        hub.detach(&self.queue);
        self.waker.wake(self.queue.close());
        self.backfill.iter().for_each(|backfill| backfill.give_up());
        self.waker.wake(self.queue.give_up());
        let before = self.dropped_before.get();
        before.map_or(0, |before| self.dropped.load(Ordering::Relaxed).saturating_sub(*before))
    }
}

/// Limits of the operator's configuration.
fn bounds(limits: QueueLimits) -> Bounds {
    let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let bytes = number(limits.mb).saturating_mul(BYTES_PER_MB);
    Bounds { packets: number(limits.packets), bytes, wait: Duration::from_secs(limits.secs) }
}

/// Only for the first opening of a destination whose driver wants one, in a session with a DVR window.
fn backfill(
    parts: &Parts,
    destination: DestinationId,
    kind: &str,
    queue: &Arc<Queue>,
    waker: &Waker,
) -> Option<Arc<Backfill>> {
    let wants = parts.drivers.wants_backfill(kind) && !parts.had_backfill.lock().contains(&destination);
    let window = parts.openings.longest_window(&parts.session).filter(|_| wants)?;
    // A driver that does not publish the positions of its segments cannot be read.
    if window.assets().segments(0).is_empty() {
        return None;
    }
    Some(Arc::new(Backfill::new(queue.clone(), waker.clone(), window, parts.source)))
}

/// Detects a driver that holds the maximum of unreleased bytes; reported once for an opening.
pub(super) struct Hoarding {
    look: Interval,
    is_reported: bool,
}

impl Hoarding {
    pub(super) fn new() -> Self {
        let mut look = tokio::time::interval_at(Instant::now() + HOARDING_LOOK, HOARDING_LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { look, is_reported: false }
    }

    /// Resolves when the driver holds the maximum while more packets wait; at most once.
    pub(super) async fn noticed(&mut self, source: &Source) {
        loop {
            self.look.tick().await;
            if !self.is_reported && source.queue.is_held_up() && source.queue.media_waiting() > 0 {
                self.is_reported = true;
                return;
            }
        }
    }
}
