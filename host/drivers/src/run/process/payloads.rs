//! The payloads that crossed last. A payload for several destinations of a stream crosses once; later destinations
//! refer to it. Both sides keep and forget by the same rule, and messages arrive in order, so every payload that the
//! host refers to is there.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

const KEPT_MAX: usize = 256;
/// Most bytes of kept payloads, not counting the newest one.
const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Where a payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Place {
    /// This many bytes after the message, after those of the packets before it.
    Behind(usize),
    /// It is the payload of this number of all that crossed.
    Kept(u64),
}

#[derive(Default)]
pub(super) struct Kept {
    payloads: VecDeque<Bytes>,
    bytes: usize,
    /// Number of the first one.
    first: u64,
}

impl Kept {
    /// Keeps the next payload; calls `forget` for each that is dropped for it.
    pub(super) fn add(&mut self, payload: Bytes, mut forget: impl FnMut(&Bytes)) {
        self.bytes += payload.len();
        self.payloads.push_back(payload);
        while self.payloads.len() > KEPT_MAX || (self.bytes > KEPT_BYTES_MAX && self.payloads.len() > 1) {
            let Some(oldest) = self.payloads.pop_front() else { break };
            self.bytes -= oldest.len();
            self.first += 1;
            forget(&oldest);
        }
    }

    pub(super) fn get(&self, number: u64) -> Option<&Bytes> {
        self.payloads.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn next(&self) -> u64 {
        self.first + self.payloads.len() as u64
    }
}

/// The host's side.
#[derive(Default)]
pub(super) struct Crossed {
    kept: Kept,
    /// Numbers of the kept payloads. While a payload is kept, no other has its address.
    numbers: HashMap<(usize, usize), u64>,
}

impl Crossed {
    /// The place of the next packet's payload; the payload crosses if it is not kept.
    pub(super) fn place(&mut self, payload: &Bytes) -> Place {
        let of = |payload: &Bytes| (payload.as_ptr() as usize, payload.len());
        if let Some(number) = self.numbers.get(&of(payload)) {
            return Place::Kept(*number);
        }
        self.numbers.insert(of(payload), self.kept.next());
        let numbers = &mut self.numbers;
        self.kept.add(payload.clone(), |oldest| {
            numbers.remove(&of(oldest));
        });
        Place::Behind(payload.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn referenced_payloads_are_kept_on_the_other_side() {
        let (mut host, mut child) = (Crossed::default(), Kept::default());
        let payload = |n: usize| Bytes::from(vec![n as u8; 1 + n * 97 % 70_000]);
        let all: Vec<Bytes> = (0..1000).map(payload).collect();
        let mut named = 0;
        for at in 0..all.len() {
            // One destination that keeps up, one that lags, and one that lags far.
            for payload in [Some(at), Some(at), at.checked_sub(20), at.checked_sub(400)].into_iter().flatten()
            {
                let payload = &all[payload];
                match host.place(payload) {
                    Place::Behind(len) => {
                        assert_eq!(len, payload.len());
                        child.add(payload.clone(), |_| {});
                    }
                    Place::Kept(number) => {
                        assert_eq!(child.get(number), Some(payload));
                        named += 1;
                    }
                }
            }
        }
        assert!(named > 1900, "{named}");
        assert_eq!((host.numbers.len(), host.kept.bytes), (child.payloads.len(), child.bytes));
        assert!(child.payloads.len() <= KEPT_MAX && child.bytes <= KEPT_BYTES_MAX);
    }

    #[test]
    fn the_newest_payload_is_always_kept_and_forgotten_ones_have_no_number() {
        let mut kept = Kept::default();
        kept.add(Bytes::from_static(b"small"), |_| {});
        kept.add(Bytes::from(vec![0; KEPT_BYTES_MAX + 1]), |_| {});
        assert_eq!((kept.get(0), kept.get(1).map(Bytes::len)), (None, Some(KEPT_BYTES_MAX + 1)));
        assert_eq!(kept.get(2), None);
    }
}
