//! What is shown of a destination: its state as far as facts support it, and its bit rate.
//!
//! Pure: times are arguments.

use std::collections::VecDeque;
use std::time::Duration;

use super::shown::DestState;
use super::teller::Known;
use satcast_core::ids::UnixMillis;

/// A destination that was sent no bytes for this long is not live, whatever its driver says.
pub(super) const QUIET_MAX: Duration = Duration::from_secs(5);
const QUIET_TEXT: &str = "nothing was sent for 5 s";
/// What is shown of a live destination that does not keep up, and for how long after the last packet was left out.
const SLOW_TEXT: &str = "it takes less than the stream sends, so packets were left out in the last 30 s; send at a lower bit rate, or look \
    at the way to it";
const SLOW_SHOWN: Duration = Duration::from_secs(30);
/// Least time between two samples of the bit rate.
const RATE_SAMPLE_MIN: Duration = Duration::from_millis(900);
/// The bit rate is that of so many samples, about a second apart.
const RATE_SAMPLES: usize = 5;
/// Changes that are told at once, of those that a driver may make at will: a healthy start is two.
const NEWS_BURST: u32 = 3;
/// Time after which one more is.
const NEWS_PAUSE: Duration = Duration::from_secs(1);

/// What those who meter the session were told of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing that holds: it is not being opened.
    Nothing,
    /// It is about to be opened.
    Claims,
    /// It forwards.
    Forwards,
    /// It takes no further part, and nothing more is told.
    Over,
}

/// The shown state and what it is derived from.
pub(super) struct View {
    pub(super) told: Told,
    pub(super) known: Known,
    pub(super) state: DestState,
    pub(super) error: Option<String>,
    pub(super) attempt: u32,
    pub(super) next_retry_at: Option<UnixMillis>,
    pub(super) live_since: Option<UnixMillis>,
    /// `None` until a state is set.
    pub(super) state_since: UnixMillis,
    /// The same moment on the monotonic clock.
    pub(super) live_from: Option<Duration>,
    /// The server it goes to, as its driver said in this try.
    pub(super) server: Option<String>,
    /// Its driver says live, but no bytes leave.
    pub(super) is_quieted: bool,
    rate: Rate,
    /// Packets left out so far, and when the last ones were while it was live.
    lost: (u64, Option<Duration>),
    /// It was live at the last sample: what is left out from then on is its fault.
    is_judged: bool,
    news: Option<News>,
}

/// What those who watch were told last.
struct News {
    /// When it was told, and how many more may be told at once then.
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
    /// When the samples before were taken, and the bytes until then, oldest first.
    before: VecDeque<(Duration, u64)>,
    bits_per_sec: u64,
    /// When the bytes grew last.
    grew_at: Duration,
}

impl Rate {
    fn take(&mut self, bytes: u64, now: Duration) {
        if bytes > self.bytes {
            self.grew_at = now;
        }
        if self.before.len() == RATE_SAMPLES {
            self.before.pop_front();
        }
        self.before.push_back((self.at, self.bytes));
        (self.at, self.bytes) = (now, bytes);
        if let Some((since, until_then)) = self.before.front() {
            let bits = u128::from(bytes.saturating_sub(*until_then)) * 8_000;
            let millis = now.saturating_sub(*since).as_millis().max(1);
            self.bits_per_sec = u64::try_from(bits / millis).unwrap_or(u64::MAX);
        }
    }
}

impl View {
    /// A destination whose first try begins at `now`, which is `wall` for people.
    pub(super) fn new(now: Duration, wall: UnixMillis) -> Self {
        Self {
            told: Told::Nothing,
            known: Known::default(),
            state: DestState::Connecting,
            error: None,
            attempt: 1,
            next_retry_at: None,
            live_since: None,
            state_since: wall,
            live_from: None,
            server: None,
            is_quieted: false,
            rate: Rate { at: now, grew_at: now, ..Rate::default() },
            lost: (0, None),
            is_judged: false,
            news: None,
        }
    }

    /// Changes the state; true when it was another one.
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
        self.is_quieted = false;
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
            // Being live counts from now, whenever bytes left last.
            self.rate.grew_at = now;
        }
        changed
    }

    /// Takes the bytes sent so far; called about once a second. A driver may say live and hang: what counts is that bytes
    /// leave.
    pub(super) fn sample(&mut self, bytes: u64, now: Duration, wall: UnixMillis) {
        let passed = now.saturating_sub(self.rate.at);
        if passed < RATE_SAMPLE_MIN {
            return;
        }
        self.rate.take(bytes, now);
        let is_quiet = now.saturating_sub(self.rate.grew_at) >= QUIET_MAX;
        if self.state == DestState::Live && is_quiet {
            self.set(DestState::Connecting, Some(QUIET_TEXT.into()), now, wall);
            self.is_quieted = true;
        } else if self.is_quieted && !is_quiet {
            self.set(DestState::Live, None, now, wall);
            self.attempt = 0;
        }
    }

    /// Takes the packets left out so far, after [`View::sample`]: a destination that loses them is live, and not well.
    pub(super) fn sample_lost(&mut self, lost: u64, now: Duration) {
        if !self.is_judged {
            // While nobody takes the stream, or hangs, more than it can help is left out.
            self.is_judged = self.state == DestState::Live;
            self.lost = (lost, None);
        } else if lost > self.lost.0 {
            self.lost = (lost, Some(now));
        }
        // One that takes nothing at all is not helped by a lower bit rate.
        let is_slow =
            self.bits_per_sec() > 0 && self.lost.1.is_some_and(|at| now.saturating_sub(at) < SLOW_SHOWN);
        let says_so = self.error.as_deref() == Some(SLOW_TEXT);
        match (self.state, is_slow) {
            (DestState::Live, true) if self.error.is_none() => self.error = Some(SLOW_TEXT.into()),
            (_, false) if says_so => self.error = None,
            _ => {}
        }
    }

    /// Whether state, error or attempt are others than those that were told last, and it is time to tell. A driver may change
    /// them as fast as it likes: unless they are `urgent`, news beyond [`NEWS_BURST`] wait for [`NEWS_PAUSE`], or for the next sample.
    pub(super) fn take_news(&mut self, now: Duration, urgent: bool) -> bool {
        let mut left = NEWS_BURST;
        if let Some(told) = &self.news {
            let earned = now.saturating_sub(told.at).as_millis() / NEWS_PAUSE.as_millis();
            left = u32::try_from(earned).unwrap_or(NEWS_BURST).saturating_add(told.left).min(NEWS_BURST);
            let is_known =
                told.state == self.state && told.error == self.error && told.attempt == self.attempt;
            if is_known || (!urgent && left == 0) {
                return false;
            }
        }
        let (state, error, attempt) = (self.state, self.error.clone(), self.attempt);
        self.news = Some(News { at: now, left: left.saturating_sub(1), state, error, attempt });
        true
    }

    /// Bits per second of the last samples.
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
        let (now, wall) = at(secs);
        view.sample(bytes, now, wall);
        view.state
    }

    #[test]
    fn the_rate_is_that_of_the_last_five_seconds() {
        let mut view = View::new(Duration::ZERO, UnixMillis(0));
        view.sample(500, Duration::from_millis(899), UnixMillis(0));
        assert_eq!(view.bits_per_sec(), 0, "too early");
        sample(&mut view, 1_000, 2);
        assert_eq!(view.bits_per_sec(), 4_000);
        sample(&mut view, 1_000, 4);
        assert_eq!(view.bits_per_sec(), 2_000);
        for secs in 5..9 {
            sample(&mut view, 1_000, secs);
            assert_eq!(
                view.bits_per_sec() > 0,
                secs < 8,
                "{secs}: what came at 2 s is in the rate until 7 s"
            );
        }
        sample(&mut view, u64::MAX, 9);
        assert!(view.bits_per_sec() > 1_000_000_000, "no overflow");
    }

    #[test]
    fn what_is_known_is_not_told_and_what_flips_is_told_with_pauses() {
        let mut view = View::new(Duration::ZERO, UnixMillis(0));
        let secs = Duration::from_secs;
        assert!(view.take_news(secs(0), false), "connecting");
        assert!(!view.take_news(secs(0), true), "known");
        view.set(DestState::Live, None, secs(0), UnixMillis(0));
        assert!(view.take_news(secs(0), false), "a start is told as it happens");
        let mut told = 2;
        for flip in 1..=40 {
            let state = if flip % 2 == 0 { DestState::Live } else { DestState::Connecting };
            view.set(state, None, NEWS_PAUSE * flip / 10, UnixMillis(0));
            told += u32::from(view.take_news(NEWS_PAUSE * flip / 10, false));
        }
        assert_eq!(told, NEWS_BURST + 3, "three pauses are over");
        view.error = Some("other words".into());
        assert!(!view.take_news(NEWS_PAUSE * 4, false), "too early");
        assert!(view.take_news(NEWS_PAUSE * 4, true), "with the next sample");
        view.attempt += 1;
        assert!(!view.take_news(NEWS_PAUSE * 4, false) && view.take_news(NEWS_PAUSE * 5, false));
    }

    #[test]
    fn who_loses_packets_is_live_and_says_so_for_half_a_minute() {
        let mut view = View::new(Duration::ZERO, UnixMillis(0));
        let secs = Duration::from_secs;
        view.rate.bits_per_sec = 1;
        view.sample_lost(3, secs(1));
        assert_eq!(view.error, None, "not live, and has its own reasons");
        view.set(DestState::Live, None, secs(40), UnixMillis(0));
        view.sample_lost(3, secs(41));
        assert_eq!(view.error, None, "before it");
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
    fn a_server_is_not_blamed_for_what_was_left_out_while_it_was_not_live() {
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
        // Some more until it was live.
        view.sample_lost(585, secs(7));
        view.sample_lost(585, secs(8));
        assert_eq!((view.state, view.error.as_deref()), (DestState::Live, None));
        view.sample_lost(586, secs(9));
        assert_eq!(view.error.as_deref(), Some(SLOW_TEXT));
        // It takes nothing at all: that is another matter.
        view.rate.bits_per_sec = 0;
        view.sample_lost(587, secs(10));
        assert_eq!((view.state, view.error.as_deref()), (DestState::Live, None));
    }

    #[test]
    fn live_needs_bytes_and_comes_back_with_them() {
        let mut view = View::new(Duration::ZERO, at(99).1);
        let (now, wall) = at(100);
        view.set(DestState::Connecting, None, now, wall);
        assert_eq!(view.state_since, at(99).1);
        assert!(view.set(DestState::Live, None, now, wall));
        assert!(!view.set(DestState::Live, None, at(101).0, at(101).1));
        assert_eq!(view.state_since, wall);
        assert_eq!(sample(&mut view, 0, 104), DestState::Live, "five seconds count from being live");
        assert_eq!(sample(&mut view, 0, 105), DestState::Connecting);
        assert_eq!((view.error.as_deref(), view.live_since), (Some(QUIET_TEXT), None));
        assert_eq!(sample(&mut view, 0, 106), DestState::Connecting);
        assert_eq!(sample(&mut view, 1, 107), DestState::Live);
        assert_eq!((view.live_since, view.attempt), (Some(UnixMillis(107_000)), 0));
    }
}
