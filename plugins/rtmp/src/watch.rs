//! When silence is a failure. No clock in here: every function is told the time.

use tokio::time::Instant;

use crate::timing::Timing;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing.
    Nothing,
    /// The server takes no bytes; told once per silence.
    Stalled,
    /// The server has taken no bytes for too long.
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

/// Watches one connection: bytes that wait, media that comes, and whether the destination is live.
#[derive(Debug)]
pub(crate) struct Watch {
    timing: Timing,
    /// Since when bytes wait without any being taken.
    waiting_since: Option<Instant>,
    media_at: Instant,
    stop_by: Option<Instant>,
    told: Told,
    live: bool,
    /// Output position the server must have taken to be live.
    live_from: Option<u64>,
}

impl Watch {
    pub(crate) fn new(timing: Timing, now: Instant) -> Self {
        Watch {
            timing,
            waiting_since: None,
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
    pub(crate) fn queued_media(&mut self, end: u64) {
        if !self.live && self.live_from.is_none() {
            self.live_from = Some(end);
        }
    }

    /// Bytes wait to be written.
    pub(crate) fn waiting(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
    }

    /// Bytes wait, and `now` must be noted by [`Self::waiting`].
    pub(crate) fn starts_waiting(&self) -> bool {
        self.waiting_since.is_none()
    }

    /// The server took bytes up to output position `taken`; `more` wait. True when the destination is live from now on.
    pub(crate) fn taken(&mut self, now: Instant, taken: u64, more: bool) -> bool {
        self.waiting_since = more.then_some(now);
        if self.told == Told::Stalled {
            self.told = Told::Nothing;
        }
        let becomes_live = !self.live && self.live_from.is_some_and(|from| taken >= from);
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

    /// What is due now. `taken` is the output position the server has taken.
    pub(crate) fn due(&mut self, now: Instant, taken: u64) -> Due {
        if self.stop_by.is_some_and(|by| now >= by) {
            return Due::StopOverdue;
        }
        if let Some(since) = self.waiting_since {
            if now >= since + self.timing.unread_max {
                return Due::DoesNotRead;
            }
            if self.told != Told::Stalled && now >= since + self.timing.stalled {
                self.told = Told::Stalled;
                // The next byte the server takes shows that it is back.
                if self.live {
                    self.live_from = Some(taken + 1);
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

    /// When to ask [`Self::due`] again. A deadline that begins after this call is never earlier than the answer.
    pub(crate) fn next(&self, now: Instant) -> Instant {
        let latest = now + self.timing.stalled.min(self.timing.media_silent);
        let silence = match (self.waiting_since, self.told) {
            (Some(since), Told::Stalled) => since + self.timing.unread_max,
            (Some(since), _) => since + self.timing.stalled,
            (None, Told::Nothing) => self.media_at + self.timing.media_silent,
            (None, _) => latest,
        };
        silence.min(latest).min(self.stop_by.unwrap_or(latest))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn watch() -> (Watch, impl Fn(u64) -> Instant) {
        let start = Instant::now();
        (Watch::new(Timing::default(), start), move |seconds| start + Duration::from_secs(seconds))
    }

    #[test]
    fn live_only_when_media_was_taken() {
        let (mut watch, at) = watch();
        watch.waiting(at(0));
        assert!(!watch.taken(at(0), 3000, true), "the handshake is no media");
        watch.queued_media(5000);
        watch.queued_media(9000);
        assert!(!watch.taken(at(1), 4999, true));
        assert!(watch.taken(at(1), 5000, true));
        assert!(!watch.taken(at(1), 9000, false), "told once");
    }

    #[test]
    fn a_server_that_takes_nothing_is_stalled_then_given_up() {
        let (mut watch, at) = watch();
        watch.queued_media(10);
        watch.waiting(at(0));
        assert!(watch.taken(at(1), 20, true));
        assert_eq!((watch.due(at(5), 20), watch.next(at(5))), (Due::Nothing, at(6)));
        assert_eq!(watch.due(at(6), 20), Due::Stalled);
        assert_eq!(watch.due(at(7), 20), Due::Nothing, "told once");
        assert_eq!(watch.next(at(7)), at(12), "never further than the shortest limit");
        assert_eq!(watch.next(at(15)), at(16));
        assert_eq!(watch.due(at(16), 20), Due::DoesNotRead);
    }

    #[test]
    fn a_stalled_server_that_takes_one_byte_is_live_again() {
        let (mut watch, at) = watch();
        watch.queued_media(10);
        watch.waiting(at(0));
        assert!(watch.taken(at(0), 10, true));
        assert_eq!(watch.due(at(5), 10), Due::Stalled);
        assert!(watch.taken(at(14), 11, true));
        assert_eq!(watch.due(at(18), 11), Due::Nothing);
        assert_eq!(watch.due(at(19), 11), Due::Stalled, "told again for a new silence");
    }

    #[test]
    fn no_media_is_told_once_and_media_brings_live_back() {
        let (mut watch, at) = watch();
        watch.queued_media(10);
        watch.waiting(at(0));
        assert!(watch.taken(at(0), 10, false));
        assert_eq!((watch.due(at(4), 10), watch.next(at(4))), (Due::Nothing, at(5)));
        assert_eq!(watch.due(at(5), 10), Due::NoMedia);
        assert_eq!((watch.due(at(60), 10), watch.next(at(60))), (Due::Nothing, at(65)));
        watch.media(at(61));
        watch.queued_media(30);
        watch.waiting(at(61));
        assert!(watch.taken(at(61), 30, false));
        assert_eq!(watch.due(at(66), 30), Due::NoMedia);
    }

    #[test]
    fn the_end_has_a_deadline() {
        let (mut watch, at) = watch();
        assert_eq!((watch.stop(at(2)), watch.stop(at(9))), (at(3), at(3)));
        assert_eq!((watch.due(at(2), 0), watch.next(at(2))), (Due::Nothing, at(3)));
        assert_eq!(watch.due(at(3), 0), Due::StopOverdue);
    }
}
