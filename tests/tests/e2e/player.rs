//! The stream in a browser with hls.js: seeking, and everything that may happen meanwhile.

use std::time::Duration;

use satcast_tests::encoder::Publish;
use satcast_tests::hosted::Hosted;
use satcast_tests::player::{Engine, Player, assert_moves, assert_smooth, stalls};
use satcast_tests::service::Setup;
use satcast_tests::soak;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::seconds;
use serde_json::Value;

/// From opening the address to the first picture; the rest of a second is the machine's.
const FIRST_FRAME_MILLIS: u64 = 2_000;
/// hls.js stays three targets behind the newest segment, which is up to a segment old; half a second for the way.
const LATENCY_TARGETS: f64 = 3.0;
const LATENCY_BEYOND_SECONDS: f64 = 2.5;
/// Of the shared source.
const PICTURES_PER_SECOND: f64 = 30.0;
const BACK_SECONDS: f64 = 20.0;
const SEEK_MILLIS: u64 = 1_500;
/// How long the encoder is away.
const CUT: Duration = Duration::from_secs(5);

fn number(state: &Value, field: &str) -> f64 {
    state[field].as_f64().unwrap_or_else(|| panic!("no {field} in {state}"))
}

/// `seconds` were watched. What a busy machine did not show of them, it is behind by no fault of the service.
#[track_caller]
fn assert_near_live(state: &Value, seconds: f64) {
    let lost = (seconds - number(state, "frames") / PICTURES_PER_SECOND).max(0.0);
    let most = LATENCY_TARGETS * number(&state["level"], "target") + LATENCY_BEYOND_SECONDS + lost;
    let behind = number(state, "latency");
    assert!(behind < most, "{behind} s behind, at most {most} are due: {state}");
}

#[test]
fn hls_js_plays_goes_back_and_returns() {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "on screen");
    let _encoder = Publish::of(&Source::shared()).endless().to(&service.ingest_url(&hosted.stream.key));
    let url = hosted.ready(seconds(20));
    let (mut player, started) = Player::start(Engine::HlsJs, &url);
    assert!(number(&started, "firstFrameMs") < FIRST_FRAME_MILLIS as f64, "{started}");
    let live = player.step("wait 23");
    assert_smooth(&live);
    assert_near_live(&live, 23.0);
    assert_eq!(live["level"]["dated"], true, "{live}");
    assert!(live["level"]["codecs"].as_str().is_some_and(|codecs| codecs.starts_with("avc1.")), "{live}");

    let before = number(&player.step("state"), "position");
    let sought = player.step("back 20");
    assert!(sought["seekMs"].as_u64().is_some_and(|took| took < SEEK_MILLIS), "{sought}");
    let back = player.step("wait 3");
    assert_smooth(&back);
    assert!(number(&back, "latency") > number(&live, "latency") + BACK_SECONDS - 3.0, "{back}");
    assert!(number(&back, "position") < before - BACK_SECONDS + 6.0, "{back}");
    player.shot("hls-js-20-s-back");
    let returned = player.step("live");
    assert!(returned["seekMs"].as_u64().is_some_and(|took| took < SEEK_MILLIS), "{returned}");
    let again = player.step("wait 5");
    assert_smooth(&again);
    assert_near_live(&again, 5.0);
    player.shot("hls-js-live");
    println!("{} s behind, then {} s; minor errors: {}", live["latency"], again["latency"], again["minor"]);
    player.finish();
}

#[test]
fn playback_goes_on_when_the_encoder_returns_with_another_picture() {
    let mut service = Setup::default().start();
    let hosted = Hosted::new(&service, "cut");
    let mut encoder = Publish::of(&Source::shared()).to(&service.ingest_url(&hosted.stream.key));
    let url = hosted.ready(seconds(20));
    let (mut player, _) = Player::start(Engine::HlsJs, &url);
    assert_smooth(&player.step("wait 4"));
    encoder.cut();
    std::thread::sleep(CUT);
    assert_eq!(hosted.status()["isLive"], true, "the session goes on while the encoder is away");
    let mut encoder =
        Publish::of(&Source::of(Recipe::SMALL)).endless().to(&service.ingest_url(&hosted.stream.key));
    let state = player.step("wait 14");
    assert_moves(&state);
    assert_eq!(state["fatal"], serde_json::json!([]), "{state}");
    let sizes: Vec<_> =
        state["resolutions"].as_array().into_iter().flatten().map(|one| one["width"].as_u64()).collect();
    assert_eq!(sizes, [Some(1280), Some(640)], "{state}");
    // Nothing was sent for five seconds, and the segment that was being made is lost.
    let long = stalls(&state, CUT + seconds(2));
    assert_eq!(long, [], "{state}");
    println!("stalls across the cut: {}", state["stalls"]);
    player.shot("hls-js-after-the-cut");
    let crossing = state["resolutions"][1]["at"].as_f64().expect("where the picture changed");
    let ahead = number(&state, "position") - crossing;
    let sought = player.step(&format!("back {}", ahead + 3.0));
    assert!(number(&sought, "position") < crossing, "{sought}");
    assert_moves(&player.step("wait 1"));

    // The worst of all: the service dies too. A site loads the address again.
    service.kill();
    encoder.cut();
    service.start();
    let _encoder = Publish::of(&Source::shared()).endless().to(&service.ingest_url(&hosted.stream.key));
    hosted.ready(seconds(20));
    player.step("reload");
    let state = player.step("wait 4");
    assert_moves(&state);
    assert_eq!(state["width"], 1280, "{state}");
}

/// Two people look at the preview together: what it is made for. A minute in the long form, as its limit is per minute.
#[test]
fn soak_two_viewers_of_the_preview_stay_below_its_limit() {
    let watched = if soak::rounds(1) > 1 { 70 } else { 10 };
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "preview");
    let _encoder = Publish::of(&Source::shared()).endless().to(&service.ingest_url(&hosted.stream.key));
    let url = hosted.preview_url(&mut hosted.viewer(seconds(20)), seconds(10));
    let (mut one, _) = Player::start(Engine::HlsJs, &url);
    let (mut other, _) = Player::start(Engine::HlsJs, &url);
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
