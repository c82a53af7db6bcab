//! Rates over the last seconds of media time, in fixed memory.

/// Full slots in a rate.
pub(super) const SLOTS: usize = 8;
/// Media time of a slot in nanoseconds.
pub(super) const SLOT_NS: i64 = 1_000_000_000;

/// Packets and bytes of the last [`SLOTS`] seconds, and of the slot that is being filled.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// A ring; `newest` is being filled.
    slots: [Slot; SLOTS + 1],
    newest: usize,
    used: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    begin_ns: i64,
    packets: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    pub(super) packets_per_sec: f64,
    pub(super) bits_per_sec: u64,
}

impl Window {
    /// Counts a packet. Times of one track never decrease.
    pub(super) fn add(&mut self, dts_ns: i64, bytes: usize) {
        if self.used == 0 || dts_ns.saturating_sub(self.slots[self.newest].begin_ns) >= SLOT_NS {
            self.newest = (self.newest + 1) % self.slots.len();
            self.used = (self.used + 1).min(self.slots.len());
            self.slots[self.newest] = Slot { begin_ns: dts_ns, ..Slot::default() };
        }
        let slot = &mut self.slots[self.newest];
        slot.packets += 1;
        slot.bytes += bytes as u64;
    }

    /// Rates over the full slots; `None` until one is full. Exact, because each slot starts with a packet: the sum is divided by the
    /// time from the start of the first full slot to the start of the slot that is being filled.
    pub(super) fn rates(&self) -> Option<Rates> {
        let full = self.used.checked_sub(1).filter(|full| *full > 0)?;
        let nth = |back: usize| &self.slots[(self.newest + self.slots.len() - back) % self.slots.len()];
        let span_ns = self.slots[self.newest].begin_ns.saturating_sub(nth(full).begin_ns);
        let (packets, bytes) = (1..=full)
            .map(nth)
            .fold((0, 0), |(packets, bytes), slot| (packets + slot.packets, bytes + slot.bytes));
        let secs = span_ns as f64 / SLOT_NS as f64;
        // Every slot is at least a second long.
        Some(Rates {
            packets_per_sec: packets as f64 / secs,
            bits_per_sec: (bytes as f64 * 8.0 / secs) as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn rates_are_those_of_the_last_full_seconds() {
        let mut window = Window::default();
        assert_eq!(window.rates(), None);
        // 25 packets a second of 100 bytes, then 50 of 10.
        (0..=25).for_each(|n| window.add(n * 40 * MS, 100));
        assert_eq!(window.rates(), Some(Rates { packets_per_sec: 25.0, bits_per_sec: 20_000 }));
        (26..500).for_each(|n| window.add(n * 40 * MS, 100));
        assert_eq!(window.rates(), Some(Rates { packets_per_sec: 25.0, bits_per_sec: 20_000 }));
        (0..=50 * (SLOTS as i64 + 1)).for_each(|n| window.add(20_000 * MS + n * 20 * MS, 10));
        assert_eq!(
            window.rates(),
            Some(Rates { packets_per_sec: 50.0, bits_per_sec: 4_000 }),
            "the old ones are forgotten"
        );
    }

    #[test]
    fn times_of_whole_milliseconds_give_exact_rates() {
        let mut window = Window::default();
        (0..2_000_i64).for_each(|n| window.add((n * 1001 / 30) * MS, 1));
        let rate = window.rates().unwrap().packets_per_sec;
        assert!((29.96..29.98).contains(&rate), "{rate}");
    }

    #[test]
    fn a_pause_lowers_the_rate_and_extreme_times_do_no_harm() {
        let mut window = Window::default();
        [0, 10_000].into_iter().for_each(|ms| window.add(ms * MS, 1_000));
        assert_eq!(window.rates(), Some(Rates { packets_per_sec: 0.1, bits_per_sec: 800 }));
        for dts in [i64::MIN, i64::MAX, i64::MIN, 0] {
            window.add(dts, usize::MAX / 32);
            assert!(window.rates().is_none_or(|rates| !rates.packets_per_sec.is_nan()));
        }
    }
}
