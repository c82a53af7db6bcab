//! The end of a session in the database, also when that is not available for a while.

use std::time::Duration;

use tokio::runtime::Handle;
use tracing::Instrument as _;

use satcast_core::clock::Clock;
use satcast_core::ids::{EndReason, SessionId, UnixMillis};
use satcast_store::{Store, StoreError};

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
pub(super) struct Ending {
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) session: SessionId,
    pub(super) ended_at: UnixMillis,
    pub(super) reason: EndReason,
}

impl Ending {
    /// Records the end. If the database is not available, retries go on in the background.
    pub(super) async fn record_soon(self, runtime: &Handle) {
        if !self.record(TRIES_MAX, RETRY_WAIT).await {
            runtime.spawn(self.record_later().in_current_span());
        }
    }

    /// False when no attempt succeeded.
    async fn record(&self, tries: u32, wait: Duration) -> bool {
        for attempt in 1..=tries {
            match self.store.end_session(&self.session, self.ended_at, self.reason).await {
                Ok(()) => return true,
                Err(error @ StoreError::OwnershipLost) => {
                    tracing::warn!(%error, "the end of the session is not recorded by this node");
                    return true;
                }
                Err(error) => {
                    tracing::error!(attempt, %error, "cannot record the end of the session; retrying");
                }
            }
            self.clock.sleep(wait).await;
        }
        false
    }

    async fn record_later(self) {
        if self.record(LATER_TRIES_MAX, LATER_WAIT).await {
            tracing::info!(reason = %self.reason, "end of session recorded after retries");
        } else {
            tracing::error!("cannot record the end of the session; the next start closes it as interrupted");
        }
    }
}
