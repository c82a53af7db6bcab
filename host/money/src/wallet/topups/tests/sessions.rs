//! Streams that continue because their owner's wallet refills the credit.

use std::sync::Arc;

use super::*;
use crate::billing;
use crate::billing::testing::TRIES_MAX;
use crate::wallet::lightning::Fault;
use satcast_core::ids::EndReason;
use satcast_usage::Gate as _;

/// Running top-ups, until dropped.
struct AtWork(tokio::task::JoinHandle<()>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Rig {
    /// Top-ups are running, and charges trigger refills.
    fn works(&self) -> AtWork {
        self.base.billing.set_refills(Arc::new(self.topups.clone()));
        AtWork(tokio::spawn(self.topups.clone().run(std::future::pending())))
    }

    /// Waits for this many refills.
    async fn until_refilled(&self, times: usize) {
        for _ in 0..TRIES_MAX {
            if self.credits().await.iter().filter(|(kind, _)| kind == "refill").count() >= times {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("no refill: {:?}", self.credits().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_money_is_let_in_when_the_wallet_pays_and_not_when_it_does_not() {
    let toml = format!("{WALLET}[pricing]\nfree_platforms = 0");
    let rig = Rig::with(0, &toml).await;
    let _work = rig.works();
    rig.bank.set(URL, Pays::Fails(Fault::InsufficientBalance));
    let stream = rig.base.record().await;
    let refused = rig.base.billing.admit(&stream).await.unwrap_err();
    assert_eq!(refused, billing::TOO_LITTLE);
    rig.bank.set(URL, Pays::Silent);
    rig.pass_time(31);
    let refused = rig.passing(rig.base.billing.admit(&stream)).await.unwrap_err();
    assert_eq!(refused, billing::REFILLING);
    // The wallet may be asked after that.
    for _ in 0..TRIES_MAX {
        if rig.bank.state().asked_to_pay == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(rig.bank.pay_all(0) > 0);
    rig.passing(rig.until_refilled(1)).await;
    rig.base.billing.admit(&stream).await.unwrap();

    let rig = Rig::with(0, &toml).await;
    let _work = rig.works();
    rig.base.billing.admit(&rig.base.record().await).await.unwrap();
    assert_eq!(rig.credits().await, [("refill".to_owned(), 500_000)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lives_on_while_its_owners_wallet_pays_and_ends_when_the_days_cap_is_used() {
    // 60 sats a minute: one refill lasts eight minutes, and the day's cap 33.
    let rig = Rig::with(0, &format!("{WALLET}[pricing]\ncost_per_platform = 60\nfree_platforms = 0")).await;
    let _work = rig.works();
    let session = rig.base.begin(None).await;
    rig.until_refilled(1).await;
    // The session began without money; it reads the balance again after five seconds.
    session.on(0).await;
    session.at(6).await;
    for _ in 0..TRIES_MAX {
        if session.held(0).is_none() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    session.on(0).await;
    assert_eq!(session.held(0), None);
    for minute in 1..33 {
        session.at(minute * 60).await;
        // Below 300 sats, the next five minutes, the account is refilled; the next minute comes after the refill.
        let charged = session.sats().await;
        let expected = (0..4).take_while(|times| times * 500 - charged < 300 || *times == 0).count();
        rig.until_refilled(expected.max(1)).await;
        assert_eq!(session.end(), None, "minute {minute}, {charged} sats");
    }
    assert_eq!(rig.credits().await.len(), 4);
    session.at(33 * 60).await;
    session.at(34 * 60).await;
    assert_eq!(session.end(), Some(EndReason::InsufficientFunds), "2000 sats a day, and no more");
    session.finish().await;
    rig.base.check().await;
}
