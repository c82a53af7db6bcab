//! Drivers that panic harm their own destination; one that is not enabled is not used.

use std::path::PathBuf;

use satcast_tests::api::{Api, Stream};
use satcast_tests::author::lay;
use satcast_tests::encoder::Publish;
use satcast_tests::said;
use satcast_tests::scene::Scene;
use satcast_tests::service::{Service, Setup, binary};
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;

use super::changes::{change, operator};

#[test]
fn a_driver_that_is_not_enabled_is_listed_and_not_used() {
    let service = Setup::default().set("SATCAST_DRIVERS__ENABLED", "[]").start();
    let listed = service.run(&["drivers"]);
    let line = listed.lines().find(|line| line.contains("rtmp"));
    assert!(line.is_some_and(|line| line.contains("disabled")), "{listed}");
    let body = serde_json::json!({ "label": "none", "destinations": [{ "type": "rtmp", "config": {} }] });
    service.api().post("/api/streams", &body).assert_error(422, None);
}

#[test]
fn a_driver_that_panics_harms_only_its_destination_and_reveals_no_secret() {
    panics_harm_only_their_destination("thread");
}

#[test]
fn an_isolated_driver_that_panics_harms_only_its_destination_and_reveals_no_secret() {
    panics_harm_only_their_destination("process");
}

#[test]
fn a_driver_that_panics_at_its_start_is_refused_and_one_at_its_end_has_ended() {
    for isolation in ["thread", "process"] {
        for (fail, state) in [("load", "refused"), ("unload", "loaded")] {
            let setup = Setup::default().set("SATCAST_DRIVER__PANIC__FAIL", fail);
            let mut scene = Scene::hostile(isolation, setup);
            let output = scene.service.command(&["drivers"]);
            assert_eq!(output.status.success(), state == "loaded", "{isolation}, {fail}");
            let listed = String::from_utf8_lossy(&output.stdout).into_owned();
            let checked = scene.service.command(&["check-config"]);
            let said = String::from_utf8_lossy(&checked.stderr).into_owned();
            assert_eq!(checked.status.code(), Some(if state == "loaded" { 0 } else { 2 }), "{said}");
            let line = listed.lines().find(|line| line.contains("panic")).unwrap_or_default();
            assert!(line.contains(state), "{isolation}, {fail}: {listed}\n{}", scene.service.log());
            if fail == "load" {
                scene.service.wait_for_log("the reason", |line| {
                    line.contains("ERROR") && line.contains(said::PANICS_AT_START)
                });
            }
            assert!(scene.service.stop().success(), "{isolation}, {fail}");
        }
    }
}

fn panics_harm_only_their_destination(isolation: &str) {
    let token = "very-secret-token";
    let folder = tempfile::tempdir().expect("a folder for drivers");
    for file in ["rtmp.so", "manifest.json"] {
        lay(&built_drivers().join(file), &folder.path().join(file));
    }
    let library = binary().parent().expect("the folder of the binary").join("libsatcast_test_driver.so");
    lay(&library, &folder.path().join("panic.so"));
    let drivers = folder.path().to_str().expect("a path in UTF-8");
    let mut service = Setup::default()
        .set("SATCAST_DRIVERS__DIR", drivers)
        .set("SATCAST_DRIVERS__ENABLED", "[\"rtmp\",\"panic\"]")
        .set("SATCAST_DRIVER__PANIC__ISOLATION", isolation)
        .start();
    let (api, source, sink) = (service.api(), Source::shared(), Sink::recording());
    let stream = api.create_stream("panics");
    api.add_destination(&stream, &sink.url(), "copy");
    let path = format!("/api/streams/{}/destinations", stream.id);
    let add = |place: &str| {
        let config = serde_json::json!({ "place": place, "token": token });
        api.post(&path, &serde_json::json!({ "type": "panic", "config": config }))
    };
    let refused = add("validate");
    assert!(refused.status >= 400 && !refused.body.to_string().contains(token), "{}", refused.body);
    let id = |place: &str| add(place).ok()["id"].as_i64().expect("an id");
    let operator = operator(&service);
    let healthy = id("nowhere");
    let _encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    api.wait_for_destination(&stream, healthy, "live");
    for place in ["open", "run"] {
        let failed = api.wait_for_destination(&stream, id(place), "failed");
        let error = failed["error"].as_str().expect("a reason");
        assert!(error.contains("panicked") && !error.contains(token), "{failed}");
        // Two panics: a third would set the driver aside.
        assert_eq!(change(&operator, "panic", "enable").ok()["state"], "loaded");
    }
    sink.wait_for_media(120);
    panics_too_often(&service, &operator, &stream, healthy, id);
    service.assert_running();
    service.wait_for_log("where it panicked", |line| line.contains("tests/driver/src/lib.rs:"));
    service.assert_not_logged(&[("the driver's token", token)]);
}

/// After three panics of one account the driver gets no new openings of that account; running ones continue, other accounts are served, and an operator can enable it again.
fn panics_too_often(
    service: &Service,
    operator: &Api,
    stream: &Stream,
    healthy: i64,
    add: impl Fn(&str) -> i64,
) {
    let api = service.api();
    let last = [add("run"), add("run")];
    let line = service.wait_for_log("the quarantine", |line| {
        line.contains("ERROR") && line.contains(said::PANICKED_THREE_TIMES) && line.contains("panic")
    });
    assert!(!line.contains("very-secret-token"), "{line}");
    let list = operator.get("/api/drivers").ok();
    let shown = list.as_array().into_iter().flatten().find(|driver| driver["id"] == "panic").cloned();
    assert_eq!(shown.expect("the driver is listed")["state"], "loaded", "others are served");
    let body = serde_json::json!({ "type": "panic", "config": { "place": "nowhere", "token": "abcdef" } });
    let path = format!("/api/streams/{}/destinations", stream.id);
    let held = api.post(&path, &body).ok()["id"].as_i64().expect("an id");
    let held = api.wait_for_destination(stream, held, "retrying");
    let error = held["error"].as_str().unwrap_or_default();
    assert!(error.contains(said::FOR_ONE_ACCOUNT), "{held}");
    assert_eq!(api.destination(stream, healthy)["state"], "live", "a running destination was interrupted");

    assert_eq!(change(operator, "panic", "enable").ok()["state"], "loaded");
    let id = api.post(&path, &body).ok()["id"].as_i64().expect("an id");
    let _ = api.wait_for_destination(stream, id, "live");
    for id in last {
        assert_ne!(api.destination(stream, id)["state"], "live");
    }
}

fn built_drivers() -> PathBuf {
    binary().parent().expect("the folder of the binary").join("drivers")
}
