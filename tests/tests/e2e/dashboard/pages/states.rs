//! Every page in every state: no violation of WCAG 2.2 AA in light and dark, and nothing wider than a screen of 360 pixels.

use satcast_tests::dashboard::{Dashboard, PASSWORD, dialog, text, text_with};
use satcast_tests::service::ACCOUNT;
use satcast_tests::wait::{until, until_api};
use serde_json::{Value, json};

use super::filled::{CLIP, EVENING, Filled, NAME, OTHERS, WEBSITE, first_link};
use super::{dashboard_paths, fresh, miss_dialog};

const NARROW: (u32, u32) = (360, 800);
const WIDE: (u32, u32) = (1280, 800);
/// Label of a second public key.
const SECOND_KEY: &str = "forum";
/// Identifier that nothing has.
const NOTHING: &str = "999999";
/// The only buttons that close the dialogs whose content is shown once.
const STORED: [&str; 3] = ["webhooks.secretStored", "keys.stored", "accounts.linkStored"];

/// Expects that people can use what is shown now.
#[track_caller]
fn assert_usable(page: &mut Dashboard, what: &str) {
    println!("{what}");
    page.assert_accessible();
    page.resize(NARROW);
    page.resize(WIDE);
}

#[track_caller]
fn see_alert(page: &mut Dashboard) {
    let _ = page.step(json!({ "do": "see", "role": "alert" }));
}

/// Sends the form of the setup page.
#[track_caller]
fn ask_for_account(page: &mut Dashboard, link: &str, name: &str, password: &str) {
    page.open(link);
    page.fill(text("login.name"), name);
    page.fill(text("login.password"), password);
    page.click("button", text("setup.action"));
}

#[test]
fn every_page_is_accessible_before_there_is_anything() {
    let service = fresh();
    let link = first_link(&service);
    let mut page = Dashboard::launch(&service);
    page.open(&link);
    assert_usable(&mut page, "the first-run link");
    ask_for_account(&mut page, &link, ACCOUNT, "short");
    see_alert(&mut page);
    assert_usable(&mut page, "a refused password");
    page.set_up(&link, ACCOUNT, "long enough to pass");
    for path in dashboard_paths() {
        page.open(&path.replace(":id", NOTHING));
        assert_usable(&mut page, &format!("{path}, empty"));
    }

    let _ = page.step(json!({ "do": "leave" }));
    ask_for_account(&mut page, &link, "another", "long enough to pass");
    see_alert(&mut page);
    assert_usable(&mut page, "a link that was used");
    page.open("/login");
    page.log_in(ACCOUNT, "another password");
    see_alert(&mut page);
    assert_usable(&mut page, "a refused login");
    page.finish();
}

/// One service for two browsers: to fill it costs a third of what the test costs.
#[test]
fn every_page_state_and_dialog_is_accessible() {
    let (filled, page) = Filled::start();
    std::thread::scope(|scope| {
        scope.spawn(|| every_dialog(&filled));
        every_page(page, &filled);
    });
}

fn every_page(mut page: Dashboard, filled: &Filled) {
    for path in dashboard_paths() {
        page.open(&filled.address(&path));
        assert_usable(&mut page, &format!("{path}, filled"));
    }
    let others = ["/wallet", "/analytics?range=hour", "/analytics?range=dates"];
    let evening = format!("/streams/{}", filled.evening.id);
    let failed = format!("/webhooks/{}?state=failed", filled.webhook);
    for address in others.into_iter().chain([evening.as_str(), failed.as_str()]) {
        page.open(address);
        assert_usable(&mut page, address);
    }
    charts_as_tables(&mut page);
    a_live_stream(&mut page, filled);
    the_menu_of_a_small_screen(&mut page);
    the_other_language(&mut page, filled);
    a_person_who_is_no_operator(&mut page, filled);
    page.finish();
}

fn charts_as_tables(page: &mut Dashboard) {
    page.open("/analytics?range=year");
    let _ = page.step(json!({ "do": "click", "css": ".chart figcaption button", "first": true }));
    let _ = page.step(json!({ "do": "see", "css": ".chart table" }));
    assert_usable(page, "a chart as a table");
}

/// Everything that the page of a live stream can open, and the page without a network.
fn a_live_stream(page: &mut Dashboard, filled: &Filled) {
    page.open(&filled.address("/streams/:id"));
    page.click("button", text("preview.start"));
    page.see("button", text("preview.stop"));
    let hosted = filled.title_of("self-hosted");
    page.click("button", text_with("playback.showNamed", json!([hosted])));
    page.see("link", text("playback.open"));
    let _ = page.step(json!({ "do": "click", "text": text("cost.breakdown") }));
    assert_usable(page, "a live stream with its preview, playback and cost");
    page.click("button", text_with("destination.showChartNamed", json!([hosted])));
    assert_usable(page, "the chart of a destination");

    let _ = page.step(json!({ "do": "offline", "on": true }));
    page.see_text(text("shell.unreachable"));
    let _ = page.step(json!({ "do": "see", "css": ".as-of" }));
    assert_usable(page, "a live stream without a network");
    let _ = page.step(json!({ "do": "offline", "on": false }));
    let _ = page.step(json!({ "do": "miss", "text": text("shell.unreachable") }));
}

fn the_menu_of_a_small_screen(page: &mut Dashboard) {
    page.open("/");
    page.resize(NARROW);
    page.click("button", text("shell.menu"));
    page.see("link", text("nav.accounts"));
    page.assert_accessible();
    page.click("link", text("nav.accounts"));
    page.see("heading", text("nav.accounts"));
    page.resize(WIDE);
}

/// Its words are longer.
fn the_other_language(page: &mut Dashboard, filled: &Filled) {
    page.open("/settings");
    let _ = page.step(json!({ "do": "press", "label": "Deutsch", "keys": ["Space"] }));
    let _ = page.step(json!({ "do": "see", "css": "html[lang=de]" }));
    for path in dashboard_paths() {
        page.open(&filled.address(&path));
        println!("{path} in German");
        page.resize(NARROW);
        page.resize(WIDE);
    }
}

/// Uses a login link, and opens the pages that show less then.
fn a_person_who_is_no_operator(page: &mut Dashboard, filled: &Filled) {
    let made = filled.api.post("/api/accounts", &json!({ "name": "guest", "operator": false })).ok();
    let _ = page.step(json!({ "do": "leave" }));
    page.open(made["loginLink"].as_str().expect("a login link"));
    assert_usable(page, "a login link");
    page.fill(text("login.password"), "long enough to pass");
    page.click("button", text("setup.passwordAction"));
    page.see("heading", text("nav.streams"));
    for path in ["/accounts", "/drivers"] {
        page.open(path);
        assert_usable(page, &format!("{path} without an operator"));
    }
}

/// A page, and for each dialog of it the buttons that lead there: the first in the page, the others in the dialog before. One of
/// [`STORED`] closes the last dialog.
type Dialogs = (String, Vec<Vec<Value>>);

fn dialogs(filled: &Filled) -> Vec<Dialogs> {
    let named = |key: &str, name: &str| vec![text_with(key, json!([name]))];
    let plain = |key: &str| vec![text(key)];
    let hosted = filled.title_of("self-hosted");
    let (ready, failed) = (filled.recording("ready"), filled.recording("failed"));
    let [account, _] = OTHERS;
    let rotated = vec![text("webhook.rotate"), text("webhook.rotate"), text("webhooks.secretStored")];
    let link = ["accounts.makeLink", "accounts.linkStored"].map(text);
    let link = [named("accounts.linkNamed", account), link.to_vec()].concat();
    vec![
        ("/".to_owned(), vec![plain("streams.add")]),
        (
            filled.address("/streams/:id"),
            vec![
                plain("stream.edit"),
                plain("stream.stop"),
                plain("stream.rotate"),
                plain("slate.upload"),
                plain("stream.delete"),
                plain("cost.setLimits"),
                named("destination.editNamed", &hosted),
                named("destination.deleteNamed", &hosted),
            ],
        ),
        ("/webhooks".to_owned(), vec![plain("webhooks.add")]),
        (
            filled.address("/webhooks/:id"),
            vec![named("webhook.detailsNamed", "test.ping"), plain("webhook.delete"), rotated],
        ),
        (
            "/keys".to_owned(),
            vec![
                named("keys.useNamed", WEBSITE),
                named("keys.rotateNamed", WEBSITE),
                named("keys.revokeNamed", WEBSITE),
                vec![text("keys.add"), text("keys.create"), text("keys.stored")],
            ],
        ),
        (
            "/recordings".to_owned(),
            vec![
                named("recordings.watchNamed", &ready),
                named("recordings.clipNamed", &ready),
                named("recordings.downloadNamed", &ready),
                named("recordings.deleteNamed", &ready),
                named("recordings.recoverNamed", &failed),
            ],
        ),
        (
            "/clips".to_owned(),
            ["clips.watchNamed", "clips.downloadNamed", "clips.editNamed", "clips.deleteNamed"]
                .map(|key| named(key, CLIP))
                .to_vec(),
        ),
        ("/wallet".to_owned(), vec![plain("wallet.edit"), plain("wallet.disconnect")]),
        (
            "/drivers".to_owned(),
            vec![named("drivers.replaceNamed", "rtmp"), named("drivers.disableNamed", "rtmp")],
        ),
        (
            "/accounts".to_owned(),
            vec![
                plain("accounts.add"),
                named("accounts.addCreditNamed", account),
                named("accounts.disableNamed", account),
                link,
            ],
        ),
        ("/settings".to_owned(), vec![plain("settings.everywhere")]),
    ]
}

fn every_dialog(filled: &Filled) {
    let mut page = Dashboard::launch(&filled.service);
    page.open("/login");
    page.log_in(NAME, PASSWORD);
    page.see("heading", text("nav.streams"));
    for (path, dialogs) in dialogs(filled) {
        page.open(&path);
        for buttons in dialogs {
            let mut step = json!({ "do": "click", "role": "button", "first": true });
            for button in buttons {
                let is_last = STORED.iter().any(|key| button == text(key));
                step["name"] = button;
                if is_last {
                    page.press("Escape");
                    page.press("Escape");
                }
                let _ = page.step(step.clone());
                if is_last {
                    break;
                }
                step["in"] = dialog();
                let _ = page.step(json!({ "do": "see", "role": "dialog" }));
                assert_usable(&mut page, &format!("{path}: the dialog after {}", step["name"]));
            }
            page.press("Escape");
            miss_dialog(&mut page);
        }
    }
    a_public_clip(&mut page, filled);
    a_clip_of_a_recording(&mut page, filled);
    forms_of_destinations(&mut page, filled);
    a_refused_form(&mut page);
    page.finish();
}

/// The owner opens a clip to the public, and sees what to give to viewers: a stream without a destination for them needs one, then a
/// key, and of several keys the owner chooses one.
fn a_public_clip(page: &mut Dashboard, filled: &Filled) {
    page.open("/clips");
    page.see_text(EVENING);
    let watch = text_with("clips.watchNamed", json!([CLIP]));
    page.click("button", watch.clone());
    let _ = page.step(json!({ "do": "check", "in": dialog(), "label": text("recordings.public") }));
    let _ = page.step(json!({ "do": "see", "in": dialog(), "text": text("recordings.noHosted") }));
    assert_usable(page, "a clip of a stream without a self-hosted destination");
    let hosted = json!({ "type": "self-hosted", "config": {} });
    let added = filled.api.post(&format!("/api/streams/{}/destinations", filled.evening.id), &hosted).ok();
    page.click("button", text("playback.create"));
    for label in ["clips.publicFile", "recordings.publicPlayer", "recordings.embedCode"] {
        let _ = page.step(json!({ "do": "see", "in": dialog(), "label": text(label) }));
    }
    assert_usable(page, "what to give to viewers of a clip");
    let second = json!({ "type": "public", "destinationId": added["id"], "label": SECOND_KEY });
    let _ = filled.api.post("/api/keys", &second).ok();
    let label = text("recordings.publicKey");
    let _ = page.step(json!({ "do": "see", "in": dialog(), "label": label }));
    assert_usable(page, "the choice of a public key");
    page.press("Escape");
    miss_dialog(page);
    page.see_text(text("recordings.public"));
}

/// The owner plays a recording, and takes the start of a clip from the player. A range without a length is refused at its field.
fn a_clip_of_a_recording(page: &mut Dashboard, filled: &Filled) {
    let file = filled.recording("ready");
    let name = file.rsplit('/').next().unwrap_or_default();
    page.open("/recordings");
    page.click("button", text_with("recordings.clipNamed", json!([file])));
    page.fill(text("clips.to"), "0:00");
    page.see_text(text("clips.noLength"));
    assert_usable(page, "a clip without a length");
    page.fill(text("clips.to"), "0:20");
    let player = text_with("clips.video", json!([name]));
    let _ = page.step(json!({ "do": "press", "in": dialog(), "label": player, "keys": ["Space"] }));
    until("the recording to play", || {
        let shown = page.step(json!({ "do": "video", "css": "dialog video" }));
        if shown["position"].as_f64() > Some(1.0) { Ok(()) } else { Err(shown.to_string()) }
    });
    page.click("button", text("clips.fromHere"));
    assert_ne!(page.field(text("clips.from")), "0:00.0");
    // The destination that made the recording is disabled, so there is no place for the clip.
    page.click("button", text("clips.make"));
    see_alert(page);
    let path = format!("/api/streams/{}/destinations", filled.evening.id);
    let all = filled.api.get(&path).ok();
    let archive = all.as_array().into_iter().flatten().find(|one| one["type"] == "cloud-archive");
    let path = format!("{path}/{}", archive.expect("a destination that records")["id"]);
    let _ = filled.api.patch(&path, &json!({ "enabled": true })).ok();
    page.click("button", text("clips.make"));
    miss_dialog(page);
    page.see_text(text("clips.begun"));
    until_api("the clip of the recording", || match filled.api.get("/api/clips").ok() {
        all if all.as_array().is_some_and(|all| all.len() == 2) && all[0]["state"] == "ready" => Ok(()),
        other => Err(other.to_string()),
    });
}

/// The form of each type that has its own fields, and one that lacks a value.
fn forms_of_destinations(page: &mut Dashboard, filled: &Filled) {
    page.open(&format!("/streams/{}", filled.evening.id));
    page.see("heading", EVENING);
    page.click("button", text("destination.add"));
    for name in ["cloud-archive", "youtube", "self-hosted", "srt", "rtmp"] {
        let title = filled.title_of(name);
        let label = text("destination.type");
        let _ = page.step(json!({ "do": "choose", "in": dialog(), "label": label, "option": title }));
        assert_usable(page, &format!("the form of {name}"));
    }
    let add = text("destination.add");
    let _ = page.step(json!({ "do": "click", "in": dialog(), "role": "button", "name": add }));
    page.see_text(text("problems.required"));
    assert_usable(page, "a form that lacks a value");
    page.press("Escape");
    miss_dialog(page);
}

/// The service refuses the address of a webhook.
fn a_refused_form(page: &mut Dashboard) {
    page.open("/webhooks");
    page.click("button", text("webhooks.add"));
    page.fill(text("webhooks.url"), "http://10.0.0.1/in");
    page.click("button", text("webhooks.create"));
    let _ = page.step(json!({ "do": "see", "css": "[aria-invalid=true]" }));
    assert_usable(page, "a form that the service refused");
    page.press("Escape");
    miss_dialog(page);
}
