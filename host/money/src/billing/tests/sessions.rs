//! Live sessions with charges: a driver behind the C table, on a manual clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use satcast_media::{Codec, NANOS_PER_MILLI, Packet};

use crate::billing::overage::GB_BYTES;
use crate::billing::testing::{Rig, TRIES_MAX};
use satcast_core::ids::{AccountId, EndReason, Msat};
use satcast_drivers::testing::drivers;
use satcast_live::{Closed, DestState, DestinationSnapshot, Live, Publisher, SessionSnapshot, Settings};
use satcast_store::{Bandwidth, SingleCharge, StreamLimits, StreamRecord, Terms};
use satcast_usage::{Beginning, Gate, Usage};

/// Below half the time after which a destination without bytes counts as stalled: a sample may be taken before the
/// frame of its second.
const STEP_SECS: u64 = 2;

struct Stage {
    rig: Rig,
    live: Live,
    publisher: Publisher,
    session: SessionSnapshot,
    began: Duration,
    frames: i64,
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

fn live_of(rig: &Rig) -> Live {
    let settings = Settings::default();
    Live::metered(rig.store.clone(), drivers(), rig.clock.clone(), settings, rig.billing.gate())
}

async fn until<R>(what: &str, mut look: impl FnMut() -> Option<R>) -> R {
    for _ in 0..TRIES_MAX {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("timed out waiting for {what}");
}

impl Stage {
    /// A session that has begun.
    async fn begin(rig: Rig) -> Self {
        Self::begin_with(rig, true).await
    }

    /// Without a keyframe destinations are opened and get no media yet.
    async fn begin_with(rig: Rig, keyframe: bool) -> Self {
        let live = live_of(&rig);
        let mut publisher = live.publish(rig.record().await).await.unwrap();
        let began = rig.clock.monotonic();
        publisher.push(&mut vec![video(0, keyframe)]);
        let session = until("the session", || live.session(rig.stream)).await;
        Self { rig, live, publisher, session, began, frames: 0 }
    }

    fn destination(&self, index: usize) -> Option<DestinationSnapshot> {
        self.live.destination(self.rig.stream, self.rig.destinations[index])
    }

    fn in_state(&self, state: DestState) -> Vec<DestinationSnapshot> {
        let all = (0..self.rig.destinations.len()).filter_map(|index| self.destination(index));
        all.filter(|seen| seen.state == state).collect()
    }

    async fn until_live(&self, count: usize) {
        until("live ones", || (self.in_state(DestState::Live).len() == count).then_some(())).await;
        self.wait_settled().await;
    }

    async fn wait_settled(&self) {
        let id = self.session.session_id.clone();
        until("charges", || self.rig.billing.is_settled(&id).then_some(())).await;
    }

    /// Sends a frame to `receivers` destinations and advances the clock by a step, until so many seconds after the
    /// start.
    async fn run_to(&mut self, secs: u64, receivers: usize) {
        let end = self.began + Duration::from_secs(secs);
        while self.rig.clock.monotonic() < end {
            assert!(self.frame(receivers).await.is_none(), "the encoder has to leave too early");
            let left = end.saturating_sub(self.rig.clock.monotonic());
            self.rig.clock.advance(left.min(Duration::from_secs(STEP_SECS)));
            self.wait_settled().await;
        }
    }

    /// Sends a frame to `receivers` destinations, unless the encoder has to leave.
    async fn frame(&mut self, receivers: usize) -> Option<Closed> {
        self.frames += 1;
        // In any state: on a busy machine a sample that is late may show a destination as stalled until the next one.
        let sent = |stage: &Self| {
            let all = (0..stage.rig.destinations.len()).filter_map(|index| stage.destination(index));
            all.map(|seen| seen.bytes_sent).sum::<u64>()
        };
        let before = sent(self);
        self.publisher.push(&mut vec![video(self.frames * 33, true)]);
        let all = receivers as u64 * 1_000;
        tokio::select! {
            closed = self.publisher.closed() => Some(closed),
            () = until("the frame", || (sent(self) >= before + all).then_some(())) => None,
        }
    }

    /// Sends frames and advances the clock until the encoder has to leave. Each frame is waited for: a destination that is
    /// taken for stalled when a minute begins may be held at the limit, and the session goes on without it.
    async fn closed(&mut self, receivers: usize) -> Closed {
        for _ in 0..TRIES_MAX {
            if let Some(closed) = self.frame(receivers).await {
                return closed;
            }
            self.rig.clock.advance(Duration::from_secs(1));
            self.wait_settled().await;
        }
        panic!("timed out waiting for the end of the publisher");
    }

    async fn sats(&self) -> i64 {
        let charged = self.rig.store.session_charges(&self.session.session_id).await.unwrap();
        charged.to_sats_floor().0
    }

    async fn until_ended(&self) -> Option<EndReason> {
        until("the end", || self.live.session(self.rig.stream).is_none().then_some(())).await;
        self.rig.store.last_session(self.rig.stream).await.unwrap().unwrap().end_reason
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_charged_stops_at_max_sats_and_its_encoder_is_refused() {
    let rig = Rig::with(100, "", "live", 3).await;
    rig.intruder().await.limit_sats(rig.stream, Some(9)).await;
    let mut stage = Stage::begin(rig).await;
    stage.until_live(3).await;
    assert_eq!(stage.sats().await, 4);
    let cost = stage.rig.billing.cost(&stage.session.session_id).unwrap();
    assert_eq!(cost.rate, Msat(4_000));
    stage.run_to(119, 3).await;
    assert_eq!(stage.sats().await, 8);
    assert!(stage.live.session(stage.rig.stream).is_some());
    assert!(stage.closed(3).await.reason.contains("maxSats"));
    assert_eq!(stage.until_ended().await, Some(EndReason::MaxSats));
    let mut costs = stage.rig.history(&stage.session.session_id).await;
    costs.sort_unstable();
    assert_eq!((costs, stage.sats().await, stage.rig.balance().await), (vec![0, 4, 4], 8, 92_000));
    assert!(stage.live.publish(stage.rig.record().await).await.is_err(), "until the cooldown is over");
    stage.rig.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_at_insufficient_funds_and_its_encoder_is_refused_until_money_comes() {
    let mut stage = Stage::begin(Rig::with(5, "", "live", 2).await).await;
    stage.until_live(2).await;
    stage.run_to(119, 2).await;
    assert_eq!(stage.sats().await, 4);
    assert!(stage.closed(2).await.reason.contains("balance"));
    assert_eq!(stage.until_ended().await, Some(EndReason::InsufficientFunds));
    assert_eq!((stage.sats().await, stage.rig.balance().await), (4, 1_000));
    stage.rig.clock.advance(Duration::from_secs(300));
    let refused = stage.live.publish(stage.rig.record().await).await.err().unwrap();
    assert_eq!(refused.reason, crate::billing::STARVED);
    stage.rig.credit(10).await;
    assert!(stage.live.publish(stage.rig.record().await).await.is_ok());
    stage.rig.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_without_money_is_stopped_sends_nothing_and_starts_when_money_comes() {
    let mut stage = Stage::begin(Rig::with(1, "", "live", 2).await).await;
    stage.until_live(1).await;
    let held = until("the held one", || stage.in_state(DestState::Stopped).pop()).await;
    assert_eq!((held.error.as_deref(), held.bytes_sent), (Some("insufficient_funds"), 0));
    stage.run_to(70, 1).await;
    // A late sample may show the other destination as stalled: then this one tries to start, and is held again.
    let held = until("the held one", || stage.in_state(DestState::Stopped).pop()).await;
    assert_eq!((stage.sats().await, held.bytes_sent), (0, 0));
    stage.rig.credit(10).await;
    stage.run_to(80, 1).await;
    stage.until_live(2).await;
    assert_eq!(stage.sats().await, 2);
    assert!(stage.live.stop(stage.rig.stream, EndReason::Stopped).await);
    let mut costs = stage.rig.history(&stage.session.session_id).await;
    costs.sort_unstable();
    assert_eq!(costs, [0, 2]);
    stage.rig.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_is_live_when_its_charge_is_refused_is_stopped() {
    let mut stage = Stage::begin_with(Rig::with(3, "", "live", 2).await, false).await;
    until("both to be opened", || (stage.in_state(DestState::Connecting).len() == 2).then_some(())).await;
    let elsewhere = SingleCharge {
        account: stage.rig.account,
        amount: Msat(2_000),
        kind: "single",
        idem: "elsewhere".into(),
        destination: None,
        now: stage.rig.clock.now(),
    };
    stage.rig.store.charge_once(&elsewhere).await.unwrap();
    stage.publisher.push(&mut vec![video(33, true)]);
    let held = until("the held one", || stage.in_state(DestState::Stopped).pop()).await;
    assert_eq!((held.error.as_deref(), held.bytes_sent), (Some("insufficient_funds"), 1_000));
    stage.until_live(1).await;
    stage.publisher.push(&mut vec![video(66, false)]);
    let sent = || stage.in_state(DestState::Live).iter().map(|seen| seen.bytes_sent).sum::<u64>();
    until("the other to go on", || (sent() == 2_000).then_some(())).await;
    assert_eq!(stage.in_state(DestState::Stopped)[0].bytes_sent, 1_000);
    assert_eq!((stage.sats().await, stage.rig.balance().await), (0, 1_000));
    stage.rig.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_grows_and_shrinks_holds_at_once() {
    let rig = Rig::with(100, "", "live", 3).await;
    rig.intruder().await.limit_sats(rig.stream, Some(2)).await;
    let stage = Stage::begin(rig).await;
    stage.until_live(2).await;
    let held = until("the held one", || stage.in_state(DestState::Stopped).pop()).await;
    assert_eq!(held.error.as_deref(), Some("budget"));
    let limits = |max_sats| StreamLimits { max_sats: Some(max_sats), max_duration_minutes: None };
    stage.live.limits_changed(stage.rig.stream, limits(10)).await;
    stage.until_live(3).await;
    assert_eq!(stage.sats().await, 4);
    stage.live.limits_changed(stage.rig.stream, limits(3)).await;
    assert_eq!(stage.until_ended().await, Some(EndReason::MaxSats));
    assert_eq!(stage.sats().await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_charged_while_the_encoder_is_away() {
    let mut stage = Stage::begin(Rig::with(100, "", "live", 2).await).await;
    stage.until_live(2).await;
    stage.run_to(55, 2).await;
    drop(stage.publisher);
    stage.rig.clock.advance(Duration::from_secs(20));
    stage.publisher = stage.live.publish(stage.rig.record().await).await.unwrap();
    stage.rig.clock.advance(Duration::from_secs(1));
    let (rig, id) = (&stage.rig, stage.session.session_id.clone());
    assert_eq!(rig.store.session_charges(&id).await.unwrap(), Msat(2_000), "minute 1 opened meanwhile");
    stage.publisher.push(&mut vec![video(90_000, true)]);
    for _ in 0..TRIES_MAX {
        // Stalled destinations are live again after a sample with new bytes.
        rig.clock.advance(Duration::from_millis(1));
        if rig.store.session_charges(&id).await.unwrap() == Msat(4_000) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(rig.store.session_charges(&id).await.unwrap(), Msat(4_000), "charged when media returns");
    assert!(stage.live.stop(rig.stream, EndReason::Stopped).await);
    rig.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_between_two_sessions_belong_to_the_one_that_ended() {
    let rig = Rig::with(100, "", "live", 1).await;
    rig.intruder().await.limit_sats(rig.stream, Some(6)).await;
    let counted = Arc::new(AtomicU64::new(0));
    let (store, clock, waiting) = (rig.store.clone(), rig.clock.clone(), counted.clone());
    let (account, destination) = (rig.account, rig.destinations[0]);
    rig.billing.set_before_pass(Arc::new(move || {
        let (store, bytes) = (store.clone(), waiting.swap(0, Ordering::Relaxed));
        let sent = Bandwidth { account, destination, hour_start: clock.now().hour_start(), bytes };
        Box::pin(async move { store.add_bandwidth(&[sent]).await.unwrap() })
    }));
    let mut stage = Stage::begin(rig).await;
    stage.until_live(1).await;
    let first = stage.session.session_id.clone();
    drop(stage.publisher);
    stage.rig.clock.advance(Duration::from_secs(31));
    until("the end", || stage.live.session(stage.rig.stream).is_none().then_some(())).await;
    counted.store(12 * GB_BYTES, Ordering::Relaxed);
    stage.publisher = stage.live.publish(stage.rig.record().await).await.unwrap();
    stage.publisher.push(&mut vec![video(90_000, true)]);
    stage.session = until("the next", || {
        stage.live.session(stage.rig.stream).filter(|session| session.session_id != first)
    })
    .await;
    until("it to be live", || (stage.in_state(DestState::Live).len() == 1).then_some(())).await;
    stage.rig.billing.bill_playback().await;
    let charges = async |id| stage.rig.store.session_charges(id).await.unwrap();
    assert_eq!(charges(&first).await, Msat(10_000), "bytes after the end have no limit");
    assert_eq!(charges(&stage.session.session_id).await, Msat(0));
    let before = stage.rig.intruder().await.bytes_before(&stage.session.session_id).await;
    assert_eq!(before, 12 * GB_BYTES, "the new session counts only later bytes");
    assert!(stage.live.stop(stage.rig.stream, EndReason::Stopped).await);
    stage.rig.check().await;
}

/// Billing whose settlement of earlier usage never ends, as behind a database that hangs.
struct Hanging(Arc<dyn Gate>);

#[async_trait::async_trait]
impl Gate for Hanging {
    fn terms(&self) -> Terms {
        self.0.terms()
    }

    async fn admit(&self, stream: &StreamRecord) -> Result<(), String> {
        self.0.admit(stream).await
    }

    async fn settle_earlier(&self, _: AccountId) {
        std::future::pending().await
    }

    async fn begin(&self, session: Beginning) -> Arc<dyn Usage> {
        self.0.begin(session).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_starts_although_earlier_usage_cannot_be_settled() {
    let rig = Rig::new(100).await;
    let gate = Arc::new(Hanging(rig.billing.gate()));
    let settings = Settings { reconnect_window: Duration::ZERO, ..Settings::default() };
    let live = Live::metered(rig.store.clone(), drivers(), rig.clock.clone(), settings, gate);
    let mut publisher = live.publish(rig.record().await).await.unwrap();
    publisher.push(&mut vec![video(0, true)]);
    until("the session's start", || live.session(rig.stream)).await;
    assert!(live.stop(rig.stream, EndReason::Stopped).await);
}
