//! Every step of refills and top-ups, and each way in which it can fail.

use super::*;
use crate::billing::{Refilled, Refills as _};
use crate::wallet::desk::{DeskError, TOPUPS_OPEN_MAX};
use crate::wallet::lightning::Fault;
use crate::wallet::rules::{ASK_LATE_MS, END_MARGIN_MS, FEE_REST_MS, RETRY_WAITS_MS};
use satcast_store::{Stage, StoreError};

fn refilled(times: usize) -> Vec<(String, i64)> {
    vec![("refill".to_owned(), 500_000); times]
}

#[tokio::test]
async fn low_credit_is_refilled_once_by_the_connected_wallet() {
    let rig = Rig::new(0).await;
    assert_eq!(rig.refill().await, Outcome::Credited);
    assert_eq!((rig.base.balance().await, rig.credits().await), (500_000, refilled(1)));
    assert_eq!(rig.refill().await, Outcome::Enough);
    let wallet = rig.wallet().await;
    assert_eq!((wallet.last_refill_at, wallet.last_error, wallet.failures), (Some(rig.now()), None, 0));
    assert_eq!(rig.bank.state().payments.len(), 1);
    // A fast stream needs more in stock than its owner thought of.
    assert_eq!(rig.desk.refill_once(rig.account(), Msat(200_000)).await, Outcome::Credited);
    rig.base.check().await;
}

#[tokio::test]
async fn the_days_cap_holds_and_the_next_day_is_another() {
    let rig = Rig::new(0).await;
    let rate = Msat(10_000_000);
    for _ in 0..4 {
        assert_eq!(rig.desk.refill_once(rig.account(), rate).await, Outcome::Credited);
    }
    assert_eq!(rig.desk.refill_once(rig.account(), rate).await, Outcome::None, "2000 of 2000");
    assert_eq!(rig.bank.state().asked_to_pay, 4);
    rig.pass_time(86_400);
    assert_eq!(rig.desk.refill_once(rig.account(), rate).await, Outcome::Credited);
}

#[tokio::test]
async fn a_refill_around_midnight_counts_on_both_days() {
    let rig = Rig::new(0).await;
    let to_midnight = 86_400_000 - rig.now().0.rem_euclid(86_400_000);
    rig.base.clock.advance(Duration::from_millis(u64::try_from(to_midnight).unwrap() - 1_000));
    rig.bank.set(URL, Pays::Silent);
    assert_eq!(rig.refill().await, Outcome::UnderWay);
    rig.pass_time(2);
    rig.bank.pay_all(0);
    rig.desk.pass().await;
    rig.bank.set(URL, Pays::Yes);
    let rate = Msat(10_000_000);
    for expected in [Outcome::Credited, Outcome::Credited, Outcome::Credited, Outcome::None] {
        assert_eq!(rig.desk.refill_once(rig.account(), rate).await, expected);
    }
}

#[tokio::test]
async fn a_certain_failure_is_shown_and_the_next_try_waits() {
    for kind in Fault::ALL {
        let rig = Rig::new(0).await;
        rig.bank.set(URL, Pays::Fails(kind));
        for (tries, wait) in RETRY_WAITS_MS.iter().enumerate() {
            assert_eq!(rig.refill().await, Outcome::None);
            let wallet = rig.wallet().await;
            assert_eq!(wallet.failures, i64::try_from(tries).unwrap() + 1, "{kind:?}");
            assert_eq!(wallet.last_error.unwrap().code, kind.as_str());
            assert_eq!(wallet.retry_at.0 - rig.now().0, *wait);
            let asked = rig.bank.state().asked_to_pay;
            rig.base.clock.advance(Duration::from_millis(u64::try_from(wait - 1).unwrap()));
            assert_eq!(rig.refill().await, Outcome::None, "it rests");
            assert_eq!(rig.bank.state().asked_to_pay, asked);
            rig.base.clock.advance(Duration::from_millis(1));
        }
        rig.bank.set(URL, Pays::Yes);
        assert_eq!(rig.refill().await, Outcome::Credited);
        assert_eq!((rig.wallet().await.failures, rig.fault().await), (0, None));
        rig.base.check().await;
    }
}

#[tokio::test]
async fn a_refill_that_cost_too_much_is_credited_and_the_wallet_rests() {
    let rig = Rig::new(0).await;
    rig.connect(RefillRules { threshold: Msat(100_000_000), ..RULES }).await;
    rig.bank.set(URL, Pays::Dearly);
    assert_eq!(rig.refill().await, Outcome::Credited);
    let wallet = rig.wallet().await;
    assert_eq!((wallet.retry_at.0 - rig.now().0, wallet.failures), (FEE_REST_MS, 0));
    assert!(
        wallet.last_error.is_some_and(|fault| fault.code == "fee_too_high" && fault.text.contains("11 sats"))
    );
    assert_eq!(rig.refill().await, Outcome::None, "it rests");
    rig.base.clock.advance(Duration::from_millis(FEE_REST_MS.unsigned_abs()));
    rig.bank.set(URL, Pays::Yes);
    assert_eq!(rig.refill().await, Outcome::Credited);
    assert_eq!(rig.fault().await, None);
    rig.base.check().await;
}

#[tokio::test]
async fn an_unknown_outcome_is_one_under_way_until_the_receiving_wallet_knows() {
    let rig = Rig::new(0).await;
    rig.bank.set(URL, Pays::Silent);
    assert_eq!(rig.refill().await, Outcome::UnderWay);
    assert_eq!(rig.fault().await.as_deref(), Some("timeout"));
    rig.bank.set(URL, Pays::Yes);
    for _ in 0..5 {
        assert_eq!(rig.refill().await, Outcome::UnderWay, "never a second one");
        rig.pass_time(60);
        rig.desk.pass().await;
    }
    assert_eq!((rig.bank.pay_all(0), rig.bank.state().asked_to_pay), (1, 1));
    rig.pass_time(15);
    rig.desk.pass().await;
    assert_eq!((rig.credits().await, rig.fault().await), (refilled(1), None));
    rig.base.check().await;
}

#[tokio::test]
async fn a_payment_nobody_heard_of_is_credited_at_once() {
    let rig = Rig::new(0).await;
    rig.bank.set(URL, Pays::Unheard);
    assert_eq!(rig.refill().await, Outcome::Credited);
    assert_eq!((rig.credits().await, rig.fault().await), (refilled(1), None));
}

#[tokio::test]
async fn an_unknown_outcome_ends_with_its_invoice_and_a_late_payment_is_credited() {
    for pays in [Pays::Silent, Pays::Lies] {
        let rig = Rig::new(0).await;
        rig.bank.set(URL, pays);
        assert_eq!(rig.refill().await, Outcome::UnderWay);
        let paid_late = {
            let mut state = rig.bank.state();
            let hash = state.invoices.keys().next().unwrap().clone();
            state.pays.insert(URL.into(), Pays::Yes);
            hash
        };
        rig.pass_time(600 + u64::try_from(END_MARGIN_MS).unwrap() / 1_000);
        rig.desk.pass().await;
        assert_eq!(rig.refill().await, Outcome::UnderWay, "the margin");
        rig.pass_time(16);
        rig.desk.pass().await;
        let wallet = rig.wallet().await;
        assert_eq!((wallet.failures, wallet.last_error.unwrap().code.as_str()), (1, "timeout"), "{pays:?}");
        assert_eq!(rig.base.store.refilled_since(rig.account(), UnixMillis(0)).await.unwrap(), RULES.amount);
        rig.pass_time(30);
        assert_eq!(rig.refill().await, Outcome::Credited, "the next one");
        rig.bank.state().invoices.get_mut(&paid_late).unwrap().2 = Some(RULES.amount);
        rig.pass_time(u64::try_from(ASK_LATE_MS).unwrap() / 1_000);
        rig.desk.pass().await;
        assert_eq!(rig.credits().await, refilled(2), "and the late one");
        rig.base.check().await;
    }
}

#[tokio::test]
async fn a_wallet_that_says_it_failed_and_paid_all_the_same_is_credited() {
    let rig = Rig::new(0).await;
    rig.bank.set(URL, Pays::Fails(Fault::PaymentFailed));
    assert_eq!(rig.refill().await, Outcome::None);
    rig.bank.pay_all(0);
    rig.pass_time(u64::try_from(ASK_LATE_MS).unwrap() / 1_000);
    rig.desk.pass().await;
    assert_eq!(rig.credits().await, refilled(1));
    rig.base.check().await;
}

#[tokio::test]
async fn without_an_invoice_nothing_is_paid_and_no_wallet_is_blamed() {
    for kind in Fault::ALL {
        let rig = Rig::new(0).await;
        rig.bank.state().makes_none = Some(kind);
        assert_eq!(rig.refill().await, Outcome::None);
        assert_eq!((rig.wallet().await.failures, rig.fault().await.as_deref()), (0, Some("service_wallet")));
        let failed = rig.desk.top_up(&rig.actor(), Msat(100_000)).await;
        assert!(matches!(failed, Err(DeskError::Receiver)), "{failed:?}");
        {
            let mut state = rig.bank.state();
            (state.makes_none, state.makes_wrong) = (None, true);
        }
        rig.pass_time(30);
        assert_eq!(rig.refill().await, Outcome::None, "over another amount");
        rig.bank.state().makes_wrong = false;
        rig.pass_time(30);
        assert_eq!(rig.bank.state().asked_to_pay, 0);
        assert_eq!(rig.refill().await, Outcome::Credited);
    }
}

#[tokio::test]
async fn a_receiving_wallet_that_is_silent_delays_and_loses_nothing() {
    for kind in Fault::ALL {
        let rig = Rig::new(0).await;
        rig.bank.state().tells_nothing = Some(kind);
        assert_eq!(rig.refill().await, Outcome::UnderWay);
        let top_up = rig.desk.top_up(&rig.actor(), Msat(100_000)).await.unwrap();
        rig.bank.pay_all(0);
        // Longer than invoices can be paid, and than anybody asks about those that were not.
        for _ in 0..30 {
            rig.pass_time(3_600);
            rig.desk.pass().await;
            assert_eq!(rig.refill().await, Outcome::UnderWay);
        }
        rig.bank.state().tells_nothing = None;
        rig.pass_time(600);
        rig.desk.pass().await;
        let mut credits = rig.credits().await;
        credits.sort();
        assert_eq!(credits, [("refill".to_owned(), 500_000), ("topup".to_owned(), 100_000)], "{kind:?}");
        let seen = rig.base.store.topup_of(rig.account(), top_up.id).await.unwrap().unwrap();
        assert_eq!((seen.stage, seen.credited), (Stage::Settled, Some(Msat(100_000))));
        rig.base.check().await;
    }
}

#[tokio::test]
async fn top_ups_are_credited_with_what_came_and_not_below_their_amount() {
    for (more, credited) in [(0, 100_000), (7, 100_007), (-1, 100_000), (900_000, 200_000)] {
        let rig = Rig::new(0).await;
        let top_up = rig.desk.top_up(&rig.actor(), Msat(100_000)).await.unwrap();
        assert_eq!((top_up.stage, top_up.credited, top_up.amount), (Stage::Open, None, Msat(100_000)));
        rig.bank.pay_all(more);
        for _ in 0..3 {
            rig.pass_time(2);
            rig.desk.pass().await;
        }
        assert_eq!(rig.credits().await, [("topup".to_owned(), credited)]);
        rig.base.check().await;
    }
}

#[tokio::test]
async fn an_account_has_only_so_many_open_top_ups() {
    let rig = Rig::new(0).await;
    for _ in 0..TOPUPS_OPEN_MAX {
        rig.desk.top_up(&rig.actor(), Msat(100_000)).await.unwrap();
    }
    let refused = rig.desk.top_up(&rig.actor(), Msat(100_000)).await;
    assert!(matches!(refused, Err(DeskError::Store(StoreError::CapReached { limit: TOPUPS_OPEN_MAX, .. }))));
    rig.pass_time(601);
    rig.desk.top_up(&rig.actor(), Msat(100_000)).await.unwrap();
}

#[tokio::test]
async fn a_wallet_that_was_disconnected_is_credited_for_what_it_pays() {
    let rig = Rig::new(0).await;
    rig.bank.set(URL, Pays::Silent);
    assert_eq!(rig.refill().await, Outcome::UnderWay);
    assert!(rig.base.store.disconnect_wallet(&rig.actor()).await.unwrap());
    assert!(!rig.base.store.disconnect_wallet(&rig.actor()).await.unwrap());
    rig.bank.pay_all(0);
    rig.pass_time(2);
    rig.desk.pass().await;
    assert_eq!(rig.credits().await, refilled(1));
    assert_eq!(rig.refill().await, Outcome::None, "there is no wallet to refill from");
    rig.base.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_is_answered_when_the_credit_is_there() {
    let rig = Rig::new(0).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = tokio::spawn(rig.desk.clone().run(async {
        let _ = stopped.await;
    }));
    let asks = (0..8).map(|_| rig.desk.refill(rig.account(), Msat(1_000)));
    let answers = futures_util::future::join_all(asks).await;
    // Who comes to ask only when the credit is there needs none: that takes a slow database.
    assert!(answers.contains(&Refilled::Yes), "{answers:?}");
    assert_eq!(rig.credits().await, refilled(1), "one refill for all who asked");
    assert_eq!(rig.desk.refill(rig.account(), Msat(1_000)).await, Refilled::No, "it has enough");
    assert_eq!(rig.desk.refill(AccountId(99), Msat(1_000)).await, Refilled::No, "nobody has it");
    stop.send(()).unwrap();
    run.await.unwrap();
}

#[tokio::test]
async fn an_account_whose_refill_panicked_can_be_wanted_again() {
    let rig = Rig::new(0).await;
    rig.bank.set(URL, Pays::Panics);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = tokio::spawn(rig.desk.clone().run(async {
        let _ = stopped.await;
    }));
    assert_eq!(rig.desk.refill(rig.account(), Msat(1_000)).await, Refilled::No, "it broke off");
    let again = rig.desk.want(rig.account(), Msat(1_000)).unwrap();
    assert_eq!(*again.borrow(), None, "a list of its own, not the end of the broken one");
    stop.send(()).unwrap();
    run.await.unwrap();
}

#[tokio::test]
async fn who_asks_for_more_while_enough_was_found_is_looked_at_again() {
    let rig = Rig::new(150).await;
    let mut outcome = rig.desk.want(rig.account(), Msat(0)).unwrap();
    let (account, rate) = rig.desk.next_wanted().unwrap();
    assert!(rig.desk.want(account, Msat(50_000)).is_some(), "five minutes cost more than there is");
    rig.desk.done(account, rate, rig.desk.refill_once(account, rate).await);
    assert_eq!(*outcome.borrow_and_update(), None, "not told before it was looked at with the new rate");
    let (account, rate) = rig.desk.next_wanted().unwrap();
    rig.desk.done(account, rate, rig.desk.refill_once(account, rate).await);
    assert_eq!(*outcome.borrow(), Some(Outcome::Credited));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_that_hangs_delays_nobody_else() {
    let rig = Rig::new(0).await;
    rig.bank.set(URL, Pays::Hangs);
    let other = rig.second_account("https://other.example").await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = tokio::spawn(rig.desk.clone().run(async {
        let _ = stopped.await;
    }));
    assert_eq!(rig.passing(rig.desk.refill(rig.account(), Msat(1_000))).await, Refilled::OnItsWay);
    // The scan may have been there before.
    assert_ne!(rig.desk.refill(other, Msat(1_000)).await, Refilled::OnItsWay);
    assert_eq!(rig.base.store.balance(other).await.unwrap(), RULES.amount);
    stop.send(()).unwrap();
    rig.passing(run).await.unwrap();
    assert_eq!(rig.credits().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scan_finds_who_is_low_and_the_service_stops_in_order() {
    let rig = Rig::new(0).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = tokio::spawn(rig.desk.clone().run(async {
        let _ = stopped.await;
    }));
    for _ in 0..crate::billing::testing::TRIES_MAX {
        if rig.base.balance().await > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(rig.credits().await, refilled(1));
    stop.send(()).unwrap();
    run.await.unwrap();
}

#[tokio::test]
async fn nothing_is_sold_where_nothing_is_offered() {
    for toml in ["", &format!("{WALLET}[billing]\nmode = \"off\"")] {
        let rig = Rig::with(0, toml).await;
        assert_eq!(rig.refill().await, Outcome::None);
        let refused = rig.desk.top_up(&rig.actor(), Msat(100_000)).await;
        assert!(matches!(refused, Err(DeskError::NotOffered)));
        assert_eq!(rig.desk.refill(rig.account(), Msat(1)).await, Refilled::No);
        assert!(rig.bank.state().invoices.is_empty());
    }
}

#[tokio::test]
async fn what_a_wallet_holds_is_asked_seldom_and_shown_for_a_minute() {
    let rig = Rig::new(0).await;
    let held = async || rig.desk.held(rig.account()).await;
    let first = held().await.unwrap().unwrap();
    assert_eq!((first.amount, first.cached, first.as_of), (Msat(21_000_500), false, rig.now()));
    for _ in 0..20 {
        assert_eq!(held().await.unwrap(), Some(first));
    }
    assert_eq!(rig.bank.state().asked_balance, 1);
    rig.bank.state().held = Err(Fault::Unreachable);
    rig.pass_time(4);
    let later = held().await.unwrap().unwrap();
    assert_eq!((later.as_of, later.cached), (first.as_of, true));
    rig.pass_time(56);
    assert!(held().await.unwrap().unwrap().cached);
    rig.pass_time(1);
    assert!(matches!(held().await, Err(DeskError::Silent)));
    let asked = rig.bank.state().asked_balance;
    assert!(matches!(held().await, Err(DeskError::Silent)));
    assert_eq!(rig.bank.state().asked_balance, asked, "nor is one that fails asked at every look");
    rig.bank.state().held = Ok(Msat(1));
    rig.connect(RULES).await;
    rig.pass_time(4);
    assert_eq!(held().await.unwrap().unwrap().amount, Msat(1));
    rig.bank.state().held = Err(Fault::Timeout);
    rig.pass_time(4);
    assert!(rig.passing(held()).await.unwrap().unwrap().cached, "it hangs, and is not waited for");
    rig.base.store.disconnect_wallet(&rig.actor()).await.unwrap();
    assert_eq!(held().await.unwrap(), None);
}

#[tokio::test]
async fn a_wallet_that_rests_keeps_no_writer_waiting() {
    let rig = Rig::new(0).await;
    rig.bank.state().pays.insert(URL.into(), Pays::Fails(Fault::InsufficientBalance));
    assert_eq!(rig.refill().await, Outcome::None);
    assert!(rig.wallet().await.retry_at > rig.now());
    let mut intruder = rig.base.intruder().await;
    intruder.keep_from_writing().await;
    assert_eq!(rig.refill().await, Outcome::None);
    intruder.let_write().await;
}
