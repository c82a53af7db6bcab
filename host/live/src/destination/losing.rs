//! When a live destination has lost so much of the stream for so long that it is opened anew: another connection may find a better
//! way, or another server.

use std::time::Duration;

/// What was lost is judged over this long at a time: more than twice what a queue holds before it leaves packets out.
pub(crate) const WINDOW: Duration = Duration::from_secs(30);
/// One packet of so many may be lost.
const LOST_ONE_OF: u64 = 5;

/// What a destination is offered and loses, while it is live.
#[derive(Debug, Default)]
pub(super) struct Losing {
    /// How long it may lose more than it may; `None` for ever.
    patience: Option<Duration>,
    window: Option<Window>,
    /// Since when every window was bad.
    bad_since: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    began: Duration,
    offered: u64,
    lost: u64,
}

impl Losing {
    /// For a new try of a destination that may lose more than it may for `patience`.
    pub(super) fn new(patience: Option<Duration>) -> Self {
        Self { patience, ..Self::default() }
    }

    /// Takes the packets offered and lost so far, of a destination that `is_live` or not; true when it is to be opened anew.
    pub(super) fn sample(&mut self, is_live: bool, offered: u64, lost: u64, now: Duration) -> bool {
        let Some(patience) = self.patience.filter(|_| is_live) else {
            (self.window, self.bad_since) = (None, None);
            return false;
        };
        let window = *self.window.get_or_insert(Window { began: now, offered, lost });
        if now.saturating_sub(window.began) < WINDOW {
            return false;
        }
        self.window = Some(Window { began: now, offered, lost });
        let lost = lost.saturating_sub(window.lost);
        if lost.saturating_mul(LOST_ONE_OF) <= offered.saturating_sub(window.offered) {
            self.bad_since = None;
            return false;
        }
        let since = *self.bad_since.get_or_insert(window.began);
        now.saturating_sub(since) >= patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples a second apart, each with the packets offered and lost in it; the second at which it was given up.
    fn given_up(losing: &mut Losing, seconds: impl IntoIterator<Item = (u64, u64)>) -> Option<u64> {
        let (mut offered, mut lost) = (0, 0);
        (0..).zip(seconds).find_map(|(second, (more, less))| {
            offered += more;
            lost += less;
            losing.sample(true, offered, lost, Duration::from_secs(second)).then_some(second)
        })
    }

    const PATIENCE: Option<Duration> = Some(Duration::from_secs(120));

    #[test]
    fn more_than_a_fifth_lost_for_all_of_its_patience_is_enough() {
        assert_eq!(given_up(&mut Losing::new(PATIENCE), [(100, 21); 500]), Some(120));
        assert_eq!(given_up(&mut Losing::new(PATIENCE), [(100, 20); 500]), None, "a fifth may be lost");
        let bursts = (0..500).map(|second| (100, if second % 10 == 9 { 300 } else { 0 }));
        assert_eq!(given_up(&mut Losing::new(PATIENCE), bursts), Some(120), "it loses up to keyframes");
        assert_eq!(given_up(&mut Losing::new(Some(Duration::from_secs(31))), [(100, 99); 500]), Some(60));
        assert_eq!(given_up(&mut Losing::new(None), [(100, 100); 5_000]), None, "switched off");
    }

    #[test]
    fn a_good_window_or_a_break_begins_anew() {
        let mut losing = Losing::new(PATIENCE);
        let bad = |seconds| std::iter::repeat_n((100, 90), seconds);
        let recovers = bad(90).chain([(100, 0); 60]).chain(bad(90)).chain([(100, 0); 60]);
        assert_eq!(given_up(&mut losing, recovers), None);
        assert_eq!(given_up(&mut Losing::new(PATIENCE), [(0, 0); 500]), None, "nothing comes");

        let mut losing = Losing::new(PATIENCE);
        for second in 0..1_000 {
            let is_live = second % 100 != 99;
            assert!(
                !losing.sample(is_live, second * 100, second * 90, Duration::from_secs(second)),
                "{second}"
            );
        }
    }
}
