//! The deletion of a recording by a rule of its destination: its owner is told once, in the transaction of the report.

use serde_json::json;

use super::{ArchiveReport, describe};
use crate::engine::{self, Tx};
use crate::error::{Result, db};
use crate::store::Store;
use crate::webhooks::EventType;
use crate::webhooks::events::emit_of_session;
use satcast_core::ids::UnixMillis;

const SET: &str = "UPDATE archives SET expires_ms = $2, told_ms = $3 WHERE id = $1";
const TOLD: &str = "SELECT told_ms FROM archives WHERE id = $1";

/// The deletion as the row of a recording has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expiry {
    /// When it is deleted.
    pub(super) expires_ms: Option<i64>,
    /// The time that its owner was told.
    pub(super) told_ms: Option<i64>,
}

impl Expiry {
    /// Takes a report, and writes the event if the driver asks for the notice and the owner was not told before; true
    /// if it did. The recording is never deleted before the time that its owner was told.
    pub(super) async fn take(
        self,
        tx: &mut Tx,
        id: i64,
        report: &ArchiveReport,
        now: UnixMillis,
    ) -> Result<bool> {
        let told_ms = self.told_ms.or(report.notice.map(|at| at.0));
        let expires_ms = report.expires_at.map(|at| at.0.max(told_ms.unwrap_or(at.0)));
        let next = Self { expires_ms, told_ms };
        if next == self {
            return Ok(false);
        }
        let set = engine::query(SET).bind(id).bind(expires_ms).bind(told_ms).execute(&mut *tx).await;
        set.map_err(db("record the deletion of a recording"))?;
        if next.told_ms == self.told_ms {
            return Ok(false);
        }
        let mut data = json!({
            "fileName": report.file_name, "destinationId": report.destination_id.0, "expiresAt": told_ms,
        });
        describe(&mut data, report);
        emit_of_session(tx, &report.session_id, EventType::RecordingExpiring, data, (now, now)).await?;
        Ok(true)
    }
}

impl Store {
    /// The time of deletion that the owner of a recording was told; `None` until then.
    pub async fn told_expiry(&self, archive: i64) -> Result<Option<UnixMillis>> {
        let told = engine::query_scalar(TOLD).bind(archive).fetch_optional(&self.0.readers).await;
        let told: Option<Option<i64>> = told.map_err(db("read the deletion of a recording"))?;
        Ok(told.flatten().map(UnixMillis))
    }
}
