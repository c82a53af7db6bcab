//! Decides when a live destination has lost so much of the stream for so long that it is reopened. A new connection may get a better
//! network path or another server.

use std::time::Duration;

/// Losses are judged over windows of this length: more than twice what a queue holds before it drops packets.
pub(crate) const WINDOW: Duration = Duration::from_secs(30);
/// One packet of this many may be lost.
const LOST_ONE_OF: u64 = 5;

/// Counts the packets offered and lost while a destination is live.
#[derive(Debug, Default)]
pub(super) struct LossMonitor {
    /// How long it may lose more than the limit; `None` for ever.
    patience: Option<Duration>,
    window: Option<Window>,
    /// Start of the current series of bad windows.
    bad_since: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    began: Duration,
    offered: u64,
    lost: u64,
}

impl LossMonitor {
    /// For a new attempt; the destination may lose more than the limit for `patience`.
    pub(super) fn new(patience: Option<Duration>) -> Self {
        Self { patience, ..Self::default() }
    }

    /// Takes the packets offered and lost so far. True when the destination must be reopened.
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

    /// Samples a second apart, each with the packets offered and lost in it. Returns the second of the reopening.
    fn reopened_at(monitor: &mut LossMonitor, seconds: impl IntoIterator<Item = (u64, u64)>) -> Option<u64> {
        let (mut offered, mut lost) = (0, 0);
        (0..).zip(seconds).find_map(|(second, (more, less))| {
            offered += more;
            lost += less;
            monitor.sample(true, offered, lost, Duration::from_secs(second)).then_some(second)
        })
    }

    const PATIENCE: Option<Duration> = Some(Duration::from_secs(120));

    #[test]
    fn losing_more_than_a_fifth_for_the_whole_patience_reopens() {
        assert_eq!(reopened_at(&mut LossMonitor::new(PATIENCE), [(100, 21); 500]), Some(120));
        assert_eq!(
            reopened_at(&mut LossMonitor::new(PATIENCE), [(100, 20); 500]),
            None,
            "a fifth may be lost"
        );
        let bursts = (0..500).map(|second| (100, if second % 10 == 9 { 300 } else { 0 }));
        assert_eq!(
            reopened_at(&mut LossMonitor::new(PATIENCE), bursts),
            Some(120),
            "losses come in bursts up to keyframes"
        );
        assert_eq!(
            reopened_at(&mut LossMonitor::new(Some(Duration::from_secs(31))), [(100, 99); 500]),
            Some(60)
        );
        assert_eq!(reopened_at(&mut LossMonitor::new(None), [(100, 100); 5_000]), None, "disabled");
    }

    #[test]
    fn a_good_window_or_a_break_restarts_the_count() {
        let mut monitor = LossMonitor::new(PATIENCE);
        let bad = |seconds| std::iter::repeat_n((100, 90), seconds);
        let recovers = bad(90).chain([(100, 0); 60]).chain(bad(90)).chain([(100, 0); 60]);
        assert_eq!(reopened_at(&mut monitor, recovers), None);
        assert_eq!(reopened_at(&mut LossMonitor::new(PATIENCE), [(0, 0); 500]), None, "no packets");

        let mut monitor = LossMonitor::new(PATIENCE);
        for second in 0..1_000 {
            let is_live = second % 100 != 99;
            assert!(
                !monitor.sample(is_live, second * 100, second * 90, Duration::from_secs(second)),
                "{second}"
            );
        }
    }
}
