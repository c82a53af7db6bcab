//! Nostr Wallet Connect: relays and strangers that forge, flood or do not answer.

use std::sync::Arc;

use serde_json::json;

use super::relay::{Announced, Forgery, Relay, Step};
use super::{assert_discreet, invoice, open, open_with, short};
use crate::wallet::lightning::{Fault, Lightning};
use crate::wallet::{MESSAGE_BYTES_MAX, MESSAGES_MAX};
use satcast_core::ids::Msat;
use satcast_core::ids::WalletKind;

const FORGERIES: [Forgery; 5] =
    [Forgery::Author, Forgery::Signature, Forgery::Content, Forgery::Request, Forgery::Kind];

fn wallet(relay: &Relay) -> Arc<dyn Lightning> {
    open(WalletKind::Nwc, &relay.uri(), "")
}

fn honest() -> Step {
    Step::Result(json!({ "balance": 21 }))
}

fn garbage() -> Vec<Step> {
    let texts = [
        "",
        "garbage",
        "{}",
        "[",
        "[]",
        "null",
        "[1, 2]",
        "[\"EVENT\"]",
        "[\"EVENT\", \"answer\"]",
        "[\"EVENT\", \"answer\", {}]",
        "[\"EVENT\", \"answer\", {\"id\": \"00\", \"pubkey\": 1}]",
        "[\"EVENT\", \"other\", {}]",
        "[\"OK\"]",
        "[\"OK\", \"of another\", false, \"error: hunter2\"]",
        "[\"NOTICE\", \"hunter2\"]",
        "[\"AUTH\", \"challenge\"]",
        "[\"CLOSED\", \"other\", \"\"]",
        "[\"EOSE\", \"answer\"]",
    ];
    texts.into_iter().map(|text| Step::Raw(text.to_owned())).collect()
}

#[tokio::test]
async fn forgeries_and_garbage_are_ignored() {
    let relay = Relay::new().await;
    let mut steps: Vec<Step> = FORGERIES.into_iter().map(Step::Forged).collect();
    steps.extend(garbage());
    steps.push(honest());
    relay.will([steps]);
    assert_eq!(wallet(&relay).balance().await.unwrap(), Msat(21));
}

#[tokio::test]
async fn only_answers_signed_by_the_wallet_count() {
    let relay = Relay::new().await;
    let wallet = open_with(WalletKind::Nwc, &relay.uri(), "", short());
    for forgery in FORGERIES {
        relay.will([vec![Step::Forged(forgery)]]);
        let error = wallet.balance().await.unwrap_err();
        assert_eq!((error.fault, error.certain), (Fault::Timeout, true), "{forgery:?}");
    }
    relay.will([garbage()]);
    assert_eq!(wallet.balance().await.unwrap_err().fault, Fault::Timeout);
    relay.left_alone().await;
}

#[tokio::test]
async fn a_missing_announcement_ends_the_call_early() {
    let relay = Relay::announcing(Announced::Silent).await;
    let wallet = open_with(WalletKind::Nwc, &relay.uri(), "", short());
    let error = wallet.pay(&invoice(1_000)).await.unwrap_err();
    assert_eq!((error.fault, error.certain), (Fault::Unreachable, true), "{error}");
    relay.left_alone().await;
}

#[tokio::test]
async fn messages_have_a_largest_size() {
    let relay = Relay::announcing(Announced::As(Some("nip44_v2"), "pay_invoice")).await;
    let note = |bytes: usize| {
        let frame = json!(["NOTICE", ""]).to_string().len();
        json!(["NOTICE", "x".repeat(bytes - frame)]).to_string()
    };
    relay.will([vec![Step::Raw(note(MESSAGE_BYTES_MAX)), honest()]]);
    assert_eq!(wallet(&relay).balance().await.unwrap(), Msat(21), "the largest");
    for _ in 0..2 {
        relay.will([vec![Step::Raw(note(MESSAGE_BYTES_MAX + 1)), honest()]]);
        let error = wallet(&relay).pay(&invoice(1_000)).await.unwrap_err();
        assert_eq!((error.fault, error.certain), (Fault::Internal, false), "{error}");
    }
}

#[tokio::test]
async fn a_request_reads_a_limited_number_of_messages() {
    let relay = Relay::announcing(Announced::As(Some("nip44_v2"), "pay_invoice")).await;
    let notice = json!(["NOTICE", "again"]).to_string();
    // The end markers of stored events count too, for both subscriptions.
    relay.will([vec![Step::Flood(notice.clone(), MESSAGES_MAX - 3), honest()]]);
    assert_eq!(wallet(&relay).balance().await.unwrap(), Msat(21));
    relay.will([vec![Step::Flood(notice.clone(), MESSAGES_MAX - 2), honest()]]);
    let error = wallet(&relay).balance().await.unwrap_err();
    assert_eq!((error.fault, error.certain), (Fault::Internal, true), "{error}");
    relay.will([vec![Step::Flood(notice, 50_000)]]);
    let error = wallet(&relay).pay(&invoice(1_000)).await.unwrap_err();
    assert_eq!((error.fault, error.certain), (Fault::Internal, false), "{error}");
    relay.left_alone().await;
}

#[tokio::test]
async fn invalid_answers_of_the_wallet_are_faults() {
    let relay = Relay::new().await;
    for text in [
        "".to_owned(),
        "hunter2".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        json!({ "result_type": "get_balance" }).to_string(),
        json!({ "result_type": "pay_invoice", "result": { "balance": 1 } }).to_string(),
        json!({ "result_type": "get_balance", "result": [] }).to_string(),
        json!({ "result_type": "get_balance", "result": { "balance": "1" } }).to_string(),
        json!({ "result_type": "get_balance", "error": { "code": 7 } }).to_string(),
        "[".repeat(20_000),
    ] {
        // An empty text cannot be encrypted.
        let text = if text.is_empty() { " ".to_owned() } else { text };
        relay.will([vec![Step::Inside(text.clone())]]);
        let error = wallet(&relay).balance().await.unwrap_err();
        assert_eq!((error.fault, error.certain), (Fault::Internal, true), "{text:.60}");
        assert_discreet(&error, &[&relay.secret()]);
    }
}

#[tokio::test]
async fn a_relay_that_refuses_the_request_proves_nothing() {
    let relay = Relay::announcing(Announced::As(Some("nip44_v2"), "pay_invoice")).await;
    for (step, fault) in [
        (Step::NotTaken("rate-limited: hunter2"), Fault::RateLimited),
        (Step::NotTaken("auth-required: hunter2"), Fault::Restricted),
        (Step::NotTaken("blocked: hunter2"), Fault::Restricted),
        (Step::NotTaken("hunter2"), Fault::Internal),
        (Step::Closed("restricted: hunter2"), Fault::Restricted),
        (Step::Closed(""), Fault::Internal),
    ] {
        relay.will([vec![step.clone()]]);
        let error = wallet(&relay).pay(&invoice(1_000)).await.unwrap_err();
        assert_eq!((error.fault, error.certain), (fault, false), "{step:?}");
        assert_discreet(&error, &[&relay.secret()]);
    }
    // The relay refused the request and passed it on anyway: the late answer must not confuse the next request.
    relay.will([vec![Step::NotTaken("hunter2"), honest()], vec![honest()]]);
    assert_eq!(wallet(&relay).balance().await.unwrap_err().fault, Fault::Internal);
    assert_eq!(wallet(&relay).balance().await.unwrap(), Msat(21));
}

#[tokio::test]
async fn an_answer_to_an_earlier_request_is_not_used_for_the_next() {
    // The payment is answered after its time limit, during the lookup of its outcome.
    let (relay, invoice) = (Relay::new().await, invoice(21_000));
    let pending = json!({ "type": "outgoing", "payment_hash": invoice.payment_hash, "state": "pending" });
    relay.will([
        vec![Step::Code("NOT_FOUND")],
        Vec::new(),
        vec![Step::Forged(Forgery::Request), Step::Result(pending)],
    ]);
    let wallet = open_with(WalletKind::Nwc, &relay.uri(), "", short());
    let error = wallet.pay(&invoice).await.unwrap_err();
    assert_eq!((error.fault, error.certain), (Fault::Timeout, false), "{error}");
}

#[tokio::test]
async fn a_dropped_call_closes_its_connection() {
    let relay = Relay::new().await;
    let wallet = wallet(&relay);
    let call = tokio::spawn(async move { wallet.balance().await });
    relay.was_asked().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    relay.left_alone().await;
}

#[tokio::test]
async fn a_server_that_is_not_a_relay_is_unreachable() {
    use super::http_server::{Reply, Server};
    let (server, relay) = (Server::new().await, Relay::new().await);
    let url = server.url().replace("http://", "ws://");
    server.on("GET ", [Reply::Text(200, String::new(), "hunter2".to_owned())]);
    let wallet = open(WalletKind::Nwc, &relay.uri_over(&[&url]), "");
    let error = wallet.pay(&invoice(1_000)).await.unwrap_err();
    assert_eq!((error.fault, error.certain), (Fault::Unreachable, true), "{error}");
    let tls = relay.url().replace("ws://", "wss://");
    let error = open(WalletKind::Nwc, &relay.uri_over(&[&tls]), "").balance().await.unwrap_err();
    assert_eq!((error.fault, error.certain), (Fault::Unreachable, true), "{error}");
}
