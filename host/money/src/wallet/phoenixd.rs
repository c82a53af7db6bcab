//! phoenixd over its HTTP API. The full password pays; the limited one makes invoices and reads the balance.
//!
//! phoenixd has no limit of the fee in its API: it charges its own fixed rate. It does not promise to pay an invoice
//! only once, so the payment hash is looked up before a payment, and again if an answer leaves the outcome open. A
//! failed payment has status 200 and a `reason`.

use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::header::{AUTHORIZATION, HeaderValue};
use serde_json::Value;
use tokio::time::Instant;

use super::address::HttpAddress;
use super::bolt11;
use super::call::{Reply, Server, amount};
use super::connection::Connection;
use super::failure::{Limits, Name, Task};
use super::lightning::{Fault, Invoice, InvoiceState, Lightning, Paid, WalletError};
use super::refusal::{ConnectionFault, check_secret};
use super::setup::{Setup, memo_cut, whole_sats};
use satcast_core::ids::{JSON_INTEGER_MAX, Msat, Sats};

/// A phoenixd node.
pub(super) struct Phoenixd {
    server: Server,
    name: Name,
    setup: Setup,
}

/// The node's answer about a payment.
enum Payment {
    Paid(Paid),
    Pending,
    /// It failed, or the node does not know it.
    None,
}

impl Phoenixd {
    pub(super) fn new(connection: &Connection, setup: Setup) -> Result<Self, ConnectionFault> {
        let address = HttpAddress::parse(connection.url.expose())?;
        check_secret(connection.secret.expose())?;
        let basic = format!("Basic {}", BASE64.encode(format!(":{}", connection.secret.expose())));
        let basic = HeaderValue::from_str(&basic).map_err(|_| ConnectionFault::BadSecret)?;
        let server = Server::new(setup.client.clone(), address, (AUTHORIZATION, basic));
        let name = Name(format!("the phoenixd wallet at {}", server.host()));
        Ok(Self { server, name, setup })
    }

    fn limits(&self) -> &Limits {
        &self.setup.limits
    }

    /// The error for an unusable answer, for any request.
    fn refused(&self, task: Task, reply: &Reply) -> WalletError {
        let fault = match reply.status {
            401 => Fault::Unauthorized,
            403 => Fault::Restricted,
            429 => Fault::RateLimited,
            _ => return self.name.fault(task, Fault::Internal),
        };
        self.name.proven(task, fault)
    }

    async fn payment(&self, hash: &str, until: Instant) -> Result<Payment, WalletError> {
        let reply = self.server.get(&format!("/payments/outgoingbyhash/{hash}"), until).await;
        let reply = reply.map_err(|trouble| self.name.trouble(Task::Lookup, trouble))?;
        if reply.status == 404 {
            return Ok(Payment::None);
        }
        let known = reply.json["isPaid"].as_bool().filter(|_| reply.is_success());
        match known {
            Some(true) => Ok(Payment::Paid(Paid { fee: amount(&reply.json["fees"]).map(Msat) })),
            // A payment that ended without being paid failed.
            Some(false) if amount(&reply.json["completedAt"]).is_some() => Ok(Payment::None),
            Some(false) => Ok(Payment::Pending),
            None => Err(self.refused(Task::Lookup, &reply)),
        }
    }

    /// Looks up a payment whose answer left the outcome open. `answered`: the node reported a failure.
    async fn settle(
        &self,
        hash: &str,
        error: WalletError,
        answered: bool,
        until: Instant,
    ) -> Result<Paid, WalletError> {
        match self.payment(hash, until).await {
            Ok(Payment::Paid(paid)) => Ok(paid),
            Ok(Payment::None) if answered => Err(WalletError { certain: true, ..error }),
            Ok(Payment::Pending) => Err(self.name.fault(Task::Pay, Fault::Timeout)),
            Ok(Payment::None) | Err(_) => Err(error),
        }
    }
}

fn msat(sats: &Value) -> Option<Msat> {
    amount(sats).and_then(|sats| Sats(sats).to_msat()).filter(|msat| msat.0 <= JSON_INTEGER_MAX)
}

#[async_trait]
impl Lightning for Phoenixd {
    async fn balance(&self) -> Result<Msat, WalletError> {
        let until = Instant::now() + self.limits().balance;
        let reply = self.server.get("/getbalance", until).await;
        let reply = reply.map_err(|trouble| self.name.trouble(Task::Balance, trouble))?;
        let balance = msat(&reply.json["balanceSat"]).filter(|_| reply.is_success());
        balance.ok_or_else(|| self.refused(Task::Balance, &reply))
    }

    async fn pay(&self, invoice: &Invoice) -> Result<Paid, WalletError> {
        bolt11::payable(invoice, self.setup.clock.now()).map_err(|why| self.name.not_payable(why))?;
        let hash = &invoice.payment_hash;
        let end = Instant::now() + self.limits().pay;
        match self.payment(hash, Instant::now() + self.limits().lookup).await? {
            Payment::Paid(paid) => return Ok(paid),
            Payment::Pending => return Err(self.name.fault(Task::Pay, Fault::Timeout)),
            Payment::None => {}
        }
        let form = [("invoice", invoice.bolt11.as_str())];
        let sent = self.server.post_form("/payinvoice", &form, end - self.limits().lookup).await;
        let (error, answered) = match sent {
            Ok(reply) if reply.is_success() && reply.json["paymentPreimage"].is_string() => {
                return Ok(Paid { fee: msat(&reply.json["routingFeeSat"]) });
            }
            Ok(reply) if reply.is_success() && reply.json["reason"].is_string() => {
                (self.name.fault(Task::Pay, failure(reply.text("reason"))), true)
            }
            Ok(reply) if reply.status == 400 => (self.name.fault(Task::Pay, Fault::PaymentFailed), true),
            Ok(reply) => (self.refused(Task::Pay, &reply), false),
            Err(trouble) => (self.name.trouble(Task::Pay, trouble), false),
        };
        if error.certain {
            return Err(error);
        }
        self.settle(hash, error, answered, end).await
    }

    async fn make_invoice(&self, amount: Msat, memo: &str, expiry: Duration) -> Result<Invoice, WalletError> {
        let task = Task::MakeInvoice;
        let sats = whole_sats(amount).ok_or_else(|| self.name.fault(task, Fault::NotSupported))?;
        let (sats, expiry, memo) = (sats.to_string(), expiry.as_secs().to_string(), memo_cut(memo));
        let form = [("description", memo), ("amountSat", sats.as_str()), ("expirySeconds", expiry.as_str())];
        let until = Instant::now() + self.limits().invoice;
        let reply = self.server.post_form("/createinvoice", &form, until).await;
        let reply = reply.map_err(|trouble| self.name.trouble(task, trouble))?;
        let Some(text) = reply.json["serialized"].as_str().filter(|_| reply.is_success()) else {
            return Err(self.refused(task, &reply));
        };
        let hash = reply.json["paymentHash"].as_str();
        bolt11::made(text, amount, hash, self.setup.clock.now()).map_err(|why| self.name.bad_invoice(why))
    }

    async fn lookup(&self, payment_hash: &str) -> Result<InvoiceState, WalletError> {
        if !bolt11::is_payment_hash(payment_hash) {
            return Ok(InvoiceState::Unknown);
        }
        let until = Instant::now() + self.limits().lookup;
        let reply = self.server.get(&format!("/payments/incoming/{payment_hash}"), until).await;
        let reply = reply.map_err(|trouble| self.name.trouble(Task::Lookup, trouble))?;
        if reply.status == 404 {
            return Ok(InvoiceState::Unknown);
        }
        let paid = reply.json["isPaid"].as_bool().filter(|_| reply.is_success());
        match (paid, reply.json["paymentHash"].as_str()) {
            (Some(_), hash) if hash != Some(payment_hash) => {
                Err(self.name.fault(Task::Lookup, Fault::Internal))
            }
            (Some(true), _) => match msat(&reply.json["receivedSat"]) {
                Some(received) => Ok(InvoiceState::Settled { received }),
                None => Err(self.name.fault(Task::Lookup, Fault::Internal)),
            },
            (Some(false), _) => {
                let ended = bolt11::has_ended(reply.text("invoice"), payment_hash, self.setup.clock.now());
                Ok(if ended { InvoiceState::Expired } else { InvoiceState::Open })
            }
            (None, _) => Err(self.refused(Task::Lookup, &reply)),
        }
    }
}

/// The meaning of a reason text.
fn failure(reason: &str) -> Fault {
    let reason = reason.to_lowercase();
    if ["balance", "funds"].iter().any(|word| reason.contains(word)) {
        Fault::InsufficientBalance
    } else {
        Fault::PaymentFailed
    }
}
