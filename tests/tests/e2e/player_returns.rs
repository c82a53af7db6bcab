//! The encoder leaves at the most difficult moment for a player with parts, and returns.

use satcast_tests::encoder::Publish;
use satcast_tests::hosted::Hosted;
use satcast_tests::player::{Engine, Player, assert_moves};
use satcast_tests::service::Setup;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::seconds;
use serde_json::json;

/// The last keyframe is shown after the last audio.
#[test]
fn hls_js_goes_on_behind_a_keyframe_without_audio() {
    let service = Setup::default().start();
    let hosted = Hosted::with(&service, "left at once", &json!({ "lowLatency": true }));
    let ingest = service.ingest_url(&hosted.stream.key);
    // Four GOPs, and the keyframe of a fifth.
    let mut encoder = Publish::of(&Source::of(Recipe::SCREEN)).seconds(8).to(&ingest);
    let mut player = Player::launch(Engine::HlsJs);
    player.open(&hosted.ready());
    encoder.finish(seconds(60));
    let _encoder = Publish::of(&Source::of(Recipe::SMALL)).endless().to(&ingest);
    let state = player.step("resolution 640 2");
    assert_moves(&state);
    assert_eq!(state["fatal"], json!([]), "{state}");
    println!("after the return {} s behind, stalls {}", state["latency"], state["stalls"]);
    player.finish();
}
