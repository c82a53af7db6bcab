//! The drivers folder: what is no driver is refused with a reason, and the service and the good ones run on.

use std::path::{Path, PathBuf};
use std::process::Command;

use satcast_tests::api::{Api, Stream};
use satcast_tests::encoder::Publish;
use satcast_tests::service::{Service, Setup, binary};
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::wait::seconds;

use super::changes::{change, operator};

/// A library without the symbol.
const NO_ENTRY: &str = "int something_else(void) { return 0; }\n";
/// A driver table of a version that does not exist yet; nothing behind its head may be read.
const WRONG_VERSION: &str = "\
#include <stddef.h>
#include <stdint.h>
static const struct { char magic[8]; uint32_t major, minor; size_t size; } table =
    { {'S', 'A', 'T', 'C', 'A', 'S', 'T', 1}, 999, 0, sizeof table };
const void *satcast_driver_entry(uint32_t host_major) { (void)host_major; return &table; }
";
/// A library that ends every process that loads it.
const ABORTS: &str = "\
#include <stdlib.h>
__attribute__((constructor)) static void loaded(void) { abort(); }
";
/// A library that gives no table.
const NO_TABLE: &str = "\
#include <stdint.h>
const void *satcast_driver_entry(uint32_t host_major) { (void)host_major; return 0; }
";

#[test]
fn files_that_are_no_drivers_are_refused_and_named() {
    let folder = tempfile::tempdir().expect("a folder for drivers");
    let drivers = folder.path();
    std::fs::copy(built_drivers().join("rtmp.so"), drivers.join("rtmp.so")).expect("the built rtmp driver");
    std::fs::copy(built_drivers().join("manifest.json"), drivers.join("manifest.json"))
        .expect("the manifest");
    std::fs::write(drivers.join("text.so"), "this is no library\n").expect("a text file");
    compile(NO_ENTRY, &drivers.join("noentry.so"));
    compile(WRONG_VERSION, &drivers.join("future.so"));
    compile(NO_TABLE, &drivers.join("notable.so"));
    compile(ABORTS, &drivers.join("aborts.so"));
    let whole = std::fs::read(drivers.join("rtmp.so")).expect("the built rtmp driver");
    std::fs::write(drivers.join("cut.so"), &whole[..whole.len() / 2]).expect("half a driver");
    let enabled = "[\"rtmp\",\"text\",\"noentry\",\"future\",\"notable\",\"aborts\",\"cut\",\"absent\"]";
    let mut service = Setup::default()
        .set("SATCAST_DRIVERS__DIR", drivers.to_str().expect("a path in UTF-8"))
        .set("SATCAST_DRIVERS__ENABLED", enabled)
        .start();

    refused(&service, "text.so", &[]);
    refused(&service, "noentry.so", &["satcast_driver_entry"]);
    refused(&service, "future.so", &["999"]);
    refused(&service, "notable.so", &[]);
    refused(&service, "aborts.so", &["signal"]);
    refused(&service, "cut.so", &[]);
    refused(&service, "absent", &[]);
    assert!(service.run(&["drivers"]).contains("rtmp"));

    let (source, sink) = (Source::shared(), Sink::recording());
    let api = service.api();
    let stream = api.create_stream("drivers");
    api.add_destination(&stream, &sink.url(), "copy");
    let _encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
    sink.wait_for_media(60, seconds(20));
    service.assert_running();
}

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
fn a_driver_that_panics_harms_only_its_destination_and_tells_no_secret() {
    panics_harm_only_their_destination("thread");
}

#[test]
fn in_a_process_of_its_own_it_is_the_same() {
    panics_harm_only_their_destination("process");
}

fn panics_harm_only_their_destination(isolation: &str) {
    let token = "very-secret-token";
    let folder = tempfile::tempdir().expect("a folder for drivers");
    for file in ["rtmp.so", "manifest.json"] {
        std::fs::copy(built_drivers().join(file), folder.path().join(file)).expect("a built file");
    }
    let library = binary().parent().expect("the folder of the binary").join("libsatcast_test_driver.so");
    std::fs::copy(library, folder.path().join("panic.so")).expect("the built test driver");
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
    let _encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
    api.wait_for_destination(&stream, healthy, "live", seconds(20));
    for place in ["open", "run"] {
        let failed = api.wait_for_destination(&stream, id(place), "failed", seconds(20));
        let error = failed["error"].as_str().expect("a reason");
        assert!(error.contains("panicked") && !error.contains(token), "{failed}");
        // Two panics; a third would be one too many for the driver.
        assert_eq!(change(&operator, "panic", "enable").ok()["state"], "loaded");
    }
    sink.wait_for_media(120, seconds(20));
    panics_too_often(&service, &operator, &stream, healthy, id);
    service.assert_running();
    service.wait_for_log("where it panicked", seconds(5), |line| line.contains("tests/driver/src/lib.rs:"));
    service.assert_not_logged(&[("the driver's token", token)]);
}

/// Three panics: nothing new goes to the driver, what runs goes on, until an operator enables it again.
fn panics_too_often(
    service: &Service,
    operator: &Api,
    stream: &Stream,
    healthy: i64,
    add: impl Fn(&str) -> i64,
) {
    let api = service.api();
    let last = [add("run"), add("run")];
    let line = service.wait_for_log("the quarantine", seconds(20), |line| {
        line.contains("ERROR") && line.contains("panicked 3 times") && line.contains("driver panic ")
    });
    assert!(!line.contains("very-secret-token"), "{line}");
    let list = operator.get("/api/drivers").ok();
    let shown = list.as_array().into_iter().flatten().find(|driver| driver["id"] == "panic").cloned();
    let shown = shown.expect("the driver is listed");
    let error = shown["error"].as_str().unwrap_or_default();
    assert!(shown["state"] == "failing" && error.contains("an operator enables it again"), "{shown}");
    let body = serde_json::json!({ "type": "panic", "config": { "place": "nowhere", "token": "abcdef" } });
    let path = format!("/api/streams/{}/destinations", stream.id);
    api.post(&path, &body).assert_error(503, Some("driver_unavailable"));
    assert_eq!(api.destination(stream, healthy)["state"], "live", "what runs goes on");

    assert_eq!(change(operator, "panic", "enable").ok()["state"], "loaded");
    let id = api.post(&path, &body).ok()["id"].as_i64().expect("an id");
    let _ = api.wait_for_destination(stream, id, "live", seconds(20));
    for id in last {
        assert_ne!(api.destination(stream, id)["state"], "live");
    }
}

/// One line of the log names the file, says that something is wrong, and holds every one of `words`.
fn refused(service: &Service, file: &str, words: &[&str]) {
    let line = service.wait_for_log(&format!("the refusal of {file}"), seconds(5), |line| {
        line.contains(file) && (line.contains("WARN") || line.contains("ERROR"))
    });
    for word in words {
        assert!(line.contains(word), "\"{word}\" is not in: {line}");
    }
}

fn built_drivers() -> PathBuf {
    binary().parent().expect("the folder of the binary").join("drivers")
}

fn compile(source: &str, library: &Path) {
    let file = library.with_extension("c");
    std::fs::write(&file, source).expect("a C file");
    let output = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(library).arg(&file).output();
    let output = output.expect("a C compiler (cargo xtask setup installs it)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_file(file).expect("the C file can go");
}
