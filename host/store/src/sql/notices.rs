//! Events of sessions that run, each in a transaction of its own.

use super::engine;
use super::events::session_notice;
use super::lock::Lock;
use super::{Store, commit, db};
use crate::{Notice, Result};

/// Whether anybody wants an event of a session; of which streams is asked later.
const WANTED: &str = "SELECT w.id FROM sessions e JOIN streams s ON s.id = e.stream_id
    JOIN webhooks w ON w.account_id = s.account_id
    WHERE e.id = $1 AND w.enabled = 1 AND ',' || w.events || ',' LIKE '%,' || $2 || ',%' LIMIT 1";

impl Store {
    /// Writes the event and its deliveries, if any webhook wants it; a session that is not known changes nothing.
    pub async fn note(&self, notice: &Notice) -> Result<()> {
        let wanted = engine::query(WANTED).bind(notice.session.as_str()).bind(notice.what.event().as_str());
        let wanted = wanted.fetch_optional(&self.0.readers).await.map_err(db("look for webhooks"))?;
        // Mostly nobody does, and that needs no place among the writers.
        if wanted.is_none() {
            return Ok(());
        }
        let mut tx = self.begin_holding(Lock::Session(&notice.session)).await?;
        session_notice(&mut tx, notice).await?;
        commit(tx).await?;
        self.wake_outbox();
        Ok(())
    }
}
