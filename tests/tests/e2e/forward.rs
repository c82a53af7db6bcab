//! Every server gets the encoder's packets: none lost, changed or late.

use std::time::{Duration, Instant};

use satcast_tests::encoder::Publish;
use satcast_tests::nginx::Nginx;
use satcast_tests::record::{Record, assert_complete, assert_run_from_keyframe, media};
use satcast_tests::service::Setup;
use satcast_tests::sink::{Arrival, Sink};
use satcast_tests::source::Source;
use satcast_tests::wait;

/// The stream has run for a while when a server is added to it.
const PACKETS_BEFORE_ADDING: usize = 600;
/// Seconds that the late server gets: more than one GOP.
const LATE_PACKETS: usize = 385;
/// How long after a keyframe the server is added: late enough that only a kept keyframe can serve it, and early
/// enough that the next one is still far off.
const AFTER_KEYFRAME_MS: std::ops::Range<u128> = 300..800;

#[test]
fn every_packet_reaches_every_server_unchanged() {
    let source = Source::shared();
    let nginx = Nginx::recording();
    let (sink, late) = (Sink::recording(), Sink::recording());
    let service = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2").start();
    let api = service.api();
    let stream = api.create_stream("forward");
    api.add_destination(&stream, &nginx.url(), "copy");
    let to_sink = api.add_destination(&stream, &sink.url(), "copy");

    let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&stream.key));
    let live = api.wait_for_stream(&stream, "live");
    assert_eq!(live["status"], "active");
    assert!(live["startedAt"].as_i64() > live["createdAt"].as_i64(), "{live}");
    let shown = api.wait_for_destination(&stream, to_sink, "live");
    assert_eq!(shown["droppedPackets"], 0, "{shown}");

    sink.wait_for_media(PACKETS_BEFORE_ADDING);
    let added = just_after_a_keyframe(&sink);
    let to_late = api.add_destination(&stream, &late.url(), "late");
    late.wait_for_media(1);
    api.wait_for_destination(&stream, to_late, "live");

    late.wait_for_media(LATE_PACKETS);
    let sent = encoder.end();
    let ended = api.wait_for_stream(&stream, "idle");
    assert_eq!(ended["lastEndReason"], "unpublished", "{ended}");
    let expected = media(&sent).len();
    sink.wait_until_left();
    late.wait_until_left();

    assert_complete("the sink", &sent, &sink.records());
    assert_eq!((sink.names(), sink.publishes()), (vec!["copy".to_owned()], 1));
    let recordings = nginx.wait_for_recording("copy", expected);
    assert_eq!(recordings.len(), 1, "nginx was published to once");
    assert_complete("nginx", &sent, &recordings[0]);
    assert_late_start(&sent, added, &sink.arrivals(), &late);
}

/// Waits for a moment between two keyframes, and gives it.
fn just_after_a_keyframe(sink: &Sink) -> Instant {
    wait::until("a moment after a keyframe", || {
        let arrivals = sink.arrivals();
        let keyframe = arrivals.iter().rfind(|arrival| arrival.record.keyframe).expect("a keyframe came");
        let age = keyframe.at.elapsed().as_millis();
        if AFTER_KEYFRAME_MS.contains(&age) { Ok(Instant::now()) } else { Err(format!("it is {age} ms old")) }
    })
}

/// The late server began at a keyframe that was sent before it was added, long before the next one came.
fn assert_late_start(sent: &[Record], added: Instant, first: &[Arrival], late: &Sink) {
    let records = late.records();
    let start = assert_run_from_keyframe("the late server", sent, &records);
    let sent = media(sent);
    let got = records.iter().filter(|record| !record.config).count();
    assert_eq!(start + got, sent.len(), "the late server did not get the stream to its end");

    let came = |digest: &[u8; 32]| -> Instant {
        first
            .iter()
            .find(|arrival| arrival.record.digest == *digest)
            .expect("the first sink got every packet")
            .at
    };
    let next = sent[start + 1..].iter().find(|record| record.keyframe).expect("another keyframe was sent");
    let began = late.arrivals()[0].at;
    assert!(came(&sent[start].digest) < added, "its keyframe was not kept, but came after it was added");
    let ahead = came(&next.digest).saturating_duration_since(began);
    assert!(ahead > Duration::ZERO, "its first packet came only with the next keyframe");
    println!("the late server's first packet came {:?} after it was added", began.duration_since(added));
}
