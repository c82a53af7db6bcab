//! Audio time by counting samples, and the length of Opus packets.

use super::AUDIO_RESYNC_MILLIS;

const NANOS_PER_SECOND: i128 = 1_000_000_000;
/// Opus always counts at this rate (RFC 7845, section 4).
const OPUS_RATE_PER_MILLI: u32 = 48;
/// Longest Opus packet (RFC 6716, section 3.2.5, R5).
const OPUS_PACKET_MILLIS_MAX: u32 = 120;

/// Position of a packet on the audio timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Decode time in ticks of the sample rate.
    pub tick: u64,
    /// Empty ticks before it; not zero only if the clock moved forward to the packet's time.
    pub gap: u64,
}

/// Sample-counted clock of one audio track.
///
/// RTMP times are whole milliseconds, an AAC frame lasts 21.33 ms: the clock takes the time of the first packet and
/// counts samples from there. If a packet is more than [`AUDIO_RESYNC_MILLIS`] later than the count, a gap stays before it.
/// If it is earlier by more than that, it is dropped. Decode times therefore never overlap.
#[derive(Debug, Clone)]
pub struct AudioClock {
    rate: u32,
    next: Option<u64>,
    resyncs: u64,
}

impl AudioClock {
    /// A clock that starts at the time of its first packet; `rate` is in hertz.
    pub fn new(rate: u32) -> Self {
        AudioClock { rate: rate.max(1), next: None, resyncs: 0 }
    }

    /// Places a packet of `samples` samples with the media time `time_ns` (negative is 0). `None`: drop the packet.
    pub fn place(&mut self, time_ns: i64, samples: u32) -> Option<Placed> {
        let reported = nanos_to_ticks(time_ns, self.rate);
        let counted = self.next.unwrap_or(reported);
        let tolerance = u64::from(self.rate) * u64::from(AUDIO_RESYNC_MILLIS) / 1000;
        if reported.saturating_add(tolerance) < counted {
            self.resyncs += 1;
            return None;
        }
        let late = reported > counted.saturating_add(tolerance);
        let tick = if late { reported } else { counted };
        self.resyncs += u64::from(late);
        self.next = Some(tick.saturating_add(u64::from(samples)));
        Some(Placed { tick, gap: tick - counted })
    }

    /// Media time of a tick in nanoseconds.
    pub fn nanos(&self, tick: u64) -> i64 {
        ticks_to_nanos(tick, self.rate)
    }

    /// Number of packets whose time was too far from the counted time.
    pub fn resyncs(&self) -> u64 {
        self.resyncs
    }
}

/// Nanoseconds to ticks, rounded to the nearest; negative times are 0.
pub fn nanos_to_ticks(nanos: i64, timescale: u32) -> u64 {
    let ticks = (i128::from(nanos.max(0)) * i128::from(timescale) + NANOS_PER_SECOND / 2) / NANOS_PER_SECOND;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// Ticks to nanoseconds, rounded to the nearest.
pub fn ticks_to_nanos(ticks: u64, timescale: u32) -> i64 {
    let scale = i128::from(timescale.max(1));
    i64::try_from((i128::from(ticks) * NANOS_PER_SECOND + scale / 2) / scale).unwrap_or(i64::MAX)
}

/// Samples at 48 kHz in an Opus packet, from its table of contents (RFC 6716, section 3.1); `None` for an invalid packet.
pub fn opus_samples(packet: &[u8]) -> Option<u32> {
    let toc = *packet.first()?;
    // In tenths of a millisecond, because CELT has frames of 2.5 ms.
    let frame = match toc >> 3 {
        config @ 0..=11 => [100, 200, 400, 600][usize::from(config % 4)],
        config @ 12..=15 => [100, 200][usize::from(config % 2)],
        config => [25, 50, 100, 200][usize::from(config % 4)],
    };
    let frames = match toc & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => u32::from(packet.get(1)? & 0x3f),
    };
    let tenths = frame * frames;
    (frames > 0 && tenths <= OPUS_PACKET_MILLIS_MAX * 10).then_some(tenths * OPUS_RATE_PER_MILLI / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_times_are_counted_in_samples_not_taken_from_packets() {
        let mut clock = AudioClock::new(44_100);
        let ticks: Vec<u64> = (0..500i64)
            .map(|frame| {
                let millis = frame * 1024 * 1000 / 44_100;
                clock.place(millis * 1_000_000, 1024).expect("in time").tick
            })
            .collect();
        assert!(ticks.windows(2).all(|pair| pair[1] - pair[0] == 1024));
        assert_eq!(clock.resyncs(), 0);
        assert_eq!(clock.nanos(44_100), 1_000_000_000);
    }

    #[test]
    fn the_clock_resyncs_only_beyond_the_tolerance() {
        let table: [(i64, Option<Placed>); 5] = [
            (0, Some(Placed { tick: 0, gap: 0 })),
            (121, Some(Placed { tick: 1024, gap: 0 })),
            // 2048 ticks are 42.67 ms; 143 ms are 100.33 ms late.
            (143, Some(Placed { tick: 6864, gap: 4816 })),
            // 7888 ticks are 164.33 ms.
            (65, Some(Placed { tick: 7888, gap: 0 })),
            (80, None),
        ];
        let mut clock = AudioClock::new(48_000);
        for (millis, expected) in table {
            assert_eq!(clock.place(millis * 1_000_000, 1024), expected, "{millis} ms");
        }
        assert_eq!(clock.resyncs(), 2);
        assert_eq!(AudioClock::new(0).place(i64::MIN, 1).map(|placed| placed.tick), Some(0));
        assert!(AudioClock::new(u32::MAX).place(i64::MAX, u32::MAX).is_some());
    }

    #[test]
    fn opus_packet_length_comes_from_the_table_of_contents() {
        let table: [(&[u8], Option<u32>); 10] = [
            (&[0x00], Some(480)),
            (&[0x18], Some(2880)),
            (&[0x60], Some(480)),
            (&[0x68], Some(960)),
            (&[0x80], Some(120)),
            (&[0xfc], Some(960)),
            (&[0xfd], Some(1920)),
            (&[0xff, 6], Some(5760)),
            (&[0xff, 7], None),
            (&[0xff], None),
        ];
        for (packet, samples) in table {
            assert_eq!(opus_samples(packet), samples, "{packet:?}");
        }
        assert_eq!((opus_samples(&[]), opus_samples(&[3, 0])), (None, None));
    }
}
