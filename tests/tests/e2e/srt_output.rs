//! Streams out by SRT: to ffmpeg and srt-live-transmit as listeners and as callers, over a network that loses packets,
//! with passphrases, refused, and into our own ingest.

use std::path::Path;

use satcast_tests::api::{Api, Stream};
use satcast_tests::encoder::Publish;
use satcast_tests::flv;
use satcast_tests::lossy::{BAD, Lossy};
use satcast_tests::ports::Port;
use satcast_tests::process::{Process, guarded};
use satcast_tests::record::{Record, assert_carried};
use satcast_tests::said;
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::wait::{self, seconds};
use serde_json::{Value, json};

/// Bytes that a receiver has written before the encoder ends.
const RECEIVED_BYTES: u64 = 3_000_000;
/// Audio before the first keyframe, which gets its time.
const EARLY_AUDIO_MILLIS: i64 = 100;
const LATENCY_MS: u64 = 2_000;
const PASSPHRASE: &str = "correct horse battery";
const WRONG_PASSPHRASE: &str = "another passphrase";
const STREAM_ID: &str = "sesame-0123456789";

/// Programs that receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Ffmpeg,
    Transmit,
}

/// A receiver that writes what it gets into a file.
struct Receiver {
    process: Process,
    file: std::path::PathBuf,
}

impl Receiver {
    /// `url` has everything but the latency, which the programs count in other units.
    fn start(program: Program, folder: &Path, name: &str, url: &str) -> Self {
        let file = folder.join(format!("{name}.ts"));
        let log = folder.join(format!("{name}.log"));
        let joined = if url.contains('?') { '&' } else { '?' };
        let process = match program {
            Program::Ffmpeg => {
                let mut command = guarded(Path::new("ffmpeg"));
                command.args(["-nostdin", "-hide_banner", "-loglevel", "error", "-y", "-i"]);
                command.arg(format!("{url}{joined}latency={}", LATENCY_MS * 1_000));
                command.args(["-c", "copy", "-f", "mpegts", "-flush_packets", "1"]).arg(&file);
                Process::start("ffmpeg", command, &log)
            }
            Program::Transmit => {
                let mut command = guarded(Path::new("sh"));
                let line =
                    "exec srt-live-transmit -loglevel:error -autoreconnect:no \"$1\" file://con > \"$2\"";
                command.args(["-c", line, "sh"]);
                command.arg(format!("{url}{joined}latency={LATENCY_MS}")).arg(&file);
                Process::start("srt-live-transmit", command, &log)
            }
        };
        Self { process, file }
    }

    fn wait_for_bytes(&mut self) {
        wait::until("media at the receiver", || {
            let bytes = self.file.metadata().map_or(0, |file| file.len());
            assert!(self.process.ended().is_none(), "the receiver ended: {}", self.process.log());
            if bytes >= RECEIVED_BYTES {
                Ok(())
            } else {
                Err(format!("{bytes} bytes; {}", self.process.log()))
            }
        });
    }

    /// Everything that it got, once it has ended by itself.
    fn records(&mut self) -> Vec<Record> {
        self.process.wait(seconds(60));
        let flv = self.file.with_extension("flv");
        let mut ffmpeg = guarded(Path::new("ffmpeg"));
        ffmpeg.args(["-nostdin", "-hide_banner", "-loglevel", "error", "-y", "-i"]).arg(&self.file);
        // Delimiters, which transport streams need, and parameter sets inside frames.
        ffmpeg.args(["-c", "copy", "-bsf:v", "filter_units=remove_types=7-9", "-f", "flv"]);
        let status = ffmpeg.arg(&flv).status().expect("ffmpeg");
        assert!(status.success(), "{status}");
        flv::read_without_sets(&flv)
    }
}

fn add(api: &Api, stream: &Stream, config: &Value) -> i64 {
    let path = format!("/api/streams/{}/destinations", stream.id);
    let body = api.post(&path, &json!({ "type": "srt", "config": config })).ok();
    assert_eq!(body["success"], true, "{body}");
    body["id"].as_i64().expect("the id of the destination")
}

/// A service whose destinations may open one port.
fn service(port: &Port) -> Service {
    Setup::default()
        .srt()
        .set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "0")
        .set("SATCAST_DRIVER__SRT__LISTENER_PORTS", &port.address().port().to_string())
        .set("SATCAST_DRIVER__SRT__LISTENER_ADDRESS", "127.0.0.1")
        .start()
}

/// The same with the driver in a process of its own, to which sockets are handed, or on threads.
fn ingesting(isolation: &str) -> Service {
    let setup = Setup::default().srt().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "0");
    setup.set("SATCAST_DRIVER__SRT__ISOLATION", isolation).start()
}

fn assert_no_secrets(service: &Service) {
    service.assert_not_logged(&[("a passphrase", PASSPHRASE), ("a stream id", STREAM_ID)]);
}

/// Calls `program` over a bad network, and compares the frames.
fn calls(program: Program, key_bytes: Option<u8>) {
    let (source, folder, port) = (Source::shared(), tempfile::tempdir().expect("a folder"), Port::lease());
    let service = service(&Port::lease());
    let (api, address) = (service.api(), port.address());
    let secret = key_bytes.map(|bytes| format!("&passphrase={PASSPHRASE}&pbkeylen={bytes}"));
    let url = format!("srt://{address}?mode=listener{}", secret.unwrap_or_default());
    let mut receiver = Receiver::start(program, folder.path(), "got", &url);
    let network = Lossy::before(address, BAD);
    let stream = api.create_stream("calls");
    let mut config = json!({ "url": format!("srt://{}", network.address()), "streamid": STREAM_ID, "latency": LATENCY_MS });
    if let Some(bytes) = key_bytes {
        (config["passphrase"], config["pbkeylen"]) = (json!(PASSPHRASE), json!(bytes));
    }
    let destination = add(&api, &stream, &config);
    let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&stream.key));
    wait::until_api("the destination to be live", || {
        // A listener of ffmpeg answers one conclusion alone. When that answer is lost, it ends after five seconds.
        if receiver.process.ended().is_some() {
            receiver = Receiver::start(program, folder.path(), "got", &url);
        }
        let shown = api.destination(&stream, destination);
        if shown["state"] == "live" { Ok(()) } else { Err(shown.to_string()) }
    });
    receiver.wait_for_bytes();
    let sent = encoder.end();
    api.wait_for_stream(&stream, "idle");
    let shown = api.destination(&stream, destination).to_string();
    assert!(!shown.contains(PASSPHRASE) && !shown.contains(STREAM_ID), "{shown}");
    assert_carried("the receiver", &sent, &receiver.records(), EARLY_AUDIO_MILLIS);
    assert_no_secrets(&service);
}

/// Sends a stream by SRT to this service itself, where it goes out by RTMP to the returned server.
pub(crate) fn add_loop(api: &Api, service: &Service, stream: &Stream) -> (Stream, Sink) {
    let (through, sink) = (api.create_stream("through"), Sink::recording());
    api.add_destination(&through, &sink.url(), "copy");
    let url = format!("srt://{}", service.srt_address());
    let body = json!({"type": "srt", "config": {"url": url, "streamid": through.key, "latency": 500}});
    let _made = api.post(&format!("/api/streams/{}/destinations", stream.id), &body).ok();
    (through, sink)
}

#[test]
fn ffmpeg_is_called_over_loss_delay_and_reordering() {
    calls(Program::Ffmpeg, None);
}

#[test]
fn ffmpeg_is_called_with_a_key_of_32_bytes() {
    calls(Program::Ffmpeg, Some(32));
}

#[test]
fn srt_live_transmit_is_called_with_a_key_of_16_bytes() {
    calls(Program::Transmit, Some(16));
}

/// Lets both programs call over a bad network, and compares the frames of each.
fn called(key_bytes: Option<u8>) {
    let (source, folder, port) = (Source::shared(), tempfile::tempdir().expect("a folder"), Port::lease());
    let service = service(&port);
    let (api, stream) = (service.api(), service.api().create_stream("called"));
    let number = port.address().port();
    let mut config = json!({ "url": format!("srt://:{number}"), "mode": "listener", "streamid": STREAM_ID,
        "latency": LATENCY_MS });
    let mut secret = String::new();
    if let Some(bytes) = key_bytes {
        config["passphrase"] = json!(PASSPHRASE);
        secret = format!("&passphrase={PASSPHRASE}&pbkeylen={bytes}");
    }
    let destination = add(&api, &stream, &config);
    let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&stream.key));
    let waiting = wait::until_api("the port to be open", || {
        let shown = api.destination(&stream, destination);
        if shown["error"].is_null() { Err(shown.to_string()) } else { Ok(shown) }
    });
    assert_ne!(waiting["state"], "live", "{waiting}");
    let networks = [(); 2].map(|()| Lossy::before(port.address(), BAD));
    let programs = [Program::Ffmpeg, Program::Transmit];
    let mut receivers: Vec<Receiver> = programs
        .iter()
        .zip(&networks)
        .map(|(program, network)| {
            let url = format!("srt://{}?mode=caller&streamid={STREAM_ID}{secret}", network.address());
            Receiver::start(*program, folder.path(), &format!("{program:?}"), &url)
        })
        .collect();
    receivers.iter_mut().for_each(Receiver::wait_for_bytes);
    api.wait_for_destination(&stream, destination, "live");
    let sent = encoder.end();
    for (program, receiver) in programs.iter().zip(&mut receivers) {
        assert_carried(&format!("{program:?}"), &sent, &receiver.records(), EARLY_AUDIO_MILLIS);
    }
    assert_no_secrets(&service);
}

#[test]
fn both_programs_call_a_listener() {
    called(None);
}

#[test]
fn both_programs_call_a_listener_with_a_key_of_16_bytes() {
    called(Some(16));
}

#[test]
fn both_programs_call_a_listener_with_a_key_of_32_bytes() {
    called(Some(32));
}

#[test]
fn a_stream_goes_by_srt_into_our_own_ingest() {
    goes_into_our_own_ingest("thread");
}

#[test]
fn a_stream_goes_from_an_isolated_driver_into_our_own_ingest() {
    goes_into_our_own_ingest("process");
}

fn goes_into_our_own_ingest(isolation: &str) {
    let (source, sink) = (Source::shared(), Sink::recording());
    let service = ingesting(isolation);
    let api = service.api();
    let (first, second) = (api.create_stream("first"), api.create_stream("second"));
    let path = format!("/api/streams/{}", second.id);
    assert_eq!(api.patch(&path, &json!({ "srtPassphrase": PASSPHRASE })).ok()["success"], true);
    api.add_destination(&second, &sink.url(), "copy");
    let network = Lossy::before(service.srt_address(), BAD);
    let url = format!("srt://{}", network.address());
    let config = |passphrase: &str| json!({ "url": url, "streamid": second.key, "passphrase": passphrase, "latency": LATENCY_MS });
    let wrong = add(&api, &first, &config(WRONG_PASSPHRASE));
    let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&first.key));
    let refused = wait::until_api("the refusal", || {
        let shown = api.destination(&first, wrong);
        let (next, last) = (shown["nextRetryAt"].as_i64(), shown["lastError"]["at"].as_i64());
        // A wrong passphrase is tried again slowly, and other failures after a second.
        if next > last.map(|last| last + 50_000) { Ok(shown) } else { Err(shown.to_string()) }
    });
    assert!(!refused.to_string().contains(WRONG_PASSPHRASE), "{refused}");
    let right = add(&api, &first, &config(PASSPHRASE));
    api.wait_for_destination(&first, right, "live");
    sink.wait_for_media(500);
    let sent = encoder.end();
    api.wait_for_stream(&second, "idle");
    sink.wait_until_left();
    assert_carried("the sink", &sent, &sink.records(), EARLY_AUDIO_MILLIS);
    service.assert_not_logged(&[("a passphrase", PASSPHRASE), ("a stream key", &second.key)]);
}

#[test]
fn what_cannot_be_sent_is_refused_with_its_field() {
    let port = Port::lease();
    let service = service(&port);
    let (api, stream) = (service.api(), service.api().create_stream("refused"));
    let path = format!("/api/streams/{}/destinations", stream.id);
    for config in [
        json!({ "url": "srt://:1", "mode": "listener" }),
        json!({ "url": "srt://a.example" }),
        json!({ "url": "srt://a.example:9?latency=200" }),
        json!({ "url": "srt://a.example:9", "passphrase": "short" }),
        json!({ "url": "srt://10.0.0.1:9" }),
    ] {
        let answer = api.post(&path, &json!({ "type": "srt", "config": config }));
        assert_eq!(answer.status, 422, "{config}");
    }
    let url = format!("srt://:{}?mode=listener&passphrase={PASSPHRASE}", port.address().port());
    let destination = add(&api, &stream, &json!({ "url": url, "streamid": STREAM_ID }));
    let shown = api.destination(&stream, destination).to_string();
    assert!(!shown.contains(PASSPHRASE) && !shown.contains(STREAM_ID), "{shown}");
}

#[test]
fn a_stream_that_leads_back_to_itself_is_turned_away() {
    let (source, sink) = (Source::shared(), Sink::recording());
    let service = ingesting("thread");
    let api = service.api();
    let (first, second) = (api.create_stream("first"), api.create_stream("second"));
    let url = format!("srt://{}", service.srt_address());
    api.add_destination(&second, &sink.url(), "copy");
    add(&api, &first, &json!({ "url": url, "streamid": second.key }));
    // The backup keys take a second encoder, so that only the loop is in the way.
    let backup = api.stream(&first)["backupKey"].as_str().expect("a backup key").to_owned();
    let back = add(&api, &second, &json!({ "url": url, "streamid": backup }));
    let _encoder = Publish::of(&source).endless().to(&service.ingest_url(&first.key));
    sink.wait_for_media(300);
    service.wait_for_log("the loop", |line| line.contains(said::LOOP));
    // It calls again and again, and is turned away each time, with the reason at its stream.
    wait::until_api("the loop to be outside", || {
        let (shown, stream) = (api.destination(&second, back), api.stream(&first));
        let encoders = stream["encoders"].as_array().map_or(0, Vec::len);
        let is_told = stream["refusals"].as_array().is_some_and(|refusals| !refusals.is_empty());
        let is_outside = shown["lastError"].is_object() && shown["state"] != "live" && encoders == 1;
        if is_outside && is_told { Ok(()) } else { Err(format!("{encoders} encoders, {is_told}, {shown}")) }
    });
}
