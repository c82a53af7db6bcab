//! Money on the built service: charges are immediate, never exceed the balance, and stay complete after `kill -9`.

use satcast_tests::api::{Api, Stream};
use satcast_tests::encoder::Publish;
use satcast_tests::service::Setup;
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::wait::until_api;
use serde_json::{Value, json};

/// Waits until `count` destinations have the state, and returns them.
fn destinations(api: &Api, stream: &Stream, state: &str, count: usize) -> Vec<Value> {
    until_api(&format!("{count} destinations {state}"), || {
        let all = api.stream(stream)["destinations"].as_array().cloned().unwrap_or_default();
        let found: Vec<Value> = all.into_iter().filter(|one| one["state"] == state).collect();
        if found.len() == count { Ok(found) } else { Err(format!("{} are {state}", found.len())) }
    })
}

fn wait_for_charge(api: &Api, sats: i64) -> Value {
    until_api("the charge", || {
        let cost = api.get("/api/public/streams/active/cost").ok();
        if cost["totalCost"] == sats { Ok(cost) } else { Err(cost.to_string()) }
    })
}

#[test]
fn destinations_run_as_far_as_the_credit_goes_and_a_kill_leaves_a_whole_ledger() {
    let source = Source::shared();
    let sink = Sink::recording();
    let mut service = Setup::default().set("SATCAST_BILLING__INITIAL_CREDIT_SATS", "5").start();
    let api = service.api();
    let stream = api.create_stream("charged");
    for key in ["a", "b", "c", "d"] {
        api.add_destination(&stream, &sink.url(), key);
    }
    let mut encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    sink.wait_for_media(60);
    // One is free, two are paid, and 1 sat does not pay a fourth.
    let cost = wait_for_charge(&api, 4);
    assert_eq!(cost["streams"][0]["ratePerMinute"], 4, "{cost}");
    assert!(cost["streams"][0]["budgetEndsAt"].is_i64(), "1 sat does not pay the next minute: {cost}");
    assert_eq!(destinations(&api, &stream, "stopped", 1)[0]["error"], "insufficient_funds");
    destinations(&api, &stream, "live", 3);
    assert_eq!(sink.publishes(), 3, "the fourth destination was connected");
    assert_eq!(api.get("/api/wallet/balance").ok()["balance"], 1);
    let ledger = api.get("/api/wallet/ledger").ok();
    let entries: Vec<_> =
        ledger.as_array().unwrap().iter().map(|entry| (&entry["kind"], &entry["amountMsat"])).collect();
    let minute = (&json!("minute"), &json!(-2_000));
    assert_eq!(entries, [minute, minute, (&json!("promotion"), &json!(5_000))]);

    service.kill();
    encoder.cut();
    service.start();
    service.run(&["ledger", "check"]);
    assert_eq!(api.get("/api/wallet/balance").ok()["balance"], 1);
    let history = api.get("/api/stream-history").ok();
    let sum: i64 =
        history.as_array().unwrap().iter().map(|entry| entry["totalCostSats"].as_i64().unwrap()).sum();
    assert_eq!(sum, 4, "{history}");
    assert_eq!(api.get("/api/dashboard/stats").ok()["totalSatsSpent"], 4);

    // The free destination continues without money.
    let _encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    destinations(&api, &stream, "live", 1);
    destinations(&api, &stream, "stopped", 3);
    service.run(&["ledger", "check"]);
}

#[test]
fn a_budget_pauses_unpaid_destinations_until_it_is_raised() {
    let source = Source::shared();
    let sink = Sink::recording();
    let service = Setup::default().start();
    let api = service.api();
    let stream = api.create_stream("budget");
    for key in ["a", "b"] {
        api.add_destination(&stream, &sink.url(), key);
    }
    let limits = format!("/api/streams/{}/limits", stream.id);
    let _ = api.post(&limits, &json!({"maxSats": 1})).ok();
    let _encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    assert_eq!(destinations(&api, &stream, "stopped", 1)[0]["error"], "budget");
    destinations(&api, &stream, "live", 1);
    let _ = api.post(&limits, &json!({"maxSats": 10})).ok();
    destinations(&api, &stream, "live", 2);
    wait_for_charge(&api, 2);
    let _ = api.post(&limits, &json!({"maxSats": 1})).ok();
    until_api("the end", || {
        let detail = api.stream(&stream);
        if detail["lastEndReason"] == "max_sats" { Ok(()) } else { Err(detail.to_string()) }
    });
    service.run(&["ledger", "check"]);
}

/// It runs in real time, so it uses the shortest case: two paid destinations at 2 sats, and no second minute.
#[test]
fn a_session_that_spends_its_budget_ends_at_the_minute_with_exactly_that() {
    let source = Source::shared();
    let sink = Sink::recording();
    let service = Setup::default().start();
    let api = service.api();
    let stream = api.create_stream("a minute");
    for key in ["a", "b", "c"] {
        api.add_destination(&stream, &sink.url(), key);
    }
    let _ = api.post(&format!("/api/streams/{}/limits", stream.id), &json!({"maxSats": 7})).ok();
    let _encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    destinations(&api, &stream, "live", 3);
    until_api("the end", || {
        let detail = api.stream(&stream);
        if detail["lastEndReason"] == "max_sats" { Ok(()) } else { Err(detail["state"].to_string()) }
    });
    let history = api.get("/api/stream-history").ok();
    let entries = history.as_array().expect("a list");
    assert_eq!(entries.len(), 3, "{history}");
    let mut costs: Vec<_> = entries.iter().map(|entry| entry["totalCostSats"].as_i64()).collect();
    costs.sort_unstable();
    assert_eq!(costs, [Some(0), Some(2), Some(2)], "{history}");
    let times =
        |name: &str| entries.iter().map(|entry| entry[name].as_i64().expect(name)).collect::<Vec<_>>();
    let (began, ended) = (times("startedAt"), times("endedAt"));
    let lasted = ended[0] - began.iter().min().expect("a start");
    // From the service's own history: the destinations go live shortly after the session's start, and all of them end with it.
    assert!(ended.iter().all(|at| *at == ended[0]), "{history}");
    assert!((58_000..=61_000).contains(&lasted), "{lasted} ms: {history}");
    assert_eq!(api.get("/api/wallet/balance").ok()["balance"], 10_000 - 4);
    service.run(&["ledger", "check"]);
}
