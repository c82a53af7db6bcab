//! Which encoder may publish: the first one, one that returns, and one that replaces another.
//!
//! Encoders treat a refusal as final. So the service waits for obstacles that soon end: a session that is ending, and an
//! encoder whose connection is dead but not yet detected. That is usually the encoder that now returns. After a stop, encoders
//! of the stream are refused for the time of the cooldown.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::codes;
use super::live::{Admits, Cooldown, Live, needs_cooldown};
use super::session::{Publisher, Refusal, Session, TAKE_OVER_AFTER};
use super::shown::EncoderRole;
use super::via::Via;
use satcast_core::ids::{EndReason, StreamId};
use satcast_store::{Returning, StreamRecord};

/// Longest wait of a returning encoder for the end of its previous session.
pub(super) const ENDING_WAIT: Duration = Duration::from_secs(4);
/// Longest wait for another encoder to be silent, which may be dead.
pub(super) const SILENCE_WAIT: Duration = TAKE_OVER_AFTER.saturating_add(Duration::from_millis(500));
/// Most obstacles that one attempt to publish waits for.
pub(super) const OBSTACLES_AWAITED_MAX: u32 = 3;

/// Why an encoder may not publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishRefused {
    /// RTMP status code.
    pub code: &'static str,
    /// One sentence for the user of the encoder, without secrets.
    pub reason: String,
}

impl PublishRefused {
    pub(super) fn new(code: &'static str, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}

/// Why an encoder cannot publish now.
enum Obstacle {
    /// The previous session is still ending.
    Ending(Arc<Session>),
    /// Another encoder publishes.
    Busy(Arc<Session>),
    /// Waiting would not help.
    Refused(PublishRefused),
}

impl Live {
    /// Admits a primary encoder whose stream key was checked.
    ///
    /// # Errors
    /// As [`Live::publish_from`].
    pub async fn publish(&self, stream: StreamRecord) -> Result<Publisher, PublishRefused> {
        self.publish_from(stream, EncoderRole::Primary, Via::default(), None).await
    }

    /// Admits an encoder whose key was checked; `role` follows from the key. Its media has passed through the streams in `via`;
    /// `address` is its address, if known.
    ///
    /// # Errors
    /// Another encoder with the same key publishes, here or at another node, the stream is in its cooldown, the account is disabled or may not
    /// publish, the node takes no streams, or the media comes from the stream itself.
    pub async fn publish_from(
        &self,
        stream: StreamRecord,
        role: EncoderRole,
        via: Via,
        address: Option<IpAddr>,
    ) -> Result<Publisher, PublishRefused> {
        if stream.account_disabled {
            let reason = codes::reason_text(EndReason::AccountDisabled);
            return Err(PublishRefused::new(codes::DENIED, reason));
        }
        if let Some(reason) = self.inner.marks.refusal(stream.id, &via) {
            return Err(PublishRefused::new(codes::DENIED, reason));
        }
        self.refuse_at_this_node(&stream, role).await?;
        // One limit for all of them: encoders may replace each other one after the other.
        let silence_until = self.inner.clock.monotonic() + SILENCE_WAIT;
        for _ in 0..OBSTACLES_AWAITED_MAX {
            self.refuse_during_cooldown(&stream).await?;
            let admitted = self.inner.gate.admit(&stream).await;
            admitted.map_err(|reason| PublishRefused::new(codes::DENIED, reason))?;
            let returning = self.inner.store.returning(stream.id).await.map_err(|error| {
                tracing::error!(stream = %stream.id, %error, "cannot look for a session that waits for its encoder");
                PublishRefused::new(codes::FAILED, codes::NO_PREVIOUS)
            })?;
            let gone = match self.enter(&stream, role, (&via, address), returning) {
                Ok(publisher) => return Ok(publisher),
                Err(Obstacle::Refused(refused)) => return Err(refused),
                Err(Obstacle::Busy(session)) => {
                    if !session.encoder_gives_way(Some(role), &self.inner.clock, silence_until).await {
                        return Err(busy(role));
                    }
                    true
                }
                Err(Obstacle::Ending(session)) => {
                    self.inner.clock.timeout(ENDING_WAIT, session.gone()).await.is_some()
                }
            };
            if !gone {
                break;
            }
        }
        Err(PublishRefused::new(
            codes::DENIED,
            "the previous session of this stream is still ending; try again in a moment",
        ))
    }

    /// Refuses an encoder that this node does not take, or whose stream is live at another node.
    async fn refuse_at_this_node(
        &self,
        stream: &StreamRecord,
        role: EncoderRole,
    ) -> Result<(), PublishRefused> {
        match (self.admits(), self.find(stream.id)) {
            (Admits::Returning | Admits::All, Some(_)) => return Ok(()),
            _ => self.refuse_new()?,
        }
        match self.inner.store.is_live_elsewhere(stream.id).await {
            Ok(false) => Ok(()),
            Ok(true) => self.call_back(stream, role).await,
            Err(error) => {
                // The beginning of the session checks it again.
                tracing::error!(stream = %stream.id, %error, "cannot look for the stream at other nodes");
                Ok(())
            }
        }
    }

    /// Has another node give its session of the stream up. Refuses the encoder if that node has one that sends, primary or
    /// backup: media does not pass between nodes.
    async fn call_back(&self, stream: &StreamRecord, role: EncoderRole) -> Result<(), PublishRefused> {
        let still_there = match self.ask_for_session(stream.id).await {
            Ok(true) => self.inner.store.is_live_elsewhere(stream.id).await,
            Ok(false) => return Err(PublishRefused::new(codes::DENIED, codes::NOT_GIVEN_UP)),
            Err(error) => Err(error),
        };
        match still_there {
            Ok(false) => Ok(()),
            Ok(true) => Err(self.busy_elsewhere(stream, role).await),
            Err(error) => {
                tracing::error!(stream = %stream.id, %error, "cannot ask the node of the stream's session for it");
                Err(PublishRefused::new(codes::FAILED, codes::NO_PREVIOUS))
            }
        }
    }

    /// The refusal of an encoder whose stream is live at another node, which it names: both encoders connect to one node.
    async fn busy_elsewhere(&self, stream: &StreamRecord, role: EncoderRole) -> PublishRefused {
        let sessions = self.inner.store.sessions_elsewhere(stream.account_id).await.unwrap_or_default();
        let session = sessions.into_iter().find(|session| session.stream == stream.id);
        match session.and_then(|session| session.node) {
            Some((node, _)) => PublishRefused::new(codes::BAD_NAME, codes::busy_elsewhere(&node)),
            None => busy(role),
        }
    }

    /// Refuses an encoder that would begin a session, while this node begins none.
    fn refuse_new(&self) -> Result<(), PublishRefused> {
        match self.admits() {
            Admits::All => Ok(()),
            Admits::Returning => Err(PublishRefused::new(codes::FAILED, codes::DRAINING)),
            Admits::Nobody => Err(PublishRefused::new(codes::FAILED, codes::NO_LEASE)),
        }
    }

    /// Adds the encoder to the session of the stream, to the one that waits for it, or to a new one.
    fn enter(
        &self,
        stream: &StreamRecord,
        role: EncoderRole,
        (via, address): (&Via, Option<IpAddr>),
        returning: Option<Returning>,
    ) -> Result<Publisher, Obstacle> {
        let mut sessions = self.inner.sessions.lock();
        if let Some(session) = sessions.get(&stream.id).filter(|session| !session.is_void()) {
            return session.let_in(&self.inner, role, via, address).map_err(|refusal| match refusal {
                Refusal::Busy => Obstacle::Busy(session.clone()),
                Refusal::Closing => Obstacle::Ending(session.clone()),
            });
        }
        self.refuse_if_stopped(stream.id).map_err(Obstacle::Refused)?;
        // Under the lock of the sessions: a node that has lost its lease ends those that it finds under it.
        self.refuse_new().map_err(Obstacle::Refused)?;
        let number = self.inner.next_number.fetch_add(1, Ordering::Relaxed);
        let (session, run) = Session::new(stream.clone(), number, self.inner.clone(), returning);
        let publisher = session.let_in(&self.inner, role, via, address);
        let publisher = publisher.map_err(|_| Obstacle::Refused(busy(role)))?;
        sessions.insert(stream.id, session);
        self.inner.runtime.spawn(run.run());
        Ok(publisher)
    }

    /// An encoder that reconnects automatically after a stop must not start a new session: it is refused until it made no
    /// attempt for the time of the cooldown. Each refused attempt restarts the cooldown.
    async fn refuse_during_cooldown(&self, stream: &StreamRecord) -> Result<(), PublishRefused> {
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
    fn refuse_if_stopped(&self, stream: StreamId) -> Result<(), PublishRefused> {
        let now = self.inner.clock.monotonic();
        let known = self.inner.cooldowns.lock().get(&stream).copied();
        known
            .filter(|cooldown| now < cooldown.until)
            .map_or(Ok(()), |cooldown| Err(self.restart_cooldown(stream, cooldown, now)))
    }

    /// Restarts the cooldown and returns the refusal.
    fn restart_cooldown(&self, stream: StreamId, cooldown: Cooldown, now: Duration) -> PublishRefused {
        let wait = self.inner.settings().cooldown;
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
        let left = self.inner.settings().cooldown.saturating_sub(Duration::from_millis(elapsed_ms));
        needs_cooldown(reason).then_some(Cooldown { until: now + left, reason })
    }
}

fn busy(role: EncoderRole) -> PublishRefused {
    let text = match role {
        EncoderRole::Primary => codes::BUSY,
        EncoderRole::Backup => codes::BACKUP_BUSY,
    };
    PublishRefused::new(codes::BAD_NAME, text)
}
