//! Whether a server that took nothing for a while is back, or takes a little now and then only: such a one would be live and not live
//! every few seconds. No clock in here.

use tokio::time::Instant;

use super::{BEHIND_PART, is_over};
use crate::timing::Timing;

/// So often the time after which a server counts as back grows with its stalls.
const COUNTED_MAX: u32 = 8;

/// The stalls of one connection.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    count: u32,
    /// It is not back from the last one.
    is_on: bool,
    /// When it took bytes again, first and last.
    taken: Option<(Instant, Instant)>,
    /// Since when it takes bytes without a pause of half a stall: who comes near to a stall again and again is not back.
    steady_since: Option<Instant>,
    /// Since when nothing of the stream is late.
    keeps_up_since: Option<Instant>,
}

impl Stalls {
    /// It has taken nothing for as long as a stall is. True when it is a new one.
    pub(super) fn begin(&mut self) -> bool {
        let is_new = !self.is_on;
        if is_new {
            *self = Self { count: self.count.saturating_add(1), is_on: true, ..Self::default() };
        }
        is_new
    }

    /// It is back, or nothing comes that it could take.
    pub(super) fn end(&mut self) {
        self.is_on = false;
    }

    /// It is not back from the last one.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether it took bytes since the last look, and whether what is on its way to it is not late.
    pub(super) fn looked(&mut self, now: Instant, took: bool, keeps_up: bool, timing: &Timing) {
        if !self.is_on {
            return;
        }
        if took {
            let first = self.taken.map_or(now, |(first, _)| first);
            self.taken = Some((first, now));
        }
        let is_steady = self.taken.is_some_and(|(_, last)| now < last + timing.stalled / 2);
        self.steady_since = if is_steady { self.steady_since.or(Some(now)) } else { None };
        let keeps_up = keeps_up && self.taken.is_some();
        self.keeps_up_since = if keeps_up { self.keeps_up_since.or(Some(now)) } else { None };
    }

    /// It took bytes, and has not got back to the stream in [`Timing::thin`].
    pub(super) fn is_slow(&self, now: Instant, timing: &Timing) -> bool {
        self.is_on && is_over(self.taken.map(|(first, _)| first), timing.thin, now)
    }

    /// It keeps up with the stream, for longer than one lump of bytes could make it seem so; or it has taken bytes for long without
    /// pauses: the longer, the more stalls there were.
    pub(super) fn is_over(&self, now: Instant, timing: &Timing) -> bool {
        let steady = timing.unread_max * self.count.min(COUNTED_MAX);
        !self.is_on
            || is_over(self.keeps_up_since, timing.thin / BEHIND_PART * 2, now)
            || is_over(self.steady_since, steady, now)
    }
}
