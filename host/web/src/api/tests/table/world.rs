//! Test fixture: a service with two accounts (owner and stranger), and a builder for valid and invalid requests.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use poem::Request;
use poem::http::Method;
use satcast_plugin_api::recording::RecordingState;
use serde_json::{Value, json};

use super::operation::Operation;
use super::rows::{About, Row, Takes, rtmp};
use crate::api::tests::archives::record;
use crate::api::tests::clips::{clip, live_with_window};
use crate::api::tests::login::PASSWORD;
use crate::api::tests::{Answer, Rig, contract};
use crate::auth::password;
use satcast_core::ids::{AccountId, LoginId, Sats, StreamId, UnixMillis};
use satcast_core::secret::{KeyKind, Redacted, key_hash, new_invite_token, new_login_token};
use satcast_live::{Publisher, slate_record};
use satcast_media::mp4::Movie;
use satcast_media::mp4::made::File;
use satcast_store::{Actor, NewLogin, Scopes};

/// Limits that are large enough for all requests of one operation.
const CONFIG: &str = "[webhooks]\nallow_targets = [\"127.0.0.1\"]\n[limits]\nwebhooks_per_account = 500\n\
    keys_per_account = 500\n\
    [wallet]\ntype = \"lnbits\"\nurl = \"https://own.example\"\nsecret = \"x\"";
/// Time between requests: longer than the rate limit window of a minute, so that limits are not hit by accident.
pub(super) const BETWEEN: Duration = Duration::from_secs(61);

/// A service, its accounts, and the statuses that it returned.
pub(super) struct World {
    pub(super) rig: Rig,
    /// Public key of a destination of the owner.
    pub(super) public: String,
    /// Permanent key of another account.
    stranger: String,
    seen: Mutex<BTreeSet<u16>>,
    /// Of live streams.
    publishers: Mutex<Vec<Publisher>>,
}

/// Credential of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credential {
    /// No credential.
    Nobody,
    /// The owner's permanent key, with all scopes.
    Owner,
    /// A login session of the owner, as a bearer token.
    Session,
    /// The session as a cookie, with the CSRF header.
    Cookie,
    /// The session as a cookie, without the CSRF header.
    BareCookie,
    /// An unknown session.
    Ended,
    /// The owner's public key.
    Public,
    /// A permanent key that lacks a letter.
    Mistyped,
    /// A permanent key of the owner without these scopes.
    Without(Scopes),
    /// Another account's permanent key.
    Stranger,
}

/// The resource of a request.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) id: i64,
    /// Second identifier, for paths with two.
    pub(super) second: i64,
    /// File name of a recording, or token of an invite link.
    pub(super) name: String,
}

/// A request before it is sent.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) body: Vec<u8>,
    pub(super) content_type: Option<&'static str>,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) credential: Credential,
}

impl Resource {
    /// A resource that does not exist.
    pub(super) fn nothing() -> Self {
        Self { second: 1, ..Self::new(1) }
    }

    fn new(id: i64) -> Self {
        Self { id, second: 0, name: new_invite_token().into_inner() }
    }

    fn path(&self, template: &str) -> String {
        let second = self.second.to_string();
        let path = template.replace("{id}", &self.id.to_string());
        path.replace("{destId}", &second).replace("{deliveryId}", &second)
    }
}

impl Call {
    /// A request that succeeds if the credential is allowed.
    pub(super) fn new(operation: &Operation, row: &Row, resource: &Resource, credential: Credential) -> Self {
        let json = row.body.map(|make| ("application/json", make(resource).to_string().into_bytes()));
        let body = json.or_else(|| row.file.map(|file| ("video/mp4", file())));
        Self {
            method: operation.method.clone(),
            path: resource.path(operation.template),
            query: String::new(),
            content_type: body.as_ref().map(|(content_type, _)| *content_type),
            body: body.map(|(_, body)| body).unwrap_or_default(),
            headers: Vec::new(),
            credential,
        }
    }

    pub(super) fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(super) fn with_query(mut self, query: impl Into<String>) -> Self {
        self.query = query.into();
        self
    }

    pub(super) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

/// Hash of the password of all accounts, computed once because hashing is slow.
fn hash() -> Redacted<String> {
    static HASH: OnceLock<Redacted<String>> = OnceLock::new();
    HASH.get_or_init(|| password::hash(&Redacted::new(PASSWORD.to_owned())).unwrap()).clone()
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with_config(CONFIG).await
    }

    pub(super) async fn with_config(toml: &str) -> Self {
        let rig = Rig::with_config(toml).await;
        let public = rig.hosted().await.key;
        let stranger = rig.account("stranger").await.1;
        let (seen, publishers) = (Mutex::default(), Mutex::default());
        let world = Self { rig, public, stranger, seen, publishers };
        world.rig.app.store.credit(&world.actor(), Sats(10_000), "table".into()).await.unwrap();
        world
    }

    /// A service with a failed database.
    pub(super) async fn broken() -> Self {
        let world = Self::new().await;
        world.rig.app.store.close().await;
        world
    }

    /// The statuses returned so far.
    pub(super) fn seen(&self) -> BTreeSet<u16> {
        self.seen.lock().clone()
    }

    /// Adds the statuses of another world.
    pub(super) fn absorb(&self, other: &World) {
        self.seen.lock().extend(other.seen());
    }

    pub(super) fn actor(&self) -> Actor {
        Actor::command(self.rig.account, self.rig.app.clock.now())
    }

    /// A new session's token and identifier.
    pub(super) async fn session(&self, account: AccountId) -> (String, LoginId) {
        let token = new_login_token().into_inner();
        let expires_at = UnixMillis(self.rig.app.clock.now().0 + 3_600_000);
        let login = NewLogin { token_hash: key_hash(&token), expires_at, verified: None };
        let id = self.rig.app.store.begin_login(&self.rig.origin(), account, login).await.unwrap();
        (token, id)
    }

    /// Creates a resource for the operation.
    pub(super) async fn resource(&self, about: About) -> Resource {
        let (rig, app) = (&self.rig, &self.rig.app);
        app.clock.advance(BETWEEN);
        match about {
            About::All => Resource::new(0),
            About::Operated => {
                rig.intruder().await.promote(rig.account).await;
                Resource::new(0)
            }
            About::Account => {
                rig.intruder().await.promote(rig.account).await;
                Resource::new(rig.account(new_invite_token().expose()).await.0.0)
            }
            About::Stream => Resource::new(rig.stream().await),
            About::Slate => {
                let id = rig.stream().await;
                let file = File::default().bytes();
                let record = slate_record(&Movie::read(&file.clone().into()).unwrap(), 60);
                app.store.set_slate(&self.actor(), StreamId(id), record, file).await.unwrap();
                Resource::new(id)
            }
            About::DestinationOfStream => {
                let id = rig.stream().await;
                let path = format!("/api/streams/{id}/destinations");
                Resource {
                    second: made(&rig.post(&path, &rtmp("rtmp://a.example/live")).await),
                    ..Resource::new(id)
                }
            }
            About::Destination => {
                let path = format!("/api/streams/{}/destinations", rig.stream().await);
                Resource::new(made(&rig.post(&path, &rtmp("rtmp://a.example/live")).await))
            }
            About::Hosted => Resource::new(rig.hosted().await.destination),
            About::Key => {
                let key = rig.key(rig.account, KeyKind::Permanent, Scopes::ALL, None).await;
                let found = app.store.key_by_hash(&key_hash(&key)).await.unwrap();
                Resource::new(found.unwrap().id.0)
            }
            About::Webhook => Resource::new(self.webhook().await),
            About::Delivery => {
                let id = self.webhook().await;
                let tested = rig.post(&format!("/api/webhooks/{id}/test"), &json!({})).await.ok();
                Resource { second: tested["deliveryId"].as_i64().unwrap(), ..Resource::new(id) }
            }
            About::Login => Resource::new(self.session(rig.account).await.1.0),
            About::Password => {
                app.store.change_password(&self.actor(), &hash()).await.unwrap();
                Resource::new(0)
            }
            About::Invite => {
                let now = app.clock.now().0;
                let resource = Resource::new(now);
                let (origin, until) = (rig.origin(), UnixMillis(now + 3_600_000));
                app.store.create_invite(&origin, &key_hash(&resource.name), false, until).await.unwrap();
                resource
            }
            About::Clip => Resource::new(clip(rig).await),
            About::Live => {
                let (stream, publisher) = live_with_window(rig).await;
                self.publishers.lock().push(publisher);
                Resource::new(stream)
            }
            About::Archive => self.archive("", RecordingState::Failed).await,
            About::TopUp => {
                let made = rig.post("/api/wallet/topup", &json!({"amountSats": 1_000})).await.ok();
                Resource::new(made["invoiceId"].as_i64().unwrap())
            }
        }
    }

    /// A recording in this state, with this prefix of its name.
    pub(super) async fn archive(&self, beginning: &str, state: RecordingState) -> Resource {
        let name = format!("{beginning}a{}.mp4", self.rig.app.clock.now().0);
        let id = record(&self.rig, &name, state).await;
        Resource { name, ..Resource::new(id) }
    }

    /// A webhook with an unreachable receiver.
    async fn webhook(&self) -> i64 {
        static NOBODY: OnceLock<u16> = OnceLock::new();
        let port = NOBODY.get_or_init(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        });
        self.webhook_to(&format!("http://127.0.0.1:{port}/in")).await
    }

    pub(super) async fn webhook_to(&self, url: &str) -> i64 {
        self.rig.app.clock.advance(BETWEEN);
        made(&self.rig.post("/api/webhooks", &json!({"url": url, "events": ["test.ping"]})).await)
    }

    /// A request of the operation with a new resource.
    pub(super) async fn call(&self, operation: &Operation, row: &Row, credential: Credential) -> Call {
        Call::new(operation, row, &self.resource(row.about).await, credential)
    }

    async fn credentials(&self, credential: Credential) -> Vec<(&'static str, String)> {
        let key = |key: &str| vec![("x-api-key", key.to_owned())];
        let bearer = |token: &str| vec![("authorization", format!("Bearer {token}"))];
        match credential {
            Credential::Nobody => Vec::new(),
            Credential::Owner => key(&self.rig.key),
            Credential::Session => bearer(&self.session(self.rig.account).await.0),
            Credential::Cookie | Credential::BareCookie => {
                let token = self.session(self.rig.account).await.0;
                let mut headers = vec![("cookie", format!("satcast_session={token}"))];
                if credential == Credential::Cookie {
                    headers.push(("x-requested-with", "fetch".to_owned()));
                }
                headers
            }
            Credential::Ended => bearer(new_login_token().expose()),
            Credential::Public => key(&self.public),
            Credential::Mistyped => key(&self.rig.key[..self.rig.key.len() - 1]),
            Credential::Without(missing) => {
                let all = Scopes::ALL;
                let scopes = Scopes {
                    read: all.read && !missing.read,
                    manage: all.manage && !missing.manage,
                    webhooks: all.webhooks && !missing.webhooks,
                };
                key(&self.rig.key(self.rig.account, KeyKind::Permanent, scopes, None).await)
            }
            Credential::Stranger => key(&self.stranger),
        }
    }

    /// Sends a request and checks the rules for all responses.
    pub(super) async fn send(&self, call: Call) -> Answer {
        let uri =
            if call.query.is_empty() { call.path.clone() } else { format!("{}?{}", call.path, call.query) };
        let mut request = Request::builder().method(call.method.clone()).uri_str(uri);
        for (name, value) in self.credentials(call.credential).await.iter().chain(&call.headers) {
            request = request.header(*name, value);
        }
        if let Some(content_type) = call.content_type {
            request = request.content_type(content_type);
        }
        let mut response = self.rig.middleware.answer(request.body(call.body)).await;
        let is_endless = response.content_type() == Some("text/event-stream");
        let body = response.take_body();
        let text = if is_endless { String::new() } else { body.into_string().await.unwrap() };
        contract::check(&call.method, &call.path, response.status(), response.headers(), &text);
        let answer = Answer { status: response.status(), headers: response.headers().clone(), text };
        check_shape(&answer);
        self.seen.lock().insert(answer.status.as_u16());
        answer
    }
}

fn made(answer: &Answer) -> i64 {
    answer.ok()["id"].as_i64().unwrap()
}

/// Checks the error body and the matching headers.
pub(super) fn check_shape(answer: &Answer) {
    assert!(answer.header("x-request-id").starts_with("req_"), "{}", answer.text);
    if answer.status.is_success() || answer.text.is_empty() {
        return;
    }
    let body = answer.json();
    let fields = body.as_object().unwrap();
    let known = ["code", "error", "requestId", "retryAfter"];
    assert!(fields.keys().all(|name| known.contains(&name.as_str())), "{body}");
    for name in ["code", "error"] {
        assert!(body[name].as_str().is_some_and(|text| !text.is_empty()), "{body}");
    }
    assert_eq!(body["requestId"], answer.header("x-request-id"), "{body}");
    assert_eq!(answer.header("content-type"), "application/json", "{body}");
    let seconds = fields.get("retryAfter").map(Value::to_string).unwrap_or_default();
    assert_eq!(answer.header("retry-after"), seconds, "{body}");
    assert!(seconds.is_empty() || answer.status.as_u16() == 429, "{body}");
}

impl Takes {
    /// All allowed credentials.
    pub(super) fn admitted(self) -> &'static [Credential] {
        match self {
            Takes::Nothing => &[Credential::Nobody, Credential::Mistyped],
            Takes::Account => &[Credential::Owner, Credential::Session, Credential::Cookie],
            Takes::Webhooks => &[Credential::Owner],
            Takes::Session => &[Credential::Session, Credential::Cookie],
            Takes::PublicKey => &[Credential::Public],
            Takes::Anything => {
                &[Credential::Public, Credential::Owner, Credential::Session, Credential::Cookie]
            }
        }
    }

    /// One allowed credential.
    pub(super) fn first(self) -> Credential {
        self.admitted()[0]
    }
}
