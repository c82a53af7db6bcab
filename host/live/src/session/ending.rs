//! The end of a session, written to the database: at once, or for as long as that takes.

use std::time::Duration;

use super::Run;
use satcast_core::clock::Clock;
use satcast_core::ids::{EndReason, SessionId, UnixMillis};
use satcast_store::Store;

/// Tries to record an end while the session still stands.
const TRIES_MAX: u32 = 5;
/// Wait between them.
const RETRY_WAIT: Duration = Duration::from_millis(200);
/// Tries beside everything else, after the session is gone: more than a day of them. What is not recorded then, or when the
/// service ends, is found at the next start and closed as interrupted.
const LATER_TRIES_MAX: u32 = 50_000;
/// Wait between those.
const LATER_WAIT: Duration = Duration::from_secs(2);

/// An end that is to be recorded.
#[derive(Clone)]
struct Ending {
    store: Store,
    clock: Clock,
    session: SessionId,
    ended_at: UnixMillis,
    reason: EndReason,
}

impl Run {
    /// Records the end of the session. A database that is away does not hold up the stream: the rest is tried in the background.
    pub(super) async fn record_end(&self, ended_at: UnixMillis, reason: EndReason) {
        let (store, clock) = (self.live.store.clone(), self.live.clock.clone());
        let ending = Ending { store, clock, session: self.session.id.clone(), ended_at, reason };
        if !ending.record(TRIES_MAX, RETRY_WAIT).await {
            self.live.runtime.spawn(ending.record_later());
        }
    }
}

impl Ending {
    /// False when no try succeeded.
    async fn record(&self, tries: u32, wait: Duration) -> bool {
        for attempt in 1..=tries {
            match self.store.end_session(&self.session, self.ended_at, self.reason).await {
                Ok(()) => return true,
                Err(error) => {
                    tracing::error!(session = %self.session, attempt, %error, "end of session cannot be recorded yet");
                }
            }
            self.clock.sleep(wait).await;
        }
        false
    }

    async fn record_later(self) {
        if self.record(LATER_TRIES_MAX, LATER_WAIT).await {
            tracing::info!(session = %self.session, reason = %self.reason, "end of session recorded after all");
        } else {
            tracing::error!(session = %self.session, "end of session is given up; the next start closes it as interrupted");
        }
    }
}
