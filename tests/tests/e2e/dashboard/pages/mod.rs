//! What holds for every page: everybody can use it, also by the keyboard, on a small screen and without live updates, and with long
//! lists.

mod filled;
mod states;
mod tour;

use std::collections::BTreeSet;

use satcast_tests::api::stream_of;
use satcast_tests::dashboard::{Dashboard, PASSWORD, dialog, text, text_with};
use satcast_tests::database::Database;
use satcast_tests::encoder::Publish;
use satcast_tests::hosted::now_secs;
use satcast_tests::reader::read;
use satcast_tests::service::{ACCOUNT, Service, Setup};
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::until_api;
use serde_json::{Value, json};

/// Streams of a long list: as many as an account can have.
const STREAMS: usize = 1_000;
/// Streams that one key makes; it may write 60 times a minute.
const STREAMS_PER_KEY: usize = 50;
/// Rows that the list of streams shows at first, and adds each time.
const ROWS: usize = 50;
const DELIVERIES: i64 = 100_000;
/// Most rows of the delivery log that exist at a time: a screen of 800 pixels has 17, and 8 are kept beyond each edge.
const LOG_ROWS_MAX: usize = 48;
/// Height of two pages of the delivery log in pixels: 200 rows.
const LOG_PAGES: i64 = 9_600;

/// Paths of the dashboard, as the service has them.
fn dashboard_paths() -> Vec<String> {
    let source = read("host/web/src/pages/mod.rs");
    let list = source.split_once("DASHBOARD_PATHS").and_then(|(_, rest)| rest.split_once("];"));
    let (list, _) = list.expect("the paths of the dashboard");
    let paths = list.split('"').skip(1).step_by(2).map(str::to_owned);
    paths.collect()
}

/// A running service without an account.
fn fresh() -> Service {
    let mut service = Setup::default().set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]").stopped();
    service.start();
    service
}

fn button(name: Value) -> Value {
    json!({ "role": "button", "name": name })
}

fn button_in_dialog(name: Value) -> Value {
    json!({ "role": "button", "name": name, "in": dialog() })
}

fn field(label: &str) -> Value {
    json!({ "label": text(label) })
}

/// Waits until the dialog has closed.
#[track_caller]
fn miss_dialog(page: &mut Dashboard) {
    let _ = page.step(json!({ "do": "miss", "role": "dialog" }));
}

#[test]
fn the_main_job_by_keyboard_alone() {
    let service = fresh();
    let (mut page, api) = Dashboard::first(&service);
    let _ = page.step(json!({ "do": "leave" }));
    page.open("/login");
    page.see_focus(field("login.name"));
    page.type_text(ACCOUNT);
    page.tab_to(field("login.password"));
    page.type_text(PASSWORD);
    page.press("Enter");
    page.see("heading", text("nav.streams"));

    // A page begins with the link over the menu.
    page.open("/");
    assert_eq!(page.tab_to(json!({ "role": "link", "name": text("shell.skip") })), 1);
    page.press("Enter");
    assert_eq!(page.tab_to(field("streams.label")), 1);
    page.type_text("Sunday service");
    page.press("Enter");
    page.see_focus(json!({ "role": "heading", "name": "Sunday service" }));
    let stream = stream_of(&api.get("/api/streams").ok()[0]);

    // A dialog takes the focus, and gives it back.
    page.tab_to(button(text("stream.edit")));
    page.press("Enter");
    page.see_focus(json!({ "label": text("streams.label"), "in": dialog() }));
    page.press("Escape");
    page.see_focus(button(text("stream.edit")));

    page.tab_to(button(text("destination.add")));
    page.press("Enter");
    page.see_focus(json!({ "label": text("destination.type"), "in": dialog() }));
    page.type_text("Self-hosted");
    page.tab_to(button_in_dialog(text("destination.add")));
    page.press("Enter");
    miss_dialog(&mut page);
    page.see("button", text("playback.create"));
    assert_eq!(api.stream(&stream)["destinations"][0]["type"], "self-hosted");

    let _encoder = Publish::of(&Source::of(Recipe::SCREEN)).endless().to(&service.ingest_url(&stream.key));
    page.see("button", text("stream.stop"));
    assert_eq!(api.stream(&stream)["state"], "live");
    page.tab_to(button(text("stream.stop")));
    page.press("Enter");
    page.see("dialog", text_with("stream.stopTitle", json!(["Sunday service"])));
    page.press("Escape");
    page.see_focus(button(text("stream.stop")));
    page.press("Enter");
    page.see("dialog", text_with("stream.stopTitle", json!(["Sunday service"])));
    page.tab_to(button_in_dialog(text("stream.stop")));
    page.press("Enter");
    page.see("region", text("stream.waiting"));
    let ended = api.wait_for_stream(&stream, "idle");
    assert_eq!(ended["lastEndReason"], "stopped");
    page.finish();
}

/// How often the browser loaded a page.
fn loads(page: &mut Dashboard) -> Value {
    page.step(json!({ "do": "state" }))["loads"].clone()
}

#[test]
fn live_falls_back_to_polling_and_recovers_without_a_reload() {
    let service = fresh();
    let (mut page, api) = Dashboard::first(&service);
    let _ = api.create_stream("before");
    let old = json!({ "do": "see", "css": ".as-of" });
    let current = json!({ "do": "miss", "css": ".as-of" });

    let _ = page.step(json!({ "do": "cut", "path": "/api/events", "on": true }));
    page.open("/");
    let loaded = loads(&mut page);
    page.see_text(text("shell.polling"));
    let _ = page.step(old.clone());
    let _ = api.create_stream("while it polls");
    page.see("link", "while it polls");
    let _ = page.step(json!({ "do": "cut", "path": "/api/events", "on": false }));
    let _ = page.step(json!({ "do": "miss", "text": text("shell.polling") }));
    let _ = page.step(current.clone());
    let _ = api.create_stream("by an event");
    page.see("link", "by an event");

    let _ = page.step(json!({ "do": "offline", "on": true }));
    page.see_text(text("shell.unreachable"));
    let _ = page.step(old);
    let _ = api.create_stream("while it is offline");
    let _ = page.step(json!({ "do": "offline", "on": false }));
    page.see("link", "while it is offline");
    let _ = page.step(json!({ "do": "miss", "text": text("shell.unreachable") }));
    let _ = page.step(current);
    assert_eq!(loads(&mut page), loaded, "the page was loaded again");
    page.finish();
}

/// Scrolls to the end of what the page has now; prints the longest task meanwhile, which a test does not assert. Gives the position.
fn scroll(page: &mut Dashboard, what: &str) -> i64 {
    let answer = page.step(json!({ "do": "scroll" }));
    println!("{what}: the longest task of the main thread took {} ms", answer["longestTaskMs"]);
    answer["scrolled"].as_f64().expect("a position") as i64
}

#[test]
fn long_lists_stay_smooth() {
    let mut service = fresh();
    let (mut page, api) = Dashboard::first(&service);
    let body = json!({ "url": "http://127.0.0.1:9/in", "events": ["stream.started"] });
    let webhook = api.post("/api/webhooks", &body).ok()["id"].clone();
    // A page without streams, so that it does not read the list again for each of them.
    page.open("/settings");
    for first in (0..STREAMS).step_by(STREAMS_PER_KEY) {
        let api = service.api_of(ACCOUNT);
        for number in first..first + STREAMS_PER_KEY {
            let _ = api.create_stream(&format!("Show {number:04}"));
        }
    }
    let _ = service.stop();
    let yesterday_ms = (now_secs() - 24 * 3_600) * 1_000;
    let mut database = Database::of(service.folder());
    database.make_deliveries(DELIVERIES, yesterday_ms);
    database.write(
        "UPDATE webhook_deliveries SET state = 'delivered', tries = 1;
        INSERT INTO webhook_attempts (delivery_id, at_ms, duration_ms, status, ok, answer)
            SELECT id, created_ms, 42, 204, 1, '' FROM webhook_deliveries;"
            .to_owned(),
    );
    drop(database);
    service.start();

    page.open("/");
    let rows = "table tbody tr";
    assert_eq!(page.read(rows).len(), ROWS);
    for _ in 1..STREAMS / ROWS {
        page.click("button", text("ui.more"));
    }
    page.see("link", "Show 0000");
    assert_eq!(page.read(rows).len(), STREAMS);
    scroll(&mut page, "a list of 1,000 streams");
    page.fill(text("streams.search"), "show 0500");
    let _ = page.step(json!({ "do": "miss", "role": "link", "name": "Show 0999" }));
    assert_eq!(page.read(rows).len(), 1);

    page.open(&format!("/webhooks/{webhook}"));
    let rows = ".log-body > [role=row]";
    let _ = page.step(json!({ "do": "see", "css": rows }));
    until_api("further pages of the log", || {
        let position = scroll(&mut page, "a log of 100,000 deliveries");
        let shown = page.read(rows).len();
        assert!((1..=LOG_ROWS_MAX).contains(&shown), "{shown} rows exist");
        if position > LOG_PAGES { Ok(()) } else { Err(format!("{position} pixels")) }
    });
    page.finish();
}

#[test]
fn the_tour_shows_every_page() {
    let text = read("docs/dashboard.md");
    let shown: BTreeSet<String> = tour::PAGES.iter().map(|(_, path)| (*path).to_owned()).collect();
    assert_eq!(shown, dashboard_paths().into_iter().collect());
    for file in tour::files() {
        assert!(
            text.contains(&format!("({}{file})", tour::FOLDER_NAME)),
            "docs/dashboard.md does not show {file}"
        );
    }
}

#[test]
#[ignore = "it writes the screenshots of docs/dashboard.md: cargo xtask tour"]
fn tour() {
    tour::write();
}
