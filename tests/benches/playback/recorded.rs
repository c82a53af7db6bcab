//! CPU cost of many viewers of one recording: from the local copy while it is made, and from the store afterwards. Each viewer reads
//! its segments in turn, as players do. nginx serves the same ranges of the same bytes with sendfile.

use std::sync::Arc;

use parking_lot::RwLock;
use reqwest::Url;
use reqwest::blocking::Client;
use satcast_tests::api::Api;
use satcast_tests::crowd::Paths;
use satcast_tests::encoder::Publish;
use satcast_tests::figures::results::{OURS, Results};
use satcast_tests::figures::{Options, turns};
use satcast_tests::http::split_url;
use satcast_tests::nginx::Nginx;
use satcast_tests::s3::Store;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::Source;
use satcast_tests::wait::until_api;
use serde_json::{Value, json};

use super::crowds::Figure;

/// Fewer than one account may have at once.
const VIEWERS: usize = 50;
const SIDES: [&str; 2] = [OURS, "nginx"];
/// Seconds of the recording when the measurements begin.
const RECORDED_SECONDS: f64 = 30.0;
/// File name for nginx.
const FILE: &str = "recording.mp4";

pub(crate) fn run(source: &Source, options: Options, results: &mut Results) {
    let (store, service) = (Store::start(), Setup::default().start());
    let api = service.api();
    let stream = api.create_stream("bench");
    let path = format!("/api/streams/{}/destinations", stream.id);
    let _ = api.post(&path, &json!({ "type": "cloud-archive", "config": store.config() })).ok();
    let encoder = Publish::of(source).endless().to(&service.ingest_url(&stream.key));
    let media = Media::of(&only(&api, "recording", RECORDED_SECONDS));
    measure("local", &service, &media, options, results);
    drop(encoder);
    let _ = api.wait_for_stream(&stream, "reconnecting");
    let _ = api.post(&format!("/api/streams/{}/stop", stream.id), &json!({})).ok();
    let _ = only(&api, "ready", RECORDED_SECONDS);
    measure("store", &service, &media, options, results);
}

/// The recording, once it has this state and length.
fn only(api: &Api, state: &str, secs: f64) -> Value {
    until_api(&format!("a recording that is {state}"), || {
        let all = api.get("/api/archives").ok();
        let is_so = all[0]["state"] == state && all[0]["durationSeconds"].as_f64() >= Some(secs);
        if is_so { Ok(all[0].clone()) } else { Err(all.to_string()) }
    })
}

/// The media of a recording.
struct Media {
    address: Url,
    /// Its segments, as in the header `Range`.
    ranges: Vec<String>,
}

impl Media {
    fn of(archive: &Value) -> Self {
        let index = archive["playbackUrl"].as_str().expect("something to play");
        let index = Url::parse(index).expect("an address");
        let playlist = Client::new().get(index.clone()).send().and_then(|answer| answer.text());
        let playlist = playlist.expect("a playlist");
        let uri = playlist.lines().find(|line| !line.starts_with('#')).expect("a segment");
        let ranges = playlist.lines().filter_map(|line| line.strip_prefix("#EXT-X-BYTERANGE:"));
        Self { address: index.join(uri).expect("an address"), ranges: ranges.map(range).collect() }
    }

    /// What viewers of this path ask for.
    fn paths(&self, path: &str) -> Paths {
        Arc::new(RwLock::new(self.ranges.iter().map(|range| format!("{path} {range}")).collect()))
    }
}

/// `LENGTH@FIRST` of a playlist, for the header `Range`.
fn range(listed: &str) -> String {
    let (len, first) = listed.split_once('@').expect("a range");
    let (len, first): (u64, u64) = (len.parse().expect("a length"), first.parse().expect("an offset"));
    format!("bytes={first}-{}", first + len - 1)
}

fn measure(place: &str, service: &Service, media: &Media, options: Options, results: &mut Results) {
    let folder = tempfile::tempdir().expect("a folder for nginx");
    let bytes = Client::new().get(media.address.clone()).send().and_then(|answer| answer.bytes());
    let bytes = bytes.expect("the media");
    std::fs::write(folder.path().join(FILE), &bytes).expect("a file");
    println!("a recording of {} bytes, in {} segments", bytes.len(), media.ranges.len());
    let (ours, theirs) = (media.paths(media.address.path()), media.paths(&format!("/{FILE}")));
    let row = format!("viewers recording {place} {VIEWERS}");
    for repeat in 0..options.repeats {
        for side in turns(repeat, SIDES.len()).map(|turn| SIDES[turn]) {
            println!("{row}, repeat {}: {side}", repeat + 1);
            let figure = if side == OURS {
                let (address, _) = split_url(&service.base());
                Figure::of(service.process(), (address, &ours), VIEWERS, options.window)
            } else {
                let nginx = Nginx::serving(folder.path());
                Figure::of(nginx.process(), (nginx.address(), &theirs), VIEWERS, options.window)
            };
            figure.note(results, &row, side, repeat);
        }
    }
}
