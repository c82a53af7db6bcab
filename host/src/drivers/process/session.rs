//! One child as the host sees it: calls into it, and the media it is given.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use satcast_plugin_api::Error;
use satcast_plugin_api::host::{Delivery, Done, DriverWaker, MediaSource, Recv, Services};
use satcast_plugin_api::recording::About;

use super::calls::{Call, Hung};
use super::channel::{Channel, ChannelError};
use super::http::Held;
use super::memory::SharedMemory;
use super::message::{self, PROTOCOL, ToChild};
use super::notes::{BATCH_PACKETS_MAX, Batch, Note};
use super::shortage;
use super::slots::{Lease, Slots};
use super::{SHARED_BYTES, Spec};
use crate::drivers::control::Pump;

/// How long a message to a child may wait for room; a child that does not read for so long is killed.
const SEND_MS: u64 = 1_000;
/// How often a reader that gets nothing looks at the time.
const TICK_MS: u64 = 250;

/// One child.
pub(super) struct Session {
    pub(super) id: String,
    pub(super) channel: Channel,
    pub(super) services: Arc<dyn Services>,
    pub(super) pump: Arc<Pump>,
    pub(super) calls: Mutex<HashMap<u64, Call>>,
    /// The call that it did not return from.
    pub(super) hung: Mutex<Option<Hung>>,
    pub(super) next_number: AtomicU64,
    /// Requests about recordings that have no outcome yet.
    pub(super) requests: Mutex<HashMap<u64, Done>>,
    pub(super) dests: Mutex<HashMap<u64, Arc<Feed>>>,
    media: Mutex<Shared>,
    /// Device and number of the memory that the child was given.
    pub(super) shared: (u64, u64),
    /// Why the host ended it.
    ended: Mutex<Option<Ended>>,
    pub(super) is_over: AtomicBool,
    pub(super) answers: Arc<Held>,
}

struct Ended {
    why: String,
    /// The service lacked something; the child did nothing wrong.
    for_service: bool,
}

struct Shared {
    memory: SharedMemory,
    slots: Slots,
    /// Destinations whose packets found no room.
    starved: Vec<u64>,
}

/// The media of one destination.
pub(super) struct Feed {
    pub(super) account: i64,
    source: Arc<dyn MediaSource>,
    /// Taken from the queue, not handed over yet.
    taken: Mutex<VecDeque<Delivery>>,
}

/// An open destination in a child.
pub(in crate::drivers) struct RemoteInstance {
    session: Arc<Session>,
    dest: u64,
}

impl Session {
    /// A session on a new socket, whose other end is the second value, with the first message sent.
    pub(super) fn begin(
        spec: &Spec,
        services: &Arc<dyn Services>,
        pump: &Arc<Pump>,
        max_level: u32,
    ) -> Result<(Arc<Self>, OwnedFd), Errno> {
        let (channel, theirs) = Channel::pair()?;
        channel.set_limits(Some(Duration::from_millis(SEND_MS)), Some(Duration::from_millis(TICK_MS)))?;
        let memory = SharedMemory::new(SHARED_BYTES)?;
        let start = ToChild::Start {
            protocol: PROTOCOL,
            id: spec.id.clone(),
            image: spec.image.to_string_lossy().into_owned(),
            max_level,
            limits: spec.limits,
        };
        channel.send(&message::text(&start), &[memory.descriptor()]).map_err(|error| match error {
            ChannelError::System(error) => error,
            _ => Errno::PIPE,
        })?;
        let facts = rustix::fs::fstat(memory.descriptor())?;
        let shared = (facts.st_dev, facts.st_ino);
        let media = Shared { memory, slots: Slots::new(SHARED_BYTES), starved: Vec::new() };
        let session = Self {
            id: spec.id.clone(),
            channel,
            services: services.clone(),
            pump: pump.clone(),
            calls: Mutex::default(),
            hung: Mutex::default(),
            next_number: AtomicU64::new(0),
            requests: Mutex::default(),
            answers: Arc::default(),
            dests: Mutex::default(),
            media: Mutex::new(media),
            shared,
            ended: Mutex::default(),
            is_over: AtomicBool::new(false),
        };
        Ok((Arc::new(session), theirs))
    }

    /// Ends it because of `reason`; whoever reads from it sees the end.
    pub(super) fn fail(&self, reason: &str) {
        self.end(reason, false);
    }

    /// As [`Session::fail`], for something that the service lacks: nobody is blamed.
    pub(super) fn fail_for_service(&self, reason: &str) {
        self.end(reason, true);
    }

    /// It was ended because the service lacked something.
    pub(super) fn is_for_service(&self) -> bool {
        self.ended.lock().as_ref().is_some_and(|ended| ended.for_service)
    }

    fn end(&self, reason: &str, for_service: bool) {
        self.ended.lock().get_or_insert_with(|| Ended { why: reason.to_owned(), for_service });
        self.is_over.store(true, Ordering::Release);
        self.channel.shut_down();
    }

    /// Why the host ended it, if it did.
    pub(super) fn failure(&self) -> Option<String> {
        self.ended.lock().as_ref().map(|ended| ended.why.clone())
    }

    /// Sends a message; a child that does not read is ended.
    pub(super) fn tell(&self, message: &ToChild) {
        self.send(&message::text(message), None);
    }

    /// As [`Session::tell`], with a descriptor beside it.
    pub(super) fn tell_with(&self, message: &ToChild, descriptor: &OwnedFd) {
        self.send(&message::text(message), Some(descriptor));
    }

    pub(super) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn send(&self, bytes: &[u8], descriptor: Option<&OwnedFd>) {
        let descriptors: Vec<_> = descriptor.map(|descriptor| descriptor.as_fd()).into_iter().collect();
        match self.channel.send(bytes, &descriptors) {
            // The reader sees the end by itself.
            Ok(()) | Err(ChannelError::Closed) => {}
            Err(ChannelError::TooLarge) => self.fail("was to be told more than a message holds"),
            Err(ChannelError::System(error)) if shortage::is_shortage(error) => {
                self.fail_for_service(&shortage::told("cannot be told anything", &error.into()));
            }
            // Nothing is read here.
            Err(ChannelError::TimedOut | ChannelError::System(_) | ChannelError::Short(_)) => {
                self.fail("does not read");
            }
        }
    }

    /// Opens a destination.
    pub(super) fn open(
        self: &Arc<Self>,
        dest: u64,
        source: u64,
        kind: &str,
        config: &str,
        about: &About,
        media: Arc<dyn MediaSource>,
    ) -> Result<RemoteInstance, Error> {
        let (kind, config, about) = (kind.to_owned(), config.to_owned(), about.clone());
        // Before the call: the child may want media before it has answered.
        let account = about.account_id;
        let feed = Feed { account, source: media, taken: Mutex::default() };
        self.dests.lock().insert(dest, Arc::new(feed));
        let opened =
            self.call_to_open(account, |call| ToChild::Open { call, dest, source, kind, config, about });
        match opened {
            Ok(_) => Ok(RemoteInstance { session: self.clone(), dest }),
            Err(error) => {
                self.forget(dest);
                Err(error)
            }
        }
    }

    fn forget(&self, dest: u64) {
        let feed = self.dests.lock().remove(&dest);
        if let Some(feed) = feed {
            self.leave(&feed);
        }
    }

    /// Gives a queue back, and what was taken from it and not handed over.
    fn leave(&self, feed: &Feed) {
        let taken: Vec<Delivery> = feed.taken.lock().drain(..).collect();
        for delivery in taken {
            feed.source.released(delivery.packet.payload.len());
        }
        feed.source.abandoned();
    }

    /// Whether the child has this destination.
    pub(super) fn has(&self, dest: u64) -> bool {
        self.dests.lock().contains_key(&dest)
    }

    /// The child gave this queue back.
    pub(super) fn abandoned(&self, dest: u64) {
        let feed = self.dests.lock().get(&dest).cloned();
        if let Some(feed) = feed {
            self.leave(&feed);
        }
    }

    /// The child wants media for a destination: it gets some now, or as soon as there is some.
    pub(super) fn feed(self: &Arc<Self>, dest: u64) {
        let Some(feed) = self.dests.lock().get(&dest).cloned() else { return };
        let mut taken = feed.taken.lock();
        if taken.is_empty() {
            let session = Arc::downgrade(self);
            let waker = DriverWaker::calling(move || {
                if let Some(session) = Weak::upgrade(&session) {
                    session.feed(dest);
                }
            });
            let mut got = Vec::with_capacity(BATCH_PACKETS_MAX);
            match feed.source.recv(BATCH_PACKETS_MAX, &mut got, waker) {
                Recv::Ready => taken.extend(got),
                Recv::Empty => return,
                Recv::Closed => {
                    drop(taken);
                    self.tell(&ToChild::MediaEnd { dest });
                    return;
                }
            }
        }
        let batch = self.place(dest, &feed, &mut taken);
        drop(taken);
        if !batch.packets.is_empty() {
            self.send(&batch.bytes(), None);
        }
    }

    /// Copies as much of `taken` as there is room for.
    fn place(&self, dest: u64, feed: &Feed, taken: &mut VecDeque<Delivery>) -> Batch {
        let mut batch = Batch { dest, packets: Vec::with_capacity(taken.len()) };
        let mut media = self.media.lock();
        let Shared { memory, slots, starved } = &mut *media;
        while let Some(delivery) = taken.front() {
            let Some(placed) = slots.place(&delivery.packet, &feed.source) else { break };
            if !placed.is_written {
                // The place is inside: the bookkeeping has the memory's size.
                memory.write(placed.offset, &delivery.packet.payload);
            }
            batch.packets.push(Note::of(delivery, placed.lease, placed.offset));
            taken.pop_front();
        }
        if batch.packets.is_empty() && !starved.contains(&dest) {
            starved.push(dest);
        }
        batch
    }

    /// The child let go of packets; `false` when it did not hold one of them.
    pub(super) fn released(self: &Arc<Self>, leases: &[u64]) -> bool {
        let (ended, starved): (Vec<Option<Lease>>, Vec<u64>) = {
            let mut media = self.media.lock();
            let ended = leases.iter().map(|lease| media.slots.release(*lease)).collect();
            (ended, std::mem::take(&mut media.starved))
        };
        let is_sound = ended.iter().all(Option::is_some);
        // Not under the lock: it may hand over more.
        for lease in ended.into_iter().flatten() {
            lease.source.released(lease.bytes);
        }
        starved.into_iter().for_each(|dest| self.feed(dest));
        is_sound
    }

    /// After its end: fails what waits for it, gives all media back, and tells its destinations `error`.
    pub(super) fn bury(&self, error: &Error) {
        self.is_over.store(true, Ordering::Release);
        self.end_calls();
        let requests: Vec<Done> = self.requests.lock().drain().map(|(_, done)| done).collect();
        requests.into_iter().for_each(|done| done(Err(error.clone())));
        let leases = self.media.lock().slots.clear();
        for lease in leases {
            lease.source.released(lease.bytes);
        }
        let dests: Vec<(u64, Arc<Feed>)> = self.dests.lock().drain().collect();
        for (dest, feed) in dests {
            self.leave(&feed);
            self.services.stopped(dest, Err(error.clone()));
        }
    }
}

impl RemoteInstance {
    /// Offers a new configuration; false when it must be opened again for it.
    pub(in crate::drivers) fn reconfigure(&self, config: &str) -> Result<bool, Error> {
        let (dest, config) = (self.dest, config.to_owned());
        self.session.call(self.session.account_of(dest), |call| ToChild::Reconfigure { call, dest, config })
    }

    /// Asks for the end.
    pub(in crate::drivers) fn stop(&self, deadline_ms: u32) {
        let dest = self.dest;
        // A child that is gone has ended all of it.
        let _ = self.session.call(self.session.account_of(dest), |call| ToChild::Stop {
            call,
            dest,
            deadline_ms,
        });
    }

    /// Frees it.
    pub(in crate::drivers) fn destroy(self) {
        let dest = self.dest;
        // As above.
        let _ = self.session.call(self.session.account_of(dest), |call| ToChild::Destroy { call, dest });
        self.session.forget(dest);
    }
}
