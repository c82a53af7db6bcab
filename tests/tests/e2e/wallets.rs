//! Buying credit on the built service with third-party wallets: top-ups by hand, refills while streams run, and a single credit
//! for each payment despite `kill -9`.

use satcast_tests::api::{Answer, Api, send};
use satcast_tests::encoder::Publish;
use satcast_tests::lnbits::LnbitsServer;
use satcast_tests::nwc::NwcService;
use satcast_tests::said;
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::wait::until_api;
use serde_json::{Value, json};

const CONNECTION: &str = "/api/wallet/connection";
/// What the customer's wallet holds at first.
const FUNDS_SATS: u64 = 20_000;
/// Kills right after a payment.
const KILLS: usize = 3;

/// A service that receives with a wallet of LNbits and gives nothing away.
fn service(lnbits: &LnbitsServer, price: &str) -> Service {
    Setup::default()
        .set("SATCAST_WALLET__TYPE", "lnbits")
        .set("SATCAST_WALLET__URL", lnbits.url())
        .set("SATCAST_WALLET__SECRET", &lnbits.operator.invoice_key)
        .set("SATCAST_BILLING__MODE", "wallet")
        .set("SATCAST_PRICING__FREE_PLATFORMS", "0")
        .set("SATCAST_PRICING__COST_PER_PLATFORM", price)
        .start()
}

fn put(service: &Service, body: &Value) -> Answer {
    send(service.api().request("PUT", CONNECTION).header("X-API-Key", service.key()).json(body))
}

/// The amounts of a kind in the ledger, oldest first, in sats.
fn entries(api: &Api, kind: &str) -> Vec<i64> {
    let ledger = api.get("/api/wallet/ledger").ok();
    let entries = ledger.as_array().expect("a list").iter().rev().filter(|entry| entry["kind"] == kind);
    entries.map(|entry| entry["amountMsat"].as_i64().expect("an amount") / 1_000).collect()
}

fn wait_for(api: &Api, kind: &str, amounts: &[i64]) {
    until_api(&format!("{kind} of {amounts:?}"), || {
        let found = entries(api, kind);
        if found == amounts { Ok(()) } else { Err(format!("{found:?}, {}", api.get(CONNECTION).ok())) }
    });
}

/// The credited amounts equal the payments to the operator's wallet, and the ledger is consistent.
fn assert_whole(service: &Service, lnbits: &LnbitsServer) {
    let api = service.api();
    let credited: i64 = entries(&api, "topup").iter().chain(&entries(&api, "refill")).sum();
    assert_eq!(credited * 1_000, lnbits.balance_msat(&lnbits.operator));
    service.run(&["ledger", "check"]);
}

#[test]
fn credit_is_topped_up_and_refilled_from_lnbits_while_streaming_and_once_through_kills() {
    let lnbits = LnbitsServer::start();
    lnbits.fund(&lnbits.customer, FUNDS_SATS);
    let (source, sink) = (Source::shared(), Sink::recording());
    let mut service = service(&lnbits, "40");
    let api = service.api();
    let asked = api.post("/api/wallet/topup", &json!({"amountSats": 100})).ok();
    lnbits.pay(&lnbits.customer, asked["bolt11"].as_str().expect("an invoice"));
    wait_for(&api, "topup", &[100]);
    let paid = api.get(&format!("/api/wallet/topup/{}", asked["invoiceId"])).ok();
    assert_eq!((&paid["state"], &paid["creditedSats"]), (&json!("settled"), &json!(100)));

    // Without a configured threshold, the refill follows the cost of the streams: five minutes at 40 sats are more than the balance.
    let refill = json!({"thresholdSats": 0, "amountSats": 500, "dailyCapSats": 5_000});
    let mut body =
        json!({"type": "lnbits", "url": lnbits.url(), "secret": "0123456789abcdef", "refill": refill});
    put(&service, &body).assert_error(422, Some("wallet_unauthorized"));
    body["secret"] = json!(lnbits.customer.admin_key);
    let connected = put(&service, &body).ok();
    assert_eq!((&connected["state"], &connected["url"]), (&json!("active"), &json!(lnbits.url())));
    let balance = api.get("/api/wallet/balance").ok();
    assert_eq!((&balance["balance"], &balance["walletSats"]), (&json!(100), &json!(FUNDS_SATS - 100)));
    let stream = api.create_stream("refilled");
    api.add_destination(&stream, &sink.url(), "a");
    let mut encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    api.wait_for_stream(&stream, "live");
    wait_for(&api, "refill", &[500]);
    wait_for(&api, "minute", &[-40]);
    assert_eq!(api.get("/api/wallet/balance").ok()["balance"], 560);
    assert_whole(&service, &lnbits);

    let mut topups = vec![100];
    for _ in 0..KILLS {
        let asked = service.api().post("/api/wallet/topup", &json!({"amountSats": 200})).ok();
        lnbits.pay(&lnbits.customer, asked["bolt11"].as_str().expect("an invoice"));
        service.kill();
        encoder.cut();
        service.start();
        topups.push(200);
        wait_for(&service.api(), "topup", &topups);
    }
    assert_whole(&service, &lnbits);
    assert!(service.run(&["doctor"]).contains(said::LNBITS_ANSWERS), "the receiving wallet");
    let secrets = [&lnbits.customer.admin_key, &lnbits.operator.invoice_key, &lnbits.operator.admin_key];
    service.assert_not_logged(&secrets.map(|secret| ("a key of a wallet", secret.as_str())));
}

#[test]
fn an_nwc_wallet_admits_a_stream_without_credit_and_unanswered_payments_are_credited() {
    let lnbits = LnbitsServer::start();
    lnbits.fund(&lnbits.customer, FUNDS_SATS);
    let nwc = NwcService::start(&lnbits, &lnbits.customer);
    let (source, sink) = (Source::shared(), Sink::recording());
    let service = service(&lnbits, "40");
    let api = service.api();
    nwc.refuse("INSUFFICIENT_BALANCE");
    let refill = json!({"thresholdSats": 100, "amountSats": 1_000, "dailyCapSats": 5_000});
    let connected = put(&service, &json!({"type": "nwc", "url": nwc.uri(), "refill": refill})).ok();
    assert!(!connected.to_string().contains(nwc.uri()), "the connection text is shown");
    until_api("the refusal", || {
        let shown = api.get(CONNECTION).ok();
        if shown["lastErrorCode"] == "insufficient_balance" { Ok(()) } else { Err(shown.to_string()) }
    });
    nwc.behave();
    // A reconnected wallet has no back-off; the credit arrives before the encoder is answered, or it tries again.
    let _ = put(&service, &json!({"type": "nwc", "url": connected["url"]})).ok();
    wait_for(&api, "refill", &[1_000]);
    let stream = api.create_stream("let in");
    api.add_destination(&stream, &sink.url(), "a");
    let _encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    api.wait_for_stream(&stream, "live");
    nwc.keep_silent();
    let more = json!({"type": "nwc", "url": connected["url"], "refill": {"thresholdSats": 1_900}});
    let _ = put(&service, &more).ok();
    wait_for(&api, "refill", &[1_000, 1_000]);
    assert_whole(&service, &lnbits);
    let secret = nwc.uri().rsplit("secret=").next().expect("a secret");
    service.assert_not_logged(&[("the secret of the connection", secret), ("the connection", nwc.uri())]);
}
