//! Events for many webhooks of one fast receiver, written into the database while the service is stopped.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::database::Database;
use crate::receiver::Receiver;
use crate::service::{Service, Setup};
use crate::wait::within;

const LIMIT: Duration = Duration::from_secs(300);
/// A key may write 60 times a minute.
const KEY_WRITES: i64 = 50;
const DAY_MS: i64 = 86_400_000;

/// The queue of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Webhooks, each with a queue of its own; the receiver is the same for all.
    pub webhooks: i64,
    /// Deliveries of each webhook that wait for tomorrow.
    pub waiting_each: i64,
    /// Deliveries of each webhook that are due.
    pub due_each: i64,
}

/// The deliveries of a queue, from the first request that came to the last.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Deliveries a second.
    pub per_second: f64,
    /// CPU milliseconds of each.
    pub cpu_ms: f64,
    /// CPU seconds of the service since its start.
    pub cpu_s: f64,
    /// Memory of the service in MiB.
    pub mib: f64,
    /// Milliseconds from the first request, within which ninety-nine of a hundred came.
    pub p99_ms: f64,
}

/// Starts a service with this queue, and waits until everything due has come.
///
/// # Panics
/// When it does not come.
#[must_use]
pub fn measure(queue: Queue) -> Measured {
    let receiver = Receiver::start(None);
    let mut service = service(&receiver, queue.webhooks);
    let _ = service.stop();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_millis();
    let now = i64::try_from(now).expect("a time");
    let mut database = Database::of(service.folder());
    database.make_deliveries(queue.waiting_each, now + DAY_MS);
    database.make_deliveries(queue.due_each, now);
    drop(database);

    service.start();
    let wanted = usize::try_from(queue.webhooks * queue.due_each).expect("a count");
    wait_for(&receiver, 1);
    let (began, first, cpu) = (Instant::now(), receiver.count(), service.process().cpu());
    wait_for(&receiver, wanted);
    let (took, all, kib) = (began.elapsed(), service.process().cpu(), service.process().resident_kib());
    // A short queue may be sent before the first look.
    let sent = (wanted - first).max(1) as f64;
    let times = receiver.times();
    let slowest = times[(times.len() - 1) * 99 / 100].saturating_duration_since(times[0]);
    Measured {
        per_second: sent / took.as_secs_f64(),
        cpu_ms: (all - cpu).as_secs_f64() * 1_000.0 / sent,
        cpu_s: all.as_secs_f64(),
        mib: kib as f64 / 1_024.0,
        p99_ms: slowest.as_secs_f64() * 1_000.0,
    }
}

fn service(receiver: &Receiver, webhooks: i64) -> Service {
    let service = Setup::default()
        .set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]")
        .set("SATCAST_LIMITS__WEBHOOKS_PER_ACCOUNT", &webhooks.to_string())
        .start();
    let mut api = service.api();
    for number in 0..webhooks {
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
    within("requests", LIMIT, || {
        let came = receiver.count();
        if came >= count { Ok(()) } else { Err(format!("{came} of {count} came")) }
    });
}
