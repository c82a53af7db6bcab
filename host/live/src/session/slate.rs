//! When the slate of a session begins and ends, on the task of the session, and the task that plays it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use satcast_media::Packet;
use satcast_media::mp4::Movie;
use serde_json::json;
use tracing::Instrument as _;

use super::run::Run;
use super::{Session, millis};
use crate::health::Issue;
use crate::slate::{Difference, Looped, OnAir, differences};
use crate::via::Via;
use satcast_core::clock::Clock;
use satcast_core::ids::UnixMillis;
use satcast_store::SlateRecord;

/// Event of a slate that begins or ends.
const EVENT: &str = "stream.slate";
/// The number of no encoder: they are counted from 1.
const NOBODY: u64 = 0;
/// Longest wait for the database.
const READ_MAX: Duration = Duration::from_secs(2);
/// Memory of the packets of a slate beside its file: [`satcast_media::mp4::SAMPLES_MAX`] of them, each under 200 bytes.
const FRAMES_BYTES: u64 = 8 * 1024 * 1024;
/// Shortest time between two rounds of packets: one wake-up serves more than one frame.
const STEP: Duration = Duration::from_millis(50);

impl Run {
    /// Reads what the database has about the slate. One on air that was replaced or deleted ends.
    pub(super) async fn reload_slate(&mut self) {
        let Some(record) = in_time(self.live.store.slate(self.session.stream.id)).await else {
            self.reload_due = true;
            return;
        };
        if record != self.slate.record {
            (self.slate.record, self.slate.done_at) = (record, None);
            self.session.shared.lock().slate_withheld = false;
        }
        let uploaded_at = self.slate.record.as_ref().map(|record| record.uploaded_at);
        if self.slate.on_air.as_ref().is_some_and(|on_air| Some(on_air.uploaded_at) != uploaded_at) {
            self.end_slate();
        }
    }

    /// Begins or ends the slate when it is time; returns the time until the next look.
    pub(super) async fn follow_slate(&mut self) -> Option<Duration> {
        let now = self.live.clock.monotonic();
        if let Some(on_air) = &self.slate.on_air {
            let plays = self.session.shared.lock().encoders.plays_slate(on_air.number);
            if plays && now < on_air.until {
                return Some(on_air.until - now);
            }
            if plays {
                self.slate.done_at = Some(now);
            }
            self.end_slate();
            return Some(Duration::ZERO);
        }
        self.slate.record.as_ref()?;
        let (sent_at, lost_at) = {
            let shared = self.session.shared.lock();
            let stall = self.live.settings().failover.stall;
            (shared.encoders.sent_at(), shared.encoders.lost_at(stall))
        };
        if self.slate.done_at.is_some_and(|done| sent_at.is_none_or(|sent| sent <= done)) {
            return None;
        }
        let lost_at = lost_at?;
        if now < lost_at {
            return Some(lost_at - now);
        }
        self.begin_slate().await;
        // What failed is tried again with the next tick.
        self.slate.until().map(|until| until.saturating_sub(self.live.clock.monotonic()))
    }

    async fn begin_slate(&mut self) {
        let Some(record) = self.slate.record.clone() else { return };
        self.measure_last_media();
        if let Some(issue) = self.slate.issue_of(&record) {
            return self.withhold(issue);
        }
        let bytes = held_bytes(&record);
        let Ok(permit) = self.live.slates.try_take(self.session.stream.account_id, bytes) else {
            if !std::mem::replace(&mut self.slate.waits, true) {
                tracing::warn!(
                    bytes,
                    "too many slates play at this node, or of this account; this one waits"
                );
            }
            return;
        };
        let Some((record, movie)) = self.load_slate().await else { return };
        // It may have been replaced a moment ago.
        if held_bytes(&record) > bytes {
            return;
        }
        if let Some(issue) = self.slate.issue_of(&record) {
            return self.withhold(issue);
        }
        let (now, stall) = (self.live.clock.monotonic(), self.live.settings().failover.stall);
        let Some(number) = self.session.begin_slate(now, stall, self.live.clock.now()) else { return };
        let until = now + Duration::from_secs(record.max_seconds.into());
        let (session, clock) = (self.session.clone(), self.live.clock.clone());
        let task = async move {
            play(&session, &clock, number, movie, now, until).await;
            drop(permit);
        };
        let task = self.live.runtime.spawn(task.in_current_span()).abort_handle();
        (self.slate.done_at, self.slate.waits) = (None, false);
        self.slate.on_air = Some(OnAir { number, until, uploaded_at: record.uploaded_at, task });
        self.publish_event(EVENT, self.live.clock.now(), json!({"onAir": true}));
        tracing::info!(max_seconds = record.max_seconds, "the slate begins, because no encoder sends");
    }

    /// Takes the measurements as they were with the last media, which may be some time ago.
    fn measure_last_media(&mut self) {
        let last = Duration::from_millis(self.session.last_media_ms.load(Ordering::Acquire));
        let encoder = self.session.hub.encoder();
        self.slate.measured(encoder, &self.session.hub.figures(last));
    }

    async fn load_slate(&mut self) -> Option<(SlateRecord, Movie)> {
        let (record, media) = in_time(self.live.store.slate_media(self.session.stream.id)).await??;
        let read = tokio::task::spawn_blocking(move || Movie::read(&Bytes::from(media))).await;
        match read {
            Ok(Ok(movie)) => Some((record, movie)),
            Ok(Err(error)) => {
                tracing::error!(%error, "the stored slate cannot be read; upload it again");
                self.slate.done_at = Some(self.live.clock.monotonic());
                None
            }
            // The runtime is shutting down.
            Err(_) => None,
        }
    }

    /// Does not show the slate while the encoder is away, and says so.
    fn withhold(&mut self, issue: Issue) {
        tracing::warn!(text = issue.text, "the slate is not shown");
        self.slate.done_at = Some(self.live.clock.monotonic());
        let mut shared = self.session.shared.lock();
        shared.issues.retain(|known| known.code != issue.code);
        shared.issues.push(issue);
        shared.slate_withheld = true;
    }

    /// Ends the slate that is on air, if there is one, now or at its end.
    pub(super) fn end_slate(&mut self) {
        let Some(on_air) = self.slate.on_air.take() else { return };
        let at = on_air.until.min(self.live.clock.monotonic());
        self.session.end_slate(on_air.number, at);
        self.publish_event(EVENT, self.live.clock.now(), json!({"onAir": false}));
        tracing::info!("the slate ends");
    }
}

impl Session {
    /// The slate takes the place of the encoders at the monotonic time `now`; its number, or `None` if one of them sends again.
    fn begin_slate(&self, now: Duration, stall: Duration, wall: UnixMillis) -> Option<u64> {
        let mut shared = self.shared.lock();
        let number = shared.encoders.begin_slate(now, stall)?;
        shared.slate_since = Some(wall);
        *self.via.lock() = Via::default();
        self.hub.new_encoder(number);
        if !*self.flows.borrow() {
            self.set_flow(true, now);
        }
        Some(number)
    }

    /// The slate with this number ended at the monotonic time `at`, unless an encoder took over before.
    fn end_slate(&self, number: u64, at: Duration) {
        let mut shared = self.shared.lock();
        shared.slate_since = None;
        if shared.encoders.end_slate(number) {
            self.last_media_ms.store(millis(at), Ordering::Release);
            // Nobody sends. The measurements of the slate are not those of an encoder.
            self.hub.new_encoder(NOBODY);
            self.set_flow(false, at);
        }
    }

    /// Since when the slate is on air.
    pub(crate) fn slate_since(&self) -> Option<UnixMillis> {
        let shared = self.shared.lock();
        shared.slate_since.filter(|_| shared.encoders.has_slate())
    }

    /// What differs between a slate and the media that the session has now; `None` if that is not known.
    pub(crate) fn slate_differs(&self, record: &SlateRecord, now: Duration) -> Option<Vec<Difference>> {
        if self.slate_since().is_some() {
            return None;
        }
        let figures = self.hub.figures(now);
        (!figures.is_silent).then(|| differences(record, &figures))
    }
}

/// Memory of a slate that plays, in bytes: its file, and what is known of each frame.
fn held_bytes(record: &SlateRecord) -> u64 {
    u64::try_from(record.bytes).unwrap_or(u64::MAX).saturating_add(FRAMES_BYTES)
}

/// What the database answers within [`READ_MAX`]; `None`, after a line in the log, if it does not: the caller tries again soon. The
/// task of the session must not wait longer, because it ends the session when its lease is over.
async fn in_time<T>(read: impl Future<Output = satcast_store::Result<T>>) -> Option<T> {
    let answer = tokio::time::timeout(READ_MAX, read).await;
    match answer {
        Ok(Ok(found)) => return Some(found),
        Ok(Err(error)) => tracing::error!(%error, "cannot read the slate; retrying soon"),
        Err(_) => tracing::error!("the database does not answer; reading the slate again soon"),
    }
    None
}

/// Plays until the monotonic time `until`, or until the slate `number` is no longer the one that sends.
async fn play(session: &Session, clock: &Clock, number: u64, movie: Movie, began: Duration, until: Duration) {
    let mut packets: Vec<Packet> = movie.configs().collect();
    let mut media = Looped::new(movie, began);
    loop {
        let now = clock.monotonic();
        media.due(now.min(until), &mut packets);
        if !session.hub.publish(number, packets.drain(..), now) {
            return;
        }
        session.last_media_ms.store(millis(now.min(until)), Ordering::Release);
        if now >= until {
            return;
        }
        clock.sleep_until(media.next_at().max(now + STEP).min(until)).await;
    }
}
