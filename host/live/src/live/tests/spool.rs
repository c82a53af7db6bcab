//! A lossless driver that takes no packets for a while.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use satcast_plugin_api::driver::{
    Config, Ctx, Destination, Driver, DriverInfo, DynDestination, Host, Media, State,
};
use satcast_plugin_api::{DestType, Error, driver_entry};
use tokio::sync::watch;

use super::*;
use crate::destination::SETTLE_MAX;
use crate::destination::run::lost_text;
use satcast_drivers::testing::start;

/// Frames in GOPs of thirty; together more than a queue without a disk holds.
const FRAMES: i64 = 360;
const FRAME_BYTES: usize = 100_000;

/// Long enough for a driver that can end to do so.
const STOP_DEADLINE: Duration = Duration::from_millis(500);
/// Clock step while the test waits for the end.
const STEP: Duration = Duration::from_millis(100);

/// Frames that the driver has taken.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// Whether the driver takes anything.
pub(super) static GOES: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));

/// Whether it was asked to end.
static IS_STOPPING: AtomicBool = AtomicBool::new(false);

/// Whether it holds its thread while it takes nothing, so that nothing can end it.
static IS_STUBBORN: AtomicBool = AtomicBool::new(false);

#[derive(Clone, serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

struct Keeper;
struct Kept;

impl Driver for Keeper {
    const INFO: DriverInfo = DriverInfo { id: "keeper", version: "1.0.0", title: "Keeps" };
    const LOSSLESS: bool = true;

    fn types() -> Vec<DestType> {
        vec![DestType::of::<Nothing>("keeper").title("Keeps")]
    }

    fn load(_: &Host) -> Result<Self, Error> {
        Ok(Keeper)
    }

    fn open(&self, _: Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        Ok(Arc::new(Kept))
    }
}

impl Destination for Kept {
    async fn run(self: Arc<Self>, ctx: Ctx, mut media: Media) -> Result<(), Error> {
        ctx.bytes_sent(1);
        while IS_STUBBORN.load(Ordering::SeqCst) && !*GOES.borrow() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut goes = GOES.subscribe();
        let goes_on = async { goes.wait_for(|goes| *goes).await.is_ok() };
        let stopping = async {
            ctx.stopping().await;
            IS_STOPPING.store(true, Ordering::SeqCst);
            std::future::pending().await
        };
        tokio::select! {
            _ = goes_on => {}
            () = stopping => {}
        }
        let (mut batch, mut next) = (Vec::new(), None);
        while media.recv_batch(&mut batch).await {
            for packet in batch.drain(..) {
                let follows = next.is_none_or(|next| next == packet.dts_ns) && !packet.discontinuity;
                if !packet.is_config() {
                    if !follows {
                        return Err(Error::config("a packet is missing"));
                    }
                    next = Some(packet.dts_ns + 40 * NANOS_PER_MILLI);
                }
                ctx.bytes_sent(packet.payload.len() as u64);
                TAKEN.fetch_add(u64::from(!packet.is_config()), Ordering::SeqCst);
            }
            ctx.state(State::Live);
        }
        Ok(())
    }
}

driver_entry!(entry, Keeper);

/// A live session with a destination whose driver runs and has not taken the frames.
pub(super) async fn held_up() -> (Rig, Publisher, DestinationId) {
    let mut rig = Rig::new(&[], Duration::from_secs(30)).await;
    let settings = Settings { reconnect_window: Duration::ZERO, ..Settings::default() };
    let drivers = start(entry);
    let place = drivers.spool("keeper").expect("a place");
    assert_eq!((place.bytes_max, place.folder.ends_with(".spool")), (2 << 30, true));
    rig.live =
        Live::new(rig.store.clone(), drivers, rig.clock.clone(), settings).with_stop_deadline(STOP_DEADLINE);
    let kept = NewDestination { kind: "keeper".into(), ..destination(json!({})) };
    let id = rig.store.add_destination(&rig.owner(), rig.stream.id, kept, CAPS).await.unwrap();
    rig.destinations.push(id);

    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut vec![config(), large(0)]);
    let seen = || rig.live.destination(rig.stream.id, id).filter(|seen| seen.bytes_sent > 0);
    rig.until("the driver to begin", seen).await;
    (1..FRAMES).for_each(|number| publisher.push(&mut vec![large(number)]));
    let shown = rig.live.destination(rig.stream.id, id).unwrap();
    assert_eq!((shown.bytes_sent, shown.dropped_packets), (1, 0));
    (rig, publisher, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lossless_driver_gets_delayed_packets_later() {
    let (rig, _publisher, id) = held_up().await;
    GOES.send_replace(true);
    let all = 1 + 1_000 + FRAMES as u64 * FRAME_BYTES as u64;
    let seen = || rig.live.destination(rig.stream.id, id).filter(|seen| seen.bytes_sent == all);
    let shown = rig.until("all of it", seen).await;
    assert_eq!((shown.error, shown.dropped_packets), (None, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_packets_are_taken_at_the_end() {
    let (rig, _publisher, id) = held_up().await;
    let (live, stream) = (rig.live.clone(), rig.stream.id);
    let ending = tokio::spawn(async move { live.stop(stream, EndReason::Stopped).await });
    rig.until_session(SessionState::Stopping).await;
    GOES.send_replace(true);
    assert!(ending.await.unwrap());
    assert_eq!(TAKEN.load(Ordering::SeqCst), FRAMES as u64);
    assert_eq!(rig.live.last_trouble(id), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_left_by_a_driver_that_does_not_end_are_reported_as_lost() {
    IS_STUBBORN.store(true, Ordering::SeqCst);
    let (rig, _publisher, id) = held_up().await;
    let stopped = rig.clock.passing(STEP, rig.live.stop(rig.stream.id, EndReason::Stopped)).await;
    assert!(stopped);
    let trouble = rig.live.last_trouble(id).expect("a reported loss");
    assert_eq!(trouble.what, lost_text(FRAMES as u64));
    GOES.send_replace(true);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(TAKEN.load(Ordering::SeqCst), 0, "packets counted as lost are not taken later");
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_not_taken_at_the_end_are_reported_as_lost_in_this_text() {
    let (rig, _publisher, id) = held_up().await;
    let (began, live, stream) = (rig.clock.monotonic(), rig.live.clone(), rig.stream.id);
    let ending = tokio::spawn(async move { live.stop(stream, EndReason::Stopped).await });
    let stopping = || IS_STOPPING.load(Ordering::SeqCst).then_some(());
    rig.clock.passing(STEP, rig.until("the stop request", stopping)).await;
    assert!(rig.clock.monotonic() - began >= SETTLE_MAX, "the session waited for it");
    assert!(ending.await.unwrap());
    let trouble = rig.live.last_trouble(id).expect("a reported loss");
    assert_eq!(
        trouble.what,
        format!("{FRAMES} packets were lost at the end: the destination did not take them within 10 s")
    );
}

fn large(number: i64) -> Packet {
    Packet { payload: vec![7; FRAME_BYTES].into(), ..video(number * 40, number % 30 == 0) }
}

#[test]
fn other_drivers_have_no_disk_behind_their_queues() {
    assert_eq!(drivers().spool("script"), None);
    assert_eq!(drivers().spool("nobody"), None);
}
