//! The stream in a browser with hls.js: seeking, and everything that may happen meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use satcast_tests::encoder::Publish;
use satcast_tests::hls::Viewer;
use satcast_tests::hosted::Hosted;
use satcast_tests::lowlatency::Version;
use satcast_tests::player::{Engine, Player, assert_moves, assert_smooth, assert_valid_playlists};
use satcast_tests::probe::{of_track, packets};
use satcast_tests::record::Track;
use satcast_tests::scene::children;
use satcast_tests::service::Setup;
use satcast_tests::soak;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait;
use serde_json::{Value, json};

/// hls.js stays three targets behind the newest segment, which is up to one segment old. The rest is a margin for a busy machine,
/// and less than a fourth target.
const LATENCY_TARGETS: f64 = 3.0;
const LATENCY_BEYOND_SECONDS: f64 = 3.5;
/// Of the shared source.
const FRAMES_PER_SECOND: f64 = 30.0;
/// Playlists for hls-parser: one process reads them all.
const JUDGED_MAX: usize = 60;
/// How long the encoder is away.
const CUT: Duration = Duration::from_secs(3);
/// The same for a player without parts, which has more seconds in its buffer.
const LONG_CUT: Duration = Duration::from_secs(5);

/// Whether this is the long form.
fn is_long() -> bool {
    soak::rounds(1) > 1
}

/// How long the live edge is watched: ten seconds, or ten minutes in the long form.
fn watched() -> u64 {
    if is_long() { 600 } else { 10 }
}

/// The source to watch: small frames, or those of a real stream in the long form.
fn shown() -> Source {
    if is_long() { Source::shared() } else { Source::of(Recipe::SCREEN) }
}

/// Watches for this many seconds, and prints a line per minute.
fn watch(player: &mut Player, seconds: u64) -> Value {
    let mut left = seconds;
    loop {
        let now = left.min(60);
        left -= now;
        let state = player.step(&format!("wait {now}"));
        print_state(seconds - left, &state);
        if left == 0 {
            return state;
        }
    }
}

/// Prints the measured figures of the live edge after `seconds`, before any assertion on them.
fn print_state(seconds: u64, state: &Value) {
    let (behind, size) = (&state["behind"], (&state["width"], &state["height"]));
    println!(
        "{} watched {seconds} s of {}x{}: {} to {} s behind, {} s buffered at least, {} s shown, stalls {}, clock of the page at most {} ms late, minor errors {}, requests {}",
        state["engine"],
        size.0,
        size.1,
        behind["min"],
        behind["max"],
        state["ahead"],
        state["position"],
        state["stalls"],
        state["lagMs"],
        state["minor"],
        state["requests"]["byKind"]
    );
}

fn number(state: &Value, field: &str) -> f64 {
    state[field].as_f64().unwrap_or_else(|| panic!("no {field} in {state}"))
}

/// Expects the latency that a player keeps without parts, over `seconds`.
#[track_caller]
fn assert_near_live(state: &Value, seconds: f64) {
    assert_behind(
        state,
        seconds,
        LATENCY_TARGETS * number(&state["level"], "target") + LATENCY_BEYOND_SECONDS,
    );
}

/// Expects a lower latency than a player can have without parts, over `seconds`.
#[track_caller]
fn assert_nearer(state: &Value, seconds: f64) {
    assert_behind(state, seconds, LATENCY_TARGETS * number(&state["level"], "target"));
}

/// Expects a latency of at most `most` over `seconds`. On a busy machine frames that the player did not show, and the longest time in
/// which its page did not run, add to the latency; the service causes neither.
#[track_caller]
fn assert_behind(state: &Value, seconds: f64, most: f64) {
    let unshown = (seconds - number(state, "frames") / FRAMES_PER_SECOND).max(0.0);
    let lost = unshown + number(state, "lagMs") / 1000.0;
    let behind = number(state, "latency");
    assert!(behind < most + lost, "{behind} s behind, at most {most} s are due and {lost} s lost: {state}");
}

#[test]
fn soak_hls_js_plays_goes_back_and_returns() {
    let watched = watched();
    // In the short form, back to the beginning of the stream.
    let far = if is_long() { 20.0 } else { 9.0 };
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "on screen");
    let _encoder = Publish::of(&shown()).endless().to(&service.ingest_url(&hosted.stream.key));
    let mut player = Player::launch(Engine::HlsJs);
    player.open(&hosted.ready());
    let live = watch(&mut player, watched);
    assert_smooth(&live);
    assert_near_live(&live, watched as f64);
    assert_eq!(live["level"]["dated"], true, "{live}");
    assert!(live["level"]["codecs"].as_str().is_some_and(|codecs| codecs.starts_with("avc1.")), "{live}");

    let before = number(&player.step("state"), "position");
    player.step(&format!("back {far}"));
    let back = player.step("wait 3");
    assert_smooth(&back);
    assert!(number(&back, "latency") > number(&live, "latency") + far - 3.0, "{back}");
    assert!(number(&back, "position") < before - far + 6.0, "{back}");
    player.shot("hls-js-back");
    player.step("live");
    let again = player.step("wait 3");
    assert_smooth(&again);
    assert_near_live(&again, 3.0);
    player.shot("hls-js-live");
    println!("{} s behind, then {} s; minor errors: {}", live["latency"], again["latency"], again["minor"]);
    player.finish();
}

#[test]
fn playback_goes_on_when_the_encoder_returns_with_another_resolution() {
    let mut service = Setup::default().start();
    let hosted = Hosted::new(&service, "cut");
    let ingest = service.ingest_url(&hosted.stream.key);
    let mut encoder = Publish::of(&Source::of(Recipe::SCREEN)).to(&ingest);
    let mut player = Player::launch(Engine::HlsJs);
    player.open(&hosted.ready());
    assert_smooth(&player.step("wait 2"));
    encoder.cut();
    std::thread::sleep(LONG_CUT);
    assert_eq!(hosted.status()["isLive"], true, "the session goes on while the encoder is away");
    let mut encoder = Publish::of(&Source::of(Recipe::SMALL)).endless().to(&ingest);
    let state = player.step("resolution 640 2");
    assert_moves(&state);
    assert_eq!(state["fatal"], serde_json::json!([]), "{state}");
    let sizes: Vec<_> =
        state["resolutions"].as_array().into_iter().flatten().map(|one| one["width"].as_u64()).collect();
    assert_eq!(sizes, [Some(480), Some(640)], "{state}");
    println!("stalls across the cut: {}", state["stalls"]);
    player.shot("hls-js-after-the-cut");
    let crossing = state["resolutions"][1]["at"].as_f64().expect("the time at which the resolution changed");
    let ahead = number(&state, "position") - crossing;
    let sought = player.step(&format!("back {}", ahead + 3.0));
    assert!(number(&sought, "position") < crossing, "{sought}");
    assert_moves(&player.step("wait 1"));

    // The worst case: the service dies too. The site loads the address again.
    service.kill();
    encoder.cut();
    service.start();
    let _encoder = Publish::of(&Source::of(Recipe::SCREEN)).endless().to(&ingest);
    hosted.ready();
    player.step("reload");
    assert_moves(&player.step("resolution 480 2"));
}

/// Two viewers watch the preview together, which is its intended use. The long form takes a minute, as the limit is per minute.
#[test]
fn soak_two_viewers_of_the_preview_stay_below_its_limit() {
    let watched = if is_long() { 70 } else { 8 };
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "preview");
    let _encoder = Publish::of(&shown()).endless().to(&service.ingest_url(&hosted.stream.key));
    let (mut one, mut other) = (Player::launch(Engine::HlsJs), Player::launch(Engine::HlsJs));
    let url = hosted.preview_url(&mut hosted.viewer());
    one.open(&url);
    other.open(&url);
    other.step(&format!("wait {watched}"));
    let mut requests = 0;
    for player in [&mut one, &mut other] {
        let state = player.step("wait 1");
        assert_moves(&state);
        assert_eq!(state["fatal"], serde_json::json!([]), "{state}");
        let statuses = state["requests"]["byStatus"].as_object().expect("requests by status");
        assert!(statuses.keys().eq(["200"]), "{state}");
        requests += statuses["200"].as_u64().unwrap_or_default();
        println!("stalls of the preview: {}", state["stalls"]);
    }
    println!("two viewers asked {requests} times in {watched} s");
}

/// The answers that a viewer gets when it requests each version as it appears.
#[derive(Default)]
struct Followed {
    texts: Vec<String>,
    versions: usize,
    deltas: usize,
    /// Whole playlists in answer to requests for a delta, where a delta could have left out much.
    undue: usize,
    /// Largest delta: its bytes, and its bytes as transferred.
    largest: (usize, usize),
}

/// A follower of the versions of a playlist, next to a player.
struct Following {
    done: Arc<AtomicBool>,
    crossed: Arc<AtomicBool>,
    thread: JoinHandle<Followed>,
}

impl Following {
    fn begin(url: &str) -> Self {
        let (done, crossed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (viewer, until, crosses) = (Viewer::of(url), done.clone(), crossed.clone());
        Self { done, crossed, thread: std::thread::spawn(move || follow(viewer, &until, &crosses)) }
    }

    /// Waits for a delta with the discontinuity in it.
    #[track_caller]
    fn crosses(&self) {
        wait::until("a delta across the discontinuity", || {
            let is_over = self.crossed.load(Ordering::Relaxed) || self.thread.is_finished();
            if is_over { Ok(()) } else { Err("none".to_owned()) }
        });
    }

    #[track_caller]
    fn end(self) -> Followed {
        self.done.store(true, Ordering::Relaxed);
        self.thread.join().expect("every version keeps the rules")
    }
}

/// Waits for each part, every other time with a delta, and loads the parts of every fifth segment.
fn follow(mut viewer: Viewer, done: &AtomicBool, crossed: &AtomicBool) -> Followed {
    let mut seen = Followed::default();
    let (mut before, text, _) = viewer.version("").expect("nothing is waited for");
    seen.texts.push(text);
    while !done.load(Ordering::Relaxed) {
        let asks_delta = seen.versions % 2 == 0;
        let skip = if asks_delta { "&_HLS_skip=YES" } else { "" };
        let wanted = (before.next(), before.next_part());
        // No version appears while the encoder is away.
        let query = format!("_HLS_msn={}&_HLS_part={}{skip}", wanted.0, wanted.1);
        let Some((version, text, sent)) = viewer.version(&query) else { continue };
        assert!((version.next(), version.next_part()) > wanted, "asked for {wanted:?}:\n{text}");
        version.assert_follows(&before);
        seen.versions += 1;
        if version.skipped > 0 && text.contains("#EXT-X-DISCONTINUITY\n") {
            crossed.store(true, Ordering::Relaxed);
        }
        let listed: f64 = version.segments.iter().map(|(_, duration)| duration).sum();
        let oldest = version.segments.first().map_or(0.0, |(_, duration)| *duration);
        if asks_delta && version.skipped == 0 && listed - oldest >= version.skip_until {
            seen.undue += 1;
        }
        if version.skipped > 0 {
            seen.deltas += 1;
            seen.largest = seen.largest.max((text.len(), sent));
        }
        if version.next_part() == 0 && version.next() % 5 == 0 {
            parts_are_their_segment(&mut viewer, &version);
        }
        seen.texts.push(text);
        before = version;
    }
    seen
}

/// Expects that the parts of the newest whole segment have its bytes together, and that each can be read.
fn parts_are_their_segment(viewer: &mut Viewer, version: &Version) {
    let newest = version.next() - 1;
    let parts: Vec<_> = version.parts.iter().filter(|part| part.sequence == newest).cloned().collect();
    let (_, duration) = version.segments.last().expect("a whole segment");
    // The last segment of an encoder may be shorter than a part.
    let least = if *duration > version.part_target { 2 } else { 1 };
    assert!(parts.len() >= least, "{version:?}");
    let chunks = viewer.parts(&parts);
    let whole = viewer.load(&format!("{newest}.m4s")).body;
    assert!(chunks.iter().flat_map(|chunk| &chunk.bytes).eq(&whole), "the parts differ from the segment");
    // Frames in the middle of a GOP do not decode alone: each part is read after the parts before it.
    let (mut so_far, mut seconds, mut frames) = (chunks[0].clone(), 0.0, 0);
    // A frame that lasts longer than the maximum part duration is one part, and is listed with that maximum.
    let is_slow = parts.iter().any(|part| part.duration >= version.part_target);
    so_far.bytes.clear();
    for chunk in &chunks {
        so_far.bytes.extend_from_slice(&chunk.bytes);
        seconds += chunk.entry.duration;
        let video = of_track(&packets(&so_far), Track::Video);
        assert!(video[0].keyframe && video.len() > frames, "{} frames at {:?}", video.len(), chunk.entry);
        assert!(video.windows(2).all(|pair| pair[0].dts < pair[1].dts), "{:?}", chunk.entry);
        frames = video.len();
        // The duration of a single frame is not known.
        if is_slow || frames < 2 {
            continue;
        }
        let shown = (video[frames - 1].dts - video[0].dts) * frames as f64 / (frames - 1) as f64;
        assert!((shown - seconds).abs() < 0.05, "{shown} s up to {:?}", chunk.entry);
    }
}

#[test]
fn soak_hls_js_plays_parts_and_stays_near() {
    let watched = watched();
    let service = Setup::default().start();
    let hosted = Hosted::with(&service, "near", &json!({ "lowLatency": true }));
    let ingest = service.ingest_url(&hosted.stream.key);
    let mut encoder = Publish::of(&shown()).endless().to(&ingest);
    let mut player = Player::launch(Engine::HlsJs);
    let url = hosted.ready();
    let following = Following::begin(&url);
    let started = player.open(&url);
    let live = watch(&mut player, watched);
    println!("first frame after {} ms, {} s behind", started["firstFrameMs"], live["latency"]);
    assert_smooth(&live);
    assert_nearer(&live, watched as f64);

    let oldest = number(&live, "position") - number(&live["level"], "start") - 1.0;
    player.step(&format!("back {oldest}"));
    assert_moves(&player.step("wait 1"));
    player.step("live");
    let again = player.step("wait 2");
    assert_moves(&again);
    println!("after the return {} s behind, stalls {}", again["latency"], again["stalls"]);

    encoder.cut();
    std::thread::sleep(CUT);
    let _encoder = Publish::of(&Source::of(Recipe::SMALL)).endless().to(&ingest);
    let state = player.step("resolution 640 2");
    assert_moves(&state);
    assert_eq!(state["fatal"], json!([]), "{state}");
    assert_eq!((state["width"].as_u64(), &state["level"]["live"]), (Some(640), &json!(true)), "{state}");
    println!("after the cut {} s behind, stalls {}", state["latency"], state["stalls"]);
    player.finish();
    following.crosses();

    let seen = following.end();
    let deltas = (seen.deltas, seen.undue);
    assert!(
        seen.versions as u64 > watched && deltas.0 > 2 && deltas.1 == 0,
        "{deltas:?} of {}",
        seen.versions
    );
    assert!(seen.largest.0 <= 2048 && seen.largest.1 <= 600, "a delta of {:?} bytes", seen.largest);
    println!("{} versions, {} deltas of at most {:?} bytes", seen.versions, seen.deltas, seen.largest);
    // The newest playlists, which contain the discontinuity.
    let judged: Vec<&str> = seen.texts.iter().rev().take(JUDGED_MAX).map(String::as_str).collect();
    assert_valid_playlists(&judged);
}

/// An isolated driver: its parts, hints and deltas come over the socket. The encoder then returns with frames that are longer than
/// parts, in GOPs longer than segments.
#[test]
fn hls_js_plays_parts_of_an_isolated_driver() {
    let service = Setup::default().set("SATCAST_DRIVER__HLS__ISOLATION", "process").start();
    assert_eq!(children(&service).len(), 1, "the driver has a process of its own");
    let hosted = Hosted::with(&service, "isolated", &json!({ "lowLatency": true }));
    let ingest = service.ingest_url(&hosted.stream.key);
    let mut encoder = Publish::of(&Source::of(Recipe::SCREEN)).endless().to(&ingest);
    let mut player = Player::launch(Engine::HlsJs);
    let url = hosted.ready();
    let following = Following::begin(&url);
    player.open(&url);
    // Deltas begin when the window is longer than six targets.
    let live = player.step("wait 12");
    print_state(12, &live);
    assert_smooth(&live);
    assert_nearer(&live, 12.0);
    encoder.cut();
    let _encoder = Publish::of(&Source::of(Recipe::SLOW)).endless().to(&ingest);
    // Longer than a GOP.
    let slow = player.step("resolution 640 6");
    println!("stalls of slow frames: {}", slow["stalls"]);
    assert_eq!(slow["fatal"], json!([]), "{slow}");
    let media = Viewer::of(&url).media_when("two slow GOPs", |media| {
        media.segments.iter().skip_while(|segment| !segment.discontinuity).count() >= 2
    });
    let returned = media.segments.iter().skip_while(|segment| !segment.discontinuity);
    let durations: Vec<f64> = returned.map(|segment| segment.duration.round()).collect();
    assert!(durations.iter().all(|seconds| *seconds == 4.0), "{durations:?}");
    let broken = media.segments.iter().filter(|segment| segment.discontinuity).count();
    assert_eq!(broken, 1, "a GOP does not follow the one before: {media:?}");
    player.finish();
    let seen = following.end();
    assert!(seen.versions > 20 && seen.deltas > 0, "{} versions, {} deltas", seen.versions, seen.deltas);
    println!("{} versions, {} deltas of at most {:?} bytes", seen.versions, seen.deltas, seen.largest);
}
