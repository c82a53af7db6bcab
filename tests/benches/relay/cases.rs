//! The measured cases.

use satcast_tests::load::servers::Load;

/// A load with its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) load: Load,
}

const fn case(name: &'static str, streams: usize, destinations: usize, read_batch_ms: Option<u64>) -> Case {
    Case { name, load: Load { streams, destinations, read_batch_ms, srt: false } }
}

const fn srt(name: &'static str, streams: usize) -> Case {
    Case { name, load: Load { streams, destinations: 1, read_batch_ms: None, srt: true } }
}

/// All of them.
pub(crate) const CASES: [Case; 11] = [
    case("1x1", 1, 1, None),
    case("1x3", 1, 3, None),
    case("10x1", 10, 1, None),
    case("10x3", 10, 3, None),
    case("100x1", 100, 1, None),
    case("100x3", 100, 3, None),
    case("100x3-soon", 100, 3, Some(5)),
    case("10x3-now", 10, 3, Some(0)),
    case("100x3-now", 100, 3, Some(0)),
    srt("srt-1x1", 1),
    srt("srt-10x1", 10),
];
