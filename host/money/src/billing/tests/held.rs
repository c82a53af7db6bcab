//! Destinations that are held while they forward: they go on until they have looked.

use crate::billing::testing::{Rig, Session};
use satcast_core::ids::Msat;
use satcast_store::{StreamLimits, Totals};
use satcast_usage::Held;

impl Session<'_> {
    /// The meter hears of a balance.
    fn has(&self, balance: i64) {
        let meter = self.rig.billing.inner.meters.lock().get(&self.id).cloned().unwrap();
        meter.was_charged(Totals { charged: Msat(0), balance: Msat(balance) });
    }
}

#[tokio::test]
async fn one_whose_charge_is_refused_is_held_until_it_has_looked_and_is_charged_when_it_is_back() {
    let rig = Rig::new(3).await;
    let (one, two) = (rig.begin(None).await, rig.begin(None).await);
    one.on(0).await;
    one.on(1).await;
    two.usage.forwards(rig.destinations[2], two.now());
    two.usage.forwards(rig.destinations[3], two.now());
    two.quiet().await;
    assert_eq!(two.held(3), Some(Held::InsufficientFunds));
    rig.credit(100).await;
    two.has(101_000);
    assert_eq!(two.held(3), Some(Held::InsufficientFunds), "it forwards, and nobody would count it");
    two.usage.forwards(rig.destinations[3], two.now());
    two.has(101_000);
    assert_eq!(two.held(3), Some(Held::InsufficientFunds));
    two.off(3).await;
    assert_eq!((two.held(3), two.sats().await), (None, 0));
    // A look at the balance may have begun before the credit, and end only now.
    two.has(101_000);
    two.on(3).await;
    assert_eq!((two.held(3), two.sats().await), (None, 2));
    rig.check().await;
}

#[tokio::test]
async fn one_that_went_live_while_it_was_held_is_held_until_it_has_looked() {
    let rig = Rig::new(100).await;
    let session = rig.begin(Some(1)).await;
    session.on(0).await;
    // Another one is held for the budget; it goes live before it looks.
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
async fn one_whose_charge_is_refused_when_it_rests_already_waits_for_room_only() {
    let rig = Rig::new(3).await;
    let (one, two) = (rig.begin(None).await, rig.begin(None).await);
    one.on(0).await;
    one.on(1).await;
    two.on(2).await;
    two.usage.forwards(rig.destinations[3], two.now());
    two.usage.rests(rig.destinations[3], two.now());
    two.quiet().await;
    assert_eq!(two.held(3), Some(Held::InsufficientFunds));
    rig.credit(100).await;
    two.has(101_000);
    assert_eq!(two.held(3), None, "nothing more is heard of it until it is let");
}
