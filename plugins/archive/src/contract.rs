//! Stand-in for the contract's recordings.
use satcast_plugin_api::{Class, Error};
use serde::{Deserialize, Serialize};

/// State of a recording.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum RecordingState {
    /// x
    Recording,
    /// x
    Uploading,
    /// x
    Ready,
    /// x
    Failed,
}

/// A recording.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct Recording {
    pub file_name: String,
    pub destination_id: i64,
    pub session_id: String,
    pub state: RecordingState,
    pub size_bytes: u64,
    pub uploaded_bytes: u64,
    pub duration_ms: u64,
    pub error: Option<String>,
    pub error_class: Option<String>,
    pub url: Option<String>,
    pub started_at_ms: i64,
    pub changed_at_ms: i64,
    pub attempt: u32,
    pub attempt_opened: bool,
}

/// One-shot answer.
pub struct Answer(pub Box<dyn FnOnce(Result<(), Error>) + Send>);
impl Answer {
    /// Gives it.
    pub fn give(self, outcome: Result<(), Error>) {
        (self.0)(outcome);
    }
}

/// Who an opening is for.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct About {
    pub destination_id: i64,
    pub session_id: String,
    pub stream_key_id: i64,
    pub label: String,
    pub session_started_ms: i64,
}

pub(crate) fn class_name(class: Class) -> &'static str {
    match class {
        Class::Config => "config",
        Class::Auth => "auth",
        Class::Network => "network",
        Class::Remote => "remote",
        Class::Internal => "internal",
        Class::Panic => "panic",
    }
}
