//! The shown state of a destination, checked against the bytes sent, and its bit rate.
//!
//! Pure: times are arguments.

use std::collections::VecDeque;
use std::time::Duration;

use super::notifier::WebhookState;
use super::shown::DestState;
use satcast_core::ids::UnixMillis;

/// A destination is not live when its driver sent no bytes for this long, even if the driver reports live.
pub(super) const STALL_AFTER: Duration = Duration::from_secs(5);
const STALLED_TEXT: &str = "nothing was sent for 5 s";
/// Shown for a live destination that does not keep up, for [`SLOW_SHOWN`] after the last dropped packet.
const SLOW_TEXT: &str = "the destination takes less than the stream sends, so packets were dropped in the last 30 s; lower the bit rate or \
    check the network path to the destination";
const SLOW_SHOWN: Duration = Duration::from_secs(30);
/// Least time between two samples of the bit rate.
const RATE_SAMPLE_MIN: Duration = Duration::from_millis(900);
/// Samples in the bit rate, about a second apart.
const RATE_SAMPLES: usize = 5;
/// State changes of a driver that are published without delay. A normal start has two.
const CHANGE_BURST: u32 = 3;
/// Time after which one more change may be published.
const CHANGE_PAUSE: Duration = Duration::from_secs(1);

/// Last usage report of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reported {
    /// Nothing, or a pause: it is not being opened.
    Nothing,
    /// About to be opened.
    Claims,
    Forwards,
    /// It has left the session. Nothing more is reported.
    Over,
}

/// The shown state and its inputs.
pub(super) struct View {
    pub(super) reported: Reported,
    pub(super) webhook_state: WebhookState,
    pub(super) state: DestState,
    pub(super) error: Option<String>,
    pub(super) attempt: u32,
    pub(super) next_retry_at: Option<UnixMillis>,
    pub(super) live_since: Option<UnixMillis>,
    pub(super) state_since: UnixMillis,
    /// `live_since` on the monotonic clock.
    pub(super) live_from: Option<Duration>,
    /// The server that its driver reported in this attempt.
    pub(super) server: Option<String>,
    /// Its driver reports live but sends no bytes.
    pub(super) is_stalled: bool,
    rate: Rate,
    /// Packets dropped so far, and the time of the last drop while it was live.
    lost: (u64, Option<Duration>),
    /// It was live at the last sample, so it is responsible for later drops.
    is_judged: bool,
    published: Option<Published>,
}

/// The state last published to the event feed.
struct Published {
    /// Time of the publication, and how many more changes could be published at once then.
    at: Duration,
    left: u32,
    state: DestState,
    error: Option<String>,
    attempt: u32,
}

#[derive(Default)]
struct Rate {
    at: Duration,
    bytes: u64,
    /// Earlier samples: time and bytes until then, oldest first.
    earlier: VecDeque<(Duration, u64)>,
    bits_per_sec: u64,
    /// When the bytes last grew.
    grew_at: Duration,
}

impl Rate {
    fn take(&mut self, bytes: u64, now: Duration) {
        if bytes > self.bytes {
            self.grew_at = now;
        }
        if self.earlier.len() == RATE_SAMPLES {
            self.earlier.pop_front();
        }
        self.earlier.push_back((self.at, self.bytes));
        (self.at, self.bytes) = (now, bytes);
        if let Some((since, until_then)) = self.earlier.front() {
            let bits = u128::from(bytes.saturating_sub(*until_then)) * 8_000;
            let millis = now.saturating_sub(*since).as_millis().max(1);
            self.bits_per_sec = u64::try_from(bits / millis).unwrap_or(u64::MAX);
        }
    }
}

impl View {
    /// Before the first attempt, at the monotonic time `now` and the wall clock time `wall`.
    pub(super) fn new(now: Duration, wall: UnixMillis) -> Self {
        Self {
            reported: Reported::Nothing,
            webhook_state: WebhookState::default(),
            state: DestState::Connecting,
            error: None,
            attempt: 1,
            next_retry_at: None,
            live_since: None,
            state_since: wall,
            live_from: None,
            server: None,
            is_stalled: false,
            rate: Rate { at: now, grew_at: now, ..Rate::default() },
            lost: (0, None),
            is_judged: false,
            published: None,
        }
    }

    /// Sets the state; true when it changed.
    pub(super) fn set(
        &mut self,
        state: DestState,
        error: Option<String>,
        now: Duration,
        wall: UnixMillis,
    ) -> bool {
        let changed = self.state != state;
        if changed {
            self.state_since = wall;
        }
        self.state = state;
        self.error = error;
        self.next_retry_at = None;
        self.is_stalled = false;
        if !matches!(state, DestState::Connecting | DestState::Live) {
            self.server = None;
        }
        if state != DestState::Live {
            self.live_since = None;
            self.live_from = None;
            self.is_judged = false;
        } else if changed {
            self.live_since = Some(wall);
            self.live_from = Some(now);
            // The stall timer starts now, not at the last bytes sent, unless those are newer than `now`.
            self.rate.grew_at = self.rate.grew_at.max(now);
        }
        changed
    }

    /// Takes the bytes sent so far; called about once a second. A driver may report live and hang, so the state follows the bytes
    /// sent. The clock showed `now` before they were read and `read_at` after it: with one time for both, a delay between
    /// the two would look like a stall.
    pub(super) fn sample(&mut self, bytes: u64, now: Duration, read_at: Duration, wall: UnixMillis) {
        let elapsed = now.saturating_sub(self.rate.at);
        if elapsed < RATE_SAMPLE_MIN {
            return;
        }
        self.rate.take(bytes, read_at);
        let stalls = now.saturating_sub(self.rate.grew_at) >= STALL_AFTER;
        if self.state == DestState::Live && stalls {
            self.set(DestState::Connecting, Some(STALLED_TEXT.into()), now, wall);
            self.is_stalled = true;
        } else if self.is_stalled && !stalls {
            self.set(DestState::Live, None, now, wall);
            self.attempt = 0;
        }
    }

    /// Takes the packets dropped so far, after [`View::sample`]. A live destination that loses packets shows [`SLOW_TEXT`].
    pub(super) fn sample_lost(&mut self, lost: u64, now: Duration) {
        if !self.is_judged {
            // Drops while it is not live, or stalls, are not caused by a slow destination.
            self.is_judged = self.state == DestState::Live;
            self.lost = (lost, None);
        } else if lost > self.lost.0 {
            self.lost = (lost, Some(now));
        }
        // A lower bit rate does not help a destination that takes nothing.
        let is_slow =
            self.bits_per_sec() > 0 && self.lost.1.is_some_and(|at| now.saturating_sub(at) < SLOW_SHOWN);
        let shows_slow = self.error.as_deref() == Some(SLOW_TEXT);
        match (self.state, is_slow) {
            (DestState::Live, true) if self.error.is_none() => self.error = Some(SLOW_TEXT.into()),
            (_, false) if shows_slow => self.error = None,
            _ => {}
        }
    }

    /// Whether to publish: state, error or attempt changed since the last publication, and the rate limit allows it. A driver may
    /// change its state at any rate, so changes beyond [`CHANGE_BURST`] wait for [`CHANGE_PAUSE`] or the next sample, unless `urgent`.
    pub(super) fn take_change(&mut self, now: Duration, urgent: bool) -> bool {
        let mut left = CHANGE_BURST;
        if let Some(last) = &self.published {
            let earned = now.saturating_sub(last.at).as_millis() / CHANGE_PAUSE.as_millis();
            left = u32::try_from(earned).unwrap_or(CHANGE_BURST).saturating_add(last.left).min(CHANGE_BURST);
            let is_known =
                last.state == self.state && last.error == self.error && last.attempt == self.attempt;
            if is_known || (!urgent && left == 0) {
                return false;
            }
        }
        let (state, error, attempt) = (self.state, self.error.clone(), self.attempt);
        self.published = Some(Published { at: now, left: left.saturating_sub(1), state, error, attempt });
        true
    }

    pub(super) fn bits_per_sec(&self) -> u64 {
        self.rate.bits_per_sec
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> (Duration, UnixMillis) {
        (Duration::from_secs(secs), UnixMillis(secs as i64 * 1_000))
    }

    fn sample(view: &mut View, bytes: u64, secs: u64) -> DestState {
        sample_at(view, bytes, at(secs).0, at(secs).0)
    }

    fn sample_at(view: &mut View, bytes: u64, now: Duration, read_at: Duration) -> DestState {
        view.sample(bytes, now, read_at, UnixMillis(now.as_millis() as i64));
        view.state
    }

    #[test]
    fn the_rate_is_that_of_the_last_five_seconds() {
        let mut view = View::new(Duration::ZERO, UnixMillis(0));
        sample_at(&mut view, 500, Duration::from_millis(899), Duration::from_millis(899));
        assert_eq!(view.bits_per_sec(), 0, "too early");
        sample(&mut view, 1_000, 2);
        assert_eq!(view.bits_per_sec(), 4_000);
        sample(&mut view, 1_000, 4);
        assert_eq!(view.bits_per_sec(), 2_000);
        for secs in 5..9 {
            sample(&mut view, 1_000, secs);
            assert_eq!(view.bits_per_sec() > 0, secs < 8, "{secs}: bytes at 2 s count until 7 s");
        }
        sample(&mut view, u64::MAX, 9);
        assert!(view.bits_per_sec() > 1_000_000_000, "no overflow");
    }

    #[test]
    fn unchanged_states_are_not_published_and_flips_are_rate_limited() {
        let mut view = View::new(Duration::ZERO, UnixMillis(0));
        let secs = Duration::from_secs;
        assert!(view.take_change(secs(0), false), "connecting");
        assert!(!view.take_change(secs(0), true), "unchanged");
        view.set(DestState::Live, None, secs(0), UnixMillis(0));
        assert!(view.take_change(secs(0), false), "a start is published at once");
        let mut published = 2;
        for flip in 1..=40 {
            let state = if flip % 2 == 0 { DestState::Live } else { DestState::Connecting };
            view.set(state, None, CHANGE_PAUSE * flip / 10, UnixMillis(0));
            published += u32::from(view.take_change(CHANGE_PAUSE * flip / 10, false));
        }
        assert_eq!(published, CHANGE_BURST + 3, "three pauses are over");
        view.error = Some("other text".into());
        assert!(!view.take_change(CHANGE_PAUSE * 4, false), "too early");
        assert!(view.take_change(CHANGE_PAUSE * 4, true), "with the next sample");
        view.attempt += 1;
        assert!(!view.take_change(CHANGE_PAUSE * 4, false) && view.take_change(CHANGE_PAUSE * 5, false));
    }

    #[test]
    fn a_live_destination_that_loses_packets_shows_it_for_30_s() {
        let mut view = View::new(Duration::ZERO, UnixMillis(0));
        let secs = Duration::from_secs;
        view.rate.bits_per_sec = 1;
        view.sample_lost(3, secs(1));
        assert_eq!(view.error, None, "not live");
        view.set(DestState::Live, None, secs(40), UnixMillis(0));
        view.sample_lost(3, secs(41));
        assert_eq!(view.error, None, "lost before it was live");
        view.sample_lost(4, secs(42));
        assert_eq!((view.state, view.error.as_deref()), (DestState::Live, Some(SLOW_TEXT)));
        view.sample_lost(4, secs(71));
        assert_eq!(view.error.as_deref(), Some(SLOW_TEXT));
        view.sample_lost(4, secs(72));
        assert_eq!(view.error, None);
        view.set(DestState::Retrying, Some("why".into()), secs(73), UnixMillis(0));
        view.sample_lost(9, secs(74));
        assert_eq!(view.error.as_deref(), Some("why"));
    }

    #[test]
    fn packets_dropped_while_not_live_do_not_count_as_slow() {
        let mut view = View::new(Duration::ZERO, UnixMillis(0));
        let secs = Duration::from_secs;
        view.rate.bits_per_sec = 1;
        view.set(DestState::Live, None, secs(1), UnixMillis(0));
        view.sample_lost(80, secs(2));
        view.sample_lost(90, secs(3));
        assert_eq!(view.error.as_deref(), Some(SLOW_TEXT));
        for (state, error) in [(DestState::Retrying, Some("why")), (DestState::Connecting, None)] {
            view.set(state, error.map(Into::into), secs(4), UnixMillis(0));
            view.sample_lost(500, secs(5));
        }
        view.set(DestState::Live, None, secs(6), UnixMillis(0));
        // More drops until it was live.
        view.sample_lost(585, secs(7));
        view.sample_lost(585, secs(8));
        assert_eq!((view.state, view.error.as_deref()), (DestState::Live, None));
        view.sample_lost(586, secs(9));
        assert_eq!(view.error.as_deref(), Some(SLOW_TEXT));
        // It takes nothing at all: a stall, not a slow destination.
        view.rate.bits_per_sec = 0;
        view.sample_lost(587, secs(10));
        assert_eq!((view.state, view.error.as_deref()), (DestState::Live, None));
    }

    #[test]
    fn a_live_state_needs_bytes_and_returns_with_them() {
        let mut view = View::new(Duration::ZERO, at(99).1);
        let (now, wall) = at(100);
        view.set(DestState::Connecting, None, now, wall);
        assert_eq!(view.state_since, at(99).1);
        assert!(view.set(DestState::Live, None, now, wall));
        assert!(!view.set(DestState::Live, None, at(101).0, at(101).1));
        assert_eq!(view.state_since, wall);
        assert_eq!(sample(&mut view, 0, 104), DestState::Live, "five seconds count from the live state");
        assert_eq!(sample(&mut view, 0, 105), DestState::Connecting);
        assert_eq!((view.error.as_deref(), view.live_since), (Some(STALLED_TEXT), None));
        assert_eq!(sample(&mut view, 0, 106), DestState::Connecting);
        assert_eq!(sample(&mut view, 1, 107), DestState::Live);
        assert_eq!((view.live_since, view.attempt), (Some(UnixMillis(107_000)), 0));
        // The machine stops between the clock and the counter, and every second had its bytes: while it is live, and when it returns.
        assert_eq!(sample_at(&mut view, 2, at(108).0, at(113).0), DestState::Live);
        assert_eq!(sample(&mut view, 2, 117), DestState::Live);
        assert_eq!(sample(&mut view, 2, 118), DestState::Connecting);
        assert_eq!(sample_at(&mut view, 3, at(119).0, at(124).0), DestState::Live);
        assert_eq!(sample(&mut view, 3, 128), DestState::Live);
        assert_eq!(sample(&mut view, 3, 129), DestState::Connecting);
    }
}
