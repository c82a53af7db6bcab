//! One connection that takes part in a stream: it joins at a keyframe, and waits for the next one after a gap.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use satcast_media::srt::Sender;
use satcast_plugin_api::driver::Ctx;

/// A connection, and whether media can be added to what it has.
pub(crate) struct Outlet {
    pub(crate) sender: Sender,
    waits_for_keyframe: bool,
    counted: Counted,
    /// When media that is not acknowledged began to leave.
    unanswered: Option<Duration>,
}

/// What the host was told last: it gets only changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Live,
    NoMedia,
    NoCaller,
}

/// What was added to the counters.
#[derive(Default)]
struct Counted {
    bytes: u64,
    retransmitted: u64,
    dropped: u64,
    acknowledged: u64,
}

/// The counters of a destination.
pub(crate) struct Counters {
    ctx: Ctx,
    retransmitted: Option<&'static AtomicU64>,
    dropped: Option<&'static AtomicU64>,
}

impl Counters {
    pub(crate) fn of(ctx: &Ctx) -> Self {
        let (retransmitted, dropped) = (ctx.counter("packets_retransmitted"), ctx.counter("packets_late"));
        Self { ctx: ctx.clone(), retransmitted, dropped }
    }
}

impl Outlet {
    pub(crate) fn new(sender: Sender) -> Self {
        Self { sender, waits_for_keyframe: true, counted: Counted::default(), unanswered: None }
    }

    /// Takes transport stream packets; `begins`: a keyframe begins with them. Without room everything up to the next
    /// keyframe is left out.
    pub(crate) fn push(&mut self, payload: &[u8], begins: bool, now: Duration) {
        if self.sender.take_overrun() {
            self.waits_for_keyframe = true;
        }
        self.waits_for_keyframe &= !begins;
        if !self.waits_for_keyframe && !self.sender.push(payload, now) {
            self.sender.discard();
        }
    }

    /// Adds to the counters; whether the receiver has acknowledged something since the last call.
    pub(crate) fn count(&mut self, counters: &Counters, now: Duration) -> bool {
        let stats = self.sender.stats();
        counters.ctx.bytes_sent(stats.bytes - self.counted.bytes);
        for (counter, new) in [
            (counters.retransmitted, stats.retransmitted - self.counted.retransmitted),
            (counters.dropped, stats.dropped - self.counted.dropped),
        ] {
            if let (Some(counter), 1..) = (counter, new) {
                counter.fetch_add(new, Ordering::Relaxed);
            }
        }
        let has_progress = stats.acknowledged > self.counted.acknowledged;
        if has_progress {
            self.unanswered = None;
        } else if stats.bytes > self.counted.bytes {
            self.unanswered.get_or_insert(now);
        }
        let (bytes, retransmitted) = (stats.bytes, stats.retransmitted);
        self.counted =
            Counted { bytes, retransmitted, dropped: stats.dropped, acknowledged: stats.acknowledged };
        has_progress
    }

    /// Ends the connection. A receiver whose latency is longer than the time for the end gets no notice: it gives what it has
    /// to its program, and sees the silence.
    pub(crate) fn end(&mut self, now: Duration) {
        if now >= self.sender.given_at() || !self.sender.is_empty() {
            self.sender.shut_down(now);
        }
    }

    /// Since when media leaves without an acknowledgement.
    pub(crate) fn unanswered(&self) -> Option<Duration> {
        self.unanswered
    }
}
