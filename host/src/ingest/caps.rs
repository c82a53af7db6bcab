//! What strangers may use up: connections, attempts with wrong keys, lines in the log. Pure counters, time is an
//! argument.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Networks remembered for wrong keys; beyond it the one whose window began first is forgotten.
pub(super) const FAILED_NETWORKS_MAX: usize = 10_000;
/// Length of the window in which wrong keys and log lines are counted.
pub(super) const WINDOW_MS: u64 = 60_000;

const WINDOW: Duration = Duration::from_millis(WINDOW_MS);

/// What counts as one stranger: an IPv4 address, or the /64 that a single IPv6 subscriber is given at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Network(IpAddr);

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
            address @ IpAddr::V4(_) => Self(address),
        }
    }
}

/// Why a connection was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// The service holds as many connections as it may.
    Service,
    /// This network does.
    Network,
}

/// The connections there may be, in all and per network.
#[derive(Debug)]
pub(super) struct Places {
    taken: Mutex<Taken>,
    total_max: usize,
    per_network_max: usize,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    by_network: HashMap<Network, usize>,
}

/// One connection's place, given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    network: Network,
}

impl Places {
    pub(super) fn new(total_max: usize, per_network_max: usize) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), total_max, per_network_max })
    }

    /// A place for one more connection from `network`.
    pub(super) fn take(self: &Arc<Self>, network: Network) -> Result<Place, Full> {
        let mut taken = lock(&self.taken);
        if taken.total >= self.total_max {
            return Err(Full::Service);
        }
        let here = taken.by_network.entry(network).or_default();
        if *here >= self.per_network_max {
            return Err(Full::Network);
        }
        *here += 1;
        taken.total += 1;
        Ok(Place { places: Arc::clone(self), network })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.places.taken);
        taken.total -= 1;
        if let Some(here) = taken.by_network.get_mut(&self.network) {
            *here -= 1;
            if *here == 0 {
                taken.by_network.remove(&self.network);
            }
        }
    }
}

/// Wrong keys per network and minute: a network over the limit is not talked to until its window is over, so that a
/// guesser costs no handshake and no database read.
#[derive(Debug)]
pub(super) struct FailedKeys {
    windows: Mutex<HashMap<Network, Window>>,
    per_window_max: u32,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    since: Duration,
    failures: u32,
}

impl FailedKeys {
    pub(super) fn new(per_window_max: u32) -> Self {
        Self { windows: Mutex::default(), per_window_max }
    }

    /// Whether `network` has used up its attempts. `now` is the monotonic time.
    pub(super) fn is_blocked(&self, network: Network, now: Duration) -> bool {
        lock(&self.windows)
            .get(&network)
            .is_some_and(|window| now < window.since + WINDOW && window.failures >= self.per_window_max)
    }

    /// Counts a wrong key from `network`.
    pub(super) fn count(&self, network: Network, now: Duration) {
        let mut windows = lock(&self.windows);
        if !windows.contains_key(&network) && windows.len() >= FAILED_NETWORKS_MAX {
            make_room(&mut windows, now);
        }
        let window = windows.entry(network).or_insert(Window { since: now, failures: 0 });
        if now >= window.since + WINDOW {
            *window = Window { since: now, failures: 0 };
        }
        window.failures = window.failures.saturating_add(1);
    }
}

fn make_room(windows: &mut HashMap<Network, Window>, now: Duration) {
    windows.retain(|_, window| now < window.since + WINDOW);
    if windows.len() < FAILED_NETWORKS_MAX {
        return;
    }
    let oldest = windows.iter().min_by_key(|(_, window)| window.since).map(|(network, _)| *network);
    if let Some(oldest) = oldest {
        windows.remove(&oldest);
    }
}

/// Keeps a flood of hostile connections from becoming a flood of log lines.
#[derive(Debug)]
pub(super) struct LogLimit {
    state: Mutex<LogWindow>,
    per_window_max: u32,
}

#[derive(Debug, Default)]
struct LogWindow {
    since: Duration,
    lines: u32,
    withheld: u64,
}

/// Whether a line may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// Yes; `withheld` lines of the window before were not, which is worth saying.
    Write { withheld: u64 },
    /// No, the window's lines are used up.
    Withhold,
}

impl LogLimit {
    pub(super) fn new(per_window_max: u32) -> Self {
        Self { state: Mutex::default(), per_window_max }
    }

    /// Counts one line at the monotonic time `now`.
    pub(super) fn next(&self, now: Duration) -> Line {
        let mut state = lock(&self.state);
        let mut withheld = 0;
        if now >= state.since + WINDOW {
            withheld = state.withheld;
            *state = LogWindow { since: now, lines: 0, withheld: 0 };
        }
        if state.lines >= self.per_window_max {
            state.withheld += 1;
            return Line::Withhold;
        }
        state.lines += 1;
        Line::Write { withheld }
    }
}

/// The counters stay consistent between statements, so a panic elsewhere is no reason to stop counting.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        Network::from(text.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn a_network_is_an_ipv4_address_or_an_ipv6_subscriber() {
        assert_eq!(network("::ffff:1.2.3.4"), network("1.2.3.4"));
        assert_ne!(network("1.2.3.4"), network("1.2.3.5"));
        assert_eq!(network("2001:db8:1:2::3"), network("2001:db8:1:2:ffff::1"));
        assert_ne!(network("2001:db8:1:2::3"), network("2001:db8:1:3::3"));
    }

    #[test]
    fn places_are_limited_in_all_and_per_network_and_come_back() {
        let places = Places::new(3, 2);
        let (a, b) = (network("1.1.1.1"), network("2.2.2.2"));
        let first = places.take(a).unwrap();
        let _second = places.take(a).unwrap();
        assert_eq!(places.take(a).unwrap_err(), Full::Network);
        let third = places.take(b).unwrap();
        assert_eq!(places.take(b).unwrap_err(), Full::Service);
        drop(first);
        let _fourth = places.take(a).unwrap();
        drop(third);
        assert_eq!(lock(&places.taken).by_network.len(), 1, "no entry stays behind for a network that left");
    }

    #[test]
    fn failed_keys_block_until_the_window_is_over() {
        let failed = FailedKeys::new(2);
        let (guesser, other) = (network("1.1.1.1"), network("2.2.2.2"));
        let start = Duration::from_secs(5);
        failed.count(guesser, start);
        assert!(!failed.is_blocked(guesser, start));
        failed.count(guesser, start + WINDOW / 2);
        assert!(failed.is_blocked(guesser, start + WINDOW / 2));
        assert!(!failed.is_blocked(other, start));
        assert!(failed.is_blocked(guesser, start + WINDOW - Duration::from_millis(1)));
        assert!(!failed.is_blocked(guesser, start + WINDOW));
        failed.count(guesser, start + WINDOW);
        assert!(!failed.is_blocked(guesser, start + WINDOW), "a new window starts from nothing");
    }

    #[test]
    fn failed_keys_remember_a_bounded_number_of_networks() {
        let failed = FailedKeys::new(1);
        let nth = |n: usize| {
            let [_, a, b, c] = u32::try_from(n).unwrap().to_be_bytes();
            network(&format!("9.{a}.{b}.{c}"))
        };
        for n in 0..FAILED_NETWORKS_MAX + 10 {
            failed.count(nth(n), Duration::from_millis(n as u64));
        }
        let now = Duration::from_millis(FAILED_NETWORKS_MAX as u64 + 10);
        assert_eq!(lock(&failed.windows).len(), FAILED_NETWORKS_MAX);
        assert!(!failed.is_blocked(nth(9), now), "the oldest is forgotten");
        assert!(failed.is_blocked(nth(10), now));
        failed.count(nth(usize::from(u16::MAX)), now + WINDOW);
        assert_eq!(lock(&failed.windows).len(), 1, "windows that are over make room");
    }

    #[test]
    fn log_lines_are_withheld_and_counted() {
        let limit = LogLimit::new(2);
        let start = Duration::from_secs(1);
        assert_eq!(limit.next(start), Line::Write { withheld: 0 });
        assert_eq!(limit.next(start), Line::Write { withheld: 0 });
        for _ in 0..5 {
            assert_eq!(limit.next(start), Line::Withhold);
        }
        assert_eq!(limit.next(start + WINDOW), Line::Write { withheld: 5 });
        assert_eq!(limit.next(start + WINDOW), Line::Write { withheld: 0 });
        assert_eq!(limit.next(start + WINDOW), Line::Withhold);
    }
}
