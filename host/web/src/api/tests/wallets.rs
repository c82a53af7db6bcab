//! Connected wallets, top-ups and wallet balances over the API.

use std::time::Duration;

use serde_json::{Value, json};

use super::Rig;
use satcast_core::feed::Seen;
use satcast_core::ids::Msat;
use satcast_money::wallet::lightning::Fault;
use satcast_money::wallet::topups::testing::Pays;

const WALLET: &str = "[wallet]\ntype = \"lnbits\"\nurl = \"https://own.example\"\nsecret = \"x\"\n";
const CONNECTION: &str = "/api/wallet/connection";
const URL: &str = "https://ln.example/a";
const SECRET: &str = "hunter2hunter2hunter2";

fn lnbits(url: &str, secret: Option<&str>) -> Value {
    let mut body = json!({"type": "lnbits", "url": url});
    if let Some(secret) = secret {
        body["secret"] = json!(secret);
    }
    body
}

#[tokio::test]
async fn a_wallet_is_connected_read_without_its_secret_changed_and_disconnected() {
    let rig = Rig::with_config(WALLET).await;
    let none = rig.get(CONNECTION).await.ok();
    assert_eq!(
        (&none["connected"], &none["offered"], &none["refill"]),
        (&json!(false), &json!(true), &Value::Null)
    );
    let now = rig.app.clock.now().0;
    let connected = rig.put(CONNECTION, &lnbits(URL, Some(SECRET))).await;
    assert!(!connected.text.contains("hunter2"), "{}", connected.text);
    let expected = json!({
        "connected": true, "offered": true, "type": "lnbits", "url": URL,
        "refill": {"thresholdSats": 200, "amountSats": 1000, "dailyCapSats": 10000, "refilledTodaySats": 0},
        "state": "active", "lastError": null, "lastErrorCode": null, "lastRefillAt": null, "createdAt": now
    });
    assert_eq!(connected.ok(), expected);
    assert_eq!(rig.get(CONNECTION).await.ok(), expected);
    // The secret is kept while address and type are unchanged.
    let mut changed = lnbits(URL, None);
    changed["refill"] = json!({"amountSats": 2000});
    assert_eq!(rig.put(CONNECTION, &changed).await.ok()["refill"]["amountSats"], 2_000);
    let stored = rig.app.store.wallet_of(rig.account).await.unwrap().unwrap();
    assert_eq!((stored.secret.expose().as_str(), stored.rules.threshold), (SECRET, Msat(200_000)));
    for (url, secret) in [("https://evil.example", None), ("https://evil.example", Some("hun...er2"))] {
        let text = rig.put(CONNECTION, &lnbits(url, secret)).await.error(422, "wallet_secret_required");
        assert!(text.contains("`secret`") && !text.contains("hunter2"), "{text}");
    }
    assert_eq!(rig.delete(CONNECTION).await.ok(), json!({"success": true}));
    assert_eq!(rig.get(CONNECTION).await.ok(), none);
    assert_eq!(rig.delete(CONNECTION).await.ok(), json!({"success": true}));
    let actions = rig.get("/api/audit").await;
    assert!(!actions.text.contains("hunter2"), "{}", actions.text);
    for action in ["wallet.connected", "wallet.disconnected"] {
        assert!(actions.text.contains(action), "{}", actions.text);
    }
}

#[tokio::test]
async fn a_masked_nwc_text_that_is_sent_back_keeps_its_value() {
    let rig = Rig::with_config(WALLET).await;
    let (wallet, secret) =
        ("79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798", "01".repeat(32));
    let uri = format!("nostr+walletconnect://{wallet}?relay=wss%3A%2F%2Frelay.example&secret={secret}");
    let connected = rig.put(CONNECTION, &json!({"type": "nwc", "url": uri})).await;
    assert!(!connected.text.contains(&secret), "{}", connected.text);
    let shown = connected.ok()["url"].as_str().unwrap().to_owned();
    assert!(shown.contains("relay.example") && !shown.contains(wallet), "{shown}");
    let body = json!({"type": "nwc", "url": shown, "refill": {"thresholdSats": 5}});
    assert_eq!(rig.put(CONNECTION, &body).await.ok()["refill"]["thresholdSats"], 5);
    let stored = rig.app.store.wallet_of(rig.account).await.unwrap().unwrap();
    assert_eq!(stored.url.expose(), &uri);
    rig.put(CONNECTION, &json!({"type": "nwc", "url": shown.replace("relay", "evil")}))
        .await
        .error(422, "wallet_refused");
}

#[tokio::test]
async fn private_addresses_are_refused_and_a_wrong_key_fails_at_once() {
    let rig = Rig::with_config(WALLET).await;
    for url in [
        "http://ln.example",
        "https://127.0.0.1:5000",
        "https://[::1]",
        "https://169.254.169.254/latest",
        "https://10.0.0.8",
        "https://hunter2hunter2@ln.example",
        "https://ln.example/?key=hunter2hunter2",
        "file:///etc/passwd",
    ] {
        let text = rig.put(CONNECTION, &lnbits(url, Some(SECRET))).await.error(422, "wallet_refused");
        assert!(text.contains("`url`") && !text.contains("hunter2"), "{text}");
        rig.app.clock.advance(Duration::from_secs(61));
    }
    for (fault, status, code) in [
        (Fault::Unauthorized, 422, "wallet_unauthorized"),
        (Fault::AddressRefused, 422, "wallet_address_refused"),
        (Fault::NotSupported, 422, "wallet_not_supported"),
        (Fault::RateLimited, 502, "wallet_rate_limited"),
    ] {
        rig.bank.state().held = Err(fault);
        let text = rig.put(CONNECTION, &lnbits(URL, Some(SECRET))).await.error(status, code);
        assert!(!text.contains("hunter2"), "{text}");
    }
    assert_eq!(rig.get(CONNECTION).await.ok()["connected"], false, "nothing was stored");
}

#[tokio::test]
async fn a_failed_refill_is_shown_until_one_succeeds() {
    let rig = Rig::with_config(WALLET).await;
    rig.put(CONNECTION, &lnbits(URL, Some(SECRET))).await.ok();
    rig.bank.set(URL, Pays::Fails(Fault::InsufficientBalance));
    for (state, wait) in [("retrying", 30), ("retrying", 120), ("failing", 600)] {
        rig.app.wallets.refill_once_if_needed(rig.account).await;
        let shown = rig.get(CONNECTION).await.ok();
        assert_eq!(
            (&shown["state"], &shown["lastErrorCode"]),
            (&json!(state), &json!("insufficient_balance"))
        );
        rig.app.clock.advance(Duration::from_secs(wait));
    }
    let audit = rig.get("/api/audit?action=wallet.failing").await.ok();
    assert_eq!((audit.as_array().unwrap().len(), &audit[0]["detail"]["failures"]), (1, &json!(3)));
    rig.bank.set(URL, Pays::Yes);
    rig.app.wallets.refill_once_if_needed(rig.account).await;
    let shown = rig.get(CONNECTION).await.ok();
    assert_eq!((&shown["state"], &shown["lastError"]), (&json!("active"), &Value::Null));
    assert_eq!(shown["refill"]["refilledTodaySats"], 1_000);
    assert_eq!(shown["lastRefillAt"], rig.app.clock.now().0);
    rig.put(CONNECTION, &json!({"type": "lnbits", "url": URL, "refill": {"dailyCapSats": 1000}})).await.ok();
    assert_eq!(rig.get(CONNECTION).await.ok()["state"], "capped");
}

#[tokio::test]
async fn a_paid_top_up_is_credited_reported_and_readable() {
    let rig = Rig::with_config(WALLET).await;
    let mut watch = rig.app.store.feed().watch(rig.account, None).unwrap();
    let asked = rig.post("/api/wallet/topup", &json!({"amountSats": 1000})).await.ok();
    assert_eq!((&asked["state"], &asked["amountSats"]), (&json!("open"), &json!(1_000)));
    assert_eq!(asked["expiresAt"], rig.app.clock.now().0 + 600_000);
    let path = format!("/api/wallet/topup/{}", asked["invoiceId"]);
    assert_eq!(rig.get(&path).await.ok(), asked);
    rig.bank.pay_all(0);
    rig.app.clock.advance(Duration::from_secs(3));
    rig.app.wallets.watch_once().await;
    let paid = rig.get(&path).await.ok();
    assert_eq!((&paid["state"], &paid["creditedSats"]), (&json!("settled"), &json!(1_000)));
    assert_eq!(rig.get("/api/wallet/balance").await.ok()["balance"], 1_000);
    let entry = &rig.get("/api/wallet/ledger").await.ok()[0];
    assert_eq!((&entry["kind"], &entry["amountMsat"]), (&json!("topup"), &json!(1_000_000)));
    let mut names = Vec::new();
    while names.last().map(String::as_str) != Some("wallet.credited") {
        let seen =
            tokio::time::timeout(Duration::from_secs(10), watch.next()).await.expect("an event in time");
        match seen {
            Some(Seen::Event(event)) => names.push(event.name.clone()),
            other => panic!("{other:?}"),
        }
    }
    for amount in [json!(99), json!(1_000_001), json!(1.5), json!("1000")] {
        rig.post("/api/wallet/topup", &json!({"amountSats": amount})).await.error(422, "amount_refused");
    }
}

#[tokio::test]
async fn the_balance_includes_the_connected_wallet() {
    let rig = Rig::with_config(WALLET).await;
    let alone = rig.get("/api/wallet/balance").await.ok();
    let now = rig.app.clock.now().0;
    assert_eq!(alone, json!({"balance": 0, "cached": false, "walletSats": null, "asOf": now}));
    rig.put(CONNECTION, &lnbits(URL, Some(SECRET))).await.ok();
    let held = rig.get("/api/wallet/balance").await.ok();
    assert_eq!(held, json!({"balance": 0, "cached": false, "walletSats": 21_000, "asOf": now}));
    rig.bank.state().held = Err(Fault::Unreachable);
    rig.app.clock.advance(Duration::from_secs(30));
    let held = rig.get("/api/wallet/balance").await.ok();
    assert_eq!(held, json!({"balance": 0, "cached": true, "walletSats": 21_000, "asOf": now}));
    rig.app.clock.advance(Duration::from_secs(31));
    rig.get("/api/wallet/balance").await.error(503, "wallet_silent");
}

#[tokio::test]
async fn new_keys_do_not_bypass_the_limits_of_invoices_and_wallets() {
    let mut rig = Rig::with_config(WALLET).await;
    let body = lnbits(URL, Some(SECRET));
    for _ in 0..10 {
        rig.put(CONNECTION, &body).await.ok();
        rig.post("/api/wallet/topup", &json!({"amountSats": 1_000})).await;
    }
    rig.key =
        rig.post("/api/keys", &json!({"type": "permanent"})).await.ok()["key"].as_str().unwrap().to_owned();
    rig.put(CONNECTION, &body).await.error(429, "rate_limited");
    rig.post("/api/wallet/topup", &json!({"amountSats": 1_000})).await.error(429, "rate_limited");
}
