//! Ids in log lines, and traces that a collector takes: of requests, sessions, destinations, charges, webhooks and uploads.

use std::collections::BTreeSet;

use satcast_tests::api::{Answer, Api, send};
use satcast_tests::encoder::Publish;
use satcast_tests::receiver::Receiver;
use satcast_tests::s3::Store;
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::wait::until;
use serde_json::{Value, json};

use crate::archive::archived;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER_SPAN: &str = "00f067aa0ba902b7";
/// Modules whose lines are always about a session.
const OF_SESSIONS: [&str; 4] =
    ["satcast_live::session", "satcast_live::destination", "satcast_live::backfill", "satcast_live::spool"];

/// A login that fails.
fn wrong_login(service: &Service) -> Answer {
    let body = json!({"name": "nobody", "password": "not the password"});
    send(Api::new(&service.base(), None).request("POST", "/api/auth/login").json(&body))
}

/// The lines of the log in JSON.
fn lines(service: &Service) -> Vec<Value> {
    let log = service.log();
    let lines = log.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn text<'a>(line: &'a Value, name: &str) -> &'a str {
    line[name].as_str().unwrap_or_default()
}

#[test]
fn lines_have_the_ids_of_their_session_or_request() {
    let (source, sink) = (Source::shared(), Sink::recording());
    let log =
        |level: &str| Setup::default().set("SATCAST_LOG__FORMAT", "json").set("SATCAST_LOG__LEVEL", level);
    let service = log("info,driver=debug").set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2").start();
    let api = service.api();
    let stream = api.create_stream("the show");
    let to_sink = api.add_destination(&stream, &sink.url(), "copy");
    let to_nobody = api.add_destination(&stream, "rtmp://127.0.0.1:1/live", "copy");
    let mut encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    let _ = api.wait_for_destination(&stream, to_sink, "live");
    let _ = api.wait_for_destination(&stream, to_nobody, "retrying");
    let _ = encoder.stop();
    let _ = api.wait_for_stream(&stream, "idle");
    let refused = wrong_login(&service);
    refused.assert_error(401, None);

    let lines = lines(&service);
    let is_of_a_session = |line: &&Value| {
        let target = text(line, "target");
        line.get("session").is_some()
            || OF_SESSIONS.iter().any(|module| target.starts_with(module))
            || line["dest"].as_i64().is_some_and(|dest| dest > 0)
    };
    let of_sessions: Vec<&Value> = lines.iter().filter(is_of_a_session).collect();
    let ids: BTreeSet<(&str, &str)> =
        of_sessions.iter().map(|line| (text(line, "session"), text(line, "stream"))).collect();
    let [(session, id)] = ids.into_iter().collect::<Vec<_>>()[..] else { panic!("{of_sessions:#?}") };
    assert!(session.starts_with("ses_") && id == stream.id.to_string(), "{session}, {id}");
    for (module, wanted) in [("satcast_live::session", 2), ("satcast_live::destination", 4)] {
        let found = of_sessions.iter().filter(|line| text(line, "target").starts_with(module));
        assert!(found.count() >= wanted, "lines of {module} in {of_sessions:#?}");
    }
    for destination in [to_sink, to_nobody].map(|id| id.to_string()) {
        assert!(of_sessions.iter().any(|line| text(line, "destination") == destination), "{of_sessions:#?}");
    }
    let request = refused.header("x-request-id").expect("an id");
    let of_request: Vec<&Value> = lines.iter().filter(|line| line["request_id"] == request).collect();
    let targets: BTreeSet<&str> = of_request.iter().map(|line| text(line, "target")).collect();
    assert_eq!(targets, ["satcast::access", "satcast_web::api::login"].into(), "{of_request:#?}");

    let quiet = log("warn").start();
    let refused = wrong_login(&quiet);
    let request = refused.header("x-request-id").expect("an id");
    let line = quiet.wait_for_log("the failed login", |line| line.contains(request));
    assert_eq!(serde_json::from_str::<Value>(&line).expect("a line")["level"], "WARN");
}

/// All spans that came, by the collector's own form.
fn spans(collector: &Receiver) -> Vec<Value> {
    let bodies = collector.received();
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let scopes = bodies.iter().flat_map(|body| all(&body.json()["resourceSpans"][0]["scopeSpans"]));
    scopes.flat_map(|scope| all(&scope["spans"])).collect()
}

fn attribute(span: &Value, key: &str) -> Value {
    let attributes = span["attributes"].as_array().expect("attributes");
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    found.map_or(Value::Null, |attribute| attribute["value"].clone())
}

/// Waits for spans of this name.
#[track_caller]
fn named(collector: &Receiver, name: &str) -> Vec<Value> {
    until(&format!("spans called {name}"), || {
        let all = spans(collector);
        let found: Vec<Value> = all.iter().filter(|span| span["name"] == name).cloned().collect();
        if found.is_empty() { Err(format!("{all:#?}")) } else { Ok(found) }
    })
}

fn traced(collector: &Receiver) -> Setup {
    let endpoint = collector.url().replace("/in", "");
    Setup::default()
        .set("SATCAST_TELEMETRY__OTLP_ENDPOINT", &endpoint)
        .set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]")
        .set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2")
}

#[test]
fn a_collector_gets_requests_sessions_and_what_they_cause() {
    let (source, store) = (Source::shared(), Store::start());
    let (collector, receiver, sink) = (Receiver::start(None), Receiver::start(None), Sink::recording());
    let service = traced(&collector).start();
    let api = service.api();
    let webhook =
        api.post("/api/webhooks", &json!({"url": receiver.url(), "events": ["stream.started"]})).ok();
    let path = format!("/api/webhooks/{}/test?apiKey={}", webhook["id"], service.key());
    let test = api.request("POST", &path).header("traceparent", format!("00-{TRACE}-{CALLER_SPAN}-01"));
    let _ = send(test.json(&json!({}))).ok();

    let [request] = &named(&collector, "POST /api/webhooks/{id}/test")[..] else {
        panic!("{:#?}", spans(&collector))
    };
    assert_eq!((&request["traceId"], &request["parentSpanId"]), (&TRACE.into(), &CALLER_SPAN.into()));
    assert_eq!(attribute(request, "http.response.status_code")["intValue"], "200");
    assert_eq!(attribute(request, "http.route")["stringValue"], "/api/webhooks/{id}/test");
    let attempts = named(&collector, "webhook");
    assert_eq!((&attempts[0]["traceId"], &attempts[0]["parentSpanId"]), (&TRACE.into(), &request["spanId"]));
    let onward = receiver.wait_for(1)[0].headers["traceparent"].clone();
    assert_eq!(onward, format!("00-{TRACE}-{}-01", attempts[0]["spanId"].as_str().expect("a span")));

    let (stream, to_store) = archived(&api, "the show", &store);
    let to_sink = api.add_destination(&stream, &sink.url(), "copy");
    let mut encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    for destination in [to_store, to_sink] {
        let _ = api.wait_for_destination(&stream, destination, "live");
    }
    named(&collector, "charge");
    let _ = encoder.stop();
    let session = named(&collector, "session").remove(0);
    assert_eq!(attribute(&session, "satcast.stream")["stringValue"], stream.id.to_string());
    assert_eq!(attribute(&session, "satcast.reason")["stringValue"], "unpublished");
    let id = attribute(&session, "satcast.session")["stringValue"].clone();
    assert!(id.as_str().is_some_and(|id| id.starts_with("ses_")), "{session}");
    for name in ["destination", "opening", "charge"] {
        for span in named(&collector, name) {
            assert_eq!(span["traceId"], session["traceId"], "{span}");
        }
    }
    assert_eq!(named(&collector, "destination").len(), 2);
    let upload = named(&collector, "upload").remove(0);
    assert_eq!(attribute(&upload, "satcast.session")["stringValue"], id);
    assert_eq!(attribute(&upload, "satcast.state")["stringValue"], "ready");
    // The event of the session has a trace of its own.
    assert!(named(&collector, "webhook").iter().any(|span| span["traceId"] != TRACE));
    let all = json!(spans(&collector)).to_string();
    for secret in [service.key(), &stream.key, satcast_tests::s3::SECRET_KEY] {
        assert!(!all.contains(secret), "a secret is in a span");
    }
}

#[test]
fn a_collector_that_refuses_spans_costs_only_the_spans() {
    let collector = Receiver::start(None);
    collector.refuse(500, "no");
    let mut service = traced(&collector).start();
    let api = service.api();
    let _ = api.create_stream("the show");
    let _ = collector.wait_for(1);
    service.run(&["account", "create", "watcher", "--operator"]);
    let watcher = service.api_of("watcher");
    until("a count of lost spans", || {
        let metrics = watcher.get("/metrics").text;
        let mut lines =
            metrics.lines().filter_map(|line| line.strip_prefix("satcast_trace_spans_lost_total "));
        if lines.any(|lost| lost != "0") { Ok(()) } else { Err(metrics) }
    });
    assert!(service.stop().success());
}
