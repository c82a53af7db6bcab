//! The service's own wallet, and the purchase of credit.

use std::sync::Arc;

use super::BootError;
use satcast_core::clock::Clock;
use satcast_core::config::Config;
use satcast_money::billing::Billing;
use satcast_money::wallet::Wallets;
use satcast_money::wallet::connection::Connection;
use satcast_money::wallet::lightning::Lightning;
use satcast_money::wallet::topups::{self, TopUps};
use satcast_net::outbound::Guard;
use satcast_store::Store;

/// The operator's wallet; `None` when none is configured. Its hosts need no entry in an allow list: the operator
/// configured them, and no customer gets access to them.
///
/// # Errors
/// Its connection cannot be read.
pub fn receiving_wallet(config: &Config, clock: &Clock) -> Result<Option<Arc<dyn Lightning>>, BootError> {
    let Some((kind, url, secret)) = config.wallet.parts() else { return Ok(None) };
    let mut allow = Config::allow_texts(&config.outbound.allow);
    allow.extend(config.wallet.hosts());
    let guard = Guard::with_setting(&allow, "[wallet] url")?;
    let connection = Connection::checked(kind, url, secret, &guard)?;
    Ok(Some(Wallets::new(guard, clock.clone()).open(&connection)))
}

/// The purchase of credit; billing notifies it of charges.
pub(super) fn topups(
    billing: &Billing,
    store: &Store,
    clock: &Clock,
    config: &Config,
    guard: &Guard,
) -> Result<TopUps, BootError> {
    let receiving = receiving_wallet(config, clock)?;
    let wallets = Arc::new(Wallets::new(guard.clone(), clock.clone()));
    let topups = TopUps::new(store.clone(), clock.clone(), topups::Terms::of(config), receiving, wallets);
    billing.set_refills(Arc::new(topups.clone()));
    Ok(topups)
}
