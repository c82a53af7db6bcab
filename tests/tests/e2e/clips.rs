//! Clips of a live stream and of a recording: the frames of their range as an ordinary file, a hundred at one time, kills while they
//! are made, and a browser that plays one.

use std::path::Path;
use std::thread;

use satcast_tests::api::{Api, Stream};
use satcast_tests::encoder::{Encoder, Publish};
use satcast_tests::hosted::{Hosted, now_secs};
use satcast_tests::player::{Engine, Player, assert_moves};
use satcast_tests::probe::{assert_plays, hashes_of_file, packets_and_hashes};
use satcast_tests::receiver::Receiver;
use satcast_tests::record::Track;
use satcast_tests::s3::Store;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{seconds, until, within_api};
use serde_json::{Value, json};

use crate::archive::{archives, end, key_of, wait_for};

/// Seconds in the window before the first clip.
const WINDOW_SECS: i64 = 16;
/// Accounts that ask for clips at one time, and clips of each: the most that an account may have in the making.
const ACCOUNTS: usize = 5;
const CLIPS: i64 = 20;
/// Of the clips of the other accounts every so many is looked into.
const LOOKED_INTO: usize = 4;
/// Largest distance between the starts of audio and video, in seconds.
const APART_MAX: f64 = 0.040;
const PRICE: i64 = 7;
const CREDIT: i64 = 1_000;

fn service() -> Service {
    Setup::default()
        .set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]")
        .set("SATCAST_BILLING__INITIAL_CREDIT_SATS", &CREDIT.to_string())
        .set("SATCAST_PRICING__COST_PER_PLATFORM", "0")
        .set("SATCAST_PRICING__CLIP_SATS", &PRICE.to_string())
        .start()
}

/// A stream with a DVR window, whose recordings are in a store.
fn stream_with_window(service: &Service, store: &Store) -> Hosted {
    let hosted = Hosted::new(service, "clips");
    let path = format!("/api/streams/{}/destinations", hosted.stream.id);
    let _ = service.api().post(&path, &json!({ "type": "cloud-archive", "config": store.config() })).ok();
    hosted
}

fn wait_for_window(hosted: &Hosted) {
    let _ = hosted.status_when("a window", |status| {
        status["dvr"]["windowSeconds"].as_i64().is_some_and(|window| window >= WINDOW_SECS)
    });
}

fn clips(api: &Api) -> Vec<Value> {
    api.get("/api/clips").ok().as_array().cloned().expect("a list")
}

fn make(api: &Api, stream: &Stream, wanted: &Value) -> Value {
    api.post(&format!("/api/streams/{}/clips", stream.id), wanted).ok()
}

/// Waits until no clip is being made. After a kill the store of the tests refuses uploads that it does not know, and the driver waits
/// up to two minutes before each further try.
fn settled(api: &Api) -> Vec<Value> {
    within_api("all clips", seconds(420), || match clips(api) {
        all if all.iter().all(|clip| clip["state"] != "making") => Ok(all),
        all => Err(json!(all).to_string()),
    })
}

fn object_of(clip: &Value, store: &Store) -> std::path::PathBuf {
    let url = clip["url"].as_str().expect("a location");
    store.file(url.strip_prefix("s3://recordings/").expect("in the bucket of the test"))
}

fn seconds_of(clip: &Value) -> f64 {
    clip["durationSeconds"].as_f64().expect("a length")
}

/// Expects that a file has the packets of its range: from a keyframe on, in order, audio with the video.
fn assert_cut(clip: &Value, file: &Path, sent: &[String]) {
    let (packets, got) = packets_and_hashes(file);
    let of = |track| packets.iter().filter(move |packet| packet.track == track && packet.pts >= -0.001);
    let first = of(Track::Video).next().expect("video");
    assert!(first.keyframe && first.pts.abs() < 0.001, "{clip} begins with {first:?}");
    let audio = of(Track::Audio).next().expect("audio");
    assert!((audio.pts - first.pts).abs() <= APART_MAX, "{clip}: {first:?} {audio:?}");
    let begin = sent.iter().position(|hash| *hash == got[0]).expect("a frame that was sent");
    assert!(sent[begin..].starts_with(&got), "{clip}: {} frames from {begin}", got.len());
    let boxes = std::fs::read(file).expect("the file");
    let at = |kind: &[u8]| boxes.windows(4).position(|bytes| bytes == kind).expect("a box");
    assert!(at(b"moov") < at(b"mdat") && boxes.windows(4).all(|bytes| bytes != b"moof"), "an ordinary file");
}

/// A live stream of an account, and the clips of it.
struct Owner {
    api: Api,
    stream: Stream,
    /// Ids, and ranges where they have one.
    clips: Vec<(i64, Option<(i64, i64)>)>,
}

/// Another account, with a stream as that of the first one.
fn another(service: &Service, store: &Store, number: usize) -> Owner {
    let name = format!("owner-{number}");
    let _ = service.run(&["account", "create", &name]);
    let api = service.api_of(&name);
    let stream = api.create_stream("clips");
    let path = format!("/api/streams/{}/destinations", stream.id);
    for (kind, config) in [("self-hosted", json!({})), ("cloud-archive", store.config())] {
        let _ = api.post(&path, &json!({ "type": kind, "config": config })).ok();
    }
    Owner { api, stream, clips: Vec::new() }
}

/// Asks for the newest seconds, and for ranges before `now_ms`.
fn ask_for_clips(owner: &mut Owner, now_ms: i64) {
    let mut wanted = vec![(json!({ "lastSeconds": 5, "title": "newest" }), None)];
    for number in 1..CLIPS {
        let from = now_ms - 15_000 + number * 350;
        let to = from + 1_500 + (number % 5) * 700;
        wanted.push((json!({ "from": from, "to": to }), Some((from, to))));
    }
    for (wanted, range) in wanted {
        let made = make(&owner.api, &owner.stream, &wanted);
        owner.clips.push((made["id"].as_i64().expect("an id"), range));
    }
}

/// Expects all clips of an account, and their price once. Every `step`th is looked into.
fn assert_made(owner: &Owner, store: &Store, sent: &[String], step: usize) {
    let made = clips(&owner.api);
    for (number, (id, range)) in owner.clips.iter().enumerate() {
        let clip = made.iter().find(|clip| clip["id"] == *id).expect("each clip is listed");
        assert_eq!(clip["state"], "ready", "{clip}");
        let file = object_of(clip, store);
        if number % step == 0 {
            assert_cut(clip, &file, sent);
        }
        let started = clip["startedAt"].as_i64().expect("a start");
        if let Some((from, to)) = range {
            // The source has a keyframe every two seconds.
            assert!((from - 2_100..=from + 50).contains(&started), "{clip} {from}");
            let length = seconds_of(clip) * 1_000.0;
            assert!((length - (to - started) as f64).abs() < 250.0, "{clip} {to}");
        } else {
            assert!((4.9..7.2).contains(&seconds_of(clip)), "{clip}");
            assert!(assert_plays(file.to_str().expect("UTF-8"), 60) > 100);
        }
    }
    let balance = owner.api.get("/api/wallet/balance").ok()["balance"].clone();
    assert_eq!(balance, CREDIT - CLIPS * PRICE);
}

#[test]
fn a_hundred_clips_of_live_streams_have_their_frames_and_the_streams_lose_nothing() {
    let (source, store, receiver) = (Source::shared(), Store::start(), Receiver::start(None));
    let mut service = service();
    let api = service.api();
    let _ = api.post("/api/webhooks", &json!({ "url": receiver.url(), "events": ["clip.ready"] })).ok();
    let hosted = stream_with_window(&service, &store);
    let mut owners: Vec<Owner> = (1..ACCOUNTS).map(|number| another(&service, &store, number)).collect();
    owners.push(Owner { api: service.api(), stream: hosted.stream.clone(), clips: Vec::new() });
    let publish = |owner: &Owner| Publish::of(&source).to(&service.ingest_url(&owner.stream.key));
    let mut encoders: Vec<Encoder> = owners.iter().map(publish).collect();
    wait_for_window(&hosted);
    for owner in &owners {
        until("a recording of all that is asked for", || {
            let started = archives(&owner.api).first().and_then(|one| one["startedAt"].as_i64());
            let is_long = |started: &i64| now_secs() - started / 1_000 >= WINDOW_SECS;
            started.filter(is_long).map(drop).ok_or_else(|| format!("{started:?}"))
        });
    }
    let now_ms = now_secs() * 1_000;
    thread::scope(|scope| {
        for owner in &mut owners {
            scope.spawn(move || ask_for_clips(owner, now_ms));
        }
    });
    for owner in &owners {
        let _ = settled(&owner.api);
    }
    encoders.iter_mut().for_each(|encoder| encoder.finish(seconds(60)));

    let sent = hashes_of_file(source.path(), Track::Video);
    // All before the reconnect window is over: looking into files takes long on a busy machine.
    owners.iter().for_each(|owner| end(&owner.api, &owner.stream));
    for (number, owner) in owners.iter().enumerate() {
        let is_first = number + 1 == ACCOUNTS;
        assert_made(owner, &store, &sent, if is_first { 1 } else { LOOKED_INTO });
        // The recording beside them has everything.
        let ready = wait_for(&owner.api, "ready");
        assert!(hashes_of_file(&store.file(&key_of(&ready)), Track::Video) == sent, "a frame is missing");
    }
    let events = receiver.wait_for(CLIPS as usize);
    assert!(events.iter().all(|event| event.json()["data"]["costSats"] == PRICE));

    let id = owners[ACCOUNTS - 1].clips[0].0;
    let signed = api.get(&format!("/api/clips/{id}?sign=true")).ok()["url"].clone();
    let fetched = reqwest::blocking::get(signed.as_str().expect("an address")).expect("an answer");
    assert!(fetched.status().is_success(), "{}", fetched.status());
    let objects = store.keys().len();
    let _ = api.delete(&format!("/api/clips/{id}")).ok();
    assert_eq!((store.keys().len(), clips(&api).len() as i64), (objects - 1, CLIPS - 1));
    let _ = service.run(&["ledger", "check"]);
    service.assert_running();
}

#[test]
fn a_kill_leaves_whole_clips_or_failed_ones_and_charges_only_the_whole() {
    let (source, store) = (Source::shared(), Store::start());
    let mut service = service();
    let hosted = stream_with_window(&service, &store);
    let mut encoder = Publish::of(&source).to(&service.ingest_url(&hosted.stream.key));
    wait_for_window(&hosted);
    let api = service.api();
    for number in 0..12 {
        let wanted = json!({ "lastSeconds": 4 + number, "title": number.to_string() });
        let _ = make(&api, &hosted.stream, &wanted);
    }
    service.kill();
    let _ = encoder.stop();
    service.start();
    let api = service.api();
    let all = settled(&api);
    assert_eq!(all.len(), 12);
    let sent = hashes_of_file(source.path(), Track::Video);
    let mut ready = 0;
    for clip in &all {
        if clip["state"] == "ready" {
            assert_cut(clip, &object_of(clip, &store), &sent);
            ready += 1;
        } else {
            assert_eq!((&clip["state"], &clip["costSats"]), (&json!("failed"), &json!(0)), "{clip}");
            assert!(clip["url"].is_null() && clip["error"].is_string(), "{clip}");
        }
    }
    assert_only(&service, &store, ready);
}

/// Expects that so many clips are at the store and were charged, and that nothing else is left of any.
fn assert_only(service: &Service, store: &Store, ready: i64) {
    let balance = service.api().get("/api/wallet/balance").ok()["balance"].clone();
    assert_eq!(balance, CREDIT - ready * PRICE, "{ready} are ready");
    let objects = store.keys().into_iter().filter(|key| !key.contains("ses_")).count() as i64;
    assert_eq!(objects, ready, "{:?}", store.keys());
    let folder = service.folder().join("data/drivers/archive/clips");
    until("no half file", || {
        let left = std::fs::read_dir(&folder).map_or(0, Iterator::count);
        if left == 0 { Ok(()) } else { Err(format!("{left} files")) }
    });
    let _ = service.run(&["ledger", "check"]);
}

/// A recording of a stream that is over, whose local copy has gone to the store.
fn recorded(service: &Service, hosted: &Hosted, source: &Source) -> Value {
    let mut encoder = Publish::of(source).faster(4).to(&service.ingest_url(&hosted.stream.key));
    encoder.finish(seconds(60));
    end(&service.api(), &hosted.stream);
    wait_for(&service.api(), "ready")
}

#[test]
fn a_kill_while_a_recording_is_copied_fails_the_clip_and_the_next_one_is_made() {
    let (source, store) = (Source::of(Recipe::SMALL), Store::start());
    let mut service = service();
    let hosted = stream_with_window(&service, &store);
    let recording = recorded(&service, &hosted, &source);
    let started = recording["startedAt"].as_i64().expect("a start");
    let wanted = json!({ "from": started + 7_300, "to": started + 13_900 });
    // The copy waits for its store.
    store.vanish();
    let before = store.turned_away();
    let _ = make(&service.api(), &hosted.stream, &wanted);
    until("the copy", || match store.turned_away() - before {
        0 => Err("the store was not asked".to_owned()),
        _ => Ok(()),
    });
    service.kill();
    store.recover();
    service.start();
    let failed = settled(&service.api()).remove(0);
    assert_eq!((&failed["state"], &failed["costSats"]), (&json!("failed"), &json!(0)), "{failed}");
    assert!(failed["url"].is_null() && failed["error"].is_string(), "{failed}");
    assert_only(&service, &store, 0);
    let _ = make(&service.api(), &hosted.stream, &wanted);
    let ready = settled(&service.api()).remove(0);
    assert_eq!(ready["state"], "ready", "{ready}");
    assert_cut(&ready, &object_of(&ready, &store), &hashes_of_file(source.path(), Track::Video));
    assert_only(&service, &store, 1);
}

/// Expects that the poster at an address is this frame alone, and decodes.
fn assert_poster(address: &str, frame: &str) {
    let poster = reqwest::blocking::get(address).expect("an answer");
    assert!(poster.status().is_success(), "{}", poster.status());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("poster.mp4");
    std::fs::write(&path, poster.bytes().expect("a poster")).expect("a file");
    assert_eq!(hashes_of_file(&path, Track::Video), [frame]);
    assert_eq!(assert_plays(path.to_str().expect("UTF-8"), 5), 1);
}

#[test]
fn a_clip_of_a_recording_is_made_after_the_stream_and_plays_in_a_browser() {
    let (source, store) = (Source::of(Recipe::SMALL), Store::start());
    let service = service();
    let api = service.api();
    let hosted = stream_with_window(&service, &store);
    let recording = recorded(&service, &hosted, &source);
    let started = recording["startedAt"].as_i64().expect("a start");
    let (from, to) = (started + 7_300, started + 13_900);
    let _ = make(&api, &hosted.stream, &json!({ "from": from, "to": to, "title": "later" }));
    let path = format!("/api/streams/{}/clips", hosted.stream.id);
    let behind = started + 40_000;
    let nothing = [json!({ "from": behind, "to": behind + 1 }), json!({ "lastSeconds": 5 })];
    nothing.iter().for_each(|wanted| api.post(&path, wanted).assert_error(409, Some("clip_no_media")));

    let clip = settled(&api).remove(0);
    assert_eq!((&clip["state"], &clip["sessionId"]), (&json!("ready"), &recording["sessionId"]), "{clip}");
    let file = object_of(&clip, &store);
    assert_cut(&clip, &file, &hashes_of_file(source.path(), Track::Video));
    // A keyframe every two seconds.
    let begin = clip["startedAt"].as_i64().expect("a start");
    assert!((from - 2_000..=from).contains(&begin), "{clip} {from}");
    assert!((seconds_of(&clip) * 1_000.0 - (to - begin) as f64).abs() < 100.0, "{clip} {to}");
    assert_eq!(api.get("/api/wallet/balance").ok()["balance"], CREDIT - PRICE);

    assert_poster(clip["posterUrl"].as_str().expect("a poster"), &hashes_of_file(&file, Track::Video)[0]);
    let _ = api.patch(&format!("/api/clips/{}", clip["id"]), &json!({ "public": true })).ok();
    let owner = clip["playbackUrl"].as_str().expect("an address");
    let (address, _) = owner.split_once('?').expect("a token");
    let (mut player, _) = Player::start(Engine::Native, &format!("{address}?apiKey={}", hosted.key));
    assert_moves(&player.step("wait 2"));
    player.finish();
    let _ = service.run(&["ledger", "check"]);
}

#[test]
fn a_stream_without_a_store_has_no_clips() {
    let source = Source::shared();
    let service = service();
    let hosted = Hosted::new(&service, "storeless");
    let mut encoder = Publish::of(&source).to(&service.ingest_url(&hosted.stream.key));
    wait_for_window(&hosted);
    let path = format!("/api/streams/{}/clips", hosted.stream.id);
    service.api().post(&path, &json!({ "lastSeconds": 5 })).assert_error(409, Some("clip_no_store"));
    let _ = encoder.stop();
}
