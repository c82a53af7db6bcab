//! Lightning wallets: customers' wallets, which refill prepaid credit, and the operator's wallet, which receives.
//!
//! - [`connection`]: kind, address and secret of a wallet, and their display form.
//! - [`lightning`]: the interface of all wallets, and their errors.
//! - [`bolt11`]: parses invoices; each one is checked before it is trusted or paid.
//! - [`Wallets`]: opens a wallet of the right kind for a connection.
//! - [`rules`]: when credit is refilled and how answers are interpreted, pure.
//! - [`topups`]: top-ups, refills, and the watch over invoices until each is credited or over.
//!
//! A charge never waits for a wallet: charges take ledger credit, and wallets only refill it. Only money that the
//! operator's wallet reports as received is credited; the answer of a paying wallet never proves anything.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::connection::{Connection, ConnectionFault};
use self::failure::Limits;
use self::lightning::{Fault, Invoice, InvoiceState, Lightning, Paid, WalletError};
use self::lnbits::Lnbits;
use self::nwc::Nwc;
use self::phoenixd::Phoenixd;
use self::setup::Setup;
use satcast_core::clock::Clock;
use satcast_core::ids::Msat;
use satcast_core::ids::WalletKind;
use satcast_net::outbound::http::Client;
use satcast_net::outbound::{Asker, Guard};

mod address;
pub mod bolt11;
mod call;
pub mod connection;
mod failure;
pub mod lightning;
mod lnbits;
mod nwc;
mod phoenixd;
mod refusal;
pub mod rules;
mod setup;
#[cfg(test)]
mod tests;
pub mod topups;

pub use call::ANSWER_BYTES_MAX;
pub use failure::{BALANCE_TIMEOUT, CONNECT_TIMEOUT, INVOICE_TIMEOUT, LOOKUP_TIMEOUT, PAY_TIMEOUT};
pub use nwc::{MESSAGE_BYTES_MAX, MESSAGES_MAX, REQUEST_LIFE};
pub use refusal::RELAYS_MAX;
pub use setup::MEMO_CHARS_MAX;

#[derive(Clone, Debug)]
pub struct Wallets {
    /// `None` if TLS could not be set up: then every wallet reports that.
    client: Option<Client>,
    clock: Clock,
    limits: Limits,
}

impl Wallets {
    /// With the guard of `[outbound] allow`; the clock decides which invoices have expired.
    pub fn new(guard: Guard, clock: Clock) -> Self {
        Self::with_limits(guard, clock, Limits::default())
    }

    fn with_limits(guard: Guard, clock: Clock, limits: Limits) -> Self {
        let client = Client::new(guard, limits.connect);
        let client =
            client.inspect_err(|error| tracing::error!(%error, "TLS cannot be set up; no wallet will work"));
        Self { client: client.ok(), clock, limits }
    }

    /// Wallets that `asker` opens.
    #[must_use]
    pub fn asked_by(&self, asker: Asker) -> Self {
        let client = self.client.as_ref().map(|client| client.asked_by(asker));
        Self { client, ..self.clone() }
    }

    /// The wallet of a connection. Nothing is sent yet. A connection that [`Connection::checked`] would refuse gives a
    /// wallet that fails at every call.
    pub fn open(&self, connection: &Connection) -> Arc<dyn Lightning> {
        let unusable = |message: String| {
            Arc::new(Unusable(WalletError { fault: Fault::Internal, message, certain: true }))
        };
        let Some(client) = self.client.clone() else {
            return unusable(
                "wallets cannot be reached, because TLS cannot be set up; ask the operator".to_owned(),
            );
        };
        let setup = Setup { client, clock: self.clock.clone(), limits: self.limits };
        let opened: Result<Arc<dyn Lightning>, ConnectionFault> = match connection.kind {
            WalletKind::Nwc => Nwc::new(connection, setup).map(|wallet| Arc::new(wallet) as _),
            WalletKind::Lnbits => Lnbits::new(connection, setup).map(|wallet| Arc::new(wallet) as _),
            WalletKind::Phoenixd => Phoenixd::new(connection, setup).map(|wallet| Arc::new(wallet) as _),
        };
        opened.unwrap_or_else(|fault| {
            unusable(format!(
                "the connection of the {} wallet cannot be used: {fault}; connect the wallet again",
                connection.kind
            ))
        })
    }
}

/// A wallet whose connection cannot be read: each call returns the reason.
struct Unusable(WalletError);

#[async_trait]
impl Lightning for Unusable {
    async fn balance(&self) -> Result<Msat, WalletError> {
        Err(self.0.clone())
    }

    async fn pay(&self, _: &Invoice) -> Result<Paid, WalletError> {
        Err(self.0.clone())
    }

    async fn make_invoice(&self, _: Msat, _: &str, _: Duration) -> Result<Invoice, WalletError> {
        Err(self.0.clone())
    }

    async fn lookup(&self, _: &str) -> Result<InvoiceState, WalletError> {
        Err(self.0.clone())
    }
}
