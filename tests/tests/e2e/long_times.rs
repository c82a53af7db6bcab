//! Timestamps that pass 2^24 ms (4 h 39 m 37 s, where the time of a chunk gets an extended field) and 2^32 ms (where it wraps):
//! no server sees a jump.

use std::time::{Duration, Instant};

use satcast_media::NANOS_PER_MILLI;
use satcast_media::Packet;
use satcast_tests::caller::{Call, Outcome};
use satcast_tests::encoder::Publish;
use satcast_tests::load::frames::{Frame, Rhythm, configuration};
use satcast_tests::nginx::Nginx;
use satcast_tests::record::{Record, Track, assert_complete};
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::seconds;

const EXTENDED_MS: i64 = 1 << 24;
const WRAP_MS: i64 = 1 << 32;

fn service() -> Service {
    let setup = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "0");
    setup.set("SATCAST_INGEST__READ_BATCH_MS", "0").start()
}

fn times(records: &[Record], track: Track) -> Vec<i64> {
    let of_track = records.iter().filter(|record| !record.config && record.track == track);
    of_track.map(|record| record.dts_ms).collect()
}

#[test]
fn an_encoder_that_has_run_for_long_crosses_both_timestamp_limits() {
    let service = service();
    let api = service.api();
    for border in [EXTENDED_MS, WRAP_MS] {
        let sink = Sink::recording();
        let stream = api.create_stream("long");
        api.add_destination(&stream, &sink.url(), "copy");
        let (mut call, outcome) = Call::publish(service.rtmp_address(), "live", &stream.key);
        assert_eq!(outcome, Outcome::Publishing);
        let begin_ms = border - 1_500;
        configuration(begin_ms).iter().for_each(|packet| call.send(packet));
        let mut rhythm = Rhythm::default();
        let (mut video, mut audio) = (Vec::new(), Vec::new());
        while rhythm.next().due() < seconds(3) {
            let frame = rhythm.take();
            call.send(&frame.packet(0, begin_ms, Duration::ZERO));
            let times = if matches!(frame, Frame::Video(_)) { &mut video } else { &mut audio };
            times.push(i64::try_from(frame.due().as_millis()).expect("a short stream"));
            if video.len() == 1 && audio.is_empty() {
                // A server that is connected from the beginning gets more than the last GOP.
                sink.wait_for_media(1);
            }
        }
        sink.wait_for_media(video.len() + audio.len());
        drop(call);
        sink.wait_until_left();
        let records = sink.records();
        assert_eq!(times(&records, Track::Video), video, "{border}");
        assert_eq!(times(&records, Track::Audio), audio, "{border}");
        assert_eq!(sink.publishes(), 1);
    }
}

#[test]
fn ffmpeg_crosses_the_first_timestamp_limit() {
    let source = Source::of(Recipe::SMALL);
    let (service, sink) = (service(), Sink::recording());
    let api = service.api();
    let stream = api.create_stream("long");
    api.add_destination(&stream, &sink.url(), "copy");
    let begin = EXTENDED_MS as f64 / 1000.0 - 4.0;
    let mut encoder = Publish::of(&source).faster(4).shifted(begin).to(&service.ingest_url(&stream.key));
    encoder.finish(seconds(60));
    sink.wait_until_left();
    assert_complete("the sink", source.records(), &sink.records());
}

/// Media time between two frames of the long session: less than the service takes for a restart of the encoder's clock, and two of
/// them less than the capacity of a queue.
const STEP_MS: i64 = 2_400;
/// Frames after the limit.
const BEHIND: i64 = 20;
const FRAME_BYTES: usize = 64;

/// A keyframe that differs from all others.
fn small_frame(number: i64) -> Packet {
    let dts_ns = number * STEP_MS * NANOS_PER_MILLI;
    let mut packet = Frame::Video(0).packet(0, 0, Duration::ZERO);
    packet.payload.truncate(FRAME_BYTES);
    Packet { dts_ns, pts_ns: dts_ns, ..packet }
}

/// The session of hours is sent as fast as both servers accept it.
#[test]
fn a_session_of_five_hours_crosses_the_timestamp_limit_at_every_server() {
    let (service, sink, nginx) = (service(), Sink::recording(), Nginx::recording());
    let api = service.api();
    let stream = api.create_stream("long");
    api.add_destination(&stream, &sink.url(), "copy");
    api.add_destination(&stream, &nginx.url(), "copy");
    let (mut call, outcome) = Call::publish(service.rtmp_address(), "live", &stream.key);
    assert_eq!(outcome, Outcome::Publishing);
    configuration(0).iter().take(1).for_each(|packet| call.send(packet));

    let count = EXTENDED_MS / STEP_MS + BEHIND;
    for number in 0..count {
        let (before, recorded_before) = (sink.bytes(), nginx.recorded_bytes("copy"));
        call.send(&small_frame(number));
        let began = Instant::now();
        let step = FRAME_BYTES as u64;
        while sink.bytes() < before + step || nginx.recorded_bytes("copy") < recorded_before + step {
            assert!(began.elapsed() < seconds(20), "frame {number} did not come");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    drop(call);
    sink.wait_until_left();

    let expected: Vec<i64> = (0..count).map(|number| number * STEP_MS).collect();
    assert!(expected.last() > Some(&(EXTENDED_MS + 30_000)));
    assert_eq!(times(&sink.records(), Track::Video), expected, "the sink");
    let recordings = nginx.recordings("copy");
    assert_eq!(recordings.len(), 1);
    assert_eq!(times(&recordings[0], Track::Video), expected, "nginx");
}
