//! After a stop an encoder is refused until it has been quiet for a while.

use std::time::Duration;

use super::codes;
use super::entry::PublishRefused;
use super::live::{Live, Quiet, needs_quiet};
use satcast_core::ids::StreamId;
use satcast_store::StreamRecord;

impl Live {
    /// After a stop an encoder that reconnects by itself must not begin a fresh session: it is refused until it has been
    /// quiet for a while. Every refused try begins the wait anew.
    pub(super) async fn refuse_unless_quiet(&self, stream: &StreamRecord) -> Result<(), PublishRefused> {
        let now = self.inner.clock.monotonic();
        let known = self.inner.quiet.lock().get(&stream.id).copied();
        let quiet = match known {
            Some(quiet) => Some(quiet),
            None => self.quiet_from_history(stream.id, now).await,
        };
        let Some(quiet) = quiet else { return Ok(()) };
        if now >= quiet.until {
            // Kept, so that the history is not asked again.
            self.inner.quiet.lock().insert(stream.id, quiet);
            return Ok(());
        }
        Err(self.begin_anew(stream.id, quiet, now))
    }

    /// The same for an encoder that was let through, when it enters: its stream may have been stopped since.
    pub(super) fn refuse_if_stopped(&self, stream: StreamId) -> Result<(), PublishRefused> {
        let now = self.inner.clock.monotonic();
        let known = self.inner.quiet.lock().get(&stream).copied();
        known
            .filter(|quiet| now < quiet.until)
            .map_or(Ok(()), |quiet| Err(self.begin_anew(stream, quiet, now)))
    }

    /// The refusal of a try that came too early.
    fn begin_anew(&self, stream: StreamId, quiet: Quiet, now: Duration) -> PublishRefused {
        let wait = self.inner.settings.refuse_quiet;
        self.inner.quiet.lock().insert(stream, Quiet { until: now + wait, ..quiet });
        PublishRefused::new(codes::DENIED, codes::quiet_text(quiet.reason, wait))
    }

    /// The same after a restart of the service, from the last session's end.
    async fn quiet_from_history(&self, stream: StreamId, now: Duration) -> Option<Quiet> {
        let last = match self.inner.store.last_session(stream).await {
            Ok(last) => last?,
            Err(error) => {
                // The key was read from the same database a moment ago; refusing here would only add to the trouble.
                tracing::error!(%stream, %error, "last session cannot be read");
                return None;
            }
        };
        let (ended_at, reason) = (last.ended_at?, last.end_reason?);
        let passed_ms = self.inner.clock.now().0.saturating_sub(ended_at.0).max(0).unsigned_abs();
        let left = self.inner.settings.refuse_quiet.saturating_sub(Duration::from_millis(passed_ms));
        needs_quiet(reason).then_some(Quiet { until: now + left, reason })
    }
}
