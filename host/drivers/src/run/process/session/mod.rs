//! One child from the host's side: calls into it, and its end. [`super::media`]: its media; [`super::requests`]: its
//! calls.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use satcast_plugin_api::host::{BytesDone, MediaSource, Services};
use satcast_plugin_api::{Class, Error};
use satcast_quota::Quota;

use super::channel::{ChannelError, Sender};
use super::message::{Ask, CALL_MS, Reply, ToChild, ToOpen, UNREAD_BYTES_MAX, UNREAD_PACKETS_MAX};
use super::payloads::Crossed;
use super::shortage;
use crate::published::counted;
use crate::run::pump::Pump;

/// Most bytes of answers of one child in memory, until their viewers have read them.
const ANSWER_BYTES_HELD_MAX: u64 = 256 * 1024 * 1024;

pub(super) struct Session {
    pub(super) id: String,
    pub(super) sender: Sender,
    pub(super) services: Arc<dyn Services>,
    pub(super) pump: Arc<Pump>,
    calls: Mutex<HashMap<u64, Call>>,
    next_number: AtomicU64,
    /// Requests about recordings without an outcome.
    pub(super) requests: Mutex<HashMap<u64, BytesDone>>,
    pub(super) feeds: Mutex<HashMap<u64, Arc<Feed>>>,
    pub(super) crossed: Mutex<Crossed>,
    /// A flush of queued messages is scheduled.
    pub(super) is_flushed_soon: AtomicBool,
    /// Why the host ended it.
    ended: Mutex<Option<Ended>>,
    is_over: AtomicBool,
    pub(super) answers: Arc<Held>,
}

struct Ended {
    why: String,
    /// A resource of the service was short; it is no fault of the child.
    for_service: bool,
}

/// A call without an answer.
struct Call {
    answer: SyncSender<Result<Reply, Error>>,
    /// The account of the call; `None` = not known.
    account: Option<i64>,
}

pub(crate) struct RemoteInstance {
    session: Arc<Session>,
    dest: u64,
    account: i64,
}

impl Session {
    pub(super) fn new(id: &str, sender: Sender, services: &Arc<dyn Services>, pump: &Arc<Pump>) -> Arc<Self> {
        Arc::new(Self {
            id: id.to_owned(),
            sender,
            services: services.clone(),
            pump: pump.clone(),
            calls: Mutex::default(),
            next_number: AtomicU64::new(0),
            requests: Mutex::default(),
            feeds: Mutex::default(),
            crossed: Mutex::default(),
            is_flushed_soon: AtomicBool::new(false),
            ended: Mutex::default(),
            is_over: AtomicBool::new(false),
            answers: Arc::default(),
        })
    }

    /// Ends it because of `reason`; its reader sees the end.
    pub(super) fn fail(&self, reason: &str) {
        self.end(reason, false);
    }

    /// Like [`Session::fail`], for a shortage of the service: it counts for no account.
    pub(super) fn fail_for_service(&self, reason: &str) {
        self.end(reason, true);
    }

    fn end(&self, reason: &str, for_service: bool) {
        self.ended.lock().get_or_insert_with(|| Ended { why: reason.to_owned(), for_service });
        self.is_over.store(true, Ordering::Release);
        self.sender.shut_down();
    }

    /// Whether it was ended because of a shortage of the service.
    pub(super) fn is_for_service(&self) -> bool {
        self.ended.lock().as_ref().is_some_and(|ended| ended.for_service)
    }

    /// Why the host ended it, if it did.
    pub(super) fn failure(&self) -> Option<String> {
        self.ended.lock().as_ref().map(|ended| ended.why.clone())
    }

    /// Sends a message; a child that does not read is ended.
    pub(super) fn send(&self, message: &ToChild) {
        self.send_with(message, None);
    }

    /// Like [`Session::send`], with a descriptor.
    pub(super) fn send_with(&self, message: &ToChild, descriptor: Option<OwnedFd>) {
        self.judge(self.sender.send(message, Vec::new(), descriptor));
    }

    /// Queues a message to be sent with the next one.
    pub(super) fn push(&self, message: &ToChild, bytes: Vec<Bytes>) {
        self.judge(self.sender.push(message, bytes, None));
    }

    /// Sends queued messages from the pump thread; all messages queued until then are sent together.
    pub(super) fn flush_soon(self: &Arc<Self>) {
        if !self.is_flushed_soon.swap(true, Ordering::AcqRel) {
            let session = self.clone();
            self.pump.run(move || {
                session.is_flushed_soon.store(false, Ordering::Release);
                session.judge(session.sender.flush());
            });
        }
    }

    fn judge(&self, sent: Result<(), ChannelError>) {
        match sent {
            // The reader sees the end by itself.
            Ok(()) | Err(ChannelError::Closed) => {}
            Err(ChannelError::System(error)) if shortage::is_shortage(error) => {
                self.fail_for_service(&shortage::describe("cannot be sent a message", &error.into()));
            }
            Err(ChannelError::TooLarge | ChannelError::Malformed) => {
                self.fail("needed a message over the size limit");
            }
            Err(ChannelError::TimedOut | ChannelError::System(_)) => self.fail("does not read"),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Calls the child and waits for its answer; if the answer is late, the child is ended.
    pub(super) fn call(&self, account: Option<i64>, ask: Ask) -> Result<Reply, Error> {
        let is_open = matches!(ask, Ask::Open { .. });
        let call = self.number();
        let (answer, outcome) = sync_channel(1);
        self.calls.lock().insert(call, Call { answer, account });
        if self.is_over() {
            self.calls.lock().remove(&call);
            return Err(self.has_ended());
        }
        self.send(&ToChild::Call { call, ask });
        match outcome.recv_timeout(Duration::from_millis(CALL_MS)) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Disconnected) => Err(self.gone()),
            // The call stays recorded, so its account counts as inside at the end.
            Err(RecvTimeoutError::Timeout) => {
                // Before the end, which removes all accounts.
                let is_alone = self.inside().into_iter().eq(account);
                self.fail(&not_returned());
                // A fault of the requested work: as after a panic, it is not repeated again and again.
                let class = if is_alone { Class::Panic } else { Class::Internal };
                Err(Error::new(class, hangs(&self.id, is_open, is_alone)))
            }
        }
    }

    /// Passes the answer of a call on.
    pub(super) fn answered(&self, call: u64, outcome: Result<Reply, Error>) {
        // Too late: the account of the call is being determined.
        if self.is_over() {
            return;
        }
        if let Some(call) = self.calls.lock().remove(&call) {
            // The caller may have given up meanwhile.
            let _ = call.answer.try_send(outcome);
        }
    }

    /// It has ended, or is being ended.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// The accounts with open destinations or calls. Call it before `bury`.
    pub(super) fn inside(&self) -> BTreeSet<i64> {
        let mut inside: BTreeSet<i64> = self.feeds.lock().values().map(|feed| feed.account).collect();
        inside.extend(self.calls.lock().values().filter_map(|call| call.account));
        inside
    }

    pub(super) fn has_ended(&self) -> Error {
        Error::internal(format!("the process of driver {} has ended", self.id))
    }

    fn gone(&self) -> Error {
        Error::internal(format!("the process of driver {} ended while it was called", self.id))
    }

    pub(super) fn open(
        self: &Arc<Self>,
        to_open: &ToOpen,
        media: Arc<dyn MediaSource>,
    ) -> Result<RemoteInstance, Error> {
        let (dest, account) = (to_open.dest, to_open.about.account_id);
        // Before the call, whose destination counts as inside from then on.
        self.feeds.lock().insert(dest, Arc::new(Feed::new(account, media)));
        if let Err(error) = self.call(Some(account), Ask::Open(to_open.clone())) {
            self.forget(dest);
            return Err(error);
        }
        self.feed(dest);
        Ok(RemoteInstance { session: self.clone(), dest, account })
    }

    /// After its end: fails waiting calls and requests, gives all media back, and reports `error` to its
    /// destinations.
    pub(super) fn bury(&self, error: &Error) {
        self.is_over.store(true, Ordering::Release);
        let calls: Vec<Call> = self.calls.lock().drain().map(|(_, call)| call).collect();
        for call in calls {
            // As in `answered`.
            let _ = call.answer.try_send(Err(self.gone()));
        }
        let requests: Vec<BytesDone> = self.requests.lock().drain().map(|(_, done)| done).collect();
        requests.into_iter().for_each(|done| done(Err(error.clone())));
        let feeds: Vec<(u64, Arc<Feed>)> = self.feeds.lock().drain().collect();
        for (dest, feed) in feeds {
            feed.leave();
            self.services.stopped(dest, Err(error.clone()));
        }
    }
}

impl RemoteInstance {
    /// Offers a new configuration; false when the destination must be opened again for it.
    pub(crate) fn reconfigure(&self, config: &str) -> Result<bool, Error> {
        let reply = self.call(Ask::Reconfigure { dest: self.dest, config: config.to_owned() })?;
        Ok(matches!(reply, Reply::Taken(true)))
    }

    pub(crate) fn stop(&self, deadline_ms: u32) {
        // A child that has ended has also ended the destination.
        let _ = self.call(Ask::Stop { dest: self.dest, deadline_ms });
    }

    pub(crate) fn destroy(self) {
        // As above.
        let _ = self.call(Ask::Destroy { dest: self.dest });
        self.session.forget(self.dest);
    }

    fn call(&self, ask: Ask) -> Result<Reply, Error> {
        self.session.call(Some(self.account), ask)
    }
}

/// Why a child with a late answer is ended.
fn not_returned() -> String {
    format!("did not return from a call within {CALL_MS} ms")
}

/// The error for the caller.
fn hangs(id: &str, is_open: bool, is_alone: bool) -> String {
    let from = if is_open { "opening the destination" } else { "a call" };
    let then = match is_alone {
        true => "change the destination and try again, or ask the operator or the driver's author",
        false => "the process also served other accounts, whose work may be the cause; try again",
    };
    format!("driver {id} did not return from {from} within {CALL_MS} ms, so its process was ended; {then}")
}

/// The media of one destination: packets that were sent, and those that the library has not read.
pub(super) struct Feed {
    pub(super) account: i64,
    pub(super) source: Arc<dyn MediaSource>,
    pub(super) out: Mutex<Out>,
}

/// Packets that were sent.
#[derive(Default)]
pub(super) struct Out {
    /// Not read yet.
    pub(super) packets: usize,
    pub(super) bytes: usize,
    /// Bytes that were not released yet.
    pub(super) held: usize,
    /// Nothing more is sent.
    pub(super) is_over: bool,
}

impl Out {
    pub(super) fn free_packets(&self) -> usize {
        let is_full = self.is_over || self.bytes >= UNREAD_BYTES_MAX;
        if is_full { 0 } else { UNREAD_PACKETS_MAX.saturating_sub(self.packets) }
    }
}

impl Feed {
    pub(super) fn new(account: i64, source: Arc<dyn MediaSource>) -> Self {
        Self { account, source, out: Mutex::default() }
    }

    /// Gives the queue back, and the packets that were taken from it.
    pub(super) fn leave(&self) {
        let held = {
            let mut out = self.out.lock();
            out.is_over = true;
            std::mem::take(&mut out.held)
        };
        // Not under the lock: it may hand over more.
        self.source.released(held);
        self.source.abandoned();
    }
}

/// Answers of a child that wait for viewers.
#[derive(Debug)]
pub(super) struct Held(Quota<()>);

impl Default for Held {
    fn default() -> Self {
        Self(Quota::new(ANSWER_BYTES_HELD_MAX, ANSWER_BYTES_HELD_MAX))
    }
}

impl Held {
    /// Counts these bytes until they are dropped; `None` when the limit is reached.
    pub(super) fn hold(&self, bytes: Bytes) -> Option<Bytes> {
        Some(counted(self.0.try_take((), bytes.len() as u64).ok()?, bytes))
    }
}

#[cfg(test)]
pub(super) mod tests;
