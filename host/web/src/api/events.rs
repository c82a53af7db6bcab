//! Server-sent events: changes of an account as they happen.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use poem::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use poem::web::Data;
use poem::{Body, IntoResponse, Request, Response, Result};
use poem_openapi::registry::{
    MetaMediaType, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry,
};
use poem_openapi::{ApiResponse, OpenApi};
use satcast_quota::Full;
use serde_json::{Value, json};
use tokio::time::{Interval, MissedTickBehavior};

use super::app::{App, Subject, Tag};
use super::caller::Caller;
use super::caller::presented_login;
use crate::auth::presented_key;
use crate::base::{ApiError, RequestContext};
use satcast_core::feed::{Event, Seen, Watch};
use satcast_core::secret::key_hash;
use satcast_store::KeyRecord;

/// How often an idle event stream sends a comment and checks that its key or session is still valid. A key or session that
/// another process revoked sees no events after this time; one that this process revoked sees none at once.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);
/// Wait before a browser reconnects, in milliseconds.
const RETRY_MS: u64 = 3_000;
/// Header by which a browser resumes after the last event it saw.
const LAST_EVENT_ID: &str = "last-event-id";
/// Turns off buffering in proxies.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const CONTENT: &str = "text/event-stream";

/// Response body of an event stream.
pub(super) struct EventText(Body);

impl IntoResponse for EventText {
    fn into_response(self) -> Response {
        let mut response = Response::from(());
        response.set_body(self.0);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(CONTENT));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
        response
    }
}

impl ApiResponse for EventText {
    fn meta() -> MetaResponses {
        let schema = MetaSchemaRef::Inline(Box::new(MetaSchema::new("string")));
        let content = vec![MetaMediaType { content_type: CONTENT, schema }];
        let description = "Server-sent events until the client disconnects.";
        let (status, status_range, headers) = (Some(200), None, Vec::new());
        MetaResponses {
            responses: vec![MetaResponse { description, status, status_range, content, headers }],
        }
    }

    fn register(_: &mut Registry) {}
}

/// Operations on events.
pub(super) struct EventsApi;

#[OpenApi(prefix_path = "/api", tag = "Tag::Accounts")]
impl EventsApi {
    /// Follow events
    ///
    /// Server-sent events (`text/event-stream`) of the account: every entry that this service writes to the account's audit
    /// log, named by its action; `stream.started`, `stream.reconnecting`, `stream.reconnected`, `stream.failover` (`from`,
    /// `to` and `reason` as in the webhook), `stream.slate` (`onAir`), `stream.health` and `stream.ended`; `destination.state` (`state`, `error`, `attempt`, `nextRetryAt`, `liveSince` and `stateSince` as in the
    /// stream's details); `destination.event` (reported by the driver, with `name` and `data`); `recording.state`; and
    /// `clip.state`.
    /// `data` is a JSON object with `at` in Unix milliseconds. The stream starts with `ready`, or with `reset` if events were
    /// missed; `reset` may also come later. After `reset`, read all resources again. `Last-Event-ID` resumes after that event.
    /// While there are no events, a comment is sent every 15 seconds. Changes by commands of the operator are only in the audit
    /// log.
    #[oai(path = "/events", method = "get", operation_id = "followEvents")]
    async fn follow(&self, app: Data<&Arc<App>>, caller: Caller, request: &Request) -> Result<EventText> {
        if RequestContext::of(request).is_head {
            return Ok(EventText(Body::empty()));
        }
        let after = request.headers().get(LAST_EVENT_ID).map(|id| id.to_str().unwrap_or_default());
        // A browser without a last event sends an empty header.
        let after = after.filter(|id| !id.is_empty());
        let watch = app.store.feed().watch(caller.account, after).map_err(|full| match full {
            Full::Share => ApiError::too_many_streams(),
            Full::Total => ApiError::no_streams_left(),
        })?;
        let proof = Proof::of(&caller, request).ok_or_else(ApiError::internal)?;
        Ok(EventText(body(app.0.clone(), watch, proof, HEARTBEAT)))
    }
}

/// The credential of the watcher, which is checked again while the stream is open.
pub(super) struct Proof {
    subject: Subject,
    hash: [u8; 32],
}

impl Proof {
    pub(super) fn of(caller: &Caller, request: &Request) -> Option<Self> {
        let presented = match caller.subject {
            Subject::Key(_) => presented_key(request),
            Subject::Login(_) => presented_login(request),
        };
        presented.map(|presented| Self { subject: caller.subject, hash: key_hash(presented.expose()) })
    }

    /// Whether the key or session is still valid. `false` also when the store fails: the client reconnects.
    async fn holds(&self, app: &App) -> bool {
        let held = match self.subject {
            Subject::Key(_) => {
                let now = app.clock.now();
                let found = app.store.key_by_hash(&self.hash).await;
                let is_valid =
                    |key: KeyRecord| !key.account_disabled && key.ends_at.is_none_or(|end| end > now);
                found.map(|found| found.is_some_and(is_valid))
            }
            Subject::Login(_) => {
                let found = app.store.login_by_hash(&self.hash, app.clock.now()).await;
                found.map(|found| found.is_some_and(|login| !login.account_disabled))
            }
        };
        held.unwrap_or_else(|error| {
            tracing::warn!(%error, "an event stream ends because its key or session cannot be looked up");
            false
        })
    }
}

struct Streaming {
    app: Arc<App>,
    watch: Watch,
    proof: Proof,
    tick: Interval,
    has_begun: bool,
    /// The last event was about keys, sessions or passwords, or such an event may have been missed.
    is_doubtful: bool,
}

/// The events of `watch` as text, for as long as `proof` is valid.
pub(super) fn body(app: Arc<App>, watch: Watch, proof: Proof, heartbeat: Duration) -> Body {
    let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + heartbeat, heartbeat);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let streaming = Streaming { app, watch, proof, tick, has_begun: false, is_doubtful: false };
    Body::from_bytes_stream(futures_util::stream::unfold(streaming, |mut streaming| async move {
        let text = streaming.next().await?;
        Some((Ok::<_, io::Error>(Bytes::from(text)), streaming))
    }))
}

impl Streaming {
    /// The next message; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        if !self.has_begun {
            self.has_begun = true;
            // A change between the first check of the key and the start of the watch reached no watcher.
            return self.proof.holds(&self.app).await.then(|| self.opening());
        }
        if std::mem::take(&mut self.is_doubtful) && !self.proof.holds(&self.app).await {
            return None;
        }
        tokio::select! {
            seen = self.watch.next() => match seen? {
                Seen::Event(event) => {
                    let doubtful = ["key.", "login.", "account."];
                    self.is_doubtful = doubtful.iter().any(|prefix| event.name.starts_with(prefix));
                    Some(self.event(&event))
                }
                Seen::Gap => {
                    // A missed event may have been about keys.
                    self.is_doubtful = true;
                    Some(self.reset())
                }
            },
            _ = self.tick.tick() => self.proof.holds(&self.app).await.then(|| ":\n\n".to_owned()),
        }
    }

    /// The first message, which has the position from which the client can resume.
    fn opening(&mut self) -> String {
        let retry = format!("retry: {RETRY_MS}\n");
        if self.watch.take_gap() {
            return retry + &self.reset();
        }
        let at = json!({"at": self.app.clock.now().0});
        retry + &message(&self.watch.position(), "ready", &at)
    }

    fn reset(&self) -> String {
        message(&self.watch.position(), "reset", &json!({"at": self.app.clock.now().0}))
    }

    fn event(&self, event: &Event) -> String {
        let mut data = event.data.clone();
        data["at"] = json!(event.at.0);
        message(&self.app.store.feed().id_of(event.number), &event.name, &data)
    }
}

/// One message. The service makes names and ids, and serialized JSON has no raw line breaks.
fn message(id: &str, name: &str, data: &Value) -> String {
    format!("id: {id}\nevent: {name}\ndata: {data}\n\n")
}
