//! The deletion of a recording by a rule of its destination, as the row of the recording has it.

use crate::engine::{self, Tx};
use crate::error::{Result, db};
use crate::store::Store;
use satcast_core::ids::UnixMillis;

const SET: &str = "UPDATE archives SET expires_ms = $2, told_ms = $3 WHERE id = $1";
/// A deletion that is moved by more than this after the time told, two days, is another one. Drivers have the same rule.
const MOVED_MS: i64 = 48 * 3600 * 1000;
const TOLD: &str = "SELECT told_ms FROM archives WHERE id = $1";

/// The deletion of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expiry {
    /// When it is deleted.
    pub(super) expires_ms: Option<i64>,
    /// The time that its owner was told.
    pub(super) told_ms: Option<i64>,
}

impl Expiry {
    /// Takes the times of a report: of the deletion, and the one to tell the owner if the driver asks for that. Returns
    /// the time to tell now, if the owner was not told of this deletion before: one that was called off, or moved by more
    /// than [`MOVED_MS`], is told again. The recording is never deleted before the time told.
    pub(super) async fn take(
        self,
        tx: &mut Tx,
        id: i64,
        expires_at: Option<UnixMillis>,
        notice: Option<UnixMillis>,
    ) -> Result<Option<UnixMillis>> {
        let is_it = |told: &i64| expires_at.is_some_and(|at| at.0 <= told.saturating_add(MOVED_MS));
        let known = self.told_ms.filter(is_it);
        let told_ms = known.or(notice.map(|at| at.0));
        let expires_ms = expires_at.map(|at| at.0.max(told_ms.unwrap_or(at.0)));
        if (Self { expires_ms, told_ms }) == self {
            return Ok(None);
        }
        let set = engine::query(SET).bind(id).bind(expires_ms).bind(told_ms).execute(&mut *tx).await;
        set.map_err(db("record the deletion of a recording"))?;
        Ok(told_ms.filter(|_| known.is_none()).map(UnixMillis))
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
