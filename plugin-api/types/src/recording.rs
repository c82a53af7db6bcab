//! Recordings that outlive their sessions, and who an opening is for, in the words of both sides.

use serde::{Deserialize, Serialize};

use crate::{Class, Error};

/// Longest name of a recording in bytes: what object stores allow for a key.
pub const FILE_NAME_BYTES_MAX: usize = 1024;
/// Longest address of a recording in bytes.
pub const URL_BYTES_MAX: usize = 4096;
/// Most recordings one driver may know.
pub const RECORDINGS_MAX: usize = 100_000;
/// Longest recording in its JSON form, in bytes.
pub const RECORDING_BYTES_MAX: usize = 32 * 1024;
/// Time in which a driver says whether a store can be used, in seconds.
pub const PROBE_SECS: u64 = 5;
/// Longest text that the host seals for a driver, in bytes.
pub const SEAL_BYTES_MAX: usize = 64 * 1024;

/// One recording, as the driver's journal has it now.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Recording {
    /// Object key below the prefix: 1 to [`FILE_NAME_BYTES_MAX`] printable ASCII characters, unique over everything the driver ever
    /// made.
    pub file_name: String,
    /// Destination that recorded.
    pub destination_id: i64,
    /// Session that was recorded.
    pub session_id: String,
    /// Where it stands.
    pub state: RecordingState,
    /// Bytes recorded.
    pub size_bytes: u64,
    /// Of these, bytes that the store has.
    pub uploaded_bytes: u64,
    /// Media recorded, in milliseconds.
    pub duration_ms: u64,
    /// Why it failed, or, while it is recorded or uploaded, why its upload waits for its next try: one sentence without secrets. Set when
    /// it failed, and never when the store has it.
    pub error: Option<String>,
    /// Whose failure it is; set together with `error`.
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
    /// The driver has a copy here, without which no retry can begin. A driver that does not say has one.
    #[serde(default = "yes")]
    pub has_copy: bool,
    /// It is not in its store any more, as its days there were over or, with an `error` that says so, for another reason: the host
    /// shows it no longer. Such a recording stays listed for some time, as a report may be lost.
    #[serde(default)]
    pub gone: bool,
}

fn yes() -> bool {
    true
}

/// Where a recording stands.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum RecordingState {
    /// The session goes on.
    Recording,
    /// It has ended and is on its way to the store.
    Uploading,
    /// The store has it.
    Ready,
    /// Given up; a retry may be asked for.
    Failed,
}

impl Recording {
    /// Whether it keeps the rules of its fields.
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
                "recording {name} must have error and errorClass, both, when it failed, and none when the store has it"
            )));
        }
        let sizes = [self.size_bytes, self.uploaded_bytes, self.duration_ms];
        if sizes.iter().any(|size| i64::try_from(*size).is_err()) {
            return Err(Error::internal(format!("recording {name} has a size that no disk holds")));
        }
        if self.url.as_ref().is_some_and(|url| url.len() > URL_BYTES_MAX) {
            return Err(Error::internal(format!(
                "recording {name} has an address over {URL_BYTES_MAX} bytes"
            )));
        }
        Ok(())
    }
}

/// A recording's name breaks its rule.
fn bad_name() -> Error {
    Error::internal(format!(
        "a recording's name must be 1 to {FILE_NAME_BYTES_MAX} printable ASCII characters without empty or dotted parts"
    ))
}

/// True for the name of a recording: a relative path of plain parts.
fn is_file_name(name: &str) -> bool {
    (1..=FILE_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
        && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Who an opening of a destination is for.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct About {
    /// The destination; 0 when the host does not say.
    pub destination_id: i64,
    /// The session, as the API shows it; empty when the host does not say.
    pub session_id: String,
    /// The stream; 0 when the host does not say.
    pub stream_key_id: i64,
    /// The stream's label.
    pub label: String,
    /// Start of the session, in milliseconds since 1970; 0 when the host does not say.
    pub session_started_ms: i64,
    /// Whose the stream is, the same for all of an account's openings; 0 when the host does not say.
    pub account_id: i64,
    /// Marks of the streams that the media has come through, this one last. A driver whose server may be such a service says them in
    /// the `flashVer` of its RTMP `connect`, as `(compatible; Satcast; via MARK MARK)`, so that no stream is sent back to itself.
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
        }
    }

    #[test]
    fn the_json_form_has_the_agreed_names() {
        let json = serde_json::to_value(recording()).unwrap();
        let expected = serde_json::json!({
            "fileName": "talk/20261122T080000Z-a-1.mp4", "destinationId": 7, "sessionId": "s", "state": "failed",
            "sizeBytes": 3, "uploadedBytes": 2, "durationMs": 1, "error": "the store is down",
            "errorClass": "network", "url": null, "startedAtMs": 5, "changedAtMs": 6, "attempt": 1,
            "attemptOpened": true, "hasCopy": false, "gone": true
        });
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_value::<Recording>(json.clone()).unwrap(), recording());
        // A driver built before these were agreed on.
        let mut earlier = json;
        for name in ["hasCopy", "gone"] {
            earlier.as_object_mut().unwrap().remove(name).unwrap();
        }
        let earlier: Recording = serde_json::from_value(earlier).unwrap();
        assert_eq!(earlier, Recording { has_copy: true, gone: false, ..recording() });
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
    fn bad_name_text() {
        let text =
            "a recording's name must be 1 to 1024 printable ASCII characters without empty or dotted parts";
        assert_eq!(bad_name(), Error::internal(text));
    }
}
