//! Destinations that are held while they forward: they forward until they see the hold.

use crate::billing::testing::{Rig, Session};
use satcast_core::ids::Msat;
use satcast_store::{StreamLimits, Totals};
use satcast_usage::Held;

impl Session<'_> {
    /// The meter receives a balance.
    fn has(&self, balance: i64) {
        let meter = self.rig.billing.inner.meters.lock().get(&self.id).cloned().unwrap();
        meter.was_charged(Totals { charged: Msat(0), balance: Msat(balance) });
    }
}

#[tokio::test]
async fn a_destination_with_a_refused_charge_is_held_until_it_stops_and_charged_on_return() {
    let rig = Rig::new(3).await;
    let (one, two) = (rig.begin(None).await, rig.begin(None).await);
    one.on(0).await;
    one.on(1).await;
    two.usage.forwards(rig.destinations[2], two.now());
    two.usage.forwards(rig.destinations[3], two.now());
    two.wait_settled().await;
    assert_eq!(two.held(3), Some(Held::InsufficientFunds));
    rig.credit(100).await;
    two.has(101_000);
    assert_eq!(two.held(3), Some(Held::InsufficientFunds), "it forwards, and would be uncounted");
    two.usage.forwards(rig.destinations[3], two.now());
    two.has(101_000);
    assert_eq!(two.held(3), Some(Held::InsufficientFunds));
    two.off(3).await;
    assert_eq!((two.held(3), two.sats().await), (None, 0));
    // The read of the balance may have begun before the credit, and end only now.
    two.has(101_000);
    two.on(3).await;
    assert_eq!((two.held(3), two.sats().await), (None, 2));
    rig.check().await;
}

#[tokio::test]
async fn a_destination_that_went_live_while_held_stays_held_until_it_stops() {
    let rig = Rig::new(100).await;
    let session = rig.begin(Some(1)).await;
    session.on(0).await;
    // Another destination is held for the budget; it goes live before it sees the hold.
    session.usage.claims(rig.destinations[1]);
    session.usage.forwards(rig.destinations[1], session.now());
    assert_eq!(session.held(1), Some(Held::Budget));
    session.usage.limits(StreamLimits { max_sats: Some(10), max_duration_minutes: None });
    assert_eq!(session.held(1), Some(Held::Budget));
    session.usage.leaves(rig.destinations[1], session.now());
    assert_eq!(session.held(1), None);
    session.on(1).await;
    assert_eq!((session.held(1), session.sats().await), (None, 2));
}

#[tokio::test]
async fn a_stopped_destination_with_a_refused_charge_waits_only_for_money() {
    let rig = Rig::new(3).await;
    let (one, two) = (rig.begin(None).await, rig.begin(None).await);
    one.on(0).await;
    one.on(1).await;
    two.on(2).await;
    two.usage.forwards(rig.destinations[3], two.now());
    two.usage.pauses(rig.destinations[3], two.now());
    two.wait_settled().await;
    assert_eq!(two.held(3), Some(Held::InsufficientFunds));
    rig.credit(100).await;
    two.has(101_000);
    assert_eq!(two.held(3), None, "the destination makes no further call until it is released");
}
