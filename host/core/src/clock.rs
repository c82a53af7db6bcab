//! The only caller of the operating system's clocks for decisions; everything else takes time as an argument.
//!
//! Two times, never mixed: [`Clock::now`] is the wall clock, which may jump, for records and display;
//! [`Clock::monotonic`] never goes back and is for intervals, deadlines and rate windows.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::ids::UnixMillis;

/// A source of time, cheap to clone: the system's clocks, or a manual clock of a test. The wall clock of a node is that of the
/// database ([`Clock::follow`]).
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System(Arc<System>),
    Manual(Arc<Manual>),
}

#[derive(Debug)]
struct System {
    start: Instant,
    /// The followed wall clock at `start` in Unix milliseconds; [`ALONE`] if none is followed.
    followed_ms: AtomicI64,
}

const ALONE: i64 = i64::MIN;

#[derive(Debug)]
struct Manual {
    time: Mutex<ManualTime>,
    /// Notified when the time moves.
    moved: watch::Sender<()>,
}

#[derive(Debug)]
struct ManualTime {
    wall: UnixMillis,
    elapsed: Duration,
}

impl Clock {
    /// The system's clocks; the monotonic time starts at zero here.
    pub fn system() -> Self {
        let (start, followed_ms) = (Instant::now(), AtomicI64::new(ALONE));
        Self(Source::System(Arc::new(System { start, followed_ms })))
    }

    /// A clock that stays at `wall` until [`Clock::advance`] moves it.
    pub fn manual(wall: UnixMillis) -> Self {
        let time = Mutex::new(ManualTime { wall, elapsed: Duration::ZERO });
        Self(Source::Manual(Arc::new(Manual { time, moved: watch::Sender::new(()) })))
    }

    /// The wall clock in Unix milliseconds; zero when the system's clock is before 1970.
    pub fn now(&self) -> UnixMillis {
        match &self.0 {
            Source::System(system) => match system.followed_ms.load(Ordering::Relaxed) {
                ALONE => UnixMillis(millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())),
                start => UnixMillis(start.saturating_add(millis(system.start.elapsed()))),
            },
            Source::Manual(manual) => manual.time.lock().wall,
        }
    }

    /// Follows another wall clock, which showed `wall` within the last `within`: from now on the wall clock is that time and the
    /// monotonic time since, whatever happens to the system's. It moves no more than it must. Does nothing to a manual clock.
    pub fn follow(&self, wall: UnixMillis, within: Duration) {
        if let Source::System(system) = &self.0 {
            let latest = wall.0.saturating_add(millis(within));
            let now = self.now().0.clamp(wall.0, latest);
            system.followed_ms.store(now.saturating_sub(millis(system.start.elapsed())), Ordering::Relaxed);
        }
    }

    /// As [`Clock::now`] in Unix nanoseconds, for traces: a request may take less than a millisecond.
    pub fn now_nanos(&self) -> u64 {
        let since_epoch = match &self.0 {
            Source::System(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            Source::Manual(manual) => {
                Duration::from_millis(manual.time.lock().wall.0.try_into().unwrap_or(0))
            }
        };
        u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Time since this clock was made; never goes back.
    pub fn monotonic(&self) -> Duration {
        match &self.0 {
            Source::System(system) => system.start.elapsed(),
            Source::Manual(manual) => manual.time.lock().elapsed,
        }
    }

    /// Moves a manual clock and all its clones forward; does nothing to the system's clock.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(manual) = &self.0 {
            let mut time = manual.time.lock();
            time.wall.0 = time.wall.0.saturating_add(millis(by));
            time.elapsed = time.elapsed.saturating_add(by);
            drop(time);
            manual.moved.send_replace(());
        }
    }

    /// Moves a manual wall clock forward or back without any monotonic time passing, like a correction of the system's clock.
    pub fn set_forward(&self, by_ms: i64) {
        if let Source::Manual(manual) = &self.0 {
            let mut time = manual.time.lock();
            time.wall.0 = time.wall.0.saturating_add(by_ms);
        }
    }

    /// Waits until the monotonic time is `at` or later. With a manual clock it waits until a test moves the clock.
    pub async fn sleep_until(&self, at: Duration) {
        match &self.0 {
            Source::System(system) => match system.start.checked_add(at) {
                Some(end) => tokio::time::sleep_until(end.into()).await,
                None => std::future::pending().await,
            },
            Source::Manual(manual) => {
                let mut moved = manual.moved.subscribe();
                // The sender is stored with the time and lives as long as this clock.
                let _ = moved.wait_for(|()| manual.time.lock().elapsed >= at).await;
            }
        }
    }

    /// As [`Clock::sleep_until`].
    pub async fn sleep(&self, time: Duration) {
        self.sleep_until(self.monotonic().saturating_add(time)).await;
    }

    /// The result of `work`; `None` when it takes longer than `limit`.
    pub async fn timeout<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        self.timeout_at(self.monotonic().saturating_add(limit), work).await
    }

    /// The result of `work`; `None` when it is not complete at the monotonic time `end`.
    pub async fn timeout_at<T>(&self, end: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            outcome = work => Some(outcome),
            () = self.sleep_until(end) => None,
        }
    }

    /// The result of `work`, while a manual clock is repeatedly advanced by `step`.
    pub async fn passing<T>(&self, step: Duration, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                outcome = &mut work => return outcome,
                () = tokio::time::sleep(Duration::from_millis(2)) => self.advance(step),
            }
        }
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_clock_moves_only_when_advanced_and_clones_share_it() {
        let clock = Clock::manual(UnixMillis(1_000));
        let twin = clock.clone();
        assert_eq!((clock.now(), clock.monotonic()), (UnixMillis(1_000), Duration::ZERO));
        twin.advance(Duration::from_millis(2_500));
        assert_eq!((clock.now(), clock.monotonic()), (UnixMillis(3_500), Duration::from_millis(2_500)));
    }

    #[tokio::test]
    async fn a_sleeper_wakes_at_its_deadline() {
        let clock = Clock::manual(UnixMillis(0));
        let (sleeper, woken) = (clock.clone(), Arc::new(Mutex::new(None)));
        let seen = woken.clone();
        let sleeping = tokio::spawn(async move {
            sleeper.sleep_until(Duration::from_secs(60)).await;
            *seen.lock() = Some(sleeper.monotonic());
        });
        for _ in 0..60 {
            tokio::task::yield_now().await;
            assert_eq!(*woken.lock(), None);
            clock.advance(Duration::from_secs(1));
        }
        sleeping.await.unwrap();
        assert_eq!(*woken.lock(), Some(Duration::from_secs(60)));
        clock.sleep_until(Duration::from_secs(59)).await;
        Clock::system().sleep_until(Duration::ZERO).await;
    }

    #[tokio::test]
    async fn a_timeout_ends_only_work_that_takes_longer() {
        let (clock, second) = (Clock::manual(UnixMillis(0)), Duration::from_secs(1));
        assert_eq!(clock.timeout(Duration::ZERO, async { 7 }).await, Some(7), "completed work needs no time");
        let limited = clock.timeout(second * 60, std::future::pending::<()>());
        assert_eq!(clock.passing(second, limited).await, None);
        assert!(clock.monotonic() >= second * 60);
        assert_eq!(Clock::system().timeout(Duration::ZERO, std::future::pending::<()>()).await, None);
    }

    #[test]
    fn a_followed_clock_counts_for_the_wall_clock_alone_and_moves_it_no_more_than_it_must() {
        let (clock, hour, second) = (Clock::system(), Duration::from_secs(3_600), Duration::from_secs(1));
        let twin = clock.clone();
        for wall in [clock.now().0 + 3_600_000, clock.now().0 - 3_600_000] {
            clock.follow(UnixMillis(wall), Duration::ZERO);
            assert!((wall..wall + 60_000).contains(&twin.now().0), "{} after {wall}", twin.now().0);
        }
        let before = clock.now().0;
        clock.follow(UnixMillis(before - 1_000), second + hour);
        assert!((before..before + 60_000).contains(&clock.now().0), "the time was right already");
        clock.follow(UnixMillis(before - 3_600_000), second);
        assert!((before - 3_599_000..before).contains(&clock.now().0), "the latest time that it can be");
        assert!(clock.monotonic() < hour);
        let manual = Clock::manual(UnixMillis(7));
        manual.follow(UnixMillis(0), Duration::ZERO);
        assert_eq!(manual.now(), UnixMillis(7));
    }

    #[test]
    fn system_clock_runs_in_this_century() {
        let clock = Clock::system();
        assert!(clock.now() > UnixMillis(1_700_000_000_000));
        let before = clock.monotonic();
        clock.advance(Duration::from_secs(60));
        assert!(clock.monotonic() < before + Duration::from_secs(30));
    }
}
