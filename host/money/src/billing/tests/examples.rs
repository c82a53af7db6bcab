//! The agreed examples; each test is named after its example.

use std::time::Duration;

use crate::billing;
use crate::billing::minutes::Minutes;
use crate::billing::testing::{Rig, Session, TRIES_MAX, stream};
use satcast_core::ids::{EndReason, Msat, Sats};
use satcast_store::{Page, Returning, StreamLimits, TransferKind};
use satcast_usage::{Beginning, Gate as _, Held};

#[tokio::test]
async fn charge_of_a_minute_c_constant_a_off_at_20_b_on_at_30_is_2_sats() {
    let rig = Rig::new(100).await;
    let session = rig.begin(None).await;
    session.on(2).await;
    session.on(0).await;
    session.at(20).await;
    session.off(0).await;
    session.at(30).await;
    session.on(1).await;
    session.at(59).await;
    assert_eq!((session.sats().await, rig.balance().await), (2, 98_000));
}

#[tokio::test]
async fn charge_of_a_minute_b_on_before_a_is_off_is_4_sats() {
    let rig = Rig::new(100).await;
    let session = rig.begin(None).await;
    session.on(2).await;
    session.on(0).await;
    session.at(20).await;
    session.on(1).await;
    session.at(30).await;
    session.off(0).await;
    for _ in 0..5 {
        session.on(0).await;
        session.off(1).await;
        session.on(1).await;
        session.off(0).await;
    }
    assert_eq!(session.sats().await, 4, "changes below the largest number cost nothing more");
}

#[tokio::test]
async fn charge_with_rtmp_in_retrying_from_0_58_to_2_03_beside_one_free() {
    let rig = Rig::new(100).await;
    let session = rig.begin(None).await;
    session.on(0).await;
    session.on(1).await;
    assert_eq!(session.sats().await, 2, "minute 1");
    session.at(58).await;
    session.off(1).await;
    session.at(122).await;
    assert_eq!(session.sats().await, 2, "minute 2 is free");
    session.at(123).await;
    session.on(1).await;
    assert_eq!(session.sats().await, 4, "minute 3 at 2:03");
    let entries = rig.store.statement(rig.account, Page::ALL).await.unwrap();
    let minutes: Vec<_> = entries.iter().filter_map(|entry| entry.minute).collect();
    assert_eq!(minutes, [2, 0]);
}

#[tokio::test]
async fn free_platforms_are_per_session_two_sessions_with_one_destination_each_cost_0() {
    let rig = Rig::new(100).await;
    let (other, destinations) = stream(&rig.store, rig.account, "live", 1).await;
    let (one, two) = (rig.begin(None).await, rig.begin_of(other, StreamLimits::default()).await);
    one.on(0).await;
    two.usage.forwards(destinations[0], two.now());
    one.at(200).await;
    two.wait_settled().await;
    assert_eq!((one.sats().await, two.sats().await, rig.balance().await), (0, 0, 100_000));
}

#[tokio::test]
async fn rate_per_minute_is_the_cost_of_a_full_minute_with_the_current_destinations() {
    let rig = Rig::new(100).await;
    let session = rig.begin(Some(20)).await;
    let rate = || rig.billing.cost(&session.id).unwrap().rate;
    let ends_in = || {
        let ends_at = rig.billing.cost(&session.id).unwrap().ends_at?;
        Some((ends_at.0 - rig.clock.now().0) / 1_000)
    };
    assert_eq!((rate(), ends_in()), (Msat(0), None));
    for (index, sats) in [(0, 0), (1, 2), (2, 4)] {
        session.on(index).await;
        assert_eq!(rate(), Sats(sats).to_msat().unwrap());
    }
    assert_eq!(ends_in(), Some(300), "4 of 20 are charged: four minutes more after this one");
    session.off(0).await;
    assert_eq!((rate(), ends_in()), (Msat(2_000), Some(540)));
    session.at(61).await;
    assert_eq!(session.sats().await, 6);
    let second = rig.begin(None).await;
    for index in 0..3 {
        second.usage.forwards(rig.destinations[index], second.now());
    }
    second.wait_settled().await;
    let ends_at = rig.billing.cost(&second.id).unwrap().ends_at.unwrap();
    assert_eq!(rig.balance().await, 90_000);
    assert_eq!(
        (ends_at.0 - rig.clock.now().0) / 60_000,
        16,
        "90 sats at 2 + 4 a minute: 15 more after this one"
    );
}

#[tokio::test]
async fn minutes_inside_the_reconnect_window_have_no_opening_charge() {
    let rig = Rig::new(100).await;
    let session = rig.begin(None).await;
    session.on(0).await;
    session.on(1).await;
    session.at(50).await;
    session.usage.flows(false, session.now());
    session.at(185).await;
    assert_eq!(session.sats().await, 2);
    assert_eq!(rig.billing.cost(&session.id).unwrap().rate, Msat(0));
    session.usage.flows(true, session.now());
    session.wait_settled().await;
    assert_eq!(session.sats().await, 4, "charged when media returns");
    session.at(239).await;
    session.usage.flows(false, session.now());
    session.usage.flows(true, session.now());
    session.wait_settled().await;
    assert_eq!(session.sats().await, 4, "once in this minute");
}

#[tokio::test]
async fn max_sats_9_with_3_destinations_at_2_sats_4_8_ends_at_120_s_with_8_and_history_0_4_4() {
    let rig = Rig::new(100).await;
    let session = rig.begin(Some(9)).await;
    for index in 0..3 {
        session.on(index).await;
    }
    assert_eq!(session.sats().await, 4);
    session.at(119).await;
    assert_eq!((session.sats().await, session.end()), (8, None));
    session.at(120).await;
    assert_eq!((session.sats().await, session.end()), (8, Some(EndReason::MaxSats)));
    session.at(400).await;
    session.finish().await;
    assert_eq!(session.sats().await, 8, "nothing after the end");
    assert_eq!(rig.history(&session.id).await, [4, 4], "the free destination has its row from live");
    let all = rig.destinations[..3].to_vec();
    rig.store.begin_forwarding(&session.id, &all, rig.clock.now()).await.unwrap();
    rig.store.end_session(&session.id, rig.clock.now(), EndReason::MaxSats).await.unwrap();
    let mut costs = rig.history(&session.id).await;
    costs.sort_unstable();
    assert_eq!(costs, [0, 4, 4]);
    assert_eq!(costs.iter().sum::<i64>(), session.sats().await);
    rig.check().await;
}

#[tokio::test]
async fn max_sats_8_ends_at_120_s_with_8_even_if_only_the_free_one_is_left() {
    let rig = Rig::new(100).await;
    let session = rig.begin(Some(8)).await;
    for index in 0..3 {
        session.on(index).await;
    }
    session.at(70).await;
    session.off(1).await;
    session.off(2).await;
    session.at(119).await;
    assert_eq!((session.sats().await, session.end()), (8, None));
    session.at(120).await;
    assert_eq!((session.sats().await, session.end()), (8, Some(EndReason::MaxSats)));
}

#[tokio::test]
async fn growth_the_budget_does_not_allow_is_not_started_and_the_session_goes_on() {
    let rig = Rig::new(100).await;
    let session = rig.begin(Some(3)).await;
    session.on(0).await;
    session.on(1).await;
    session.on(2).await;
    assert_eq!((session.held(1), session.held(2)), (None, Some(Held::Budget)));
    // A destination that was live before the refusal.
    session.usage.forwards(rig.destinations[3], session.now());
    session.wait_settled().await;
    assert_eq!(session.held(3), Some(Held::Budget));
    assert_eq!((session.sats().await, session.end()), (2, None));
    session.off(0).await;
    assert_eq!(session.held(2), None, "a slot that is paid is free again");
    session.on(2).await;
    session.on(3).await;
    assert_eq!((session.held(2), session.held(3)), (None, Some(Held::Budget)));
    session.usage.limits(StreamLimits { max_sats: Some(50), max_duration_minutes: None });
    session.wait_settled().await;
    assert_eq!(session.held(3), None, "a change takes effect at once");
    session.on(3).await;
    assert_eq!(session.sats().await, 4);
    session.usage.limits(StreamLimits { max_sats: Some(3), max_duration_minutes: None });
    assert_eq!(session.end(), Some(EndReason::MaxSats), "lowered below the charges");
}

#[tokio::test]
async fn balance_1_two_destinations_accepted_the_second_stays_stopped() {
    let rig = Rig::new(1).await;
    assert_eq!(rig.billing.admit(&rig.record().await).await, Ok(()));
    let session = rig.begin(None).await;
    session.on(0).await;
    session.on(1).await;
    assert_eq!(session.held(1), Some(Held::InsufficientFunds));
    session.at(300).await;
    assert_eq!((session.end(), session.held(1)), (None, Some(Held::InsufficientFunds)));
    assert_eq!((session.sats().await, rig.balance().await), (0, 1_000));
    rig.credit(5).await;
    session.at(310).await;
    for _ in 0..TRIES_MAX {
        if session.held(1).is_none() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    session.on(1).await;
    assert_eq!((session.held(1), session.sats().await), (None, 2), "money came");
}

#[tokio::test]
async fn a_balance_used_up_by_another_session_holds_live_destinations() {
    let rig = Rig::new(3).await;
    let (one, two) = (rig.begin(None).await, rig.begin(None).await);
    one.on(0).await;
    one.on(1).await;
    two.usage.forwards(rig.destinations[2], two.now());
    two.usage.forwards(rig.destinations[3], two.now());
    two.wait_settled().await;
    assert_eq!((one.sats().await, two.sats().await, rig.balance().await), (2, 0, 1_000));
    assert_eq!((two.held(3), two.end()), (Some(Held::InsufficientFunds), None));
    rig.check().await;
}

#[tokio::test]
async fn balance_too_little_for_a_minutes_opening_ends_the_session_insufficient_funds() {
    let rig = Rig::new(5).await;
    let session = rig.begin(None).await;
    session.on(0).await;
    session.on(1).await;
    session.at(119).await;
    assert_eq!((session.sats().await, session.end()), (4, None));
    session.at(120).await;
    assert_eq!((session.end(), rig.balance().await), (Some(EndReason::InsufficientFunds), 1_000));
    session.usage.ends(session.now());
    session.usage.settled().await;
    let ended_at = rig.clock.now();
    rig.store.end_session(&session.id, ended_at, EndReason::InsufficientFunds).await.unwrap();
    let refused = rig.billing.admit(&rig.record().await).await.unwrap_err();
    assert_eq!(refused, billing::STARVED);
    rig.clock.advance(Duration::from_secs(1));
    rig.credit(1).await;
    assert_eq!(rig.billing.admit(&rig.record().await).await, Ok(()), "money came");
    rig.check().await;
}

#[tokio::test]
async fn balance_publish_is_refused_only_when_nothing_could_run() {
    let none_free = "[pricing]\nfree_platforms = 0";
    let rig = Rig::with(1, none_free, "live", 1).await;
    let refused = rig.billing.admit(&rig.record().await).await.unwrap_err();
    assert_eq!(refused, billing::TOO_LITTLE);
    rig.credit(1).await;
    assert_eq!(rig.billing.admit(&rig.record().await).await, Ok(()));
    let rig = Rig::with(0, "", "live", 1).await;
    assert_eq!(rig.billing.admit(&rig.record().await).await, Ok(()), "the first destination is free");
    let rig = Rig::with(0, "[pricing]\nfree_platforms = 0\n[billing]\nmode = \"off\"", "live", 1).await;
    assert_eq!(rig.billing.admit(&rig.record().await).await, Ok(()), "nothing costs anything");
}

#[tokio::test]
async fn max_duration_minutes_charges_no_minute_that_would_open_at_its_end() {
    let rig = Rig::new(100).await;
    let limits = StreamLimits { max_sats: None, max_duration_minutes: Some(2) };
    let session = rig.begin_of(rig.stream, limits).await;
    session.on(0).await;
    session.on(1).await;
    session.at(119).await;
    rig.clock.advance(Duration::from_secs(1));
    // Calls that come before the session's own timer ends it open no minute.
    session.usage.pauses(rig.destinations[4], session.now());
    session.usage.ends(session.now());
    session.usage.settled().await;
    assert_eq!(session.sats().await, 4);
}

#[tokio::test]
async fn prices_are_copied_onto_the_session_at_its_start() {
    let rig = Rig::new(100).await;
    let session = rig.begin(None).await;
    let dear = Rig::with(100, "[pricing]\ncost_per_platform = 7\nfree_platforms = 0", "live", 1).await;
    let other = dear.begin(None).await;
    session.on(0).await;
    session.on(1).await;
    other.on(0).await;
    assert_eq!((session.sats().await, other.sats().await), (2, 7));
}

#[tokio::test]
async fn modes_off_is_free_and_wallet_is_like_credit() {
    for (mode, sats) in [("off", 0), ("credit", 2), ("wallet", 2)] {
        let rig = Rig::with(100, &format!("[wallet]\ntype = \"lnbits\"\nurl = \"https://ln.example\"\nsecret = \"x\"\n[billing]\nmode = \"{mode}\""), "live", 2).await;
        let session = rig.begin(Some(1_000)).await;
        session.on(0).await;
        session.on(1).await;
        session.at(59).await;
        assert_eq!(session.sats().await, sats, "{mode}");
        assert_eq!(rig.billing.cost(&session.id).is_some(), mode != "off", "{mode}");
        session.finish().await;
    }
}

#[tokio::test]
async fn a_single_charge_is_taken_once_and_a_refund_is_an_entry_of_its_own() {
    let rig = Rig::new(500).await;
    let charge = |attempt: u32| satcast_store::SingleCharge {
        account: rig.account,
        amount: Sats(360).to_msat().unwrap(),
        kind: "single",
        idem: format!("single:1:{attempt}"),
        destination: None,
        now: rig.clock.now(),
    };
    for _ in 0..2 {
        let charged = rig.store.charge_once(&charge(1)).await.unwrap();
        assert!(matches!(charged, satcast_store::Charged::Posted(totals) if totals.balance == Msat(140_000)));
    }
    let refused = rig.store.charge_once(&charge(2)).await.unwrap();
    assert!(
        matches!(refused, satcast_store::Charged::Insufficient(totals) if totals.balance == Msat(140_000))
    );
    assert!(rig.store.refund("single:1:1", rig.clock.now()).await.unwrap());
    assert!(!rig.store.refund("single:1:1", rig.clock.now()).await.unwrap(), "once");
    assert!(rig.store.refund("single:1:2", rig.clock.now()).await.is_err(), "never charged");
    let entries = rig.store.statement(rig.account, Page::ALL).await.unwrap();
    let shown: Vec<_> = entries.iter().map(|entry| (entry.kind.as_str(), entry.amount.0)).collect();
    let promotion = TransferKind::Promotion.as_str();
    assert_eq!(shown, [("refund", 360_000), ("single", -360_000), (promotion, 500_000)]);
    assert_eq!(rig.balance().await, 500_000);
    rig.check().await;
}

#[tokio::test]
async fn a_database_that_fails_for_minutes_loses_no_charge_and_repeats_none() {
    let rig = Rig::new(100).await;
    let session = rig.begin(Some(12)).await;
    session.on(0).await;
    session.on(1).await;
    let mut intruder = rig.intruder().await;
    intruder.hide_transfers(true).await;
    for secs in [60, 120, 180] {
        let at = session.began + Duration::from_secs(secs);
        rig.clock.advance(at.saturating_sub(rig.clock.monotonic()));
        tokio::task::yield_now().await;
    }
    session.usage.forwards(rig.destinations[2], session.now());
    assert_eq!((session.sats().await, session.end()), (2, None), "the session goes on");
    intruder.hide_transfers(false).await;
    session.wait_settled().await;
    assert_eq!(session.sats().await, 10, "three minutes, and the destination that started");
    session.at(240).await;
    assert_eq!((session.sats().await, session.end()), (10, Some(EndReason::MaxSats)));
    rig.check().await;
}

#[tokio::test]
async fn a_session_ends_when_the_queue_of_charges_is_full() {
    use crate::billing::minutes::WAITING_MAX;
    let rig = Rig::with(100, "[pricing]\nfree_platforms = 0", "live", 5).await;
    let session = rig.begin(None).await;
    rig.intruder().await.hide_transfers(true).await;
    rig.destinations.iter().for_each(|id| session.usage.forwards(*id, session.now()));
    let minutes = u64::try_from(WAITING_MAX / 5).unwrap();
    let ends = |minutes: u64| {
        let at = session.began + Duration::from_secs(60 * minutes);
        rig.clock.advance(at.saturating_sub(rig.clock.monotonic()));
        session.usage.claims(rig.destinations[0]);
        session.end()
    };
    assert_eq!(ends(minutes - 1), None);
    assert_eq!(ends(minutes), Some(EndReason::Error));
}

#[test]
fn refusals_of_encoders_texts() {
    assert_eq!(
        billing::REFILLING,
        "the account's balance is being refilled by its wallet; try again in a moment"
    );
    assert_eq!(
        billing::STARVED,
        "the stream ended because the account's balance was used up; add credit to the account"
    );
    assert_eq!(
        billing::TOO_LITTLE,
        "the account's balance does not cover one destination; add credit to the account"
    );
}

#[tokio::test]
async fn charge_of_a_session_that_goes_on_at_another_node_is_once_for_each_slot() {
    let rig = Rig::new(100).await;
    let session = rig.begin(None).await;
    for index in 0..3 {
        session.on(index).await;
    }
    session.at(70).await;
    session.usage.ends(session.now());
    session.usage.settled().await;
    assert_eq!(session.sats().await, 8);
    rig.clock.advance(Duration::from_secs(10));
    let (before, terms) = (Duration::from_secs(80), rig.billing.terms());
    let returning = Returning {
        session: session.id.clone(),
        started_at: rig.clock.now(),
        terms,
        charged: Msat(8_000),
        lasted: before,
        position: before,
        until_ms: 0,
    };
    let beginning = Beginning {
        session: session.id.clone(),
        stream: rig.stream,
        account: rig.account,
        began: session.now(),
        returning: Some(returning),
        terms,
        limits: StreamLimits::default(),
    };
    let usage = rig.billing.begin(beginning).await;
    usage.flows(true, session.now());
    let there = Session { rig: &rig, id: session.id.clone(), usage, began: session.now() };
    for index in [2, 0, 1] {
        there.on(index).await;
    }
    assert_eq!(there.sats().await, 8, "the slots of this minute are charged");
    there.on(3).await;
    assert_eq!(there.sats().await, 10, "one more");
    there.at(39).await;
    assert_eq!(there.sats().await, 10, "the same minute");
    there.at(41).await;
    assert_eq!(there.sats().await, 16, "the next minute");
    there.finish().await;
    rig.check().await;
}

#[test]
fn minutes_go_on_at_a_node_that_started_after_the_session() {
    let secs = Duration::from_secs;
    let mut minutes = Minutes::resumed(secs(5), secs(3_630), 0);
    while minutes.next_opening() <= secs(5) {
        minutes.open_next();
    }
    assert_eq!((minutes.number(), minutes.next_opening()), (60, secs(35)));
}
