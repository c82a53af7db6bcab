//! Sessions with a real store and a real driver behind the C table; only the encoder is scripted.

mod allowed;
mod backup;
mod cooldown;
mod destinations;
mod entry;
mod feed;
mod health;
mod nodes;
mod poster;
mod slate;
mod spool;
mod webhooks;

use std::time::Duration;

use bytes::Bytes;
use satcast_media::{Codec, NANOS_PER_MILLI, Packet, Role};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::codes;
use crate::entry::PublishRefused;
use crate::health::IssueCode;
use crate::session;
use crate::session::Publisher;
use crate::shown::{DestState, EncoderRole};
use crate::via::{VIA_MAX, Via};
use satcast_core::config::Durability;
use satcast_core::ids::{AccountId, UnixMillis};
use satcast_core::secret::{Redacted, Vault, new_stream_key};
use satcast_drivers::testing::drivers;
use satcast_store::{
    self, Actor, Caps, NewAccount, NewDestination, NewStream, OpenOptions, Origin, StreamRecord,
};

const CAPS: Caps = Caps { destinations_per_stream: 50, streams_per_account: 1000, keys_per_account: 100 };
const WAIT_MAX: Duration = Duration::from_secs(60);

struct Rig {
    live: Live,
    store: Store,
    clock: Clock,
    account: AccountId,
    stream: StreamRecord,
    destinations: Vec<DestinationId>,
    _folder: TempDir,
}

impl Rig {
    async fn new(modes: &[&str], reconnect_window: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = satcast_store::testing::url(&folder.path().join("t.db")).await;
        let vault = Vault::new(&[7; 32]);
        let store = satcast_store::open(OpenOptions {
            url,
            durability: Durability::Normal,
            vault,
            low_balance: 0.into(),
        })
        .await
        .unwrap();
        let now = UnixMillis(1_000_000);
        let new =
            NewAccount { name: "a".into(), password_hash: None, operator: false, initial_credit: 0.into() };
        let account = store.create_account(&Origin::command(now), new).await.unwrap();
        let new = NewStream {
            srt_passphrase: None,
            allowed: Default::default(),
            label: "test".into(),
            stream_key: new_stream_key(),
            destinations: modes.iter().map(|mode| destination(json!({ "mode": mode }))).collect(),
            caps: CAPS,
        };
        let (stream, destinations) = store.create_stream(&Actor::command(account, now), new).await.unwrap();
        let stream = store.stream(stream).await.unwrap().unwrap();
        let clock = Clock::manual(UnixMillis(5_000_000));
        let settings = Settings { reconnect_window, ..Settings::default() };
        let live = Live::new(store.clone(), drivers(), clock.clone(), settings);
        Self { live, store, clock, account, stream, destinations, _folder: folder }
    }

    /// The owner of the stream.
    fn owner(&self) -> Actor {
        Actor::command(self.account, self.clock.now())
    }

    async fn publish(&self) -> Result<Publisher, PublishRefused> {
        self.live.publish(self.stream.clone()).await
    }

    async fn until<R>(&self, what: &str, mut look: impl FnMut() -> Option<R>) -> R {
        let end = tokio::time::Instant::now() + WAIT_MAX;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(tokio::time::Instant::now() < end, "waited in vain for {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The same while the clock runs.
    async fn until_later<R>(&self, what: &str, look: impl FnMut() -> Option<R>) -> R {
        self.clock.passing(Duration::from_millis(100), self.until(what, look)).await
    }

    async fn until_state(&self, index: usize, state: DestState) -> DestinationSnapshot {
        let id = self.destinations[index];
        let seen = || self.live.destination(self.stream.id, id).filter(|seen| seen.state == state);
        self.until(state.as_str(), seen).await
    }

    /// The same while the clock runs.
    async fn until_state_later(&self, index: usize, state: DestState) -> DestinationSnapshot {
        self.clock.passing(Duration::from_millis(100), self.until_state(index, state)).await
    }

    async fn until_session(&self, state: SessionState) -> SessionSnapshot {
        let seen = || self.live.session(self.stream.id).filter(|seen| seen.state == state);
        self.until("the session", seen).await
    }

    async fn until_idle(&self) {
        self.until("the end", || self.live.find(self.stream.id).is_none().then_some(())).await;
    }

    async fn last_reason(&self) -> Option<EndReason> {
        self.store.last_session(self.stream.id).await.unwrap().and_then(|last| last.end_reason)
    }
}

fn destination(config: Value) -> NewDestination {
    NewDestination {
        kind: "script".into(),
        platform: "script".into(),
        config,
        has_playback: false,
        delays: Default::default(),
    }
}

fn config() -> Packet {
    Packet { role: Role::Config, ..video(0, false) }
}

fn video(dts_ms: i64, keyframe: bool) -> Packet {
    Packet::media(
        Codec::H264,
        keyframe,
        dts_ms * NANOS_PER_MILLI,
        dts_ms * NANOS_PER_MILLI,
        Bytes::from_static(&[9; 1000]),
    )
}

fn group() -> Vec<Packet> {
    vec![config(), video(0, true), video(33, false), video(66, false)]
}

#[tokio::test]
async fn media_from_the_stream_itself_or_from_too_many_streams_is_refused() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let from = async |marks: &[String]| {
        let via = Via::read(&format!("x (compatible; Satcast; via {})", marks.join(" ")));
        rig.live
            .publish_from(rig.stream.clone(), EncoderRole::Primary, via, None)
            .await
            .map(drop)
            .map_err(|refused| refused.reason)
    };
    let mark = |id: i64| rig.live.inner.marks.of(StreamId(id));
    let other = rig.stream.id.0 + 1;
    let own = from(&[mark(other), mark(rig.stream.id.0)]).await.unwrap_err();
    assert_eq!(own, codes::LOOP);
    let chain: Vec<_> = (other..=other + VIA_MAX as i64).map(mark).collect();
    assert_eq!(from(&chain).await.unwrap_err(), codes::CHAIN);
    from(&chain[1..]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_begins_with_media_and_ends_when_stopped() {
    let rig = Rig::new(&["live"], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut vec![config()]);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(rig.live.session(rig.stream.id), None, "a configuration is no media");

    publisher.push(&mut group());
    let session = rig.until_session(SessionState::Live).await;
    assert_eq!(session.started_at, UnixMillis(5_000_000));
    let shown = rig.until_state(0, DestState::Live).await;
    assert_eq!((shown.attempt, shown.error, shown.live_since), (0, None, Some(UnixMillis(5_000_000))));
    assert_eq!(shown.bytes_sent, 4_000, "configuration and three frames");
    assert_eq!(rig.live.count(), 1);

    assert!(rig.live.stop(rig.stream.id, EndReason::Stopped).await);
    assert_eq!(publisher.closed().await.reason, codes::reason_text(EndReason::Stopped));
    assert_eq!(rig.live.session(rig.stream.id), None);
    assert_eq!(rig.last_reason().await, Some(EndReason::Stopped));
    assert!(!rig.live.stop(rig.stream.id, EndReason::Stopped).await, "nothing to stop");
    publisher.push(&mut group());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_recorded_when_the_database_is_available_again() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    rig.until_session(SessionState::Live).await;
    let mut intruder = satcast_store::testing::Intruder::open(&rig._folder.path().join("t.db")).await;
    intruder.hide_sessions(true).await;
    let ended_at = rig.clock.now();
    let stopping = rig.live.stop(rig.stream.id, EndReason::MaxSats);
    rig.clock.passing(Duration::from_millis(100), stopping).await;
    rig.until_idle().await;
    let idle_at = rig.clock.now();
    let refused = rig.publish().await.err().unwrap();
    let wait = rig.live.inner.settings().cooldown;
    assert_eq!(refused.reason, codes::cooldown_text(EndReason::MaxSats, wait));
    rig.clock.advance(Duration::from_secs(7));
    intruder.hide_sessions(false).await;
    let end = tokio::time::Instant::now() + WAIT_MAX;
    while rig.last_reason().await != Some(EndReason::MaxSats) {
        assert!(tokio::time::Instant::now() < end, "the end is never recorded");
        rig.clock.advance(Duration::from_millis(100));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let last = rig.store.last_session(rig.stream.id).await.unwrap().unwrap();
    // The clock goes on while it is stopped, and for seven seconds before it is written.
    let ended = last.ended_at.unwrap();
    assert!((ended_at..=idle_at).contains(&ended), "the time of the end, not of the write: {ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoder_that_returns_continues_its_session() {
    let rig = Rig::new(&["live"], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let before = rig.until_session(SessionState::Live).await;
    rig.until_state(0, DestState::Live).await;
    drop(publisher);
    rig.until_session(SessionState::Reconnecting).await;
    assert_eq!(rig.until_state(0, DestState::Live).await.bytes_sent, 4_000, "the destination stays");

    rig.clock.advance(Duration::from_secs(5));
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    assert_eq!(rig.until_session(SessionState::Live).await.session_id, before.session_id);
    let sent = || rig.live.destination(rig.stream.id, rig.destinations[0]).filter(|d| d.bytes_sent == 7_000);
    rig.until("three more frames without a repeated configuration", sent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_encoder_the_session_ends_at_its_last_packet() {
    let rig = Rig::new(&["live"], Duration::from_millis(100)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    rig.until_session(SessionState::Live).await;
    drop(publisher);
    rig.clock.advance(Duration::from_millis(150));
    rig.until_idle().await;
    let last = rig.store.last_session(rig.stream.id).await.unwrap().unwrap();
    assert_eq!(last.end_reason, Some(EndReason::Unpublished));
    assert_eq!(last.ended_at, Some(UnixMillis(5_000_000)));
    assert!(rig.publish().await.is_ok(), "no cooldown after an unpublish");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoder_that_leaves_without_media_records_no_session() {
    let rig = Rig::new(&["live"], Duration::from_secs(30)).await;
    drop(rig.publish().await.unwrap());
    rig.until_idle().await;
    assert!(rig.store.last_session(rig.stream.id).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoder_that_connects_while_another_leaves_is_never_lost() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let waiting = rig.publish().await.unwrap();
    rig.live.find(rig.stream.id).unwrap().give_up();
    let mut publisher = rig.publish().await.unwrap();
    assert_ne!(publisher.session_id(), waiting.session_id());
    drop(waiting);
    publisher.push(&mut group());
    let live = rig.until_session(SessionState::Live).await;
    assert_eq!(&live.session_id, publisher.session_id(), "the registry holds the new one");

    let session = rig.live.find(rig.stream.id).unwrap();
    // The tick of the session reverts it, possibly before the encoder sees it.
    let mut refused = None;
    for _ in 0..200 {
        session.give_up();
        refused = rig
            .clock
            .passing(Duration::from_millis(100), rig.publish())
            .await
            .err()
            .map(|refused| refused.code);
        if refused == Some(codes::DENIED) {
            break;
        }
    }
    assert_eq!(refused, Some(codes::DENIED), "the encoder waits for a session that had media");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_all_sessions_and_the_next_start_closes_interrupted_ones() {
    let rig = Rig::new(&["live"], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    rig.until_session(SessionState::Live).await;
    rig.live.shut_down().await;
    assert_eq!(rig.last_reason().await, Some(EndReason::Shutdown));

    rig.clock.advance(Duration::from_secs(1));
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let running = rig.until_session(SessionState::Live).await;
    let interrupted = rig.store.close_interrupted_sessions(UnixMillis(6_000_000)).await.unwrap();
    assert_eq!(interrupted, [running.session_id]);
    assert_eq!(rig.last_reason().await, Some(EndReason::Interrupted));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_maximum_duration_ends_a_session_and_a_change_applies_at_once() {
    const MINUTE: Duration = Duration::from_secs(60);
    let rig = Rig::new(&["live"], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    rig.until_session(SessionState::Live).await;
    let minutes = |minutes| StreamLimits { max_duration_minutes: minutes, ..StreamLimits::default() };
    rig.live.limits_changed(rig.stream.id, minutes(Some(2))).await;
    rig.clock.advance(MINUTE * 2 - Duration::from_millis(1));
    rig.live.limits_changed(rig.stream.id, minutes(None)).await;
    rig.clock.advance(MINUTE + Duration::from_millis(1));
    rig.live.destinations_changed(rig.stream.id).await;
    assert!(rig.live.session(rig.stream.id).is_some(), "the limit was removed in time");
    rig.live.limits_changed(rig.stream.id, minutes(Some(3))).await;
    assert!(publisher.closed().await.reason.contains("maxDurationMinutes"));
    rig.until_idle().await;
    assert_eq!(rig.last_reason().await, Some(EndReason::MaxDuration));
    let refused = rig.publish().await.err().unwrap();
    assert_eq!(refused.code, codes::DENIED, "an encoder that reconnects gets no new budget");
    rig.live.limits_changed(rig.stream.id, minutes(Some(4))).await;
    assert!(rig.publish().await.is_ok(), "the owner allowed more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_deleted_during_admission_does_not_run() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    rig.store.delete_stream(&rig.owner(), rig.stream.id).await.unwrap();
    publisher.push(&mut group());
    assert_eq!(publisher.closed().await.reason, codes::reason_text(EndReason::KeyRevoked));
    rig.until_idle().await;
    assert_eq!(rig.last_reason().await, Some(EndReason::KeyRevoked));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoder_that_returns_while_its_session_ends_gets_a_new_one() {
    // The session cannot end before the driver goes on, because the clock does not run.
    let (rig, _publisher, _) = spool::held_up().await;
    let before = rig.until_session(SessionState::Live).await.session_id;
    let (live, stream) = (rig.live.clone(), rig.stream.id);
    let stopping = tokio::spawn(async move { live.stop(stream, EndReason::Shutdown).await });
    rig.until_session(SessionState::Stopping).await;
    let goes_on = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        spool::GOES.send_replace(true);
    };
    let (publisher, ()) = tokio::join!(rig.publish(), goes_on);
    let mut publisher = publisher.unwrap();
    assert!(stopping.await.unwrap());
    publisher.push(&mut group());
    assert_ne!(rig.until_session(SessionState::Live).await.session_id, before);
}
