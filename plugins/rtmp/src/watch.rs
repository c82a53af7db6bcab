//! When silence is a failure. No clock in here: every function is told the time.

use std::time::Duration;

use tokio::time::Instant;

use crate::timing::Timing;

/// Time between looks while the first media is on its way.
const LOOK_SOON: Duration = Duration::from_millis(50);

/// Looks in the time after which a server counts as stalled.
const LOOKS: u32 = 10;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing.
    Nothing,
    /// The server acknowledges no bytes; told once per silence.
    Stalled,
    /// The server has acknowledged no bytes for too long.
    DoesNotRead,
    /// No media comes; told once per silence.
    NoMedia,
    /// The end was asked for and takes too long.
    StopOverdue,
}

/// What was told last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Stalled,
    NoMedia,
}

/// Watches one connection: bytes that are on their way, media that comes, and whether the destination is live.
///
/// What counts is what the server's side has acknowledged. That the system takes bytes says nothing: it has room for minutes
/// of a thin stream.
#[derive(Debug)]
pub(crate) struct Watch {
    timing: Timing,
    /// Since when bytes are on their way without any being acknowledged, as far as was looked.
    waiting_since: Option<Instant>,
    /// Output position the server has acknowledged.
    acknowledged: u64,
    look_at: Instant,
    media_at: Instant,
    stop_by: Option<Instant>,
    told: Told,
    live: bool,
    /// Output position the server must have acknowledged to be live.
    live_from: Option<u64>,
}

impl Watch {
    pub(crate) fn new(timing: Timing, now: Instant) -> Self {
        Watch {
            timing,
            waiting_since: None,
            acknowledged: 0,
            look_at: now,
            media_at: now,
            stop_by: None,
            told: Told::Nothing,
            live: false,
            live_from: None,
        }
    }

    /// Media came from the host.
    pub(crate) fn media(&mut self, now: Instant) {
        self.media_at = now;
        if self.told == Told::NoMedia {
            self.told = Told::Nothing;
        }
    }

    /// A media packet was queued that ends at output position `end`.
    pub(crate) fn queued_media(&mut self, now: Instant, end: u64) {
        if !self.live && self.live_from.is_none() {
            self.live_from = Some(end);
            self.look_at = self.look_at.min(now + LOOK_SOON);
        }
    }

    /// Bytes are to be written.
    pub(crate) fn waiting(&mut self, now: Instant) {
        if self.waiting_since.is_none() {
            self.waiting_since = Some(now);
            self.look_at = self.look_at.min(now + self.look());
        }
    }

    /// Bytes are to be written, and `now` must be noted by [`Self::waiting`].
    pub(crate) fn starts_waiting(&self) -> bool {
        self.waiting_since.is_none()
    }

    /// It is time for [`Self::acknowledged`] and [`Self::due`]. A stream that flows is looked at between its writes, without
    /// a wake-up of its own.
    pub(crate) fn is_look_due(&self, now: Instant) -> bool {
        now >= self.look_at
    }

    /// The server has acknowledged bytes up to output position `position`, perhaps the same as before; `all`: nothing is on
    /// its way. True when the destination is live from now on.
    pub(crate) fn acknowledged(&mut self, now: Instant, position: u64, all: bool) -> bool {
        if position > self.acknowledged {
            self.acknowledged = position;
            self.waiting_since = Some(now);
            if self.told == Told::Stalled {
                self.told = Told::Nothing;
            }
        }
        if all {
            self.waiting_since = None;
        }
        let becomes_live = !self.live && self.live_from.is_some_and(|from| position >= from);
        if becomes_live {
            self.live = true;
            self.live_from = None;
        }
        becomes_live
    }

    /// The end was asked for; a second call changes nothing.
    pub(crate) fn stop(&mut self, now: Instant) -> Instant {
        *self.stop_by.get_or_insert(now + self.timing.flush)
    }

    /// What is due now.
    pub(crate) fn due(&mut self, now: Instant) -> Due {
        let due = self.due_at(now);
        self.look_at = now + self.look();
        due
    }

    fn due_at(&mut self, now: Instant) -> Due {
        if self.stop_by.is_some_and(|by| now >= by) {
            return Due::StopOverdue;
        }
        if let Some(since) = self.waiting_since {
            if now >= since + self.timing.unread_max {
                return Due::DoesNotRead;
            }
            if self.told != Told::Stalled && now >= since + self.timing.stalled {
                self.told = Told::Stalled;
                // The next byte the server acknowledges shows that it is back.
                if self.live {
                    self.live_from = Some(self.acknowledged + 1);
                }
                self.live = false;
                return Due::Stalled;
            }
        } else if self.told == Told::Nothing && now >= self.media_at + self.timing.media_silent {
            self.told = Told::NoMedia;
            self.live = false;
            self.live_from = None;
            return Due::NoMedia;
        }
        Due::Nothing
    }

    /// Time until the next look.
    fn look(&self) -> Duration {
        let look = self.timing.stalled / LOOKS;
        if !self.live && self.live_from.is_some() && self.told != Told::Stalled {
            look.min(LOOK_SOON)
        } else {
            look
        }
    }

    /// When to ask at the latest, also where nothing is written meanwhile.
    pub(crate) fn next(&self, now: Instant) -> Instant {
        let silence = match self.waiting_since {
            // One look more, so that a stream that flows looks between its writes.
            Some(since) if since == now && self.live => now + self.look() * 2,
            Some(_) => now + self.look(),
            None if self.told == Told::Nothing => self.media_at + self.timing.media_silent,
            None => now + self.timing.media_silent,
        };
        // Bytes may begin to wait right after this.
        let latest = now + self.look() * 2;
        silence.min(latest).min(self.stop_by.unwrap_or(latest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> (Watch, impl Fn(u64) -> Instant) {
        let start = Instant::now();
        (Watch::new(Timing::default(), start), move |seconds| start + Duration::from_secs(seconds))
    }

    #[test]
    fn live_only_when_media_was_acknowledged() {
        let (mut watch, at) = watch();
        watch.waiting(at(0));
        assert!(!watch.acknowledged(at(0), 3000, false), "the handshake is no media");
        watch.queued_media(at(0), 5000);
        watch.queued_media(at(0), 9000);
        assert!(!watch.acknowledged(at(1), 4999, false));
        assert!(watch.acknowledged(at(1), 5000, false));
        assert!(!watch.acknowledged(at(1), 9000, true), "told once");
    }

    #[test]
    fn a_server_that_acknowledges_nothing_is_stalled_then_given_up() {
        let (mut watch, at) = watch();
        watch.queued_media(at(0), 10);
        watch.waiting(at(0));
        assert!(watch.acknowledged(at(1), 20, false));
        assert!(!watch.acknowledged(at(5), 20, false), "the system took more, the server did not");
        assert_eq!(watch.due(at(5)), Due::Nothing);
        assert_eq!(watch.due(at(6)), Due::Stalled);
        assert_eq!(watch.due(at(7)), Due::Nothing, "told once");
        assert_eq!(watch.due(at(15)), Due::Nothing);
        assert_eq!(watch.due(at(16)), Due::DoesNotRead);
    }

    #[test]
    fn a_stalled_server_that_acknowledges_one_byte_is_live_again() {
        let (mut watch, at) = watch();
        watch.queued_media(at(0), 10);
        watch.waiting(at(0));
        assert!(watch.acknowledged(at(0), 10, false));
        assert_eq!(watch.due(at(5)), Due::Stalled);
        assert!(watch.acknowledged(at(14), 11, false));
        assert_eq!(watch.due(at(18)), Due::Nothing);
        assert_eq!(watch.due(at(19)), Due::Stalled, "told again for a new silence");
    }

    #[test]
    fn no_media_is_told_once_and_media_brings_live_back() {
        let (mut watch, at) = watch();
        watch.queued_media(at(0), 10);
        watch.waiting(at(0));
        assert!(watch.acknowledged(at(0), 10, true));
        assert_eq!(watch.due(at(4)), Due::Nothing);
        assert_eq!(watch.due(at(5)), Due::NoMedia);
        assert_eq!(watch.due(at(60)), Due::Nothing);
        watch.media(at(61));
        watch.queued_media(at(61), 30);
        watch.waiting(at(61));
        assert!(watch.acknowledged(at(61), 30, true));
        assert_eq!(watch.due(at(66)), Due::NoMedia);
    }

    #[test]
    fn looks_come_soon_before_it_is_live_and_rest_while_media_flows() {
        let (mut watch, at) = watch();
        watch.waiting(at(0));
        watch.queued_media(at(0), 10);
        assert_eq!(watch.due(at(0)), Due::Nothing);
        assert!(!watch.is_look_due(at(0)) && watch.is_look_due(at(0) + LOOK_SOON));
        assert!(watch.acknowledged(at(1), 10, false));
        assert_eq!(watch.due(at(1)), Due::Nothing);
        let look = Timing::default().stalled / LOOKS;
        assert!(watch.is_look_due(at(1) + look));
        assert_eq!(watch.next(at(1)), at(1) + look * 2, "a write comes before the timer");
        assert!(!watch.acknowledged(at(2), 10, false));
        assert_eq!(watch.next(at(2)), at(2) + look, "nothing came back: the timer looks");
    }

    #[test]
    fn the_end_has_a_deadline() {
        let (mut watch, at) = watch();
        assert_eq!((watch.stop(at(2)), watch.stop(at(9))), (at(3), at(3)));
        assert_eq!(watch.due(at(2)), Due::Nothing);
        assert!(watch.next(at(2)) <= at(3));
        assert_eq!(watch.due(at(3)), Due::StopOverdue);
    }
}
