//! One server under one load.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use satcast_tests::figures::median;
use satcast_tests::load::publishers::Publishers;
use satcast_tests::load::sinks::{Sinks, Tally};
use satcast_tests::wait::{self, seconds};

use crate::cases::Case;
use crate::servers::{Kind, Running};

/// Time from the first frame on the last route to the beginning of the window.
const WARM_UP: Duration = Duration::from_secs(3);
const BEGIN_LIMIT: Duration = seconds(60);
/// Least share of the frames at the sinks. With less the server did not keep up, and its figures are not comparable.
const SERVED_SHARE_MIN: f64 = 0.9;

/// Results of one measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// CPU seconds of the server for each stream-minute.
    pub(crate) cpu: f64,
    /// The same of the load: publishers, sinks and all.
    pub(crate) own_cpu: f64,
    /// Latency from sending to the sink, half of the frames.
    pub(crate) p50_ms: f64,
    /// The same for 99 of 100.
    pub(crate) p99_ms: f64,
    /// From a stream's first packet to the first frame at a destination: median of all routes.
    pub(crate) first_ms: f64,
    /// The longest of all routes.
    pub(crate) first_worst_ms: f64,
    /// Memory that the streams added, for each stream.
    pub(crate) resident_kib: f64,
    /// Frames lost, repeated or misrouted, and connections lost.
    pub(crate) wrong: u64,
}

/// Measures `kind` once.
pub(crate) fn measure(kind: Kind, case: &Case, window: Duration) -> Figures {
    let clock = Instant::now();
    let sinks = Sinks::start(clock, case.streams, case.destinations);
    let running = Running::start(kind, case, &sinks);
    let resident_before = running.process().resident_kib();
    let publishers = Publishers::start(clock, running.ingests.clone());
    wait::until("a frame over every route", BEGIN_LIMIT, || match (publishers.frames(), sinks.silent()) {
        (_, 0) => Ok(()),
        (frames, silent) => Err(format!("{frames} frames are sent, {silent} routes have none")),
    });
    std::thread::sleep(WARM_UP);

    sinks.measure();
    let (before, began) = (Reading::of(&running, &publishers, &sinks), Instant::now());
    std::thread::sleep(window);
    let (after, took) = (Reading::of(&running, &publishers, &sinks), began.elapsed());
    let resident = running.process().resident_kib();

    let sent = (after.sent - before.sent) as f64 * case.destinations as f64;
    let got = (after.got - before.got) as f64;
    let name = kind.name();
    assert!(got >= SERVED_SHARE_MIN * sent, "{name} did not keep up: {got} of {sent} frames came");
    let tally = sinks.tally();
    assert!(kind != Kind::Satcast || wrong(&tally) == 0, "{name} was wrong: {}", Wrong(&tally));
    let first = first(case, &publishers, &sinks);
    let minutes = took.as_secs_f64() / 60.0 * case.streams as f64;
    let [p50_ms, p99_ms] = latencies(tally.latencies.clone());
    Figures {
        cpu: (after.cpu - before.cpu).as_secs_f64() / minutes,
        own_cpu: (after.own_cpu - before.own_cpu).as_secs_f64() / minutes,
        p50_ms,
        p99_ms,
        first_ms: median(&first),
        first_worst_ms: first.iter().copied().fold(0.0, f64::max),
        resident_kib: resident.saturating_sub(resident_before) as f64 / case.streams as f64,
        wrong: wrong(&tally),
    }
}

/// All counters at one time.
struct Reading {
    cpu: Duration,
    own_cpu: Duration,
    sent: u64,
    got: u64,
}

impl Reading {
    fn of(running: &Running, publishers: &Publishers, sinks: &Sinks) -> Self {
        let own = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("the CPU time of this process");
        let own_cpu = Duration::new(
            own.tv_sec().try_into().unwrap_or_default(),
            own.tv_nsec().try_into().unwrap_or_default(),
        );
        let cpu = running.process().cpu();
        Self { cpu, own_cpu, sent: publishers.frames(), got: sinks.frames() }
    }
}

fn wrong(tally: &Tally) -> u64 {
    tally.lost + tally.repeated + tally.misrouted + tally.reconnected
}

/// Prints the faults as text.
struct Wrong<'a>(&'a Tally);

impl std::fmt::Display for Wrong<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { frames, lost, repeated, misrouted, reconnected, .. } = self.0;
        write!(formatter, "{frames} frames came, {lost} were lost, {repeated} came again, {misrouted} ")?;
        write!(formatter, "were misrouted, {reconnected} connections were made again")
    }
}

/// Milliseconds from the first packet of a stream to the first frame at each of its destinations.
fn first(case: &Case, publishers: &Publishers, sinks: &Sinks) -> Vec<f64> {
    let of_stream = |stream: usize| {
        let begun = publishers.begun(stream).expect("every stream has begun");
        sinks.first(stream).into_iter().flatten().map(move |first| first.saturating_sub(begun))
    };
    (0..case.streams).flat_map(of_stream).map(|took| took.as_secs_f64() * 1000.0).collect()
}

/// The latency of half and of 99 of 100 frames, in milliseconds.
fn latencies(mut micros: Vec<u32>) -> [f64; 2] {
    assert!(!micros.is_empty(), "no frame came in the window");
    micros.sort_unstable();
    [50, 99].map(|share| f64::from(micros[(micros.len() - 1) * share / 100]) / 1000.0)
}
