//! Content of sessions at other nodes: viewers of this node get it from the owner of the session, each thing once for all of them.
//!
//! Everything about the viewer stays here: keys, tokens, origins, counting, metering. Only the content comes from the owner, by its
//! address below `/node/hls/` ([`resource`]). A request there is answered from the openings of that node alone, so nothing is relayed
//! twice. Copies are kept ([`copies`]) and sent when they are whole.

mod content;
mod copies;
mod files;
mod remote_players;
mod resource;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Limited};
use parking_lot::Mutex;
use poem::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use poem::http::{HeaderMap, Response, StatusCode};
use satcast_plugin_api::http::LONG_ANSWER_SECS;
use satcast_plugin_api::playback::PLAYLIST_TYPE;
use satcast_plugin_api::{Asset, AssetBody, Audience};
use satcast_quota::{Permit, Quota};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

pub(super) use content::Content;
pub use copies::{COPIES_BYTES_MAX, COPIES_FILES_BYTES_MAX, COPIES_MAX, COPIES_PLAYLISTS_BYTES_MAX};
pub(crate) use files::FILES_PREFIX;
pub(super) use files::Part;
pub(crate) use resource::PREFIX;
pub(super) use resource::{Report, Resource, What};

use super::token::MAC_BYTES;
use crate::base::ApiError;
use content::Failure;
use copies::{Copies, Outcome, Room, Step};
use files::{PART_WAIT, PARTS_MAX, PARTS_PER_ACCOUNT_MAX};
use remote_players::RemotePlayers;
use satcast_core::clock::Clock;
use satcast_core::ids::{AccountId, DestinationId, SessionId, StreamId, UnixMillis};
use satcast_core::rate::{RateRule, RateVerdict};
use satcast_drivers::published::{Answer, KEPT_AFTER_END, Opening, Published, counted};

/// How long the owner lets a request wait for media before it answers that the media does not exist yet. The relay asks again, so a node that
/// is gone is noticed soon, whatever the wait of a player.
pub(super) const SLICE: Duration = Duration::from_secs(1);
/// Longest wait for the head of an answer, longer than [`SLICE`], and for each frame of its body.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// Longest wait for the answer of a driver, longer than the owner waits for it.
const DRIVER_WAIT: Duration = Duration::from_secs(LONG_ANSWER_SECS + 2);
/// Longest wait of one player over all slices. The owner ends a wait earlier, after three target durations.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Most requests for the viewers of one account at a time: half of what may run to one node. Further ones wait for a place, as long as for
/// an answer. A viewer can make requests that the owner lets wait.
pub(crate) const ACCOUNT_REQUESTS_MAX: u64 = 192;
const _: () = assert!(PARTS_MAX < ACCOUNT_REQUESTS_MAX);
/// Most viewers of sessions that move who wait for the next node, and those of one account; further ones get 503.
const WAITING_MAX: u64 = 8_192;
const WAITING_PER_ACCOUNT_MAX: u64 = 4_096;
/// Largest error of another node that is read.
const ERROR_BYTES_MAX: usize = 64 * 1024;
/// Most sessions of other nodes that are remembered.
const SESSIONS_MAX: usize = 16_384;

/// Header of every answer to another node. An older release, or a node with another secret, answers as to a path that nobody has.
pub(super) const OF_NODE: HeaderName = HeaderName::from_static("satcast-of-node");
/// Headers of an answer to another node: the session; that enough was published for every player; players that others count.
pub(super) const SESSION: HeaderName = HeaderName::from_static("satcast-session");
pub(super) const BEGUN: HeaderName = HeaderName::from_static("satcast-begun");
pub(super) const VIEWERS: HeaderName = HeaderName::from_static("satcast-viewers");
/// Prefix of the headers of a driver.
pub(super) const DRIVER: &str = "satcast-driver-";
/// The media does not exist yet.
pub(super) const NOT_YET: StatusCode = StatusCode::ACCEPTED;
/// The asset is not published, and a driver may answer.
pub(super) const NOT_PUBLISHED: StatusCode = StatusCode::NO_CONTENT;

/// An answer of another node.
pub type Answered = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// Another node.
#[derive(Clone, Debug)]
pub struct Peer {
    pub name: Arc<str>,
    /// Base of its addresses.
    pub address: Arc<str>,
}

/// A session, and where it is.
#[derive(Clone, Debug, Default)]
pub struct Located {
    /// `None`: the stream has no session that has not ended.
    pub session: Option<SessionId>,
    /// The other living node that has it.
    pub owner: Option<Peer>,
    /// The other living node that gave it up last.
    pub former: Option<Peer>,
}

impl Located {
    fn is(&self, session: Option<&str>) -> bool {
        self.session.as_ref().map(SessionId::as_str) == session
    }
}

/// The other nodes.
pub trait Owners: std::fmt::Debug + Send + Sync {
    /// Name of this node.
    fn name(&self) -> &str;

    /// Whether a request has the secret of the nodes.
    fn admits(&self, headers: &HeaderMap) -> bool;

    /// The session of a stream that has not ended, and where it is.
    fn located(&self, stream: StreamId) -> BoxFuture<'_, Located>;

    /// The other living node that has the files of a data folder.
    fn keeper<'a>(&'a self, _folder: &'a str) -> BoxFuture<'a, Option<Peer>> {
        Box::pin(async { None })
    }

    /// Its answer to a GET; `None` if its head does not come within `limit`.
    fn get<'a>(
        &'a self,
        peer: &'a Peer,
        address: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Option<Answered>>;

    /// Counts a request over all nodes, or refuses it; `None` for a limit that each node counts for itself.
    fn hit(&self, _rule: RateRule, _subject: String) -> BoxFuture<'_, Option<RateVerdict>> {
        Box::pin(async { None })
    }
}

/// A session of another node.
#[derive(Clone, Debug)]
struct Session {
    peer: Peer,
    opening: Arc<Opening>,
    /// Monotonic time of the last answer.
    seen_at: Duration,
}

/// The node to ask.
struct Source {
    peer: Peer,
    /// Whether it has the session now; otherwise it had it a moment ago.
    is_owner: bool,
}

/// The relay of one node.
#[derive(Debug)]
pub(super) struct Relay {
    owners: Arc<dyn Owners>,
    clock: Clock,
    copies: Copies,
    requests: Quota<AccountId>,
    /// Viewers that wait for a session that moves.
    pub(super) waiting: Quota<AccountId>,
    /// Requests for parts of recordings.
    parts: Quota<AccountId>,
    /// Folder on the disk that has the files of copies.
    folder: PathBuf,
    sessions: Mutex<HashMap<(DestinationId, String), Session>>,
    /// Players of other nodes.
    pub(super) remote_players: RemotePlayers,
}

impl Relay {
    pub(super) fn new(owners: Arc<dyn Owners>, clock: Clock, folder: PathBuf) -> Arc<Self> {
        let copies = Copies::new(COPIES_PLAYLISTS_BYTES_MAX, COPIES_BYTES_MAX, COPIES_FILES_BYTES_MAX);
        let requests = Quota::new(u64::MAX, ACCOUNT_REQUESTS_MAX);
        let waiting = Quota::new(WAITING_MAX, WAITING_PER_ACCOUNT_MAX);
        let parts = Quota::new(PARTS_MAX, PARTS_PER_ACCOUNT_MAX);
        let (sessions, remote_players) = (Mutex::default(), RemotePlayers::default());
        Arc::new(Self { owners, clock, copies, requests, waiting, parts, folder, sessions, remote_players })
    }

    /// Content from the owner of the session, or else from the node that had it a moment ago, which counts for `account`; `viewers`
    /// are the players at this node. `None` if there is no such node.
    ///
    /// # Errors
    /// As the owner answered; 503 if it does not answer. Cancel safe: a request goes on for the viewers that wait for it.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        resource: &Resource<'_>,
        account: AccountId,
        viewers: u64,
    ) -> Result<Option<Content>, ApiError> {
        let mut first = None;
        for Source { peer, is_owner } in self.sources(resource).await {
            let outcome = match self.fetch_from(peer, resource, account, viewers).await {
                Ok(content) if content.asset.is_some() => return Ok(Some(content)),
                Ok(content) => Ok(content),
                Err(Failure::Refused(error)) => Err(error),
                // Its session has ended.
                Err(Failure::Silent) if !is_owner => continue,
                Err(Failure::Silent) => return Err(ApiError::node_silent()),
            };
            first.get_or_insert(outcome);
        }
        first.transpose()
    }

    async fn fetch_from(
        self: &Arc<Self>,
        peer: Peer,
        resource: &Resource<'_>,
        account: AccountId,
        viewers: u64,
    ) -> Result<Content, Failure> {
        let address = resource.address();
        let mut outcome = match self.copies.find(&address, self.clock.monotonic()) {
            Step::Have(content) => return Ok(content),
            Step::Full => return Err(Failure::Refused(ApiError::relay_full())),
            Step::Wait(outcome) => outcome,
            Step::Fetch(sender) => {
                let outcome = sender.subscribe();
                let report =
                    Report { viewers: Some((self.owners.name().to_owned(), viewers)), ..Report::default() };
                tokio::spawn(self.clone().run(peer, resource.destination, address, report, account, sender));
                outcome
            }
        };
        // An error: the request panicked.
        let outcome = outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or(Err(Failure::Silent)).map(|content| Content { waited: true, ..content })
    }

    /// The answer of the driver at the owner of the session, and an opening for it; `None` if no other node has the session.
    ///
    /// # Errors
    /// As the owner answered; 503 if it does not answer.
    pub(super) async fn driver(
        &self,
        resource: &Resource<'_>,
        account: AccountId,
    ) -> Result<Option<(Arc<Opening>, Answer)>, ApiError> {
        let Some(source) = self.sources(resource).await.into_iter().next() else { return Ok(None) };
        match self.driver_of(&source.peer, resource, account).await {
            Ok(answer) => Ok(Some(answer)),
            Err(Failure::Refused(error)) => Err(error),
            Err(Failure::Silent) if !source.is_owner => Ok(None),
            Err(Failure::Silent) => Err(ApiError::node_silent()),
        }
    }

    /// Whether a session has not ended, and moves or has moved between nodes: no node has it, or another one gave it up.
    pub(super) async fn may_move(&self, stream: StreamId, session: &str, is_here: bool) -> bool {
        let located = self.owners.located(stream).await;
        let has_owner = is_here || located.owner.is_some();
        located.is(Some(session)) && (!has_owner || located.former.is_some())
    }

    /// The other living node that has the files of a data folder.
    pub(super) async fn keeper(&self, folder: &str) -> Option<Peer> {
        self.owners.keeper(folder).await
    }

    /// A part of the file of recording `id` at another node, for the viewers of `account`.
    ///
    /// # Errors
    /// As the other node answered; 503 if it does not answer, or if too many wait for such parts.
    pub(super) async fn part(
        &self,
        peer: &Peer,
        account: AccountId,
        id: i64,
        part: Part,
    ) -> Result<Bytes, ApiError> {
        let taken = timeout(ANSWER_WAIT, self.parts.take(account, 1)).await;
        let _place = taken.map_err(|_| ApiError::relay_full())?;
        let answer = match self.ask(peer, &part.address(id), PART_WAIT).await {
            Ok(answer) => answer,
            Err(Failure::Refused(error)) => return Err(error),
            Err(Failure::Silent) => return Err(ApiError::node_silent()),
        };
        let body = timeout(PART_WAIT, Limited::new(answer.into_body(), part.bytes_max()).collect()).await;
        body.ok().and_then(Result::ok).map(|body| body.to_bytes()).ok_or_else(ApiError::node_silent)
    }

    /// Whether a request comes from another node.
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        self.owners.admits(headers)
    }

    /// Counts a request with a preview token over all nodes, or refuses it; `None` for a limit that each node counts for itself.
    pub(super) async fn hit(&self, rule: RateRule, mac: [u8; MAC_BYTES]) -> Option<RateVerdict> {
        self.owners.hit(rule, format!("{:032x}", u128::from_be_bytes(mac))).await
    }

    /// Whether enough was published for every player, as the owner said.
    pub(super) fn has_begun(&self, destination: DestinationId, session: &str) -> bool {
        let sessions = self.sessions.lock();
        sessions.get(&(destination, session.to_owned())).is_some_and(|session| session.opening.has_begun())
    }

    /// The owner of the session, then the node that had it a moment ago: players may fetch what they know until some time after the
    /// end, and an owner that goes on with a session has nothing of it at first.
    async fn sources(&self, resource: &Resource<'_>) -> Vec<Source> {
        let located = self.owners.located(resource.stream).await;
        let said = located.former.clone().filter(|_| located.is(resource.session));
        let owner = located.owner;
        let is_other = |former: &Peer| owner.as_ref().is_none_or(|owner| owner.name != former.name);
        let former = self.former(resource).filter(is_other).or(said.filter(is_other));
        let former = former.map(|peer| Source { peer, is_owner: false });
        let owner = owner.map(|peer| Source { peer, is_owner: true });
        owner.into_iter().chain(former).collect()
    }

    fn former(&self, resource: &Resource<'_>) -> Option<Peer> {
        let key = (resource.destination, resource.session?.to_owned());
        let now = self.clock.monotonic();
        let session = self.sessions.lock().get(&key).cloned()?;
        let is_recent = now.saturating_sub(session.seen_at) < KEPT_AFTER_END;
        is_recent.then_some(session.peer)
    }

    /// Makes one request for all viewers that wait for it.
    async fn run(
        self: Arc<Self>,
        peer: Peer,
        destination: DestinationId,
        address: String,
        report: Report,
        account: AccountId,
        sender: watch::Sender<Outcome>,
    ) {
        let outcome = self.load(&peer, destination, &address, report, account).await;
        let kept = outcome.as_ref().ok().and_then(|content| {
            let secs = content.asset.as_ref()?.max_age_secs;
            Some((content.clone(), Duration::from_secs(u64::from(secs))))
        });
        self.copies.keep(&address, account, kept, self.clock.monotonic());
        sender.send_replace(Some(outcome));
    }

    /// Asks until the media is there.
    async fn load(
        &self,
        peer: &Peer,
        destination: DestinationId,
        address: &str,
        mut report: Report,
        account: AccountId,
    ) -> Result<Content, Failure> {
        let began = Instant::now();
        loop {
            let _place = self.place(account).await?;
            report.waited = began.elapsed();
            let answer = self.ask(peer, &report.beside(address), ANSWER_WAIT).await?;
            if answer.status() == NOT_YET {
                if began.elapsed() < WAIT_MAX {
                    continue;
                }
                return Err(Failure::Refused(ApiError::not_in_time()));
            }
            let is_published = answer.status() != NOT_PUBLISHED;
            let opening = self.opening(peer, destination, answer.headers(), is_published)?;
            let content = Content { opening, asset: None, max_age_secs: None, waited: true };
            if !is_published {
                return Ok(content);
            }
            let asset = Some(self.asset(answer, account).await?);
            return Ok(Content { asset, ..content });
        }
    }

    async fn driver_of(
        &self,
        peer: &Peer,
        resource: &Resource<'_>,
        account: AccountId,
    ) -> Result<(Arc<Opening>, Answer), Failure> {
        let _place = self.place(account).await?;
        let answer = self.ask(peer, &resource.address(), DRIVER_WAIT).await?;
        let opening = self.opening(peer, resource.destination, answer.headers(), true)?;
        let status = answer.status().as_u16();
        let own = |(name, value): (&HeaderName, &HeaderValue)| {
            Some((name.as_str().strip_prefix(DRIVER)?.to_owned(), value.to_str().ok()?.to_owned()))
        };
        let headers = answer.headers().iter().filter_map(own).collect();
        let asset = self.asset(answer, account).await?;
        Ok((opening, Answer { status, headers, asset }))
    }

    /// A place among the requests of an account.
    async fn place(&self, account: AccountId) -> Result<Permit<AccountId>, Failure> {
        let taken = timeout(ANSWER_WAIT, self.requests.take(account, 1)).await;
        taken.map_err(|_| Failure::Refused(ApiError::relay_full()))
    }

    /// An answer that is not an error of the service. A driver's own error has a session.
    async fn ask(&self, peer: &Peer, address: &str, limit: Duration) -> Result<Answered, Failure> {
        let answer = self.owners.get(peer, address, limit).await.ok_or(Failure::Silent)?;
        if !answer.headers().contains_key(OF_NODE) {
            return Err(Failure::Silent);
        }
        if answer.status().is_success() || answer.headers().contains_key(SESSION) {
            return Ok(answer);
        }
        let status = answer.status();
        let read = timeout(ANSWER_WAIT, Limited::new(answer.into_body(), ERROR_BYTES_MAX).collect()).await;
        let body = read.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
        Err(ApiError::relayed(status, &body).map_or(Failure::Silent, Failure::Refused))
    }

    /// The asset in an answer, whole.
    async fn asset(&self, answer: Answered, account: AccountId) -> Result<Arc<Published>, Failure> {
        let (head, body) = answer.into_parts();
        let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let len = text(CONTENT_LENGTH).parse().unwrap_or(0);
        let (content_type, max_age_secs) = (text(CONTENT_TYPE).to_owned(), max_age_secs(text(CACHE_CONTROL)));
        let rooms: &[Room] =
            if content_type == PLAYLIST_TYPE { &[Room::Playlists] } else { &[Room::Memory, Room::Files] };
        let room = |room: &Room| Some((*room, self.copies.take(*room, account, len as u64)?));
        let full = || Failure::Refused(ApiError::relay_full());
        let (room, permit) = rooms.iter().find_map(room).ok_or_else(full)?;
        let mut copy = match room {
            Room::Playlists | Room::Memory => Copy::Memory(BytesMut::with_capacity(len)),
            Room::Files => {
                let folder = self.folder.clone();
                let file = tokio::task::spawn_blocking(move || tempfile::tempfile_in(folder)).await;
                let file = file.map_err(io::Error::from).flatten().map_err(unwritten)?;
                Copy::File(tokio::fs::File::from_std(file))
            }
        };
        copy.read(body, len).await?;
        let as_asset = |body| Asset::new("relayed", content_type, Audience::Both, body).max_age(max_age_secs);
        Ok(Arc::new(match copy {
            Copy::Memory(bytes) => {
                Published::uncounted(as_asset(AssetBody::Memory(counted(permit, bytes.freeze()))))
            }
            Copy::File(file) => {
                let file = Some(Arc::new(file.into_std().await));
                Published::counted(as_asset(AssetBody::Open { file, offset: 0, len: len as u64 }), permit)
            }
        }))
    }

    /// Takes what a node says of its session; gives the opening that stands for it here. The node that had the session before is
    /// remembered until the next one has published something.
    fn opening(
        &self,
        peer: &Peer,
        destination: DestinationId,
        headers: &HeaderMap,
        is_published: bool,
    ) -> Result<Arc<Opening>, Failure> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let session = text(SESSION).ok_or(Failure::Silent)?.to_owned();
        let now = self.clock.monotonic();
        if let Some(viewers) = text(VIEWERS).and_then(|viewers| viewers.parse().ok()) {
            self.remote_players.note(destination, &peer.name, viewers, now);
        }
        let mut sessions = self.sessions.lock();
        if sessions.len() >= SESSIONS_MAX {
            sessions.retain(|_, session| now.saturating_sub(session.seen_at) < KEPT_AFTER_END);
        }
        let key = (destination, session);
        let known = sessions.get(&key);
        let is_new = known.is_none_or(|known| is_published || known.peer.name == peer.name);
        let opening = known
            .map(|known| known.opening.clone())
            .unwrap_or_else(|| Arc::new(Opening::new(destination, SessionId(key.1.clone()), UnixMillis(0))));
        if headers.contains_key(BEGUN) {
            opening.set_begun();
        }
        if is_new && (sessions.len() < SESSIONS_MAX || sessions.contains_key(&key)) {
            sessions.insert(key, Session { peer: peer.clone(), opening: opening.clone(), seen_at: now });
        }
        Ok(opening)
    }
}

/// A copy that is being made.
enum Copy {
    Memory(BytesMut),
    File(tokio::fs::File),
}

impl Copy {
    /// Takes a body of `len` bytes.
    async fn read(&mut self, mut body: UnsyncBoxBody<Bytes, io::Error>, len: usize) -> Result<(), Failure> {
        let mut left = len;
        while let Some(frame) = timeout(ANSWER_WAIT, body.frame()).await.map_err(|_| Failure::Silent)? {
            let data = frame.map_err(|_| Failure::Silent)?.into_data().unwrap_or_default();
            left = left.checked_sub(data.len()).ok_or(Failure::Silent)?;
            match self {
                Copy::Memory(bytes) => bytes.extend_from_slice(&data),
                Copy::File(file) => file.write_all(&data).await.map_err(unwritten)?,
            }
        }
        if left > 0 {
            return Err(Failure::Silent);
        }
        match self {
            Copy::Memory(_) => Ok(()),
            Copy::File(file) => file.flush().await.map_err(unwritten),
        }
    }
}

fn unwritten(error: io::Error) -> Failure {
    tracing::warn!(%error, "content of another node cannot be written to the disk");
    Failure::Refused(ApiError::relay_full())
}

/// The seconds of a `Cache-Control`; 0 without them.
fn max_age_secs(text: &str) -> u32 {
    let mut parts = text.split(',');
    let secs = parts.find_map(|part| part.trim().strip_prefix("max-age=")?.parse().ok());
    secs.unwrap_or(0)
}

#[cfg(test)]
mod tests;
