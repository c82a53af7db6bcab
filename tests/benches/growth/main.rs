//! How CPU, memory and p99 grow with streams, destinations, nodes, viewers, the DVR window, webhooks and the history; the law of each
//! is printed.
//!
//! `cargo xtask bench growth [streams] [destinations] [nodes] [viewers] [window] [webhooks] [history] [--repeats N] [--seconds S]`.
//! Figures are those of the whole service, so that twice as much work may cost twice as much. Frames are counted as in `bench relay`,
//! and an answer that is not 200 ends the run.

mod history;
mod playback;
mod relay;

use satcast_tests::figures::Options;
use satcast_tests::figures::results::Results;
use satcast_tests::load::webhooks::{Queue, measure};
use satcast_tests::usage::allow_many_files;

const REPEATS: usize = 1;
const WINDOW_SECONDS: u64 = 10;
/// The growing cases. The two largest steps tell the law, so they are four times apart and more; a second node
/// does twice the work.
const PARTS: [(&str, Run); 7] = [
    ("streams", relay::streams),
    ("destinations", relay::destinations),
    ("nodes", relay::nodes),
    ("viewers", playback::viewers),
    ("window", playback::window),
    ("webhooks", webhooks),
    ("history", history::run),
];
const WEBHOOKS: [u64; 4] = [1, 10, 100, 1_000];
/// Deliveries that are due for each webhook.
const DUE_EACH: i64 = 10;

type Run = fn(Options, &mut Results);

fn main() {
    let (options, names) = Options::with_names(REPEATS, WINDOW_SECONDS, &PARTS.map(|(name, _)| name));
    allow_many_files();
    let mut results = Results::new();
    for (name, run) in PARTS {
        if names.contains(&name) {
            run(options, &mut results);
        }
    }
    results.print();
}

/// Notes the figures of one step.
fn note<const N: usize>(
    results: &mut Results,
    row: &str,
    step: u64,
    repeat: usize,
    figures: [(&str, f64); N],
) {
    for (figure, value) in figures {
        println!("{row} {step}, repeat {}: {figure} {value:.3}", repeat + 1);
        results.note_step(row, step, figure, repeat, value);
    }
}

fn webhooks(options: Options, results: &mut Results) {
    for step in WEBHOOKS {
        let webhooks = i64::try_from(step).expect("a count");
        for repeat in 0..options.repeats {
            let measured = measure(Queue { webhooks, waiting_each: 0, due_each: DUE_EACH });
            let figures = [("cpu_s", measured.cpu_s), ("mib", measured.mib), ("p99_ms", measured.p99_ms)];
            note(results, "growth of webhooks", step, repeat, figures);
        }
    }
}
