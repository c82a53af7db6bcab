//! The way to a live stream in the pages, and everything that they show while it is live.

use std::time::{Duration, Instant};

use satcast_tests::api::{Api, Stream, stream_of};
use satcast_tests::dashboard::{Dashboard, card, dialog, digits, text, text_with};
use satcast_tests::encoder::{Encoder, Publish};
use satcast_tests::hls::Viewer;
use satcast_tests::hosted::now_secs;
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{until_api, within_api};
use serde_json::{Value, json};

/// Longest time from the start of the service to the first frame of the preview.
const FIRST_RUN_LIMIT: Duration = Duration::from_secs(120);
const LIVE_LIMIT: Duration = Duration::from_secs(60);
/// The oldest six seconds that the page keeps away from, and one step back of ten seconds.
const WINDOW_SECONDS: i64 = 16;
/// Less than one step back, and more than the video plays between two looks.
const JUMP_SECONDS: f64 = 5.0;
/// Frames after which the video has moved: a second of the source.
const FRAMES: u64 = 30;

const PASSPHRASE: &str = "correcthorsebattery";

/// Sats that two paid destinations cost in the first minute.
const FIRST_MINUTE_SATS: i64 = 4;
/// The first minute is 80 % of it, and a second one is more than it.
const BUDGET: &str = "5";

fn running() -> Service {
    let mut service = Setup::default().stopped();
    service.start();
    service
}

fn publish(url: &str) -> Encoder {
    Publish::of(&Source::of(Recipe::SCREEN)).endless().to(url)
}

fn open(page: &mut Dashboard, stream: &Stream) {
    page.open(&format!("/streams/{}", stream.id));
}

/// Adds a destination of this type in the form of the open stream; `fields` have message keys and values.
#[track_caller]
fn add_destination(page: &mut Dashboard, api: &Api, name: &str, fields: &[(&str, &str)]) {
    let drivers = api.get("/api/drivers").ok();
    let types = drivers.as_array().into_iter().flatten().filter_map(|driver| driver["types"].as_array());
    let found =
        types.flatten().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}: {drivers}"));
    page.click("button", text("destination.add"));
    let _ = page.step(json!({
        "do": "choose", "in": dialog(), "label": text("destination.type"), "option": found["title"],
    }));
    for (label, value) in fields {
        let _ = page.step(json!({ "do": "fill", "in": dialog(), "label": text(label), "value": value }));
    }
    submit(page, "destination.add");
}

/// Presses the button of this message key in the open dialog, and waits until the dialog has closed.
#[track_caller]
fn submit(page: &mut Dashboard, action: &str) {
    let _ = page.step(json!({ "do": "click", "in": dialog(), "role": "button", "name": text(action) }));
    let _ = page.step(json!({ "do": "miss", "role": "dialog" }));
}

/// Waits until a destination of the open stream has this state.
#[track_caller]
fn see_state(page: &mut Dashboard, state: &str) {
    let shown = text(&format!("states.{state}"));
    let _ = page
        .step(json!({ "do": "see", "in": card(text("stream.destinations")), "text": shown, "exact": true }));
}

/// Waits until the button that returns to the live edge is pressed or not.
#[track_caller]
fn see_live_edge(page: &mut Dashboard, pressed: bool) {
    let name = text("preview.live");
    let _ = page.step(json!({ "do": "see", "role": "button", "name": name, "pressed": pressed }));
}

/// How often a page was loaded.
#[track_caller]
fn loads(page: &mut Dashboard) -> u64 {
    page.step(json!({ "do": "state" }))["loads"].as_u64().expect("the loads of pages")
}

fn position(video: &Value) -> f64 {
    video["position"].as_f64().unwrap_or_else(|| panic!("no position: {video}"))
}

fn frames(video: &Value) -> u64 {
    video["frames"].as_u64().unwrap_or_else(|| panic!("no frames: {video}"))
}

/// Waits until the page's video shows a second more.
#[track_caller]
fn see_motion(page: &mut Dashboard) {
    let before = page.video();
    until_api("a moving video", || {
        let now = page.video();
        let has_moved = frames(&now) >= frames(&before) + FRAMES && position(&now) > position(&before);
        if has_moved && now["width"].as_u64() > Some(0) { Ok(()) } else { Err(now.to_string()) }
    });
}

#[test]
fn first_run_to_live() {
    let mut service = Setup::default().stopped();
    let began = Instant::now();
    service.start();
    let (mut page, api) = Dashboard::first(&service);
    page.fill(text("streams.label"), "First show");
    page.click("button", text("streams.add"));
    page.see("heading", "First show");
    let before = loads(&mut page);

    let stream = stream_of(&api.get("/api/streams").ok()[0]);
    let server = page.field(text("stream.server"));
    assert_eq!(api.get("/api/public/config").ok()["ingest"]["rtmp"], server.as_str());
    assert_ne!(page.field(text("stream.key")), stream.key, "a secret is shown on a click only");
    page.click("button", text_with("ui.showNamed", json!([text("stream.key")])));
    let key = page.field(text("stream.key"));
    assert_eq!(key, stream.key);

    let _encoder = publish(&format!("{server}/{key}"));
    page.see("region", text("stream.health"));
    page.see_text(text("stream.state.live"));
    assert_eq!(api.stream(&stream)["state"], "live");

    add_destination(&mut page, &api, "self-hosted", &[]);
    page.click("button", text("preview.start"));
    within_api("the first frame", FIRST_RUN_LIMIT.saturating_sub(began.elapsed()), || {
        let video = page.video();
        if frames(&video) > 0 { Ok(()) } else { Err(video.to_string()) }
    });
    println!("from the start of the service to the first frame: {:.1} s", began.elapsed().as_secs_f64());
    see_motion(&mut page);
    assert_eq!(loads(&mut page), before, "the page turned live by itself");
    service.assert_not_logged(&[("the stream key", &key)]);
    page.finish();
}

#[test]
fn an_srt_passphrase_is_set_used_and_removed() {
    let mut service = Setup::default().srt().stopped();
    service.start();
    let (mut page, api) = Dashboard::first(&service);
    let stream = api.create_stream("by SRT");
    open(&mut page, &stream);
    page.click("button", text("stream.edit"));
    let label = text("stream.passphrase");
    let _ = page.step(json!({ "do": "fill", "in": dialog(), "label": label, "value": PASSPHRASE }));
    submit(&mut page, "ui.save");
    assert_eq!(api.stream(&stream)["hasSrtPassphrase"], true);

    page.click("button", text_with("ui.showNamed", json!([text("stream.srtServer")])));
    let address = page.field(text("stream.srtServer"));
    let _encoder = publish(&format!("{address}&passphrase={PASSPHRASE}"));
    let health = card(text("stream.health"));
    until_api("the figures of SRT", || {
        page.figure(&health, json!("SRT")).ok_or_else(|| api.stream(&stream).to_string())
    });
    assert_eq!(api.stream(&stream)["health"]["srt"]["latencyMs"], 500);

    page.click("button", text("stream.edit"));
    let _ = page.step(json!({ "do": "check", "in": dialog(), "label": text("stream.removePassphrase") }));
    page.assert_accessible();
    submit(&mut page, "ui.save");
    assert_eq!(api.stream(&stream)["hasSrtPassphrase"], false);
    service.assert_not_logged(&[("the passphrase", PASSPHRASE)]);
    page.finish();
}

#[test]
fn a_destination_loses_its_server_and_returns() {
    let mut server = Sink::recording();
    let service = running();
    let (mut page, api) = Dashboard::first(&service);
    let stream = api.create_stream("server lost");
    let _encoder = publish(&service.ingest_url(&stream.key));
    api.wait_for_stream(&stream, "live");
    open(&mut page, &stream);
    add_destination(&mut page, &api, "rtmp", &[("fields.url", &server.url()), ("fields.key", "copy")]);
    let id = api.stream(&stream)["destinations"][0]["id"].as_i64().expect("the id of the destination");
    api.wait_for_destination(&stream, id, "live");
    see_state(&mut page, "live");
    server.wait_for_media(1);
    assert_eq!(server.names(), ["copy"]);

    server.kill();
    see_state(&mut page, "retrying");
    let retrying = see_next_try(&mut page, &api, &stream, id);
    page.see_text(retrying["error"].as_str().expect("the reason of the retry"));

    server.restart();
    let live = api.wait_for_destination(&stream, id, "live");
    see_state(&mut page, "live");
    page.see_text(live["lastError"]["message"].as_str().expect("the last error"));
    let part = card(text("stream.destinations"));
    until_api("the figures of the API", || {
        let known = api.destination(&stream, id);
        let dropped = page.figure(&part, text("destination.dropped")).and_then(|shown| digits(&shown));
        let next = page.figure(&part, text("destination.next"));
        let is_same = dropped.is_some() && dropped == known["droppedPackets"].as_i64() && next.is_none();
        if is_same { Ok(()) } else { Err(format!("{dropped:?} dropped, next try {next:?}: {known}")) }
    });
    server.wait_for_media(server.records_of(1).len() + 30);
    page.finish();
}

/// Waits until the page counts the seconds to the same next try as the API; gives the destination.
#[track_caller]
fn see_next_try(page: &mut Dashboard, api: &Api, stream: &Stream, id: i64) -> Value {
    /// Page and test count in whole seconds, and the page once a second.
    const SLACK: u64 = 2;
    /// With a shorter wait the slack would allow any figure.
    const SECONDS_MIN: i64 = 3;
    let part = card(text("stream.destinations"));
    until_api("the next try", || {
        let known = api.destination(stream, id);
        let shown = page.figure(&part, text("destination.next")).and_then(|shown| digits(&shown));
        let due = known["nextRetryAt"].as_i64().map(|at| at / 1000 - now_secs());
        match (due, shown) {
            (Some(due), Some(shown)) if due >= SECONDS_MIN && due.abs_diff(shown) <= SLACK => Ok(known),
            _ => Err(format!("{shown:?} s: {known}")),
        }
    })
}

#[test]
fn the_preview_plays_and_rewinds() {
    let service = running();
    let (mut page, api) = Dashboard::first(&service);
    let stream = api.create_stream("preview");
    let _encoder = publish(&service.ingest_url(&stream.key));
    api.wait_for_stream(&stream, "live");
    open(&mut page, &stream);
    add_destination(&mut page, &api, "self-hosted", &[]);
    let address = see_playback(&mut page, &api, &stream);

    // From its first to its third segment a destination has no preview.
    until_api("the preview", || {
        let playback = api.stream(&stream)["playback"][0].clone();
        let is_ready = playback["hlsReady"] == true && playback["previewUrl"].is_string();
        if is_ready { Ok(()) } else { Err(playback.to_string()) }
    });
    page.click("button", text("preview.start"));
    see_motion(&mut page);
    // The preview does not count.
    see_viewers(&mut page, &api, &stream, 0);
    let _ = Viewer::of(&address).media();
    see_viewers(&mut page, &api, &stream, 1);

    until_api("a window to go back in", || {
        let back = page.field(text("preview.position"));
        if digits(&back) >= Some(WINDOW_SECONDS) { Ok(()) } else { Err(back) }
    });
    see_live_edge(&mut page, true);
    let live = page.video();
    let _ = page.step(json!({
        "do": "press", "role": "slider", "name": text("preview.position"), "keys": ["ArrowLeft"],
    }));
    see_live_edge(&mut page, false);
    let back = page.video();
    assert!(position(&back) < position(&live) - JUMP_SECONDS, "{back} after {live}");
    see_motion(&mut page);

    let late = page.video();
    page.click("button", text("preview.live"));
    see_live_edge(&mut page, true);
    let again = page.video();
    assert!(position(&again) > position(&late) + JUMP_SECONDS, "{again} after {late}");
    see_motion(&mut page);

    page.open("/");
    until_api("the poster", || {
        let poster = page.video();
        if poster["width"].as_u64() > Some(0) { Ok(()) } else { Err(poster.to_string()) }
    });
    page.finish();
}

/// Waits until the page and the API have this number of viewers of the first destination. A viewer counts for 30 s.
#[track_caller]
fn see_viewers(page: &mut Dashboard, api: &Api, stream: &Stream, count: i64) {
    let part = card(text("stream.destinations"));
    until_api("the viewers of the API", || {
        let known = api.stream(stream)["playback"][0]["viewers"].as_i64();
        let shown = page.figure(&part, text("playback.viewers")).and_then(|shown| digits(&shown));
        let is_same = (known, shown) == (Some(count), Some(count));
        if is_same { Ok(()) } else { Err(format!("{shown:?} shown, {known:?} by the API")) }
    });
}

/// Makes the public key of the destination that was added last; gives the playback address of the page.
#[track_caller]
fn see_playback(page: &mut Dashboard, api: &Api, stream: &Stream) -> String {
    page.click("button", text("playback.create"));
    let key = page.field(text("playback.key"));
    let playback = api.stream(stream)["playback"][0].clone();
    let keys = api.get("/api/keys").ok();
    let known = keys.as_array().into_iter().flatten().find(|known| known["key"] == key.as_str());
    let known = known.unwrap_or_else(|| panic!("{key} is not in {keys}"));
    assert_eq!((&known["type"], &known["destinationId"]), (&json!("public"), &playback["destinationId"]));
    let address = page.field(text("playback.address"));
    let url = playback["url"].as_str().expect("the address of the stream");
    assert_eq!(address, format!("{url}?apiKey={key}"));
    let watch = url.replace("/hls/", "/watch/").replace("/index.m3u8", "");
    let embed = page.field(text("playback.embed"));
    assert!(embed.contains(&format!("src=\"{watch}?apiKey={key}\"")), "{embed}");
    address
}

#[test]
fn the_cost_equals_the_api_and_a_limit_stops_the_stream() {
    let server = Sink::recording();
    let service = running();
    let (mut page, api) = Dashboard::first(&service);
    let stream = api.create_stream("budget");
    for key in ["a", "b", "c"] {
        api.add_destination(&stream, &server.url(), key);
    }
    let _encoder = publish(&service.ingest_url(&stream.key));
    open(&mut page, &stream);
    let session = see_cost(&mut page, &api);
    assert_eq!(session["totalCharged"], FIRST_MINUTE_SATS, "{session}");

    page.click("button", text("cost.setLimits"));
    let label = text("cost.budgetField");
    let _ = page.step(json!({ "do": "fill", "in": dialog(), "label": label, "value": BUDGET }));
    submit(&mut page, "ui.save");
    assert_eq!(api.stream(&stream)["limits"]["maxSats"].as_i64(), digits(BUDGET));
    page.see_text(text("cost.near.maxSats"));
    page.see_text(text("cost.ends.budget"));

    until_api("the end", || {
        let detail = api.stream(&stream);
        if detail["lastEndReason"] == "max_sats" { Ok(()) } else { Err(detail.to_string()) }
    });
    page.see("region", text("stream.waiting"));
    page.see_text(text_with("stream.ended", json!([text("stream.reasons.max_sats")])));
    let history = api.get("/api/stream-history").ok();
    let costs = history.as_array().into_iter().flatten().filter_map(|entry| entry["totalCostSats"].as_i64());
    assert_eq!(costs.sum::<i64>(), FIRST_MINUTE_SATS, "{history}");

    let mut late = publish(&service.ingest_url(&stream.key));
    assert!(!late.wait(LIVE_LIMIT).success(), "{}", late.log());
    see_refusal(&mut page, &api, &stream);
    page.finish();
}

/// Waits until the page shows the newest refusal of the API. The clock of the browser is in UTC.
#[track_caller]
fn see_refusal(page: &mut Dashboard, api: &Api, stream: &Stream) {
    let newest = api.stream(stream)["refusals"][0].clone();
    assert_eq!(newest["code"], "NetStream.Publish.Denied", "{newest}");
    let at = newest["at"].as_i64().expect("the time of the refusal") / 1000;
    assert!(now_secs().abs_diff(at) <= LIVE_LIMIT.as_secs(), "{newest}");
    let clock = format!("{:02}:{:02}:{:02}", at / 3600 % 24, at / 60 % 60, at % 60);
    page.see_text(text_with("stream.refused", json!([clock, newest["error"]])));
}

/// Waits until two destinations were charged and the page shows the figures of the API; gives the session.
#[track_caller]
fn see_cost(page: &mut Dashboard, api: &Api) -> Value {
    let part = card(text("cost.title"));
    until_api("the cost of the API", || {
        let session = api.get("/api/public/streams/active/cost").ok()["streams"][0].clone();
        let figure = |name: &str| session[name].as_i64();
        let wanted =
            [figure("totalCharged"), figure("ratePerMinute"), figure("ratePerMinute").map(|rate| rate * 60)];
        let shown = ["cost.charged", "cost.perMinute", "cost.perHour"]
            .map(|name| page.figure(&part, text(name)).and_then(|shown| digits(&shown)));
        let is_charged = wanted[0] >= Some(FIRST_MINUTE_SATS);
        if is_charged && shown == wanted { Ok(session) } else { Err(format!("{shown:?}: {session}")) }
    })
}

#[test]
fn a_slate_is_uploaded_seen_on_air_and_deleted() {
    let service = running();
    let (mut page, api) = Dashboard::first(&service);
    let stream = api.create_stream("with a slate");
    let folder = tempfile::tempdir().expect("a folder for the file");
    let file = folder.path().join("slate.mp4");
    std::fs::write(&file, Source::of(Recipe::SCREEN).mp4("-t 4")).expect("a file");
    open(&mut page, &stream);
    let slate = card(text("slate.title"));
    page.click("button", text("slate.upload"));
    let _ =
        page.step(json!({ "do": "attach", "in": dialog(), "label": text("slate.file"), "path": file.display().to_string() }));
    let _ = page.step(json!({ "do": "fill", "in": dialog(), "label": text("slate.plays"), "value": "60" }));
    submit(&mut page, "slate.upload");
    assert_eq!(page.figure(&slate, text("stream.video")).as_deref(), Some("H.264 · 480×270 · 30 fps"));
    assert_eq!(api.stream(&stream)["slate"]["maxSeconds"], 60);

    let mut encoder = publish(&service.ingest_url(&stream.key));
    let _ = api.wait_for_stream(&stream, "live");
    page.see_text(text("stream.state.live"));
    encoder.cut();
    page.see_text(text("slate.state"));
    page.see_in(&slate, text("slate.onAir"));
    page.assert_accessible();
    page.click("button", text("slate.delete"));
    submit(&mut page, "slate.delete");
    page.see_in(&slate, text("slate.none"));
    until_api("the end of the slate", || {
        let shown = api.stream(&stream);
        if shown["slate"].is_null() && shown["slateSince"].is_null() {
            Ok(())
        } else {
            Err(shown.to_string())
        }
    });
    page.finish();
}
