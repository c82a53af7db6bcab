//! When a destination is live, and when silence is a failure. No clock in here: every function is told the time.
//!
//! What the server's system has taken does not show that the server reads: it keeps some for a program that hangs. On a new
//! connection a destination is therefore live when the server has said in RTMP that it has read media, or when more was taken than a
//! system keeps ([`UNREAD_BYTES_MAX`]), or when a stream too thin for that has flown for some time ([`Timing::thin`]) without falling
//! behind ([`BEHIND_PART`]). Where an earlier try ended because a server stopped reading, the thin stream's way is closed, and the others
//! count only beyond what it took then. One that has stalled is live again when it keeps up, or has taken bytes for long ([`stalls`]).
//!
//! Nor does it show that the server goes on reading. One that is known to acknowledge in RTMP stalls when its acknowledgements stop, while
//! its system may go on taking bytes ([`acks`]); any other is judged by what its system takes.

mod acks;
mod stalls;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::time::Instant;

use self::acks::{Acks, Window};
use self::stalls::Stalls;
use crate::timing::Timing;

/// Time between looks while the first media is on its way.
const LOOK_SOON: Duration = Duration::from_millis(50);

/// Most that the system of a server keeps for a program that does not read, in bytes, unless the program has asked for more: twice what
/// usual ones do.
pub(crate) const UNREAD_BYTES_MAX: u64 = 256 * 1024;

/// Media of a thin stream that is on its way for longer than this part of [`Timing::thin`] is behind; a slow round trip takes less.
const BEHIND_PART: u32 = 3;

/// Looks in the time after which a server counts as stalled.
const LOOKS: u32 = 10;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing.
    Nothing,
    /// The server acknowledges no bytes, or none in RTMP where it used to; told once per silence.
    Stalled,
    /// The server acknowledges bytes again, but does not get back to the stream; told once per silence.
    Slow,
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
    Slow,
    NoMedia,
}

/// Watches one connection: bytes that are on their way, media that comes, and whether the destination is live.
///
/// What counts is what the server's side has acknowledged. That our own system takes bytes says nothing: it has room for minutes
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
    stalls: Stalls,
    /// Since when the destination is live.
    live: Option<Instant>,
    /// How long it was live before.
    lived: Duration,
    /// Output position the server must have acknowledged to be live, and since when it is waited for.
    live_from: Option<(u64, Instant)>,
    /// Output position of the first media.
    media_from: Option<u64>,
    /// Output position of some media that is on its way, and when it was queued.
    on_its_way: Option<(u64, Instant)>,
    /// The same of the newest media, wherever it is.
    newest: Option<(u64, Instant)>,
    /// The server has shown that it reads.
    proven: bool,
    acks: Acks,
    window: Option<Window>,
    /// It has stalled because it said nothing more of its reading: the output position that it had said it has read then.
    silent_from: Option<u64>,
    /// Bytes that it took without reading them in an earlier try.
    taken: u64,
}

impl Watch {
    /// `taken`: bytes that the server is known to take without reading them, 0 where nothing is known.
    pub(crate) fn new(timing: Timing, now: Instant, taken: u64) -> Self {
        Watch {
            timing,
            waiting_since: None,
            acknowledged: 0,
            look_at: now,
            media_at: now,
            stop_by: None,
            told: Told::Nothing,
            stalls: Stalls::default(),
            live: None,
            lived: Duration::ZERO,
            live_from: None,
            media_from: None,
            on_its_way: None,
            newest: None,
            proven: false,
            acks: Acks::default(),
            window: None,
            silent_from: None,
            taken,
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
        self.media_from.get_or_insert(end);
        self.newest = Some((end, now));
        self.on_its_way = self.on_its_way.or(self.newest);
        if self.live.is_none() && self.live_from.is_none() {
            self.live_from = Some((end, now));
            self.look_at = self.look_at.min(now + LOOK_SOON);
        }
    }

    /// Bytes are to be written.
    pub(crate) fn waiting(&mut self, now: Instant) {
        if self.waiting_since.is_none() {
            self.waiting_since = Some(now);
            self.look_at = self.look_at.min(now + self.look(now));
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
        let took = position > self.acknowledged;
        if took {
            self.acknowledged = position;
            self.waiting_since = Some(now);
            let is_out = |(end, _): &(u64, Instant)| *end > position;
            self.on_its_way = self.on_its_way.filter(is_out).or(self.newest.filter(is_out));
        }
        if all {
            self.waiting_since = None;
        }
        self.acks.looked(now, self.acknowledged, &self.timing);
        let (said, is_silent) = (self.acks.take_news(), self.acks.silent_since().is_some());
        if self.stalls.is_on() && is_silent {
            self.silent_from = self.silent_from.or(Some(self.acks.read()));
        }
        let took = if self.silent_from.is_some() { said } else { took };
        self.stalls.looked(now, took, self.keeps_up(now), &self.timing);
        let becomes_live = self.live.is_none()
            && !is_silent
            && self.shows_reading(now)
            && self.stalls.is_over(now, &self.timing);
        if becomes_live {
            self.become_live(now);
        }
        becomes_live
    }

    fn become_live(&mut self, now: Instant) {
        self.stalls.end();
        self.silent_from = None;
        self.told = Told::Nothing;
        self.proven = true;
        self.live = Some(now);
        match &mut self.window {
            Some(window) => window.begin_again(now, self.acknowledged),
            None => {
                let since = self.live_from.map_or(now, |(_, since)| since);
                self.window = Some(Window::new(since, self.media_from.unwrap_or(self.acknowledged)));
            }
        }
        self.live_from = None;
    }

    /// How many bytes apart the server is to be asked to acknowledge, at the output's `end`, where that is to be another number than
    /// `asked`, the last one.
    pub(crate) fn window(&mut self, now: Instant, asked: u32, end: u64) -> Option<u32> {
        let window = self.window.as_mut().filter(|_| self.live.is_some());
        let bytes = window.and_then(|window| window.due(now, self.acknowledged, asked));
        self.acks.asked(bytes.unwrap_or(asked), end);
        bytes
    }

    /// The server has said that it has read up to output position `position`. True when it is time to look what that means.
    pub(crate) fn read(&mut self, now: Instant, position: u64) -> bool {
        self.acks.heard(now, position, self.acknowledged, self.media_from, self.silent_from.is_none());
        self.live.is_none() && self.live_from.is_some()
    }

    /// The server has said what cannot be: from now on what it says of its reading does not make it stall.
    pub(crate) fn distrust(&mut self) {
        self.acks.distrust();
        self.silent_from = None;
    }

    /// Whether what came back shows that the server reads.
    fn shows_reading(&self, now: Instant) -> bool {
        let Some((from, since)) = self.live_from else { return false };
        if self.proven {
            return self.acknowledged >= from && self.silent_from.is_none_or(|then| self.acks.read() > then);
        }
        // Beyond the first media, the earlier position: what was waited for anew since then says no less.
        let media_from = self.media_from.unwrap_or(from);
        // More than was sent says nothing.
        let read = self.acks.read().min(self.acknowledged);
        let is_read = read >= from && read >= media_from + self.taken;
        let is_more = self.acknowledged >= media_from + UNREAD_BYTES_MAX + self.taken;
        let is_thin = self.taken == 0
            && self.keeps_up(now)
            && self.acknowledged >= from
            && now >= since + self.timing.thin;
        is_read || is_more || is_thin
    }

    /// It has stalled, or does not read, because it says nothing more of its reading, while its system takes bytes.
    pub(crate) fn is_only_silent(&self) -> bool {
        self.waiting_since.is_none() && self.acks.silent_since().is_some()
    }

    /// What is on its way is not late, nor what it reads of it, where that is why it stalled.
    fn keeps_up(&self, now: Instant) -> bool {
        let is_read = self.silent_from.is_none() || self.acks.keeps_up(self.acknowledged);
        is_read && self.on_its_way.is_none_or(|(_, queued)| now < queued + self.timing.thin / BEHIND_PART)
    }

    /// How long the destination was live, in all.
    pub(crate) fn lived(&self, now: Instant) -> Duration {
        self.lived + self.live.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Bytes of media that the server's side has taken, without those that the server has said it has read.
    pub(crate) fn media_taken(&self) -> u64 {
        self.media_from.map_or(0, |from| self.acknowledged.saturating_sub(from.max(self.acks.read())))
    }

    fn leave_live(&mut self, now: Instant) {
        self.lived = self.lived(now);
        self.live = None;
    }

    /// The end was asked for; a second call changes nothing.
    pub(crate) fn stop(&mut self, now: Instant) -> Instant {
        *self.stop_by.get_or_insert(now + self.timing.flush)
    }

    /// What is due now.
    pub(crate) fn due(&mut self, now: Instant) -> Due {
        let due = self.due_at(now);
        self.look_at = now + self.look(now);
        due
    }

    fn due_at(&mut self, now: Instant) -> Due {
        if self.stop_by.is_some_and(|by| now >= by) {
            return Due::StopOverdue;
        }
        if self.waiting_since.is_none() && now >= self.media_at + self.timing.media_silent {
            return self.without_media(now);
        }
        let silent_since = self.acks.silent_since();
        // One that seldom acknowledged, or was given up before, may read and only say nothing of it: it is not broken off for that.
        let silent_unread = silent_since.filter(|_| self.taken == 0 && self.acks.is_known_well());
        if is_over(self.waiting_since, self.timing.unread_max, now)
            || is_over(silent_unread, self.timing.unread_max, now)
        {
            return Due::DoesNotRead;
        }
        let is_stalled = is_over(self.waiting_since, self.timing.stalled, now)
            || is_over(silent_since, self.timing.stalled, now);
        if is_stalled && self.stalls.begin() {
            self.told = Told::Stalled;
            self.silent_from = silent_since.map(|_| self.acks.read());
            if self.live.is_some() {
                self.live_from = Some((self.acknowledged + 1, now));
            }
            self.leave_live(now);
            return Due::Stalled;
        }
        if self.told == Told::Stalled && self.stalls.is_slow(now, &self.timing) {
            self.told = Told::Slow;
            return Due::Slow;
        }
        Due::Nothing
    }

    fn without_media(&mut self, now: Instant) -> Due {
        if self.told == Told::NoMedia {
            return Due::Nothing;
        }
        self.told = Told::NoMedia;
        self.stalls.end();
        self.silent_from = None;
        self.leave_live(now);
        self.live_from = None;
        Due::NoMedia
    }

    /// Time until the next look.
    fn look(&self, now: Instant) -> Duration {
        let look = self.timing.stalled / LOOKS;
        let is_soon = self.live_from.is_some_and(|(_, since)| now <= since + self.timing.thin);
        if self.live.is_none() && is_soon && !self.stalls.is_on() { look.min(LOOK_SOON) } else { look }
    }

    /// When to ask at the latest, also where nothing is written meanwhile.
    pub(crate) fn next(&self, now: Instant) -> Instant {
        let silence = match self.waiting_since {
            // One look more, so that a stream that flows looks between its writes.
            Some(since) if since == now && self.live.is_some() => now + self.look(now) * 2,
            Some(_) => now + self.look(now),
            None if self.told != Told::NoMedia => self.media_at + self.timing.media_silent,
            None => now + self.timing.media_silent,
        };
        // Bytes may begin to wait right after this.
        let latest = now + self.look(now) * 2;
        silence.min(latest).min(self.stop_by.unwrap_or(latest))
    }
}

fn is_over(since: Option<Instant>, time: Duration, now: Instant) -> bool {
    since.is_some_and(|since| now >= since + time)
}
