//! The stream in Chromium's own player, as soon as the status reports it as ready.

use std::time::{Duration, Instant};

use satcast_tests::encoder::Publish;
use satcast_tests::hosted::Hosted;
use satcast_tests::player::{Engine, Player, assert_moves, assert_smooth};
use satcast_tests::service::Setup;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{self, seconds};
use serde_json::json;

/// How long the encoder is away.
const CUT: Duration = Duration::from_secs(3);
/// The first encoder ends in the middle of a segment of two seconds: Chromium plays a last segment of less than a second twice, because
/// of its date, and may then stop (docs/playback.md).
const UNTIL_CUT: f64 = 29.5;
/// The browser's own player needs three segments of two seconds, and tries again every second.
const START: Duration = Duration::from_secs(12);
/// Longest wait for the end of the stream.
const END: Duration = Duration::from_secs(60);

#[test]
fn chromium_plays_as_soon_as_the_stream_is_ready() {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "native");
    let _encoder = Publish::of(&Source::shared()).endless().to(&service.ingest_url(&hosted.stream.key));
    let mut player = Player::launch(Engine::Native);
    let started = player.open(&hosted.ready());
    println!("first frame after {} ms", started["firstFrameMs"]);
    let state = player.step("wait 6");
    println!("refused starts {}", state["refusedStarts"]);
    assert_smooth(&state);
    assert_eq!((&state["width"], &state["height"]), (&1280.into(), &720.into()), "{state}");
    player.shot("native");
    player.finish();
}

/// Chromium ignores the parts and plays the segments of the same playlist.
#[test]
fn chromium_plays_a_destination_of_low_latency() {
    let service = Setup::default().start();
    let hosted = Hosted::with(&service, "native and near", &json!({ "lowLatency": true }));
    let ingest = service.ingest_url(&hosted.stream.key);
    let mut encoder = Publish::of(&Source::of(Recipe::SCREEN)).seconds(UNTIL_CUT).to(&ingest);
    let mut player = Player::launch(Engine::Native);
    let started = player.open(&hosted.ready());
    let state = player.step("wait 6");
    println!(
        "first frame after {} ms, refused starts {}, stalls {}",
        started["firstFrameMs"], state["refusedStarts"], state["stalls"]
    );
    assert_smooth(&state);
    // The first segment comes when there are enough. On a busy machine Chromium may still read an older playlist once.
    let refused = state["refusedStarts"].as_u64().expect("a count");
    assert!(refused <= 1, "{state}");

    // Current versions of Chromium offer no seekable range in a live stream. If one does, seeking must work.
    let oldest = player.step("oldest");
    println!("seekable {}, to the oldest: {oldest}", state["seekable"]);
    assert_eq!(oldest["to"].is_null(), state["seekable"] == json!([]), "{oldest}");
    assert_moves(&player.step("wait 1"));

    encoder.finish(END);
    std::thread::sleep(CUT);
    let _encoder = Publish::of(&Source::of(Recipe::SMALL)).endless().to(&ingest);
    let state = player.step("resolution 640 2");
    assert_moves(&state);
    assert_eq!((&state["fatal"], &state["width"]), (&json!([]), &json!(640)), "{state}");
    println!("after the cut: stalls {}, reloads {}", state["stalls"], state["reloads"]);
    assert!(state["reloads"].as_u64().is_some_and(|reloads| reloads <= 1), "{state}");
    player.finish();
}

/// The player page without Media Source: the browser refuses the first playlists of low latency, and shows the rest of a stream after
/// its end.
#[test]
fn the_page_plays_early_and_to_the_end_without_media_source() {
    let service = Setup::default()
        .set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "1")
        .set("SATCAST_INGEST__REFUSE_QUIET_SECS", "0")
        .start();
    let hosted = Hosted::with(&service, "native page", &json!({ "lowLatency": true }));
    let mut player = Player::launch_for_pages();
    player.step(&format!("native {}?apiKey={}&muted=1", hosted.page(&service), hosted.key));
    let ingest = service.ingest_url(&hosted.stream.key);
    let mut encoder = Publish::of(&Source::of(Recipe::SCREEN)).endless().to(&ingest);
    hosted.ready();
    let ready = Instant::now();
    player.step("until playing");
    println!("the video moves {:?} after hlsReady", ready.elapsed());
    assert!(ready.elapsed() < START, "{:?}", ready.elapsed());
    std::thread::sleep(seconds(4));
    encoder.stop();
    // The stream must not be offline in between, or the page would have stopped in the middle.
    let mut position = 0.0;
    wait::until("the end", || {
        let state = player.step("state");
        assert_ne!(state["state"], "offline", "{state}");
        if state["state"] == "over" {
            return Ok(());
        }
        position = state["position"].as_f64().expect("a position");
        Err(state.to_string())
    });
    println!("played up to {position} s");
    assert!(position > 4.0, "{position} s");
    player.finish();
}
