//! What the segments of one configuration measure: bit rates and frame rate.

use super::rounded_seconds;
use crate::segment::Segment;

const NANOS_PER_SECOND: i128 = 1_000_000_000;
/// Rates that a measured one is taken for, as frames in seconds.
const STANDARD_RATES: [(u64, u64); 11] = [
    (24_000, 1001),
    (24, 1),
    (25, 1),
    (30_000, 1001),
    (30, 1),
    (48, 1),
    (50, 1),
    (60_000, 1001),
    (60, 1),
    (120_000, 1001),
    (120, 1),
];
/// How far a measured rate may be from a standard one, in thousandths of it. 29.97 and 30 are one apart, so
/// the nearest is taken.
const SNAP_PER_MILLE: u64 = 5;
/// What BANDWIDTH is more than the peak seen, in percent.
const HEADROOM_PERCENT: u64 = 10;

/// Rates of the segments seen.
#[derive(Debug, Clone, Default)]
pub struct Rates {
    bytes: u64,
    duration_ns: i128,
    frames: u64,
    peak_bits_per_second: u64,
    segments: u64,
}

impl Rates {
    /// Takes a segment in. Short ones count for the mean only, as their rate says little: the peak is that of
    /// segments of at least half the target duration (RFC 8216bis, 4.4.6.2), or of the first.
    pub fn observe(&mut self, segment: &Segment, target_seconds: u32) {
        let nanos = i128::from(segment.duration_ns.max(1));
        let bytes = segment.bytes.len() as u64;
        self.bytes += bytes;
        self.duration_ns += nanos;
        self.frames += u64::from(segment.video_samples);
        if self.segments == 0 || rounded_seconds(segment.duration_ns) * 2 >= i64::from(target_seconds) {
            self.peak_bits_per_second = self.peak_bits_per_second.max(bits_per_second(bytes, nanos));
        }
        self.segments += 1;
    }

    /// BANDWIDTH in bits per second: the peak and a tenth.
    pub fn bandwidth(&self) -> u64 {
        let peak = self.peak_bits_per_second.max(self.average_bandwidth());
        peak.saturating_add(peak.saturating_mul(HEADROOM_PERCENT) / 100)
    }

    /// AVERAGE-BANDWIDTH in bits per second.
    pub fn average_bandwidth(&self) -> u64 {
        bits_per_second(self.bytes, self.duration_ns)
    }

    /// FRAME-RATE in thousandths of a frame per second, as a standard rate when it is near one; `None`
    /// without pictures.
    pub fn frame_rate_milli(&self) -> Option<u64> {
        if self.frames == 0 || self.duration_ns == 0 {
            return None;
        }
        let micro = i128::from(self.frames) * NANOS_PER_SECOND * 1_000_000 / self.duration_ns;
        let micro = u64::try_from(micro).unwrap_or(u64::MAX);
        let standard = STANDARD_RATES.map(|(frames, seconds)| frames * 1_000_000 / seconds);
        let near = standard.into_iter().min_by_key(|rate| rate.abs_diff(micro));
        let snapped = near.filter(|rate| rate.abs_diff(micro) <= rate * SNAP_PER_MILLE / 1000);
        Some((snapped.unwrap_or(micro) + 500) / 1000)
    }
}

fn bits_per_second(bytes: u64, nanos: i128) -> u64 {
    let bits = i128::from(bytes) * 8 * NANOS_PER_SECOND / nanos.max(1);
    u64::try_from(bits).unwrap_or(u64::MAX)
}
