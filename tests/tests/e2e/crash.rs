//! `kill -9` in mid-stream: no data of an owner is lost, and the next publish works at once.

use std::time::Duration;

use satcast_tests::encoder::Publish;
use satcast_tests::service::Setup;
use satcast_tests::sink::Sink;
use satcast_tests::soak;
use satcast_tests::source::Source;
use satcast_tests::wait::seconds;

/// Kills of a normal run; `cargo xtask soak` does hundreds.
const KILLS: u64 = 2;
/// The kill comes at a random moment of this time after media flows.
const KILL_WITHIN_MS: u64 = 700;

#[test]
fn soak_a_killed_service_returns_with_all_its_data() {
    let source = Source::shared();
    let sink = Sink::recording();
    let mut service = Setup::default().start();
    let api = service.api();
    let stream = api.create_stream("killed");
    let destination = api.add_destination(&stream, &sink.url(), "copy");
    let mut random = soak::seed();
    for round in 0..soak::rounds(KILLS) {
        let had = sink.records().len();
        let mut encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
        sink.wait_for_media(had.saturating_add(60));
        api.wait_for_stream(&stream, "live");
        // Created in mid-stream, so that the write-ahead log is not empty at the kill.
        let extra = api.create_stream(&format!("round {round}"));
        std::thread::sleep(Duration::from_millis(soak::next(&mut random) % KILL_WITHIN_MS));
        service.kill();
        encoder.cut();

        service.start();
        let detail = api.stream(&stream);
        assert_eq!(detail["status"], "idle", "{detail}");
        assert_eq!(detail["state"], "idle", "{detail}");
        assert_eq!(detail["lastEndReason"], "interrupted", "{detail}");
        assert_eq!(detail["streamKey"], stream.key.as_str());
        assert_eq!(detail["destinations"][0]["id"], destination, "{detail}");
        assert_eq!(api.stream(&extra)["streamKey"], extra.key.as_str());
        assert_eq!(api.delete(&format!("/api/streams/{}", extra.id)).status / 100, 2);
    }
    let had = sink.records().len();
    let _encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
    sink.wait_for_media(had + 60);
    let _ = service.run(&["ledger", "check"]);
}

#[test]
fn a_service_that_is_asked_to_stop_ends_its_sessions() {
    let source = Source::shared();
    let sink = Sink::recording();
    let mut service = Setup::default().start();
    let api = service.api();
    let stream = api.create_stream("stopped");
    api.add_destination(&stream, &sink.url(), "copy");
    let mut encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
    sink.wait_for_media(60);
    let status = service.stop();
    assert!(status.success(), "the service ended with {status}");
    encoder.wait(seconds(60));
    sink.wait_until_left();
    service.start();
    assert_eq!(api.stream(&stream)["lastEndReason"], "shutdown");
}
