//! For tests, also of other modules: a journal of recordings behind the C table, read and written by the test.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use satcast_media::fuzz::RECORDS;
use satcast_media::segment::{Event, Segmenter};
use satcast_plugin_api::driver::{
    Answer, BytesAnswer, Config, FinishedFile, Fragment, Host, IndexAnswer, Recording, RecordingIndex,
    RecordingState, Recordings,
};
use satcast_plugin_api::{
    Asset, AssetBody, Audience, Class, Codec, Error, Followed, NANOS_PER_MILLI, Packet, Playback,
    SegmentPosition,
};
use serde_json::Value;

use satcast_drivers::Reports;
use satcast_drivers::published::Opening;

/// A driver is started once in a process, so there is one journal.
static JOURNAL: Mutex<BTreeMap<String, Recording>> = Mutex::new(BTreeMap::new());
/// Pending answers, by file name.
static HELD: Mutex<BTreeMap<String, Answer>> = Mutex::new(BTreeMap::new());

/// Finished files that the driver keeps, by name.
static FILES: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());

/// The bytes of a finished file that the driver keeps.
pub fn file(file_name: &str) -> Option<Vec<u8>> {
    FILES.lock().get(file_name).cloned()
}

/// Names of the finished files that the driver keeps.
pub fn files() -> Vec<String> {
    FILES.lock().keys().cloned().collect()
}

/// Error of failing uploads and deletions.
pub const STORE_503: &str = "the store said 503";
pub const DOWN: &str = "the store is down";

/// Configurations that the driver received, by destination.
static CONFIGURED: Mutex<Vec<(i64, Option<Value>)>> = Mutex::new(Vec::new());
/// Deletions of which the driver knows that their owner is told: file names and times.
static ANNOUNCED: Mutex<Vec<(String, i64)>> = Mutex::new(Vec::new());
/// Destinations whose notifications fail.
static REFUSED: Mutex<Vec<i64>> = Mutex::new(Vec::new());

/// Reports of the drivers of this process.
pub fn reports() -> Reports {
    static REPORTS: OnceLock<Reports> = OnceLock::new();
    REPORTS.get_or_init(Reports::default).clone()
}

/// Recordings of the test driver. The name decides the behaviour: `refused-` and `silent-` are not uploaded again,
/// `stuck-` are not deleted, `unread-` cannot be read, `unsigned-` have no address, `deaf-` take no notice, `there-` turn
/// out to be in their store, `vanishing-` lose
/// their copy, `unlisted` makes the list fail.
pub struct Kept(pub Host);

/// Bytes of the initialization segment, and of each fragment, which is a second long. Every second one begins with a keyframe.
pub const INIT_BYTES: u64 = 700;
pub const FRAGMENT_BYTES: u64 = 1_000;

/// A byte of every recording.
pub fn byte_at(offset: u64) -> u8 {
    (offset % 251) as u8
}

/// Media of recordings that have other bytes: an initialization segment, and fragments with their durations in microseconds,
/// which begin with a keyframe.
#[derive(Default)]
struct Media {
    init: Vec<u8>,
    fragments: Vec<(Vec<u8>, u32)>,
}

static MEDIA: Mutex<BTreeMap<String, Media>> = Mutex::new(BTreeMap::new());

/// Gives a recording this media.
pub fn fill(file_name: &str, init: &[u8], fragment: &[u8]) {
    let media = Media { init: init.to_vec(), fragments: vec![(fragment.to_vec(), 1_000_000)] };
    MEDIA.lock().insert(file_name.to_owned(), media);
}

/// Gives a recording the media that [`fill_window`] publishes.
pub fn fill_recording(file_name: &str) {
    let (mut segmenter, mut media) = (segmenter(0), Media::default());
    while let Some(event) = segmenter.poll_event() {
        match event {
            Event::Init(init) => media.init = init.bytes.to_vec(),
            Event::Segment(segment) => {
                media.fragments.push((segment.bytes.to_vec(), (segment.duration_ns / 1_000) as u32));
            }
            _ => {}
        }
    }
    MEDIA.lock().insert(file_name.to_owned(), media);
}

impl Media {
    fn bytes(&self) -> Vec<u8> {
        let fragments = self.fragments.iter().flat_map(|(bytes, _)| bytes);
        self.init.iter().chain(fragments).copied().collect()
    }

    fn index(&self, first: u64) -> RecordingIndex {
        let init_bytes = self.init.len() as u64;
        let (mut offset, mut start_us, mut all) = (init_bytes, 0, Vec::new());
        for (fragment, duration_us) in &self.fragments {
            let (bytes, duration_us) = (fragment.len() as u32, *duration_us);
            all.push(Fragment { offset, bytes, start_us, duration_us, is_keyframe: true });
            offset += u64::from(bytes);
            start_us += u64::from(duration_us);
        }
        let count = all.len() as u64;
        let fragments = all.split_off(all.len().min(first as usize));
        RecordingIndex { init_bytes, bytes: offset, count, is_complete: true, first, fragments }
    }
}

/// Reads of recordings that fail before one works, by file name.
static DOWN_FOR: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());

/// Makes the next reads of a recording fail, as with a store that is down.
pub fn fail_reads(file_name: &str, reads: u32) {
    DOWN_FOR.lock().insert(file_name.to_owned(), reads);
}

/// Puts a recording into the journal without a report.
pub fn put(recording: Recording) {
    JOURNAL.lock().insert(recording.file_name.clone(), recording);
}

pub fn journal(file_name: &str) -> Option<Recording> {
    JOURNAL.lock().get(file_name).cloned()
}

/// Removes a recording from the journal without a report.
pub fn lose(file_name: &str) {
    JOURNAL.lock().remove(file_name);
}

/// Changes a recording of the journal; returns its new state.
pub fn change(file_name: &str, change: impl FnOnce(&mut Recording)) -> Recording {
    let mut journal = JOURNAL.lock();
    let recording = journal.get_mut(file_name).expect("a recording of that name");
    change(recording);
    recording.changed_at_ms += 1;
    recording.clone()
}

/// As [`change`], to a failure.
pub fn fail(file_name: &str, class: Class) -> Recording {
    change(file_name, |recording| {
        recording.state = RecordingState::Failed;
        (recording.error, recording.error_class) = (Some("it broke".into()), Some(class));
    })
}

/// As [`change`], to a confirmed upload.
pub fn finish(file_name: &str) -> Recording {
    change(file_name, |recording| {
        recording.state = RecordingState::Ready;
        (recording.error, recording.error_class) = (None, None);
        recording.uploaded_bytes = recording.size_bytes;
        recording.url = Some(format!("s3://bucket/{}", recording.file_name));
    })
}

/// Answers a pending request; false when there is none.
pub fn answer(file_name: &str, outcome: Result<(), Error>) -> bool {
    let held = HELD.lock().remove(file_name);
    let is_there = held.is_some();
    held.into_iter().for_each(|answer| answer.give(outcome.clone()));
    is_there
}

/// Changes a recording as a retry does whose upload the store opened.
pub fn opened(recording: &mut Recording) {
    recording.attempt += 1;
    recording.attempt_opened = true;
    recording.state = RecordingState::Uploading;
    (recording.error, recording.error_class) = (None, None);
}

/// Configurations of a destination that the driver received, in order.
pub fn configurations_of(destination: i64) -> Vec<Option<Value>> {
    let reported = CONFIGURED.lock();
    reported.iter().filter(|(id, _)| *id == destination).map(|(_, config)| config.clone()).collect()
}

/// Times of deletion that were confirmed to the driver for a recording, in order.
pub fn announced(file_name: &str) -> Vec<i64> {
    let announced = ANNOUNCED.lock();
    announced.iter().filter(|(name, _)| name == file_name).map(|(_, at_ms)| *at_ms).collect()
}

/// Makes notifications of a destination fail, or work again.
pub fn refuse_notifications(destination: i64, is_refused: bool) {
    REFUSED.lock().retain(|id| *id != destination);
    if is_refused {
        REFUSED.lock().push(destination);
    }
}

impl Recordings for Kept {
    fn configured(&self, destination: i64, config: Option<Config<'_>>) -> Result<(), Error> {
        if REFUSED.lock().contains(&destination) {
            return Err(Error::internal("the journal is full"));
        }
        let config = config.map(|config| config.parse::<Value>()).transpose()?;
        CONFIGURED.lock().push((destination, config));
        Ok(())
    }

    fn announced(&self, file_name: &str, expires_at_ms: i64) -> Result<(), Error> {
        ANNOUNCED.lock().push((file_name.to_owned(), expires_at_ms));
        if file_name.starts_with("deaf-") {
            return Err(Error::internal("the journal is full"));
        }
        if let Some(recording) = JOURNAL.lock().get_mut(file_name) {
            recording.asks_notice = false;
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<Recording>, Error> {
        let journal = JOURNAL.lock();
        if journal.contains_key("unlisted") {
            return Err(Error::internal("the journal is damaged"));
        }
        Ok(journal.values().cloned().collect())
    }

    fn read(&self, file_name: &str, offset: u64, bytes: u32, answer: BytesAnswer) {
        if let Some(left) = DOWN_FOR.lock().get_mut(file_name).filter(|left| **left > 0) {
            *left -= 1;
            return answer.give(Err(Error::network(DOWN)));
        }
        if let Some(media) = MEDIA.lock().get(file_name) {
            let (all, from) = (media.bytes(), offset as usize);
            let part = all.get(from..from.saturating_add(bytes as usize));
            let part = part.ok_or_else(|| Error::config("no such range"));
            return answer.give(part.map(|part| part.to_vec().into()));
        }
        if let Some(file) = file(file_name) {
            let range = usize::try_from(offset).unwrap_or(usize::MAX);
            let found =
                file.get(range..).and_then(|rest| rest.get(..bytes as usize)).map(Bytes::copy_from_slice);
            return answer.give(found.ok_or_else(|| Error::config("no such range")));
        }
        let size = journal(file_name).map_or(0, |recording| recording.size_bytes);
        let end = offset.saturating_add(u64::from(bytes));
        answer.give(match file_name {
            _ if end > size => Err(Error::config("no such range")),
            _ if file_name.starts_with("unread-") => Err(Error::network(DOWN)),
            _ => Ok((offset..end).map(byte_at).collect()),
        });
    }

    fn index(&self, file_name: &str, first: u64, most: u32, answer: IndexAnswer) {
        let Some(recording) = journal(file_name).filter(|recording| !recording.gone) else {
            return answer.give(Err(Error::config("no such recording")));
        };
        if let Some(media) = MEDIA.lock().get(file_name) {
            return answer.give(Ok(media.index(first)));
        }
        let count = recording.size_bytes.saturating_sub(INIT_BYTES) / FRAGMENT_BYTES;
        let fragment = |number: u64| Fragment {
            offset: INIT_BYTES + number * FRAGMENT_BYTES,
            bytes: FRAGMENT_BYTES as u32,
            start_us: number * 1_000_000,
            duration_us: 1_000_000,
            is_keyframe: number.is_multiple_of(2),
        };
        answer.give(Ok(RecordingIndex {
            init_bytes: INIT_BYTES,
            bytes: INIT_BYTES + count * FRAGMENT_BYTES,
            count,
            is_complete: recording.state != RecordingState::Recording,
            first,
            fragments: (first..count).take(most as usize).map(fragment).collect(),
        }));
    }

    fn retry(&self, file_name: &str, answer: Answer) {
        if file_name.starts_with("vanishing-") {
            change(file_name, |recording| recording.has_copy = false);
            answer.give(Err(Error::config("its local copy is gone")));
        } else if file_name.starts_with("refused-") {
            let reported = self.0.recording(&change(file_name, |recording| {
                recording.attempt += 1;
                recording.attempt_opened = false;
            }));
            answer.give(reported.and(Err(Error::remote(STORE_503))));
        } else if file_name.starts_with("there-") {
            change(file_name, |recording| recording.attempt += 1);
            answer.give(self.0.recording(&finish(file_name)));
        } else if file_name.starts_with("silent-") {
            HELD.lock().insert(file_name.to_owned(), answer);
        } else {
            let reported = self.0.recording(&change(file_name, opened));
            answer.give(reported);
        }
    }

    fn delete(&self, file_name: &str, remote: bool, answer: Answer) {
        if file_name.starts_with("stuck-") {
            return answer.give(Err(Error::network(DOWN)));
        }
        if remote || !file_name.starts_with("remote-") {
            lose(file_name);
        }
        answer.give(Ok(()));
    }

    fn keep(&self, file: FinishedFile, config: Config<'_>, answer: Answer) {
        let title = file.about.label.as_str();
        if title.starts_with("refused-") {
            return answer.give(Err(Error::internal("the disk is full")));
        }
        let path = match self.0.data_dir() {
            Ok(folder) => folder.join(&file.path),
            Err(error) => return answer.give(Err(error)),
        };
        let Ok(bytes) = std::fs::read(&path) else {
            return answer.give(Err(Error::internal("the finished file is not there")));
        };
        let _ = (std::fs::remove_file(&path), config);
        let recording = Recording {
            file_name: file.file_name.clone(),
            destination_id: file.about.destination_id,
            session_id: file.about.session_id.clone(),
            state: RecordingState::Uploading,
            size_bytes: bytes.len() as u64,
            uploaded_bytes: 0,
            duration_ms: file.duration_ms,
            error: None,
            error_class: None,
            url: None,
            started_at_ms: file.started_at_ms,
            changed_at_ms: file.started_at_ms,
            attempt: 0,
            attempt_opened: false,
            has_copy: true,
            gone: false,
            expires_at_ms: None,
            asks_notice: false,
            audio_only: file.audio_only,
        };
        FILES.lock().insert(file.file_name, bytes);
        put(recording.clone());
        answer.give(self.0.recording(&recording));
    }

    fn sign(&self, file_name: &str, valid: Duration) -> Result<String, Error> {
        if file_name.starts_with("unsigned-") {
            return Err(Error::config("no key"));
        }
        Ok(format!("https://store.example/{file_name}?valid={}", valid.as_secs()))
    }
}

/// Seconds of media that [`fill_window`] publishes.
pub const WINDOW_SECS: i64 = 20;

/// Initialization segments of the window, of the same content.
const FIRST_INIT: &str = "init.mp4";
const RESTARTED_INIT: &str = "init-2.mp4";

/// Publishes a DVR window that begins at `start_ms`: H.264 with a keyframe each second, and AAC. `folder` is that of the
/// driver.
pub fn fill_window(opening: &Opening, start_ms: i64, folder: &Path) {
    fill_restarted_window(opening, start_ms, i64::MAX, folder);
}

/// The same window with an encoder that was restarted at a time: a discontinuity.
pub fn fill_restarted_window(opening: &Opening, start_ms: i64, restarted_ms: i64, folder: &Path) {
    let mut segmenter = segmenter(start_ms);
    let assets = opening.assets();
    while let Some(event) = segmenter.poll_event() {
        let asset = match event {
            Event::Init(init) => {
                let init = |name| {
                    Asset::new(name, "video/mp4", Audience::Hosted, AssetBody::Memory(init.bytes.clone()))
                };
                assets.publish(init(RESTARTED_INIT), folder).expect("room for the window");
                init(FIRST_INIT)
            }
            Event::Segment(segment) => {
                let is_restarted = segment.program_date_time_ms >= restarted_ms;
                let init = if is_restarted { RESTARTED_INIT } else { FIRST_INIT };
                let place = SegmentPosition {
                    number: segment.sequence,
                    offset_ns: segment.offset_ns,
                    start_ms: segment.program_date_time_ms,
                    init: init.to_owned(),
                };
                let name = format!("s{}.m4s", segment.sequence);
                let asset = Asset::new(name, "video/mp4", Audience::Hosted, AssetBody::Memory(segment.bytes));
                Asset { followed: Followed { segment: Some(place), ..Followed::default() }, ..asset }
            }
            _ => continue,
        };
        assets.publish(asset, folder).expect("room for the window");
    }
    let window_ms = WINDOW_SECS.unsigned_abs() * 1_000;
    let facts = Playback {
        entry: "index.m3u8".to_owned(),
        preview: None,
        first_ms: start_ms,
        window_ms,
        window_max_ms: 60_000,
        fresh_ms: 5_000,
        ended: false,
    };
    assets.set_playback(facts, Duration::ZERO);
}

fn segmenter(start_ms: i64) -> Segmenter {
    let mut segmenter = Segmenter::new(1);
    packets().iter().for_each(|packet| segmenter.push(packet, start_ms));
    segmenter.finish();
    segmenter
}

/// The encoder's packets: frames of 40 ms and audio of 1024 samples at 48 kHz.
fn packets() -> Vec<Packet> {
    let config = |index: usize| Packet::configuration(RECORDS[index].0, Bytes::from_static(RECORDS[index].1));
    let media = |codec, keyframe, at_us: i64, bytes: usize| {
        let at_ns = at_us * NANOS_PER_MILLI / 1_000;
        Packet::media(codec, keyframe, at_ns, at_ns, Bytes::from(vec![7; bytes]))
    };
    let frames =
        (0..WINDOW_SECS * 25).map(|number| media(Codec::H264, number % 25 == 0, number * 40_000, 900));
    let audio = (0..WINDOW_SECS * 46).map(|number| media(Codec::Aac, false, number * 21_333, 90));
    let mut all: Vec<Packet> = frames.chain(audio).collect();
    all.sort_by_key(|packet| packet.dts_ns);
    [config(0), config(2)].into_iter().chain(all).collect()
}
