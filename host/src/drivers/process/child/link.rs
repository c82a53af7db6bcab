//! The child's end of everything: what it sends, and what waits for the host's answer.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use satcast_plugin_api::Error;
use satcast_plugin_api::driver_state::State;
use satcast_plugin_api::host::{Body, Connected};

use super::super::channel::{Channel, ChannelError};
use super::super::memory::SharedView;
use super::super::message::{self, Failure, ToHost};
use super::super::notes::{Batch, Demand, RELEASES_MAX};
use super::die;
use super::media::RemoteQueue;
use crate::drivers::control::Pump;

/// How long the host may take to answer a call of the library.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Packets let go of that are told at once.
const RELEASES_TOLD: usize = 32;
/// Bytes let go of that are told at once: less than what a destination may hold by far, so that none waits for them.
const RELEASED_BYTES_TOLD: u64 = 1024 * 1024;

/// A counter: all that was added, and how much of it was told.
type Counter = (Arc<AtomicU64>, u64);

/// The child's end.
pub(super) struct Link {
    pub(super) channel: Channel,
    pub(super) view: SharedView,
    pub(super) pump: Pump,
    queues: Mutex<HashMap<u64, Arc<RemoteQueue>>>,
    calls: Mutex<HashMap<u64, SyncSender<Result<String, Failure>>>>,
    connecting: Mutex<HashMap<u64, Connected>>,
    bodies: Mutex<HashMap<u64, Body>>,
    counters: Mutex<HashMap<u64, HashMap<String, Counter>>>,
    released: Mutex<(Vec<u64>, u64)>,
    /// Requests of viewers that have no answer yet.
    requests: Mutex<HashSet<u64>>,
    next_number: AtomicU64,
}

impl Link {
    pub(super) fn new(channel: Channel, view: SharedView, id: &str) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self {
            channel,
            view,
            pump: Pump::start(id)?,
            queues: Mutex::default(),
            calls: Mutex::default(),
            connecting: Mutex::default(),
            bodies: Mutex::default(),
            counters: Mutex::default(),
            released: Mutex::default(),
            requests: Mutex::default(),
            next_number: AtomicU64::new(0),
        }))
    }

    /// Sends a message; waits for room. What is too large is left out.
    pub(super) fn send(&self, message: &ToHost) {
        self.send_bytes(&message::text(message), None);
    }

    /// As [`Link::send`], with a descriptor beside it.
    pub(super) fn send_with(&self, message: &ToHost, descriptor: &OwnedFd) {
        self.send_bytes(&message::text(message), Some(descriptor));
    }

    fn send_bytes(&self, bytes: &[u8], descriptor: Option<&OwnedFd>) {
        let descriptors: Vec<_> = descriptor.map(|descriptor| descriptor.as_fd()).into_iter().collect();
        match self.channel.send(bytes, &descriptors) {
            Ok(()) | Err(ChannelError::TooLarge | ChannelError::TimedOut) => {}
            Err(_) => die(),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Asks the host and waits for its answer.
    pub(super) fn ask(
        &self,
        message: impl FnOnce(u64) -> ToHost,
        descriptor: Option<&OwnedFd>,
    ) -> Result<String, Error> {
        let call = self.number();
        let (answer, outcome) = sync_channel(1);
        self.calls.lock().insert(call, answer);
        self.send_bytes(&message::text(&message(call)), descriptor);
        let outcome = outcome.recv_timeout(ANSWER_WAIT);
        self.calls.lock().remove(&call);
        outcome.map_err(|_| Error::internal("the host did not answer"))?.map_err(Error::from)
    }

    pub(super) fn answered(&self, call: u64, outcome: Result<String, Failure>) {
        if let Some(answer) = self.calls.lock().remove(&call) {
            // The caller may have given up meanwhile.
            let _ = answer.try_send(outcome);
        }
    }

    /// Keeps what is called when the connection `call` is there or not.
    pub(super) fn await_connection(&self, call: u64, done: Connected) {
        self.connecting.lock().insert(call, done);
    }

    pub(super) fn connected(&self, call: u64, failure: Option<Failure>, socket: Option<OwnedFd>) {
        let Some(done) = self.connecting.lock().remove(&call) else { return };
        let outcome = match (failure, socket) {
            (None, Some(socket)) => Ok(socket),
            (Some(failure), _) => Err(Error::from(failure)),
            (None, None) => Err(Error::internal("the host gave no socket; too many open files?")),
        };
        self.pump.run(move || done(outcome));
    }

    /// Keeps a body until the host does not need it any more.
    pub(super) fn keep(&self, body: u64, kept: Body) {
        self.bodies.lock().insert(body, kept);
    }

    pub(super) fn body_released(&self, body: u64) {
        if let Some(kept) = self.bodies.lock().remove(&body) {
            self.pump.run(move || drop(kept));
        }
    }

    /// A viewer asks.
    pub(super) fn asked(&self, token: u64) {
        self.requests.lock().insert(token);
    }

    /// It is answered; false when it was before, or was never asked.
    pub(super) fn is_first_answer(&self, token: u64) -> bool {
        self.requests.lock().remove(&token)
    }

    pub(super) fn add_queue(&self, dest: u64, queue: &Arc<RemoteQueue>) {
        self.queues.lock().insert(dest, queue.clone());
    }

    /// Whether the host is to be told of this state of a destination: not when it was told before.
    pub(super) fn is_news(&self, dest: u64, state: State, has_reason: bool) -> bool {
        let queue = self.queues.lock().get(&dest).cloned();
        // The host knows better than this side which destinations there are.
        queue.is_none_or(|queue| queue.is_news(state, has_reason))
    }

    /// Forgets a destination that was freed.
    pub(super) fn forget(&self, dest: u64) {
        self.flush();
        // Each goes after its lock.
        let _queue = self.queues.lock().remove(&dest);
        let _counters = self.counters.lock().remove(&dest);
    }

    pub(super) fn take_media(&self, batch: &Batch) {
        let queue = self.queues.lock().get(&batch.dest).cloned();
        match queue {
            Some(queue) => queue.take(&batch.packets),
            None => batch.packets.iter().for_each(|note| self.release(note.lease, note.len)),
        }
    }

    pub(super) fn end_media(&self, dest: u64) {
        let queue = self.queues.lock().get(&dest).cloned();
        if let Some(queue) = queue {
            queue.end();
        }
    }

    /// Asks for media of a destination.
    pub(super) fn want(&self, dest: u64) {
        self.demand(Demand { wanted: dest, ..Demand::default() });
    }

    /// Gives a queue back.
    pub(super) fn abandon(&self, dest: u64) {
        self.demand(Demand { abandoned: dest, ..Demand::default() });
    }

    /// Lets go of a packet; told at once or a little later.
    pub(super) fn release(&self, lease: u64, bytes: u64) {
        let is_due = {
            let mut released = self.released.lock();
            released.0.push(lease);
            released.1 += bytes;
            released.0.len() >= RELEASES_TOLD || released.1 >= RELEASED_BYTES_TOLD
        };
        if is_due {
            self.demand(Demand::default());
        }
    }

    /// Sends a demand with all that was let go of.
    fn demand(&self, mut demand: Demand) {
        let released = std::mem::take(&mut *self.released.lock()).0;
        let mut parts = released.chunks(RELEASES_MAX);
        demand.released = parts.next().unwrap_or_default().to_vec();
        if demand != Demand::default() {
            self.send_bytes(&demand.bytes(), None);
        }
        for part in parts {
            self.send_bytes(&Demand { released: part.to_vec(), ..Demand::default() }.bytes(), None);
        }
    }

    /// A counter of a destination, made if need be.
    pub(super) fn counter(&self, dest: u64, name: &str) -> Option<Arc<AtomicU64>> {
        let mut counters = self.counters.lock();
        let of_dest = counters.entry(dest).or_default();
        if !of_dest.contains_key(name) && of_dest.len() >= crate::drivers::services::COUNTERS_MAX {
            return None;
        }
        Some(of_dest.entry(name.to_owned()).or_default().0.clone())
    }

    /// Sends what was added to counters and what was let go of.
    pub(super) fn flush(&self) {
        let mut grown = Vec::new();
        for (dest, counters) in &mut *self.counters.lock() {
            for (name, (counter, told)) in counters {
                let value = counter.load(Ordering::Relaxed);
                if value != *told {
                    let added = value.wrapping_sub(*told);
                    grown.push(ToHost::Counted { dest: *dest, name: name.clone(), added });
                    *told = value;
                }
            }
        }
        grown.iter().for_each(|message| self.send(message));
        self.demand(Demand::default());
    }
}
