//! Nostr Wallet Connect (NIP-47): requests and answers as encrypted events over a relay.
//!
//! - [`uri`]: the connection text.
//! - [`seal`]: encryption, signatures, tags.
//! - [`socket`]: the websocket and its limits.
//! - [`session`]: the wallet's announcement, then requests.
//!
//! Relays are not trusted: they may withhold, repeat or forge messages. Only events that the wallet has signed, and
//! that name our request, count. Every call opens a connection and closes it. NIP-47 supports no limit of the fee.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::session::{Refusal, Session};
use self::uri::Uri;
use super::bolt11;
use super::call::{amount, whole};
use super::connection::Connection;
use super::failure::{Limits, Name, Task};
use super::lightning::{Fault, Invoice, InvoiceState, Lightning, Paid, WalletError};
use super::refusal::ConnectionFault;
use super::setup::{Setup, memo_cut, whole_sats};
use satcast_core::ids::{Msat, UnixMillis};

mod seal;
mod session;
mod socket;
pub(super) mod uri;

pub use seal::REQUEST_LIFE;
pub use socket::{MESSAGE_BYTES_MAX, MESSAGES_MAX};

/// A wallet behind a relay.
pub(super) struct Nwc {
    uri: Uri,
    name: Name,
    setup: Setup,
}

/// The wallet's answer about its payment.
enum Payment {
    Paid(Paid),
    Failed,
    Pending,
    /// The payment is unknown, or the wallet does not report it.
    Unknown,
}

impl Nwc {
    pub(super) fn new(connection: &Connection, setup: Setup) -> Result<Self, ConnectionFault> {
        let uri = Uri::parse(connection.url.expose())?;
        let host = uri.relays().first().map(super::address::HttpAddress::authority).unwrap_or_default();
        Ok(Self { uri, name: Name(format!("the wallet behind the relay {host}")), setup })
    }

    fn limits(&self) -> &Limits {
        &self.setup.limits
    }

    async fn session(&self, task: Task, until: Instant) -> Result<Session<'_>, WalletError> {
        let opened = Session::open(&self.setup.client, &self.uri, &self.setup.clock, until).await;
        opened.map_err(|refusal| WalletError { certain: true, ..self.refused(task, refusal) })
    }

    /// The error for a refusal.
    fn refused(&self, task: Task, refusal: Refusal) -> WalletError {
        let code = match refusal {
            Refusal::Trouble(trouble) => return self.name.trouble(task, trouble),
            // A relay may refuse a request and still pass it on.
            Refusal::Relay(fault) => return self.name.fault(task, fault),
            Refusal::Nonsense => return self.name.fault(task, Fault::Internal),
            Refusal::Wallet(code) => code,
        };
        let fault = match code.as_str() {
            "RATE_LIMITED" => Fault::RateLimited,
            "NOT_IMPLEMENTED" | "UNSUPPORTED_ENCRYPTION" => Fault::NotSupported,
            "INSUFFICIENT_BALANCE" => Fault::InsufficientBalance,
            "QUOTA_EXCEEDED" => Fault::QuotaExceeded,
            "RESTRICTED" => Fault::Restricted,
            "UNAUTHORIZED" => Fault::Unauthorized,
            // Time-outs have this code too: nothing is proven.
            "PAYMENT_FAILED" => return self.name.fault(task, Fault::PaymentFailed),
            _ => return self.name.fault(task, Fault::Internal),
        };
        // The wallet's signed answer proves that no payment began.
        self.name.proven(task, fault)
    }

    /// Sends one request over a connection of its own.
    async fn ask(
        &self,
        task: Task,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<Value, WalletError> {
        let until = Instant::now() + limit;
        let mut session = self.session(task, until).await?;
        session.ask(method, params, until).await.map_err(|refusal| self.refused(task, refusal))
    }
}

/// Looks up the wallet's own payment.
async fn payment(session: &mut Session<'_>, hash: &str, until: Instant) -> Result<Payment, Refusal> {
    if !session.looks_up {
        return Ok(Payment::Unknown);
    }
    let found = match session.ask("lookup_invoice", json!({ "payment_hash": hash }), until).await {
        Ok(found) => found,
        Err(Refusal::Wallet(_) | Refusal::Nonsense) => return Ok(Payment::Unknown),
        Err(refusal) => return Err(refusal),
    };
    let kind = found["type"].as_str();
    if found["payment_hash"].as_str() != Some(hash) || kind == Some("incoming") {
        return Ok(Payment::Unknown);
    }
    let preimage = found["preimage"].as_str().is_some_and(|preimage| !preimage.is_empty());
    Ok(match found["state"].as_str() {
        Some("failed" | "expired") => Payment::Failed,
        Some("settled") => Payment::Paid(paid(&found)),
        _ if is_settled(&found) || (kind.is_some() && preimage) => Payment::Paid(paid(&found)),
        _ if kind.is_some() => Payment::Pending,
        _ => Payment::Unknown,
    })
}

fn paid(result: &Value) -> Paid {
    Paid { fee: amount(&result["fees_paid"]).map(Msat) }
}

fn is_settled(transaction: &Value) -> bool {
    whole(&transaction["settled_at"]).is_some_and(|at| at > 0)
}

/// The state of an invoice in the wallet's answer; `None` if the answer is invalid.
fn state(found: &Value, hash: &str, now: UnixMillis) -> Option<InvoiceState> {
    if found["payment_hash"].as_str().is_some_and(|named| named != hash) {
        return None;
    }
    if found["type"].as_str() == Some("outgoing") {
        // It paid this invoice, and did not make it.
        return Some(InvoiceState::Unknown);
    }
    match found["state"].as_str() {
        Some("settled") => settled(found),
        Some("expired" | "failed") => Some(InvoiceState::Expired),
        Some(_) => Some(open(found, hash, now)),
        None if is_settled(found) => settled(found),
        None => Some(open(found, hash, now)),
    }
}

fn settled(found: &Value) -> Option<InvoiceState> {
    let received = amount(&found["amount"]).filter(|amount| *amount > 0)?;
    Some(InvoiceState::Settled { received: Msat(received) })
}

fn open(found: &Value, hash: &str, now: UnixMillis) -> InvoiceState {
    let text = found["invoice"].as_str().unwrap_or_default();
    if bolt11::has_ended(text, hash, now) { InvoiceState::Expired } else { InvoiceState::Open }
}

#[async_trait]
impl Lightning for Nwc {
    async fn balance(&self) -> Result<Msat, WalletError> {
        let task = Task::Balance;
        let result = self.ask(task, "get_balance", json!({}), self.limits().balance).await?;
        let balance = whole(&result["balance"]).map(Msat);
        balance.ok_or_else(|| self.name.fault(task, Fault::Internal))
    }

    async fn pay(&self, invoice: &Invoice) -> Result<Paid, WalletError> {
        bolt11::payable(invoice, self.setup.clock.now()).map_err(|why| self.name.not_payable(why))?;
        let (task, hash, begin) = (Task::Pay, &invoice.payment_hash, Instant::now());
        let end = begin + self.limits().pay;
        let mut session = self.session(task, begin + self.limits().lookup).await?;
        // Looked up first: the protocol does not require a wallet to refuse an invoice that it has paid already.
        let earlier = payment(&mut session, hash, Instant::now() + self.limits().lookup).await;
        match earlier.map_err(|refusal| self.refused(Task::Lookup, refusal))? {
            Payment::Paid(paid) => return Ok(paid),
            Payment::Pending => return Err(self.name.fault(task, Fault::Timeout)),
            Payment::Failed | Payment::Unknown => {}
        }
        let params = json!({ "invoice": invoice.bolt11 });
        let error = match session.ask("pay_invoice", params, end - self.limits().lookup).await {
            Ok(result) => return Ok(paid(&result)),
            Err(refusal) => self.refused(task, refusal),
        };
        if error.certain {
            return Err(error);
        }
        match payment(&mut session, hash, end).await {
            Ok(Payment::Paid(paid)) => Ok(paid),
            Ok(Payment::Failed) => Err(WalletError { certain: true, ..error }),
            Ok(Payment::Pending) => Err(self.name.fault(task, Fault::Timeout)),
            Ok(Payment::Unknown) | Err(_) => Err(error),
        }
    }

    async fn make_invoice(&self, amount: Msat, memo: &str, expiry: Duration) -> Result<Invoice, WalletError> {
        let task = Task::MakeInvoice;
        whole_sats(amount).ok_or_else(|| self.name.fault(task, Fault::NotSupported))?;
        let params = json!({ "amount": amount.0, "description": memo_cut(memo), "expiry": expiry.as_secs() });
        let result = self.ask(task, "make_invoice", params, self.limits().invoice).await?;
        let text = result["invoice"].as_str().ok_or_else(|| self.name.fault(task, Fault::Internal))?;
        let hash = result["payment_hash"].as_str();
        bolt11::made(text, amount, hash, self.setup.clock.now()).map_err(|why| self.name.bad_invoice(why))
    }

    async fn lookup(&self, payment_hash: &str) -> Result<InvoiceState, WalletError> {
        if !bolt11::is_payment_hash(payment_hash) {
            return Ok(InvoiceState::Unknown);
        }
        let (task, limit) = (Task::Lookup, self.limits().lookup);
        let until = Instant::now() + limit;
        let mut session = self.session(task, until).await?;
        let found = match session.ask("lookup_invoice", json!({ "payment_hash": payment_hash }), until).await
        {
            Err(Refusal::Wallet(code)) if code == "NOT_FOUND" => return Ok(InvoiceState::Unknown),
            found => found.map_err(|refusal| self.refused(task, refusal))?,
        };
        let state = state(&found, payment_hash, self.setup.clock.now());
        state.ok_or_else(|| self.name.fault(task, Fault::Internal))
    }
}
