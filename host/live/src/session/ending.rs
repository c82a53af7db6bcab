//! Writes the end of a session to the database, with retries.

use std::time::Duration;

use super::Run;
use satcast_core::clock::Clock;
use satcast_core::ids::{EndReason, SessionId, UnixMillis};
use satcast_store::Store;

/// Attempts to record the end before the session is removed.
const TRIES_MAX: u32 = 5;
/// Wait between these attempts.
const RETRY_WAIT: Duration = Duration::from_millis(200);
/// Attempts in the background, after the session was removed: more than a day. An end that is still not recorded, also when the
/// service ends before, is closed as interrupted at the next start.
const LATER_TRIES_MAX: u32 = 50_000;
/// Wait between attempts in the background.
const LATER_WAIT: Duration = Duration::from_secs(2);

/// An end to record.
#[derive(Clone)]
struct Ending {
    store: Store,
    clock: Clock,
    session: SessionId,
    ended_at: UnixMillis,
    reason: EndReason,
}

impl Run {
    /// Records the end of the session. If the database is not available, retries go on in the background.
    pub(super) async fn record_end(&self, ended_at: UnixMillis, reason: EndReason) {
        let (store, clock) = (self.live.store.clone(), self.live.clock.clone());
        let ending = Ending { store, clock, session: self.session.id.clone(), ended_at, reason };
        if !ending.record(TRIES_MAX, RETRY_WAIT).await {
            self.live.runtime.spawn(ending.record_later());
        }
    }
}

impl Ending {
    /// False when no attempt succeeded.
    async fn record(&self, tries: u32, wait: Duration) -> bool {
        for attempt in 1..=tries {
            match self.store.end_session(&self.session, self.ended_at, self.reason).await {
                Ok(()) => return true,
                Err(error) => {
                    tracing::error!(session = %self.session, attempt, %error, "cannot record the end of the session; retrying");
                }
            }
            self.clock.sleep(wait).await;
        }
        false
    }

    async fn record_later(self) {
        if self.record(LATER_TRIES_MAX, LATER_WAIT).await {
            tracing::info!(session = %self.session, reason = %self.reason, "end of session recorded after retries");
        } else {
            tracing::error!(session = %self.session, "cannot record the end of the session; the next start closes it as interrupted");
        }
    }
}
