//! The player page in a browser: it waits for the stream, plays, goes back and returns, and says what is wrong.

use std::time::Duration;

use satcast_tests::encoder::{Encoder, Publish};
use satcast_tests::hosted::Hosted;
use satcast_tests::player::Player;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::Source;
use satcast_tests::wait;
use serde_json::{Value, json};

/// How far the player has to have come before it goes back.
const WATCHED: Duration = Duration::from_secs(40);
const WINDOW_SECONDS: f64 = 28.0;

fn number(state: &Value, field: &str) -> f64 {
    state[field].as_f64().unwrap_or_else(|| panic!("no {field} in {state}"))
}

/// Seconds behind live by the bar.
fn behind(state: &Value) -> f64 {
    number(&state["seek"], "most") - number(&state["seek"], "value")
}

fn publish(service: &Service, hosted: &Hosted) -> Encoder {
    Publish::of(&Source::shared()).endless().to(&service.ingest_url(&hosted.stream.key))
}

#[track_caller]
fn when(player: &mut Player, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    wait::until(what, WATCHED, || {
        let state = player.step("state");
        if wanted(&state) { Ok(state) } else { Err(state.to_string()) }
    })
}

#[test]
fn the_player_page_waits_plays_goes_back_and_says_what_is_wrong() {
    let mut service = Setup::default()
        .set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "300")
        .set("SATCAST_INGEST__REFUSE_QUIET_SECS", "0")
        .start();
    let hosted = Hosted::new(&service, "on <the> page");
    let address = hosted.page(&service);
    let page = |key: &str| format!("{address}?apiKey={key}");
    let (mut player, first) = Player::watch(&page(&hosted.key));
    assert_eq!(first["title"], "on <the> page", "{first}");
    let offline = player.step("until offline");
    assert_eq!(offline["headline"], "The stream is offline", "{offline}");
    player.shot("page-offline");

    // It starts by itself; without a sign of the viewer the browser gives no sound.
    let mut encoder = publish(&service, &hosted);
    let live = player.step("until playing");
    assert_eq!(
        (&live["edge"], &live["muted"], &live["behind"]),
        (&json!("live"), &json!(true), &json!("")),
        "{live}"
    );
    let loud = player.step("click #unmute");
    assert_eq!(loud["muted"], false, "{loud}");
    // One can go back only as far as the window reaches.
    when(&mut player, "a window to go back in", |state| number(&state["seek"], "most") > WINDOW_SECONDS);
    player.shot("page-live");

    let status = hosted.status();
    assert_eq!(status["viewers"], 1, "{status}");
    let latency = status["latencyMs"].as_i64().expect("a latency");
    assert!((1_000..15_000).contains(&latency), "{latency} ms");
    keyboard(&mut player);
    nothing_leaks(&mut player);
    // The encoder goes and comes back within its window.
    encoder.stop();
    encoder = away(&mut player, || publish(&service, &hosted));
    small_screens(&mut player);
    frames_and_options(&mut player, &page(&hosted.key));
    the_end(&mut player, &service, &hosted);
    drop(encoder);
    // The service goes and comes back, then the stream does.
    service.kill();
    let lost = player.step("until lost");
    assert_eq!(lost["headline"], "The server cannot be reached", "{lost}");
    service.start();
    player.step("until offline");
    let _encoder = publish(&service, &hosted);
    player.step("until playing");

    let keys = service.api().get("/api/keys").ok();
    let key = keys.as_array().into_iter().flatten().find(|key| key["type"] == "public");
    let id = key.and_then(|key| key["id"].as_i64()).expect("the public key");
    let _ = service.api().delete(&format!("/api/keys/{id}")).ok();
    let refused = player.step("until refused");
    assert!(refused["advice"].as_str().is_some_and(|text| text.contains("revoked")), "{refused}");
    player.shot("page-refused");
    assert_eq!(player.step("idle 3000")["came"], 0, "nothing more is asked for with a key that was revoked");
    // With a new key, in a browser that has nothing but its own player.
    let another = Hosted::key(&service, hosted.destination);
    player.step(&format!("native {}&muted=1", page(&another)));
    player.step("until playing");
    player.shot("page-native");
    player.step(&format!("open {}", page("pk_wrong")));
    let wrong = player.step("state");
    assert_eq!((&wrong["state"], &wrong["title"]), (&json!("problem"), &json!("Player")), "{wrong}");
    assert_eq!(wrong["headline"], "This key does not open this stream", "{wrong}");
    service.assert_not_logged(&[("the public key", &hosted.key)]);
    player.finish();
}

/// Everything by keys alone, and back to live with the button.
fn keyboard(player: &mut Player) {
    let before = number(&player.step("state"), "position");
    player.step("key j");
    let back = player.step("key j");
    assert!(number(&back, "position") < before - 15.0, "{back}");
    assert_eq!((&back["edge"], &back["liveButton"]), (&json!("behind"), &json!("Go live")), "{back}");
    assert!(back["behind"].as_str().is_some_and(|text| text.starts_with("−0:")), "{back}");
    assert!(back["said"].as_str().is_some_and(|text| text.ends_with("seconds behind live")), "{back}");
    player.step("until playing");
    player.shot("page-behind");
    let oldest = player.step("key Home");
    assert!(number(&oldest["seek"], "value") <= 2.0 && behind(&oldest) > 20.0, "{oldest}");
    let moved = player.step("until playing");
    assert!(number(&moved, "position") > number(&oldest, "position"), "{moved}");
    let live = player.step("click #live");
    assert_eq!((&live["edge"], &live["liveButton"]), (&json!("live"), &json!("Live")), "{live}");
    player.step("until playing");
    assert_eq!(player.step("key k")["paused"], true);
    assert_eq!(player.step("key k")["paused"], false);
    assert_eq!(player.step("key m")["muted"], true);
    let quiet = player.step("key ArrowUp");
    assert_eq!((&quiet["muted"], number(&quiet, "volume")), (&json!(false), 0.1), "{quiet}");
    assert_eq!(quiet["stored"], "{\"volume\":0.1,\"muted\":false}", "{quiet}");
    assert_eq!(player.step("key ?")["shortcuts"], true);
    player.shot("page-keys");
    assert_eq!(player.step("key Escape")["shortcuts"], false);
}

/// Nothing is cut off or too small to touch, behind live, where most has to be shown.
fn small_screens(player: &mut Player) {
    for size in ["320 568", "390 844", "568 320", "1280 720"] {
        player.step(&format!("size {size}"));
        player.step("key j");
        player.step("until playing");
        player.shot(&format!("page-{}", size.replace(' ', "x")));
        let small = player.step("state");
        assert_eq!(
            (&small["outside"], &small["small"], &small["scrolls"]),
            (&json!([]), &json!([]), &json!(false)),
            "{small}"
        );
        assert_eq!((&small["unnamed"], small["controls"].as_i64() >= Some(5)), (&json!(0), true), "{small}");
        player.step("key End");
    }
}

/// The page says that nothing comes, lets the viewer go back all the same, and goes on when media comes.
fn away(player: &mut Player, publish: impl FnOnce() -> Encoder) -> Encoder {
    let away = player.step("signal away");
    assert_eq!(
        (&away["state"], &away["liveButton"], &away["said"]),
        (&json!("playing"), &json!("Waiting"), &json!("Waiting for the streamer…")),
        "{away}"
    );
    player.shot("page-away");
    player.step("key Home");
    let back = player.step("until playing");
    assert_eq!((&back["away"], &back["liveButton"]), (&json!(false), &json!("To the end")), "{back}");
    player.step("click #live");
    player.step("signal away");
    // Who comes now is told as well.
    let page = player.step("reload");
    assert_eq!(page["title"], "on <the> page", "{page}");
    player.step("signal away");
    player.shot("page-away-from-the-start");
    let encoder = publish();
    player.step("signal on");
    let live = player.step("until playing");
    assert_eq!((&live["edge"], &live["liveButton"]), (&json!("live"), &json!("Live")), "{live}");
    encoder
}

/// The end while the viewer is behind: what is left plays on, and then it is over.
fn the_end(player: &mut Player, service: &Service, hosted: &Hosted) {
    player.step("key Home");
    player.step("until playing");
    let _ = service.api().post(&format!("/api/streams/{}/stop", hosted.stream.id), &json!({})).ok();
    let over = player.step("signal over");
    assert_eq!(
        (&over["state"], &over["edge"], &over["liveButton"]),
        (&json!("playing"), &json!("behind"), &json!("To the end")),
        "{over}"
    );
    player.step("until playing");
    player.shot("page-ended-behind");
    player.step("key End");
    let over = player.step("until over");
    assert_eq!(over["headline"], "The stream has ended", "{over}");
    player.shot("page-over");
}

/// The key goes with the page and the index, and nothing goes elsewhere.
fn nothing_leaks(player: &mut Player) {
    let state = player.step("state");
    assert_eq!(state["complaints"], json!([]), "{state}");
    assert_eq!(state["requests"]["foreign"], json!([]), "{state}");
    assert_eq!(state["requests"]["referrers"], json!([]), "{state}");
    assert_eq!(state["keyInPage"], false, "{state}");
    let with_key = state["requests"]["withKey"].as_array().expect("requests with the key");
    let known = |path: &Value| {
        path.as_str().is_some_and(|path| path.starts_with("/watch/") || path.ends_with("/index.m3u8"))
    };
    assert!(with_key.len() == 2 && with_key.iter().all(known), "{with_key:?}");
}

/// In frames of another origin, and without `autoplay`.
fn frames_and_options(player: &mut Player, address: &str) {
    player.step("size 960 540");
    player.step(&format!("embed {address}&muted=1"));
    let framed = player.step("until playing");
    assert_eq!((&framed["muted"], &framed["outside"]), (&json!(true), &json!([])), "{framed}");
    player.shot("page-in-a-frame");
    player.step(&format!("sandbox {address}&muted=1"));
    player.step("until playing");
    player.step(&format!("open {address}&autoplay=0"));
    let ready = player.step("until ready");
    assert_eq!((&ready["headline"], ready["frames"].as_i64()), (&json!("Live now"), Some(0)), "{ready}");
    player.shot("page-ready");
    player.step("key k");
    player.step("until playing");
    // A browser that lets nothing play by itself.
    player.step(&format!("open {address}#strict"));
    let strict = player.step("until ready");
    assert_eq!((&strict["start"], &strict["paused"]), (&json!(true), &json!(true)), "{strict}");
    player.shot("page-refused-to-play");
    let pressed = player.step("click #start");
    assert_eq!(pressed["muted"], false, "{pressed}");
    player.step("until playing");
}
