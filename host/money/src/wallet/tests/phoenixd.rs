//! phoenixd: valid and invalid answers.

use std::sync::Arc;

use serde_json::{Value, json};

use super::http_server::{Reply, Server};
use super::{EXPIRY, assert_discreet, bolt11_text::Recipe, invoice, open, open_with, short};
use crate::wallet::lightning::{Fault, Invoice, InvoiceState, Lightning};
use satcast_core::ids::Msat;
use satcast_core::ids::WalletKind;

const PASSWORD: &str = "5dd1c5bd2f4b8f1d";
const BALANCE: &str = "GET /getbalance";
const PAY: &str = "POST /payinvoice";
const MAKE: &str = "POST /createinvoice";

fn wallet(server: &Server) -> Arc<dyn Lightning> {
    open(WalletKind::Phoenixd, &server.url(), PASSWORD)
}

fn outgoing(invoice: &Invoice) -> String {
    format!("GET /payments/outgoingbyhash/{}", invoice.payment_hash)
}

fn incoming(invoice: &Invoice) -> String {
    format!("GET /payments/incoming/{}", invoice.payment_hash)
}

fn text(status: u16, body: &str) -> Reply {
    Reply::Text(status, String::new(), body.to_owned())
}

fn sent(paid: bool, completed: Value) -> Reply {
    Reply::Json(200, json!({ "isPaid": paid, "completedAt": completed, "sent": 21, "fees": 4_084 }))
}

#[tokio::test]
async fn the_balance_is_asked_for_with_the_password() {
    let server = Server::new().await;
    server.on(BALANCE, [Reply::Json(200, json!({ "balanceSat": 21, "feeCreditSat": 7 }))]);
    assert_eq!(wallet(&server).balance().await.unwrap(), Msat(21_000));
    // An empty user: base64 of ":5dd1c5bd2f4b8f1d".
    assert_eq!(server.received()[0].headers["authorization"], "Basic OjVkZDFjNWJkMmY0YjhmMWQ=");
    for (reply, fault) in [
        (text(401, "hunter2"), Fault::Unauthorized),
        (text(403, "hunter2"), Fault::Restricted),
        (text(429, ""), Fault::RateLimited),
        (text(500, "hunter2"), Fault::Internal),
        (text(200, "hunter2"), Fault::Internal),
        (Reply::Json(200, json!({ "balanceSat": -1 })), Fault::Internal),
        (Reply::Json(200, json!({ "balanceSat": 9_007_199_254_740_991_i64 })), Fault::Internal),
        (Reply::Reset, Fault::Timeout),
    ] {
        server.on(BALANCE, [reply.clone()]);
        let Err(error) = wallet(&server).balance().await else { panic!("{reply:?}") };
        assert_eq!((error.fault, error.certain), (fault, true), "{reply:?}");
        assert_discreet(&error, &[PASSWORD, "OjVkZDFj"]);
    }
}

#[tokio::test]
async fn a_payment_is_looked_up_and_then_paid() {
    let (server, invoice) = (Server::new().await, invoice(21_000));
    server.on(&outgoing(&invoice), [text(404, "")]);
    let done = json!({ "recipientAmountSat": 21, "routingFeeSat": 4, "paymentPreimage": "00" });
    server.on(PAY, [Reply::Json(200, done)]);
    let paid = wallet(&server).pay(&invoice).await.unwrap();
    assert_eq!(paid.fee, Some(Msat(4_000)));
    assert_eq!(server.received()[1].body, format!("invoice={}", invoice.bolt11));
    assert_eq!(server.take_lines(), [outgoing(&invoice), PAY.to_owned()]);
}

#[tokio::test]
async fn an_invoice_paid_or_in_flight_is_not_paid_again() {
    let (server, invoice) = (Server::new().await, invoice(21_000));
    server.on(&outgoing(&invoice), [sent(true, json!(1_800_000_000_000_i64))]);
    assert_eq!(wallet(&server).pay(&invoice).await.unwrap().fee, Some(Msat(4_084)));
    for (reply, outcome) in [
        (sent(false, Value::Null), (Fault::Timeout, false)),
        (text(401, ""), (Fault::Unauthorized, true)),
        (text(500, ""), (Fault::Internal, true)),
        (text(200, "hunter2"), (Fault::Internal, true)),
        (Reply::Reset, (Fault::Timeout, true)),
    ] {
        server.on(&outgoing(&invoice), [reply.clone()]);
        let error = wallet(&server).pay(&invoice).await.unwrap_err();
        assert_eq!((error.fault, error.certain), outcome, "{reply:?}");
        assert_discreet(&error, &[PASSWORD, &invoice.payment_hash]);
    }
    assert!(server.take_lines().iter().all(|line| line != PAY), "nothing was paid");
}

/// phoenixd's answer to the payment, its answer to the lookup, and the expected result.
#[tokio::test]
async fn an_open_outcome_of_a_failed_payment_is_looked_up() {
    let invoice = invoice(21_000);
    let reason =
        |words: &str| Reply::Json(200, json!({ "paymentHash": invoice.payment_hash, "reason": words }));
    let (paid, pending) = (sent(true, json!(1)), sent(false, Value::Null));
    let failed = sent(false, json!(1_800_000_000_000_i64));
    let poor = reason("not enough funds (fee exceeds balance): hunter2");
    let no_route = reason("recipient is unreachable: hunter2");
    for (answer, then, outcome) in [
        (poor.clone(), text(404, ""), Err((Fault::InsufficientBalance, true))),
        (poor.clone(), failed.clone(), Err((Fault::InsufficientBalance, true))),
        (poor, pending.clone(), Err((Fault::Timeout, false))),
        (no_route.clone(), failed.clone(), Err((Fault::PaymentFailed, true))),
        (no_route.clone(), text(500, ""), Err((Fault::PaymentFailed, false))),
        (no_route, paid.clone(), Ok(())),
        (reason("this invoice has already been paid"), paid.clone(), Ok(())),
        (text(400, "invalid invoice"), text(404, ""), Err((Fault::PaymentFailed, true))),
        (text(500, "hunter2"), failed.clone(), Err((Fault::Internal, false))),
        (text(200, "hunter2"), failed.clone(), Err((Fault::Internal, false))),
        (text(200, "hunter2"), paid.clone(), Ok(())),
        (Reply::Json(200, json!({})), Reply::Reset, Err((Fault::Internal, false))),
        (Reply::Reset, paid, Ok(())),
        (Reply::Reset, pending, Err((Fault::Timeout, false))),
        (Reply::Reset, text(404, ""), Err((Fault::Timeout, false))),
    ] {
        let server = Server::new().await;
        server.on(&outgoing(&invoice), [failed.clone(), then.clone()]);
        server.on(PAY, [answer.clone()]);
        let got = wallet(&server).pay(&invoice).await;
        let got = got.map(|_| ()).map_err(|error| {
            assert_discreet(&error, &[PASSWORD, &invoice.payment_hash]);
            (error.fault, error.certain)
        });
        assert_eq!(got, outcome, "{answer:?} {then:?}");
        assert_eq!(server.take_lines().iter().filter(|line| *line == PAY).count(), 1);
    }
}

#[tokio::test]
async fn a_password_without_the_right_to_pay_proves_that_nothing_was_paid() {
    let (server, invoice) = (Server::new().await, invoice(21_000));
    server.on(&outgoing(&invoice), [text(404, "")]);
    for (status, fault) in [(401, Fault::Unauthorized), (403, Fault::Restricted), (429, Fault::RateLimited)] {
        server.on(PAY, [text(status, "")]);
        let error = wallet(&server).pay(&invoice).await.unwrap_err();
        assert_eq!((error.fault, error.certain), (fault, true));
    }
}

#[tokio::test]
async fn a_payment_without_an_answer_is_looked_up_before_time_is_over() {
    let (server, invoice) = (Server::new().await, invoice(21_000));
    let wallet = open_with(WalletKind::Phoenixd, &server.url(), PASSWORD, short());
    server.on(PAY, [Reply::Silent]);
    server.on(&outgoing(&invoice), [text(404, ""), sent(true, json!(1))]);
    assert_eq!(wallet.pay(&invoice).await.unwrap().fee, Some(Msat(4_084)));
    server.on(&outgoing(&invoice), [text(404, ""), Reply::Silent]);
    let error = wallet.pay(&invoice).await.unwrap_err();
    assert_eq!((error.fault, error.certain), (Fault::Timeout, false));
}

#[tokio::test]
async fn created_invoices_are_compared_with_the_request() {
    let (server, good) = (Server::new().await, invoice(21_000));
    let made = |text: &str, hash: &str| {
        Reply::Json(200, json!({ "amountSat": 21, "paymentHash": hash, "serialized": text }))
    };
    server.on(MAKE, [made(&good.bolt11, &good.payment_hash)]);
    let memo = "refill & more";
    assert_eq!(wallet(&server).make_invoice(Msat(21_000), memo, EXPIRY).await.unwrap(), good);
    let request = server.received().remove(0);
    assert_eq!(request.body, "description=refill+%26+more&amountSat=21&expirySeconds=600");
    assert_eq!(request.headers["content-type"], "application/x-www-form-urlencoded");
    for (reply, fault) in [
        (made(&invoice(22_000).bolt11, &good.payment_hash), Fault::Internal),
        (made(&good.bolt11, "00"), Fault::Internal),
        (text(200, "hunter2"), Fault::Internal),
        (text(401, ""), Fault::Unauthorized),
    ] {
        server.on(MAKE, [reply]);
        let error = wallet(&server).make_invoice(Msat(21_000), "", EXPIRY).await.unwrap_err();
        assert_eq!((error.fault, error.certain), (fault, true));
        assert_discreet(&error, &[PASSWORD]);
    }
    let error = wallet(&server).make_invoice(Msat(21_001), "", EXPIRY).await.unwrap_err();
    assert_eq!(error.fault, Fault::NotSupported, "phoenixd counts in sats");
}

#[tokio::test]
async fn an_invoice_is_looked_up() {
    let (server, open_one) = (Server::new().await, invoice(21_000));
    let ended = Recipe { made_at_secs: 1_700_000_000, ..Recipe::new(21_000) }.text();
    let known = |paid: bool, text: &str| {
        let hash = &open_one.payment_hash;
        let json = json!({ "isPaid": paid, "paymentHash": hash, "receivedSat": 20, "invoice": text });
        Reply::Json(200, json)
    };
    let foreign = json!({ "isPaid": true, "paymentHash": "00", "receivedSat": 20 });
    let vague = json!({ "isPaid": true, "paymentHash": open_one.payment_hash });
    for (reply, outcome) in [
        (known(false, &open_one.bolt11), Ok(InvoiceState::Open)),
        (known(false, "no invoice"), Ok(InvoiceState::Open)),
        (known(false, &ended), Ok(InvoiceState::Expired)),
        (known(true, &ended), Ok(InvoiceState::Settled { received: Msat(20_000) })),
        (text(404, ""), Ok(InvoiceState::Unknown)),
        (Reply::Json(200, foreign), Err(Fault::Internal)),
        (Reply::Json(200, vague), Err(Fault::Internal)),
        (text(200, "hunter2"), Err(Fault::Internal)),
        (text(401, ""), Err(Fault::Unauthorized)),
    ] {
        server.on(&incoming(&open_one), [reply.clone()]);
        let got = wallet(&server).lookup(&open_one.payment_hash).await.map_err(|error| error.fault);
        assert_eq!(got, outcome, "{reply:?}");
    }
    assert_eq!(wallet(&server).lookup("../getbalance").await.unwrap(), InvoiceState::Unknown);
}
