//! The encoder's side of a session.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use satcast_media::flv::ForeignCodec;
use satcast_media::{Kind, Packet};
use tokio::sync::watch;

use super::{Encoder, Refusal, Session, TAKE_OVER_AFTER, millis};
use crate::codes::{self, Closed};
use crate::health::Issue;
use crate::live::Inner;
use crate::via::Via;
use satcast_core::ids::SessionId;

impl Session {
    /// Accepts an encoder: the first one, one that returns, or a newer one that replaces a silent one.
    pub(crate) fn let_in(
        self: &Arc<Self>,
        live: &Arc<Inner>,
        via: &Via,
        address: Option<IpAddr>,
    ) -> Result<Publisher, Refusal> {
        let now = live.clock.monotonic();
        let mut shared = self.shared.lock();
        if shared.closing {
            return Err(Refusal::Closing);
        }
        if let Some(encoder) = &shared.encoder {
            let silent =
                now.saturating_sub(Duration::from_millis(self.last_media_ms.load(Ordering::Acquire)));
            if silent < TAKE_OVER_AFTER {
                return Err(Refusal::Busy);
            }
            encoder
                .close
                .send_replace(Some(Closed { code: codes::BAD_NAME, reason: codes::TOOK_OVER.into() }));
        }
        *self.via.lock() = via.clone();
        shared.encoders += 1;
        let number = shared.encoders;
        let (close, closed) = watch::channel(None);
        shared.encoder = Some(Encoder { number, address, close });
        shared.gone_since = None;
        self.last_media_ms.store(millis(now), Ordering::Release);
        self.set_flow(false, now);
        drop(shared);
        self.hub.new_encoder();
        self.changed.notify_one();
        Ok(Publisher::new(self.clone(), live.clone(), number, closed))
    }
}

/// The encoder's side of a session. Dropping it means that the encoder has left.
pub struct Publisher {
    session: Arc<Session>,
    live: Arc<Inner>,
    number: u64,
    closed: watch::Receiver<Option<Closed>>,
    has_sent: bool,
    /// Codecs of tracks that are left out because they are not supported.
    foreign: Vec<ForeignCodec>,
}

impl Publisher {
    fn new(
        session: Arc<Session>,
        live: Arc<Inner>,
        number: u64,
        closed: watch::Receiver<Option<Closed>>,
    ) -> Self {
        Self { session, live, number, closed, has_sent: false, foreign: Vec::new() }
    }

    /// The session it feeds.
    pub fn session_id(&self) -> &SessionId {
        &self.session.id
    }

    /// Drains the vector in order. Never waits. Packets of an encoder that was disconnected are dropped.
    pub fn push(&mut self, packets: &mut Vec<Packet>) {
        if self.closed.borrow().is_some() {
            packets.clear();
            return;
        }
        let now = self.live.clock.monotonic();
        // Codec configurations alone do not count as media.
        let has_media = packets.iter().any(|packet| !packet.is_config());
        self.session.hub.publish(packets.drain(..), now);
        if has_media {
            self.session.last_media_ms.store(millis(now), Ordering::Release);
        }
        if has_media && !self.has_sent {
            self.has_sent = true;
            self.live.unusable.forget(self.session.stream.id);
            self.session.set_flow(true, now);
            self.session.has_media.store(true, Ordering::Release);
            self.session.changed.notify_one();
        }
    }

    /// A track has an unsupported codec; called once for each kind of track.
    pub fn foreign(&mut self, codec: ForeignCodec) {
        self.foreign.push(codec);
        self.session.hub.foreign(codec);
    }

    /// Resolves when the encoder has to leave.
    pub async fn closed(&self) -> Closed {
        let mut closed = self.closed.clone();
        match closed.wait_for(Option::is_some).await.map(|closed| closed.clone()) {
            Ok(Some(closed)) => closed,
            // The sender is dropped only with a close notice or the session.
            _ => Closed { code: codes::ENDED, reason: "the session has ended".into() },
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if !self.has_sent && !self.foreign.is_empty() {
            self.foreign.sort_by_key(|codec| codec.kind == Kind::Audio);
            let issues = self.foreign.iter().map(|codec| Issue::unsupported(*codec)).collect();
            self.live.unusable.note(self.session.stream.id, issues, self.live.clock.now());
        }
        let mut shared = self.session.shared.lock();
        if shared.encoder.as_ref().is_some_and(|encoder| encoder.number == self.number) {
            let now = self.live.clock.monotonic();
            shared.encoder = None;
            shared.gone_since = Some(now);
            self.session.set_flow(false, now);
            drop(shared);
            self.session.changed.notify_one();
        }
    }
}
