//! The measured cases and their targets.

use crate::measure::Figures;

/// A load and the targets for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) streams: usize,
    pub(crate) destinations: usize,
    /// Time between reads of an encoder in milliseconds, where it is not Satcast's default.
    pub(crate) read_batch_ms: Option<u64>,
    /// Highest ratio of CPU to nginx-rtmp, where the case has such a target.
    ratio_max: Option<f64>,
    /// Longest latency in milliseconds: half of the frames, and 99 of 100.
    p50_ms_max: Option<f64>,
    p99_ms_max: Option<f64>,
}

/// Longest time from a stream's first packet to the first frame at a destination, in milliseconds.
const FIRST_MS_MAX: f64 = 150.0;
/// Most memory of a stream with three destinations, in KiB, where many streams share the memory of the process itself.
const RESIDENT_KIB_MAX: f64 = 600.0;

const fn case(name: &'static str, streams: usize, destinations: usize, ratio_max: Option<f64>) -> Case {
    let (p50_ms_max, p99_ms_max) = (None, Some(150.0));
    Case { name, streams, destinations, read_batch_ms: None, ratio_max, p50_ms_max, p99_ms_max }
}

/// All of them.
pub(crate) const CASES: [Case; 8] = [
    case("1x1", 1, 1, Some(1.0)),
    case("1x3", 1, 3, Some(1.0)),
    case("10x1", 10, 1, Some(0.8)),
    case("10x3", 10, 3, None),
    case("100x1", 100, 1, Some(0.8)),
    case("100x3", 100, 3, Some(0.65)),
    Case { read_batch_ms: Some(5), ..case("100x3-soon", 100, 3, None) },
    Case {
        read_batch_ms: Some(0),
        p50_ms_max: Some(1.0),
        p99_ms_max: Some(5.0),
        ..case("100x3-now", 100, 3, Some(1.0))
    },
];

impl Case {
    /// Settings of Satcast that differ from the defaults.
    pub(crate) fn remark(&self) -> String {
        self.read_batch_ms.map(|wait| format!(", read_batch_ms = {wait}")).unwrap_or_default()
    }

    /// A line for each target: met or missed by `ours`, whose `cpu` is the ratio to nginx-rtmp.
    pub(crate) fn targets(&self, ours: &Figures) -> Vec<String> {
        let resident = (self.destinations == 3 && self.streams >= 50).then_some(RESIDENT_KIB_MAX);
        let aims = [
            ("CPU / nginx-rtmp", ours.cpu, self.ratio_max),
            ("p50 ms", ours.p50_ms, self.p50_ms_max),
            ("p99 ms", ours.p99_ms, self.p99_ms_max),
            ("first frame ms", ours.first_ms, Some(FIRST_MS_MAX)),
            ("KiB each", ours.resident_kib, resident),
        ];
        let lines = aims.into_iter().filter_map(|(what, value, most)| {
            let most = most?;
            let outcome = if value <= most { "met" } else { "MISSED" };
            Some(format!("{:>18} {what} {value:.2}, at most {most:.2}: {outcome}", "target"))
        });
        lines.collect()
    }
}
