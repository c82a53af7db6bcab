//! Slows down password guessing: each wrong password delays the next attempts for the same account from the same network, up to
//! [`DELAY_MAX`]. An account is never locked, least of all for a network that its owner uses.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;

use satcast_core::networks::Network;
use satcast_core::rate::{RateLimiter, RateRule};

/// How long failures count.
const WINDOW: Duration = Duration::from_secs(15 * 60);
/// Most failures counted for one account from one network.
const RATE_FAILED_LOGINS: RateRule = RateRule { name: "failed-logins", max: 10, window: WINDOW };
/// Failures for one account from all networks after which [`DELAY_UNDER_ATTACK`] applies to networks without an earlier login to
/// the account.
const RATE_FAILED_FROM_ALL: RateRule = RateRule { name: "failed-logins-all", max: 50, window: WINDOW };
/// Delay in seconds by the number of failures from the network.
const DELAYS: [u64; 11] = [0, 0, 0, 0, 0, 1, 2, 5, 10, 20, 30];
/// Delay for networks without an earlier login, while the account is attacked from many networks.
const DELAY_UNDER_ATTACK: Duration = Duration::from_secs(10);
/// Longest delay.
pub const DELAY_MAX: Duration = Duration::from_secs(DELAYS[RATE_FAILED_LOGINS.max]);

/// SHA-256 of the account name of a login, whether or not the account exists.
type Name = [u8; 32];

/// Recent failed logins.
#[derive(Debug)]
pub struct Guesses {
    from_network: RateLimiter<(Name, Network)>,
    from_all: RateLimiter<Name>,
    /// Attempts that wait or are being checked.
    trying: Mutex<HashSet<(Name, Network)>>,
}

impl Default for Guesses {
    fn default() -> Self {
        Self {
            from_network: RateLimiter::new(RATE_FAILED_LOGINS),
            from_all: RateLimiter::new(RATE_FAILED_FROM_ALL),
            trying: Mutex::default(),
        }
    }
}

/// A login attempt that may proceed after its delay. While it exists, no other attempt for the same name and network can start.
#[derive(Debug)]
pub struct Try<'a> {
    guesses: &'a Guesses,
    origin: (Name, Network),
}

impl Guesses {
    /// Starts an attempt.
    ///
    /// # Errors
    /// Another attempt from this network is in progress: seconds until the client may try again.
    pub fn begin(&self, name: Name, network: Network, now: Duration) -> Result<Try<'_>, u64> {
        let origin = (name, network);
        let fresh = self.trying.lock().insert(origin);
        if fresh {
            return Ok(Try { guesses: self, origin });
        }
        Err(self.delay_here(origin, now).as_secs().max(1))
    }

    fn delay_here(&self, origin: (Name, Network), now: Duration) -> Duration {
        let failures = RATE_FAILED_LOGINS.max - self.from_network.peek(origin, now).remaining;
        Duration::from_secs(DELAYS[failures])
    }
}

impl Try<'_> {
    /// Whether the account is attacked from many networks. Then the delay depends on whether the owner uses this network.
    pub fn is_under_attack(&self, now: Duration) -> bool {
        !self.guesses.from_all.peek(self.origin.0, now).allowed
    }

    /// The delay of this attempt. `is_strange`: the account is under attack, and there was no earlier login from this network.
    pub fn delay(&self, is_strange: bool, now: Duration) -> Duration {
        let least = if is_strange { DELAY_UNDER_ATTACK } else { Duration::ZERO };
        self.guesses.delay_here(self.origin, now).max(least)
    }

    /// Counts a wrong password.
    pub fn failed(self, now: Duration) {
        self.guesses.from_network.hit(self.origin, now);
        self.guesses.from_all.hit(self.origin.0, now);
    }
}

impl Drop for Try<'_> {
    fn drop(&mut self) {
        self.guesses.trying.lock().remove(&self.origin);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const NAME: Name = [7; 32];
    const NOW: Duration = Duration::from_secs(1);

    fn network(number: u8) -> Network {
        Network::from(IpAddr::from(Ipv4Addr::new(203, 0, 113, number)))
    }

    fn delay(guesses: &Guesses, name: Name, from: u8, now: Duration) -> u64 {
        guesses.begin(name, network(from), now).unwrap().delay(false, now).as_secs()
    }

    #[test]
    fn each_failure_delays_only_its_own_network() {
        let guesses = Guesses::default();
        let mut delays = Vec::new();
        for _ in 0..14 {
            delays.push(delay(&guesses, NAME, 1, NOW));
            guesses.begin(NAME, network(1), NOW).unwrap().failed(NOW);
        }
        assert_eq!(delays, [0, 0, 0, 0, 0, 1, 2, 5, 10, 20, 30, 30, 30, 30], "never more than the maximum");
        assert_eq!((delay(&guesses, NAME, 2, NOW), delay(&guesses, [8; 32], 1, NOW)), (0, 0));
        assert_eq!(delay(&guesses, NAME, 1, NOW + WINDOW), 0);
    }

    #[test]
    fn only_one_attempt_at_a_time_from_one_network() {
        let guesses = Guesses::default();
        let waiting = guesses.begin(NAME, network(1), NOW).unwrap();
        assert_eq!(guesses.begin(NAME, network(1), NOW).unwrap_err(), 1);
        assert!(guesses.begin(NAME, network(2), NOW).is_ok());
        drop(waiting);
        assert!(guesses.begin(NAME, network(1), NOW).is_ok());
    }

    #[test]
    fn an_attack_from_many_networks_delays_unknown_networks() {
        let guesses = Guesses::default();
        for from in 0..RATE_FAILED_FROM_ALL.max {
            let one = guesses.begin(NAME, network(from as u8), NOW).unwrap();
            assert!(!one.is_under_attack(NOW));
            one.failed(NOW);
        }
        let owner = guesses.begin(NAME, network(200), NOW).unwrap();
        assert!(owner.is_under_attack(NOW));
        assert_eq!((owner.delay(false, NOW), owner.delay(true, NOW)), (Duration::ZERO, DELAY_UNDER_ATTACK));
        assert!(DELAY_MAX == Duration::from_secs(30) && DELAY_UNDER_ATTACK <= DELAY_MAX);
    }
}
