//! The built service moves from its SQLite file to a PostgreSQL server.

use satcast_tests::api::Api;
use satcast_tests::encoder::Publish;
use satcast_tests::postgres::{PASSWORD, Postgres};
use satcast_tests::service::Setup;
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::wait::until_api;
use serde_json::{Value, json};

/// What the account sees of its money, its keys and its streams.
fn seen(api: &Api) -> Vec<Value> {
    let paths =
        ["/api/wallet/balance", "/api/wallet/ledger", "/api/streams", "/api/stream-history", "/api/keys"];
    let mut bodies: Vec<Value> = paths.iter().map(|path| api.get(path).ok()).collect();
    // Times of this request.
    bodies[0]["asOf"] = Value::Null;
    for key in bodies.last_mut().and_then(Value::as_array_mut).into_iter().flatten() {
        key["lastUsedAt"] = Value::Null;
    }
    bodies
}

/// Waits for the first charge of a session with two destinations, one of them free.
fn wait_for_charge(api: &Api) {
    until_api("the charge", || {
        let cost = api.try_get("/api/public/streams/active/cost")?.body;
        if cost["totalCost"] == 2 { Ok(()) } else { Err(cost.to_string()) }
    });
}

#[test]
fn a_service_goes_on_with_its_money_and_its_secrets_after_the_move_to_postgresql() {
    let (source, sink, server) = (Source::shared(), Sink::recording(), Postgres::start());
    server.make_database("satcast");
    let mut service =
        Setup::default().set("PGPASSWORD", PASSWORD).set("SATCAST_INGEST__REFUSE_QUIET_SECS", "0").start();
    let api = service.api();
    let stream = api.create_stream("moved");
    for key in ["a", "b"] {
        api.add_destination(&stream, &sink.url(), key);
    }
    let mut encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    wait_for_charge(&api);
    let with_password = server.url("satcast");
    let to = with_password.replace(&format!(":{PASSWORD}@"), "@");
    assert_eq!(service.command(&["migrate", "--to", &to]).status.code(), Some(1), "the service runs");
    assert_eq!(service.command(&["migrate", "--to", &with_password]).status.code(), Some(2));
    let _ = api.post(&format!("/api/streams/{}/stop", stream.id), &json!({})).ok();
    let _ = encoder.stop();
    until_api("the end", || {
        let detail = api.stream(&stream);
        if detail["lastEndReason"] == "stopped" { Ok(()) } else { Err(detail.to_string()) }
    });
    let before = seen(&api);
    assert_eq!(before[0]["balance"], 10_000 - 2);
    assert!(service.stop().success());

    let said = service.run(&["migrate", "--to", &to]);
    let table = |name: &str| -> Vec<String> {
        let line = said.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.into_iter().flat_map(str::split_whitespace).skip(1).map(str::to_owned).collect()
    };
    assert_eq!(
        (table("accounts"), table("destinations")),
        (vec!["1".into(); 2], vec!["2".into(); 2]),
        "{said}"
    );
    assert!(!said.contains(PASSWORD), "{said}");
    let again = service.command(&["migrate", "--to", &to]);
    assert_eq!(again.status.code(), Some(1), "the database is not empty any more");

    service.set("SATCAST_DATABASE__URL", &with_password);
    service.start();
    assert_eq!(seen(&api), before);
    service.run(&["ledger", "check"]);
    // The keys of its destinations are still readable.
    let mut encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    wait_for_charge(&api);
    assert_eq!(api.get("/api/wallet/balance").ok()["balance"], 10_000 - 4);
    encoder.cut();
    service.assert_not_logged(&[("the database's password", PASSWORD)]);
}
