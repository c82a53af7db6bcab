//! Counts wrong stream keys per network, and remembers networks with admitted encoders. Pure: time is an argument.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::limits::KNOWN_NETWORK_MS;
use satcast_core::networks::Network;

/// Most remembered networks, for wrong keys and for admitted encoders each. Beyond it the oldest entry is evicted.
pub(super) const NETWORKS_MAX: usize = 10_000;

/// Window in which wrong keys and warnings about connections are counted.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

const KNOWN: Duration = Duration::from_millis(KNOWN_NETWORK_MS);

/// Wrong keys per network and minute. Connections of a network over the limit are closed until its window ends, so that a guesser costs
/// no handshake and no database read. A network with admitted encoders is only slowed down, because a block would lock them out together
/// with the guesser (one address for a household, or a proxy in front of the service).
#[derive(Debug)]
pub(super) struct KeyAttempts {
    windows: Mutex<HashMap<Network, Window>>,
    known: Mutex<HashMap<Network, Known>>,
    per_window_max: u32,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    since: Duration,
    failures: u32,
}

/// A network with admitted encoders.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    publishers: usize,
    /// Last time that a publisher was admitted or left.
    last: Duration,
}

impl KeyAttempts {
    pub(super) fn new(per_window_max: u32) -> Self {
        Self { windows: Mutex::default(), known: Mutex::default(), per_window_max }
    }

    /// Whether connections from `network` are closed before the handshake. `now` is the monotonic time.
    pub(super) fn is_blocked(&self, network: Network, now: Duration) -> bool {
        self.is_over(network, now) && !self.is_known(network, now)
    }

    /// Counts a wrong key from `network`. True when its attempts were already used up.
    pub(super) fn failed(&self, network: Network, now: Duration) -> bool {
        let over = self.is_over(network, now);
        let mut windows = self.windows.lock();
        if !windows.contains_key(&network) {
            evict(&mut windows, |window| now < window.since + WINDOW, |window| Some(window.since));
        }
        let window = windows.entry(network).or_insert(Window { since: now, failures: 0 });
        if now >= window.since + WINDOW {
            *window = Window { since: now, failures: 0 };
        }
        window.failures = window.failures.saturating_add(1);
        over
    }

    /// An encoder from `network` was admitted. The caller calls [`Self::left`] once for it.
    pub(super) fn admitted(&self, network: Network, now: Duration) {
        let mut known = self.known.lock();
        if !known.contains_key(&network) {
            // Networks with publishers are kept. The connection limits bound their number.
            evict(&mut known, |known| known.is(now), |known| (known.publishers == 0).then_some(known.last));
        }
        let here = known.entry(network).or_default();
        here.publishers += 1;
        here.last = now;
    }

    /// An admitted encoder from `network` has left.
    pub(super) fn left(&self, network: Network, now: Duration) {
        if let Some(here) = self.known.lock().get_mut(&network) {
            here.publishers = here.publishers.saturating_sub(1);
            here.last = now;
        }
    }

    fn is_over(&self, network: Network, now: Duration) -> bool {
        self.windows
            .lock()
            .get(&network)
            .is_some_and(|window| now < window.since + WINDOW && window.failures >= self.per_window_max)
    }

    fn is_known(&self, network: Network, now: Duration) -> bool {
        self.known.lock().get(&network).is_some_and(|known| known.is(now))
    }
}

impl Known {
    fn is(&self, now: Duration) -> bool {
        self.publishers > 0 || now < self.last + KNOWN
    }
}

/// Makes space for one more entry if the map is full: removes the entries that do not count any more; if there are none, the entry with
/// the earliest `since`. Entries without a `since` are kept.
fn evict<T>(
    entries: &mut HashMap<Network, T>,
    counts: impl Fn(&T) -> bool,
    since: impl Fn(&T) -> Option<Duration>,
) {
    if entries.len() < NETWORKS_MAX {
        return;
    }
    entries.retain(|_, entry| counts(entry));
    if entries.len() < NETWORKS_MAX {
        return;
    }
    let dated = entries.iter().filter_map(|(network, entry)| Some((since(entry)?, *network)));
    if let Some((_, oldest)) = dated.min_by_key(|(since, _)| *since) {
        entries.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    fn network(text: &str) -> Network {
        Network::from(text.parse::<IpAddr>().unwrap())
    }

    fn nth(n: usize) -> Network {
        let [_, a, b, c] = u32::try_from(n).unwrap().to_be_bytes();
        network(&format!("9.{a}.{b}.{c}"))
    }

    #[test]
    fn failed_keys_block_until_the_window_is_over() {
        let keys = KeyAttempts::new(2);
        let (guesser, other) = (network("1.1.1.1"), network("2.2.2.2"));
        let start = Duration::from_secs(5);
        assert!(!keys.failed(guesser, start));
        assert!(!keys.is_blocked(guesser, start));
        assert!(!keys.failed(guesser, start + WINDOW / 2), "the last attempt");
        assert!(keys.is_blocked(guesser, start + WINDOW / 2));
        assert!(keys.failed(guesser, start + WINDOW / 2), "one too many");
        assert!(!keys.is_blocked(other, start));
        assert!(keys.is_blocked(guesser, start + WINDOW - MOMENT));
        assert!(!keys.is_blocked(guesser, start + WINDOW));
        assert!(!keys.failed(guesser, start + WINDOW));
        assert!(!keys.is_blocked(guesser, start + WINDOW), "a new window starts from nothing");
    }

    #[test]
    fn a_network_with_an_admitted_encoder_is_not_blocked_until_some_time_after_its_last_publish() {
        let keys = KeyAttempts::new(1);
        let (shared, other) = (network("1.1.1.1"), network("2.2.2.2"));
        let start = Duration::from_secs(5);
        keys.admitted(shared, start);
        keys.admitted(shared, start);
        keys.left(shared, start);
        let later = start + KNOWN * 3;
        for network in [shared, other] {
            keys.failed(network, later);
        }
        assert!(!keys.is_blocked(shared, later), "one still publishes");
        assert!(keys.is_blocked(other, later));
        keys.left(shared, later);
        keys.failed(shared, later + KNOWN - MOMENT);
        assert!(!keys.is_blocked(shared, later + KNOWN - MOMENT));
        assert!(keys.is_blocked(shared, later + KNOWN));
    }

    #[test]
    fn a_bounded_number_of_networks_is_remembered_for_wrong_keys() {
        let keys = KeyAttempts::new(1);
        for n in 0..NETWORKS_MAX + 10 {
            keys.failed(nth(n), Duration::from_millis(n as u64));
        }
        let now = Duration::from_millis(NETWORKS_MAX as u64 + 10);
        assert_eq!(keys.windows.lock().len(), NETWORKS_MAX);
        assert!(!keys.is_blocked(nth(9), now), "the oldest is forgotten");
        assert!(keys.is_blocked(nth(10), now));
        keys.failed(nth(usize::from(u16::MAX)), now + WINDOW);
        assert_eq!(keys.windows.lock().len(), 1, "expired windows are removed");
    }

    #[test]
    fn a_bounded_number_of_networks_is_remembered_for_admitted_encoders() {
        let keys = KeyAttempts::new(1);
        keys.admitted(nth(0), Duration::ZERO);
        for n in 1..NETWORKS_MAX + 10 {
            keys.admitted(nth(n), Duration::from_millis(n as u64));
            keys.left(nth(n), Duration::from_millis(n as u64));
        }
        let now = Duration::from_millis(NETWORKS_MAX as u64 + 10);
        assert_eq!(keys.known.lock().len(), NETWORKS_MAX);
        assert!(keys.is_known(nth(0), now + KNOWN * 2), "a network with a publisher is kept");
        assert!(!keys.is_known(nth(10), now), "the oldest is forgotten");
        assert!(keys.is_known(nth(11), now));
        keys.admitted(nth(usize::from(u16::MAX)), now + KNOWN);
        assert_eq!(keys.known.lock().len(), 2, "expired entries are removed");
    }
}
