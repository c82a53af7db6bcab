//! Encoders by SRT: ffmpeg, GStreamer and srt-live-transmit over a network that loses packets, with passphrases, and refused.

use std::path::Path;
use std::process::{Command, Stdio};

use satcast_tests::api::Stream;
use satcast_tests::encoder::Publish;
use satcast_tests::hls::Viewer;
use satcast_tests::hosted::Hosted;
use satcast_tests::lossy::{BAD, Lossy, Weather};
use satcast_tests::probe::{assert_decodes, assert_segments, records, records_of_file};
use satcast_tests::process::{Process, guarded};
use satcast_tests::record::{
    CARRIED_MILLIS, Record, Track, assert_carried, assert_configured, assert_times_never_go_back,
};
use satcast_tests::s3::Store;
use satcast_tests::said;
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::wait;
use serde_json::json;

use super::archive;
use super::srt_output::add_loop;

/// Ten seconds of media.
const CARRIED_PACKETS: usize = 770;
/// What is compared of a recording: its end may lack what was lost when the encoder left.
const RECORDED_MILLIS: i64 = 8_000;
/// Latency in milliseconds: ten round trips of the bad network.
const LATENCY_MS: u64 = 2_000;
/// Audio before the first keyframe, which gets its time.
const EARLY_AUDIO_MILLIS: i64 = 100;
const PASSPHRASE: &str = "correct horse battery";

/// ffmpeg counts latency in microseconds.
fn ffmpeg_url(address: impl std::fmt::Display, stream_id: &str, more: &str) -> String {
    format!("srt://{address}?streamid={stream_id}&latency={}{more}", LATENCY_MS * 1_000)
}

#[test]
fn every_frame_of_ffmpeg_survives_loss_delay_and_reordering() {
    let source = Source::shared();
    let (sink, store) = (Sink::recording(), Store::start());
    let service = Setup::default().srt().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2").start();
    let network = Lossy::before(service.srt_address(), BAD);
    let api = service.api();
    let hosted = Hosted::new(&service, "lossy");
    let stream = &hosted.stream;
    api.add_destination(stream, &sink.url(), "copy");
    let body = json!({"type": "cloud-archive", "config": store.config()});
    let _made = api.post(&format!("/api/streams/{}/destinations", stream.id), &body).ok();
    let (through, by_srt) = add_loop(&api, &service, stream);

    let mut encoder = Publish::until_end(&source).to(&ffmpeg_url(network.address(), &stream.key, ""));
    let mut viewer = Viewer::of(&hosted.ready());
    let segments = viewer.media_when("four segments", |media| media.segments.len() >= 4).segments;
    let chunks = viewer.chunks(&segments);
    sink.wait_for_media(CARRIED_PACKETS);
    by_srt.wait_for_media(CARRIED_PACKETS);
    let health = &api.stream(stream)["health"]["srt"];
    assert!(health["rttMs"].as_f64().is_some_and(|rtt| rtt >= 200.0), "{health}");
    assert!(health["packetsLost"].as_u64() > Some(0), "{health}");
    assert_eq!(
        (&health["packetsDropped"], &health["latencyMs"]),
        (&json!(0), &json!(LATENCY_MS)),
        "{health}"
    );

    // What is lost when the encoder has closed its socket is not sent again.
    let (got, got_by_srt) = (sink.records(), by_srt.records());
    let sent = encoder.end();
    let ended = api.wait_for_stream(stream, "idle");
    assert_eq!(ended["lastEndReason"], "unpublished", "{ended}");
    sink.wait_until_left();
    assert_configured("the sink", &got);
    assert_carried("the sink", &sent, &got, CARRIED_MILLIS);
    assert_segments(&chunks);
    assert_decodes(&chunks);
    assert_carried("a viewer", &sent, &records(&chunks), CARRIED_MILLIS);
    api.wait_for_stream(&through, "idle");
    assert_carried("the server behind SRT", &sent, &got_by_srt, CARRIED_MILLIS);
    let recording = store.file(&archive::key_of(&archive::wait_for(&api, "ready")));
    let mut recorded = records_of_file(&recording);
    recorded.retain(|record| record.dts_ms < RECORDED_MILLIS);
    assert_carried("the recording", &sent, &recorded, CARRIED_MILLIS);
    service.assert_not_logged(&[("a stream key", &stream.key)]);
}

#[test]
fn every_frame_of_gstreamer_survives_loss_delay_and_reordering() {
    let source = Source::shared();
    let sink = Sink::recording();
    let folder = tempfile::tempdir().expect("a folder");
    let service = Setup::default().srt().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2").start();
    let network = Lossy::before(service.srt_address(), BAD);
    let api = service.api();
    let hosted = Hosted::new(&service, "gstreamer");
    api.add_destination(&hosted.stream, &sink.url(), "copy");

    let url = format!("srt://{}?streamid={}&latency={LATENCY_MS}", network.address(), hosted.stream.key);
    let mut command = guarded(Path::new("gst-launch-1.0"));
    command.args("-q mpegtsmux name=to alignment=7 ! srtsink".split(' '));
    command.arg(format!("uri={url}")).arg("filesrc").arg(format!("location={}", source.path().display()));
    command.args("! flvdemux name=from from.video ! queue ! h264parse ! to.".split(' '));
    command.args("from.audio ! queue ! aacparse ! to.".split(' '));
    let _encoder = Process::start("gst-launch-1.0", command, &folder.path().join("gstreamer.log"));
    let mut viewer = Viewer::of(&hosted.ready());
    let segments = viewer.media_when("four segments", |media| media.segments.len() >= 4).segments;
    let chunks = viewer.chunks(&segments);
    sink.wait_for_media(CARRIED_PACKETS);
    let health = &api.stream(&hosted.stream)["health"]["srt"];
    assert!(health["packetsLost"].as_u64() > Some(0), "{health}");
    assert_eq!(health["packetsDropped"], 0, "{health}");
    let got = sink.records();
    assert_configured("the sink", &got);
    assert_carried("the sink", source.records(), &got, CARRIED_MILLIS);
    assert_segments(&chunks);
    assert_decodes(&chunks);
    assert_carried("a viewer", source.records(), &records(&chunks), CARRIED_MILLIS);
}

#[test]
fn media_that_comes_too_late_is_left_out_up_to_the_next_keyframe() {
    let source = Source::shared();
    let sink = Sink::recording();
    let service = Setup::default().srt().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "0").start();
    let network = Lossy::before(service.srt_address(), Weather { loss_permille: 2, ..BAD });
    let api = service.api();
    let hosted = Hosted::new(&service, "late");
    api.add_destination(&hosted.stream, &sink.url(), "copy");
    // Less than the round trip: nothing that is lost comes in time.
    let url = format!("srt://{}?streamid={}&latency=120000", network.address(), hosted.stream.key);
    let _encoder = Publish::of(&source).endless().to(&url);
    let mut viewer = Viewer::of(&hosted.ready());
    let segments = viewer.media_when("three segments", |media| media.segments.len() >= 3).segments;
    assert_decodes(&viewer.chunks(&segments));
    let health = wait::until("losses", || {
        let health = api.stream(&hosted.stream)["health"]["srt"].clone();
        if health["packetsDropped"].as_u64() > Some(5) { Ok(health) } else { Err(health.to_string()) }
    });
    assert_eq!(health["latencyMs"], 120, "{health}");

    let video = |records: &[Record]| -> Vec<Record> {
        records.iter().filter(|record| record.track == Track::Video && !record.config).cloned().collect()
    };
    let (sent, got) = (video(source.records()), video(&sink.records()));
    let mut expected = None;
    for record in &got {
        let at = sent.iter().position(|sent| sent.digest == record.digest);
        let at = at.unwrap_or_else(|| panic!("a frame that was never sent: {record:?}"));
        assert!(record.keyframe || expected == Some(at), "a frame whose reference is lost: {record:?}");
        expected = Some((at + 1) % sent.len());
    }
    assert!(got.len() > 30, "{}", got.len());
}

/// ffmpeg writes a transport stream, and srt-live-transmit calls with it.
struct Transmit {
    _encoder: Process,
    _caller: Process,
}

impl Transmit {
    fn start(folder: &Path, source: &Source, url: &str) -> Self {
        let mut command = guarded(Path::new("srt-live-transmit"));
        command
            .args(["-loglevel:error", "-autoreconnect:no", "-chunk:1316", "file://con", url])
            .stdin(Stdio::piped());
        let mut caller = Process::start("srt-live-transmit", command, &folder.join("transmit.log"));
        let input = caller.take_input().expect("a pipe");
        let mut command: Command = guarded(Path::new("ffmpeg"));
        command.args(["-nostdin", "-hide_banner", "-loglevel", "error", "-re", "-i"]).arg(source.path());
        command.args(["-c", "copy", "-f", "mpegts", "-flush_packets", "1", "pipe:1"]);
        let encoder = Process::piped("ffmpeg", command, &folder.join("ffmpeg.log"), input);
        Self { _encoder: encoder, _caller: caller }
    }
}

fn with_passphrase(service: &Service, stream: &Stream, passphrase: &serde_json::Value) {
    let path = format!("/api/streams/{}", stream.id);
    let changed = service.api().patch(&path, &json!({"srtPassphrase": passphrase})).ok();
    assert_eq!(changed["success"], true, "{changed}");
}

#[test]
fn encrypted_frames_of_srt_live_transmit_survive_with_every_key_length() {
    let source = Source::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let service = Setup::default().srt().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "0").start();
    let api = service.api();
    for key_bytes in [16, 32] {
        let network = Lossy::before(service.srt_address(), BAD);
        let sink = Sink::recording();
        let stream = api.create_stream(&format!("encrypted {key_bytes}"));
        api.add_destination(&stream, &sink.url(), "copy");
        with_passphrase(&service, &stream, &json!(PASSPHRASE));
        let shown = api.stream(&stream);
        assert_eq!(shown["hasSrtPassphrase"], true);
        assert!(!shown.to_string().contains(PASSPHRASE), "{shown}");
        let url = format!(
            "srt://{}?streamid=#!::r={},m=publish,u=me&latency={LATENCY_MS}&passphrase={PASSPHRASE}&pbkeylen={key_bytes}",
            network.address(),
            stream.key
        );
        // It discards what it reads before it is connected, so the first audio is from before the first keyframe.
        let _transmit = Transmit::start(folder.path(), &source, &url);
        sink.wait_for_media(CARRIED_PACKETS);
        assert_carried("the sink", source.records(), &sink.records(), EARLY_AUDIO_MILLIS);
    }
    service.assert_not_logged(&[("a passphrase", PASSPHRASE)]);
}

#[test]
fn callers_with_wrong_keys_and_passphrases_are_refused_with_a_reason() {
    let source = Source::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let service = Setup::default().srt().start();
    let api = service.api();
    let stream = api.create_stream("refused");
    with_passphrase(&service, &stream, &json!(PASSPHRASE));
    let unknown = stream.key.replace(|char: char| char.is_ascii_digit(), "z");
    let (wrong, right) = ("&passphrase=another%20passphrase", &format!("&passphrase={PASSPHRASE}"));
    for (key, more, code) in [
        (&unknown, right.as_str(), None),
        (&stream.key, wrong, Some("SRT.BadSecret")),
        (&stream.key, "", Some("SRT.Unsecure")),
    ] {
        let url = format!("srt://{}?streamid={key}{more}", service.srt_address());
        let _transmit = Transmit::start(folder.path(), &source, &url);
        match code {
            None => service.wait_for_log("the refusal", |line| line.contains(said::SRT_UNKNOWN_KEY)),
            Some(code) => wait::until("the refusal", || {
                let shown = api.stream(&stream);
                if shown["refusals"][0]["code"] == code {
                    Ok(shown.to_string())
                } else {
                    Err(shown.to_string())
                }
            }),
        };
        assert_eq!(api.stream(&stream)["state"], "idle");
    }
    with_passphrase(&service, &stream, &serde_json::Value::Null);
    let _encoder = Publish::of(&source).to(&ffmpeg_url(service.srt_address(), &stream.key, ""));
    api.wait_for_stream(&stream, "live");
}

#[test]
fn a_caller_that_returns_continues_its_session_and_leaves_when_it_is_told_to() {
    let source = Source::shared();
    let sink = Sink::recording();
    let service = Setup::default().srt().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "30").start();
    let api = service.api();
    let stream = api.create_stream("returns");
    api.add_destination(&stream, &sink.url(), "copy");
    let url = ffmpeg_url(service.srt_address(), &stream.key, "");
    let mut encoder = Publish::of(&source).to(&url);
    sink.wait_for_media(300);
    let before = api.wait_for_stream(&stream, "live");
    encoder.cut();
    api.wait_for_stream(&stream, "reconnecting");
    let first = sink.records().len();
    let mut encoder = Publish::of(&source).endless().to(&url);
    let after = api.wait_for_stream(&stream, "live");
    assert_eq!(after["startedAt"], before["startedAt"], "a new session was begun");
    sink.wait_for_media(first + 300);
    let stopped = api.post(&format!("/api/streams/{}/stop", stream.id), &json!({})).ok();
    assert_eq!(stopped["success"], true, "{stopped}");
    wait::until("the encoder to end", || if encoder.running() { Err("it runs".to_owned()) } else { Ok(()) });
    sink.wait_until_left();
    assert_eq!(sink.publishes(), 1, "the push to the server was interrupted");
    assert_times_never_go_back("the server", &sink.records());
}
