//! Which encoder is let in: the first, one that returns, and one that takes the place of another.
//!
//! Encoders take a refusal for final, so that what comes to an end by itself is waited for: a session that is ending, and an
//! encoder whose connection is dead without anybody having noticed yet, which most often is the same one that now returns.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::codes;
use super::live::Live;
use super::session::publisher::Publisher;
use super::session::{Refusal, Session, TAKE_OVER_AFTER};
use super::via::Via;
use satcast_store::StreamRecord;

/// Longest an encoder that returns is kept waiting while its former session ends.
pub(super) const ENDING_WAIT: Duration = Duration::from_secs(4);
/// Longest an encoder is kept waiting for the silence of others that may be dead.
pub(super) const SILENCE_WAIT: Duration = TAKE_OVER_AFTER.saturating_add(Duration::from_millis(500));
/// Obstacles waited for in one attempt to publish.
pub(super) const OBSTACLES_AWAITED_MAX: u32 = 3;

/// Why an encoder may not publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishRefused {
    /// RTMP status code.
    pub code: &'static str,
    /// One sentence for the person at the encoder; no secrets.
    pub reason: String,
}

impl PublishRefused {
    pub(super) fn new(code: &'static str, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}

/// What an encoder has to wait for.
enum Obstacle {
    /// Its session before, which is ending.
    Ending(Arc<Session>),
    /// Another encoder.
    Busy(Arc<Session>),
    /// Nothing would help.
    Refused(PublishRefused),
}

impl Live {
    /// Lets an encoder in, whose stream key was checked.
    ///
    /// # Errors
    /// As [`Live::publish_from`].
    pub async fn publish(&self, stream: StreamRecord) -> Result<Publisher, PublishRefused> {
        self.publish_from(stream, Via::default(), None).await
    }

    /// Lets an encoder in, whose stream key was checked and whose media has come through the streams in `via`; it publishes from
    /// `address`, where that is known.
    ///
    /// # Errors
    /// Another encoder is publishing, the stream was stopped and its encoder has not been quiet yet, or the media comes from the
    /// stream itself.
    pub async fn publish_from(
        &self,
        stream: StreamRecord,
        via: Via,
        address: Option<IpAddr>,
    ) -> Result<Publisher, PublishRefused> {
        if via.has(&self.inner.marks.of(stream.id)) {
            return Err(PublishRefused::new(codes::DENIED, codes::LOOP));
        }
        if via.is_too_long() {
            return Err(PublishRefused::new(codes::DENIED, codes::CHAIN));
        }
        // All of them together: one after the other may come and take the place.
        let silence_until = self.inner.clock.monotonic() + SILENCE_WAIT;
        for _ in 0..OBSTACLES_AWAITED_MAX {
            self.refuse_unless_quiet(&stream).await?;
            let admitted = self.inner.gate.admit(&stream).await;
            admitted.map_err(|reason| PublishRefused::new(codes::DENIED, reason))?;
            let gone = match self.enter(&stream, &via, address) {
                Ok(publisher) => return Ok(publisher),
                Err(Obstacle::Refused(refused)) => return Err(refused),
                Err(Obstacle::Busy(session)) => {
                    if !session.encoder_rests(&self.inner.clock, silence_until).await {
                        return Err(busy());
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
        Err(PublishRefused::new(codes::DENIED, "the stream is just being stopped; try again in a moment"))
    }

    /// Lets an encoder into the stream's session, or a new one.
    fn enter(
        &self,
        stream: &StreamRecord,
        via: &Via,
        address: Option<IpAddr>,
    ) -> Result<Publisher, Obstacle> {
        let mut sessions = self.inner.sessions.lock();
        if let Some(session) = sessions.get(&stream.id).filter(|session| !session.is_void()) {
            return session.let_in(&self.inner, via, address).map_err(|refusal| match refusal {
                Refusal::Busy => Obstacle::Busy(session.clone()),
                Refusal::Closing => Obstacle::Ending(session.clone()),
            });
        }
        self.refuse_if_stopped(stream.id).map_err(Obstacle::Refused)?;
        let number = self.inner.next_number.fetch_add(1, Ordering::Relaxed);
        let (session, run) = Session::new(stream.clone(), number, self.inner.clone());
        let publisher = session.let_in(&self.inner, via, address).map_err(|_| Obstacle::Refused(busy()))?;
        sessions.insert(stream.id, session);
        self.inner.runtime.spawn(run.run());
        Ok(publisher)
    }
}

fn busy() -> PublishRefused {
    PublishRefused::new(
        codes::BAD_NAME,
        "this stream key is already publishing; stop the other encoder first",
    )
}
