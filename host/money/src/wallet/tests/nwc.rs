//! Nostr Wallet Connect: requests and answers.

use std::sync::Arc;

use serde_json::{Value, json};

use super::relay::{Announced, Relay, Step, now_secs};
use super::{EXPIRY, assert_discreet, bolt11_text::Recipe, invoice, open, open_with, short};
use crate::wallet::REQUEST_LIFE;
use crate::wallet::lightning::{Fault, Invoice, InvoiceState, Lightning};
use satcast_core::ids::Msat;
use satcast_core::ids::WalletKind;

fn wallet(relay: &Relay) -> Arc<dyn Lightning> {
    open(WalletKind::Nwc, &relay.uri(), "")
}

fn balance(msat: i64) -> Vec<Step> {
    vec![Step::Result(json!({ "balance": msat }))]
}

#[tokio::test]
async fn a_request_is_encrypted_signed_and_short_lived() {
    let relay = Relay::new().await;
    relay.will([balance(21_999)]);
    assert_eq!(wallet(&relay).balance().await.unwrap(), Msat(21_999));
    let asked = relay.take_asked().remove(0);
    assert_eq!(asked.body, json!({ "method": "get_balance", "params": {} }));
    assert_eq!(asked.event.created_at.as_secs(), now_secs());
    let tags: Vec<&[String]> = asked.event.tags.iter().map(|tag| tag.as_slice()).collect();
    let end = (now_secs() + REQUEST_LIFE.as_secs()).to_string();
    assert!(tags.iter().any(|tag| *tag == ["expiration", end.as_str()]), "{tags:?}");
    assert!(tags.iter().any(|tag| *tag == ["encryption", "nip44_v2"]), "{tags:?}");
    assert!(tags.iter().any(|tag| tag[0] == "p" && relay.uri().contains(&tag[1])), "{tags:?}");
    assert!(relay.uri().contains(&relay.secret()) && !asked.event.content.contains("get_balance"));
    relay.left_alone().await;
}

#[tokio::test]
async fn the_newest_common_cipher_is_used() {
    for (tag, cipher) in [
        (Some("nip44_v2"), "nip44_v2"),
        (Some("nip04 nip44_v2"), "nip44_v2"),
        (Some("nip99,nip44_v2"), "nip44_v2"),
        (Some("nip04"), "nip04"),
        (None, "nip04"),
    ] {
        let relay = Relay::announcing(Announced::As(tag, "get_balance")).await;
        relay.will([balance(1)]);
        assert_eq!(wallet(&relay).balance().await.unwrap(), Msat(1), "{tag:?}");
        let asked = relay.take_asked().remove(0);
        assert!(asked.event.tags.iter().any(|tag| tag.as_slice() == ["encryption", cipher]), "{tag:?}");
    }
    let relay = Relay::announcing(Announced::As(Some("nip99"), "get_balance")).await;
    let error = wallet(&relay).pay(&invoice(1_000)).await.unwrap_err();
    assert_eq!((error.fault, error.certain), (Fault::NotSupported, true), "{error}");
    assert!(relay.take_asked().is_empty());
}

#[tokio::test]
async fn relays_are_tried_in_order_until_the_wallet_is_found() {
    let (silent, never) =
        (Relay::announcing(Announced::Silent).await, Relay::announcing(Announced::Never).await);
    let (other, good) = (Relay::announcing(Announced::ByAnother).await, Relay::new().await);
    let gone = Relay::new().await.url();
    let [silent_url, never_url, other_url, good_url] = [&silent, &never, &other, &good].map(Relay::url);
    good.will([balance(5), balance(6)]);
    let wallet = open(WalletKind::Nwc, &good.uri_over(&[&gone, &never_url, &other_url, &good_url]), "");
    assert_eq!(wallet.balance().await.unwrap(), Msat(5));
    assert!(never.take_asked().is_empty() && other.take_asked().is_empty());
    let wallet = open(WalletKind::Nwc, &good.uri_over(&[&silent_url, &good_url]), "");
    assert_eq!(
        wallet.balance().await.unwrap(),
        Msat(6),
        "a relay that hangs uses only its share of the time"
    );
    for relays in [vec![&*never_url, &gone], vec![&*other_url]] {
        let wallet = open(WalletKind::Nwc, &good.uri_over(&relays), "");
        let error = wallet.pay(&invoice(1_000)).await.unwrap_err();
        assert_eq!((error.fault, error.certain), (Fault::Unreachable, true), "{error}");
        assert_discreet(&error, &[&good.secret()]);
    }
}

#[tokio::test]
async fn every_code_of_the_wallet_is_a_fault() {
    let relay = Relay::announcing(Announced::As(Some("nip44_v2"), "pay_invoice get_balance")).await;
    let invoice = invoice(21_000);
    for (code, fault, certain) in [
        ("RATE_LIMITED", Fault::RateLimited, true),
        ("NOT_IMPLEMENTED", Fault::NotSupported, true),
        ("UNSUPPORTED_ENCRYPTION", Fault::NotSupported, true),
        ("INSUFFICIENT_BALANCE", Fault::InsufficientBalance, true),
        ("QUOTA_EXCEEDED", Fault::QuotaExceeded, true),
        ("RESTRICTED", Fault::Restricted, true),
        ("UNAUTHORIZED", Fault::Unauthorized, true),
        ("PAYMENT_FAILED", Fault::PaymentFailed, false),
        ("NOT_FOUND", Fault::Internal, false),
        ("INTERNAL", Fault::Internal, false),
        ("OTHER", Fault::Internal, false),
        ("A_CODE_OF_TOMORROW", Fault::Internal, false),
        ("", Fault::Internal, false),
    ] {
        relay.will([vec![Step::Code(code)], vec![Step::Code(code)]]);
        let error = wallet(&relay).pay(&invoice).await.unwrap_err();
        assert_eq!((error.fault, error.certain), (fault, certain), "{code}: {error}");
        assert_discreet(&error, &[&relay.secret(), &invoice.payment_hash]);
        let error = wallet(&relay).balance().await.unwrap_err();
        assert_eq!((error.fault, error.certain), (fault, true), "{code}: {error}");
    }
    assert!(
        !relay.take_methods().contains(&"lookup_invoice".to_owned()),
        "the wallet does not support lookups"
    );
}

fn outgoing(invoice: &Invoice, state: Value) -> Vec<Step> {
    let hash = &invoice.payment_hash;
    vec![Step::Result(json!({
        "type": "outgoing", "payment_hash": hash, "state": state, "amount": 21_000, "fees_paid": 7,
    }))]
}

#[tokio::test]
async fn a_payment_is_looked_up_and_then_paid() {
    let (relay, invoice) = (Relay::new().await, invoice(21_000));
    let paid = vec![Step::Result(json!({ "preimage": "00", "fees_paid": 1_042 }))];
    relay.will([vec![Step::Code("NOT_FOUND")], paid]);
    assert_eq!(wallet(&relay).pay(&invoice).await.unwrap().fee, Some(Msat(1_042)));
    let asked = relay.take_asked();
    let lookup = json!({ "method": "lookup_invoice", "params": { "payment_hash": invoice.payment_hash } });
    assert_eq!(asked[0].body, lookup);
    let pay = json!({ "method": "pay_invoice", "params": { "invoice": invoice.bolt11 } });
    assert_eq!(asked[1].body, pay);
    assert_eq!(asked.len(), 2);
    relay.will([vec![Step::Code("NOT_FOUND")], vec![Step::Result(json!({ "preimage": "00" }))]]);
    assert_eq!(wallet(&relay).pay(&invoice).await.unwrap().fee, None);
}

#[tokio::test]
async fn an_invoice_paid_or_in_flight_is_not_paid_again() {
    let (relay, invoice) = (Relay::new().await, invoice(21_000));
    let hash = &invoice.payment_hash;
    let older = |more: Value| {
        let mut result = json!({ "type": "outgoing", "payment_hash": hash });
        result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        vec![Step::Result(result)]
    };
    for answer in [
        outgoing(&invoice, json!("settled")),
        older(json!({ "settled_at": 1_800_000_000 })),
        older(json!({ "preimage": "00" })),
    ] {
        relay.will([answer]);
        wallet(&relay).pay(&invoice).await.unwrap();
        assert_eq!(relay.take_methods(), ["lookup_invoice"]);
    }
    for answer in [
        outgoing(&invoice, json!("pending")),
        older(json!({ "settled_at": null, "preimage": "" })),
        outgoing(&invoice, json!("a state of tomorrow")),
    ] {
        relay.will([answer]);
        let error = wallet(&relay).pay(&invoice).await.unwrap_err();
        assert_eq!((error.fault, error.certain), (Fault::Timeout, false));
        assert_eq!(relay.take_methods(), ["lookup_invoice"]);
    }
    // These answers give no outcome, or a failure: the payment is tried.
    let incoming = json!({ "type": "incoming", "payment_hash": hash, "state": "settled", "preimage": "00" });
    let foreign = json!({ "type": "outgoing", "payment_hash": "00", "state": "settled" });
    for answer in [
        vec![Step::Result(incoming)],
        vec![Step::Result(foreign)],
        vec![Step::Code("NOT_IMPLEMENTED")],
        vec![Step::Inside("hunter2".to_owned())],
        outgoing(&invoice, json!("failed")),
    ] {
        relay.will([answer, vec![Step::Result(json!({ "preimage": "00" }))]]);
        wallet(&relay).pay(&invoice).await.unwrap();
        assert_eq!(relay.take_methods(), ["lookup_invoice", "pay_invoice"]);
    }
}

#[tokio::test]
async fn an_open_outcome_of_a_failed_payment_is_looked_up() {
    let (relay, invoice) = (Relay::new().await, invoice(21_000));
    let failed = || vec![Step::Code("PAYMENT_FAILED")];
    for (answer, then, outcome) in [
        (failed(), outgoing(&invoice, json!("settled")), Ok(Some(Msat(7)))),
        (failed(), outgoing(&invoice, json!("failed")), Err((Fault::PaymentFailed, true))),
        (failed(), outgoing(&invoice, json!("pending")), Err((Fault::Timeout, false))),
        (failed(), vec![Step::Code("NOT_FOUND")], Err((Fault::PaymentFailed, false))),
        (failed(), vec![Step::HangUp], Err((Fault::PaymentFailed, false))),
        (vec![Step::Code("OTHER")], outgoing(&invoice, json!("settled")), Ok(Some(Msat(7)))),
        (vec![Step::Inside("{}".to_owned())], outgoing(&invoice, json!("settled")), Ok(Some(Msat(7)))),
        (vec![Step::HangUp], Vec::new(), Err((Fault::Timeout, false))),
    ] {
        relay.will([vec![Step::Code("NOT_FOUND")], answer.clone(), then.clone()]);
        let got = wallet(&relay).pay(&invoice).await;
        let got = got.map(|paid| paid.fee).map_err(|error| (error.fault, error.certain));
        assert_eq!(got, outcome, "{answer:?} {then:?}");
        assert_eq!(relay.take_methods().iter().filter(|method| *method == "pay_invoice").count(), 1);
    }
}

#[tokio::test]
async fn a_payment_without_an_answer_is_looked_up_before_time_is_over() {
    let (relay, invoice) = (Relay::new().await, invoice(21_000));
    let wallet = open_with(WalletKind::Nwc, &relay.uri(), "", short());
    relay.will([vec![Step::Code("NOT_FOUND")], Vec::new(), outgoing(&invoice, json!("settled"))]);
    assert_eq!(wallet.pay(&invoice).await.unwrap().fee, Some(Msat(7)));
    relay.will([vec![Step::Code("NOT_FOUND")]]);
    let error = wallet.pay(&invoice).await.unwrap_err();
    assert_eq!((error.fault, error.certain), (Fault::Timeout, false), "{error}");
    relay.left_alone().await;
}

#[tokio::test]
async fn created_invoices_are_compared_with_the_request() {
    let (relay, good) = (Relay::new().await, invoice(21_000));
    let made = |text: &str, hash: &str| vec![Step::Result(json!({ "invoice": text, "payment_hash": hash }))];
    relay.will([made(&good.bolt11, &good.payment_hash)]);
    assert_eq!(wallet(&relay).make_invoice(Msat(21_000), "refill", EXPIRY).await.unwrap(), good);
    let params = json!({ "amount": 21_000, "description": "refill", "expiry": 600 });
    assert_eq!(relay.take_asked()[0].body, json!({ "method": "make_invoice", "params": params }));
    for answer in [
        made(&invoice(22_000).bolt11, &good.payment_hash),
        made(&good.bolt11, "00"),
        made("hunter2", &good.payment_hash),
        vec![Step::Result(json!({}))],
    ] {
        relay.will([answer]);
        let error = wallet(&relay).make_invoice(Msat(21_000), "", EXPIRY).await.unwrap_err();
        assert_eq!((error.fault, error.certain), (Fault::Internal, true));
        assert_discreet(&error, &[&relay.secret()]);
    }
    let error = wallet(&relay).make_invoice(Msat(1), "", EXPIRY).await.unwrap_err();
    assert_eq!(error.fault, Fault::NotSupported);
}

#[tokio::test]
async fn an_invoice_is_looked_up() {
    let (relay, open_one) = (Relay::new().await, invoice(21_000));
    let hash = open_one.payment_hash.clone();
    let ended = Recipe { made_at_secs: 1_700_000_000, ..Recipe::new(21_000) }.text();
    let found = |more: Value| {
        let mut result = json!({ "type": "incoming", "payment_hash": hash, "amount": 21_000 });
        result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Step::Result(result)
    };
    let settled = Ok(InvoiceState::Settled { received: Msat(21_000) });
    for (step, outcome) in [
        (found(json!({ "state": "pending", "preimage": "00" })), Ok(InvoiceState::Open)),
        (found(json!({ "state": "accepted" })), Ok(InvoiceState::Open)),
        (found(json!({ "invoice": open_one.bolt11 })), Ok(InvoiceState::Open)),
        (found(json!({ "invoice": ended })), Ok(InvoiceState::Expired)),
        (found(json!({ "state": "expired" })), Ok(InvoiceState::Expired)),
        (found(json!({ "state": "failed" })), Ok(InvoiceState::Expired)),
        (found(json!({ "state": "settled" })), settled),
        (found(json!({ "settled_at": 1_800_000_000 })), settled),
        (found(json!({ "state": "settled", "invoice": ended })), settled),
        (found(json!({ "state": "settled", "amount": null })), Err(Fault::Internal)),
        (found(json!({ "type": "outgoing", "state": "settled" })), Ok(InvoiceState::Unknown)),
        (found(json!({ "payment_hash": "00", "state": "settled" })), Err(Fault::Internal)),
        (Step::Code("NOT_FOUND"), Ok(InvoiceState::Unknown)),
        (Step::Code("RESTRICTED"), Err(Fault::Restricted)),
    ] {
        relay.will([vec![step.clone()]]);
        let got = wallet(&relay).lookup(&hash).await.map_err(|error| error.fault);
        assert_eq!(got, outcome, "{step:?}");
    }
    relay.take_asked();
    assert_eq!(wallet(&relay).lookup("00").await.unwrap(), InvoiceState::Unknown);
    assert!(relay.take_asked().is_empty());
}
