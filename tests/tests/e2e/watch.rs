//! The player page in a browser: it waits for the stream, plays, seeks back and returns, and shows errors.

use satcast_tests::encoder::{Encoder, Publish};
use satcast_tests::hosted::Hosted;
use satcast_tests::player::Player;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{self, seconds};
use serde_json::{Value, json};

const WINDOW_SECONDS: f64 = 16.0;
/// With a shorter window the page shows no bar.
const BAR_SECONDS: f64 = 12.0;
/// With a shorter window the page takes the oldest second as live.
const BEHIND_SECONDS: f64 = 8.0;

fn number(state: &Value, field: &str) -> f64 {
    state[field].as_f64().unwrap_or_else(|| panic!("no {field} in {state}"))
}

/// Seconds behind live by the bar.
fn behind(state: &Value) -> f64 {
    number(&state["seek"], "most") - number(&state["seek"], "value")
}

/// The number that a text begins with, behind `prefix`.
fn leading_number(text: &Value, prefix: &str) -> Option<u64> {
    let digits = text.as_str()?.strip_prefix(prefix)?;
    digits.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

fn publish(service: &Service, hosted: &Hosted) -> Encoder {
    Publish::of(&Source::of(Recipe::SCREEN)).endless().to(&service.ingest_url(&hosted.stream.key))
}

/// Waits until the viewer can go back more than so many seconds.
#[track_caller]
fn window(player: &mut Player, seconds: f64) {
    wait::until("a window to go back in", || {
        let state = player.step("state");
        if number(&state["seek"], "most") > seconds { Ok(()) } else { Err(state.to_string()) }
    });
}

/// A page in a browser, with its service.
struct Scene {
    service: Service,
    hosted: Hosted,
    /// The address of the page, without a key.
    address: String,
    player: Player,
}

impl Scene {
    fn new(label: &str) -> Self {
        Self::with(label, "300", &json!({}))
    }

    /// As [`Self::new`], with a reconnect window in seconds and a configuration of the destination.
    fn with(label: &str, window_secs: &str, config: &Value) -> Self {
        let player = Player::launch_for_pages();
        let service = Setup::default()
            .set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", window_secs)
            .set("SATCAST_INGEST__REFUSE_QUIET_SECS", "0")
            .start();
        let hosted = Hosted::with(&service, label, config);
        let address = hosted.page(&service);
        Self { service, hosted, address, player }
    }

    /// The page when the stream plays in it, silently.
    fn playing(label: &str) -> (Self, Encoder) {
        let mut scene = Self::new(label);
        let encoder = publish(&scene.service, &scene.hosted);
        scene.hosted.ready();
        let page = scene.page();
        scene.player.open(&page);
        scene.player.step("until playing");
        (scene, encoder)
    }

    fn page(&self) -> String {
        self.page_of(&self.hosted.key)
    }

    fn page_of(&self, key: &str) -> String {
        format!("{}?apiKey={key}", self.address)
    }

    fn end(self) {
        self.service.assert_not_logged(&[("the public key", &self.hosted.key)]);
        self.player.finish();
    }
}

#[test]
fn the_page_waits_for_the_stream_plays_and_goes_back() {
    let mut scene = Scene::new("on <the> page");
    let page = scene.page();
    let Scene { service, hosted, player, .. } = &mut scene;
    let first = player.open(&page);
    assert_eq!(first["title"], "on <the> page", "{first}");
    player.step("until offline");
    player.shot("page-offline");

    // It starts by itself. The browser plays no audio before the viewer clicks.
    let _encoder = publish(service, hosted);
    let live = player.step("until playing");
    assert_eq!(
        (&live["edge"], &live["muted"], &live["behind"]),
        (&json!("live"), &json!(true), &json!("")),
        "{live}"
    );
    let loud = player.step("click #unmute");
    assert_eq!(loud["muted"], false, "{loud}");
    window(player, WINDOW_SECONDS);
    player.shot("page-live");

    let status = hosted.status();
    assert_eq!(status["viewers"], 1, "{status}");
    let latency = status["latencyMs"].as_i64().expect("a latency");
    assert!((1_000..15_000).contains(&latency), "{latency} ms");
    keyboard(player);
    nothing_leaks(player);
    scene.end();
}

#[test]
fn the_page_shows_one_stream_after_the_other() {
    // With parts, a media element may not report that it has played everything; without parts, it may not after another frame.
    for config in [json!({ "lowLatency": true }), json!({})] {
        let mut scene = Scene::with("every evening", "1", &config);
        let page = format!("{}&muted=1", scene.page());
        scene.player.open(&page);
        for recipe in [Recipe::SCREEN, Recipe::SMALL, Recipe::SCREEN] {
            let address = scene.service.ingest_url(&scene.hosted.stream.key);
            let mut encoder = Publish::of(&Source::of(recipe)).endless().to(&address);
            scene.player.step("until playing");
            encoder.stop();
            scene.player.step("until over");
        }
        scene.end();
    }
}

#[test]
fn the_page_says_that_the_streamer_is_away() {
    let (mut scene, mut encoder) = Scene::playing("on <the> page");
    let Scene { service, hosted, player, .. } = &mut scene;
    window(player, BEHIND_SECONDS);
    // The encoder goes and comes back within its window.
    encoder.stop();
    let _encoder = away(player, || publish(service, hosted));
    scene.end();
}

#[test]
fn the_page_fits_screens_and_frames_until_the_stream_ends() {
    let (mut scene, _encoder) = Scene::playing("small");
    let page = scene.page();
    frames_and_options(&mut scene.player, &page);
    small_screens(&mut scene.player, &page);
    the_end(&mut scene.player, &scene.service, &scene.hosted);
    scene.end();
}

#[test]
fn the_page_goes_on_after_the_service_was_away() {
    let (mut scene, encoder) = Scene::playing("lost");
    let Scene { service, hosted, player, .. } = &mut scene;
    drop(encoder);
    service.kill();
    player.step("until lost");
    player.shot("page-lost");
    service.start();
    player.step("until offline");
    let _encoder = publish(service, hosted);
    player.step("until playing");
    scene.end();
}

#[test]
fn the_page_plays_with_a_key_that_opens_the_stream_alone() {
    let (mut scene, _encoder) = Scene::playing("keys");
    // The destination is disabled and enabled again, for a viewer with a valid key.
    let destination =
        format!("/api/streams/{}/destinations/{}", scene.hosted.stream.id, scene.hosted.destination);
    for enabled in [false, true] {
        let _ = scene.service.api().patch(&destination, &json!({ "enabled": enabled })).ok();
        scene.player.step(if enabled { "until playing" } else { "until refused" });
    }
    let keys = scene.service.api().get("/api/keys").ok();
    let key = keys.as_array().into_iter().flatten().find(|key| key["type"] == "public");
    let id = key.and_then(|key| key["id"].as_i64()).expect("the public key");
    let _ = scene.service.api().delete(&format!("/api/keys/{id}")).ok();
    let refused = scene.player.step("until refused");
    // Other reasons have the same state.
    assert!(refused["advice"].as_str().is_some_and(|text| text.contains("revoked")), "{refused}");
    scene.player.shot("page-refused");
    let after = scene.player.step("idle 3000");
    assert_eq!(after["came"], 0, "the page made requests with a revoked key");
    // A new key, in a browser that has only its own player.
    let another = scene.page_of(&Hosted::key(&scene.service, scene.hosted.destination));
    scene.player.step(&format!("native {another}&muted=1"));
    scene.player.step("until playing");
    scene.player.shot("page-native");
    let wrong = scene.page_of("pk_wrong");
    let wrong = scene.player.open(&wrong);
    assert_eq!(
        (&wrong["status"], &wrong["state"], &wrong["title"]),
        (&json!(401), &json!("problem"), &json!("Player")),
        "{wrong}"
    );
    scene.end();
}

/// All controls by keyboard, and back to live with the button.
fn keyboard(player: &mut Player) {
    let before = number(&player.step("state"), "position");
    // Ten seconds, and five more.
    player.step("key j");
    let back = player.step("key ArrowLeft");
    assert!(number(&back, "position") < before - 10.5, "{back}");
    assert_eq!(back["edge"], "behind", "{back}");
    // Next to the bar, and as text for screen readers.
    // A viewer that began with the first segment is some seconds ahead of the position that counts as live.
    assert!(leading_number(&back["behind"], "−0:") > Some(5), "{back}");
    assert!(leading_number(&back["said"], "") > Some(5), "{back}");
    player.step("until playing");
    player.shot("page-behind");
    let oldest = player.step("key Home");
    assert!(number(&oldest["seek"], "value") <= 2.0 && behind(&oldest) > 12.0, "{oldest}");
    let moved = player.step("until playing");
    assert!(number(&moved, "position") > number(&oldest, "position"), "{moved}");
    let live = player.step("click #live");
    assert_eq!(live["edge"], "live", "{live}");
    assert_ne!(live["liveButton"], back["liveButton"], "{live}");
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

/// Nothing is cut off or too small to touch. The viewer is behind live, where the page shows most controls.
fn small_screens(player: &mut Player, address: &str) {
    player.open(&format!("{address}&muted=1"));
    player.step("until playing");
    // A shorter window has no bar.
    window(player, BAR_SECONDS);
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

/// The page says that the streamer is away, still lets the viewer go back, and continues when media arrives.
fn away(player: &mut Player, publish: impl FnOnce() -> Encoder) -> Encoder {
    let away = player.step("signal away");
    assert_eq!(
        (&away["state"], &away["signal"], &away["away"]),
        (&json!("playing"), &json!("away"), &json!(true)),
        "{away}"
    );
    player.shot("page-away");
    player.step("key Home");
    let back = player.step("until playing");
    assert_eq!((&back["away"], &back["signal"]), (&json!(false), &json!("away")), "{back}");
    assert_ne!(back["liveButton"], away["liveButton"], "{back}");
    player.step("click #live");
    player.step("signal away");
    // A new viewer sees it as well.
    let page = player.step("reload");
    assert_eq!(page["title"], "on <the> page", "{page}");
    player.step("signal away");
    player.shot("page-away-from-the-start");
    let encoder = publish();
    player.step("signal on");
    let live = player.step("until playing");
    assert_eq!((&live["edge"], &live["signal"]), (&json!("live"), &json!("on")), "{live}");
    encoder
}

/// The stream ends while the viewer is behind: the rest plays, then playback ends.
fn the_end(player: &mut Player, service: &Service, hosted: &Hosted) {
    player.step("key Home");
    player.step("until playing");
    let _ = service.api().post(&format!("/api/streams/{}/stop", hosted.stream.id), &json!({})).ok();
    let over = player.step("signal over");
    assert_eq!(
        (&over["state"], &over["edge"], &over["signal"]),
        (&json!("playing"), &json!("behind"), &json!("over")),
        "{over}"
    );
    player.step("until playing");
    player.shot("page-ended-behind");
    player.step("key End");
    player.step("until over");
    player.shot("page-over");
}

#[test]
fn the_page_shows_the_viewer_count_and_fits_a_phone_in_portrait() {
    let mut scene = Scene::with("counted", "300", &json!({ "lowLatency": true }));
    let _encoder = publish(&scene.service, &scene.hosted);
    scene.hosted.ready();
    let page = format!("{}&viewers=1", scene.page());
    let player = &mut scene.player;
    player.step("size 390 844");
    player.open(&page);
    let upright = player.step("until playing");
    assert_eq!((&upright["heading"], &upright["scrolls"]), (&json!("counted"), &json!(false)), "{upright}");
    // 16:9 on 390 pixels: the controls stand below it, not on it.
    let stage = number(&upright, "stage");
    assert!(stage < 300.0 && number(&upright, "controlsTop") >= stage, "{upright}");
    wait::within("a viewer", seconds(60), || {
        let state = player.step("state");
        if state["watching"] == "1 watching" { Ok(()) } else { Err(state.to_string()) }
    });
    player.shot("page-upright");
    let behind = player.step("key j");
    assert_eq!(behind["outside"], json!([]), "{behind}");
    player.step("size 960 540");
    let wide = player.step("state");
    assert_eq!((&wide["pip"], &wide["latency"]), (&json!(true), &json!("true")), "{wide}");
    let farther = player.step("click #latency");
    assert_eq!(farther["latency"], "false", "{farther}");
    player.step(&format!("open {page}"));
    let again = player.step("until playing");
    assert_eq!(again["latency"], "false", "the browser remembers it: {again}");
    scene.end();
}

/// Only requests for the page and the index carry the key, and no request goes to another host.
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
    player.step("until ready");
    let ready = wait::until("the newest frame behind the button", || {
        let state = player.step("state");
        if state["poster"] == true { Ok(state) } else { Err(state.to_string()) }
    });
    assert_eq!((&ready["paused"], &ready["start"]), (&json!(true), &json!(true)), "{ready}");
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
