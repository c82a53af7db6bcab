//! Deletes old and unwanted webhook data, a bounded part in each transaction, so that other writes run in between.

use crate::engine;
use crate::error::{Result, db};
use crate::store::{Store, again};
use satcast_core::ids::UnixMillis;

/// Events deleted in one transaction.
const PRUNED_MAX: i64 = 500;
/// Deliveries of deleted webhooks that are deleted in one transaction; each may have twenty attempts.
const PRUNED_DELIVERIES_MAX: i64 = 200;

const OLD_EVENTS: &str = "SELECT e.id FROM webhook_events e WHERE e.created_ms < $1 AND NOT EXISTS
    (SELECT 1 FROM webhook_deliveries d WHERE d.event_id = e.id AND d.state = 'pending')
    ORDER BY e.created_ms LIMIT $2";
const DELETE_ATTEMPTS: &str = "DELETE FROM webhook_attempts WHERE delivery_id IN
    (SELECT d.id FROM webhook_deliveries d WHERE d.event_id = $1)";
/// A delivery that was sent again meanwhile stays, and with it everything of the same time.
const DELETE_DELIVERIES: &str = "DELETE FROM webhook_deliveries WHERE event_id = $1 AND state <> 'pending'";
const DELETE_EVENT: &str = "DELETE FROM webhook_events WHERE id = $1";
const DELETED: &str = "SELECT id FROM webhooks WHERE deleted_ms IS NOT NULL ORDER BY id LIMIT 1";
const OF_DELETED: &str = "SELECT id FROM webhook_deliveries WHERE webhook_id = $1 ORDER BY id LIMIT $2";
const DELETE_ATTEMPTS_OF: &str = "DELETE FROM webhook_attempts WHERE delivery_id = $1";
const DELETE_DELIVERY: &str = "DELETE FROM webhook_deliveries WHERE id = $1";
const DELETE_WEBHOOK: &str = "DELETE FROM webhooks WHERE id = $1";

impl Store {
    /// Deletes events created before `before` with their log, at most a few hundred; `true` if there may be more.
    pub async fn prune_events(&self, before: UnixMillis) -> Result<bool> {
        again(|| self.try_prune_events(before)).await
    }

    /// Deletes a part of the log of a deleted webhook, and the webhook itself with the last part; `true` if there may
    /// be more.
    pub async fn prune_webhooks(&self) -> Result<bool> {
        again(|| self.try_prune_webhooks()).await
    }

    async fn try_prune_events(&self, before: UnixMillis) -> Result<bool> {
        let failed = db("delete old events");
        let mut tx = self.begin().await?;
        let old = engine::query_scalar(OLD_EVENTS).bind(before.0).bind(PRUNED_MAX);
        let old: Vec<i64> = old.fetch_all(&mut tx).await.map_err(&failed)?;
        for event in &old {
            for statement in [DELETE_ATTEMPTS, DELETE_DELIVERIES, DELETE_EVENT] {
                engine::query(statement).bind(event).execute(&mut tx).await.map_err(&failed)?;
            }
        }
        tx.commit().await?;
        Ok(old.len() as i64 == PRUNED_MAX)
    }

    async fn try_prune_webhooks(&self) -> Result<bool> {
        let failed = db("delete the log of a deleted webhook");
        let deleted = engine::query_scalar(DELETED).fetch_optional(&self.0.readers).await;
        let Some(webhook) = deleted.map_err(&failed)? else { return Ok(false) };
        let webhook: i64 = webhook;
        let mut tx = self.begin().await?;
        let log = engine::query_scalar(OF_DELETED).bind(webhook).bind(PRUNED_DELIVERIES_MAX);
        let log: Vec<i64> = log.fetch_all(&mut tx).await.map_err(&failed)?;
        for delivery in &log {
            for statement in [DELETE_ATTEMPTS_OF, DELETE_DELIVERY] {
                engine::query(statement).bind(delivery).execute(&mut tx).await.map_err(&failed)?;
            }
        }
        if (log.len() as i64) < PRUNED_DELIVERIES_MAX {
            engine::query(DELETE_WEBHOOK).bind(webhook).execute(&mut tx).await.map_err(&failed)?;
        }
        tx.commit().await?;
        Ok(true)
    }
}
