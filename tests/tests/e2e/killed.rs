//! Repeated `kill -9` while several paid sessions with webhooks run: charges stay, nothing is charged twice, and every event
//! arrives.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use satcast_tests::api::{Api, Stream};
use satcast_tests::encoder::Publish;
use satcast_tests::postgres::Postgres;
use satcast_tests::receiver::Receiver;
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::soak;
use satcast_tests::source::Source;
use satcast_tests::wait::{until, until_api};
use serde_json::{Value, json};

/// Kills of a normal run; `cargo xtask soak` does hundreds.
const KILLS: u64 = 10;
/// The kill comes at a random moment of this time after media flows.
const KILL_WITHIN_MS: u64 = 900;
const STREAMS: usize = 2;
/// Destinations of a session: one is free, two are paid.
const DESTINATIONS: usize = 3;
/// Sessions of each round: with two events for each, ten kills send more than 500 events.
const WEBHOOKS: usize = 13;
const PAGE: usize = 1_000;

/// All entries of a list, page after page.
fn all(api: &Api, path: &str) -> Vec<Value> {
    let (mut entries, mut next) = (Vec::new(), format!("{path}?limit={PAGE}"));
    for _ in 0..1_000 {
        let answer = api.get(&next);
        let link = answer.header("link").map(str::to_owned);
        entries.extend(answer.ok().as_array().cloned().expect("a list"));
        let Some(link) = link else { return entries };
        let address = link.trim_start_matches('<').split('>').next().unwrap_or_default();
        next =
            address.find("/api/").map(|at| address[at..].to_owned()).expect("the address of the next page");
    }
    panic!("{path} has no end");
}

/// What the running sessions cost now, by session.
fn costs(api: &Api) -> BTreeMap<String, i64> {
    let cost = api.get("/api/public/streams/active/cost").ok();
    let streams = cost["streams"].as_array().cloned().unwrap_or_default();
    let entry = |one: &Value| {
        let session = one["sessionId"].as_str().expect("a session").to_owned();
        (session, one["totalCharged"].as_i64().expect("an amount"))
    };
    streams.iter().map(entry).collect()
}

fn set_up(setup: Setup) -> (Service, Receiver, Vec<Stream>, Sink) {
    let (sink, receiver) = (Sink::recording(), Receiver::start(None));
    let service = setup
        .set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]")
        .set("SATCAST_BILLING__INITIAL_CREDIT_SATS", "1000000")
        .start();
    let api = service.api();
    for number in 0..WEBHOOKS {
        let url = format!("{}/{number}", receiver.url());
        let body = json!({ "url": url, "events": ["stream.started", "stream.ended"] });
        let _ = api.post("/api/webhooks", &body).ok();
    }
    let streams: Vec<Stream> =
        (0..STREAMS).map(|number| api.create_stream(&format!("killed {number}"))).collect();
    for stream in &streams {
        for _ in 0..DESTINATIONS {
            let _ = api.add_destination(stream, &sink.url(), "copy");
        }
    }
    (service, receiver, streams, sink)
}

/// Publishes to all streams, kills the service at a random moment, and starts it again. Returns the costs that it had reported for
/// the sessions.
fn round(
    service: &mut Service,
    streams: &[Stream],
    source: &Source,
    after: Duration,
) -> BTreeMap<String, i64> {
    let api = service.api();
    let mut encoders: Vec<_> = streams
        .iter()
        .map(|stream| Publish::of(source).endless().to(&service.ingest_url(&stream.key)))
        .collect();
    for stream in streams {
        let _ = api.wait_for_stream(stream, "live");
    }
    std::thread::sleep(after);
    let reported = costs(&api);
    service.kill();
    encoders.iter_mut().for_each(|encoder| encoder.cut());
    service.start();
    service.run(&["ledger", "check"]);
    reported
}

#[test]
fn soak_kills_during_sessions_lose_nothing_and_charge_nothing_twice() {
    killed_again_and_again(Setup::default());
}

#[test]
fn soak_kills_during_sessions_lose_nothing_on_postgresql() {
    let server = Postgres::durable();
    server.make_database("killed");
    killed_again_and_again(Setup::default().set("SATCAST_DATABASE__URL", &server.url("killed")));
}

fn killed_again_and_again(setup: Setup) {
    let source = Source::shared();
    let (mut service, receiver, streams, _sink) = set_up(setup);
    let mut random = soak::seed();
    let mut reported = BTreeMap::new();
    for _ in 0..soak::rounds(KILLS) {
        let after = Duration::from_millis(soak::next(&mut random) % KILL_WITHIN_MS);
        reported.extend(round(&mut service, &streams, &source, after));
    }
    let api = service.api();
    let history = all(&api, "/api/stream-history");
    let sessions: BTreeSet<&str> = history.iter().filter_map(|entry| entry["sessionId"].as_str()).collect();
    let charged_ones = reported.iter().filter(|(_, sats)| **sats > 0);
    for (session, _) in charged_ones {
        assert!(sessions.contains(session.as_str()), "{session} was lost");
    }

    let mut charged = BTreeMap::<String, i64>::new();
    let mut seen = BTreeSet::new();
    for entry in all(&api, "/api/wallet/ledger").iter().filter(|entry| entry["kind"] == "minute") {
        let session = entry["sessionId"].as_str().expect("a session").to_owned();
        let (minute, destination) = (entry["minute"].as_i64(), entry["destinationId"].as_i64());
        assert_eq!(entry["amountMsat"], -2_000, "{entry}");
        assert!(seen.insert((session.clone(), minute, destination)), "charged twice: {entry}");
        *charged.entry(session).or_default() += 2;
    }
    let mut reported_sum = 0;
    for (session, sats) in &reported {
        let kept = charged.get(session).copied().unwrap_or_default();
        // A charge may have been posted between the answer and the kill, but never more than one minute costs.
        assert!(kept >= *sats && kept <= 4, "session {session}: {sats} sats reported, {kept} charged");
        reported_sum += *sats;
    }
    assert!(reported_sum > 0, "no charge was posted before any of the kills");
    let spent: i64 = charged.values().sum();
    assert_eq!(api.get("/api/wallet/balance").ok()["balance"], 1_000_000 - spent);

    everything_arrives(&api, &receiver, &sessions);
}

/// Each webhook got the start and the end of each session, from any of the processes.
fn everything_arrives(api: &Api, receiver: &Receiver, sessions: &BTreeSet<&str>) {
    let mut missing: BTreeSet<(String, &str, String)> = BTreeSet::new();
    for session in sessions {
        for kind in ["stream.started", "stream.ended"] {
            let of_webhook = |number| ((*session).to_owned(), kind, format!("/in/{number}"));
            missing.extend((0..WEBHOOKS).map(of_webhook));
        }
    }
    let (wanted, mut looked_at) = (missing.len(), 0);
    until("all events", || {
        let received = receiver.received();
        for request in &received[looked_at..] {
            let event = request.json();
            let session = event["data"]["sessionId"].as_str().expect("a session").to_owned();
            let kind = if event["type"] == "stream.started" { "stream.started" } else { "stream.ended" };
            missing.remove(&(session, kind, request.path.clone()));
        }
        looked_at = received.len();
        if missing.is_empty() { Ok(()) } else { Err(format!("{} of {wanted} are missing", missing.len())) }
    });
    println!("{} sessions, {wanted} deliveries, {looked_at} requests", sessions.len());
    until_api("an empty queue", || {
        for webhook in api.get("/api/webhooks").ok().as_array().expect("a list") {
            let waiting = api.get(&format!("/api/webhooks/{}/deliveries?state=pending", webhook["id"])).ok();
            if waiting.as_array().is_none_or(|list| !list.is_empty()) {
                return Err(waiting.to_string());
            }
        }
        Ok(())
    });
}
