//! After a stop, encoders of the stream are refused for the time of the cooldown.

use std::time::Duration;

use super::codes;
use super::entry::PublishRefused;
use super::live::{Cooldown, Live, needs_cooldown};
use satcast_core::ids::StreamId;
use satcast_store::StreamRecord;

impl Live {
    /// An encoder that reconnects automatically after a stop must not start a new session: it is refused until it made no
    /// attempt for the time of the cooldown. Each refused attempt restarts the cooldown.
    pub(super) async fn refuse_during_cooldown(&self, stream: &StreamRecord) -> Result<(), PublishRefused> {
        let now = self.inner.clock.monotonic();
        let known = self.inner.cooldowns.lock().get(&stream.id).copied();
        let cooldown = match known {
            Some(cooldown) => Some(cooldown),
            None => self.cooldown_from_history(stream.id, now).await,
        };
        let Some(cooldown) = cooldown else { return Ok(()) };
        if now >= cooldown.until {
            // Kept, so that the database is not read again.
            self.inner.cooldowns.lock().insert(stream.id, cooldown);
            return Ok(());
        }
        Err(self.restart_cooldown(stream.id, cooldown, now))
    }

    /// The same check when an admitted encoder enters: the stream may have been stopped since the first check.
    pub(super) fn refuse_if_stopped(&self, stream: StreamId) -> Result<(), PublishRefused> {
        let now = self.inner.clock.monotonic();
        let known = self.inner.cooldowns.lock().get(&stream).copied();
        known
            .filter(|cooldown| now < cooldown.until)
            .map_or(Ok(()), |cooldown| Err(self.restart_cooldown(stream, cooldown, now)))
    }

    /// Restarts the cooldown and returns the refusal.
    fn restart_cooldown(&self, stream: StreamId, cooldown: Cooldown, now: Duration) -> PublishRefused {
        let wait = self.inner.settings.cooldown;
        self.inner.cooldowns.lock().insert(stream, Cooldown { until: now + wait, ..cooldown });
        PublishRefused::new(codes::DENIED, codes::cooldown_text(cooldown.reason, wait))
    }

    /// After a restart of the service: the cooldown from the end of the last session in the database.
    async fn cooldown_from_history(&self, stream: StreamId, now: Duration) -> Option<Cooldown> {
        let last = match self.inner.store.last_session(stream).await {
            Ok(last) => last?,
            Err(error) => {
                // The key was read from the same database a moment ago. A refusal would not help.
                tracing::error!(%stream, %error, "cannot read the last session; the cooldown is not enforced");
                return None;
            }
        };
        let (ended_at, reason) = (last.ended_at?, last.end_reason?);
        let elapsed_ms = self.inner.clock.now().0.saturating_sub(ended_at.0).max(0).unsigned_abs();
        let left = self.inner.settings.cooldown.saturating_sub(Duration::from_millis(elapsed_ms));
        needs_cooldown(reason).then_some(Cooldown { until: now + left, reason })
    }
}
