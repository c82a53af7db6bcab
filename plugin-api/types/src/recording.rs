//! Recordings that outlive their sessions, and facts about an opening, as both sides use them.

use serde::{Deserialize, Serialize};

use crate::{Class, Error};

/// Longest name of a recording in bytes: the limit of object stores for a key.
pub const FILE_NAME_BYTES_MAX: usize = 1024;
/// Longest address of a recording in bytes.
pub const URL_BYTES_MAX: usize = 4096;
/// Most recordings one driver may know.
pub const RECORDINGS_MAX: usize = 100_000;
/// Longest recording in its JSON form, in bytes.
pub const RECORDING_BYTES_MAX: usize = 32 * 1024;
/// Longest time for a driver's test of a store, in seconds.
pub const PROBE_SECS: u64 = 5;
/// Least time between the notice of a deletion to the owner and the deletion, in milliseconds: a day.
pub const EXPIRY_NOTICE_MS: i64 = 24 * 3600 * 1000;
/// Longest time in which a driver takes a finished file over, in seconds: it may read the whole file.
pub const KEEP_SECS: u64 = 60;
/// Longest text that the host seals for a driver, in bytes.
pub const SEAL_BYTES_MAX: usize = 64 * 1024;
/// Longest range of a recording that is read in one request, in bytes.
pub const READ_RANGE_BYTES_MAX: u32 = 1024 * 1024;
/// Longest time for a driver's answer to the request for a range or for a page of the index, in seconds.
pub const READ_SECS: u64 = 15;
/// Most fragments in one page of an index.
pub const INDEX_FRAGMENTS_MAX: u32 = 2048;
/// Longest page of an index in its JSON form, in bytes.
pub const INDEX_BYTES_MAX: usize = 256 * 1024;

/// The current state of a recording in the driver's journal.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Recording {
    /// Object key below the prefix: 1 to [`FILE_NAME_BYTES_MAX`] printable ASCII characters, unique over all recordings the driver ever
    /// made.
    pub file_name: String,
    /// Destination that recorded.
    pub destination_id: i64,
    /// Session that was recorded.
    pub session_id: String,
    /// State of the recording.
    pub state: RecordingState,
    /// Bytes recorded.
    pub size_bytes: u64,
    /// Bytes of these that are in the store.
    pub uploaded_bytes: u64,
    /// Media recorded, in milliseconds.
    pub duration_ms: u64,
    /// The reason of its failure or, while it is recorded or uploaded, of the wait for the next upload attempt: one sentence without
    /// secrets. Always set after a failure, never when the store has the recording.
    pub error: Option<String>,
    /// Class of `error`; set together with it.
    pub error_class: Option<Class>,
    /// `s3://bucket/key` once the store has it.
    pub url: Option<String>,
    /// First packet, in milliseconds since 1970.
    pub started_at_ms: i64,
    /// Grows with every change of this recording, in milliseconds since 1970.
    pub changed_at_ms: i64,
    /// Retries asked for so far; 0 = the first upload.
    pub attempt: u32,
    /// The store opened the upload of that attempt.
    pub attempt_opened: bool,
    /// The driver has a local copy, which a retry needs. True when a driver leaves it out.
    #[serde(default = "yes")]
    pub has_copy: bool,
    /// The recording is no longer in its store, because its retention ended or for the reason in `error`: the host hides it. The
    /// driver keeps listing it for some time, since a report may be lost.
    #[serde(default)]
    pub gone: bool,
    /// When the driver will delete the recording in its store by a rule of its destination, in milliseconds since 1970; `None`: it
    /// stays.
    #[serde(default)]
    pub expires_at_ms: Option<i64>,
    /// The host must tell the owner of that deletion: until it confirms the notice, the driver does not delete the recording.
    #[serde(default)]
    pub asks_notice: bool,
    /// It has no video, so it has no poster. Fixed from the first report on.
    #[serde(default)]
    pub audio_only: bool,
}

fn yes() -> bool {
    true
}

/// State of a recording.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum RecordingState {
    /// The session is running.
    Recording,
    /// The session has ended; the upload is not complete.
    Uploading,
    /// The store has it.
    Ready,
    /// Given up; a retry may be asked for.
    Failed,
}

/// A page of the index of a recording, a fragmented MP4: its initialization segment, then its fragments without gaps between them.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RecordingIndex {
    /// Bytes of the initialization segment, with which the recording begins.
    pub init_bytes: u64,
    /// Bytes that the known fragments end at; these can be read.
    pub bytes: u64,
    /// Number of known fragments.
    pub count: u64,
    /// No fragment follows the known ones.
    pub is_complete: bool,
    /// Number of the first fragment of this page, from 0.
    pub first: u64,
    /// Known fragments from there on, at most [`INDEX_FRAGMENTS_MAX`].
    pub fragments: Vec<Fragment>,
}

/// A fragment of a recording. Its JSON form is `[offset, bytes, startUs, durationUs, isKeyframe]`.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(from = "(u64, u32, u64, u32, bool)", into = "(u64, u32, u64, u32, bool)")]
pub struct Fragment {
    /// First byte in the recording.
    pub offset: u64,
    /// Length in bytes, above 0.
    pub bytes: u32,
    /// Start in microseconds from the start of the recording: the end of the fragment before.
    pub start_us: u64,
    /// Duration in microseconds.
    pub duration_us: u32,
    /// It begins with a keyframe; true without video.
    pub is_keyframe: bool,
}

impl From<(u64, u32, u64, u32, bool)> for Fragment {
    fn from((offset, bytes, start_us, duration_us, is_keyframe): (u64, u32, u64, u32, bool)) -> Self {
        Self { offset, bytes, start_us, duration_us, is_keyframe }
    }
}

impl From<Fragment> for (u64, u32, u64, u32, bool) {
    fn from(it: Fragment) -> Self {
        (it.offset, it.bytes, it.start_us, it.duration_us, it.is_keyframe)
    }
}

impl Fragment {
    /// End in the recording: the first byte after it.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.bytes))
    }

    /// End in microseconds from the start of the recording.
    pub fn end_us(&self) -> u64 {
        self.start_us.saturating_add(u64::from(self.duration_us))
    }
}

impl RecordingIndex {
    /// Checks the rules of the fields: each fragment begins where the one before ends, in bytes and in time.
    ///
    /// # Errors
    /// `Internal`, naming the rule.
    pub fn check(&self) -> Result<(), Error> {
        let broken = |why: &str| Err(Error::internal(format!("the index of a recording {why}")));
        let listed = self.fragments.len() as u64;
        if listed > u64::from(INDEX_FRAGMENTS_MAX)
            || self.first.saturating_add(listed) > self.count.max(self.first)
        {
            return broken("has more fragments than it says");
        }
        let (Some(first), Some(last)) = (self.fragments.first(), self.fragments.last()) else {
            return Ok(());
        };
        let follows =
            |pair: &[Fragment]| pair[1].offset == pair[0].end() && pair[1].start_us == pair[0].end_us();
        let begins = first.offset >= self.init_bytes
            && (self.first > 0 || (first.offset, first.start_us) == (self.init_bytes, 0));
        let is_last = self.first.saturating_add(listed) == self.count;
        let ends = if is_last { last.end() == self.bytes } else { last.end() < self.bytes };
        if !begins
            || !ends
            || !self.fragments.windows(2).all(follows)
            || self.fragments.iter().any(|it| it.bytes == 0)
        {
            return broken("has a fragment that does not follow the one before");
        }
        Ok(())
    }
}

impl Recording {
    /// Checks the rules of the fields.
    ///
    /// # Errors
    /// `Internal`, naming the rule.
    pub fn check(&self) -> Result<(), Error> {
        let name = &self.file_name;
        if !is_file_name(name) {
            return Err(bad_name());
        }
        let fits = match self.state {
            RecordingState::Failed => self.error.is_some(),
            RecordingState::Ready => self.error.is_none() || self.gone,
            RecordingState::Recording | RecordingState::Uploading => true,
        };
        if !fits || self.error.is_some() != self.error_class.is_some() {
            return Err(Error::internal(format!(
                "recording {name} must have both error and errorClass when it failed, and neither when the store has it"
            )));
        }
        let sizes = [self.size_bytes, self.uploaded_bytes, self.duration_ms];
        if sizes.iter().any(|size| i64::try_from(*size).is_err()) {
            return Err(Error::internal(format!("recording {name} has an impossible size")));
        }
        if self.url.as_ref().is_some_and(|url| url.len() > URL_BYTES_MAX) {
            return Err(Error::internal(format!(
                "recording {name} has an address over {URL_BYTES_MAX} bytes"
            )));
        }
        Ok(())
    }
}

/// A finished file that a driver is asked to keep as a recording.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct FinishedFile {
    /// Its name for ever, by the rules of [`Recording::file_name`]; the last part is unique by itself.
    pub file_name: String,
    /// Where it is: a relative path below the driver's data folder. The driver takes it away from there.
    pub path: String,
    /// Destination, session, stream and account.
    pub about: About,
    /// First frame, in milliseconds since 1970.
    pub started_at_ms: i64,
    /// Media in it, in milliseconds.
    pub duration_ms: u64,
    /// It has no video.
    pub audio_only: bool,
}

impl FinishedFile {
    /// Checks the rules of the fields.
    ///
    /// # Errors
    /// `Internal`, naming the rule.
    pub fn check(&self) -> Result<(), Error> {
        if !is_file_name(&self.file_name) {
            return Err(bad_name());
        }
        // The rules of a name keep a path below its folder.
        if !is_file_name(&self.path) {
            return Err(Error::internal(
                "the path of a finished file must be a relative path of plain parts",
            ));
        }
        Ok(())
    }
}

fn bad_name() -> Error {
    Error::internal(format!(
        "a recording's name must be 1 to {FILE_NAME_BYTES_MAX} printable ASCII characters without empty or dotted parts"
    ))
}

/// True for a valid name of a recording: a relative path of plain parts.
fn is_file_name(name: &str) -> bool {
    (1..=FILE_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
        && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Facts about an opening of a destination.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct About {
    /// The destination; 0 when unknown.
    pub destination_id: i64,
    /// The session, as the API shows it; empty when unknown.
    pub session_id: String,
    /// The stream; 0 when unknown.
    pub stream_key_id: i64,
    /// The stream's label.
    pub label: String,
    /// Start of the session, in milliseconds since 1970; 0 when unknown.
    pub session_started_ms: i64,
    /// The account of the stream; 0 when unknown.
    pub account_id: i64,
    /// Marks of the streams that the media has passed, this one last. A driver whose server may be such a service sends them in the
    /// `flashVer` of its RTMP `connect`, as `(compatible; Satcast; via MARK MARK)`, so that no stream is sent back to itself.
    pub via: Vec<String>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A failed step is a failed test.
mod tests {
    use super::*;

    fn recording() -> Recording {
        Recording {
            file_name: "talk/20261122T080000Z-a-1.mp4".into(),
            destination_id: 7,
            session_id: "s".into(),
            state: RecordingState::Failed,
            size_bytes: 3,
            uploaded_bytes: 2,
            duration_ms: 1,
            error: Some("the store is down".into()),
            error_class: Some(Class::Network),
            url: None,
            started_at_ms: 5,
            changed_at_ms: 6,
            attempt: 1,
            attempt_opened: true,
            has_copy: false,
            gone: true,
            expires_at_ms: Some(9),
            asks_notice: true,
            audio_only: true,
        }
    }

    #[test]
    fn the_json_form_has_the_agreed_names() {
        let json = serde_json::to_value(recording()).unwrap();
        let expected = serde_json::json!({
            "fileName": "talk/20261122T080000Z-a-1.mp4", "destinationId": 7, "sessionId": "s", "state": "failed",
            "sizeBytes": 3, "uploadedBytes": 2, "durationMs": 1, "error": "the store is down",
            "errorClass": "network", "url": null, "startedAtMs": 5, "changedAtMs": 6, "attempt": 1,
            "attemptOpened": true, "hasCopy": false, "gone": true, "expiresAtMs": 9, "asksNotice": true, "audioOnly": true
        });
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_value::<Recording>(json.clone()).unwrap(), recording());
        // A driver that is older than these fields.
        let mut earlier = json;
        for name in ["hasCopy", "gone", "expiresAtMs", "asksNotice", "audioOnly"] {
            earlier.as_object_mut().unwrap().remove(name).unwrap();
        }
        let earlier: Recording = serde_json::from_value(earlier).unwrap();
        let expected = Recording {
            has_copy: true,
            gone: false,
            expires_at_ms: None,
            asks_notice: false,
            audio_only: false,
            ..recording()
        };
        assert_eq!(earlier, expected);
        let about = serde_json::from_str::<About>(r#"{"sessionStartedMs":4,"newer":1}"#).unwrap();
        assert_eq!(about, About { session_started_ms: 4, ..About::default() });
    }

    #[test]
    fn rules_of_the_fields() {
        recording().check().unwrap();
        let longest = "n".repeat(FILE_NAME_BYTES_MAX);
        Recording { file_name: longest.clone(), ..recording() }.check().unwrap();
        for bad in ["", "/a", "a/", "a//b", "../a", "a/./b", "a\nb", "ä", &format!("{longest}n")] {
            assert!(Recording { file_name: bad.into(), ..recording() }.check().is_err(), "{bad:?}");
        }
        for wrong in [
            Recording { state: RecordingState::Ready, gone: false, ..recording() },
            Recording { error: None, ..recording() },
            Recording { state: RecordingState::Uploading, error: None, ..recording() },
            Recording { error_class: None, ..recording() },
            Recording { size_bytes: u64::MAX, ..recording() },
            Recording { url: Some("u".repeat(URL_BYTES_MAX + 1)), ..recording() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        for state in [RecordingState::Recording, RecordingState::Uploading, RecordingState::Ready] {
            Recording { state, ..recording() }.check().unwrap();
            Recording { state, error: None, error_class: None, ..recording() }.check().unwrap();
        }
    }

    #[test]
    fn an_index_without_gaps_crosses_and_any_other_is_refused() {
        let at = |offset, start_us| Fragment {
            offset,
            bytes: 10,
            start_us,
            duration_us: 5,
            is_keyframe: offset == 7,
        };
        let index = RecordingIndex {
            init_bytes: 7,
            bytes: 27,
            count: 2,
            is_complete: true,
            first: 0,
            fragments: vec![at(7, 0), at(17, 5)],
        };
        let json = serde_json::to_value(&index).unwrap();
        let expected = serde_json::json!({
            "initBytes": 7, "bytes": 27, "count": 2, "isComplete": true, "first": 0,
            "fragments": [[7, 10, 0, 5, true], [17, 10, 5, 5, false]]
        });
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_value::<RecordingIndex>(json).unwrap(), index);
        index.check().unwrap();
        RecordingIndex { first: 1, fragments: vec![at(17, 5)], ..index.clone() }.check().unwrap();
        RecordingIndex { first: 9, fragments: Vec::new(), ..index.clone() }.check().unwrap();
        RecordingIndex { count: 3, bytes: 40, ..index.clone() }.check().unwrap();
        for wrong in [
            RecordingIndex { count: 1, ..index.clone() },
            RecordingIndex { bytes: 28, ..index.clone() },
            RecordingIndex { count: 3, ..index.clone() },
            RecordingIndex { init_bytes: 6, ..index.clone() },
            RecordingIndex { fragments: vec![at(7, 0), at(18, 5)], ..index.clone() },
            RecordingIndex { fragments: vec![at(7, 0), at(17, 6)], ..index.clone() },
            RecordingIndex { fragments: vec![at(7, 1), at(17, 6)], ..index.clone() },
            RecordingIndex { first: u64::MAX, ..index.clone() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        let longest = Fragment {
            offset: u64::MAX,
            bytes: u32::MAX,
            start_us: u64::MAX,
            duration_us: u32::MAX,
            is_keyframe: false,
        };
        let fragments = vec![longest; INDEX_FRAGMENTS_MAX as usize];
        let page = RecordingIndex { fragments, ..RecordingIndex::default() };
        assert!(serde_json::to_vec(&page).unwrap().len() <= INDEX_BYTES_MAX);
    }

    #[test]
    fn bad_name_text() {
        let text =
            "a recording's name must be 1 to 1024 printable ASCII characters without empty or dotted parts";
        assert_eq!(bad_name(), Error::internal(text));
    }
}
