//! Checks that are common to all operations of a kind, one function for each kind of response.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::json;

use super::operation::Operation;
use super::rows::{About, Row, Takes};
use super::world::{BETWEEN, Call, Credential, Resource, World};
use crate::api::Subject;
use crate::api::body::BODY_MAX_BYTES;
use crate::base::error::{INVALID_PUBLIC_KEY_TEXT as INVALID, INVALID_SESSION_TEXT};
use satcast_core::networks::Network;
use satcast_core::rate::RateLimiter;
use satcast_core::secret::key_hash;
use satcast_store::Scopes;

const KEY_REQUIRED: &str = "An API key is required: send it as X-API-Key header, as Authorization: Bearer header, or \
    as apiKey (or key) query parameter";

fn without(scope: &str) -> (Credential, String) {
    let missing = Scopes { read: scope == "read", manage: scope == "manage", webhooks: scope == "webhooks" };
    (Credential::Without(missing), format!("This key lacks the scope \"{scope}\"; use a key that has it"))
}

impl World {
    /// All allowed credentials succeed.
    pub(super) async fn succeeds(&self, operation: &Operation, row: &Row) {
        for credential in row.takes.admitted() {
            let answer = self.send(self.call(operation, row, *credential).await).await;
            assert_eq!(answer.status.as_u16(), 200, "{} by {credential:?}: {}", operation.id, answer.text);
            if operation.reads() {
                let head =
                    Call { method: poem::http::Method::HEAD, ..self.call(operation, row, *credential).await };
                let head = self.send(head).await;
                assert_eq!((head.status, head.text.as_str()), (answer.status, ""), "{}", operation.id);
            }
        }
        if row.takes.first() != Credential::Owner || !operation.is_once() {
            return;
        }
        // A repeat with the same key is not executed again; with another body it is refused.
        let resource = self.resource(row.about).await;
        let call =
            || Call::new(operation, row, &resource, Credential::Owner).with_header("idempotency-key", "once");
        let first = self.send(call()).await.ok();
        let again = self.send(call()).await;
        assert_eq!((again.ok(), again.header("idempotent-replayed")), (first, "true"), "{}", operation.id);
        self.send(call().with_body("{\"x\":1}")).await.error(409, "idempotency_key_reused");
    }

    /// All other credentials are refused.
    pub(super) async fn refuses_wrong_credentials(&self, operation: &Operation, row: &Row) {
        let scope = match row.takes {
            Takes::Webhooks => "webhooks",
            _ if operation.reads() => "read",
            _ => "manage",
        };
        let (unscoped, lacks) = without(scope);
        let mut cases: Vec<(Credential, u16, &str, &str)> = match row.takes {
            Takes::Nothing => return,
            Takes::Account | Takes::Webhooks | Takes::Session => vec![
                (Credential::Nobody, 401, "key_required", KEY_REQUIRED),
                (Credential::Mistyped, 401, "invalid_key", "Invalid API key"),
                (Credential::Ended, 401, "invalid_session", INVALID_SESSION_TEXT),
                (
                    Credential::Public,
                    403,
                    "key_type_not_allowed",
                    "A public key cannot be used here; use a permanent key (sk_...)",
                ),
                (unscoped, 403, "scope_not_allowed", &lacks),
            ],
            Takes::PublicKey => vec![
                (Credential::Nobody, 400, "key_required", KEY_REQUIRED),
                (Credential::Mistyped, 401, "invalid_key", INVALID),
                (Credential::Owner, 401, "invalid_key", INVALID),
                (Credential::Session, 401, "invalid_key", INVALID),
                (Credential::Cookie, 400, "key_required", KEY_REQUIRED),
            ],
            Takes::Anything => vec![
                (Credential::Nobody, 400, "key_required", KEY_REQUIRED),
                (Credential::Mistyped, 401, "invalid_key", INVALID),
                (Credential::Ended, 401, "invalid_session", INVALID_SESSION_TEXT),
                (unscoped, 403, "scope_not_allowed", &lacks),
            ],
        };
        let no_session = "Webhooks are managed with a permanent key (sk_...) that has the scope \"webhooks\"; a \
            session cannot be used here";
        match row.takes {
            Takes::Webhooks => {
                cases.extend(
                    [Credential::Session, Credential::Cookie]
                        .map(|credential| (credential, 403, "key_type_not_allowed", no_session)),
                );
            }
            Takes::Session => {
                cases.push((Credential::Owner, 403, "session_required", "An API key cannot do this; log in"));
            }
            _ => {}
        }
        if !operation.reads() && matches!(row.takes, Takes::Account | Takes::Session) {
            let text = "A write that is authenticated by cookie needs the header X-Requested-With";
            cases.push((Credential::BareCookie, 403, "csrf_header_missing", text));
        }
        for (credential, status, code, text) in cases {
            let answer = self.send(self.call(operation, row, credential).await).await;
            assert_eq!(answer.status.as_u16(), status, "{} by {credential:?}: {}", operation.id, answer.text);
            assert_eq!(answer.error(status, code), text, "{} by {credential:?}", operation.id);
        }
    }

    /// A resource of another account is 404 and stays unchanged.
    pub(super) async fn hides_resources_of_other_accounts(&self, operation: &Operation, row: &Row) {
        let of_nobody = [About::All, About::Password, About::Invite, About::Operated, About::Account];
        if of_nobody.contains(&row.about) {
            return;
        }
        let resource = self.resource(row.about).await;
        let text = self
            .send(Call::new(operation, row, &resource, Credential::Stranger))
            .await
            .error(404, "not_found");
        assert!(text.starts_with("No such "), "{}: {text}", operation.id);
        let own = self.send(Call::new(operation, row, &resource, Credential::Owner)).await;
        assert_eq!(own.status.as_u16(), 200, "{} after a stranger: {}", operation.id, own.text);
        if operation.has_id() {
            for id in ["0", "-1", "9223372036854775807"] {
                let path =
                    operation.template.split('/').map(|part| if part.starts_with('{') { id } else { part });
                let path = path.collect::<Vec<_>>().join("/");
                let call = Call { path, ..Call::new(operation, row, &resource, Credential::Owner) };
                self.send(call).await.error(404, "not_found");
            }
        }
    }

    /// Bodies, paths and parameters that are malformed, too large, or have a refused value.
    pub(super) async fn refuses_unreadable_requests(&self, operation: &Operation, row: &Row) {
        let call = async || self.call(operation, row, row.takes.first()).await;
        let large = vec![b' '; BODY_MAX_BYTES + 1];
        if operation.body().is_some() {
            self.send(call().await.with_body("{\"x\"")).await.error(400, "malformed_body");
            self.send(call().await.with_body("{\"nonsense\":1}")).await.error(400, "unknown_field");
            self.send(call().await.with_body(large.clone())).await.error(413, "body_too_large");
            for content_type in [None, Some("text/plain")] {
                let call = Call { content_type, ..call().await };
                self.send(call).await.error(415, "content_type_not_supported");
            }
        }
        if let Some(refused) = row.refused {
            let resource = self.resource(row.about).await;
            let call = Call::new(operation, row, &resource, row.takes.first());
            let answer = self.send(call.with_body(refused(&resource).to_string())).await;
            assert_eq!(answer.status.as_u16(), 422, "{}: {}", operation.id, answer.text);
            assert!(answer.text.contains("Field `"), "{}: {}", operation.id, answer.text);
        }
        if operation.has_id() {
            let path = operation.template.replace("{id}", "hunter2hunter2").replace("{destId}", "1");
            let call = Call { path: path.replace("{deliveryId}", "1"), ..call().await };
            let text = self.send(call).await.error(400, "malformed_path");
            assert!(!text.contains("hunter2"), "{text}");
        }
        for name in operation.parameters("query") {
            // These filters accept any text that is not too long.
            let value = if ["platform", "action"].contains(&name) { "x".repeat(65) } else { "?".to_owned() };
            let text = self.send(call().await.with_query(format!("{name}={value}"))).await;
            let text = text.error(400, "malformed_parameter");
            assert!(text.contains(&format!("`{name}`")), "{}: {text}", operation.id);
        }
        if operation.is_once() {
            let call = async |key: &str| call().await.with_header("idempotency-key", key);
            self.send(call(&"x".repeat(256)).await).await.error(400, "malformed_idempotency_key");
            self.send(call("large").await.with_body(large)).await.error(413, "body_too_large");
            self.is_full_of_requests(operation, row).await;
        }
    }

    /// An account that has used too many idempotency keys.
    async fn is_full_of_requests(&self, operation: &Operation, row: &Row) {
        let call = self.call(operation, row, row.takes.first()).await;
        self.rig.intruder().await.fill_requests(self.rig.account, self.rig.app.clock.now()).await;
        self.send(call.with_header("idempotency-key", "one too many")).await.error(409, "idempotency_full");
    }

    /// Rate limits of an allowed credential.
    pub(super) async fn keeps_its_limits(&self, operation: &Operation, row: &Row) {
        let credential = match row.takes {
            Takes::Session => Credential::Owner,
            takes => takes.first(),
        };
        let call = self.call(operation, row, credential).await;
        let most = self.use_up(operation, row).await;
        let answer = self.send(call).await;
        let text = format!("Rate limit exceeded. Maximum {most} requests per minute.");
        assert_eq!(answer.error(429, "rate_limited"), text, "{}", operation.id);
        assert_eq!(answer.json()["retryAfter"], json!(60), "{}", operation.id);
    }

    /// Uses up the limit of the operation's first credential; returns the number of requests.
    async fn use_up(&self, operation: &Operation, row: &Row) -> usize {
        let (limits, now) = (&self.rig.app.limits, self.rig.app.clock.monotonic());
        let key = async |key: &str| self.rig.app.store.key_by_hash(&key_hash(key)).await.unwrap().unwrap().id;
        let address = Network::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        fn all<S: Eq + std::hash::Hash + Clone>(
            limiter: &RateLimiter<S>,
            credential: S,
            now: std::time::Duration,
        ) -> usize {
            (0..1_000).take_while(|_| limiter.hit(credential.clone(), now).allowed).count()
        }
        match row.takes {
            Takes::Nothing if operation.is_public() => all(&limits.config, address, now),
            Takes::Nothing => all(&limits.logins, address, now),
            Takes::PublicKey => all(&limits.status, key(&self.public).await, now),
            Takes::Anything => all(&limits.cost, Subject::Key(key(&self.public).await), now),
            _ => {
                let owner = Subject::Key(key(&self.rig.key).await);
                all(if operation.reads() { &limits.reads } else { &limits.writes }, owner, now);
                if operation.reads() { 300 } else { 60 }
            }
        }
    }

    /// The statuses of the operation when the database fails.
    pub(super) async fn fails(&self, operation: &Operation, row: &Row) -> BTreeSet<u16> {
        let credential =
            if row.takes.first() == Credential::Session { Credential::Owner } else { row.takes.first() };
        let resource = Resource::nothing();
        let answer = self.send(Call::new(operation, row, &resource, credential)).await;
        self.rig.app.clock.advance(BETWEEN);
        if operation.is_secured() || operation.body().is_some() {
            answer.error(502, "store_failed");
        } else {
            answer.ok();
        }
        BTreeSet::from([answer.status.as_u16()])
    }
}
