//! Accounts: login, sessions, password, registration and cookies.

use std::time::Duration;

use poem::Request;
use poem::http::Method;
use serde_json::{Value, json};

use super::{Answer, Rig};
use crate::auth::password;
use crate::base::error::INVALID_SESSION_TEXT;
use satcast_core::ids::{Msat, UnixMillis};
use satcast_core::secret::{Redacted, key_hash, new_invite_token, new_login_token};
use satcast_store::NewAccount;

pub(super) const PASSWORD: &str = "correct horse battery";

impl Rig {
    /// An account that can log in.
    pub(super) async fn person(&self, name: &str) {
        let hash = password::hash(&Redacted::new(PASSWORD.to_owned())).unwrap();
        let account = NewAccount {
            name: name.into(),
            password_hash: Some(hash),
            operator: false,
            initial_credit: Msat(0),
        };
        self.app.store.create_account(&self.origin(), account).await.unwrap();
    }

    pub(super) async fn anyone(&self, path: &str, body: &Value) -> Answer {
        let request = Request::builder().method(Method::POST).uri_str(path).content_type("application/json");
        self.send(request.body(body.to_string())).await
    }

    /// Tries to log in as ann from behind a trusted proxy.
    async fn try_from(&self, address: &str, password: &str) -> Answer {
        let request = Request::builder().method(Method::POST).uri_str("/api/auth/login");
        let request = request.content_type("application/json").header("X-Forwarded-For", address);
        self.send(request.body(json!({"name": "ann", "password": password}).to_string())).await
    }

    pub(super) async fn log_in(&self, name: &str) -> String {
        let made = self.anyone("/api/auth/login", &json!({"name": name, "password": PASSWORD})).await.ok();
        made["token"].as_str().unwrap().to_owned()
    }

    async fn as_person(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let mut request = Request::builder().method(method).uri_str(path).content_type("application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(body.to_string())).await
    }

    pub(super) async fn bearer(&self, method: Method, path: &str, token: &str, body: &Value) -> Answer {
        self.as_person(method, path, &[("Authorization", &format!("Bearer {token}"))], body).await
    }
}

#[tokio::test]
async fn a_login_is_a_bearer_token_and_a_cookie() {
    let rig = Rig::new().await;
    rig.person("ann").await;
    let made = rig.anyone("/api/auth/login", &json!({"name": " ann ", "password": PASSWORD})).await;
    let cookie = made.header("set-cookie").to_owned();
    assert!(cookie.ends_with("; Path=/; Max-Age=2592000; HttpOnly; SameSite=Strict"), "{cookie}");
    let body = made.ok();
    let token = body["token"].as_str().unwrap();
    assert_eq!((&body["name"], &body["operator"]), (&json!("ann"), &json!(false)));
    rig.bearer(Method::GET, "/api/streams", token, &json!({})).await.ok();
    let cookie = cookie.split(';').next().unwrap();
    let read = rig.as_person(Method::GET, "/api/streams", &[("Cookie", cookie)], &json!({})).await;
    assert_eq!(read.ok(), json!([]));
    let label = json!({"label": "x"});
    let write =
        async |headers: &[(&str, &str)]| rig.as_person(Method::POST, "/api/streams", headers, &label).await;
    write(&[("Cookie", cookie)]).await.error(403, "csrf_header_missing");
    write(&[("Cookie", cookie), ("X-Requested-With", "fetch")]).await.ok();
    let in_address = format!("/api/streams?apiKey={token}");
    rig.as_person(Method::GET, &in_address, &[], &json!({})).await.error(401, "invalid_key");
}

#[tokio::test]
async fn wrong_names_and_passwords_look_alike_and_are_limited() {
    let rig = Rig::new().await;
    rig.person("ann").await;
    let attempt = async |name: &str, password: &str| {
        rig.anyone("/api/auth/login", &json!({"name": name, "password": password})).await
    };
    let wrong = attempt("ann", "not the password").await.error(401, "invalid_login");
    assert_eq!(attempt("nobody", PASSWORD).await.error(401, "invalid_login"), wrong);
    // An account that a command created without a password cannot log in.
    attempt("owner", "").await.error(401, "invalid_login");
    for number in 3..20 {
        attempt(&format!("nobody{number}"), "x").await.error(401, "invalid_login");
    }
    attempt("ann", PASSWORD).await.error(429, "rate_limited");
    rig.app.clock.advance(Duration::from_secs(60));
    attempt("ann", PASSWORD).await.ok();
}

/// The peer of these tests is a proxy.
const BEHIND_PROXY: &str = "[http]\ntrusted_proxies = [\"0.0.0.0/32\"]\n";
const HOME: &str = "198.51.100.1";
const STEP: Duration = Duration::from_millis(500);

#[tokio::test]
async fn wrong_passwords_delay_their_network_and_lock_no_account() {
    let rig = Rig::with_config(BEHIND_PROXY).await;
    rig.person("ann").await;
    let clock = &rig.app.clock;
    for _ in 0..5 {
        rig.try_from(HOME, "x").await.error(401, "invalid_login");
    }
    // From now on each attempt takes longer, but the right password is still accepted.
    for least in [1, 2, 5, 10, 20, 30, 30] {
        clock.advance(Duration::from_secs(5));
        let before = clock.monotonic();
        clock.passing(STEP, rig.try_from(HOME, "x")).await.error(401, "invalid_login");
        assert!(clock.monotonic() - before >= Duration::from_secs(least), "{least} s");
    }
    let beside = async {
        tokio::task::yield_now().await;
        rig.try_from(HOME, PASSWORD).await.error(429, "rate_limited");
    };
    let both = futures_util::future::join(rig.try_from(HOME, "x"), beside);
    clock.passing(STEP, both).await.0.error(401, "invalid_login");
    clock.passing(STEP, rig.try_from(HOME, PASSWORD)).await.ok();
    rig.try_from("203.0.113.9", PASSWORD).await.ok();
}

#[tokio::test]
async fn an_attack_from_many_networks_delays_only_unknown_networks() {
    let rig = Rig::with_config(BEHIND_PROXY).await;
    rig.person("ann").await;
    rig.try_from(HOME, PASSWORD).await.ok();
    for network in 0..50 {
        rig.try_from(&format!("203.0.113.{network}"), "x").await.error(401, "invalid_login");
    }
    rig.try_from(HOME, PASSWORD).await.ok();
    let clock = &rig.app.clock;
    let before = clock.monotonic();
    clock.passing(STEP, rig.try_from("203.0.113.99", PASSWORD)).await.ok();
    assert!(clock.monotonic() - before >= Duration::from_secs(10));
}

#[tokio::test]
async fn the_wait_for_a_hashing_permit_is_bounded() {
    let rig = Rig::new().await;
    let _all = rig.app.limits.hashing.acquire_many(2).await.unwrap();
    let (step, credentials) = (Duration::from_millis(100), json!({"name": "ann", "password": PASSWORD}));
    rig.app.clock.passing(step, rig.anyone("/api/auth/login", &credentials)).await.error(503, "busy");
}

#[tokio::test]
async fn a_session_reads_the_active_cost() {
    const COST: &str = "/api/public/streams/active/cost";
    let rig = Rig::new().await;
    rig.person("ann").await;
    let token = rig.log_in("ann").await;
    let cost = rig.bearer(Method::GET, COST, &token, &json!({})).await.ok();
    assert_eq!(cost["hasActiveStream"], false);
    let cookie = format!("satcast_session={token}");
    rig.as_person(Method::GET, COST, &[("Cookie", &cookie)], &json!({})).await.ok();
    let ended = new_login_token();
    rig.bearer(Method::GET, COST, ended.expose(), &json!({})).await.error(401, "invalid_session");
}

#[tokio::test]
async fn a_session_is_extended_by_use_up_to_its_maximum() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let rig = Rig::new().await;
    rig.person("ann").await;
    let token = rig.log_in("ann").await;
    let hash = key_hash(&token);
    let end = async || {
        rig.app.store.login_by_hash(&hash, UnixMillis(0)).await.unwrap().map(|login| login.expires_at)
    };
    let used = async || rig.bearer(Method::GET, "/api/streams", &token, &json!({})).await;
    for _ in 0..29 {
        rig.app.clock.advance(DAY - Duration::from_secs(1));
        let before = end().await;
        used().await.ok();
        while end().await == before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    rig.app.clock.advance(DAY - Duration::from_secs(1));
    used().await.ok();
    rig.app.clock.advance(Duration::from_secs(60));
    let text = used().await.error(401, "invalid_session");
    assert_eq!(text, INVALID_SESSION_TEXT);
    let idle = rig.log_in("ann").await;
    rig.app.clock.advance(DAY);
    rig.bearer(Method::GET, "/api/streams", &idle, &json!({})).await.error(401, "invalid_session");
    let unknown = new_login_token();
    rig.bearer(Method::GET, "/api/streams", unknown.expose(), &json!({})).await.error(401, "invalid_session");
}

#[tokio::test]
async fn sessions_are_listed_and_ended_only_by_their_account() {
    let mut rig = Rig::new().await;
    rig.person("ann").await;
    let (first, second) = (rig.log_in("ann").await, rig.log_in("ann").await);
    let list = rig.bearer(Method::GET, "/api/auth/sessions", &second, &json!({})).await.ok();
    assert_eq!((&list[0]["current"], &list[1]["current"]), (&json!(true), &json!(false)));
    let id = list[1]["id"].as_i64().unwrap();
    let path = format!("/api/auth/sessions/{id}");
    rig.delete(&path).await.error(404, "not_found");
    rig.bearer(Method::DELETE, &path, &second, &json!({})).await.ok();
    rig.bearer(Method::GET, "/api/streams", &first, &json!({})).await.error(401, "invalid_session");
    let out = rig.bearer(Method::POST, "/api/auth/logout", &second, &json!({})).await;
    assert!(out.header("set-cookie").contains("satcast_session=; Path=/; Max-Age=0"));
    rig.bearer(Method::GET, "/api/streams", &second, &json!({})).await.error(401, "invalid_session");
    rig.post("/api/auth/logout", &json!({})).await.error(403, "session_required");
    rig.key = String::new();
    rig.get("/api/auth/sessions").await.error(401, "key_required");
}

#[tokio::test]
async fn a_new_password_ends_every_session() {
    let rig = Rig::new().await;
    rig.person("ann").await;
    let (first, second) = (rig.log_in("ann").await, rig.log_in("ann").await);
    let change = async |now: &str, new: &str| {
        let body = json!({"currentPassword": now, "newPassword": new});
        rig.bearer(Method::POST, "/api/auth/password", &first, &body).await
    };
    change("wrong", "another good one").await.error(422, "password_refused");
    let text = change(PASSWORD, "pw-7777").await.error(422, "password_refused");
    assert!(text.contains("newPassword") && !text.contains("pw-7777"), "{text}");
    change(PASSWORD, "another good one").await.ok();
    for token in [&first, &second] {
        rig.bearer(Method::GET, "/api/streams", token, &json!({})).await.error(401, "invalid_session");
    }
    rig.anyone("/api/auth/login", &json!({"name": "ann", "password": PASSWORD}))
        .await
        .error(401, "invalid_login");
    let new = json!({"name": "ann", "password": "another good one"});
    rig.anyone("/api/auth/login", &new).await.ok();
}

#[tokio::test]
async fn an_invite_link_creates_one_account() {
    let rig = Rig::new().await;
    let (token, now) = (new_invite_token(), rig.app.clock.now());
    let later = UnixMillis(now.0 + 1_000);
    rig.app.store.create_invite(&rig.origin(), &key_hash(token.expose()), true, later).await.unwrap();
    let set_up = async |token: Option<&str>, name: &str| {
        let mut body = json!({"name": name, "password": PASSWORD});
        if let Some(token) = token {
            body["token"] = json!(token);
        }
        rig.anyone("/api/auth/setup", &body).await
    };
    set_up(None, "ann").await.error(403, "registration_closed");
    set_up(Some(new_invite_token().expose()), "ann").await.error(404, "not_found");
    set_up(Some("inv_x"), "ann").await.error(404, "not_found");
    set_up(Some(token.expose()), "owner").await.error(409, "name_taken");
    set_up(Some(token.expose()), " ").await.error(422, "name_refused");
    let made = set_up(Some(token.expose()), "ann").await.ok();
    assert_eq!(made["operator"], true, "as the link says");
    rig.bearer(Method::GET, "/api/streams", made["token"].as_str().unwrap(), &json!({})).await.ok();
    set_up(Some(token.expose()), "bob").await.error(404, "not_found");
    let late = new_invite_token();
    rig.app.store.create_invite(&rig.origin(), &key_hash(late.expose()), false, later).await.unwrap();
    rig.app.clock.advance(Duration::from_secs(1));
    set_up(Some(late.expose()), "bob").await.error(404, "not_found");
}

#[tokio::test]
async fn open_registration_creates_accounts_with_credit_and_without_a_link() {
    let rig = Rig::with_config("[accounts]\nopen_registration = true\n").await;
    let body = json!({"name": "ann", "password": PASSWORD});
    let made = rig.anyone("/api/auth/setup", &body).await.ok();
    assert_eq!(made["operator"], false);
    let balance =
        rig.bearer(Method::GET, "/api/wallet/balance", made["token"].as_str().unwrap(), &json!({})).await;
    assert_eq!(balance.ok()["balance"], 10_000);
    rig.anyone("/api/auth/setup", &body).await.error(409, "name_taken");
}

#[tokio::test]
async fn a_key_can_end_with_its_session() {
    let mut rig = Rig::new().await;
    rig.person("ann").await;
    let token = rig.log_in("ann").await;
    let wanted = json!({"type": "permanent", "scopes": ["webhooks"], "endsWithSession": true});
    rig.post("/api/keys", &wanted).await.error(403, "session_required");
    let public = json!({"type": "public", "destinationId": 1, "endsWithSession": true});
    rig.bearer(Method::POST, "/api/keys", &token, &public).await.error(422, "key_refused");
    let made = rig.bearer(Method::POST, "/api/keys", &token, &wanted).await.ok();
    let listed = rig.bearer(Method::GET, "/api/keys", &token, &json!({})).await.ok();
    assert_eq!((&listed[0]["id"], &listed[0]["endsWithSession"]), (&made["id"], &json!(true)));
    rig.key = made["key"].as_str().unwrap().to_owned();
    rig.get("/api/webhooks").await.ok();
    rig.bearer(Method::POST, "/api/auth/logout", &token, &json!({})).await.ok();
    rig.get("/api/webhooks").await.error(401, "invalid_key");
    let token = rig.log_in("ann").await;
    let listed = rig.bearer(Method::GET, "/api/keys", &token, &json!({})).await.ok();
    assert!(listed.as_array().unwrap().iter().all(|key| key["id"] != made["id"]), "{listed}");
    let made = rig.bearer(Method::POST, "/api/keys", &token, &wanted).await.ok();
    rig.key = made["key"].as_str().unwrap().to_owned();
    rig.get("/api/webhooks").await.ok();
    rig.app.clock.advance(std::time::Duration::from_secs(24 * 60 * 60));
    rig.get("/api/webhooks").await.error(401, "invalid_key");
}
