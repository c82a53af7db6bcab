//! Destinations of a live session: failures, changes, slow ones, and the driver behind them.

use super::*;
use crate::backoff;
use crate::destination::LOSS_WINDOW;
use crate::destination::run::{NO_MEDIA_TEXT, SLOW_REOPEN_TEXT};
use satcast_core::ids::AccountId;
use satcast_drivers::testing::PANIC;
use satcast_drivers::{ValidateError, silence};
use satcast_store::DestinationChange;

/// Owner of the configurations.
const ACCOUNT: AccountId = AccountId(1);

#[tokio::test(flavor = "multi_thread")]
async fn failures_show_the_reason_and_the_next_attempt() {
    let rig = Rig::new(&["network", "config", "panic", "live", "loopback"], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());

    let retrying = rig.until_state(0, DestState::Retrying).await;
    assert!(retrying.attempt >= 1 && retrying.next_retry_at >= Some(UnixMillis(5_000_250)), "{retrying:?}");
    let failed = rig.until_state(1, DestState::Failed).await;
    assert_eq!(failed.error.as_deref(), Some("this can never work"));
    let panicked = rig.until_state_later(2, DestState::Failed).await;
    assert!(panicked.error.unwrap().contains(PANIC));
    assert_eq!(panicked.attempt, backoff::PANICS_MAX);
    // On a busy machine the panics come first, and then the driver is away for a while.
    rig.until_state_later(3, DestState::Live).await;
    let guarded = rig.until_state_later(4, DestState::Failed).await;
    assert!(guarded.error.unwrap().contains("127.0.0.1"), "the outbound guard refuses loopback");
    assert!(rig.live.stop(rig.stream.id, EndReason::Stopped).await, "failed ones do not hold up the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_during_a_quarantine_do_not_count_for_the_destination() {
    let rig = Rig::new(&["panic", "panic"], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let (stream, drivers) = (rig.stream.id, drivers());
    rig.until_later("the quarantine", || drivers.is_away("script", rig.account).then_some(())).await;
    let id = rig
        .store
        .add_destination(&rig.owner(), stream, destination(json!({ "mode": "live" })), CAPS)
        .await
        .unwrap();
    rig.live.destinations_changed(stream).await;
    let mut next = None;
    for _ in 0..3 {
        rig.clock.advance(Duration::from_secs(70));
        let is_next =
            |seen: &DestinationSnapshot| seen.state == DestState::Retrying && seen.next_retry_at > next;
        let seen = rig.until_later("an attempt", || rig.live.destination(stream, id).filter(is_next)).await;
        assert_eq!(seen.attempt, 1);
        next = seen.next_retry_at;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_destination_is_retried_when_the_codec_changes() {
    let rig = Rig::new(&["config"], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let failed = rig.until_state(0, DestState::Failed).await;
    assert_eq!(failed.attempt, 1, "the first codec is no change");
    publisher.push(&mut group());
    publisher.push(&mut vec![Packet { codec: Codec::Hevc, ..config() }]);
    let is_second = |seen: &DestinationSnapshot| (seen.state, seen.attempt) == (DestState::Failed, 2);
    let seen = || rig.live.destination(rig.stream.id, rig.destinations[0]).filter(is_second);
    let again = rig.until_later("another attempt", seen).await;
    assert_eq!(again.error.as_deref(), Some("this can never work"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_added_while_the_encoder_is_away_waits_for_it() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    rig.until_session(SessionState::Live).await;
    drop(publisher);
    rig.until_session(SessionState::Reconnecting).await;
    let added = destination(json!({ "mode": "live" }));
    let id = rig.store.add_destination(&rig.owner(), rig.stream.id, added, CAPS).await.unwrap();
    rig.live.destinations_changed(rig.stream.id).await;
    let seen = || rig.live.destination(rig.stream.id, id).filter(|seen| seen.error.is_some());
    let waits = rig.until("the reason", seen).await;
    assert_eq!((waits.state, waits.bytes_sent), (DestState::Connecting, 0));
    assert_eq!(waits.error.as_deref(), Some(NO_MEDIA_TEXT));
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let seen = || rig.live.destination(rig.stream.id, id).filter(|seen| seen.state == DestState::Live);
    assert_eq!(rig.until("the destination", seen).await.error, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn destinations_come_and_go_while_live() {
    let rig = Rig::new(&["live"], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    rig.until_state(0, DestState::Live).await;

    let added = destination(json!({ "mode": "live", "token": "sesame-9" }));
    let id = rig.store.add_destination(&rig.owner(), rig.stream.id, added, CAPS).await.unwrap();
    rig.live.destinations_changed(rig.stream.id).await;
    let seen = || rig.live.destination(rig.stream.id, id).filter(|seen| seen.state == DestState::Live);
    let shown = rig.until("the added destination", seen).await;
    assert_eq!(shown.bytes_sent, 4_000, "it begins with the kept GOP, before any new media");

    rig.store.delete_destination(&rig.owner(), Some(rig.stream.id), id).await.unwrap();
    rig.live.destinations_changed(rig.stream.id).await;
    assert_eq!(rig.live.destination(rig.stream.id, id), None);
    publisher.push(&mut vec![video(99, false)]);
    let sent = || rig.live.destination(rig.stream.id, rig.destinations[0]).filter(|d| d.bytes_sent == 5_000);
    rig.until("the other one to go on", sent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_configuration_reaches_a_running_destination_or_opens_it_again() {
    let rig = Rig::new(&["steady"], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    rig.until_state(0, DestState::Live).await;
    let (stream, id) = (rig.stream.id, rig.destinations[0]);
    let change = async |config: Value| {
        let change = DestinationChange { config: Some(config), ..Default::default() };
        rig.store.change_destination(&rig.owner(), stream, id, change).await.unwrap();
        rig.live.destinations_changed(stream).await;
    };
    let sent = |bytes| move |seen: &DestinationSnapshot| seen.bytes_sent == bytes;
    let until_sent = async |bytes| {
        let seen = || rig.live.destination(stream, id).filter(sent(bytes));
        rig.until("the bytes", seen).await
    };
    until_sent(4_000).await;
    change(json!({ "mode": "steady", "token": "sesame-7" })).await;
    publisher.push(&mut vec![video(99, false)]);
    until_sent(5_000).await;
    change(json!({ "mode": "live" })).await;
    rig.until_state(0, DestState::Live).await;
    let seen = || rig.live.destination(stream, id).filter(|seen| seen.bytes_sent >= 5_000);
    let again = rig.until("a new opening", seen).await;
    assert_eq!(again.bytes_sent, 5_000, "the new opening got the kept GOP, with new counters");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_in_a_driver_event_is_shown_while_it_is_used() {
    let rig = Rig::new(&["flaky", "live"], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let shown = rig.until_state(0, DestState::Live).await;
    assert_eq!(shown.server.as_deref(), Some("backup.example:1935"));
    assert_eq!(rig.until_state(1, DestState::Live).await.server, None, "its driver reports none");
    let poison = Bytes::from_static(&[9; satcast_drivers::testing::POISON_BYTES]);
    publisher.push(&mut vec![Packet { payload: poison, ..super::video(99, false) }]);
    assert_eq!(rig.until_state(0, DestState::Retrying).await.server, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_stalled_destination_loses_packets_and_it_does_not_delay_the_end() {
    let mut rig = Rig::new(&["deaf", "live"], Duration::from_secs(30)).await;
    rig.live = rig.live.with_stop_deadline(Duration::from_millis(200));
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut vec![config(), video(0, true)]);
    rig.until_state(1, DestState::Live).await;
    let sent = || rig.live.destination(rig.stream.id, rig.destinations[1]).map(|good| good.bytes_sent);
    for n in 1..2_000 {
        rig.clock.advance(Duration::from_millis(33));
        publisher.push(&mut vec![video(n * 33, n % 60 == 0)]);
        // The good one gets time, so that only the stalled one can lose packets.
        if n % 100 == 0 {
            rig.until("the good one", || (sent() == Some(2_000 + n as u64 * 1_000)).then_some(())).await;
        }
    }
    let both = || {
        let [deaf, good] = [0, 1].map(|n| rig.live.destination(rig.stream.id, rig.destinations[n]));
        let (deaf, good) = (deaf?, good?);
        (deaf.dropped_packets > 1_700 && good.bytes_sent == 2_001_000).then_some(good.dropped_packets)
    };
    assert_eq!(rig.until("losses on one side only", both).await, 0);
    assert!(rig.live.stop(rig.stream.id, EndReason::Stopped).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_loses_too_much_for_too_long_is_reopened() {
    const SECONDS_MAX: i64 = 600;
    let mut rig = Rig::new(&["lame", "live"], Duration::from_secs(3_600)).await;
    // The clock runs while it ends.
    rig.live = rig.live.with_stop_deadline(LOSS_WINDOW * 100);
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut vec![config(), video(0, true)]);
    rig.until_state(0, DestState::Live).await;
    rig.until_state(1, DestState::Live).await;
    let shown = |index: usize| rig.live.destination(rig.stream.id, rig.destinations[index]).unwrap();
    let patience = satcast_core::config::QueueLimits::default().reopen_secs;
    let mut second = 0;
    while shown(0).state != DestState::Retrying {
        second += 1;
        assert!(second < SECONDS_MAX, "{:?}", shown(0));
        rig.clock.advance(Duration::from_secs(1));
        let before = [0, 1].map(|index| shown(index).bytes_sent);
        publisher.push(&mut vec![video(second * 1_000, true)]);
        rig.until("the good one", || (shown(1).bytes_sent > before[1]).then_some(())).await;
        // The slow one sends until it is stopped.
        for _ in 0..100 {
            if shown(0).bytes_sent > before[0] {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let (since, other) = (shown(0), shown(1));
    let error = since.error.unwrap_or_default();
    assert!(error == SLOW_REOPEN_TEXT && since.next_retry_at.is_some(), "{error}");
    assert!(second.unsigned_abs() >= patience, "{second}");
    // On a busy machine a sample that is late may have shown it as stalled, which begins `live_since` again.
    assert_eq!(
        (other.attempt, other.dropped_packets),
        (0, 0),
        "the destination that keeps up is not affected"
    );
    rig.until_state_later(0, DestState::Live).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configurations_are_checked_by_schema_then_driver() {
    let drivers = drivers();
    assert_eq!(drivers.known_types(), ["script", "shown"]);
    assert!(
        drivers.has_playback("shown") && !drivers.has_playback("script") && !drivers.has_playback("none")
    );
    drivers.validate(ACCOUNT, "script", &json!({ "mode": "live" })).await.unwrap();
    let unknown = drivers.validate(ACCOUNT, "other", &json!({})).await;
    assert_eq!(unknown, Err(ValidateError::UnknownType));
    let refused = drivers.validate(ACCOUNT, "script", &json!({ "mode": "live", "nonsense": "sesame" })).await;
    let Err(ValidateError::Config(refused)) = refused else { panic!("{refused:?}") };
    assert!(!refused.reason.contains("sesame"), "{refused:?}");
    let Err(ValidateError::Config(refused)) =
        drivers.validate(ACCOUNT, "script", &json!({ "mode": "bad" })).await
    else {
        panic!("accepted")
    };
    assert_eq!((refused.field.as_str(), refused.reason.as_str()), ("mode", "is bad"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_hangs_gets_no_calls_until_it_returns() {
    // A separate driver, so that other tests do not wait for it.
    satcast_plugin_api::driver_entry!(hanging_entry, satcast_drivers::testing::Scripted);
    let drivers = satcast_drivers::testing::start(hanging_entry);
    let asked = drivers.validate(ACCOUNT, "script", &json!({ "mode": "hang" })).await;
    let Err(ValidateError::Driver(reason)) = asked else { panic!("{asked:?}") };
    assert!(reason.contains(&silence("script")), "{reason}");
    let refused = drivers.validate(ACCOUNT, "script", &json!({ "mode": "live" })).await;
    assert!(matches!(refused, Err(ValidateError::Driver(_))), "no call while it hangs");
    for _ in 0..500 {
        if drivers.validate(ACCOUNT, "script", &json!({ "mode": "live" })).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the driver was not used again after it returned");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_is_live_only_while_it_sends_bytes() {
    let rig = Rig::new(&["mute", "live"], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    rig.until_state(0, DestState::Live).await;
    rig.until_state(1, DestState::Live).await;
    rig.clock.advance(Duration::from_secs(1));
    let sampled = || rig.live.destination(rig.stream.id, rig.destinations[1]).filter(|good| good.bitrate > 0);
    assert_eq!(rig.until("a sample of the bit rate", sampled).await.bitrate, 32_000);
    rig.clock.advance(Duration::from_secs(6));
    for n in 0..2 {
        let stalled = rig.until_state(n, DestState::Connecting).await;
        assert_eq!((stalled.error.as_deref(), stalled.live_since), (Some("nothing was sent for 5 s"), None));
        assert!(rig.live.last_trouble(rig.destinations[n]).is_some());
    }
    publisher.push(&mut vec![video(99, false)]);
    rig.until_state_later(1, DestState::Live).await;
    rig.clock.advance(Duration::from_secs(1));
    rig.until_state(0, DestState::Connecting).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_encoder_is_no_trouble_of_its_destinations() {
    let rig = Rig::new(&["live"], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    rig.until_state(0, DestState::Live).await;
    rig.clock.advance(Duration::from_secs(1));
    let sampled = || rig.live.destination(rig.stream.id, rig.destinations[0]).filter(|good| good.bitrate > 0);
    rig.until("a sample of the bit rate", sampled).await;
    drop(publisher);
    rig.clock.advance(Duration::from_secs(6));
    rig.until_state(0, DestState::Connecting).await;
    assert_eq!(rig.live.last_trouble(rig.destinations[0]), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn published_assets_are_available_until_some_time_after_the_end() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let mut added = destination(json!({ "mode": "show" }));
    let plain = rig.store.add_destination(&rig.owner(), rig.stream.id, added.clone(), CAPS).await.unwrap();
    added.kind = "shown".into();
    let id = rig.store.add_destination(&rig.owner(), rig.stream.id, added, CAPS).await.unwrap();
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let facts = || rig.live.opening(id)?.assets().playback();
    assert_eq!(rig.until("the playback facts", facts).await.window_ms, 2_000);
    assert!(rig.live.opening(plain).is_none(), "its type has no playback");
    let opening = rig.live.opening(id).unwrap();
    assert!(opening.assets().get("index.m3u8").is_some());

    assert!(rig.live.stop(rig.stream.id, EndReason::Stopped).await);
    assert!(rig.live.opening(id).is_none());
    let session = opening.session.as_str().to_owned();
    assert!(rig.live.opening_of(id, &session, "index.m3u8").is_some_and(|ended| ended.ended()));
    rig.clock.advance(satcast_drivers::published::KEPT_AFTER_END);
    assert!(rig.live.opening_of(id, &session, "index.m3u8").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn delays_apply_to_starts_and_stops_but_not_to_the_end_of_the_session() {
    let rig = Rig::new(&["live"], Duration::from_secs(30)).await;
    let (stream, id) = (rig.stream.id, rig.destinations[0]);
    let change = async |change: DestinationChange| {
        rig.store.change_destination(&rig.owner(), stream, id, change).await.unwrap();
        rig.live.destinations_changed(stream).await;
    };
    let delays = |start, stop| DestinationChange {
        start_delay_secs: Some(start),
        stop_delay_secs: Some(stop),
        ..Default::default()
    };
    let enabled = |enabled| DestinationChange { enabled: Some(enabled), ..Default::default() };
    change(delays(10, 20)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let delayed = rig.until("its wait", || rig.live.delayed(stream, id)).await;
    assert_eq!(delayed, Delayed::StartsAt(UnixMillis(5_010_000)));
    assert_eq!(rig.live.destination(stream, id), None);
    rig.clock.advance(Duration::from_secs(10));
    rig.until_state(0, DestState::Live).await;
    assert_eq!(rig.live.delayed(stream, id), None);

    change(enabled(false)).await;
    assert_eq!(rig.live.delayed(stream, id), Some(Delayed::StopsAt(UnixMillis(5_030_000))));
    rig.clock.advance(Duration::from_secs(19));
    rig.live.destinations_changed(stream).await;
    assert!(rig.live.destination(stream, id).is_some(), "it still runs");
    change(enabled(true)).await;
    assert_eq!(rig.live.delayed(stream, id), None, "the same opening continues");
    publisher.push(&mut vec![video(99, true)]);
    rig.until_state(0, DestState::Live).await;
    change(enabled(false)).await;
    rig.clock.advance(Duration::from_secs(20));
    rig.until("its end", || rig.live.destination(stream, id).is_none().then_some(())).await;

    change(delays(0, 300)).await;
    change(enabled(true)).await;
    publisher.push(&mut vec![video(132, true)]);
    rig.until_state(0, DestState::Live).await;
    change(enabled(false)).await;
    assert!(rig.live.delayed(stream, id).is_some());
    assert!(rig.live.stop(stream, EndReason::Stopped).await, "the end of the session waits for no delay");
    assert_eq!(rig.live.delayed(stream, id), None);
}

#[test]
fn destination_error_texts() {
    assert_eq!(
        NO_MEDIA_TEXT,
        "no media from the encoder; the destination connects when the encoder sends again"
    );
    assert_eq!(
        SLOW_REOPEN_TEXT,
        "the destination took less than 80% of the stream for too long, so it reconnects; lower the bit rate or check \
         the network path to the destination"
    );
}
