//! A stream with a self-hosted destination and a public key, like that of a site owner.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::api::{Answer, Api, Stream};
use crate::hls::Viewer;
use crate::service::{ACCOUNT, Service};
use crate::wait;

/// Pause between two looks at the status, which answers a key 60 times a minute.
const STATUS_POLL: Duration = Duration::from_millis(500);
/// Segments in a file of the preview.
const PREVIEW_SEGMENTS: usize = 3;
/// Path of the status.
pub const STATUS: &str = "/api/public/stream/status";

/// Streams made with one API key; each is two writes.
const STREAMS_PER_KEY: usize = 25;

/// The stream, its destination and the key.
#[derive(Clone, Debug)]
pub struct Hosted {
    /// The stream.
    pub stream: Stream,
    /// Its label.
    pub label: String,
    /// Its self-hosted destination.
    pub destination: i64,
    /// A public key of that destination.
    pub key: String,
    api: Api,
}

impl Hosted {
    /// Makes a stream with a self-hosted destination of the default settings, and a key.
    ///
    /// # Panics
    /// When one is refused.
    #[track_caller]
    #[must_use]
    pub fn new(service: &Service, label: &str) -> Self {
        Self::with(service, label, &json!({}))
    }

    /// The same with a configuration of the destination.
    ///
    /// # Panics
    /// When one is refused.
    #[track_caller]
    #[must_use]
    pub fn with(service: &Service, label: &str, config: &Value) -> Self {
        Self::by(&service.api(), service, label, config)
    }

    /// `count` streams with the same configuration, created with several keys, because each may write 60 times a minute.
    ///
    /// # Panics
    /// When one is refused.
    #[track_caller]
    #[must_use]
    pub fn many(service: &Service, count: usize, config: &Value) -> Vec<Self> {
        let mut api = service.api();
        let make = |number: usize| {
            if number > 0 && number.is_multiple_of(STREAMS_PER_KEY) {
                let key = service.run(&["key", "create", "--account", ACCOUNT, "--type", "permanent"]);
                api = service.api().with_key(Some(key.trim()));
            }
            Self::by(&api, service, &format!("stream {number}"), config)
        };
        (0..count).map(make).collect()
    }

    #[track_caller]
    fn by(api: &Api, service: &Service, label: &str, config: &Value) -> Self {
        let stream = api.create_stream(label);
        Self::of(api, service, stream, label, config)
    }

    /// A second self-hosted destination of the same stream, with a key of its own.
    ///
    /// # Panics
    /// When one is refused.
    #[track_caller]
    #[must_use]
    pub fn beside(&self, service: &Service, config: &Value) -> Self {
        Self::of(&service.api(), service, self.stream.clone(), &self.label, config)
    }

    #[track_caller]
    fn of(api: &Api, service: &Service, stream: Stream, label: &str, config: &Value) -> Self {
        let path = format!("/api/streams/{}/destinations", stream.id);
        let body = api.post(&path, &json!({ "type": "self-hosted", "config": config })).ok();
        let destination = body["id"].as_i64().expect("the id of the destination");
        let key = Self::key(service, destination);
        Self { stream, label: label.to_owned(), destination, key, api: service.api().with_key(None) }
    }

    /// A further public key of a destination.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    #[must_use]
    pub fn key(service: &Service, destination: i64) -> String {
        let id = destination.to_string();
        let key =
            service.run(&["key", "create", "--account", ACCOUNT, "--type", "public", "--destination", &id]);
        key.trim().to_owned()
    }

    /// The address of the player page, without a key.
    ///
    /// # Panics
    /// When the stream is not shown.
    #[track_caller]
    #[must_use]
    pub fn page(&self, service: &Service) -> String {
        let stream = service.api().get(&format!("/api/streams/{}", self.stream.id)).ok();
        let url = stream["playback"][0]["url"].as_str().expect("the address of the stream");
        let path = url.trim_end_matches("/index.m3u8").rsplit('/').next().expect("a path");
        format!("{}/watch/{path}", service.base())
    }

    /// The answer of the status to `key`.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    #[must_use]
    pub fn status_of(&self, key: &str) -> Answer {
        crate::api::send(self.api.request("GET", STATUS).header("X-API-Key", key))
    }

    /// The status; waits when the key has asked too often in this minute.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    #[must_use]
    pub fn status(&self) -> Value {
        crate::api::send_patiently(&self.api.request("GET", STATUS).header("X-API-Key", &self.key)).ok()
    }

    /// Polls the status until `wanted` accepts it.
    ///
    /// # Panics
    /// When none was accepted in time.
    #[track_caller]
    pub fn status_when(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        wait::until(what, || {
            let status = self.status();
            if wanted(&status) {
                return Ok(status);
            }
            std::thread::sleep(STATUS_POLL);
            Err(status.to_string())
        })
    }

    /// Waits until the stream is ready for players, and returns its address.
    ///
    /// # Panics
    /// When it is not in time.
    #[track_caller]
    pub fn ready(&self) -> String {
        let status = self.status_when("hlsReady", |status| status["hlsReady"] == true);
        status["hlsUrl"].as_str().expect("the address of the stream").to_owned()
    }

    /// Waits until the stream is ready for players, and returns a viewer.
    ///
    /// # Panics
    /// When it is not in time.
    #[track_caller]
    pub fn viewer(&self) -> Viewer {
        Viewer::of(&self.ready())
    }

    /// The address of the preview, which lists its first file when three segments are done; `viewer`, which has a key, waits for them.
    ///
    /// # Panics
    /// When the stream is offline, or does not have three segments in time.
    #[track_caller]
    #[must_use]
    pub fn preview_url(&self, viewer: &mut Viewer) -> String {
        viewer.media_when("three segments", |media| media.segments.len() >= PREVIEW_SEGMENTS);
        let status = self.status();
        let url = status["hlsUrl"].as_str().expect("the address of the stream");
        let token = status["playbackToken"].as_str().expect("the token of the preview");
        format!("{}?token={token}", url.split('?').next().unwrap_or_default())
    }
}

/// Files of the DVR window below the data folder of a service: all files of that driver except the one with its last number.
#[must_use]
pub fn window_files(service: &Service) -> Vec<PathBuf> {
    let mut folders = vec![service.folder().join("data/drivers/hls")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        // A folder may disappear during the listing.
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                _ if entry.file_name() == "last-sequence" => {}
                _ => files.push(entry.path()),
            }
        }
    }
    files
}

/// Seconds since 1970.
#[must_use]
pub fn now_secs() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    i64::try_from(since.as_secs()).expect("a clock before the year 292 billion")
}
