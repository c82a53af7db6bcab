//! The beginning of a session: a new one, or one that its node has given up and that goes on here. And the other side:
//! giving a session up.

use std::time::Duration;

use serde_json::json;
use tokio::sync::oneshot;

use super::run::{End, RETURNED, Run, SETTLE_EARLIER_WAIT};
use crate::codes::{self, Closed};
use crate::shown::SessionState;
use satcast_core::ids::{EndReason, UnixMillis};
use satcast_store::{Handover, NewSession, Returning, StoreError, Terms};
use satcast_usage::Beginning;

/// A session that is recorded.
struct Begun {
    started_at: UnixMillis,
    terms: Terms,
}

impl Run {
    /// Records the session and starts its destinations. Returns an end when that fails.
    pub(super) async fn begin(&mut self) -> Option<End> {
        let returning = self.returning.take();
        let begun = match &returning {
            Some(returning) => self.take_over(returning).await,
            None => self.begin_new().await,
        };
        let begun = match begun {
            Ok(begun) => begun,
            Err(closed) => {
                self.session.close_encoders(&closed);
                return Some(End { reason: EndReason::Error, done: None });
            }
        };
        {
            let mut shared = self.session.shared.lock();
            shared.started_at = Some(begun.started_at);
            shared.state = Some(SessionState::Live);
        }
        let label = &self.session.stream.label;
        if returning.is_some() {
            self.publish_event(RETURNED, self.live.clock.now(), json!({}));
            tracing::info!(%label, "encoder reconnected, and its session goes on at this node");
        } else {
            self.publish_event("stream.started", begun.started_at, json!({}));
            tracing::info!(%label, "session started");
        }
        if let Some(reason) = self.look_again().await {
            return Some(End { reason, done: None });
        }
        if returning.is_some() {
            // The node before has sent the warning that was due.
            let _ = self.timer.due(self.limits.max_duration_minutes, self.lasted());
        }
        self.meter(begun.terms, returning).await;
        self.reload().await;
        None
    }

    async fn begin_new(&mut self) -> Result<Begun, Closed> {
        let settled = self.live.gate.settle_earlier(self.session.stream.account_id);
        if tokio::time::timeout(SETTLE_EARLIER_WAIT, settled).await.is_err() {
            tracing::warn!("earlier usage is not settled yet; the session starts without waiting");
        }
        let started_at = self.live.clock.now();
        self.began = self.live.clock.monotonic();
        let terms = self.live.gate.terms();
        let (id, stream_id) = (self.session.id.clone(), self.session.stream.id);
        let new = NewSession { id, stream_id, started_at, terms };
        match self.live.store.begin_session(new).await {
            Ok(()) => Ok(Begun { started_at, terms }),
            Err(StoreError::LiveElsewhere) => {
                tracing::info!("another node has begun a session of the stream; the encoder is refused");
                Err(Closed { code: codes::BAD_NAME, reason: codes::BUSY.into() })
            }
            Err(error) => Err(self.not_recorded(&error)),
        }
    }

    async fn take_over(&mut self, returning: &Returning) -> Result<Begun, Closed> {
        match self.live.store.take_over_session(returning).await {
            Ok(true) => Ok(Begun { started_at: returning.started_at, terms: returning.terms }),
            Ok(false) => {
                tracing::info!("the session went on at another node or has ended; the encoder is refused");
                Err(Closed { code: codes::FAILED, reason: codes::TAKEN_OVER_ELSEWHERE.into() })
            }
            Err(error) => Err(self.not_recorded(&error)),
        }
    }

    fn not_recorded(&self, error: &StoreError) -> Closed {
        tracing::error!(%error, "cannot record the session; the encoder is refused");
        let reason = "the service cannot record the session; try again in a moment";
        Closed { code: codes::FAILED, reason: reason.into() }
    }

    /// The stream may have been deleted or changed, or its account disabled, after its key was checked. Changes at other
    /// nodes find a session only from here on. Returns the reason why the session ends.
    async fn look_again(&mut self) -> Option<EndReason> {
        match self.live.store.stream(self.session.stream.id).await {
            Ok(None) => return Some(EndReason::KeyRevoked),
            Ok(Some(stream)) if stream.account_disabled => return Some(EndReason::AccountDisabled),
            Ok(Some(stream))
                if stream.key_hash != self.session.stream.key_hash
                    || self.session.disconnect_unless(&stream.allowed) =>
            {
                return Some(EndReason::KeyRevoked);
            }
            Ok(Some(stream)) => self.limits = stream.limits,
            // The limits of the admission stay in force.
            Err(error) => {
                tracing::error!(%error, "cannot read the limits of the stream; the earlier ones stay in force")
            }
        }
        None
    }

    /// Starts the usage reports.
    async fn meter(&mut self, terms: Terms, returning: Option<Returning>) {
        let stream = &self.session.stream;
        let beginning = Beginning {
            session: self.session.id.clone(),
            stream: stream.id,
            account: stream.account_id,
            began: self.began,
            returning,
            terms,
            limits: self.limits,
        };
        self.usage = self.live.gate.begin(beginning).await;
        self.orders = self.usage.orders();
        // Under the lock under which encoders connect and leave, because their earlier reports were dropped.
        let _encoders = self.session.shared.lock();
        let usage = self.session.usage.get_or_init(|| self.usage.clone());
        usage.flows(*self.session.flows.borrow(), self.live.clock.monotonic());
    }

    /// Begins to give the session up; the reason is that of its end if this fails. The encoder gets `closed`.
    pub(super) fn begin_giving_up(&mut self, closed: Closed, done: oneshot::Sender<()>) -> End {
        let now = self.live.clock.monotonic();
        let gone_since = self.session.shared.lock().gone_since;
        if gone_since.is_none() {
            self.publish_event("stream.reconnecting", self.live.clock.now(), json!({}));
        }
        // The slate ends here, so the session waits elsewhere no longer than its reconnect window.
        let until =
            self.window_end(gone_since.unwrap_or(now)).min(now + self.live.settings().reconnect_window);
        self.gives_up = Some((closed, until));
        let reason = if gone_since.is_some() { EndReason::Unpublished } else { EndReason::Shutdown };
        End { reason, done: Some(done) }
    }

    /// Gives the session up after its destinations have ended and its usage is settled; `until`: the end of its reconnect
    /// window. `false` if the session has to end here.
    pub(super) async fn give_up(&self, until: Duration) -> bool {
        let now = self.live.clock.monotonic();
        let handover = Handover {
            last_media_at: self.end_time(EndReason::Unpublished),
            lasted: self.lasted(),
            position: self.session.hub.position(now),
            window: until.saturating_sub(now),
        };
        match self.live.store.give_up_session(&self.session.id, handover).await {
            Ok(()) => {
                tracing::info!(
                    window_ms = handover.window.as_millis() as u64,
                    "session given up; it goes on at the node that its encoder comes to"
                );
                true
            }
            Err(error) => {
                tracing::error!(%error, "the session cannot be given up and ends");
                false
            }
        }
    }
}
