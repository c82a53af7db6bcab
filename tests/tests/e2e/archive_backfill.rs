//! A recording added to a live stream begins with the media of the DVR window.

use satcast_tests::encoder::Publish;
use satcast_tests::hosted::Hosted;
use satcast_tests::probe::{assert_plays, hashes_of_file};
use satcast_tests::record::{Record, Track, media};
use satcast_tests::s3::Store;
use satcast_tests::service::Setup;
use satcast_tests::source::Source;
use satcast_tests::wait::seconds;
use serde_json::json;

use crate::archive::{contents, end, key_of, seconds_of, wait_for};

/// Seconds in the window before the archive is added.
const WINDOW_SECS: i64 = 20;
/// Audio packets before the first shown frame that may be missing. A player of the DVR window does not get them either.
const AUDIO_BEFORE_MAX: usize = 8;

fn times(records: &[Record], track: Track) -> Vec<i64> {
    let of_track = records.iter().filter(|record| record.track == track && !record.config);
    of_track.map(|record| record.dts_ms).collect()
}

#[test]
fn an_archive_added_while_live_begins_with_the_dvr_window() {
    let (source, store) = (Source::shared(), Store::start());
    let mut service = Setup::default().set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]").start();
    let api = service.api();
    let hosted = Hosted::new(&service, "backfill");
    let stream = &hosted.stream;
    let mut encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
    let shown = hosted.status_when("a window", |status| {
        status["dvr"]["windowSeconds"].as_i64().is_some_and(|window| window >= WINDOW_SECS)
    });
    let path = format!("/api/streams/{}/destinations", stream.id);
    let added = api.post(&path, &json!({ "type": "cloud-archive", "config": store.config() })).ok();
    let archive = added["id"].as_i64().expect("a destination");
    let _ = api.wait_for_destination(stream, archive, "live");
    encoder.finish(seconds(60));
    end(&api, stream);
    let ready = wait_for(&api, "ready");

    let object = store.file(&key_of(&ready));
    let (sent, got) = (media(source.records()), contents(&object));
    // Every frame, once and in order.
    let (frames, recorded) = (times(&sent, Track::Video), times(&got, Track::Video));
    assert_eq!(recorded.len(), frames.len());
    let from = |times: &[i64]| times.iter().map(|time| time - times[0]).collect::<Vec<_>>();
    let apart = from(&frames).into_iter().zip(from(&recorded)).map(|(sent, got)| (sent - got).abs());
    assert!(apart.max() <= Some(2), "{recorded:?}");
    assert!(recorded.is_sorted_by(|one, next| one < next));
    let hashes = |track| (hashes_of_file(source.path(), track), hashes_of_file(&object, track));
    let (sent, got) = hashes(Track::Video);
    assert!(got == sent, "the frames differ from those sent");
    let (sent, got) = hashes(Track::Audio);
    let before = sent.len() - got.len();
    assert!(
        before <= AUDIO_BEFORE_MAX && got == sent[before..],
        "{} of {} audio packets",
        got.len(),
        sent.len()
    );
    assert_eq!(assert_plays(object.to_str().expect("a path in UTF-8"), 60), recorded.len() as u64);
    assert!((29.0..31.0).contains(&seconds_of(&ready)), "{ready}");
    // The object name has the start of the window, not the time at which the archive was added.
    let started = ready["startedAt"].as_i64().expect("a start");
    let session = shown["startedAt"].as_i64().expect("a start");
    assert!((started / 1000 - session).abs() <= 2, "{ready} {shown}");
    service.assert_running();
}
