//! What a driver reports about a recording, and the events for webhooks that follow from it.

use serde_json::{Value, json};

use super::state::ArchiveState;
use crate::engine::Tx;
use crate::error::Result;
use crate::webhooks::EventType;
use crate::webhooks::events::{EVENT_ERROR_CHARS_MAX, emit_of_session};
use satcast_core::ids::{DestinationId, SessionId, UnixMillis};

const MS_PER_SEC: f64 = 1_000.0;

/// A driver's report about a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveReport {
    /// Id of the driver that made and keeps the recording.
    pub driver: String,
    /// The destination that records.
    pub destination_id: DestinationId,
    /// The recorded session.
    pub session_id: SessionId,
    /// The object's key below the prefix of its store, 1 to [`ARCHIVE_NAME_CHARS_MAX`](super::ARCHIVE_NAME_CHARS_MAX) characters; unique in the
    /// account.
    pub file_name: String,
    pub state: ArchiveState,
    /// Bytes recorded.
    pub size_bytes: u64,
    /// Bytes that the store has.
    pub uploaded_bytes: u64,
    /// Length in milliseconds.
    pub duration_ms: u64,
    /// Why the recording failed, or why its upload is waiting for a retry. For a removed recording: the reason, unless
    /// its retention time was over.
    pub error: Option<String>,
    /// Class of the error, in the terms of the driver contract; kept for failed recordings.
    pub error_class: Option<String>,
    /// `s3://bucket/key`; `None` until the store has it.
    pub url: Option<String>,
    /// Time of the first media.
    pub started_at: UnixMillis,
    /// Time of this state. A report that is older than the last one changes nothing.
    pub changed_at: UnixMillis,
    /// Retries that the driver has started.
    pub attempt: u32,
    /// The store opened the upload of the newest retry.
    pub attempt_opened: bool,
    /// When it is deleted at its store by a rule of its destination; `None` while it stays.
    pub expires_at: Option<UnixMillis>,
    /// The driver waits until the owner is told of the deletion: the time to tell. `None` in records.
    pub notice: Option<UnixMillis>,
    /// It has no video.
    pub audio_only: bool,
}

/// Emits the event of a recording's new state; only end states have one.
pub(super) async fn emit_state(
    tx: &mut Tx,
    report: &ArchiveReport,
    at: UnixMillis,
    now: UnixMillis,
) -> Result<()> {
    let event = match report.state {
        ArchiveState::Ready => EventType::RecordingReady,
        ArchiveState::Failed => EventType::RecordingFailed,
        ArchiveState::Recording | ArchiveState::Uploading => return Ok(()),
    };
    let mut data = json!({"fileName": report.file_name, "destinationId": report.destination_id.0});
    if let Some(error) = &report.error {
        data["error"] = json!(error.chars().take(EVENT_ERROR_CHARS_MAX).collect::<String>());
    } else {
        describe(&mut data, report);
    }
    emit_of_session(tx, &report.session_id, event, data, (at, now)).await
}

/// Emits the event of a coming deletion at `at`.
pub(super) async fn emit_expiring(
    tx: &mut Tx,
    report: &ArchiveReport,
    at: UnixMillis,
    now: UnixMillis,
) -> Result<()> {
    let (name, destination) = (&report.file_name, report.destination_id.0);
    let mut data = json!({"fileName": name, "destinationId": destination, "expiresAt": at.0});
    describe(&mut data, report);
    emit_of_session(tx, &report.session_id, EventType::RecordingExpiring, data, (now, now)).await
}

/// Adds the facts of an uploaded recording to the data of an event.
fn describe(data: &mut Value, report: &ArchiveReport) {
    data["sizeBytes"] = json!(report.size_bytes);
    // Milliseconds of a recording are far below the largest integer that a double holds exactly.
    data["durationSeconds"] = json!(report.duration_ms as f64 / MS_PER_SEC);
    data["url"] = json!(report.url);
}
