//! Accounts, as operators manage them.

use poem::Request;
use poem::http::Method;
use serde_json::{Value, json};

use super::login::PASSWORD;
use super::{Answer, Rig};
use crate::auth::link::new_link;
use satcast_core::ids::{AccountId, EndReason, StreamId};
use satcast_store::{AuditFilter, Page};

/// A service whose requests are an operator's, and the account that it manages.
struct Managed {
    rig: Rig,
    /// The operator's key.
    operator: String,
    /// Path of the managed account, which is the owner of the rig.
    path: String,
}

impl Managed {
    async fn new() -> Self {
        let rig = Rig::new().await;
        let operator = rig.operator().await;
        let path = format!("/api/accounts/{}", rig.account);
        Self { rig, operator, path }
    }

    async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let mut request = Request::builder().method(method).uri_str(path).content_type("application/json");
        for (name, value) in headers.iter().chain(&[("X-API-Key", self.operator.as_str())]) {
            request = request.header(*name, *value);
        }
        self.rig.send(request.body(body.to_string())).await
    }

    async fn change(&self, body: Value) -> Value {
        self.ask(Method::PATCH, &self.path, &[], &body).await.ok()
    }

    async fn list(&self) -> Value {
        self.ask(Method::GET, "/api/accounts", &[], &json!({})).await.ok()
    }

    async fn actions(&self) -> Vec<String> {
        let filter = AuditFilter { account: Some(self.rig.account), ..AuditFilter::default() };
        let log = self.rig.app.store.audit(filter, Page::ALL).await.unwrap();
        log.into_iter().rev().map(|entry| entry.action).collect()
    }
}

/// A login session of a new operator.
async fn operator_session(rig: &Rig, name: &str) -> String {
    let (token, link) = new_link(rig.app.clock.now());
    rig.app.store.create_invite(&rig.origin(), &link.token_hash, true, link.expires_at).await.unwrap();
    let body = json!({"token": token.expose(), "name": name, "password": PASSWORD});
    rig.anyone("/api/auth/setup", &body).await.ok()["token"].as_str().unwrap().to_owned()
}

/// The token of a link.
fn token(link: &Value) -> &str {
    link.as_str().unwrap().rsplit('#').next().unwrap()
}

#[tokio::test]
async fn a_person_gets_an_account_by_its_link() {
    let managed = Managed::new().await;
    let rig = &managed.rig;
    let create = async |body: Value| managed.ask(Method::POST, "/api/accounts", &[], &body).await;
    let made = create(json!({"name": " ann "})).await.ok();
    assert_eq!((&made["success"], &made["balance"]), (&json!(true), &json!(10_000)));
    let link = made["loginLink"].as_str().unwrap();
    assert!(
        link.starts_with(&format!("{}/setup?account=ann#inv_", rig.app.config().public_base())),
        "{link}"
    );
    create(json!({"name": "ann"})).await.error(409, "name_taken");
    create(json!({"name": " "})).await.error(422, "name_refused");
    create(json!({"name": "bob", "credit": -1})).await.error(422, "credit_refused");
    let body = json!({"token": token(&made["loginLink"]), "password": PASSWORD});
    let entered = rig.anyone("/api/auth/setup", &body).await.ok();
    assert_eq!((&entered["accountId"], &entered["name"]), (&made["id"], &json!("ann")));
    rig.anyone("/api/auth/setup", &body).await.error(404, "not_found");
    let session = rig.log_in("ann").await;
    let own = rig.bearer(Method::GET, "/api/auth/me", &session, &json!({})).await.ok();
    assert_eq!(own, json!({"accountId": made["id"], "name": "ann", "operator": false}));
    rig.bearer(Method::GET, "/api/accounts", &session, &json!({})).await.error(403, "not_operator");
    let made = create(json!({"name": "bob", "credit": 0})).await.ok();
    let list = managed.list().await;
    let bob = json!({"id": made["id"], "name": "bob", "operator": false, "disabled": false,
        "hasPassword": false, "balance": 0, "createdAt": rig.app.clock.now().0});
    assert_eq!((&list[0], &list[1]["hasPassword"]), (&bob, &json!(true)));
    assert_eq!(list.as_array().unwrap().len(), 4);
    let page = managed.ask(Method::GET, "/api/accounts?limit=3", &[], &json!({})).await;
    assert!(page.header("link").contains("/api/accounts?cursor="), "{}", page.header("link"));
}

#[tokio::test]
async fn only_a_login_session_makes_an_operator_or_its_link() {
    let managed = Managed::new().await;
    let rig = &managed.rig;
    let made =
        managed.ask(Method::POST, "/api/accounts", &[], &json!({"name": "ann", "operator": true})).await;
    made.error(403, "session_required");
    let own = managed.list().await[0]["id"].clone();
    let path = format!("/api/accounts/{own}");
    managed.ask(Method::PATCH, &path, &[], &json!({"loginLink": true})).await.error(403, "session_required");
    let session = operator_session(rig, "ann").await;
    let bob = json!({"name": "bob", "operator": true});
    assert_eq!(rig.bearer(Method::POST, "/api/accounts", &session, &bob).await.ok()["success"], true);
    let made = rig.bearer(Method::PATCH, &path, &session, &json!({"loginLink": true})).await.ok();
    assert!(token(&made["loginLink"]).starts_with("inv_"));
}

#[tokio::test]
async fn a_person_does_not_see_the_address_of_an_operator() {
    let managed = Managed::new().await;
    managed.change(json!({"credit": 1})).await;
    let log = managed.rig.get("/api/audit").await.ok();
    assert_eq!((&log[0]["action"], &log[0]["address"]), (&json!("account.credited"), &json!(null)));
}

#[tokio::test]
async fn credit_is_added_once_for_an_idempotency_key() {
    let managed = Managed::new().await;
    let once = [("Idempotency-Key", "c1")];
    for _ in 0..2 {
        let added = managed.ask(Method::PATCH, &managed.path, &once, &json!({"credit": 500})).await;
        assert_eq!(added.ok()["balance"], 500);
    }
    managed
        .ask(Method::PATCH, &managed.path, &once, &json!({"credit": 501}))
        .await
        .error(409, "idempotency_key_reused");
    assert_eq!(managed.change(json!({"credit": 1})).await["balance"], 501);
    let ledger = managed.rig.get("/api/wallet/ledger").await.ok();
    assert_eq!((&ledger[0]["kind"], &ledger[0]["amountMsat"]), (&json!("prepaid"), &json!(1_000)));
    assert_eq!(managed.actions().await.iter().filter(|action| *action == "account.credited").count(), 2);
    let most = 2_100_000_000_000_000_i64;
    let answer =
        managed.ask(Method::PATCH, &managed.path, &[], &json!({"credit": most, "disabled": true})).await;
    answer.error(422, "credit_refused");
    assert_eq!(managed.list().await[1]["disabled"], false, "all or nothing");
    managed.ask(Method::PATCH, &managed.path, &[], &json!({})).await.error(422, "nothing_to_change");
}

#[tokio::test]
async fn a_disabled_account_can_do_nothing_and_its_streams_end() {
    let managed = Managed::new().await;
    let rig = &managed.rig;
    rig.person("ann").await;
    let session = rig.log_in("ann").await;
    let hosted = rig.hosted().await;
    let (publisher, _opening) = rig.go_live(&hosted).await;
    rig.status(&hosted.key).await.ok();
    managed.change(json!({"disabled": true})).await;
    assert_eq!(publisher.closed().await.code, "NetStream.Unpublish.Success");
    let last = rig.app.store.last_session(StreamId(hosted.stream)).await.unwrap().unwrap();
    assert_eq!(last.end_reason, Some(EndReason::AccountDisabled));
    rig.get("/api/streams").await.error(403, "account_disabled");
    rig.status(&hosted.key).await.error(401, "invalid_key");
    let record = rig.app.store.stream(StreamId(hosted.stream)).await.unwrap().unwrap();
    assert!(rig.app.live.publish(record).await.is_err());
    // Neither keys nor sessions are lost.
    managed.change(json!({"disabled": false})).await;
    rig.get("/api/streams").await.ok();
    rig.status(&hosted.key).await.ok();
    let changes = managed.actions().await;
    assert!(changes.ends_with(&["account.disabled".to_owned(), "account.enabled".to_owned()]), "{changes:?}");
    let ann = managed.list().await[0]["id"].as_i64().unwrap();
    let path = format!("/api/accounts/{ann}");
    managed.ask(Method::PATCH, &path, &[], &json!({"disabled": true})).await.ok();
    rig.bearer(Method::GET, "/api/auth/me", &session, &json!({})).await.error(403, "account_disabled");
    let credentials = json!({"name": "ann", "password": PASSWORD});
    rig.anyone("/api/auth/login", &credentials).await.error(403, "account_disabled");
    let made = managed.ask(Method::PATCH, &path, &[], &json!({"loginLink": true})).await.ok();
    let body = json!({"token": token(&made["loginLink"]), "password": PASSWORD});
    rig.anyone("/api/auth/setup", &body).await.error(403, "account_disabled");
    managed.ask(Method::PATCH, &path, &[], &json!({"disabled": false})).await.ok();
    rig.anyone("/api/auth/setup", &body).await.ok();
}

#[tokio::test]
async fn a_new_link_replaces_the_last_one_and_ends_the_sessions_when_it_is_used() {
    let managed = Managed::new().await;
    let rig = &managed.rig;
    rig.person("ann").await;
    let session = rig.log_in("ann").await;
    let ann = rig.app.store.account_by_name("ann").await.unwrap().unwrap().id;
    let link = async |id: AccountId| {
        let path = format!("/api/accounts/{id}");
        managed.ask(Method::PATCH, &path, &[], &json!({"loginLink": true})).await.ok()["loginLink"].clone()
    };
    let (old, new) = (link(ann).await, link(ann).await);
    let set_up = async |link: &Value| {
        let body = json!({"token": token(link), "name": "other", "password": "another good one"});
        rig.anyone("/api/auth/setup", &body).await
    };
    set_up(&old).await.error(404, "not_found");
    rig.bearer(Method::GET, "/api/streams", &session, &json!({})).await.ok();
    assert_eq!(set_up(&new).await.ok()["name"], "ann", "the name stays");
    rig.bearer(Method::GET, "/api/streams", &session, &json!({})).await.error(401, "invalid_session");
    let old = json!({"name": "ann", "password": PASSWORD});
    rig.anyone("/api/auth/login", &old).await.error(401, "invalid_login");
    let new = json!({"name": "ann", "password": "another good one"});
    rig.anyone("/api/auth/login", &new).await.ok();
}

#[tokio::test]
async fn the_file_with_the_first_link_goes_with_the_first_operator() {
    let folder = tempfile::tempdir().unwrap();
    let toml = format!("data_dir = \"{}\"\n[accounts]\nopen_registration = true\n", folder.path().display());
    let rig = Rig::with_config(&toml).await;
    let file = rig.app.config().setup_link_file();
    std::fs::write(&file, "http://x/setup#inv_x").unwrap();
    rig.anyone("/api/auth/setup", &json!({"name": "ann", "password": PASSWORD})).await.ok();
    assert!(file.exists(), "anybody could have registered");
    operator_session(&rig, "bob").await;
    assert!(!file.exists());
}
