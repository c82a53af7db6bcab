//! Many publishers to one and to three servers each: Satcast beside nginx-rtmp and node-media-server in the same run.
//!
//! `cargo xtask bench relay [CASE...] [--repeats N] [--seconds S]`, for instance `cargo xtask bench relay 10x1 --repeats 1`. A
//! case is PUBLISHERSxDESTINATIONS; with `-soon` and `-now` Satcast reads its encoders every 5 ms and as bytes come
//! (`read_batch_ms`). In each repeat the servers take their turn, one after the other, with the same load
//! (`satcast_tests::load`); a ratio is made inside one repeat only, since the machine's speed drifts between them. A frame that
//! Satcast loses, repeats or sends to the wrong place ends the run; faults of a peer are shown.

mod cases;
mod measure;
mod servers;

use std::collections::BTreeMap;

use satcast_tests::figures::{Options, median, summary};

use cases::{CASES, Case};
use measure::Figures;
use servers::Kind;

const REPEATS: usize = 5;
const WINDOW_SECONDS: u64 = 10;

fn main() {
    let names = CASES.map(|case| case.name);
    let (options, names) = Options::with_names(REPEATS, WINDOW_SECONDS, &names);
    println!(
        "streams of 3.05 Mbit/s (720p30, 77 messages a second), {} repeats of {} s; load of the machine {}",
        options.repeats,
        options.window.as_secs(),
        load()
    );
    println!(
        "CPU seconds for each stream-minute and its ratio to nginx-rtmp: median (range); latency from sending to sink"
    );
    for case in CASES.iter().filter(|case| names.contains(&case.name)) {
        run(case, options);
    }
}

fn run(case: &Case, options: Options) {
    println!("\n{} publishers to {} destinations{}", case.streams, case.destinations, case.remark());
    println!(
        "{:>18} {:>22} {:>22} {:>9} {:>9} {:>16} {:>9} {:>6} {:>11}",
        "", "CPU s", "ratio", "p50 ms", "p99 ms", "first frame ms", "KiB each", "wrong", "load's CPU"
    );
    let mut figures: BTreeMap<Kind, Vec<Figures>> = BTreeMap::new();
    for repeat in 0..options.repeats {
        for turn in 0..Kind::ALL.len() {
            // Each repeat begins with another server, so that a warm machine favours none.
            let kind = Kind::ALL[(turn + repeat) % Kind::ALL.len()];
            figures.entry(kind).or_default().push(measure::measure(kind, case, options.window));
        }
    }
    for (kind, own) in &figures {
        println!("{}", row(*kind, own, &figures[&Kind::Nginx]));
    }
    let (ours, theirs) = (&figures[&Kind::Satcast], &figures[&Kind::Nginx]);
    for target in case.targets(&middle(ours, ratio(ours, theirs))) {
        println!("{target}");
    }
}

fn row(kind: Kind, own: &[Figures], nginx: &[Figures]) -> String {
    let middle = middle(own, ratio(own, nginx));
    let first: Vec<f64> = own.iter().map(|figures| figures.first_ms).collect();
    let cpu: Vec<f64> = own.iter().map(|figures| figures.cpu).collect();
    let ratios: Vec<f64> = own.iter().zip(nginx).map(|(own, nginx)| own.cpu / nginx.cpu).collect();
    let worst = own.iter().map(|figures| figures.first_worst_ms).fold(0.0, f64::max);
    format!(
        "{:>18} {:>22} {:>22} {:>9.2} {:>9.2} {:>16} {:>9.0} {:>6} {:>11.3}",
        kind.name(),
        summary(&cpu),
        summary(&ratios),
        middle.p50_ms,
        middle.p99_ms,
        format!("{:.0} (to {worst:.0})", median(&first)),
        middle.resident_kib,
        own.iter().map(|figures| figures.wrong).sum::<u64>(),
        middle.own_cpu
    )
}

fn ratio(own: &[Figures], nginx: &[Figures]) -> f64 {
    median(&own.iter().zip(nginx).map(|(own, nginx)| own.cpu / nginx.cpu).collect::<Vec<_>>())
}

/// The median of each figure; as CPU the ratio.
fn middle(figures: &[Figures], ratio: f64) -> Figures {
    let of = |figure: fn(&Figures) -> f64| median(&figures.iter().map(figure).collect::<Vec<_>>());
    Figures {
        cpu: ratio,
        own_cpu: of(|figures| figures.own_cpu),
        p50_ms: of(|figures| figures.p50_ms),
        p99_ms: of(|figures| figures.p99_ms),
        first_ms: of(|figures| figures.first_ms),
        first_worst_ms: of(|figures| figures.first_worst_ms),
        resident_kib: of(|figures| figures.resident_kib),
        wrong: 0,
    }
}

/// How many processes wanted to run in the last minute, and on how many processors.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let minute = text.split(' ').next().unwrap_or("unknown").to_owned();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{minute} on {processors} processors")
}
