//! A viewer without a screen: it follows a stream like a player, parses everything strictly, and counts bytes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::http::{Http, Reply, split_url};
use crate::lowlatency::{Part, Version};
use crate::playlist::{self, Index, Media, Segment};
use crate::wait;

/// Pause between two looks at the playlist.
const RELOAD: Duration = Duration::from_millis(250);

/// One viewer of one address, with a connection of its own.
#[derive(Debug)]
pub struct Viewer {
    /// The connection, for requests that a player would not make.
    pub http: Http,
    index: String,
    media: Option<String>,
    last: Option<Media>,
}

/// A segment with all data that is needed to play it.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Its entry in the playlist.
    pub entry: Segment,
    /// Its initialization segment.
    pub init: Vec<u8>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Viewer {
    /// A viewer of `url`, an index playlist.
    ///
    /// # Panics
    /// When it is no URL of ours.
    #[track_caller]
    #[must_use]
    pub fn of(url: &str) -> Self {
        let (address, index) = split_url(url);
        Self { http: Http::new(address), index, media: None, last: None }
    }

    /// Loads the index.
    ///
    /// # Panics
    /// When it is not there or breaks a rule.
    #[track_caller]
    pub fn index(&mut self) -> Index {
        let reply = self.http.get(&self.index.clone(), &[]);
        reply.assert_status(200);
        let text = reply.text();
        let index = playlist::index(&text).unwrap_or_else(|error| panic!("{error} in the index:\n{text}"));
        self.media = Some(Self::beside(&self.index, &index.media));
        index
    }

    /// Loads the media playlist (and first the index, if needed), and expects a valid update of the last one. Waits for the first whole
    /// segment while there are parts alone.
    ///
    /// # Panics
    /// When it is not there or breaks a rule.
    #[track_caller]
    pub fn media(&mut self) -> Media {
        let path = self.media_path();
        let text = wait::until("a whole segment", || {
            let reply = self.http.get(&path, &[("accept-encoding", "gzip")]);
            reply.assert_status(200);
            let text = reply.text();
            if !text.contains("#EXT-X-GAP\n") {
                return Ok(text);
            }
            let _ = Version::read(&text);
            std::thread::sleep(RELOAD);
            Err(text)
        });
        let media = playlist::media(&text).unwrap_or_else(|error| panic!("{error} in the playlist:\n{text}"));
        if let Some(last) = &self.last {
            media.follows(last).unwrap_or_else(|error| panic!("{error} in the playlist:\n{text}"));
        }
        self.last = Some(media.clone());
        media
    }

    /// Loads a playlist with parts; `directives` are its query. Returns its content, its text and its transferred size; `None` when it
    /// did not arrive in time.
    ///
    /// # Panics
    /// When it is not there or breaks a rule.
    #[track_caller]
    pub fn version(&mut self, directives: &str) -> Option<(Version, String, usize)> {
        let path = self.media_path();
        let reply = self.http.get(&format!("{path}?{directives}"), &[("accept-encoding", "gzip")]);
        if reply.status == 503 {
            assert!(reply.text().contains("not_in_time"), "{}", reply.text());
            return None;
        }
        reply.assert_status(200);
        let sent =
            reply.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(usize::MAX);
        let text = reply.text();
        Some((Version::read(&text), text, sent))
    }

    /// Loads parts with their initialization segments, each as a chunk.
    ///
    /// # Panics
    /// When one is not there.
    #[track_caller]
    pub fn parts(&mut self, parts: &[Part]) -> Vec<Chunk> {
        let entry = |part: &Part| Segment {
            sequence: part.sequence,
            name: part.name.clone(),
            duration: part.duration,
            date_ms: 0,
            discontinuity: false,
            init: part.init.clone(),
        };
        let entries: Vec<Segment> = parts.iter().map(entry).collect();
        self.chunks(&entries)
    }

    /// Reloads until `wanted` accepts the playlist.
    ///
    /// # Panics
    /// When none was accepted in time.
    #[track_caller]
    pub fn media_when(&mut self, what: &str, wanted: impl Fn(&Media) -> bool) -> Media {
        wait::until(what, || {
            let media = self.media();
            if wanted(&media) {
                return Ok(media);
            }
            std::thread::sleep(RELOAD);
            Err(format!("{} segments, the newest {:?}", media.segments.len(), media.newest()))
        })
    }

    /// Path of the media playlist.
    #[track_caller]
    pub fn playlist(&mut self) -> String {
        self.media_path()
    }

    /// Path of an address in the media playlist.
    #[track_caller]
    pub fn path(&mut self, name: &str) -> String {
        let media = self.media_path();
        Self::beside(&media, name)
    }

    /// Loads an address of the media playlist.
    ///
    /// # Panics
    /// When it is not there.
    #[track_caller]
    pub fn load(&mut self, name: &str) -> Reply {
        let path = self.path(name);
        let reply = self.http.get(&path, &[]);
        reply.assert_status(200);
        reply
    }

    /// Loads `segments` with their initialization segments.
    ///
    /// # Panics
    /// When one is not there.
    #[track_caller]
    pub fn chunks(&mut self, segments: &[Segment]) -> Vec<Chunk> {
        let mut inits: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut chunks = Vec::new();
        for entry in segments {
            if !inits.contains_key(&entry.init) {
                inits.insert(entry.init.clone(), self.load(&entry.init).body);
            }
            let bytes = self.load(&entry.name).body;
            chunks.push(Chunk { entry: entry.clone(), init: inits[&entry.init].clone(), bytes });
        }
        chunks
    }

    #[track_caller]
    fn media_path(&mut self) -> String {
        if self.media.is_none() {
            self.index();
        }
        self.media.clone().expect("set by the index")
    }

    fn beside(path: &str, name: &str) -> String {
        let folder = path.split('?').next().unwrap_or_default();
        let folder = folder.rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{folder}/{name}")
    }
}
