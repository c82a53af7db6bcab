//! Everything in the pages beside streams: webhooks, recordings, keys, credit, accounts and drivers.

use satcast_tests::api::Api;
use satcast_tests::author::lay;
use satcast_tests::dashboard::{Dashboard, card, dialog, digits, table, text, text_with};
use satcast_tests::encoder::Publish;
use satcast_tests::lnbits::LnbitsServer;
use satcast_tests::receiver::Receiver;
use satcast_tests::s3::Store;
use satcast_tests::scene::built;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::{Recipe, Source};
use satcast_tests::verifiers::Verifier;
use satcast_tests::wait::{seconds, until_api};
use serde_json::{Value, json};

use crate::archive::{archived, assert_whole, end, key_of, wait_for};
use crate::changes::change;

const RECOVERY_SATS: i64 = 360;
const PASSWORD: &str = "another horse battery";

fn started(setup: Setup) -> Service {
    let mut service = setup.stopped();
    service.start();
    service
}

/// Presses the button that shows the secret field of this message key, and gives the secret.
#[track_caller]
fn shown(page: &mut Dashboard, label: &str) -> String {
    let hidden = page.field(text(label));
    page.click("button", text_with("ui.showNamed", json!([text(label)])));
    let secret = page.field(text(label));
    assert_ne!(secret, hidden, "a secret is shown on a click only");
    secret
}

/// Expects that neither texts nor fields of the page have a secret.
#[track_caller]
fn assert_gone(page: &mut Dashboard, secret: &str) {
    let read = page.step(json!({ "do": "read", "css": "body, input, textarea" }));
    assert!(!read.to_string().contains(secret), "a secret is shown twice");
}

/// Waits until a figure shows this amount.
#[track_caller]
fn see_sats(page: &mut Dashboard, part: &Value, name: &str, sats: i64) {
    until_api(&format!("{sats} sats as {name}"), || {
        let shown = page.figure(part, text(name));
        if shown.as_deref().and_then(digits) == Some(sats) { Ok(()) } else { Err(format!("{shown:?}")) }
    });
}

/// Waits until a part of the page shows this state.
#[track_caller]
fn see_state(page: &mut Dashboard, part: &Value, state: &str) {
    let shown = text(&format!("states.{state}"));
    let _ = page.step(json!({ "do": "see", "in": part, "text": shown, "exact": true }));
}

/// Waits until a request of the dialog has failed.
#[track_caller]
fn see_refusal(page: &mut Dashboard) {
    let _ = page.step(json!({ "do": "see", "in": dialog(), "role": "alert" }));
}

/// Waits until a part of the page does not have this text.
#[track_caller]
fn miss(page: &mut Dashboard, part: &Value, shown: Value) {
    let _ = page.step(json!({ "do": "miss", "in": part, "text": shown }));
}

/// Waits until no dialog is open.
#[track_caller]
fn see_closed(page: &mut Dashboard) {
    let _ = page.step(json!({ "do": "miss", "role": "dialog" }));
}

fn balance(api: &Api) -> i64 {
    api.get("/api/wallet/balance").ok()["balance"].as_i64().expect("a balance")
}

/// Waits until the newest delivery of a webhook has this state, and gives it.
#[track_caller]
fn newest(api: &Api, webhook: &Value, state: &str) -> Value {
    until_api(&format!("a delivery that is {state}"), || {
        let log = api.get(&format!("/api/webhooks/{webhook}/deliveries")).ok();
        if log[0]["state"] == state { Ok(log[0].clone()) } else { Err(log.to_string()) }
    })
}

fn statuses(delivery: &Value) -> Vec<Value> {
    let attempts = delivery["attempts"].as_array().into_iter().flatten();
    attempts.map(|attempt| attempt["status"].clone()).collect()
}

#[test]
fn webhooks_are_tested_fail_and_are_sent_again() {
    let service = started(Setup::default().set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]"));
    let (mut page, api) = Dashboard::first(&service);
    let receiver = Receiver::start(None);
    page.open("/webhooks");
    page.click("button", text("webhooks.add"));
    page.fill(text("webhooks.url"), &receiver.url());
    page.click("button", text("webhooks.create"));
    page.see("dialog", text("webhooks.secretTitle"));
    let secret = shown(&mut page, "webhooks.secret");
    page.click("button", text("webhooks.secretStored"));
    page.see("button", text("webhook.send"));
    assert_gone(&mut page, &secret);
    let webhook = api.get("/api/webhooks").ok()[0].clone();
    assert_eq!((&webhook["url"], &webhook["hasSecret"]), (&json!(receiver.url()), &json!(true)));

    let test = card(text("webhook.test"));
    page.click("button", text("webhook.send"));
    page.see_in(&test, text("webhook.accepted"));
    let accepted = newest(&api, &webhook["id"], "delivered");
    assert_eq!(page.read(".webhook-result .badge"), ["204"]);
    let took = page.read(".webhook-result .row .muted").concat();
    assert_eq!(digits(&took), accepted["attempts"][0]["durationMs"].as_i64(), "{took}");

    receiver.refuse(500, "out of order");
    page.click("button", text("webhook.send"));
    page.see_in(&test, text("webhook.notAccepted"));
    assert_eq!(page.read(".webhook-result .badge"), ["500"]);
    assert_eq!(page.read(".webhook-result pre"), ["out of order"]);
    let failed = newest(&api, &webhook["id"], "failed");
    assert_eq!(statuses(&failed), [json!(500)]);
    let log = table(text("webhook.deliveries"));
    see_state(&mut page, &log, "failed");
    let details = text_with("webhook.detailsNamed", json!(["test.ping"]));
    let _ = page.step(json!({ "do": "click", "in": log, "role": "button", "name": details, "first": true }));
    see_state(&mut page, &dialog(), "failed");
    assert_eq!(page.read("dialog .attempts .badge"), ["500"]);
    assert_eq!(page.read("dialog .attempts pre"), ["out of order"]);
    let body = page.field(text("webhook.body"));
    assert_eq!(failed["body"], body.as_str());

    receiver.recover();
    page.click("button", text("webhook.resend"));
    see_state(&mut page, &dialog(), "delivered");
    assert_eq!(page.read("dialog .attempts .badge"), ["204", "500"], "newest first");
    let sent_again = newest(&api, &webhook["id"], "delivered");
    assert_eq!((&sent_again["id"], statuses(&sent_again)), (&failed["id"], vec![json!(500), json!(204)]));
    let received = receiver.wait_for(3);
    assert_eq!(Verifier::Rust.accepts(&secret, &received), [true, true, true]);
    assert_eq!(received[2].headers["webhook-id"], received[1].headers["webhook-id"]);
    assert_eq!(received[2].headers["webhook-id"], failed["eventId"]);
    assert_eq!((&received[1].body, &received[2].body), (&body, &body), "the page has the signed body");
    service.assert_not_logged(&[("the secret", secret.as_str())]);
    page.finish();
}

#[test]
fn a_failed_upload_is_recovered() {
    let (source, store) = (Source::of(Recipe::SMALL), Store::start());
    let service = started(Setup::default().set("SATCAST_BILLING__INITIAL_CREDIT_SATS", "1000"));
    let (mut page, api) = Dashboard::first(&service);
    let (stream, _) = archived(&api, "taken", &store);
    page.open("/recordings");
    page.see_text(text("recordings.none"));
    let recordings = table(text("nav.recordings"));
    let mut encoder = Publish::of(&source).faster(2).to(&service.ingest_url(&stream.key));
    let running = wait_for(&api, "recording");
    see_state(&mut page, &recordings, "recording");

    // Another object has the name already, so the store refuses the upload at once. A store that is away is tried for a day.
    let file = store.file(&key_of(&running));
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder in the bucket");
    std::fs::write(&file, "somebody else's").expect("an object");
    encoder.finish(seconds(60));
    end(&api, &stream);
    let failed = wait_for(&api, "failed");
    let (name, error) = (&failed["fileName"], failed["error"].as_str().expect("a reason"));
    see_state(&mut page, &recordings, "failed");
    page.see_in(&recordings, error);

    std::fs::remove_file(&file).expect("the other object goes");
    store.refuse(500);
    let before = balance(&api);
    page.click("button", text_with("recordings.recoverNamed", json!([name])));
    page.see_in(&dialog(), error);
    see_sats(&mut page, &dialog(), "recordings.fee", RECOVERY_SATS);
    see_sats(&mut page, &dialog(), "recordings.balance", before);
    page.click("button", text("recordings.recover"));
    see_refusal(&mut page);
    assert_eq!(balance(&api), before, "an upload that the store did not open was charged");

    store.recover();
    page.click("button", text("recordings.recover"));
    see_closed(&mut page);
    let ready = wait_for(&api, "ready");
    see_state(&mut page, &recordings, "ready");
    assert_eq!(balance(&api), before - RECOVERY_SATS, "charged once");
    page.open("/wallet");
    see_sats(&mut page, &card(text("wallet.balance")), "wallet.credit", before - RECOVERY_SATS);
    page.see_in(&card(text("wallet.ledger")), text("wallet.kinds.recovery"));
    service.run(&["ledger", "check"]);
    assert_whole(source.records(), &store.file(&key_of(&ready)));
    page.finish();
}

#[test]
fn a_revoked_key_works_no_more() {
    let service = started(Setup::default());
    let (mut page, api) = Dashboard::first(&service);
    page.open("/keys");
    page.click("button", text("keys.add"));
    page.fill(text("keys.label"), "Website");
    page.click("button", text("keys.create"));
    page.see("dialog", text("keys.createdTitle"));
    let key = shown(&mut page, "keys.key");
    page.click("button", text("keys.stored"));
    see_closed(&mut page);
    assert_gone(&mut page, &key);
    let reader = api.with_key(Some(&key));
    assert_eq!(reader.get("/api/streams").ok(), json!([]));
    // The form offers the scope `read` first.
    reader.post("/api/streams", &json!({ "label": "mine" })).assert_error(403, None);

    page.open("/keys");
    assert_gone(&mut page, &key);
    page.see_in(&table(text("nav.keys")), "Website");
    page.click("button", text_with("keys.revokeNamed", json!(["Website"])));
    page.click("button", text("keys.revoke"));
    miss(&mut page, &table(text("nav.keys")), json!("Website"));
    reader.get("/api/streams").assert_error(401, Some("invalid_key"));
    let left = api.get("/api/keys").ok();
    assert!(left.as_array().into_iter().flatten().all(|left| left["label"] != "Website"), "{left}");
    service.assert_not_logged(&[("the key", key.as_str())]);
    page.finish();
}

#[test]
fn credit_is_topped_up_with_an_invoice() {
    let lnbits = LnbitsServer::start();
    lnbits.fund(&lnbits.customer, 1_000);
    let service = started(
        Setup::default()
            .set("SATCAST_WALLET__TYPE", "lnbits")
            .set("SATCAST_WALLET__URL", lnbits.url())
            .set("SATCAST_WALLET__SECRET", &lnbits.operator.invoice_key)
            .set("SATCAST_BILLING__MODE", "wallet"),
    );
    let (mut page, api) = Dashboard::first(&service);
    page.open("/wallet");
    let credit = card(text("wallet.balance"));
    see_sats(&mut page, &credit, "wallet.credit", 0);
    page.fill(text("wallet.amount"), "500");
    page.click("button", text("wallet.createInvoice"));
    page.see("img", text("wallet.qr"));
    let _ = page.step(json!({ "do": "see", "css": ".qr path[d^=M]" }));
    let invoice = page.field(text("wallet.invoice"));
    let loads = page.step(json!({ "do": "state" }))["loads"].clone();

    lnbits.pay(&lnbits.customer, &invoice);
    until_api("the credit", || match balance(&api) {
        500 => Ok(()),
        other => Err(other.to_string()),
    });
    see_state(&mut page, &card(text("wallet.topUp")), "settled");
    see_sats(&mut page, &credit, "wallet.credit", 500);
    page.see_in(&card(text("wallet.ledger")), text("wallet.kinds.topup"));
    let amounts: Vec<_> = page.read("td .credit").iter().map(|amount| digits(amount)).collect();
    assert_eq!(amounts, [Some(500)]);
    assert_eq!(page.step(json!({ "do": "state" }))["loads"], loads, "without a reload");
    assert_eq!(lnbits.balance_msat(&lnbits.operator), 500_000);
    page.finish();
}

/// An account as the operator's API lists it.
#[track_caller]
fn account(api: &Api, name: &str) -> Value {
    let list = api.get("/api/accounts").ok();
    let found = list.as_array().into_iter().flatten().find(|one| one["name"] == name).cloned();
    found.unwrap_or_else(|| panic!("no account {name}: {list}"))
}

/// Makes an account in the operator's page, and gives the login link, which is shown once.
#[track_caller]
fn add_account(operator: &mut Dashboard, name: &str, sats: &str) -> String {
    operator.open("/accounts");
    operator.click("button", text("accounts.add"));
    operator.fill(text("accounts.name"), name);
    operator.fill(text("accounts.credit"), sats);
    operator.click("button", text("accounts.create"));
    operator.see("dialog", text_with("accounts.linkTitle", json!([name])));
    let link = shown(operator, "accounts.link");
    operator.click("button", text("accounts.linkStored"));
    see_closed(operator);
    assert_gone(operator, &link);
    link
}

#[test]
fn an_operator_adds_an_account() {
    let service = started(Setup::default());
    let (mut operator, api) = Dashboard::first(&service);
    let link = add_account(&mut operator, "ann", "50");
    let mut person = Dashboard::launch(&service);
    person.open(&link);
    person.see("heading", text("setup.passwordTitle"));
    person.fill(text("login.password"), PASSWORD);
    person.click("button", text("setup.passwordAction"));
    person.see("heading", text("nav.streams"));
    let _ = person.step(json!({ "do": "miss", "role": "link", "name": text("nav.accounts") }));
    let made = account(&api, "ann");
    let facts = (&made["hasPassword"], &made["operator"], &made["balance"]);
    assert_eq!(facts, (&json!(true), &json!(false), &json!(50)));
    let visitor = api.with_key(None);
    let again = json!({ "token": link.rsplit('#').next(), "password": PASSWORD });
    visitor.post("/api/auth/setup", &again).assert_error(404, Some("not_found"));

    let accounts = table(text("nav.accounts"));
    operator.click("button", text_with("accounts.addCreditNamed", json!(["ann"])));
    operator.fill(text("accounts.amount"), "1e9");
    operator.click("button", text("accounts.next"));
    operator.see_text(text("problems.whole"));
    operator.fill(text("accounts.amount"), "250");
    operator.click("button", text("accounts.next"));
    operator.see("dialog", text_with("accounts.creditTitle", json!(["250 sats", "ann"])));
    operator.click("button", text("accounts.addCredit"));
    see_closed(&mut operator);
    operator.see_in(&accounts, "300 sats");
    assert_eq!(account(&api, "ann")["balance"], 300);
    person.click("link", text("nav.wallet"));
    see_sats(&mut person, &card(text("wallet.balance")), "wallet.credit", 300);
    let key = service.api_of("ann");

    operator.click("button", text_with("accounts.disableNamed", json!(["ann"])));
    operator.click("button", text("accounts.disable"));
    see_closed(&mut operator);
    see_state(&mut operator, &accounts, "disabled");
    key.get("/api/streams").assert_error(403, Some("account_disabled"));
    // The open page notices it by itself, and says why.
    person.see("heading", text("login.title"));
    let _ = person.step(json!({ "do": "see", "role": "alert" }));
    person.log_in("ann", PASSWORD);
    let _ = person.step(json!({ "do": "see", "role": "alert" }));
    person.open("/recordings");
    person.see("heading", text("login.title"));

    operator.click("button", text_with("accounts.enableNamed", json!(["ann"])));
    miss(&mut operator, &accounts, text("states.disabled"));
    assert_eq!(key.get("/api/streams").ok(), json!([]));
    person.log_in("ann", PASSWORD);
    person.see("heading", text("nav.recordings"));
    service.assert_not_logged(&[("the link", link.as_str()), ("the password", PASSWORD)]);
    person.finish();
    operator.finish();
}

/// Expects a driver on the page as the API shows it.
#[track_caller]
fn see_driver(page: &mut Dashboard, driver: &Value) {
    let part = card(driver["id"].clone());
    let state = driver["state"].as_str().expect("a state");
    see_state(page, &part, state);
    if let Some(error) = driver["error"].as_str() {
        page.see_in(&part, error);
    }
    if driver["version"] != "" {
        let version = page.figure(&part, text("drivers.version"));
        assert_eq!(version.as_deref(), driver["version"].as_str(), "{driver}");
    }
    for kind in driver["types"].as_array().into_iter().flatten() {
        page.see_in(&part, kind["title"].clone());
    }
}

#[test]
fn the_operator_page_of_drivers() {
    let folder = tempfile::tempdir().expect("a folder for drivers");
    for file in ["rtmp.so", "hls.so", "manifest.json"] {
        lay(&built().join("drivers").join(file), &folder.path().join(file));
    }
    let spoil = |id: &str| {
        let file = folder.path().join(format!("{id}.so"));
        std::fs::write(file, "this is no library").expect("a file in the drivers folder");
    };
    spoil("broken");
    let service = started(
        Setup::default()
            .set("SATCAST_DRIVERS__DIR", folder.path().to_str().expect("a path in UTF-8"))
            .set("SATCAST_DRIVERS__ENABLED", "[\"rtmp\",\"hls\",\"broken\",\"later\"]"),
    );
    let (mut page, api) = Dashboard::first(&service);
    page.open("/drivers");
    let listed = api.get("/api/drivers").ok();
    let drivers: Vec<&Value> = listed.as_array().into_iter().flatten().collect();
    let states: Vec<_> = drivers.iter().map(|driver| (&driver["id"], &driver["state"])).collect();
    let expected = [("broken", "refused"), ("hls", "loaded"), ("later", "missing"), ("rtmp", "loaded")];
    assert_eq!(json!(states), json!(expected));
    assert!(drivers[0]["error"].is_string(), "{}", drivers[0]);
    drivers.iter().for_each(|driver| see_driver(&mut page, driver));

    // A file that was added, and one that replaces a good one.
    spoil("later");
    page.click("button", text_with("drivers.enableNamed", json!(["later"])));
    let refused = change(&api, "later", "enable");
    refused.assert_error(422, Some("driver_refused"));
    page.see_in(&card(json!("later")), refused.body["error"].clone());
    spoil("rtmp");
    page.click("button", text_with("drivers.replaceNamed", json!(["rtmp"])));
    page.click("button", text("drivers.replace"));
    see_refusal(&mut page);
    page.click("button", text("ui.cancel"));
    see_closed(&mut page);
    let listed = api.get("/api/drivers").ok();
    let kept = listed.as_array().into_iter().flatten().find(|driver| driver["id"] == "rtmp");
    let kept = kept.expect("the driver is listed");
    assert!(kept["state"] == "loaded" && kept["error"].is_string(), "{kept}");
    see_driver(&mut page, kept);
    page.finish();
}
