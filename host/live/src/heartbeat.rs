//! Periodic work for all sessions.

use std::time::Duration;

use super::live::Live;
use satcast_core::ids::{SessionId, UnixMillis};
use satcast_store::StoreError;

/// How often running sessions are marked as alive in the database. After a crash nothing is billed past the last mark.
pub const HEARTBEAT: Duration = Duration::from_secs(5);

impl Live {
    /// Marks all running sessions as alive in the database and removes expired published assets. Never returns.
    pub async fn keep_heartbeat(self) {
        let mut tick = tokio::time::interval(HEARTBEAT);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.sweep_openings();
            let running: Vec<SessionId> =
                self.all().iter().filter_map(|session| Some(session.snapshot()?.session_id)).collect();
            if running.is_empty() {
                continue;
            }
            let now: UnixMillis = self.inner.clock.now();
            let marked: Result<(), StoreError> = self.inner.store.heartbeat_sessions(&running, now).await;
            if let Err(error) = marked {
                tracing::error!(%error, "cannot mark sessions as alive");
            }
        }
    }

    /// The drop runs driver code and may free an hour of media, so it does not run on a runtime thread.
    fn sweep_openings(&self) {
        let gone = self.inner.openings.sweep(self.inner.clock.monotonic());
        if !gone.is_empty() {
            // Not awaited: a driver that hangs here must not delay the heartbeats.
            tokio::task::spawn_blocking(move || drop(gone));
        }
    }
}
