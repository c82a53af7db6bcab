//! Bit rates and frame rate, measured over the segments of one initialization segment.

use super::rounded_seconds;
use crate::segment::{Part, Segment};

const NANOS_PER_SECOND: i128 = 1_000_000_000;
/// Standard frame rates to which a measured rate is rounded, as frames in seconds.
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
/// Largest distance of a measured rate from a standard one, in thousandths. 29.97 and 30 differ by one thousandth, so
/// the nearest is used.
const SNAP_PER_MILLE: u64 = 5;
/// BANDWIDTH in percent above the measured peak.
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
    /// Adds a segment. A short one counts for the mean only, because its rate is not representative: the peak covers
    /// segments of at least half the target duration (RFC 8216bis, 4.4.6.2) and the first segment.
    pub fn observe(&mut self, segment: &Segment, target_seconds: u32) {
        if self.segments == 0 {
            *self = Self::default();
        }
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

    /// Adds a part of the first segment: its parts are all that is known until the segment counts instead of them.
    pub fn observe_part(&mut self, part: &Part) {
        if self.segments == 0 {
            self.bytes += part.bytes.len() as u64;
            self.duration_ns += i128::from(part.duration_ns);
        }
    }

    /// BANDWIDTH in bits per second: the peak plus 10 %.
    pub fn bandwidth(&self) -> u64 {
        let peak = self.peak_bits_per_second.max(self.average_bandwidth());
        peak.saturating_add(peak.saturating_mul(HEADROOM_PERCENT) / 100)
    }

    /// AVERAGE-BANDWIDTH in bits per second.
    pub fn average_bandwidth(&self) -> u64 {
        bits_per_second(self.bytes, self.duration_ns)
    }

    /// FRAME-RATE in thousandths of a frame per second, rounded to a near standard rate; `None`
    /// without video.
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
