//! The sender of webhooks: deliveries a second to one fast receiver, with an empty queue and behind 100,000 that wait, and the
//! memory of the service meanwhile.
//!
//! `cargo xtask bench webhooks [--repeats N]`. The queue is written into the database while the service is stopped; time runs
//! from the first request that arrives to the last.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use satcast_tests::database::Database;
use satcast_tests::figures::{Options, summary};
use satcast_tests::receiver::Receiver;
use satcast_tests::service::{Service, Setup};
use satcast_tests::wait::until;
use serde_json::json;

const REPEATS: usize = 3;
/// Each with a queue of its own; the receiver is the same for all.
const WEBHOOKS: i64 = 100;
/// Most waiting deliveries of one webhook.
const WAITING_EACH: i64 = 1_000;
/// Deliveries of one measurement.
const DUE_EACH: i64 = 50;
const LIMIT: Duration = Duration::from_secs(300);
const KEY_WRITES: i64 = 50;
const DAY_MS: i64 = 86_400_000;

struct Measured {
    per_second: f64,
    cpu_each: f64,
    resident_mib: f64,
}

fn main() {
    let options = Options::from_arguments(REPEATS, 1);
    for (name, waiting) in [("an empty queue", 0), ("100,000 waiting", WAITING_EACH - DUE_EACH)] {
        let measured: Vec<Measured> = (0..options.repeats).map(|_| measure(waiting)).collect();
        let of = |value: fn(&Measured) -> f64| summary(&measured.iter().map(value).collect::<Vec<_>>());
        println!("{name}: deliveries a second {}", of(|one| one.per_second));
        println!("{name}: CPU milliseconds each {}", of(|one| one.cpu_each));
        println!("{name}: resident MiB {}", of(|one| one.resident_mib));
    }
}

fn measure(waiting: i64) -> Measured {
    let receiver = Receiver::start(None);
    let mut service = service(&receiver);
    let _ = service.stop();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_millis();
    let now = i64::try_from(now).expect("a time");
    let mut database = Database::of(service.folder());
    database.make_deliveries(waiting, now + DAY_MS);
    database.make_deliveries(DUE_EACH, now);
    drop(database);

    service.start();
    let wanted = usize::try_from(WEBHOOKS * DUE_EACH).expect("a count");
    wait_for(&receiver, 1);
    let (began, first, cpu) = (Instant::now(), receiver.count(), service.process().cpu());
    wait_for(&receiver, wanted);
    let (took, cpu) = (began.elapsed(), service.process().cpu() - cpu);
    let (sent, kib) = ((wanted - first) as f64, service.process().resident_kib() as f64);
    Measured {
        per_second: sent / took.as_secs_f64(),
        cpu_each: cpu.as_secs_f64() * 1_000.0 / sent,
        resident_mib: kib / 1_024.0,
    }
}

fn service(receiver: &Receiver) -> Service {
    let service = Setup::default()
        .set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]")
        .set("SATCAST_LIMITS__WEBHOOKS_PER_ACCOUNT", &WEBHOOKS.to_string())
        .start();
    let mut api = service.api();
    for number in 0..WEBHOOKS {
        // A key may write 60 times a minute.
        if number % KEY_WRITES == 0 {
            let made = service.api().post("/api/keys", &json!({ "type": "permanent", "label": "more" })).ok();
            api = service.api().with_key(made["key"].as_str());
        }
        let url = format!("{}/{number}", receiver.url());
        let body = json!({ "url": url, "events": ["stream.started"], "secret": "auto" });
        let _ = api.post("/api/webhooks", &body).ok();
    }
    service
}

fn wait_for(receiver: &Receiver, count: usize) {
    until("requests", LIMIT, || {
        let came = receiver.count();
        if came >= count { Ok(()) } else { Err(format!("{came} of {count} came")) }
    });
}
