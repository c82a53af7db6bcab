//! A process that dies between any two steps, and several processes that do the same at the same time.

use super::*;
use crate::billing::testing::chopped;

/// More steps than any of these tests has.
const STEPS_MAX: u64 = 400;

#[tokio::test]
async fn a_refill_cut_off_anywhere_is_credited_once_if_it_was_paid_and_begun_again_if_not() {
    let mut finished = false;
    let (mut paid, mut unpaid) = (0, 0);
    for polls in 0..STEPS_MAX {
        let rig = Rig::new(0).await;
        finished = chopped(rig.refill(), polls).await.is_some();
        let was_paid = rig.bank.state().payments.len();
        assert!(was_paid <= 1);
        let topups = rig.restarted();
        rig.base.store.ask_all_invoices(rig.now()).await.unwrap();
        topups.pass().await;
        assert_eq!(rig.credits().await.len(), was_paid, "after {polls} steps");
        // All remaining work is completed.
        rig.pass_time(700);
        topups.pass().await;
        rig.pass_time(60);
        topups.refill_once(rig.account(), Msat(0)).await;
        assert_eq!(rig.credits().await, [("refill".to_owned(), 500_000)], "after {polls} steps");
        assert_eq!(rig.bank.state().payments.len(), 1, "after {polls} steps");
        rig.base.check().await;
        (paid, unpaid) = (paid + was_paid, unpaid + 1 - was_paid);
        if finished {
            break;
        }
    }
    // How many steps come after the payment depends on how fast the database answers.
    assert!(finished && paid > 0 && unpaid > 1, "{paid} {unpaid}");
}

#[tokio::test]
async fn a_top_up_cut_off_anywhere_is_credited_once_if_it_could_be_paid() {
    let mut finished = false;
    for polls in 0..STEPS_MAX {
        let rig = Rig::new(0).await;
        finished = chopped(rig.topups.top_up(&rig.actor(), Msat(100_000)), polls).await.is_some();
        let topups = rig.restarted();
        topups.pass().await;
        rig.bank.pay_all(0);
        rig.pass_time(200);
        topups.pass().await;
        topups.pass().await;
        let credits = rig.credits().await.len();
        assert!(credits <= 1 && (credits == 1 || !finished), "after {polls} steps");
        rig.base.check().await;
        if finished {
            break;
        }
    }
    assert!(finished);
}

#[tokio::test]
async fn a_watch_cut_off_anywhere_goes_on_after_the_next_start() {
    let mut finished = false;
    for polls in 0..STEPS_MAX {
        let rig = Rig::new(0).await;
        for _ in 0..3 {
            rig.topups.top_up(&rig.actor(), Msat(100_000)).await.unwrap();
        }
        rig.bank.pay_all(0);
        rig.pass_time(2);
        finished = chopped(rig.topups.pass(), polls).await.is_some();
        let topups = rig.restarted();
        rig.base.store.ask_all_invoices(rig.now()).await.unwrap();
        topups.pass().await;
        assert_eq!(rig.credits().await.len(), 3, "after {polls} steps");
        rig.base.check().await;
        if finished {
            break;
        }
    }
    assert!(finished);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_watches_and_refills_at_one_time_credit_once() {
    let rig = Rig::new(0).await;
    let restarted: Vec<TopUps> = (0..6).map(|_| rig.restarted()).collect();
    let refills = restarted.iter().map(|topups| topups.refill_once(rig.account(), Msat(0)));
    futures_util::future::join_all(refills).await;
    assert_eq!(rig.bank.state().payments.len(), 1, "one refill at a time, in the whole database");
    let actor = rig.actor();
    let top_ups = restarted.iter().map(|topups| topups.top_up(&actor, Msat(100_000)));
    let top_ups: Vec<_> =
        futures_util::future::join_all(top_ups).await.into_iter().map(|top_up| top_up.unwrap()).collect();
    rig.bank.pay_all(0);
    let checks = restarted.iter().flat_map(|topups| top_ups.iter().map(move |top_up| topups.check(top_up)));
    for checked in futures_util::future::join_all(checks).await {
        checked.unwrap();
    }
    let credits = rig.credits().await;
    assert_eq!(credits.len(), 1 + top_ups.len(), "{credits:?}");
    rig.base.check().await;
}
