//! Passwords that are guessed: each wrong one makes the next tries for the same account from the same network wait longer, up to
//! [`DELAY_MAX`]. Nobody is ever locked out, least of all from a network that the account's owner uses.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;

use satcast_core::networks::Network;
use satcast_core::rate::{RateLimiter, RateRule};

/// How long failures count.
const WINDOW: Duration = Duration::from_secs(15 * 60);
/// Failures for one account from one network; more count no longer.
const RATE_FAILED_LOGINS: RateRule = RateRule { name: "failed-logins", max: 10, window: WINDOW };
/// Failures for one account from all networks; once reached, [`DELAY_UNDER_ATTACK`] holds for networks that the account was never
/// entered from.
const RATE_FAILED_FROM_ALL: RateRule = RateRule { name: "failed-logins-all", max: 50, window: WINDOW };
/// Seconds that a try waits after so many failures from its network.
const DELAYS: [u64; 11] = [0, 0, 0, 0, 0, 1, 2, 5, 10, 20, 30];
/// The same in a network that nobody entered the account from, while it is attacked from many.
const DELAY_UNDER_ATTACK: Duration = Duration::from_secs(10);
/// Longest wait.
pub const DELAY_MAX: Duration = Duration::from_secs(DELAYS[RATE_FAILED_LOGINS.max]);

/// SHA-256 of the name that somebody wants to log in with, whether there is such an account or not.
type Name = [u8; 32];

/// What is known of failed logins.
#[derive(Debug)]
pub struct Guesses {
    from_network: RateLimiter<(Name, Network)>,
    from_all: RateLimiter<Name>,
    /// Tries that wait, or are being checked.
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

/// A try that may go on after its wait; while it lives no other one of its name and network may.
#[derive(Debug)]
pub struct Try<'a> {
    guesses: &'a Guesses,
    who: (Name, Network),
}

impl Guesses {
    /// Begins a try.
    ///
    /// # Errors
    /// Another one from this network waits: in how many seconds to come again.
    pub fn begin(&self, name: Name, network: Network, now: Duration) -> Result<Try<'_>, u64> {
        let who = (name, network);
        let fresh = self.trying.lock().insert(who);
        if fresh {
            return Ok(Try { guesses: self, who });
        }
        Err(self.delay_here(who, now).as_secs().max(1))
    }

    fn delay_here(&self, who: (Name, Network), now: Duration) -> Duration {
        let failures = RATE_FAILED_LOGINS.max - self.from_network.peek(who, now).remaining;
        Duration::from_secs(DELAYS[failures])
    }
}

impl Try<'_> {
    /// The account is attacked from many networks: then it matters whether its owner uses this one.
    pub fn is_under_attack(&self, now: Duration) -> bool {
        !self.guesses.from_all.peek(self.who.0, now).allowed
    }

    /// How long it waits. `is_strange`: the account is under attack, and was never entered from this network.
    pub fn delay(&self, is_strange: bool, now: Duration) -> Duration {
        let least = if is_strange { DELAY_UNDER_ATTACK } else { Duration::ZERO };
        self.guesses.delay_here(self.who, now).max(least)
    }

    /// The password was wrong.
    pub fn failed(self, now: Duration) {
        self.guesses.from_network.hit(self.who, now);
        self.guesses.from_all.hit(self.who.0, now);
    }
}

impl Drop for Try<'_> {
    fn drop(&mut self) {
        self.guesses.trying.lock().remove(&self.who);
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
    fn each_failure_slows_its_network_down_and_no_other() {
        let guesses = Guesses::default();
        let mut delays = Vec::new();
        for _ in 0..14 {
            delays.push(delay(&guesses, NAME, 1, NOW));
            guesses.begin(NAME, network(1), NOW).unwrap().failed(NOW);
        }
        assert_eq!(delays, [0, 0, 0, 0, 0, 1, 2, 5, 10, 20, 30, 30, 30, 30], "and never more");
        assert_eq!((delay(&guesses, NAME, 2, NOW), delay(&guesses, [8; 32], 1, NOW)), (0, 0));
        assert_eq!(delay(&guesses, NAME, 1, NOW + WINDOW), 0);
    }

    #[test]
    fn one_try_at_a_time_from_one_network() {
        let guesses = Guesses::default();
        let waiting = guesses.begin(NAME, network(1), NOW).unwrap();
        assert_eq!(guesses.begin(NAME, network(1), NOW).unwrap_err(), 1);
        assert!(guesses.begin(NAME, network(2), NOW).is_ok());
        drop(waiting);
        assert!(guesses.begin(NAME, network(1), NOW).is_ok());
    }

    #[test]
    fn many_networks_slow_down_those_that_are_strange() {
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
