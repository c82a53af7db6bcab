//! The child's end of the connection: messages to the host, and calls that wait for the host's answer.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use satcast_plugin_api::Error;
use satcast_plugin_api::driver_state::State;
use satcast_plugin_api::host::Connected;
use satcast_plugin_api::playback::Keep;

use super::super::channel::{ChannelError, Sender};
use super::super::message::{ALIVE_MS, Progress, Request, Sent, ToHost};
use super::super::payloads::{Kept, Place};
use super::confine::die;
use super::media::{RemoteQueue, Ticker};
use crate::run::pump::Pump;
use crate::run::services::COUNTERS_MAX;
use satcast_core::clock::Clock;

/// How long the host may take to answer a call of the library.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Interval of reports that may be late: counters and media progress.
const TICK: Duration = Duration::from_millis(200);

/// A counter and the part of its value that was reported.
type Counter = (Arc<AtomicU64>, u64);

/// A call that waits for an answer of the host.
enum Pending {
    Call(SyncSender<Result<String, Error>>),
    Connection(Connected),
}

pub(super) struct Link {
    sender: Sender,
    pub(super) pump: Arc<Pump>,
    queues: Mutex<HashMap<u64, Arc<RemoteQueue>>>,
    /// Payloads that crossed last.
    payloads: Mutex<Kept>,
    calls: Mutex<HashMap<u64, Pending>>,
    bodies: Mutex<HashMap<u64, Keep>>,
    counters: Mutex<HashMap<u64, HashMap<String, Counter>>>,
    /// Viewers' requests without an answer.
    requests: Mutex<HashSet<u64>>,
    next_number: AtomicU64,
    pub(super) ticker: Arc<Ticker>,
}

impl Link {
    pub(super) fn new(sender: Sender, id: &str) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self {
            sender,
            pump: Arc::new(Pump::start(id)?),
            queues: Mutex::default(),
            payloads: Mutex::default(),
            calls: Mutex::default(),
            bodies: Mutex::default(),
            counters: Mutex::default(),
            requests: Mutex::default(),
            next_number: AtomicU64::new(0),
            ticker: Arc::default(),
        }))
    }

    /// Starts the thread that sends reports that may be late, and signs of life.
    pub(super) fn start_ticker(self: &Arc<Self>, id: &str) -> std::io::Result<()> {
        let link = self.clone();
        let tick = move || {
            let clock = Clock::system();
            let mut reported = clock.monotonic();
            loop {
                thread::park_timeout(TICK);
                link.push_pending();
                let now = clock.monotonic();
                if now - reported > Duration::from_millis(ALIVE_MS) {
                    reported = now;
                    link.push(&ToHost::Alive);
                }
                link.flush();
            }
        };
        let ticker = thread::Builder::new().name(format!("t:{id}")).spawn(tick)?;
        self.ticker.runs_on(ticker.thread());
        Ok(())
    }

    /// Sends a message; blocks until the socket accepts it.
    pub(super) fn send(&self, message: &ToHost) {
        self.send_with(message, Vec::new(), None);
    }

    /// Like [`Link::send`], with bytes after it and a descriptor.
    pub(super) fn send_with(&self, message: &ToHost, bytes: Vec<Bytes>, descriptor: Option<OwnedFd>) {
        self.judge(self.sender.send(message, bytes, descriptor));
    }

    fn push(&self, message: &ToHost) {
        self.judge(self.sender.push(message, Vec::new(), None));
    }

    fn flush(&self) {
        self.judge(self.sender.flush());
    }

    /// A message that is too large or invalid is dropped.
    fn judge(&self, sent: Result<(), ChannelError>) {
        match sent {
            Ok(()) | Err(ChannelError::TooLarge | ChannelError::Malformed) => {}
            Err(_) => die(),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Calls the host and waits for its answer.
    pub(super) fn ask(&self, request: Request, bytes: Vec<Bytes>) -> Result<String, Error> {
        let call = self.number();
        let (answer, outcome) = sync_channel(1);
        self.calls.lock().insert(call, Pending::Call(answer));
        let sent = self.sender.send(&ToHost::Call { call, request }, bytes, None);
        self.judge(sent);
        let outcome = match sent {
            Ok(()) => outcome.recv_timeout(ANSWER_WAIT).map_err(|_| "the host did not answer"),
            Err(_) => Err("the request is too large or not valid text"),
        };
        self.calls.lock().remove(&call);
        outcome.map_err(Error::internal)?
    }

    /// Asks the host for a connection.
    pub(super) fn connect(&self, request: Request, done: Connected) {
        let call = self.number();
        self.calls.lock().insert(call, Pending::Connection(done));
        self.send(&ToHost::Call { call, request });
    }

    pub(super) fn answered(&self, call: u64, outcome: Result<String, Error>, socket: Option<OwnedFd>) {
        let waiting = self.calls.lock().remove(&call);
        match waiting {
            // The caller may have given up meanwhile.
            Some(Pending::Call(answer)) => drop(answer.try_send(outcome)),
            Some(Pending::Connection(done)) => {
                let no_socket = || {
                    Error::internal(
                        "the service has no socket left; the operator can raise its limit of open files",
                    )
                };
                let outcome = outcome.and_then(|_| socket.ok_or_else(no_socket));
                self.pump.run(move || done(outcome));
            }
            None => {}
        }
    }

    /// Keeps a body until the host no longer needs it.
    pub(super) fn keep(&self, body: u64, kept: Keep) {
        self.bodies.lock().insert(body, kept);
    }

    pub(super) fn body_released(&self, body: u64) {
        if let Some(kept) = self.bodies.lock().remove(&body) {
            self.pump.run(move || drop(kept));
        }
    }

    /// A viewer's request arrived.
    pub(super) fn asked(&self, token: u64) {
        self.requests.lock().insert(token);
    }

    /// Marks a request as answered; false when it was answered before or is unknown.
    pub(super) fn is_first_answer(&self, token: u64) -> bool {
        self.requests.lock().remove(&token)
    }

    pub(super) fn add_queue(&self, dest: u64, queue: &Arc<RemoteQueue>) {
        self.queues.lock().insert(dest, queue.clone());
    }

    fn queue(&self, dest: u64) -> Option<Arc<RemoteQueue>> {
        self.queues.lock().get(&dest).cloned()
    }

    /// Whether this state of a destination must be reported to the host: not if it was reported before.
    pub(super) fn is_news(&self, dest: u64, state: State, has_reason: bool) -> bool {
        // The host knows better than this side which destinations exist.
        self.queue(dest).is_none_or(|queue| queue.is_news(state, has_reason))
    }

    /// Forgets a destination that was freed.
    pub(super) fn forget(&self, dest: u64) {
        self.push_pending();
        // Each is dropped after its lock.
        let _queue = self.queues.lock().remove(&dest);
        let _counters = self.counters.lock().remove(&dest);
    }

    /// Takes packets of the host, whose new payloads are in `bytes`.
    pub(super) fn take_media(&self, dest: u64, packets: Vec<Sent>, mut bytes: Bytes) {
        let mut payloads = self.payloads.lock();
        let mut place = |sent: Sent| {
            let payload = match sent.payload {
                Place::Behind(len) if len <= bytes.len() => {
                    let payload = bytes.split_to(len);
                    payloads.add(payload.clone(), |_| {});
                    payload
                }
                Place::Kept(number) => payloads.get(number)?.clone(),
                Place::Behind(_) => return None,
            };
            Some((sent, payload))
        };
        // The host only refers to payloads that are kept.
        let placed: Option<Vec<(Sent, Bytes)>> = packets.into_iter().map(&mut place).collect();
        drop(payloads);
        match (placed, self.queue(dest)) {
            (Some(placed), Some(queue)) => queue.take(placed),
            (None, _) => die(),
            // The destination has ended; the host returns the packets that were in flight.
            (_, None) => {}
        }
    }

    pub(super) fn end_media(&self, dest: u64) {
        self.queue(dest).into_iter().for_each(|queue| queue.end());
    }

    /// A counter of a destination, created if necessary.
    pub(super) fn counter(&self, dest: u64, name: &str) -> Option<Arc<AtomicU64>> {
        let mut counters = self.counters.lock();
        let of_dest = counters.entry(dest).or_default();
        if !of_dest.contains_key(name) && of_dest.len() >= COUNTERS_MAX {
            return None;
        }
        Some(of_dest.entry(name.to_owned()).or_default().0.clone())
    }

    /// Queues counter increments and media progress for the next send.
    pub(super) fn push_pending(&self) {
        for (dest, counters) in &mut *self.counters.lock() {
            for (name, (counter, reported)) in counters {
                let value = counter.load(Ordering::Relaxed);
                if value != *reported {
                    let added = value.wrapping_sub(*reported);
                    self.push(&ToHost::Counted { dest: *dest, name: name.clone(), added });
                    *reported = value;
                }
            }
        }
        let queues = self.queues.lock();
        let progress: Vec<Progress> =
            queues.iter().filter_map(|(dest, queue)| queue.progress(*dest)).collect();
        drop(queues);
        if !progress.is_empty() {
            self.push(&ToHost::Media(progress));
        }
    }
}
