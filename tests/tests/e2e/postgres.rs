//! The built service with its database on a PostgreSQL server: reached over TLS, killed, left alone by its server.

use satcast_tests::api::Api;
use satcast_tests::encoder::Publish;
use satcast_tests::hosted::Hosted;
use satcast_tests::playlist::Media;
use satcast_tests::postgres::{PASSWORD, Postgres};
use satcast_tests::receiver::Receiver;
use satcast_tests::said;
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::wait::{until, until_api};
use serde_json::{Value, json};

fn set_up(server: &Postgres) -> Setup {
    server.make_database("satcast");
    Setup::default()
        .set("SATCAST_DATABASE__URL", &server.url("satcast"))
        .set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]")
}

fn wait_for_charge(api: &Api, sats: i64) {
    until_api("the charge", || {
        let cost = api.try_get("/api/public/streams/active/cost")?.body;
        if cost["totalCost"] == sats { Ok(()) } else { Err(cost.to_string()) }
    });
}

fn assert_consistent(service: &Service) {
    service.run(&["ledger", "check"]);
}

#[test]
fn a_killed_service_on_postgresql_leaves_complete_charges_and_sends_every_event() {
    let (source, sink, receiver, server) =
        (Source::shared(), Sink::recording(), Receiver::start(None), Postgres::start());
    let mut service = set_up(&server).start();
    let api = service.api();
    let tls = "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
        WHERE a.application_name = 'satcast'";
    assert_eq!(server.ask("satcast", tls), "t");
    let body = json!({ "url": receiver.url(), "events": ["stream.started", "stream.ended"] });
    let _ = api.post("/api/webhooks", &body).ok();
    let stream = api.create_stream("charged");
    for key in ["a", "b", "c"] {
        api.add_destination(&stream, &sink.url(), key);
    }
    let mut encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    sink.wait_for_media(60);
    wait_for_charge(&api, 4);
    assert_consistent(&service);
    let _ = receiver.wait_for(1);

    service.kill();
    encoder.cut();
    service.start();
    assert_consistent(&service);
    assert_eq!(api.get("/api/wallet/balance").ok()["balance"], 10_000 - 4);
    let events: Vec<Value> = receiver.wait_for(2).iter().map(|one| one.json()["type"].clone()).collect();
    assert_eq!(events, ["stream.started", "stream.ended"]);
    let detail = api.stream(&stream);
    assert_eq!(detail["lastEndReason"], "interrupted", "{detail}");

    // A second service with a data folder of its own.
    let key_file = service.folder().join("data/secret.key");
    let other = Setup::default().set("SATCAST_DATABASE__URL", &server.url("satcast")).stopped();
    let lost_key = other.command(&["account", "credit", "tester", "1"]);
    assert!(String::from_utf8_lossy(&lost_key.stderr).contains(said::NO_KEY_FILE), "{lost_key:?}");
    std::fs::copy(key_file, other.folder().join("data/secret.key")).expect("the key of the database");
    let refused = other.command(&["run"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains(said::DATABASE_IN_USE), "{refused:?}");
    other.run(&["account", "credit", "tester", "1"]);
    assert_eq!(api.get("/api/wallet/balance").ok()["balance"], 10_000 - 3, "commands work beside a service");
    assert!(service.run(&["doctor"]).contains("PostgreSQL") || service.run(&["doctor"]).contains("schema"));
    let backup = service.command(&["backup"]);
    assert!(String::from_utf8_lossy(&backup.stderr).contains("pg_dump"), "{backup:?}");
    service.assert_not_logged(&[("the database's password", PASSWORD)]);
}

#[test]
fn a_server_that_goes_away_and_comes_back_costs_neither_a_charge_nor_a_second_one() {
    let (source, sink, mut server) = (Source::shared(), Sink::recording(), Postgres::start());
    let service = set_up(&server).start();
    let api = service.api();
    let stream = api.create_stream("outlives its database");
    for key in ["a", "b"] {
        api.add_destination(&stream, &sink.url(), key);
    }
    let mut encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    wait_for_charge(&api, 2);
    let ready = |wanted: u16| {
        until("the readiness", || match api.try_get("/readyz")?.status {
            status if status == wanted => Ok(()),
            status => Err(format!("/readyz answers {status}")),
        });
    };
    ready(200);
    server.kill();
    ready(503);
    // The second minute begins while the database is unreachable.
    service.wait_for_log("a charge that waits", |log| log.contains(said::CHARGE_WAITS));
    let before = sink.bytes();
    until("media to flow on", || if sink.bytes() > before { Ok(()) } else { Err(before.to_string()) });
    server.start_again();
    ready(200);
    wait_for_charge(&api, 4);
    let _ = api.post(&format!("/api/streams/{}/stop", stream.id), &json!({})).ok();
    let _ = encoder.stop();
    until_api("the end", || {
        let detail = api.stream(&stream);
        if detail["lastEndReason"] == "stopped" { Ok(()) } else { Err(detail.to_string()) }
    });
    assert_consistent(&service);
    let minutes = "SELECT string_agg(idem, ' ' ORDER BY id) FROM transfers WHERE kind = 'minute'";
    let minutes = server.ask("satcast", minutes);
    let minutes: Vec<&str> = minutes.split(' ').map(|name| &name[name.find(':').unwrap_or(0)..]).collect();
    assert_eq!(minutes.len(), 2, "{minutes:?}");
    assert!(minutes[0].ends_with(":0:1") && minutes[1].ends_with(":1:1"), "{minutes:?}");
    service.assert_not_logged(&[("the database's password", PASSWORD)]);
}

#[test]
fn viewers_go_on_while_the_server_is_away() {
    let (source, mut server) = (Source::shared(), Postgres::start());
    let service = set_up(&server).start();
    let hosted = Hosted::new(&service, "watched");
    let _encoder = Publish::of(&source).endless().to(&service.ingest_url(&hosted.stream.key));
    let mut viewer = hosted.viewer();
    let newest = |media: &Media| media.segments.last().map(|segment| segment.sequence);
    let last = newest(&viewer.media());
    server.kill();
    let media = viewer.media_when("a further segment", |media| newest(media) > last);
    let _ = viewer.chunks(&media.segments);
    assert_eq!(service.api().try_get("/readyz").expect("an answer").status, 503);
}
