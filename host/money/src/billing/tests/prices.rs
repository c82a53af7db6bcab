//! Prices that change while the service runs.

use crate::billing::testing::Rig;
use satcast_core::config::Config;
use satcast_usage::Gate as _;

#[tokio::test]
async fn new_prices_are_those_of_sessions_that_begin_after_the_reload() {
    let rig = Rig::new(100).await;
    let earlier = rig.begin(None).await;
    earlier.on(0).await;
    earlier.on(1).await;
    assert_eq!(earlier.sats().await, 2);
    let mut config: Config = rig.config.clone();
    (config.pricing.cost_per_platform, config.pricing.free_platforms) = (7, 0);
    rig.billing.set_prices(&config);
    // Neither the open minute nor the next ones have another price.
    earlier.on(2).await;
    assert_eq!(earlier.sats().await, 4);
    earlier.at(60).await;
    assert_eq!(earlier.sats().await, 8);
    earlier.finish().await;
    assert_eq!((rig.billing.terms().price.0, rig.billing.terms().free), (7_000, 0));
    let later = rig.begin(None).await;
    later.on(0).await;
    assert_eq!((later.sats().await, rig.balance().await), (7, 85_000));
    later.finish().await;
    assert_eq!(rig.billing.backlog().waiting, 0);
    rig.check().await;
}
