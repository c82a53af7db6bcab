//! LNbits: valid and invalid answers.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::http_server::{Reply, Server};
use super::{EXPIRY, NOW, assert_discreet, bolt11_text::Recipe, invoice, open, open_with, short};
use crate::wallet::ANSWER_BYTES_MAX;
use crate::wallet::bolt11::EXPIRY_GRACE_MS;
use crate::wallet::lightning::{Fault, Invoice, InvoiceState, Lightning};
use satcast_core::ids::Msat;
use satcast_core::ids::WalletKind;

const KEY: &str = "0123456789abcdef0123456789abcdef";
const BALANCE: &str = "GET /api/v1/wallet";
const PAYMENTS: &str = "POST /api/v1/payments";

fn wallet(server: &Server) -> Arc<dyn Lightning> {
    open(WalletKind::Lnbits, &server.url(), KEY)
}

fn detail(status: u16, words: &str) -> Reply {
    Reply::Json(status, json!({ "detail": words }))
}

fn payment(invoice: &Invoice) -> String {
    format!("GET /api/v1/payments/{}", invoice.payment_hash)
}

/// LNbits' answer about our payment: `amount` is below zero for an outgoing payment.
fn known(invoice: &Invoice, paid: bool, status: &str, amount: i64) -> Reply {
    let details = json!({
        "payment_hash": invoice.payment_hash, "amount": amount, "fee": -2_000, "bolt11": invoice.bolt11,
    });
    Reply::Json(200, json!({ "paid": paid, "status": status, "details": details }))
}

fn unknown() -> Reply {
    detail(404, "Payment does not exist.")
}

#[tokio::test]
async fn the_balance_is_asked_for_with_the_key() {
    let server = Server::new().await;
    server.on(BALANCE, [Reply::Json(200, json!({ "name": "x", "balance": 21_999 }))]);
    assert_eq!(wallet(&server).balance().await.unwrap(), Msat(21_999));
    let request = server.received().remove(0);
    assert_eq!(request.headers["x-api-key"], KEY);
    assert!(request.headers["user-agent"].starts_with("Satcast/"));
    assert!(request.headers["host"].starts_with("127.0.0.1:"));
}

#[tokio::test]
async fn answers_without_a_balance_are_faults() {
    let server = Server::new().await;
    let large = format!("{{\"balance\": 1, \"x\": \"{}\"}}", "x".repeat(ANSWER_BYTES_MAX));
    let header = format!("x: {}\r\n", "x".repeat(512 * 1_024));
    let text = |status, headers: &str, body: &str| Reply::Text(status, headers.to_owned(), body.to_owned());
    for (reply, fault) in [
        (detail(401, "No Api Key provided."), Fault::Unauthorized),
        (detail(404, "Wallet not found."), Fault::Unauthorized),
        (detail(404, "Not Found"), Fault::Internal),
        (detail(403, "hunter2"), Fault::Restricted),
        (detail(429, "hunter2"), Fault::RateLimited),
        (detail(500, "hunter2"), Fault::Internal),
        (text(307, "location: /first_install\r\n", ""), Fault::Internal),
        (text(301, "location: http://127.0.0.1:1/\r\n", "{\"balance\": 1}"), Fault::Internal),
        (text(200, "", "<html>hunter2"), Fault::Internal),
        (text(200, "", &"[".repeat(10_000)), Fault::Internal),
        (Reply::Json(200, json!({ "balance": "21" })), Fault::Internal),
        (Reply::Json(200, json!({ "balance": 9_007_199_254_740_992_i64 })), Fault::Internal),
        (Reply::Json(200, json!([])), Fault::Internal),
        (text(200, "", &large), Fault::Internal),
        (text(200, &header, "{\"balance\": 1}"), Fault::Timeout),
        (Reply::Reset, Fault::Timeout),
    ] {
        server.on(BALANCE, [reply.clone()]);
        let error = wallet(&server).balance().await.unwrap_err();
        assert_eq!((error.fault, error.certain), (fault, true), "{reply:.100?}: {error}");
        assert_discreet(&error, &[KEY]);
    }
    assert!(server.received().iter().all(|request| request.line.ends_with("/api/v1/wallet")), "no redirect");
    server.on(BALANCE, [Reply::Text(200, String::new(), large[..ANSWER_BYTES_MAX].to_owned())]);
    assert_eq!(wallet(&server).balance().await.unwrap_err().fault, Fault::Internal, "cut JSON");
    let fits = format!("{{\"balance\": 1}}{}", " ".repeat(ANSWER_BYTES_MAX - 14));
    server.on(BALANCE, [Reply::Text(200, String::new(), fits)]);
    assert_eq!(wallet(&server).balance().await.unwrap(), Msat(1), "the largest answer");
}

#[tokio::test]
async fn silence_times_out_and_a_closed_port_is_unreachable() {
    let server = Server::new().await;
    let wallet = open_with(WalletKind::Lnbits, &server.url(), KEY, short());
    for reply in [Reply::Silent, Reply::Stalled] {
        server.on(BALANCE, [reply.clone()]);
        server.on(PAYMENTS, [reply]);
        let error = wallet.balance().await.unwrap_err();
        assert_eq!((error.fault, error.certain), (Fault::Timeout, true));
        let error = wallet.make_invoice(Msat(1_000), "x", EXPIRY).await.unwrap_err();
        assert_eq!((error.fault, error.certain), (Fault::Timeout, true));
    }
    let invoice = invoice(1_000);
    server.on(&payment(&invoice), [Reply::Silent]);
    assert_eq!(wallet.lookup(&invoice.payment_hash).await.unwrap_err().fault, Fault::Timeout);

    let url = server.url();
    drop(server);
    let gone = open(WalletKind::Lnbits, &url, KEY);
    // The listener is dropped with the task, which ends at its next poll.
    tokio::task::yield_now().await;
    for error in [
        gone.balance().await.unwrap_err(),
        gone.pay(&invoice).await.unwrap_err(),
        gone.lookup(&invoice.payment_hash).await.unwrap_err(),
    ] {
        assert_eq!((error.fault, error.certain), (Fault::Unreachable, true), "{error}");
        assert_discreet(&error, &[KEY]);
    }
}

#[tokio::test]
async fn an_address_that_the_guard_refuses_is_named_as_such() {
    use crate::wallet::{Wallets, connection::Connection};
    use satcast_net::outbound::Guard;
    let url = "https://wallet.example.com/";
    let answers = Arc::new(parking_lot::Mutex::new([vec![[10, 0, 0, 1].into()]].into()));
    let guard = Guard::new(&[]).unwrap().answering(answers);
    let connection = Connection::checked(WalletKind::Lnbits, url, KEY, &guard).unwrap();
    let wallet = Wallets::new(guard, satcast_core::clock::Clock::manual(NOW)).open(&connection);
    let error = wallet.pay(&invoice(1_000)).await.unwrap_err();
    assert_eq!((error.fault, error.certain), (Fault::AddressRefused, true), "{error}");
    assert!(error.message.contains("[outbound] allow") && !error.message.contains("10.0.0.1"), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_behind_https_is_unreachable() {
    // It waits for the end of a request that never comes.
    let server = Server::new().await;
    let url = server.url().replace("http://", "https://");
    let error = open_with(WalletKind::Lnbits, &url, KEY, short()).balance().await.unwrap_err();
    assert_eq!((error.fault, error.certain), (Fault::Unreachable, true), "{error}");
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let answering = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        socket
    });
    let error = open(WalletKind::Lnbits, &url, KEY).balance().await.unwrap_err();
    assert_eq!((error.fault, error.certain), (Fault::Unreachable, true), "{error}");
    assert!(error.message.contains("TLS"), "{error}");
    drop(answering.await);
}

#[tokio::test]
async fn a_payment_is_paid_with_its_fee() {
    let (server, invoice) = (Server::new().await, invoice(21_000));
    let done = json!({ "status": "success", "fee": -3_000, "amount": -21_000 });
    server.on(PAYMENTS, [Reply::Json(201, done)]);
    let paid = wallet(&server).pay(&invoice).await.unwrap();
    assert_eq!(paid.fee, Some(Msat(3_000)));
    let request = server.received().remove(0);
    let body: Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!(body, json!({ "out": true, "bolt11": invoice.bolt11 }));
    assert_eq!(server.received().len(), 1, "nothing was left to ask");
}

/// LNbits' answer to the payment, its answer to the lookup, and the expected result.
#[tokio::test]
async fn an_open_outcome_of_a_failed_payment_is_looked_up() {
    let invoice = invoice(21_000);
    let paid = known(&invoice, true, "success", -21_000);
    let failed = known(&invoice, false, "failed", -21_000);
    let pending = known(&invoice, false, "pending", -21_000);
    let received = known(&invoice, true, "success", 21_000);
    let already = detail(520, "Internal invoice already paid.");
    let poor = detail(520, "Insufficient balance.");
    let reserve = detail(520, "You must reserve at least (12  sat) to cover potential routing fees.");
    let rate = detail(520, "The time limit of 10 seconds between payments has been reached.");
    let vague = Reply::Json(201, json!({ "payment_hash": invoice.payment_hash }));
    for (answer, then, outcome) in [
        (already.clone(), paid.clone(), Ok(())),
        (already.clone(), unknown(), Err((Fault::PaymentFailed, true))),
        (already.clone(), received, Err((Fault::PaymentFailed, false))),
        (already, Reply::Reset, Err((Fault::PaymentFailed, false))),
        (poor.clone(), unknown(), Err((Fault::InsufficientBalance, true))),
        (poor.clone(), failed.clone(), Err((Fault::InsufficientBalance, true))),
        (poor.clone(), pending.clone(), Err((Fault::Timeout, false))),
        (poor.clone(), paid.clone(), Ok(())),
        (poor, detail(500, "hunter2"), Err((Fault::InsufficientBalance, false))),
        (reserve, unknown(), Err((Fault::InsufficientBalance, true))),
        (rate, unknown(), Err((Fault::QuotaExceeded, true))),
        (detail(520, "Only incoming payments allowed."), unknown(), Err((Fault::Restricted, true))),
        (detail(520, "Payment failed: hunter2"), failed.clone(), Err((Fault::PaymentFailed, true))),
        (detail(500, "hunter2"), paid.clone(), Ok(())),
        (detail(500, "hunter2"), failed, Err((Fault::Internal, true))),
        (vague.clone(), paid.clone(), Ok(())),
        (vague, pending.clone(), Err((Fault::Timeout, false))),
        (Reply::Text(200, String::new(), "no JSON".to_owned()), unknown(), Err((Fault::Timeout, false))),
        (Reply::Reset, paid, Ok(())),
        (Reply::Reset, pending, Err((Fault::Timeout, false))),
        // The request may still be on its way.
        (Reply::Reset, unknown(), Err((Fault::Timeout, false))),
        // The same behind a gateway that gave up.
        (detail(502, "bad gateway"), unknown(), Err((Fault::Internal, false))),
    ] {
        let server = Server::new().await;
        server.on(PAYMENTS, [answer.clone()]);
        server.on(&payment(&invoice), [then.clone()]);
        let got = wallet(&server).pay(&invoice).await;
        let got = got.map(|_| ()).map_err(|error| {
            assert_discreet(&error, &[KEY, &invoice.payment_hash]);
            (error.fault, error.certain)
        });
        assert_eq!(got, outcome, "{answer:?} {then:?}");
        assert_eq!(server.take_lines(), [PAYMENTS.to_owned(), payment(&invoice)], "asked to pay once");
    }
}

#[tokio::test]
async fn a_refused_key_proves_that_nothing_was_paid() {
    let (server, invoice) = (Server::new().await, invoice(21_000));
    for (reply, fault) in [
        (detail(403, "Invalid adminkey."), Fault::Restricted),
        (detail(404, "Wallet not found."), Fault::Unauthorized),
        (detail(401, "No Api Key provided."), Fault::Unauthorized),
        (detail(429, "slow down"), Fault::RateLimited),
    ] {
        server.on(PAYMENTS, [reply]);
        let error = wallet(&server).pay(&invoice).await.unwrap_err();
        assert_eq!((error.fault, error.certain), (fault, true));
        assert_eq!(server.take_lines(), [PAYMENTS]);
    }
}

#[tokio::test]
async fn a_payment_without_an_answer_is_looked_up_before_time_is_over() {
    let (server, invoice) = (Server::new().await, invoice(21_000));
    let wallet = open_with(WalletKind::Lnbits, &server.url(), KEY, short());
    server.on(PAYMENTS, [Reply::Silent]);
    server.on(&payment(&invoice), [known(&invoice, true, "success", -21_000)]);
    assert_eq!(wallet.pay(&invoice).await.unwrap().fee, Some(Msat(2_000)));
    server.on(&payment(&invoice), [Reply::Silent]);
    let error = wallet.pay(&invoice).await.unwrap_err();
    assert_eq!((error.fault, error.certain), (Fault::Timeout, false));
}

#[tokio::test]
async fn an_invoice_that_differs_from_its_record_is_not_paid() {
    let server = Server::new().await;
    let good = invoice(21_000);
    let ended = Recipe { made_at_secs: 1_700_000_000, ..Recipe::new(21_000) }.text();
    let ended = crate::wallet::bolt11::read(&ended).unwrap();
    for bad in [Invoice { amount: Msat(1_000), ..good.clone() }, ended] {
        let error = wallet(&server).pay(&bad).await.unwrap_err();
        assert_eq!((error.fault, error.certain), (Fault::PaymentFailed, true), "{error}");
        assert_discreet(&error, &[&good.payment_hash]);
    }
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn created_invoices_are_compared_with_the_request() {
    let (server, good) = (Server::new().await, invoice(21_000));
    let made = |text: &str, hash: &str| {
        Reply::Json(201, json!({ "payment_hash": hash, "bolt11": text, "payment_request": text }))
    };
    server.on(PAYMENTS, [made(&good.bolt11, &good.payment_hash)]);
    let memo = "m".repeat(500);
    assert_eq!(wallet(&server).make_invoice(Msat(21_000), &memo, EXPIRY).await.unwrap(), good);
    let body: Value = serde_json::from_str(&server.received()[0].body).unwrap();
    let asked = json!({ "out": false, "amount": 21, "unit": "sat", "memo": "m".repeat(128), "expiry": 600 });
    assert_eq!(body, asked);
    let other = invoice(22_000);
    let old = Recipe { made_at_secs: 1_700_000_000, ..Recipe::new(21_000) }.text();
    for (reply, fault) in [
        (made(&other.bolt11, &other.payment_hash), Fault::Internal),
        (made(&good.bolt11, &other.payment_hash), Fault::Internal),
        (made(&old, &good.payment_hash), Fault::Internal),
        (made("lnbc1hunter2", &good.payment_hash), Fault::Internal),
        (Reply::Json(201, json!({})), Fault::Internal),
        (detail(520, "hunter2"), Fault::Internal),
        (detail(404, "Wallet not found."), Fault::Unauthorized),
    ] {
        server.on(PAYMENTS, [reply]);
        let error = wallet(&server).make_invoice(Msat(21_000), "", EXPIRY).await.unwrap_err();
        assert_eq!((error.fault, error.certain), (fault, true));
        assert_discreet(&error, &[KEY, &good.payment_hash]);
    }
    for amount in [0, -1_000, 1_500] {
        let error = wallet(&server).make_invoice(Msat(amount), "", EXPIRY).await.unwrap_err();
        assert_eq!(error.fault, Fault::NotSupported);
    }
}

#[tokio::test]
async fn an_invoice_is_looked_up_with_the_wallet_s_own_key() {
    let (server, open_one) = (Server::new().await, invoice(21_000));
    let old = NOW.to_secs_floor() - 600 - EXPIRY_GRACE_MS / 1_000 - 1;
    let recipe = Recipe { made_at_secs: u64::try_from(old).unwrap(), ..Recipe::new(21_000) };
    let ended = crate::wallet::bolt11::read(&recipe.text()).unwrap();
    let graced = Recipe { made_at_secs: u64::try_from(old + 1).unwrap(), ..recipe };
    let graced = crate::wallet::bolt11::read(&graced.text()).unwrap();
    let hash = open_one.payment_hash.clone();
    let elsewhere = Reply::Json(200, json!({ "paid": true, "preimage": "00" }));
    for (reply, outcome) in [
        (known(&open_one, false, "pending", 21_000), Ok(InvoiceState::Open)),
        (known(&graced, false, "pending", 21_000), Ok(InvoiceState::Open)),
        (known(&ended, false, "pending", 21_000), Ok(InvoiceState::Expired)),
        (known(&ended, true, "", 21_000), Ok(InvoiceState::Settled { received: Msat(21_000) })),
        (known(&open_one, false, "failed", 21_000), Ok(InvoiceState::Expired)),
        (unknown(), Ok(InvoiceState::Unknown)),
        (detail(404, "Not Found"), Err(Fault::Internal)),
        (known(&open_one, true, "", -21_000), Err(Fault::Internal)),
        (known(&invoice(1_000), true, "", 21_000), Err(Fault::Unauthorized)),
        (elsewhere, Err(Fault::Unauthorized)),
        (Reply::Json(200, json!({})), Err(Fault::Internal)),
        (detail(500, "hunter2"), Err(Fault::Internal)),
    ] {
        server.on(&payment(&open_one), [reply.clone()]);
        let got = wallet(&server).lookup(&hash).await.map_err(|error| error.fault);
        assert_eq!(got, outcome, "{reply:?}");
    }
    server.take_lines();
    for hash in ["", "../wallet", &hash.to_uppercase()] {
        assert_eq!(wallet(&server).lookup(hash).await.unwrap(), InvoiceState::Unknown);
    }
    assert!(server.received().is_empty(), "an invalid payment hash is not sent");
}

#[tokio::test]
async fn a_dropped_call_closes_its_connection() {
    let server = Server::new().await;
    server.on(BALANCE, [Reply::Silent]);
    let wallet = wallet(&server);
    let call = tokio::spawn(async move { wallet.balance().await });
    while server.received().is_empty() {
        tokio::task::yield_now().await;
    }
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    server.left_alone().await;
}
