//! Every step of refills and top-ups, and every failure of each.

use super::*;
use crate::billing::{Refilled, Refills as _};
use crate::wallet::lightning::Fault;
use crate::wallet::rules::{ASK_LATE_MS, END_MARGIN_MS, FEE_PAUSE_MS, RETRY_WAITS_MS};
use crate::wallet::topups::{TOPUPS_OPEN_MAX, TopUpError};
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
    // An expensive stream needs a higher threshold than its owner set.
    assert_eq!(rig.topups.refill_once(rig.account(), Msat(200_000)).await, Outcome::Credited);
    rig.base.check().await;
}

#[tokio::test]
async fn the_days_cap_holds_and_the_next_day_is_another() {
    let rig = Rig::new(0).await;
    let rate = Msat(10_000_000);
    for _ in 0..4 {
        assert_eq!(rig.topups.refill_once(rig.account(), rate).await, Outcome::Credited);
    }
    assert_eq!(rig.topups.refill_once(rig.account(), rate).await, Outcome::None, "2000 of 2000");
    assert_eq!(rig.bank.state().asked_to_pay, 4);
    rig.pass_time(86_400);
    assert_eq!(rig.topups.refill_once(rig.account(), rate).await, Outcome::Credited);
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
    rig.topups.pass().await;
    rig.bank.set(URL, Pays::Yes);
    let rate = Msat(10_000_000);
    for expected in [Outcome::Credited, Outcome::Credited, Outcome::Credited, Outcome::None] {
        assert_eq!(rig.topups.refill_once(rig.account(), rate).await, expected);
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
            assert_eq!(rig.refill().await, Outcome::None, "the wallet is paused");
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
async fn a_refill_with_a_high_fee_is_credited_and_pauses_the_wallet() {
    let rig = Rig::new(0).await;
    rig.connect(RefillRules { threshold: Msat(100_000_000), ..RULES }).await;
    rig.bank.set(URL, Pays::Dearly);
    assert_eq!(rig.refill().await, Outcome::Credited);
    let wallet = rig.wallet().await;
    assert_eq!((wallet.retry_at.0 - rig.now().0, wallet.failures), (FEE_PAUSE_MS, 0));
    assert!(
        wallet.last_error.is_some_and(|fault| fault.code == "fee_too_high" && fault.text.contains("11 sats"))
    );
    assert_eq!(rig.refill().await, Outcome::None, "the wallet is paused");
    rig.base.clock.advance(Duration::from_millis(FEE_PAUSE_MS.unsigned_abs()));
    rig.bank.set(URL, Pays::Yes);
    assert_eq!(rig.refill().await, Outcome::Credited);
    assert_eq!(rig.fault().await, None);
    rig.base.check().await;
}

#[tokio::test]
async fn an_unknown_outcome_counts_as_in_progress_until_the_receiving_wallet_knows() {
    let rig = Rig::new(0).await;
    rig.bank.set(URL, Pays::Silent);
    assert_eq!(rig.refill().await, Outcome::UnderWay);
    assert_eq!(rig.fault().await.as_deref(), Some("timeout"));
    rig.bank.set(URL, Pays::Yes);
    for _ in 0..5 {
        assert_eq!(rig.refill().await, Outcome::UnderWay, "never a second refill");
        rig.pass_time(60);
        rig.topups.pass().await;
    }
    assert_eq!((rig.bank.pay_all(0), rig.bank.state().asked_to_pay), (1, 1));
    rig.pass_time(15);
    rig.topups.pass().await;
    assert_eq!((rig.credits().await, rig.fault().await), (refilled(1), None));
    rig.base.check().await;
}

#[tokio::test]
async fn a_payment_with_a_lost_answer_is_credited_at_once() {
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
        rig.topups.pass().await;
        assert_eq!(rig.refill().await, Outcome::UnderWay, "the margin");
        rig.pass_time(16);
        rig.topups.pass().await;
        let wallet = rig.wallet().await;
        assert_eq!((wallet.failures, wallet.last_error.unwrap().code.as_str()), (1, "timeout"), "{pays:?}");
        assert_eq!(rig.base.store.refilled_since(rig.account(), UnixMillis(0)).await.unwrap(), RULES.amount);
        rig.pass_time(30);
        assert_eq!(rig.refill().await, Outcome::Credited, "the next refill");
        rig.bank.state().invoices.get_mut(&paid_late).unwrap().2 = Some(RULES.amount);
        rig.pass_time(u64::try_from(ASK_LATE_MS).unwrap() / 1_000);
        rig.topups.pass().await;
        assert_eq!(rig.credits().await, refilled(2), "and the late payment");
        rig.base.check().await;
    }
}

#[tokio::test]
async fn a_payment_that_the_wallet_reports_as_failed_is_credited() {
    let rig = Rig::new(0).await;
    rig.bank.set(URL, Pays::Fails(Fault::PaymentFailed));
    assert_eq!(rig.refill().await, Outcome::None);
    rig.bank.pay_all(0);
    rig.pass_time(u64::try_from(ASK_LATE_MS).unwrap() / 1_000);
    rig.topups.pass().await;
    assert_eq!(rig.credits().await, refilled(1));
    rig.base.check().await;
}

#[tokio::test]
async fn without_an_invoice_nothing_is_paid_and_no_wallet_is_at_fault() {
    for kind in Fault::ALL {
        let rig = Rig::new(0).await;
        rig.bank.state().makes_none = Some(kind);
        assert_eq!(rig.refill().await, Outcome::None);
        assert_eq!((rig.wallet().await.failures, rig.fault().await.as_deref()), (0, Some("service_wallet")));
        let failed = rig.topups.top_up(&rig.actor(), Msat(100_000)).await;
        assert!(matches!(failed, Err(TopUpError::Receiver)), "{failed:?}");
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
async fn a_silent_receiving_wallet_delays_credit_and_loses_nothing() {
    for kind in Fault::ALL {
        let rig = Rig::new(0).await;
        rig.bank.state().tells_nothing = Some(kind);
        assert_eq!(rig.refill().await, Outcome::UnderWay);
        let top_up = rig.topups.top_up(&rig.actor(), Msat(100_000)).await.unwrap();
        rig.bank.pay_all(0);
        // Longer than invoices can be paid, and longer than unpaid ones are looked up.
        for _ in 0..30 {
            rig.pass_time(3_600);
            rig.topups.pass().await;
            assert_eq!(rig.refill().await, Outcome::UnderWay);
        }
        rig.bank.state().tells_nothing = None;
        rig.pass_time(600);
        rig.topups.pass().await;
        let mut credits = rig.credits().await;
        credits.sort();
        assert_eq!(credits, [("refill".to_owned(), 500_000), ("topup".to_owned(), 100_000)], "{kind:?}");
        let seen = rig.base.store.topup_of(rig.account(), top_up.id).await.unwrap().unwrap();
        assert_eq!((seen.stage, seen.credited), (Stage::Settled, Some(Msat(100_000))));
        rig.base.check().await;
    }
}

#[tokio::test]
async fn top_ups_are_credited_with_the_received_amount_and_at_least_their_own() {
    for (more, credited) in [(0, 100_000), (7, 100_007), (-1, 100_000), (900_000, 200_000)] {
        let rig = Rig::new(0).await;
        let top_up = rig.topups.top_up(&rig.actor(), Msat(100_000)).await.unwrap();
        assert_eq!((top_up.stage, top_up.credited, top_up.amount), (Stage::Open, None, Msat(100_000)));
        rig.bank.pay_all(more);
        for _ in 0..3 {
            rig.pass_time(2);
            rig.topups.pass().await;
        }
        assert_eq!(rig.credits().await, [("topup".to_owned(), credited)]);
        rig.base.check().await;
    }
}

#[tokio::test]
async fn the_open_top_ups_of_an_account_are_limited() {
    let rig = Rig::new(0).await;
    for _ in 0..TOPUPS_OPEN_MAX {
        rig.topups.top_up(&rig.actor(), Msat(100_000)).await.unwrap();
    }
    let refused = rig.topups.top_up(&rig.actor(), Msat(100_000)).await;
    assert!(matches!(refused, Err(TopUpError::Store(StoreError::CapReached { limit: TOPUPS_OPEN_MAX, .. }))));
    rig.pass_time(601);
    rig.topups.top_up(&rig.actor(), Msat(100_000)).await.unwrap();
}

#[tokio::test]
async fn payments_of_a_disconnected_wallet_are_credited() {
    let rig = Rig::new(0).await;
    rig.bank.set(URL, Pays::Silent);
    assert_eq!(rig.refill().await, Outcome::UnderWay);
    assert!(rig.base.store.disconnect_wallet(&rig.actor()).await.unwrap());
    assert!(!rig.base.store.disconnect_wallet(&rig.actor()).await.unwrap());
    rig.bank.pay_all(0);
    rig.pass_time(2);
    rig.topups.pass().await;
    assert_eq!(rig.credits().await, refilled(1));
    assert_eq!(rig.refill().await, Outcome::None, "there is no connected wallet");
    rig.base.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_caller_is_answered_after_the_credit() {
    let rig = Rig::new(0).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = tokio::spawn(rig.topups.clone().run(async {
        let _ = stopped.await;
    }));
    let asks = (0..8).map(|_| rig.topups.refill(rig.account(), Msat(1_000)));
    let answers = futures_util::future::join_all(asks).await;
    // A caller that comes after the credit needs none: that takes a slow database.
    assert!(answers.contains(&Refilled::Yes), "{answers:?}");
    assert_eq!(rig.credits().await, refilled(1), "one refill for all callers");
    assert_eq!(
        rig.topups.refill(rig.account(), Msat(1_000)).await,
        Refilled::No,
        "the balance is large enough"
    );
    assert_eq!(rig.topups.refill(AccountId(99), Msat(1_000)).await, Refilled::No, "there is no such account");
    stop.send(()).unwrap();
    run.await.unwrap();
}

#[tokio::test]
async fn an_account_whose_refill_panicked_can_be_queued_again() {
    let rig = Rig::new(0).await;
    rig.bank.set(URL, Pays::Panics);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = tokio::spawn(rig.topups.clone().run(async {
        let _ = stopped.await;
    }));
    assert_eq!(rig.topups.refill(rig.account(), Msat(1_000)).await, Refilled::No, "the refill panicked");
    let again = rig.topups.want(rig.account(), Msat(1_000)).unwrap();
    assert_eq!(*again.borrow(), None, "a new channel, not that of the failed refill");
    stop.send(()).unwrap();
    run.await.unwrap();
}

#[tokio::test]
async fn a_higher_rate_during_a_check_queues_the_account_again() {
    let rig = Rig::new(150).await;
    let mut outcome = rig.topups.want(rig.account(), Msat(0)).unwrap();
    let (account, rate) = rig.topups.next_wanted().unwrap();
    assert!(rig.topups.want(account, Msat(50_000)).is_some(), "five minutes cost more than the balance");
    rig.topups.done(account, rig.topups.refill_once(account, rate).await);
    assert_eq!(*outcome.borrow_and_update(), None, "no outcome before the check with the new rate");
    let (account, rate) = rig.topups.next_wanted().unwrap();
    rig.topups.done(account, rig.topups.refill_once(account, rate).await);
    assert_eq!(*outcome.borrow(), Some(Outcome::Credited));
}

/// The charge may have come after the check read the balance.
#[tokio::test]
async fn a_charge_during_a_check_queues_the_account_again() {
    let rig = Rig::new(150).await;
    let _outcome = rig.topups.want(rig.account(), Msat(0)).unwrap();
    let (account, rate) = rig.topups.next_wanted().unwrap();
    let checked = rig.topups.refill_once(account, rate).await;
    assert_eq!(checked, Outcome::Enough);
    let _outcome = rig.topups.want(account, rate).unwrap();
    rig.topups.done(account, checked);
    assert!(rig.topups.next_wanted().is_some());
    rig.topups.done(account, checked);
    assert!(rig.topups.next_wanted().is_none(), "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_that_hangs_does_not_delay_others() {
    let rig = Rig::new(0).await;
    rig.bank.set(URL, Pays::Hangs);
    let other = rig.second_account("https://other.example").await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = tokio::spawn(rig.topups.clone().run(async {
        let _ = stopped.await;
    }));
    assert_eq!(rig.passing(rig.topups.refill(rig.account(), Msat(1_000))).await, Refilled::OnItsWay);
    // The scan may have found it before.
    assert_ne!(rig.topups.refill(other, Msat(1_000)).await, Refilled::OnItsWay);
    assert_eq!(rig.base.store.balance(other).await.unwrap(), RULES.amount);
    stop.send(()).unwrap();
    rig.passing(run).await.unwrap();
    assert_eq!(rig.credits().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scan_finds_low_accounts_and_the_service_stops_in_order() {
    let rig = Rig::new(0).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = tokio::spawn(rig.topups.clone().run(async {
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
async fn without_a_receiving_wallet_nothing_is_sold() {
    for toml in ["", &format!("{WALLET}[billing]\nmode = \"off\"")] {
        let rig = Rig::with(0, toml).await;
        assert_eq!(rig.refill().await, Outcome::None);
        let refused = rig.topups.top_up(&rig.actor(), Msat(100_000)).await;
        assert!(matches!(refused, Err(TopUpError::NotOffered)));
        assert_eq!(rig.topups.refill(rig.account(), Msat(1)).await, Refilled::No);
        assert!(rig.bank.state().invoices.is_empty());
    }
}

#[tokio::test]
async fn a_wallet_balance_is_read_rarely_and_shown_for_a_minute() {
    let rig = Rig::new(0).await;
    let held = async || rig.topups.held(rig.account()).await;
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
    assert!(matches!(held().await, Err(TopUpError::Silent)));
    let asked = rig.bank.state().asked_balance;
    assert!(matches!(held().await, Err(TopUpError::Silent)));
    assert_eq!(
        rig.bank.state().asked_balance,
        asked,
        "a failing wallet is not asked at every request either"
    );
    rig.bank.state().held = Ok(Msat(1));
    rig.connect(RULES).await;
    rig.pass_time(4);
    assert_eq!(held().await.unwrap().unwrap().amount, Msat(1));
    rig.bank.state().held = Err(Fault::Timeout);
    rig.pass_time(4);
    assert!(rig.passing(held()).await.unwrap().unwrap().cached, "a wallet that hangs is not waited for");
    rig.base.store.disconnect_wallet(&rig.actor()).await.unwrap();
    assert_eq!(held().await.unwrap(), None);
}

#[tokio::test]
async fn a_paused_wallet_blocks_no_writer() {
    let rig = Rig::new(0).await;
    rig.bank.state().pays.insert(URL.into(), Pays::Fails(Fault::InsufficientBalance));
    assert_eq!(rig.refill().await, Outcome::None);
    assert!(rig.wallet().await.retry_at > rig.now());
    let mut intruder = rig.base.intruder().await;
    intruder.keep_from_writing().await;
    assert_eq!(rig.refill().await, Outcome::None);
    intruder.let_write().await;
}
