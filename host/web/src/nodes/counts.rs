//! Limits of requests hold over all nodes: one node counts all requests of a key, account, network or token, whichever node
//! they come to.
//!
//! Each node finds the same one by the names of the living nodes (rendezvous hashing). When a node goes, only the counts of that
//! node begin again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::auth::{
    RATE_CONFIG, RATE_CONNECTIONS, RATE_COST, RATE_LOGINS, RATE_NEW_KEYS, RATE_READS, RATE_RECOVERIES,
    RATE_STATUS, RATE_TOPUPS, RATE_WEBHOOK_TESTS, RATE_WRITES,
};
use crate::playback::{Peer, RATE_PREVIEW};
use satcast_core::rate::{RateLimiter, RateRule, RateVerdict};
use satcast_core::secret::key_hash;

/// Path prefix of counts; the name of the limit and the subject follow.
pub(crate) const PREFIX: &str = "/node/count/";
/// The limits. Each node counts invalid keys and wrong passwords for itself.
const RULES: [RateRule; 12] = [
    RATE_CONFIG,
    RATE_CONNECTIONS,
    RATE_COST,
    RATE_LOGINS,
    RATE_NEW_KEYS,
    RATE_PREVIEW,
    RATE_READS,
    RATE_RECOVERIES,
    RATE_STATUS,
    RATE_TOPUPS,
    RATE_WEBHOOK_TESTS,
    RATE_WRITES,
];
/// Longest subject of another node; the token of a preview has 32 characters.
pub(super) const SUBJECT_CHARS_MAX: usize = 64;
/// Largest answer of another node that is read.
pub(super) const ANSWER_BYTES_MAX: usize = 1_024;
/// Most refused subjects that are remembered; when there are more, all are dropped.
const REFUSED_MAX: usize = 65_536;

/// How long a node that did not count is not asked again, so that it delays few requests.
pub(super) const SILENCE: Duration = Duration::from_secs(5);

/// The counts of this node.
#[derive(Debug)]
pub(super) struct Counts {
    limiters: [RateLimiter<String>; RULES.len()],
    refused: Mutex<Refused>,
    /// Nodes that did not count, until when they are not asked.
    silent: Mutex<HashMap<Arc<str>, Duration>>,
}

/// Refusals of other nodes by limit and subject, with the time of the next try. Until then a flood costs no request between nodes.
type Refused = HashMap<(&'static str, String), Duration>;

impl Default for Counts {
    fn default() -> Self {
        Self { limiters: RULES.map(RateLimiter::new), refused: Mutex::default(), silent: Mutex::default() }
    }
}

impl Counts {
    /// Whether the limit holds over all nodes.
    pub(super) fn is_shared(rule: RateRule) -> bool {
        RULES.contains(&rule)
    }

    /// Whether a node did not count a moment ago.
    pub(super) fn is_silent(&self, peer: &Peer, now: Duration) -> bool {
        self.silent.lock().get(&peer.name).is_some_and(|until| now < *until)
    }

    /// Notes that a node did not count, unless that is known.
    pub(super) fn note_silence(&self, peer: &Peer, now: Duration) {
        let mut silent = self.silent.lock();
        silent.retain(|_, until| now < *until);
        silent.entry(peer.name.clone()).or_insert(now + SILENCE);
    }

    /// Counts a request at the monotonic time `now`, or refuses it; `None` for a limit that each node counts for itself.
    pub(super) fn hit(&self, rule: &str, subject: String, now: Duration) -> Option<RateVerdict> {
        let limiter = self.limiters.iter().find(|limiter| limiter.rule().name == rule)?;
        Some(limiter.hit(subject, now))
    }

    /// The refusal of another node, while it holds.
    pub(super) fn refusal(&self, rule: RateRule, subject: &str, now: Duration) -> Option<RateVerdict> {
        let until = *self.refused.lock().get(&(rule.name, subject.to_owned()))?;
        let resets_in = until.checked_sub(now).filter(|left| !left.is_zero())?;
        Some(RateVerdict { allowed: false, rule, remaining: 0, resets_in })
    }

    /// Remembers a refusal of another node, which was asked at `asked_at`.
    pub(super) fn note(&self, verdict: &RateVerdict, subject: String, asked_at: Duration) {
        if verdict.allowed {
            return;
        }
        let mut refused = self.refused.lock();
        if refused.len() >= REFUSED_MAX {
            refused.clear();
        }
        // A full window stays full until its oldest request leaves it.
        refused.insert((verdict.rule.name, subject), asked_at + verdict.resets_in.min(verdict.rule.window));
    }
}

/// The other node that counts a subject; `None` for the node `own`.
pub(super) fn counter<'a>(own: &str, others: &'a [Peer], rule: &str, subject: &str) -> Option<&'a Peer> {
    let weight = |name: &str| key_hash(&format!("{name} {rule} {subject}"));
    let heaviest = others.iter().map(|peer| (weight(&peer.name), peer)).max_by_key(|(weight, _)| *weight);
    heaviest.filter(|(heaviest, _)| *heaviest > weight(own)).map(|(_, peer)| peer)
}

/// The address of a count.
pub(super) fn address(rule: &str, subject: &str) -> String {
    format!("{PREFIX}{rule}/{subject}")
}

/// Limit and subject of an address.
pub(super) fn parse(path: &str) -> Option<(&str, &str)> {
    let (rule, subject) = path.strip_prefix(PREFIX)?.split_once('/')?;
    (1..=SUBJECT_CHARS_MAX).contains(&subject.len()).then_some((rule, subject))
}

/// A verdict on its way to another node, which knows the rule.
#[derive(Serialize, Deserialize)]
struct Told {
    allowed: bool,
    remaining: usize,
    resets_in: Duration,
}

/// The body that tells another node a verdict.
pub(super) fn tell(verdict: &RateVerdict) -> String {
    let RateVerdict { allowed, remaining, resets_in, rule: _ } = *verdict;
    serde_json::to_string(&Told { allowed, remaining, resets_in }).unwrap_or_default()
}

/// The verdict that another node told.
pub(super) fn read(rule: RateRule, body: &[u8]) -> Option<RateVerdict> {
    let Told { allowed, remaining, resets_in } = serde_json::from_slice(body).ok()?;
    Some(RateVerdict { allowed, rule, remaining, resets_in })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(names: &[&str]) -> Vec<Peer> {
        names.iter().map(|name| Peer { name: (*name).into(), address: "".into() }).collect()
    }

    fn name_of(own: &str, all: &[&str], subject: &str) -> String {
        let others: Vec<&str> = all.iter().copied().filter(|name| *name != own).collect();
        counter(own, &peers(&others), "status", subject).map_or(own.to_owned(), |peer| peer.name.to_string())
    }

    #[test]
    fn every_node_finds_the_same_and_a_lost_one_moves_only_its_own() {
        let (all, left) = (["a", "b", "c"], ["a", "c"]);
        let mut counted = HashMap::new();
        for subject in (0..300).map(|number| number.to_string()) {
            let by = name_of("a", &all, &subject);
            assert!(all.iter().all(|own| name_of(own, &all, &subject) == by), "{subject}");
            if by != "b" {
                assert!(left.iter().all(|own| name_of(own, &left, &subject) == by), "{subject}");
            }
            *counted.entry(by).or_insert(0) += 1;
        }
        assert!(all.iter().all(|name| counted[*name] > 50), "{counted:?}");
        assert_eq!(counter("a", &[], "status", "1").map(|peer| &peer.name), None);
    }

    #[test]
    fn a_verdict_comes_back_whole_and_other_addresses_and_bodies_are_none() {
        let counts = Counts::default();
        let at = Duration::from_millis(1_500);
        let verdict = counts.hit("status", "7".to_owned(), at).unwrap();
        assert_eq!(read(RATE_STATUS, tell(&verdict).as_bytes()), Some(verdict));
        assert!(tell(&verdict).len() < ANSWER_BYTES_MAX);
        assert_eq!(counts.hit("invalid-keys", "7".to_owned(), at), None, "each node counts these for itself");
        assert_eq!(parse(&address("cost", "key-7")), Some(("cost", "key-7")));
        let long = "1".repeat(SUBJECT_CHARS_MAX + 1);
        for path in
            ["/node/count/", "/node/count/cost", "/node/count/cost/", "/node/hls/1", &address("cost", &long)]
        {
            assert_eq!(parse(path), None, "{path}");
        }
        assert_eq!(read(RATE_STATUS, b"{}"), None);
    }

    #[test]
    fn a_refusal_holds_until_the_window_has_capacity_and_the_table_is_bounded() {
        let counts = Counts::default();
        let second = Duration::from_secs(1);
        let refused = RateVerdict {
            allowed: false,
            rule: RATE_COST,
            remaining: 0,
            resets_in: Duration::from_millis(2_500),
        };
        counts.note(&RateVerdict { allowed: true, ..refused }, "key-1".to_owned(), second);
        assert_eq!(counts.refusal(RATE_COST, "key-1", second), None);
        counts.note(&refused, "key-1".to_owned(), second);
        let known = counts.refusal(RATE_COST, "key-1", second * 2).unwrap();
        assert_eq!((known.allowed, known.resets_in), (false, Duration::from_millis(1_500)));
        assert_eq!(counts.refusal(RATE_COST, "key-1", Duration::from_millis(3_500)), None);
        assert_eq!(counts.refusal(RATE_STATUS, "key-1", second), None, "of another limit");
        for subject in 0..REFUSED_MAX + 2 {
            counts.note(&refused, subject.to_string(), second);
        }
        assert!(counts.refused.lock().len() <= REFUSED_MAX);
    }
}
