//! Server-sent events: what changes of an account, as it happens.

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

/// How often a stream without events sends a comment, and is asked whether its key or session still holds: one that was
/// revoked by another process sees no more after this time. One that was revoked here ends at once.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);
/// Wait before a browser connects again, in milliseconds.
const RETRY_MS: u64 = 3_000;
/// Header with which a browser goes on where it was.
const LAST_EVENT_ID: &str = "last-event-id";
/// Keeps proxies from collecting events before they pass them on.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const CONTENT: &str = "text/event-stream";

/// The stream's body.
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
        let description = "Server-sent events until the client leaves.";
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
    /// Follow what changes
    ///
    /// Server-sent events (`text/event-stream`) of the account: every entry of its audit log that this service writes, under
    /// the entry's action; `stream.started`, `stream.reconnecting`, `stream.reconnected`, `stream.health`, `stream.ended` of
    /// its sessions; `destination.state` (`state`, `error`, `attempt`, `nextRetryAt`, `liveSince` and `stateSince` as in the stream's
    /// detail), `destination.event` (what its driver tells: `name` and `data`) and `recording.state`. `data` is a JSON object with `at` in Unix milliseconds. The stream begins with `ready`, or with
    /// `reset` when events were missed, which may come later as well: then read everything anew. `Last-Event-ID` goes on
    /// after that event. Without events a comment comes every 15 seconds. What operators change by command is seen in the
    /// audit log alone. An addition to the specification.
    #[oai(path = "/events", method = "get", operation_id = "followEvents")]
    async fn follow(&self, app: Data<&Arc<App>>, caller: Caller, request: &Request) -> Result<EventText> {
        if RequestContext::of(request).is_head {
            return Ok(EventText(Body::empty()));
        }
        let after = request.headers().get(LAST_EVENT_ID).map(|id| id.to_str().unwrap_or_default());
        // A browser sends an empty one for none.
        let after = after.filter(|id| !id.is_empty());
        let watch = app.store.feed().watch(caller.account, after).map_err(|full| match full {
            Full::Share => ApiError::too_many_streams(),
            Full::Total => ApiError::no_streams_left(),
        })?;
        let proof = Proof::of(&caller, request).ok_or_else(ApiError::internal)?;
        Ok(EventText(body(app.0.clone(), watch, proof, HEARTBEAT)))
    }
}

/// What let the watcher in, to be asked again.
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

    /// Whether the key or session is still there. What cannot be asked does not hold: the watcher comes back.
    async fn holds(&self, app: &App) -> bool {
        let held = match self.subject {
            Subject::Key(_) => {
                let now = app.clock.now();
                let found = app.store.key_by_hash(&self.hash).await;
                found.map(|found| found.is_some_and(|key| key.ends_at.is_none_or(|end| end > now)))
            }
            Subject::Login(_) => {
                app.store.login_by_hash(&self.hash, app.clock.now()).await.map(|found| found.is_some())
            }
        };
        held.unwrap_or_else(|error| {
            tracing::warn!(%error, "an event stream ends, as its key or session cannot be looked up");
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
    /// An event told of keys, sessions or passwords, or one that was missed may have.
    is_doubtful: bool,
}

/// The text of everything that `watch` sees, for as long as `proof` holds.
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
    /// The next piece of text; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        if !self.has_begun {
            self.has_begun = true;
            // A change between the first look at the key and the begin of watching was told to nobody.
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
                    // What was missed may have been about keys.
                    self.is_doubtful = true;
                    Some(self.reset())
                }
            },
            _ = self.tick.tick() => self.proof.holds(&self.app).await.then(|| ":\n\n".to_owned()),
        }
    }

    /// What every stream begins with: the watcher has its place, and knows from where to go on.
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

/// One message. Names and ids are ours, and JSON has no line ends outside its strings, where they are escaped.
fn message(id: &str, name: &str, data: &Value) -> String {
    format!("id: {id}\nevent: {name}\ndata: {data}\n\n")
}
