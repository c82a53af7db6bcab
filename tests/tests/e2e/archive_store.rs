//! A store that cannot be used is reported when the destination is created, and while it records.

use satcast_tests::api::{Answer, Api, Stream};
use satcast_tests::encoder::Publish;
use satcast_tests::record::{Record, Track, media};
use satcast_tests::s3::{ACCESS_KEY, BUCKET, SECRET_KEY, Store};
use satcast_tests::said;
use satcast_tests::service::Setup;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::until_api;
use serde_json::{Value, json};

use crate::archive::{archived, contents, end, key_of, service, wait_for};

/// Adds a destination with these changes of the store's configuration.
pub(crate) fn add(api: &Api, stream: &Stream, store: &Store, changes: &Value, check: Option<bool>) -> Answer {
    let mut body = json!({ "type": "cloud-archive", "config": store.config() });
    for (name, value) in changes.as_object().expect("an object") {
        body["config"][name] = value.clone();
    }
    if let Some(check) = check {
        body["checkStore"] = json!(check);
    }
    api.post(&format!("/api/streams/{}/destinations", stream.id), &body)
}

#[test]
fn a_store_is_checked_when_the_destination_is_created() {
    let store = Store::start();
    let service = service();
    let api = service.api();
    let stream = api.create_stream("asked");
    for (changes, field) in [
        (json!({ "bucket": "nowhere" }), "config.bucket"),
        (json!({ "secretKey": "not-the-secret-of-the-store" }), "config.accessKey"),
    ] {
        let refused = add(&api, &stream, &store, &changes, None);
        refused.assert_error(422, Some("config_refused"));
        let text = refused.text;
        assert!(text.contains(&format!("`{field}`")) && !text.contains("not-the-secret"), "{text}");
        let made = add(&api, &stream, &store, &changes, Some(false)).ok();
        let _ = api.delete(&format!("/api/destinations/{}", made["id"])).ok();
    }
    store.vanish();
    let made = add(&api, &stream, &store, &json!({}), None).ok();
    let id = made["id"].as_i64().expect("a destination");
    assert!(api.destination(&stream, id)["error"].is_string(), "{}", api.destination(&stream, id));
    store.recover();
    let path = format!("/api/streams/{}/destinations/{id}", stream.id);
    let _ = api.patch(&path, &json!({ "config": store.config() })).ok();
    assert_eq!(api.destination(&stream, id)["error"], Value::Null);
    assert_eq!(store.keys(), Vec::<String>::new(), "the check left objects behind");
}

#[test]
fn a_store_that_refuses_shows_at_once_and_recording_goes_on() {
    let (source, store) = (Source::of(Recipe::SMALL), Store::start());
    let service = service();
    let api = service.api();
    let (stream, destination) = archived(&api, "refused", &store);
    store.refuse(403);
    let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&stream.key));
    until_api("the refusal at the destination", || {
        let shown = api.destination(&stream, destination);
        if shown["state"] == "live" && shown["error"].is_string() { Ok(()) } else { Err(shown.to_string()) }
    });
    let running = wait_for(&api, "recording");
    assert!(running["error"].is_string(), "{running}");
    store.recover();
    until_api("the end of the error", || match api.destination(&stream, destination) {
        shown if shown["error"].is_null() => Ok(()),
        shown => Err(shown.to_string()),
    });
    let sent = encoder.end();
    end(&api, &stream);
    let ready = wait_for(&api, "ready");
    // The source is looped, and its audio is not as long as its video.
    let got = contents(&store.file(&key_of(&ready)));
    for track in [Track::Video, Track::Audio] {
        let digests = |records: &[Record]| -> Vec<[u8; 32]> {
            let of_track = media(records).into_iter().filter(|record| record.track == track);
            of_track.map(|record| record.digest).collect()
        };
        assert_eq!(digests(&got), digests(&sent), "{track:?}");
    }
}

#[test]
fn the_rule_of_the_bucket_is_checked_when_viewers_go_to_the_store() {
    let store = Store::start();
    let service = Setup::default()
        .set("SATCAST_ARCHIVE__ENDPOINT", &store.endpoint())
        .set("SATCAST_ARCHIVE__BUCKET", BUCKET)
        .set("SATCAST_ARCHIVE__ACCESS_KEY", ACCESS_KEY)
        .set("SATCAST_ARCHIVE__SECRET_KEY", SECRET_KEY)
        .set("SATCAST_ARCHIVE__PLAYBACK", "signed")
        .start();
    service.wait_for_log("the missing rule", |log| log.contains(said::NO_BUCKET_RULE));
    let doctor = || {
        let output = service.command(&["doctor"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let name = "] bucket rule";
        let line = text.lines().find(|line| line.contains(name)).map(str::to_owned);
        let line = line.unwrap_or_else(|| panic!("no line: {text}"));
        let mark = line.split_whitespace().nth(3).unwrap_or_default().to_owned();
        (output.status.success(), mark)
    };
    assert_eq!(doctor(), (false, "BAD".to_owned()));
    let own = service.base();
    store.allow_origin(own.leak());
    assert_eq!(doctor(), (true, "note".to_owned()), "players of other sites");
    store.allow_origin("*");
    assert_eq!(doctor(), (true, "ok".to_owned()));
    store.vanish();
    assert_eq!(doctor(), (true, "note".to_owned()), "it is not known");
    service.assert_not_logged(&[("the key of the store", SECRET_KEY)]);
}
