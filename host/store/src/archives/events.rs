//! The events of recordings, for webhooks.

use serde_json::{Value, json};

use super::ArchiveReport;
use super::state::ArchiveState;
use crate::engine::Tx;
use crate::error::Result;
use crate::webhooks::EventType;
use crate::webhooks::events::{EVENT_ERROR_CHARS_MAX, emit_of_session};
use satcast_core::ids::UnixMillis;

const MS_PER_SEC: f64 = 1_000.0;

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
