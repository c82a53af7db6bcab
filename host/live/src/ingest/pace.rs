//! Times of the reads of publishing connections. Pure arithmetic on the time since the service started.

use std::time::Duration;

/// Phases of one wait in which connections may be read, if there are many. Connections in one phase share the wake-ups of their thread
/// and of the drivers. Several phases keep the bursts towards the destinations small.
pub(super) const PHASES: u32 = 4;

/// Connections of a thread for each phase.
pub(super) const CONNECTIONS_A_PHASE: usize = 16;

/// The grid of read times.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    step: Duration,
}

impl Pace {
    /// Reads about `wait` apart; `None` for a wait of zero, which reads bytes as they arrive.
    pub(super) fn new(wait: Duration) -> Option<Self> {
        (!wait.is_zero()).then(|| Self { step: (wait / PHASES).max(Duration::from_nanos(1)) })
    }

    /// The usual time between two reads.
    pub(super) fn wait(self) -> Duration {
        self.step * PHASES
    }

    /// The next read after `now` on a thread with this many `connections`: after the wait, rounded down to the grid.
    pub(super) fn next(self, now: Duration, connections: usize) -> Duration {
        let phases = phases(connections);
        let step = self.step * (PHASES / phases);
        let steps = now.as_nanos() / step.as_nanos() + u128::from(phases);
        let nanos = steps.saturating_mul(step.as_nanos());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Phases for this many connections. Each grid includes the times of the coarser ones.
fn phases(connections: usize) -> u32 {
    match connections.div_ceil(CONNECTIONS_A_PHASE) {
        0 | 1 => 1,
        2 => 2,
        _ => PHASES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Enough connections for all phases.
    const MANY: usize = 2 * CONNECTIONS_A_PHASE + 1;

    #[test]
    fn reads_fall_on_the_grid_and_keep_their_distance() {
        let pace = Pace::new(ms(100)).unwrap();
        for (now, next) in [(0, 100), (1, 100), (24, 100), (25, 125), (99, 175), (100, 200), (101, 200)] {
            assert_eq!(pace.next(ms(now), MANY), ms(next), "{now}");
        }
        for now in 0..1_000 {
            let wait = pace.next(ms(now), MANY) - ms(now);
            assert!(wait > ms(75) && wait <= ms(100), "{now}: {wait:?}");
        }
    }

    #[test]
    fn few_connections_share_a_phase() {
        let pace = Pace::new(ms(100)).unwrap();
        for (connections, next) in [
            (0, 200),
            (1, 200),
            (CONNECTIONS_A_PHASE, 200),
            (CONNECTIONS_A_PHASE + 1, 250),
            (2 * CONNECTIONS_A_PHASE, 250),
            (MANY, 275),
            (usize::MAX, 275),
        ] {
            assert_eq!(pace.next(ms(180), connections), ms(next), "{connections}");
        }
    }

    #[test]
    fn a_read_in_time_keeps_its_phase() {
        let pace = Pace::new(ms(100)).unwrap();
        for connections in [1, CONNECTIONS_A_PHASE + 1, MANY] {
            let mut due = pace.next(ms(33), connections);
            for _ in 0..10 {
                let next = pace.next(due + ms(3), connections);
                assert_eq!(next - due, ms(100));
                due = next;
            }
        }
    }

    #[test]
    fn no_wait_means_no_grid_and_tiny_waits_work() {
        assert!(Pace::new(Duration::ZERO).is_none());
        let pace = Pace::new(Duration::from_nanos(1)).unwrap();
        assert!(pace.next(ms(5), MANY) > ms(5));
    }
}
