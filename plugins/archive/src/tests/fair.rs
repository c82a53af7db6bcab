//! What one account, one store or one encoder does, others do not feel.

use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::Duration;

use satcast_plugin_api::Error;
use satcast_plugin_api::driver::RecordingState;

use super::kit::{Kit, limits, until};
use super::media::{AVC, OTHER_AVC, packet, record, video_of};
use super::server::{ACCESS_KEY, SECRET_KEY};
use crate::config::Target;
use crate::full::{SPOOL_FULL, TOO_MANY, stopped, too_often};
use crate::limits::Limits;
use crate::recorder::Order;
use crate::upload::sockets::Times;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Three megabytes.
fn stream() -> Vec<satcast_media::Packet> {
    video_of(AVC, 0, 300, 50, 10_000)
}

/// Records until the end, or until it is refused.
fn try_to_record(kit: &Kit, order: Order, packets: Vec<satcast_media::Packet>) -> Result<(), Error> {
    let mut recorder = kit.recorder(order);
    kit.run(async {
        for packet in packets {
            recorder.push(packet);
            recorder.write().await?;
        }
        recorder.finish().await
    })
}

/// A store that takes connections and never answers, and a destination's order for it.
fn dead_store(kit: &Kit, account: i64, session: &str) -> (TcpListener, Order) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target {
        endpoint: format!("http://{}", listener.local_addr().unwrap()),
        region: "us-east-1".into(),
        bucket: "dead".into(),
        prefix: String::new(),
        access_key: ACCESS_KEY.into(),
        secret_key: SECRET_KEY.into(),
        path_style: true,
    };
    let sealed = target.sealed(&*kit.host).unwrap();
    let order = Order { own: Some((target, sealed)), ..kit.order_of(account, session) };
    (listener, order)
}

#[test]
fn failures_of_one_account_do_not_push_out_the_copies_of_another() {
    let kit = Kit::with(Limits { failed_quota: 7_000_000, ..limits() });
    kit.host.is_down.store(true, Ordering::SeqCst);
    for (account, session) in [(1, "mine"), (2, "theirs1"), (2, "theirs2"), (2, "theirs3")] {
        kit.record_for(kit.order_of(account, session), stream());
        kit.until_failing();
        kit.host.ahead_ms.fetch_add(DAY_MS + 1000, Ordering::SeqCst);
        kit.until_all(RecordingState::Failed);
    }
    assert!(until(|| kit.files("spool").len() == 2), "{:?}", kit.files("spool"));
    // Mine is the oldest of all, and stays.
    let has_copy = |session: &str| kit.of(session)[0].has_copy;
    assert_eq!(["mine", "theirs1", "theirs2", "theirs3"].map(has_copy), [true, false, false, true]);
}

#[test]
fn one_account_leaves_disk_space_to_others() {
    let kit = Kit::with(Limits { spool_quota: 13_000_000, ..limits() });
    kit.host.is_down.store(true, Ordering::SeqCst);
    for round in 0..3 {
        try_to_record(&kit, kit.order_of(1, &format!("greedy{round}")), stream()).unwrap();
    }
    let refused = try_to_record(&kit, kit.order_of(1, "greedy3"), stream()).unwrap_err();
    assert_eq!(refused, stopped(SPOOL_FULL));
    try_to_record(&kit, kit.order_of(2, "modest"), stream()).unwrap();
    assert_eq!(kit.of("modest")[0].duration_ms, 12_000);
}

#[test]
fn one_account_leaves_journal_slots_to_others() {
    let kit = Kit::with(Limits { known: 8, ..limits() });
    kit.host.is_down.store(true, Ordering::SeqCst);
    let short = || video_of(AVC, 0, 50, 50, 100);
    for round in 0..6 {
        try_to_record(&kit, kit.order_of(1, &format!("greedy{round}")), short()).unwrap();
    }
    let refused = try_to_record(&kit, kit.order_of(1, "greedy6"), short()).unwrap_err();
    assert_eq!(refused, stopped(TOO_MANY));
    for round in 0..2 {
        try_to_record(&kit, kit.order_of(2, &format!("modest{round}")), short()).unwrap();
    }
}

#[test]
fn a_dead_store_does_not_hold_up_the_uploads_of_others() {
    let hour = Duration::from_secs(3600);
    let times = Times { connect: hour, stall: hour, answer: hour };
    let kit = Kit::with(Limits { requests_at_once: 4, parts_mib: 32, times, ..limits() });
    let mut dead = Vec::new();
    for round in 0..6 {
        let (listener, order) = dead_store(&kit, 1, &format!("dead{round}"));
        dead.push(listener);
        kit.record_for(order, video_of(AVC, 0, 300, 50, 40_000));
    }
    kit.record_for(kit.order_of(2, "alive"), video_of(AVC, 0, 300, 50, 40_000));
    assert!(until(|| kit.of("alive")[0].state == RecordingState::Ready), "{:?}", kit.recordings());
    assert!(kit.recordings().iter().filter(|one| one.state == RecordingState::Uploading).count() == 6);
}

#[test]
fn an_encoder_that_changes_its_configuration_all_the_time_stops_its_recording_alone() {
    let kit = Kit::with(Limits { files_per_minute: 3, ..limits() });
    let changing = |rounds: i64| {
        (0..rounds).flat_map(|round| {
            let config = if round % 2 == 0 { AVC } else { OTHER_AVC };
            [record(config), packet(config, true, round * 40, 100)]
        })
    };
    let refused = try_to_record(&kit, kit.order("s1"), changing(20).collect()).unwrap_err();
    let pause = refused.retry_after.unwrap();
    assert_eq!(refused, too_often(3, pause));
    assert!((Duration::from_secs(1)..=Duration::from_secs(60)).contains(&pause), "{pause:?}");
    kit.until_all(RecordingState::Ready);
    assert_eq!(kit.recordings().len(), 3, "what was recorded is kept");
    // A new opening begins no count of its own, and another destination does not feel it.
    try_to_record(&kit, kit.order("s2"), changing(1).collect()).unwrap_err();
    try_to_record(&kit, kit.order_of(9, "s3"), stream()).unwrap();
    assert_eq!(kit.of("s3").len(), 1);
}
