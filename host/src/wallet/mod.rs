//! Lightning wallets: those of customers, which refill prepaid credit, and the operator's, which receives.
//!
//! - [`connection`]: which wallet, with its secret; how it is written and shown.
//! - [`lightning`]: what every wallet can do, whatever it speaks, and how it fails.
//! - [`bolt11`]: what an invoice says; every one is read before it is believed or paid.
//! - [`Wallets`]: from a connection to a wallet of its kind.
//! - [`rules`]: when credit is refilled and what answers mean, pure.
//! - [`desk`]: top-ups, refills, and the watch over invoices until each is credited or over.
//!
//! A charge never waits for a wallet: charges take ledger credit, and wallets only refill it. Only what the operator's wallet
//! says was received is credited; what a paying wallet answers is never proof of anything.

use std::sync::Arc;

use async_trait::async_trait;

use self::connection::Connection;
use self::lightning::{Fault, Invoice, InvoiceState, Lightning, Paid, WalletError};
use crate::clock::Clock;
use crate::ids::Msat;
use crate::outbound::Guard;
use crate::outbound::https::Opener;

mod address;
pub mod connection;
pub mod desk;
pub mod lightning;
mod nwc;
pub mod rules;

/// Opens wallets; cheap to clone.
#[derive(Clone, Debug)]
pub struct Wallets {
    /// `None` when TLS could not be set up: every wallet then says so.
    opener: Option<Opener>,
    clock: Clock,
}

impl Wallets {
    /// With the guard of `[outbound] allow`; the clock tells which invoices have run out.
    pub fn new(guard: Guard, clock: Clock) -> Self {
        let opener = Opener::new(guard).inspect_err(|error| tracing::error!(%error, "no wallet will work"));
        Self { opener: opener.ok(), clock }
    }

    /// The wallet of a connection. Nothing is sent yet, and nothing is kept open between calls.
    pub fn open(&self, connection: &Connection) -> Arc<dyn Lightning> {
        let _ = (&self.opener, &self.clock, connection);
        Arc::new(Unusable(WalletError {
            fault: Fault::NotSupported,
            message: "wallets are not built in yet".to_owned(),
            certain: true,
        }))
    }
}

/// A wallet whose connection cannot be read: says why at every call.
struct Unusable(WalletError);

#[async_trait]
impl Lightning for Unusable {
    async fn balance(&self) -> Result<Msat, WalletError> {
        Err(self.0.clone())
    }

    async fn pay(&self, _: &Invoice, _: Msat) -> Result<Paid, WalletError> {
        Err(self.0.clone())
    }

    async fn make_invoice(&self, _: Msat, _: &str, _: std::time::Duration) -> Result<Invoice, WalletError> {
        Err(self.0.clone())
    }

    async fn lookup(&self, _: &str) -> Result<InvoiceState, WalletError> {
        Err(self.0.clone())
    }
}
