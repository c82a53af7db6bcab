//! The sender of webhooks: deliveries a second to one fast receiver, with an empty queue and behind 100,000 that wait, and the
//! memory of the service meanwhile.
//!
//! `cargo xtask bench webhooks [--repeats N]`. Time runs from the first request that arrives to the last.

use satcast_tests::figures::Options;
use satcast_tests::figures::results::{OURS, Results};
use satcast_tests::load::webhooks::{Queue, measure};

const REPEATS: usize = 3;
const WEBHOOKS: i64 = 100;
/// Most waiting deliveries of one webhook.
const WAITING_EACH: i64 = 1_000;
/// Deliveries of one measurement.
const DUE_EACH: i64 = 50;

fn main() {
    let options = Options::from_arguments(REPEATS, 1);
    let mut results = Results::new();
    for (row, waiting_each) in [("webhooks", 0), ("webhooks behind 100,000 waiting", WAITING_EACH - DUE_EACH)]
    {
        let queue = Queue { webhooks: WEBHOOKS, waiting_each, due_each: DUE_EACH };
        for repeat in 0..options.repeats {
            let measured = measure(queue);
            let figures =
                [("per_s", measured.per_second), ("cpu_ms", measured.cpu_ms), ("mib", measured.mib)];
            for (figure, value) in figures {
                results.note(row, figure, OURS, repeat, value);
            }
        }
    }
    results.print();
}
