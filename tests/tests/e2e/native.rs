//! The stream in Chromium's own player, from the moment on that the status calls it ready. Its page tries again while there are fewer
//! segments than it wants.

use std::time::Duration;

use satcast_tests::encoder::Publish;
use satcast_tests::hosted::Hosted;
use satcast_tests::player::{Engine, Player, assert_moves, assert_smooth};
use satcast_tests::service::Setup;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::seconds;
use serde_json::json;

/// How long the encoder is away.
const CUT: Duration = Duration::from_secs(3);

#[test]
fn chromium_plays_as_soon_as_the_stream_is_ready() {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "native");
    let _encoder = Publish::of(&Source::shared()).endless().to(&service.ingest_url(&hosted.stream.key));
    let mut player = Player::launch(Engine::Native);
    let started = player.open(&hosted.ready(seconds(20)));
    println!("first picture after {} ms", started["firstFrameMs"]);
    let state = player.step("wait 6");
    println!("refused starts {}", state["refusedStarts"]);
    assert_smooth(&state);
    assert_eq!((&state["width"], &state["height"]), (&1280.into(), &720.into()), "{state}");
    player.shot("native");
    player.finish();
}

/// It leaves the parts alone and plays the segments of the same playlist.
#[test]
fn chromium_plays_a_destination_of_low_latency() {
    let service = Setup::default().start();
    let hosted = Hosted::with(&service, "native and near", &json!({ "lowLatency": true }));
    let ingest = service.ingest_url(&hosted.stream.key);
    let mut encoder = Publish::of(&Source::of(Recipe::SCREEN)).endless().to(&ingest);
    let mut player = Player::launch(Engine::Native);
    let started = player.open(&hosted.ready(seconds(20)));
    let state = player.step("wait 6");
    println!(
        "first picture after {} ms, refused starts {}, stalls {}",
        started["firstFrameMs"], state["refusedStarts"], state["stalls"]
    );
    assert_smooth(&state);

    // Chromium of today offers nothing to go back to in a live stream; when it does, it has to work.
    let oldest = player.step("oldest");
    println!("seekable {}, to the oldest: {oldest}", state["seekable"]);
    assert_eq!(oldest["to"].is_null(), state["seekable"] == json!([]), "{oldest}");
    assert_moves(&player.step("wait 1"));

    encoder.cut();
    std::thread::sleep(CUT);
    let _encoder = Publish::of(&Source::of(Recipe::SMALL)).endless().to(&ingest);
    let state = player.step("picture 640 2");
    assert_moves(&state);
    assert_eq!((&state["fatal"], &state["width"]), (&json!([]), &json!(640)), "{state}");
    println!("after the cut: stalls {}", state["stalls"]);
    player.finish();
}
