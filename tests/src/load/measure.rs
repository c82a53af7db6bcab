//! One server under one load.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use super::publishers::Publishers;
use super::servers::{Kind, Load, Running};
use super::sinks::{Sinks, Tally};
use crate::figures::median;
use crate::figures::results::OURS;
use crate::process::Process;
use crate::wait::{self, seconds};

/// Time from the first frame on the last route to the beginning of the window.
const WARM_UP: Duration = Duration::from_secs(3);
/// Least share of the frames at the sinks. With less the server did not keep up, and its figures are not comparable.
const SERVED_SHARE_MIN: f64 = 0.9;
/// A route without a frame for this time has lost all of them.
const SILENCE_MAX: Duration = seconds(2);

/// Results of one measurement.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// CPU seconds of the server for each stream-minute.
    pub cpu: f64,
    /// The same of the database of nodes.
    pub database_cpu: f64,
    /// The same of the load: publishers, sinks and all.
    pub own_cpu: f64,
    /// Latency from sending to the sink, half of the frames.
    pub p50_ms: f64,
    /// The same for 99 of 100.
    pub p99_ms: f64,
    /// From a stream's first packet to the first frame at a destination: median of all routes.
    pub first_ms: f64,
    /// The longest of all routes.
    pub first_worst_ms: f64,
    /// Memory that the streams added, for each stream.
    pub resident_kib: f64,
    /// The same without the frames since the newest keyframe, which Satcast keeps for new destinations. The peers keep none.
    pub beyond_gop_kib: Option<f64>,
    /// Frames that the sinks received in the window.
    pub frames: f64,
    /// Frames lost, repeated or misrouted, and connections lost.
    pub wrong: u64,
}

impl Figures {
    /// Those of the benchmarks, with their names in the results.
    #[must_use]
    pub fn named(&self) -> Vec<(&'static str, f64)> {
        let mut named = vec![
            ("cpu", self.cpu),
            ("p50_ms", self.p50_ms),
            ("p99_ms", self.p99_ms),
            ("first_ms", self.first_ms),
            ("first_worst_ms", self.first_worst_ms),
            ("kib_per_stream", self.resident_kib),
            ("frames", self.frames),
            ("wrong", self.wrong as f64),
            ("load_cpu", self.own_cpu),
        ];
        named.extend(self.beyond_gop_kib.map(|value| ("kib_beyond_gop", value)));
        named
    }
}

/// Measures `kind` once.
///
/// # Panics
/// When it does not keep up, or Satcast loses, repeats or misroutes a frame.
#[must_use]
pub fn measure(kind: Kind, load: Load, window: Duration) -> Figures {
    let clock = Instant::now();
    let sinks = if load.srt {
        Sinks::start_srt(clock, load.streams)
    } else {
        Sinks::start(clock, load.streams, load.destinations)
    };
    let running = Running::start(kind, load, &sinks);
    let resident_before = resident_kib(&running);
    let ingests = running.ingests.clone();
    let publishers =
        if load.srt { Publishers::start_srt(clock, ingests) } else { Publishers::start(clock, ingests) };
    wait::until("a frame over every route", || match (publishers.frames(), sinks.silent()) {
        (_, 0) => Ok(()),
        (frames, silent) => Err(format!("{frames} frames are sent, {silent} routes have none")),
    });
    std::thread::sleep(WARM_UP);

    sinks.measure();
    let (before, began) = (Reading::of(&running, &publishers, &sinks), Instant::now());
    std::thread::sleep(window);
    let (after, took) = (Reading::of(&running, &publishers, &sinks), began.elapsed());
    let (resident, gop_bytes) = (resident_kib(&running), publishers.gop_bytes());

    let sent = (after.sent - before.sent) as f64 * load.destinations as f64;
    let got = (after.got - before.got) as f64;
    let name = kind.name();
    assert!(got >= SERVED_SHARE_MIN * sent, "{name} did not keep up: {got} of {sent} frames came");
    let (tally, stopped) = (sinks.tally(), sinks.stopped(SILENCE_MAX));
    assert!(name != OURS || stopped == 0, "{name} sent nothing more on {stopped} routes");
    assert!(name != OURS || tally.wrong() == 0, "{name} was wrong: {}", Wrong(&tally));
    let first = first(load, &publishers, &sinks);
    let minutes = took.as_secs_f64() / 60.0 * load.streams as f64;
    let resident_kib = resident.saturating_sub(resident_before) as f64 / load.streams as f64;
    let gop_kib = gop_bytes as f64 / 1024.0 / load.streams as f64;
    let [p50_ms, p99_ms] = latencies(tally.latencies.clone());
    Figures {
        cpu: (after.cpu - before.cpu).as_secs_f64() / minutes,
        database_cpu: (after.database_cpu - before.database_cpu).as_secs_f64() / minutes,
        own_cpu: (after.own_cpu - before.own_cpu).as_secs_f64() / minutes,
        p50_ms,
        p99_ms,
        first_ms: median(&first),
        first_worst_ms: first.iter().copied().fold(0.0, f64::max),
        resident_kib,
        beyond_gop_kib: (name == OURS).then_some(resident_kib - gop_kib),
        frames: got,
        wrong: tally.wrong(),
    }
}

fn resident_kib(running: &Running) -> u64 {
    running.processes().into_iter().map(Process::resident_kib).sum()
}

/// All counters at one time.
struct Reading {
    cpu: Duration,
    database_cpu: Duration,
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
        let cpu = running.processes().into_iter().map(Process::cpu).sum();
        let database_cpu = running.database_cpu();
        Self { cpu, database_cpu, own_cpu, sent: publishers.frames(), got: sinks.frames() }
    }
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
fn first(load: Load, publishers: &Publishers, sinks: &Sinks) -> Vec<f64> {
    let of_stream = |stream: usize| {
        let begun = publishers.begun(stream).expect("every stream has begun");
        sinks.first(stream).into_iter().flatten().map(move |first| first.saturating_sub(begun))
    };
    (0..load.streams).flat_map(of_stream).map(|took| took.as_secs_f64() * 1000.0).collect()
}

/// The latency of half and of 99 of 100 frames, in milliseconds.
fn latencies(mut micros: Vec<u32>) -> [f64; 2] {
    assert!(!micros.is_empty(), "no frame came in the window");
    micros.sort_unstable();
    [50, 99].map(|share| f64::from(micros[(micros.len() - 1) * share / 100]) / 1000.0)
}
