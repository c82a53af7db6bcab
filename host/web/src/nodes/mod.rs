//! The other nodes: who owns a session, and requests to them with the secret of the nodes.
//!
//! `advertise` of a node is the operator's own address, so the client passes every range; certificates are checked.

mod counts;
mod events;

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Limited};
use parking_lot::Mutex;
use poem::http::header::{AUTHORIZATION, COOKIE, HeaderName, HeaderValue};
use poem::http::{HeaderMap, Method, Response, StatusCode};
use reqwest::Request;
use satcast_quota::{Permit, Quota};
use tokio::time::timeout;
use url::{Position, Url};

pub(crate) use counts::PREFIX as COUNT_PREFIX;

use crate::auth::API_KEY_HEADER;
use crate::playback::{ACCOUNT_REQUESTS_MAX, Answered, Located, Owners, Peer};
use satcast_core::clock::Clock;
use satcast_core::config::Cluster;
use satcast_core::ids::StreamId;
use satcast_core::rate::{RateRule, RateVerdict};
use satcast_core::secret::{Redacted, key_hash};
use satcast_net::outbound::Guard;
use satcast_net::outbound::http::{Answer, Client, TlsError};
use satcast_store::{OpenSession, Store, StoreError};

use counts::Counts;

/// Header with the secret of the nodes, beside the credential of a caller.
const NODE: HeaderName = HeaderName::from_static("satcast-node");
/// Headers with the credential of a caller.
const CREDENTIALS: [HeaderName; 3] = [AUTHORIZATION, COOKIE, HeaderName::from_static(API_KEY_HEADER)];
/// Path of the events of a node.
pub(crate) const EVENTS_PATH: &str = "/node/events";
/// Longest wait for what another node shows.
const SHOWN_LIMIT: Duration = Duration::from_secs(3);
/// Largest answer of another node that is read: a page of a thousand streams.
const SHOWN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Every address: those of nodes are the operator's.
pub const ANY_ADDRESS: [&str; 2] = ["0.0.0.0/0", "::/0"];
/// Longest time for a connection to another node.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Most requests to one node at a time, each with a connection: a node is one network for the other, which takes
/// [512](satcast_net::http::CONNECTIONS_PER_NETWORK_MAX) of one. Further ones wait for a place within their time.
pub const REQUESTS_MAX: usize = 384;
const _: () = assert!(ACCOUNT_REQUESTS_MAX * 2 <= REQUESTS_MAX as u64);
/// How long the answer about an owner is used.
const FRESH: Duration = Duration::from_secs(1);
/// How long an old answer is used while the database fails.
const KNOWN: Duration = Duration::from_secs(60);
/// Most streams whose owners are remembered, and most data folders.
const OWNERS_MAX: usize = 16_384;
/// Longest wait for a count by another node.
const COUNT_LIMIT: Duration = Duration::from_secs(1);
/// How long a node that did not answer is not asked again.
const RESTS: Duration = Duration::from_secs(1);

/// An answer of the database: the session of a stream, or the node with a data folder.
#[derive(Clone, Debug)]
struct Found<T> {
    what: T,
    /// Time of the last query. Other requests use the old answer while it runs.
    asked_at: Duration,
    said_at: Duration,
}

impl<T: Clone + Default> Found<T> {
    fn known(&self, now: Duration) -> T {
        if now.saturating_sub(self.said_at) < KNOWN { self.what.clone() } else { T::default() }
    }
}

/// A node of the database: its name and address.
fn peer((name, address): (String, String)) -> Peer {
    Peer { name: name.into(), address: address.into() }
}

/// The other living nodes, as the database said.
#[derive(Debug)]
struct Living {
    peers: Arc<[Peer]>,
    /// Time of the last query. Other requests use the old answer while it runs.
    asked_at: Duration,
}

/// The other nodes of a service.
#[derive(Debug)]
pub struct Nodes {
    name: String,
    secret: Redacted<String>,
    store: Store,
    clock: Clock,
    client: Client,
    owners: Mutex<HashMap<StreamId, Found<Located>>>,
    /// Nodes with data folders.
    keepers: Mutex<HashMap<String, Found<Option<Peer>>>>,
    living: Mutex<Option<Living>>,
    counts: Counts,
    /// Requests to each node.
    requests: Quota<Arc<str>>,
    /// Nodes that did not answer, until when they are left alone.
    resting: Mutex<HashMap<Arc<str>, Duration>>,
}

impl Nodes {
    /// `None` for a service that is alone. `guard` is that of [`ANY_ADDRESS`].
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn of(cluster: &Cluster, store: Store, clock: Clock, guard: Guard) -> Result<Option<Self>, TlsError> {
        let (Some(name), Some(secret)) = (&cluster.node, &cluster.secret) else { return Ok(None) };
        Ok(Some(Self {
            name: name.clone(),
            secret: secret.clone(),
            store,
            clock,
            client: Client::keeping(guard, CONNECT_LIMIT, REQUESTS_MAX)?,
            owners: Mutex::default(),
            keepers: Mutex::default(),
            living: Mutex::default(),
            counts: Counts::default(),
            requests: Quota::new(u64::MAX, REQUESTS_MAX as u64),
            resting: Mutex::default(),
        }))
    }

    /// Whether a request must not be asked onward. Any value counts: with different secrets two nodes would ask each other in a circle.
    pub(crate) fn has_node_header(headers: &HeaderMap) -> bool {
        headers.contains_key(NODE)
    }

    /// The header by which this node proves that it is one. The configuration checks that the secret is text.
    fn proof(&self) -> Option<HeaderMap> {
        let mut value = HeaderValue::try_from(self.secret.expose()).ok()?;
        value.set_sensitive(true);
        Some(HeaderMap::from_iter([(NODE, value)]))
    }

    /// What another node answers to the same request, with the credential of the caller and of its own sessions alone. `None` when it
    /// does not answer, or refuses: this node has admitted the caller.
    pub(crate) async fn shown(&self, peer: &Peer, request: &poem::Request) -> Option<Vec<u8>> {
        timeout(SHOWN_LIMIT, self.ask_as(peer, request)).await.ok().flatten()
    }

    async fn ask_as(&self, peer: &Peer, request: &poem::Request) -> Option<Vec<u8>> {
        let address = request.uri().path_and_query().map_or("/", |address| address.as_str());
        let mut headers = self.proof()?;
        for name in &CREDENTIALS {
            request.headers().get_all(name).iter().for_each(|value| {
                headers.append(name, value.clone());
            });
        }
        let (mut answer, _permit) = self.send(Method::GET, peer, address, headers, SHOWN_LIMIT).await?;
        let mut body = Vec::new();
        answer.read(&mut body, SHOWN_BYTES_MAX).await.ok()?;
        answer.head().status().is_success().then_some(body)
    }

    /// What `asked` finds for `key`, or what it found a moment ago.
    async fn find<K: Hash + Eq + std::fmt::Debug, T: Clone + Default>(
        &self,
        all: &Mutex<HashMap<K, Found<T>>>,
        key: K,
        asked: impl Future<Output = Result<T, StoreError>>,
    ) -> T {
        let now = self.clock.monotonic();
        let earlier = match all.lock().get_mut(&key) {
            None => None,
            Some(owner) => {
                if now.saturating_sub(owner.asked_at) < FRESH {
                    return owner.known(now);
                }
                owner.asked_at = now;
                Some(owner.clone())
            }
        };
        let what = match asked.await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(?key, %error, "the owner of a session or recording cannot be read");
                return earlier.map(|found| found.known(now)).unwrap_or_default();
            }
        };
        let mut all = all.lock();
        if all.len() >= OWNERS_MAX {
            all.retain(|_, found| now.saturating_sub(found.asked_at) < FRESH);
        }
        if all.len() < OWNERS_MAX || all.contains_key(&key) {
            all.insert(key, Found { what: what.clone(), asked_at: now, said_at: now });
        }
        what
    }

    /// Counts a request of `subject` over all nodes, or refuses it; `None` for a limit that each node counts for itself. While the
    /// node that counts it does not answer, this one does.
    pub(crate) async fn hit(&self, rule: RateRule, subject: String) -> Option<RateVerdict> {
        if !Counts::is_shared(rule) {
            return None;
        }
        let others = self.living().await;
        let now = self.clock.monotonic();
        let Some(peer) = counts::counter(&self.name, &others, rule.name, &subject) else {
            return self.counts.hit(rule.name, subject, now);
        };
        if let Some(refusal) = self.counts.refusal(rule, &subject, now) {
            return Some(refusal);
        }
        let asked =
            if self.counts.is_silent(peer, now) { None } else { self.ask_count(peer, rule, &subject).await };
        let Some(verdict) = asked else {
            let now = self.clock.monotonic();
            self.counts.note_silence(peer, now);
            return self.counts.hit(rule.name, subject, now);
        };
        self.counts.note(&verdict, subject, now);
        Some(verdict)
    }

    async fn ask_count(&self, peer: &Peer, rule: RateRule, subject: &str) -> Option<RateVerdict> {
        let address = counts::address(rule.name, subject);
        let (head, body) = self.ask(Method::POST, peer, &address, COUNT_LIMIT).await?.into_parts();
        let body = timeout(COUNT_LIMIT, Limited::new(body, counts::ANSWER_BYTES_MAX).collect()).await;
        let body = body.ok()?.ok()?.to_bytes();
        if head.status.is_success() { counts::read(rule, &body) } else { None }
    }

    /// Counts a request for another node. The caller has checked the secret.
    pub(crate) fn give_count(&self, request: &poem::Request) -> poem::Response {
        let asked = counts::parse(request.uri().path()).filter(|_| *request.method() == Method::POST);
        let verdict = asked
            .and_then(|(rule, subject)| self.counts.hit(rule, subject.to_owned(), self.clock.monotonic()));
        match verdict {
            Some(verdict) => counts::tell(&verdict).into(),
            None => StatusCode::NOT_FOUND.into(),
        }
    }

    /// The other living nodes, or the last known ones while the database fails.
    async fn living(&self) -> Arc<[Peer]> {
        let now = self.clock.monotonic();
        let known = match &mut *self.living.lock() {
            None => None,
            Some(living) => {
                if now.saturating_sub(living.asked_at) < FRESH {
                    return living.peers.clone();
                }
                living.asked_at = now;
                Some(living.peers.clone())
            }
        };
        match self.store.other_nodes().await {
            Ok(found) => {
                let peers: Arc<[Peer]> = found.into_iter().map(peer).collect();
                *self.living.lock() = Some(Living { peers: peers.clone(), asked_at: now });
                peers
            }
            Err(error) => {
                tracing::warn!(%error, "the other nodes cannot be read");
                known.unwrap_or_default()
            }
        }
    }

    async fn ask(&self, method: Method, peer: &Peer, address: &str, limit: Duration) -> Option<Answered> {
        let (answer, permit) = self.send(method, peer, address, self.proof()?, limit).await?;
        let mut answer = Response::<reqwest::Body>::from(answer.into_response());
        // The connection is free for others when the caller has read the answer.
        answer.extensions_mut().insert(Arc::new(permit));
        Some(answer.map(|body| UnsyncBoxBody::new(body.map_err(io::Error::other))))
    }

    /// The head of the answer, and the permit of the request. `None` if the answer does not come within `limit`, counted from a free
    /// place, or did not come a moment ago.
    async fn send(
        &self,
        method: Method,
        peer: &Peer,
        address: &str,
        headers: HeaderMap,
        limit: Duration,
    ) -> Option<(Answer, Permit<Arc<str>>)> {
        let now = self.clock.monotonic();
        if self.resting.lock().get(&peer.name).is_some_and(|until| now < *until) {
            return None;
        }
        let url = Url::parse(&peer.address).ok()?.join(address).ok()?;
        if url[Position::BeforePath..Position::AfterQuery] != *address {
            // The address has parts of a viewer's: `..` and its other spellings would lead to what this viewer may not have.
            return None;
        }
        let mut request = Request::new(method, url);
        *request.headers_mut() = headers;
        let permit = timeout(limit, self.requests.take(peer.name.clone(), 1)).await.ok()?;
        let why = match timeout(limit, self.client.send(request)).await {
            Ok(Ok(answer)) => return Some((answer, permit)),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {limit:?}"),
        };
        tracing::warn!(node = &*peer.name, why, "another node does not answer");
        let until = self.clock.monotonic().saturating_add(RESTS);
        self.resting.lock().insert(peer.name.clone(), until);
        None
    }
}

impl Owners for Nodes {
    fn name(&self) -> &str {
        &self.name
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(NODE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        // Hashes, and all of their bytes: the time tells nothing about the secret.
        let (given, own) = (key_hash(given), key_hash(self.secret.expose()));
        given.iter().zip(own).fold(0, |differences, (given, own)| differences | (given ^ own)) == 0
    }

    fn located(&self, stream: StreamId) -> BoxFuture<'_, Located> {
        let asked = async move {
            let found = self.store.open_session(stream).await?;
            Ok(found.map_or_else(Located::default, |OpenSession { id, owner, former }| Located {
                session: Some(id),
                owner: owner.map(peer),
                former: former.map(peer),
            }))
        };
        Box::pin(self.find(&self.owners, stream, asked))
    }

    fn keeper<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Option<Peer>> {
        let asked = async move { Ok(self.store.node_with(folder).await?.map(peer)) };
        Box::pin(self.find(&self.keepers, folder.to_owned(), asked))
    }

    fn get<'a>(
        &'a self,
        peer: &'a Peer,
        address: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Option<Answered>> {
        Box::pin(self.ask(Method::GET, peer, address, limit))
    }

    fn hit(&self, rule: RateRule, subject: String) -> BoxFuture<'_, Option<RateVerdict>> {
        Box::pin(self.hit(rule, subject))
    }
}

#[cfg(test)]
mod tests;
