//! The receive buffer: packets in their order and at their time (4.5, 4.6), and what is missing.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::limits::{HELD_BYTES_MAX, NAK_WORDS_MAX, WINDOW_PACKETS};
use super::wire::{SEQUENCE, after, distance, push_run};

/// What comes next in the stream of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// The payload of the next packet.
    Payload(Bytes),
    /// Packets are missing here: they did not come in time.
    Lost,
}

#[derive(Debug, Clone)]
enum Slot {
    /// Not here; asked for at this time.
    Missing(Duration),
    /// The caller will not send it.
    Given,
    Here {
        payload: Bytes,
        due: Duration,
    },
}

/// How a packet was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is new, and packets before it are missing, `lost` of them.
    New { lost: usize },
    /// It was missing.
    Filled,
    /// It was here before, or was given up as too late.
    Known,
    /// It is too far ahead, or there is no room.
    Refused,
}

/// Packets that wait for their time.
#[derive(Debug, Clone)]
pub(super) struct Buffer {
    /// Sequence number of the first slot.
    next: u32,
    slots: VecDeque<Slot>,
    /// Slots from the front that are not missing.
    whole: usize,
    held_bytes: usize,
}

impl Buffer {
    pub(super) fn new(first: u32) -> Self {
        Self { next: first, slots: VecDeque::new(), whole: 0, held_bytes: 0 }
    }

    /// Takes a packet that is due at `due`. Gaps that it shows count as asked for at `now`.
    pub(super) fn take(&mut self, sequence: u32, payload: Bytes, due: Duration, now: Duration) -> Taken {
        let Ok(mut at) = usize::try_from(distance(self.next, sequence)) else { return Taken::Known };
        if at >= WINDOW_PACKETS && self.slots.is_empty() {
            // After an outage that was longer than the window the caller goes on here: what is before is lost.
            (self.next, at) = (sequence.wrapping_sub(1) & SEQUENCE, 1);
            self.slots.push_back(Slot::Given);
            self.grow();
        }
        if at >= WINDOW_PACKETS || self.held_bytes + payload.len() > HELD_BYTES_MAX {
            return Taken::Refused;
        }
        let bytes = payload.len();
        let here = Slot::Here { payload, due };
        let taken = match self.slots.get_mut(at) {
            Some(Slot::Here { .. }) => return Taken::Known,
            Some(slot) => {
                *slot = here;
                Taken::Filled
            }
            None => {
                let lost = at - self.slots.len();
                self.slots.resize(at, Slot::Missing(now));
                self.slots.push_back(here);
                Taken::New { lost }
            }
        };
        self.held_bytes += bytes;
        self.grow();
        taken
    }

    fn grow(&mut self) {
        while self.slots.get(self.whole).is_some_and(|slot| !matches!(slot, Slot::Missing(_))) {
            self.whole += 1;
        }
    }

    /// What is due at `now`. Second: packets that are given up as too late.
    pub(super) fn give(&mut self, now: Duration) -> Option<(Delivery, usize)> {
        let first = self.slots.iter().position(|slot| matches!(slot, Slot::Here { .. }))?;
        match &self.slots[first] {
            Slot::Here { due, .. } if *due <= now => {}
            _ => return None,
        }
        if first > 0 {
            self.slots.drain(..first);
            self.next = after(self.next, first);
            self.whole = 0;
            self.grow();
            return Some((Delivery::Lost, first));
        }
        let Some(Slot::Here { payload, .. }) = self.slots.pop_front() else { return None };
        self.next = after(self.next, 1);
        self.whole -= 1;
        self.held_bytes -= payload.len();
        Some((Delivery::Payload(payload), 0))
    }

    /// When [`Self::give`] has something.
    pub(super) fn due(&self) -> Option<Duration> {
        self.slots.iter().find_map(|slot| match slot {
            Slot::Here { due, .. } => Some(*due),
            _ => None,
        })
    }

    /// The caller will not send these packets, both ends included.
    pub(super) fn give_up(&mut self, first: u32, last: u32) {
        let from = usize::try_from(distance(self.next, first)).unwrap_or(0);
        let Ok(to) = usize::try_from(distance(self.next, last)) else { return };
        for slot in self.slots.iter_mut().take(to.saturating_add(1)).skip(from) {
            if matches!(slot, Slot::Missing(_)) {
                *slot = Slot::Given;
            }
        }
        self.grow();
    }

    /// The first packet that is missing: everything before it is acknowledged.
    pub(super) fn acknowledged(&self) -> u32 {
        after(self.next, self.whole)
    }

    /// Packets that there is room for.
    pub(super) fn room(&self) -> usize {
        WINDOW_PACKETS - self.slots.len()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole == self.slots.len()
    }

    /// Missing packets that were asked for before `until`, as runs for a report, and asks for them at `now`.
    pub(super) fn missing(&mut self, until: Duration, now: Duration) -> Vec<u32> {
        let (mut words, mut run) = (Vec::new(), None);
        for (at, slot) in self.slots.iter_mut().enumerate().skip(self.whole) {
            let is_missing = matches!(slot, Slot::Missing(asked) if *asked <= until);
            if is_missing {
                *slot = Slot::Missing(now);
                let sequence = after(self.next, at);
                run = Some(run.map_or((sequence, sequence), |(first, _)| (first, sequence)));
            } else if let Some((first, last)) = run.take() {
                push_run(&mut words, first, last);
                if words.len() + 2 > NAK_WORDS_MAX {
                    return words;
                }
            }
        }
        if let Some((first, last)) = run {
            push_run(&mut words, first, last);
        }
        words
    }

    /// Sequence number behind the newest packet.
    pub(super) fn end(&self) -> u32 {
        after(self.next, self.slots.len())
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::PAYLOAD_BYTES_MAX;
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn payload(byte: u8) -> Bytes {
        Bytes::from(vec![byte; 3])
    }

    fn put(buffer: &mut Buffer, sequence: u32, due: u64) -> Taken {
        buffer.take(sequence & SEQUENCE, payload(sequence as u8), ms(due), ms(0))
    }

    fn all(buffer: &mut Buffer, now: u64) -> Vec<Option<u8>> {
        let give = std::iter::from_fn(|| buffer.give(ms(now)));
        give.map(|(delivery, _)| match delivery {
            Delivery::Payload(payload) => Some(payload[0]),
            Delivery::Lost => None,
        })
        .collect()
    }

    #[test]
    fn packets_leave_in_order_and_at_their_time() {
        let mut buffer = Buffer::new(SEQUENCE);
        assert_eq!(put(&mut buffer, SEQUENCE, 10), Taken::New { lost: 0 });
        assert_eq!(put(&mut buffer, 2, 30), Taken::New { lost: 2 });
        assert_eq!(buffer.acknowledged(), 0);
        assert_eq!(buffer.missing(ms(0), ms(1)), [1 << 31, 1]);
        assert_eq!(buffer.missing(ms(0), ms(1)), [0; 0], "asked for a moment ago");
        assert_eq!(put(&mut buffer, 1, 20), Taken::Filled);
        assert_eq!(put(&mut buffer, 0, 15), Taken::Filled);
        assert_eq!(put(&mut buffer, 0, 15), Taken::Known);
        assert_eq!((buffer.acknowledged(), buffer.end(), buffer.is_whole()), (3, 3, true));
        assert_eq!(all(&mut buffer, 9), []);
        assert_eq!(all(&mut buffer, 15), [Some(SEQUENCE as u8), Some(0)]);
        assert_eq!(buffer.due(), Some(ms(20)));
        assert_eq!(all(&mut buffer, 99), [Some(1), Some(2)]);
        assert_eq!((buffer.held_bytes(), buffer.room()), (0, WINDOW_PACKETS));
        assert_eq!(put(&mut buffer, 2, 1), Taken::Known, "too late");
    }

    #[test]
    fn packets_that_come_too_late_leave_a_gap() {
        let mut buffer = Buffer::new(1);
        for (sequence, due) in [(1, 10), (4, 40), (5, 50), (7, 70)] {
            put(&mut buffer, sequence, due);
        }
        assert_eq!(all(&mut buffer, 39), [Some(1)]);
        assert_eq!(buffer.give(ms(40)), Some((Delivery::Lost, 2)));
        assert_eq!((buffer.acknowledged(), buffer.missing(ms(0), ms(41))), (6, vec![6]));
        assert_eq!(put(&mut buffer, 3, 30), Taken::Known);
        assert_eq!(all(&mut buffer, 70), [Some(4), Some(5), None, Some(7)]);
    }

    #[test]
    fn packets_that_the_caller_gives_up_are_not_asked_for() {
        let mut buffer = Buffer::new(1);
        put(&mut buffer, 1, 10);
        put(&mut buffer, 5, 50);
        buffer.give_up(0, 3);
        assert_eq!((buffer.acknowledged(), buffer.missing(ms(0), ms(1))), (4, vec![4]));
        buffer.give_up(4, SEQUENCE / 2);
        assert_eq!(buffer.acknowledged(), 6);
        buffer.give_up(9, 1);
        assert_eq!(all(&mut buffer, 99), [Some(1), None, Some(5)]);
    }

    #[test]
    fn packets_and_bytes_are_limited() {
        let mut buffer = Buffer::new(0);
        let far = WINDOW_PACKETS as u32;
        put(&mut buffer, 0, 1);
        assert_eq!(put(&mut buffer, far, 1), Taken::Refused);
        assert_eq!(put(&mut buffer, SEQUENCE / 2, 1), Taken::Refused);
        assert_eq!(put(&mut buffer, far - 1, 1), Taken::New { lost: WINDOW_PACKETS - 2 });
        assert_eq!(buffer.room(), 0);
        let mut full = Buffer::new(0);
        let large = Bytes::from(vec![0; PAYLOAD_BYTES_MAX]);
        for sequence in 0..far {
            assert_eq!(full.take(sequence, large.clone(), ms(9), ms(0)), Taken::New { lost: 0 });
        }
        assert_eq!((full.held_bytes(), full.room()), (HELD_BYTES_MAX, 0));
        let mut other = Buffer::new(0);
        assert_eq!(other.take(0, Bytes::from(vec![0; HELD_BYTES_MAX + 1]), ms(9), ms(0)), Taken::Refused);
    }

    #[test]
    fn an_outage_that_is_longer_than_the_window_is_a_gap() {
        let mut buffer = Buffer::new(0);
        put(&mut buffer, 0, 1);
        assert_eq!(all(&mut buffer, 1), [Some(0)]);
        let after = 3 * WINDOW_PACKETS as u32;
        assert_eq!(put(&mut buffer, after, 5), Taken::New { lost: 0 });
        assert_eq!(put(&mut buffer, after + 1, 6), Taken::New { lost: 0 });
        assert_eq!((buffer.acknowledged(), buffer.is_whole()), (after + 2, true));
        assert_eq!(all(&mut buffer, 6), [None, Some(after as u8), Some(after as u8 + 1)]);
    }

    #[test]
    fn a_report_fits_into_a_datagram() {
        let mut buffer = Buffer::new(0);
        (0..WINDOW_PACKETS as u32).step_by(2).for_each(|sequence| {
            put(&mut buffer, sequence, 9);
        });
        let first = buffer.missing(ms(0), ms(1));
        assert!((NAK_WORDS_MAX - 1..=NAK_WORDS_MAX).contains(&first.len()), "{}", first.len());
        let next = buffer.missing(ms(0), ms(2));
        assert_eq!(first.last().map(|last| last + 2), next.first().copied(), "the rest follows");
    }
}
