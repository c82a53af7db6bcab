//! The stream in Chromium's own player, from the moment on that the status calls it ready.

use satcast_tests::encoder::Publish;
use satcast_tests::hosted::Hosted;
use satcast_tests::player::{Engine, Player, assert_smooth};
use satcast_tests::service::Setup;
use satcast_tests::source::Source;
use satcast_tests::wait::seconds;

/// From opening the address to the first picture; the rest of a second is the machine's.
const FIRST_FRAME_MILLIS: u64 = 2_000;

#[test]
fn chromium_plays_as_soon_as_the_stream_is_ready() {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "native");
    let _encoder = Publish::of(&Source::shared()).endless().to(&service.ingest_url(&hosted.stream.key));
    let (mut player, started) = Player::start(Engine::Native, &hosted.ready(seconds(20)));
    assert!(started["firstFrameMs"].as_u64().is_some_and(|took| took < FIRST_FRAME_MILLIS), "{started}");
    let state = player.step("wait 6");
    assert_smooth(&state);
    assert_eq!((&state["width"], &state["height"]), (&1280.into(), &720.into()), "{state}");
    player.shot("native");
    player.finish();
}
