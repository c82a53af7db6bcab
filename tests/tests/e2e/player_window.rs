//! A long window in a browser: filled faster than real time, then sought to its oldest second. An hour in `cargo xtask soak`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use satcast_tests::encoder::{Encoder, Publish};
use satcast_tests::hls::Viewer;
use satcast_tests::hosted::{Hosted, window_files};
use satcast_tests::player::{Engine, Player};
use satcast_tests::playlist::Media;
use satcast_tests::service::{Service, Setup};
use satcast_tests::soak;
use satcast_tests::wait::{self, seconds};
use serde_json::{Value, json};

/// Minutes of the window in a normal run, and in a long one.
const MINUTES: u64 = 10;
const MINUTES_MAX: u64 = 60;
/// More than the window is filled, so that its oldest second is not the first of the stream.
const MORE_SECONDS: u64 = 60;
const FASTER: u32 = 90;
/// Plain and with parts.
const WINDOWS: usize = 2;
/// The encoder waits while more than this of its media is not on the disk: half of the driver's memory. A busy disk would shorten the
/// window, which another test covers.
const UNWRITTEN_SECONDS_MAX: f64 = 15.0 * SEGMENT_SECONDS;
const LOOK: Duration = Duration::from_millis(100);
/// Seconds between two keyframes of the source.
const SEGMENT_SECONDS: f64 = 4.0;
/// Filling takes a fraction of this.
const FILLING: u64 = 400;
/// Longest delta: the requirement is 2048 bytes for 14 parts in any window. Segments of four seconds list up to 24 parts of 54 bytes.
const DELTA_BYTES_MAX: usize = 2048 + 10 * 54;

fn number(state: &Value, field: &str) -> f64 {
    state[field].as_f64().unwrap_or_else(|| panic!("no {field} in {state}"))
}

/// Where a window begins in the stream.
#[derive(Clone, Copy)]
struct Begin {
    /// Number of its first segment.
    sequence: u64,
    /// The second shown by its first frame.
    second: f64,
}

impl Begin {
    /// The window's begin, counted back from the end of the filled part, which has `filled_seconds`.
    fn of(media: &Media, filled_seconds: u64) -> Self {
        let filled = media
            .segments
            .iter()
            .take_while(|segment| segment.sequence == media.sequence || !segment.discontinuity);
        let seconds: f64 = filled.map(|segment| segment.duration).sum();
        Begin { sequence: media.sequence, second: filled_seconds as f64 - seconds.round() }
    }

    /// Expects that a frame is the one of its position.
    #[track_caller]
    fn assert_shows(self, shown: &Value) {
        let rolled = number(&shown["level"], "first") - self.sequence as f64;
        let into = number(shown, "mediaTime") - number(&shown["level"], "start");
        // Positions are rounded to milliseconds; a frame shows whole seconds.
        let wanted = self.second + rolled * SEGMENT_SECONDS + into + 0.01;
        assert_eq!(number(shown, "second"), wanted.floor(), "the frame is not that of {wanted} s: {shown}");
    }
}

#[test]
fn soak_the_oldest_second_of_a_long_window_is_soon_on_the_screen() {
    let window_seconds = 60 * soak::rounds(MINUTES).min(MINUTES_MAX);
    let filled_seconds = window_seconds + MORE_SECONDS;
    let service = Setup::default().start();
    let plain = Hosted::with(&service, "long", &json!({ "dvrSeconds": window_seconds }));
    let near = plain.beside(&service, &json!({ "dvrSeconds": window_seconds, "lowLatency": true }));
    let ingest = service.ingest_url(&plain.stream.key);
    let before = service.process().resident_kib();
    let began = Instant::now();
    let mut filling = Publish::clock(filled_seconds).faster(FASTER).to(&ingest);
    fill(&mut filling, &service);
    println!("{filled_seconds} s were filled in {:.1} s", began.elapsed().as_secs_f64());
    // Its last media is still in the kernel. Until the service has read all of it, the next encoder would be refused as a second one.
    service.api().wait_for_stream(&plain.stream, "reconnecting");
    println!("and taken in after {:.1} s", began.elapsed().as_secs_f64());
    let _encoder = Publish::clock(180).real_time().to(&ingest);
    for (name, hosted) in [("plain", plain), ("low latency", near)] {
        let mut viewer = hosted.viewer();
        let media = viewer.media_when("the encoder that goes on", |media| {
            media.segments.iter().skip(1).rev().skip(2).any(|segment| segment.discontinuity)
        });
        let (window, longest) = (media.seconds(), window_seconds as f64);
        println!("{name}: a window of {window} s, {} segments", media.segments.len());
        assert!(window <= longest && window > longest - 3.0 * SEGMENT_SECONDS, "{window} s");
        figures(name, &mut viewer, &service, before);
        watched(name, &hosted.ready(), Begin::of(&media, filled_seconds), longest / 2.0);
    }
}

/// Lets the encoder run to its end as fast as the disk takes both windows.
fn fill(encoder: &mut Encoder, service: &Service) {
    let mut waits = 0;
    wait::within("the window to be filled", seconds(FILLING), || {
        let written = written(service);
        let unwritten = encoder.sent_seconds() - written as f64 * SEGMENT_SECONDS;
        if !encoder.running() {
            return Ok(());
        } else if unwritten > UNWRITTEN_SECONDS_MAX {
            encoder.freeze();
            waits += 1;
        } else {
            encoder.thaw();
        }
        std::thread::sleep(LOOK);
        Err(format!("{written} segments are written, {unwritten} s are not"))
    });
    println!("the encoder had to wait {waits} times");
    encoder.finish(seconds(60));
}

/// The number of written segments of each window. The number of its first segment is the name of its folder.
fn written(service: &Service) -> u64 {
    let number = |name: Option<&OsStr>| name?.to_str()?.parse::<u64>().ok();
    let mut windows = BTreeMap::new();
    for file in window_files(service) {
        let first = number(file.parent().and_then(Path::file_name));
        if let (Some(first), Some(last)) = (first, number(file.file_stem())) {
            let count: &mut u64 = windows.entry(first).or_default();
            *count = (*count).max(last + 1 - first);
        }
    }
    if windows.len() < WINDOWS { 0 } else { windows.into_values().min().unwrap_or(0) }
}

/// Size and time of the playlist, and memory.
fn figures(name: &str, viewer: &mut Viewer, service: &Service, before: u64) {
    let path = viewer.playlist();
    let mut ask = |path: &str, headers: &[(&str, &str)]| {
        let began = Instant::now();
        let reply = viewer.http.get(path, headers);
        reply.assert_status(200);
        let sent = reply.header("content-length").and_then(|length| length.parse::<usize>().ok());
        (reply.text().len(), sent.expect("a length"), began.elapsed())
    };
    let full = ask(&path, &[]);
    let packed = ask(&path, &[("accept-encoding", "gzip")]);
    println!("{name}: {} bytes, gzip {} bytes in {:?}, again {:?}", full.0, packed.1, packed.2, full.2);
    let delta = ask(&format!("{path}?_HLS_skip=YES"), &[("accept-encoding", "gzip")]);
    if name == "low latency" {
        assert!(delta.0 <= DELTA_BYTES_MAX, "a delta of {} bytes", delta.0);
        println!("{name}: delta {} bytes, gzip {} bytes", delta.0, delta.1);
    }
    println!("memory of the service: {} KiB, {before} KiB before", service.process().resident_kib());
}

/// Starts at the live edge, seeks to the oldest second, plays on there, and returns, which is at least as many seconds away.
fn watched(name: &str, url: &str, begin: Begin, away: f64) {
    let (mut player, started) = Player::start(Engine::HlsJs, url);
    player.step("wait 2");
    let oldest = player.step("oldest");
    begin.assert_shows(&oldest);
    assert!((number(&oldest, "mediaTime") - number(&oldest, "to")).abs() < 0.5, "{oldest}");
    let state = player.step("wait 3");
    assert_eq!(state["fatal"], json!([]), "{state}");
    let later = player.step("frame");
    begin.assert_shows(&later);
    assert!(number(&later, "second") > number(&oldest, "second"), "{later}");
    player.shot(&format!("the-oldest-second-{}", name.replace(' ', "-")));
    let returned = player.step("live");
    let live = player.step("wait 3");
    assert!(number(&live, "position") > number(&oldest, "position") + away, "{live}");
    println!(
        "{name}, {}: first frame after {} ms; second {} of the stream, the oldest, after {} ms, live again after {} ms; stalls {}",
        state["engine"],
        started["firstFrameMs"],
        oldest["second"],
        oldest["seekMs"],
        returned["seekMs"],
        live["stalls"]
    );
    player.finish();
}
