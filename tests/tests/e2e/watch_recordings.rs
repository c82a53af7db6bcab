//! Recordings and clips at the player page in a browser: from the store itself, from the service while the store fails, and a clip.

use satcast_tests::api::Api;
use satcast_tests::encoder::Publish;
use satcast_tests::hosted::Hosted;
use satcast_tests::player::Player;
use satcast_tests::s3::Store;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{seconds, until_api};
use serde_json::{Value, json};

use crate::archive::{archives, end, seconds_of, wait_for};

/// Seconds of the recording: more than a player fetches ahead.
const RECORDED: u64 = 150;
/// Where viewers jump to at least, and how far a jump is, in seconds.
const FAR: f64 = 100.0;
const JUMP: f64 = 10.0;
/// Title of the clip.
const TITLE: &str = "The goal";

/// A recorded stream with a public key, and a browser.
struct Scene {
    service: Service,
    api: Api,
    store: Store,
    hosted: Hosted,
    player: Player,
}

impl Scene {
    /// Records with a store that takes nothing yet.
    fn recorded(playback: &str) -> Self {
        let (source, store) = (Source::of(Recipe::SMALL), Store::start());
        let player = Player::launch_for_pages();
        let service = Setup::default().set("SATCAST_ARCHIVE__PLAYBACK", playback).start();
        let (api, hosted) = (service.api(), Hosted::new(&service, "watched"));
        let path = format!("/api/streams/{}/destinations", hosted.stream.id);
        let _ = api.post(&path, &json!({ "type": "cloud-archive", "config": store.config() })).ok();
        store.allow_origin("*");
        store.vanish();
        let publish = Publish::of(&source).faster(8).endless().seconds(RECORDED);
        publish.to(&service.ingest_url(&hosted.stream.key)).finish(seconds(120));
        end(&api, &hosted.stream);
        let recording = wait_for(&api, "uploading");
        assert!(seconds_of(&recording) > FAR + 20.0, "{recording}");
        let path = format!("/api/archives/{}", recording["id"]);
        let _ = api.patch(&path, &json!({ "public": true })).ok();
        Self { service, api, store, hosted, player }
    }

    /// Lets the store take it.
    fn upload(&self) {
        self.store.recover();
        let _ = wait_for(&self.api, "ready");
        until_api("the end of the local copy", || {
            let spool = self.service.folder().join("data/drivers/archive/spool");
            match std::fs::read_dir(spool).map_or(0, Iterator::count) {
                0 => Ok(()),
                left => Err(left.to_string()),
            }
        });
    }

    /// The page of a recording or clip, by the address of its media.
    fn page(&self, shown: &Value) -> String {
        let url = shown["playbackUrl"].as_str().unwrap_or_else(|| panic!("nothing to play: {shown}"));
        let id = url.split("/vod/").nth(1).and_then(|rest| rest.split('/').next()).expect("an id");
        format!("{}/watch/vod/{id}?apiKey={}&muted=1", self.service.base(), self.hosted.key)
    }

    fn recording_page(&self) -> String {
        self.page(&archives(&self.api)[0])
    }

    /// Jumps from `position` beyond everything that was fetched.
    fn jump(&mut self, mut position: f64) {
        while position < FAR + JUMP {
            let _ = self.player.step("key l");
            position += JUMP;
        }
    }

    /// Waits until it plays, far from the start. A page that loads itself again between two jumps misses the others.
    #[track_caller]
    fn plays_far(&mut self) {
        let mut state = self.player.step("until playing");
        if let Some(position) = state["position"].as_f64().filter(|position| *position <= FAR) {
            self.jump(position);
            state = self.player.step("until playing");
        }
        assert!(state["position"].as_f64() > Some(FAR), "{state}");
    }

    /// A clip of the recording, public like it.
    fn clip(&self) -> Value {
        let begin = archives(&self.api)[0]["startedAt"].as_i64().expect("a start") + 7_000;
        let path = format!("/api/streams/{}/clips", self.hosted.stream.id);
        let made = self.api.post(&path, &json!({ "from": begin, "to": begin + 8_000, "title": TITLE })).ok();
        let path = format!("/api/clips/{}", made["id"]);
        let clip = until_api("the clip", || match self.api.get(&path).ok() {
            ready if ready["state"] == "ready" => Ok(ready),
            other => Err(other.to_string()),
        });
        let _ = self.api.patch(&path, &json!({ "public": true })).ok();
        clip
    }

    fn end(self) {
        self.service.assert_not_logged(&[("the public key", &self.hosted.key)]);
        self.player.finish();
    }
}

/// Expects that media came from the store alone, and that the page complained of nothing.
#[track_caller]
fn assert_from(store: &Store, state: &Value) {
    let foreign = state["requests"]["foreign"].as_array().expect("requests");
    let of_store = |url: &Value| url.as_str().is_some_and(|url| url.starts_with(&store.endpoint()));
    assert!(!foreign.is_empty() && foreign.iter().all(of_store), "{state}");
    assert_eq!(state["complaints"], json!([]), "{state}");
}

#[test]
fn the_page_plays_from_the_store_itself() {
    let mut scene = Scene::recorded("signed");
    // A page that was opened during the upload loads itself again when the media comes from the store.
    let page = scene.recording_page();
    scene.player.open(&page);
    scene.player.step("until playing");
    scene.upload();
    scene.jump(0.0);
    scene.plays_far();

    let mut scene = Scene { player: Player::launch_for_pages(), ..scene };
    let opened = scene.player.open(&page);
    assert_eq!((&opened["status"], &opened["title"]), (&json!(200), &json!("watched")), "{opened}");
    scene.player.step("until playing");
    scene.jump(0.0);
    scene.plays_far();
    assert_from(&scene.store, &scene.player.step("state"));

    let page = scene.page(&scene.clip());
    scene.player.open(&page);
    scene.player.step("until playing");
    assert_from(&scene.store, &scene.player.step("state"));
    scene.end();
}

#[test]
fn the_page_goes_on_at_its_position_after_the_store_failed() {
    let mut scene = Scene::recorded("service");
    scene.upload();
    let page = scene.recording_page();
    // From the start.
    scene.store.refuse(503);
    scene.player.open(&page);
    let lost = scene.player.step("until lost");
    assert_eq!(lost["start"], false, "{lost}");
    scene.player.shot("page-recording-lost");
    scene.store.recover();
    scene.player.step("until playing");

    scene.store.refuse(503);
    scene.jump(0.0);
    scene.player.step("until lost");
    scene.store.recover();
    scene.plays_far();
    scene.player.shot("page-recording");
    scene.end();
}

#[test]
fn the_page_plays_a_clip() {
    let mut scene = Scene::recorded("service");
    scene.upload();
    let page = scene.page(&scene.clip());
    let opened = scene.player.open(&page);
    assert_eq!((&opened["status"], &opened["title"]), (&json!(200), &json!(TITLE)), "{opened}");
    scene.player.step("until playing");
    scene.player.shot("page-clip");
    // It can be played again from its end.
    scene.player.step("until ready");
    scene.player.step("click #start");
    scene.player.step("until playing");
    scene.end();
}
