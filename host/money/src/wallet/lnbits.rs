//! LNbits over its REST API, version 1. The admin key pays; the invoice key makes invoices and reads the balance.
//!
//! LNbits has no limit of the fee in its API: its operator sets the reserve for fees. It never pays an invoice twice. A
//! failed payment (status 520) leaves the outcome open, so the payment is then looked up by its hash.

use std::time::Duration;

use async_trait::async_trait;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::address::HttpAddress;
use super::bolt11;
use super::call::{self, Reply, Server, whole};
use super::connection::Connection;
use super::failure::{Limits, Name, Task};
use super::lightning::{Fault, Invoice, InvoiceState, Lightning, Paid, WalletError};
use super::refusal::{ConnectionFault, check_secret};
use super::setup::{Setup, memo_cut, whole_sats};
use satcast_core::ids::{MSAT_PER_SAT, Msat};

/// The status of a payment that failed.
const FAILED: u16 = 520;
const PAYMENTS: &str = "/api/v1/payments";
/// LNbits' text for an unknown payment.
const NOT_KNOWN: &str = "Payment does not exist.";

/// A wallet of an LNbits instance.
pub(super) struct Lnbits {
    server: Server,
    name: Name,
    setup: Setup,
}

/// The wallet's answer about its payment.
enum Payment {
    Paid(Paid),
    Failed,
    Pending,
    /// The payment is unknown.
    None,
    /// No usable answer.
    Unclear,
}

impl Lnbits {
    pub(super) fn new(connection: &Connection, setup: Setup) -> Result<Self, ConnectionFault> {
        let address = HttpAddress::parse(connection.url.expose())?;
        check_secret(connection.secret.expose())?;
        let key =
            HeaderValue::from_str(connection.secret.expose()).map_err(|_| ConnectionFault::BadSecret)?;
        let auth = (HeaderName::from_static("x-api-key"), key);
        let server = Server::new(setup.client.clone(), address, auth);
        let name = Name(format!("the LNbits wallet at {}", server.host()));
        Ok(Self { server, name, setup })
    }

    fn limits(&self) -> &Limits {
        &self.setup.limits
    }

    /// The error for an answer other than success, for any request.
    fn refused(&self, task: Task, reply: &Reply) -> WalletError {
        let fault = match reply.status {
            401 => Fault::Unauthorized,
            // A key that belongs to no wallet.
            404 if reply.text("detail") == "Wallet not found." => Fault::Unauthorized,
            403 => Fault::Restricted,
            429 => Fault::RateLimited,
            _ => return self.name.fault(task, Fault::Internal),
        };
        // It checked only the key, or nothing.
        self.name.proven(task, fault)
    }

    async fn payment(&self, hash: &str, until: Instant) -> Payment {
        let Ok(reply) = self.server.get(&format!("{PAYMENTS}/{hash}"), until).await else {
            return Payment::Unclear;
        };
        if reply.status == 404 && reply.text("detail") == NOT_KNOWN {
            return Payment::None;
        }
        let details = &reply.json["details"];
        // Without details it is somebody else's payment.
        let ours = details["payment_hash"].as_str() == Some(hash);
        let outgoing = whole(&details["amount"]).is_some_and(|amount| amount < 0);
        match reply.json["paid"].as_bool().filter(|_| reply.is_success() && ours && outgoing) {
            Some(true) => Payment::Paid(Paid { fee: fee(details) }),
            Some(false) if reply.text("status") == "failed" => Payment::Failed,
            Some(false) => Payment::Pending,
            None => Payment::Unclear,
        }
    }

    /// Looks up a payment whose answer left the outcome open.
    async fn settle(
        &self,
        hash: &str,
        error: WalletError,
        answered: bool,
        until: Instant,
    ) -> Result<Paid, WalletError> {
        match self.payment(hash, until).await {
            Payment::Paid(paid) => Ok(paid),
            Payment::Failed => Err(WalletError { certain: true, ..error }),
            Payment::Pending => Err(self.name.fault(Task::Pay, Fault::Timeout)),
            // Without an answer the payment request may still be on its way.
            Payment::None if answered => Err(WalletError { certain: true, ..error }),
            Payment::None | Payment::Unclear => Err(error),
        }
    }
}

fn fee(payment: &Value) -> Option<Msat> {
    whole(&payment["fee"]).map(|fee| Msat(fee.abs()))
}

/// The reason in a 520 that proves that nothing was paid.
fn failure(reply: &Reply) -> Fault {
    let words = reply.text("detail");
    let has = |part: &str| words.contains(part);
    if has("Insufficient balance") || has("You must reserve") {
        Fault::InsufficientBalance
    } else if has("permission") || has("Only incoming") {
        Fault::Restricted
    } else if has("limit") {
        Fault::QuotaExceeded
    } else {
        Fault::PaymentFailed
    }
}

#[async_trait]
impl Lightning for Lnbits {
    async fn balance(&self) -> Result<Msat, WalletError> {
        let until = Instant::now() + self.limits().balance;
        let reply = self.server.get("/api/v1/wallet", until).await;
        let reply = reply.map_err(|trouble| self.name.trouble(Task::Balance, trouble))?;
        match whole(&reply.json["balance"]).filter(|_| reply.is_success()) {
            Some(balance) => Ok(Msat(balance)),
            None => Err(self.refused(Task::Balance, &reply)),
        }
    }

    async fn pay(&self, invoice: &Invoice) -> Result<Paid, WalletError> {
        bolt11::payable(invoice, self.setup.clock.now()).map_err(|why| self.name.not_payable(why))?;
        let end = Instant::now() + self.limits().pay;
        let body = json!({ "out": true, "bolt11": invoice.bolt11 });
        let sent = self.server.post_json(PAYMENTS, &body, end - self.limits().lookup).await;
        // Other answers may come from a proxy, while the request is still on its way.
        let answered = matches!(&sent, Ok(reply) if reply.status == FAILED);
        let error = match sent {
            Ok(reply) if reply.is_success() => match reply.text("status") {
                "success" => return Ok(Paid { fee: fee(&reply.json) }),
                _ => self.name.fault(Task::Pay, Fault::Timeout),
            },
            Ok(reply) if reply.status == FAILED => self.name.fault(Task::Pay, failure(&reply)),
            Ok(reply) => self.refused(Task::Pay, &reply),
            Err(trouble) => self.name.trouble(Task::Pay, trouble),
        };
        if error.certain {
            return Err(error);
        }
        self.settle(&invoice.payment_hash, error, answered, end).await
    }

    async fn make_invoice(&self, amount: Msat, memo: &str, expiry: Duration) -> Result<Invoice, WalletError> {
        let task = Task::MakeInvoice;
        let sats = whole_sats(amount).ok_or_else(|| self.name.fault(task, Fault::NotSupported))?;
        let body = json!({
            "out": false, "amount": sats, "unit": "sat", "memo": memo_cut(memo), "expiry": expiry.as_secs(),
        });
        let until = Instant::now() + self.limits().invoice;
        let reply = self.server.post_json(PAYMENTS, &body, until).await;
        let reply = reply.map_err(|trouble| self.name.trouble(task, trouble))?;
        // Older instances use another name.
        let texts = [reply.text("bolt11"), reply.text("payment_request")];
        let text = texts.into_iter().find(|text| !text.is_empty()).filter(|_| reply.is_success());
        let text = text.ok_or_else(|| self.refused(task, &reply))?;
        let hash = reply.json["payment_hash"].as_str();
        bolt11::made(text, amount, hash, self.setup.clock.now()).map_err(|why| self.name.bad_invoice(why))
    }

    async fn lookup(&self, payment_hash: &str) -> Result<InvoiceState, WalletError> {
        if !bolt11::is_payment_hash(payment_hash) {
            return Ok(InvoiceState::Unknown);
        }
        let until = Instant::now() + self.limits().lookup;
        let reply = self.server.get(&format!("{PAYMENTS}/{payment_hash}"), until).await;
        let reply = reply.map_err(|trouble| self.name.trouble(Task::Lookup, trouble))?;
        if reply.status == 404 && reply.text("detail") == NOT_KNOWN {
            return Ok(InvoiceState::Unknown);
        }
        let Some(paid) = reply.json["paid"].as_bool().filter(|_| reply.is_success()) else {
            return Err(self.refused(Task::Lookup, &reply));
        };
        let details = &reply.json["details"];
        if details["payment_hash"].as_str() != Some(payment_hash) {
            // LNbits answers everyone; only the wallet's own key gets the details.
            return Err(self.name.fault(Task::Lookup, Fault::Unauthorized));
        }
        let Some(received) = call::amount(&details["amount"]).filter(|amount| *amount >= MSAT_PER_SAT) else {
            return Err(self.name.fault(Task::Lookup, Fault::Internal));
        };
        if paid {
            return Ok(InvoiceState::Settled { received: Msat(received) });
        }
        let text = details["bolt11"].as_str().unwrap_or_default();
        let ended = bolt11::has_ended(text, payment_hash, self.setup.clock.now());
        Ok(if ended || reply.text("status") == "failed" { InvoiceState::Expired } else { InvoiceState::Open })
    }
}
