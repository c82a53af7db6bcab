//! Recordings in the cloud archive, as their driver last told of them.

use serde_json::Value;

use satcast_core::ids::{DestinationId, SessionId, UnixMillis};

/// Longest name of a recording in characters. An S3 store takes keys of 1024 bytes; what is made here is ASCII.
pub const ARCHIVE_NAME_CHARS_MAX: usize = 1_024;

/// What became of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveState {
    /// Media is added to it.
    Recording,
    /// Its session has ended and its upload goes on.
    Uploading,
    /// The store confirmed it.
    Ready,
    /// Its upload was given up; it is kept here for a while.
    Failed,
}

impl ArchiveState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Recording, Self::Uploading, Self::Ready, Self::Failed];

    /// The name in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Recording => "recording",
            Self::Uploading => "uploading",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }

    /// The state with that name, or `None`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// What a driver tells of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveReport {
    /// Id of the driver that made it and keeps it.
    pub driver: String,
    /// The destination that records.
    pub destination_id: DestinationId,
    /// The session that is recorded.
    pub session_id: SessionId,
    /// The object's key below the prefix of its store, 1 to [`ARCHIVE_NAME_CHARS_MAX`] characters; unique in the account.
    pub file_name: String,
    /// What became of it.
    pub state: ArchiveState,
    /// Bytes recorded.
    pub size_bytes: u64,
    /// Of these, bytes the store has.
    pub uploaded_bytes: u64,
    /// Its length in milliseconds.
    pub duration_ms: u64,
    /// Why it failed, or why its upload waits for its next try; for one that is gone, why, when it is not that its days were over.
    pub error: Option<String>,
    /// Whose failure it is, in the words of the driver contract; kept of failed ones.
    pub error_class: Option<String>,
    /// Where it lies, `s3://bucket/key`; `None` before the store has it.
    pub url: Option<String>,
    /// Time of its first media.
    pub started_at: UnixMillis,
    /// When this was so; an older report than the last one changes nothing.
    pub changed_at: UnixMillis,
    /// Retries that the driver took up.
    pub attempt: u32,
    /// The store opened the upload of the last of them.
    pub attempt_opened: bool,
}

/// A recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveRecord {
    /// Its id.
    pub id: i64,
    /// What its driver last told.
    pub report: ArchiveReport,
    /// A retry was asked for and has not ended.
    pub recovering: bool,
}

/// What became of a driver's word on a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is written down, for the recording of that id.
    Taken(i64),
    /// It changes nothing: it is older than what is known, or the recording was deleted.
    Late,
    /// Its destination is of a type of which the driver may not tell.
    Foreign {
        /// The type.
        kind: String,
    },
    /// Another driver has a recording of that name, or had one.
    NameTaken {
        /// That driver.
        driver: String,
    },
}

/// As much of a recording as tells whether its driver knows more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownArchive {
    /// Its id.
    pub id: i64,
    /// Its name.
    pub file_name: String,
    /// What became of it.
    pub state: ArchiveState,
    /// When its driver last told.
    pub changed_at: UnixMillis,
}

/// A destination, for the driver that keeps recordings of it.
#[derive(Clone, PartialEq)]
pub struct RecordedDestination {
    /// Its id.
    pub id: DestinationId,
    /// Its type.
    pub kind: String,
    /// The driver's configuration in clear; `None` when it was deleted.
    pub config: Option<Value>,
}

impl std::fmt::Debug for RecordedDestination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `config` holds secrets.
        f.debug_struct("RecordedDestination").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_survives_its_name() {
        for state in ArchiveState::ALL {
            assert_eq!(ArchiveState::parse(state.as_str()), Some(state));
        }
        assert_eq!(ArchiveState::parse("lost"), None);
    }
}
