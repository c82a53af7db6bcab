//! Calls, requests and media when a child answers, hangs, or ends. The test is the child.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::thread;

use satcast_plugin_api::driver_state::State;
use satcast_plugin_api::host::{Connected, Delivery, DriverWaker, Listing, LogLine, Recv};
use satcast_plugin_api::recording::Recording;
use satcast_plugin_api::{Asset, Packet, Playback};

use super::super::channel::{self, Receiver};
use super::super::message::{Progress, ToHost, ToOpen};
use super::super::payloads::{Kept, Place};
use super::super::recordings::{REQUESTS_MAX, too_slow};
use super::*;
use satcast_plugin_api::recording::About;

const BLOCK: usize = 64 * 1024;

/// Services that do nothing.
#[derive(Default)]
pub(in super::super) struct Deaf;

impl Services for Deaf {
    fn log(&self, _: LogLine) {}
    fn state(&self, _: u64, _: State, _: Option<Error>) {}
    fn event(&self, _: u64, _: &str, _: &str) {}
    fn metric(&self, _: u64, _: &str) -> Option<Arc<AtomicU64>> {
        None
    }
    fn stopped(&self, _: u64, _: Result<(), Error>) {}
    fn connect(&self, _: u64, _: String, _: u16, _: Duration, _: Connected) {}
    fn data_dir(&self) -> Result<std::path::PathBuf, Error> {
        Err(Error::internal("none"))
    }
    fn publish(&self, _: u64, _: Asset) -> Result<(), Error> {
        Ok(())
    }
    fn retract(&self, _: u64, _: &str) {}
    fn playback(&self, _: u64, _: Playback) -> Result<(), Error> {
        Ok(())
    }
    fn recording(&self, _: Recording) -> Result<(), Error> {
        Ok(())
    }
}

/// Both sides: the session with its supervisor's reader, and the child.
pub(in super::super) struct Both {
    pub(in super::super) session: Arc<Session>,
    supervisor: Receiver,
    child: Sender,
    reader: Receiver,
}

pub(in super::super) fn begin() -> Both {
    let (ours, theirs) = channel::pair().unwrap();
    let ((sender, supervisor), (child, reader)) =
        (channel::split(ours, BLOCK), channel::split(theirs, BLOCK));
    let services: Arc<dyn Services> = Arc::new(Deaf);
    let session = Session::new("t", sender, &services, &Arc::new(Pump::start("t").unwrap()));
    Both { session, supervisor, child, reader }
}

impl Both {
    /// Makes a call on another thread.
    fn calling<R: Send + 'static>(
        &self,
        call: impl FnOnce(&Arc<Session>) -> R + Send + 'static,
    ) -> thread::JoinHandle<R> {
        let session = self.session.clone();
        thread::spawn(move || call(&session))
    }

    /// The next call.
    fn call(&mut self) -> (u64, Ask) {
        match self.reader.next().unwrap().content {
            ToChild::Call { call, ask } => (call, ask),
            other => panic!("{other:?}"),
        }
    }

    /// Sends a message, which the supervisor handles.
    fn say(&mut self, message: &ToHost) {
        self.child.send(message, Vec::new(), None).unwrap();
        let message = self.supervisor.next().unwrap();
        assert!(self.session.handle(message).unwrap().is_none());
    }

    fn answer(&mut self, call: u64, outcome: Result<Reply, Error>) {
        self.say(&ToHost::Answer { call, outcome });
    }
}

#[test]
fn an_account_with_a_call_is_inside_and_gets_the_end() {
    let mut both = begin();
    let validate = || Ask::Validate { kind: "kind".into(), config: "{}".into() };
    let asked = both.calling(move |session| session.call(Some(7), validate()));
    let (call, _) = both.call();
    assert_eq!(both.session.inside(), BTreeSet::from([7]));
    both.answer(call + 1, Ok(Reply::Taken(false)));
    both.answer(call, Err(Error::config("no")));
    assert_eq!(asked.join().unwrap().unwrap_err().message, "no");
    assert!(both.session.inside().is_empty());
    let asked = both.calling(move |session| session.call(Some(7), validate()));
    both.call();
    both.session.bury(&Error::internal("it crashed"));
    assert_eq!(asked.join().unwrap().unwrap_err().class, Class::Internal, "other accounts were inside too");
    assert!(both.session.call(Some(7), validate()).is_err());
}

#[test]
fn a_child_that_does_not_return_from_a_call_is_ended() {
    let mut both = begin();
    let error = both.session.call(Some(7), Ask::Recordings).unwrap_err();
    assert_eq!((error.class, both.session.failure()), (Class::Panic, Some(not_returned())));
    assert_eq!(error.message, hangs("t", false, true));
    let (call, _) = both.call();
    both.session.answered(call, Ok(Reply::Taken(true)));
    assert_eq!(both.session.inside(), BTreeSet::from([7]), "even when it answers at last");
}

#[test]
fn a_hanging_opening_alone_in_the_process_is_reported_as_a_hang() {
    let both = begin();
    let error = opened(&both.session).unwrap_err();
    assert_eq!((error.class, error.message), (Class::Panic, hangs("t", true, true)));
    assert_eq!(both.session.inside(), BTreeSet::from([7]));
}

#[test]
fn an_end_seen_at_once_does_not_hide_the_single_account() {
    let both = begin();
    let seen = both.session.clone();
    let end = thread::spawn(move || {
        while seen.failure().is_none() {
            thread::yield_now();
        }
        seen.bury(&Error::internal("it has ended"));
    });
    let error = opened(&both.session).unwrap_err();
    end.join().unwrap();
    assert_eq!(error.class, Class::Panic);
}

#[test]
fn a_hanging_opening_beside_others_is_not_reported_as_the_cause() {
    let both = begin();
    both.session.feeds.lock().insert(2, Arc::new(Feed::new(8, Arc::<Source>::default())));
    let error = opened(&both.session).unwrap_err();
    assert_eq!((error.class, error.message), (Class::Internal, hangs("t", true, false)));
    assert_eq!(both.session.inside(), BTreeSet::from([7, 8]), "the search begins");
}

fn opened(session: &Arc<Session>) -> Result<(), Error> {
    let about = About { account_id: 7, ..About::default() };
    let to_open = ToOpen { dest: 1, about, ..ToOpen::default() };
    session.open(&to_open, Arc::<Source>::default()).map(drop)
}

/// Requests an upload; returns the receiver of its outcome.
fn retry(session: &Arc<Session>) -> std::sync::mpsc::Receiver<Result<(), Error>> {
    let (sender, outcomes) = std::sync::mpsc::channel();
    let done: BytesDone = Box::new(move |outcome| sender.send(outcome.map(drop)).unwrap());
    session.ask_for(done, |request| Ask::Retry { request, file_name: "a".into() });
    outcomes
}

#[test]
fn a_request_has_exactly_one_outcome() {
    let mut both = begin();
    let ask = |both: &mut Both, outcome: Result<Reply, Error>| {
        let asked = both.calling(retry);
        let (call, Ask::Retry { request, .. }) = both.call() else { panic!("another call") };
        both.answer(call, outcome);
        (request, asked.join().unwrap())
    };
    let (request, outcomes) = ask(&mut both, Ok(Reply::Taken(true)));
    assert!(outcomes.try_recv().is_err(), "not yet");
    both.say(&ToHost::Done { request: request + 1, outcome: Ok(()) });
    both.say(&ToHost::Done { request, outcome: Err(Error::remote("no room")) });
    both.say(&ToHost::Done { request, outcome: Ok(()) });
    assert_eq!(outcomes.recv().unwrap().unwrap_err().message, "no room");
    assert!(outcomes.recv().is_err(), "once");

    let (_, outcomes) = ask(&mut both, Err(Error::internal("it panicked")));
    assert_eq!(outcomes.recv().unwrap().unwrap_err().message, "it panicked");

    let (_, outcomes) = ask(&mut both, Ok(Reply::Taken(true)));
    both.session.bury(&Error::internal("it crashed"));
    assert_eq!(outcomes.recv().unwrap().unwrap_err().message, "it crashed");
    assert!(retry(&both.session).recv().unwrap().is_err(), "after its end");
    assert!(both.session.requests.lock().is_empty());
}

#[test]
fn unanswered_requests_are_limited() {
    let both = begin();
    for request in 0..REQUESTS_MAX as u64 {
        both.session.requests.lock().insert(u64::MAX - request, Box::new(|_| {}));
    }
    assert_eq!(retry(&both.session).recv().unwrap().unwrap_err().message, too_slow("t").message);
}

#[test]
fn lists_cross_completely() {
    let mut both = begin();
    let listing = Listing { refused_count: 3, ..Listing::default() };
    let asked = both.calling(|session| session.call(None, Ask::Recordings));
    let (call, Ask::Recordings) = both.call() else { panic!("another call") };
    both.answer(call, Ok(Reply::Recordings(listing.clone())));
    let Ok(Reply::Recordings(listed)) = asked.join().unwrap() else { panic!("no list") };
    assert_eq!(listed, listing);
}

#[test]
fn faults_of_drivers_texts() {
    assert_eq!(not_returned(), format!("did not return from a call within {CALL_MS} ms"));
    assert_eq!(
        hangs("x", true, true),
        format!(
            "driver x did not return from opening the destination within {CALL_MS} ms, so its process was ended; change the \
             destination and try again, or ask the operator or the driver's author"
        )
    );
    assert_eq!(
        hangs("x", false, false),
        format!(
            "driver x did not return from a call within {CALL_MS} ms, so its process was ended; the process also served other \
             accounts, whose work may be the cause; try again"
        )
    );
    assert_eq!(
        too_slow("x").message,
        format!("driver x has {REQUESTS_MAX} requests about recordings without an answer; it is too slow")
    );
}

/// A queue with this many packets, which counts returned bytes.
#[derive(Default)]
pub(in super::super) struct Source {
    packets: Mutex<VecDeque<Arc<Packet>>>,
    out: AtomicUsize,
    is_abandoned: AtomicBool,
}

impl MediaSource for Source {
    fn recv(&self, max: usize, out: &mut Vec<Delivery>, _: DriverWaker) -> Recv {
        let mut packets = self.packets.lock();
        let count = packets.len().min(max);
        for packet in packets.drain(..count) {
            self.out.fetch_add(packet.payload.len(), Ordering::Relaxed);
            out.push(Delivery { packet, discontinuity: false });
        }
        if count > 0 { Recv::Ready } else { Recv::Empty }
    }

    fn released(&self, bytes: usize) {
        self.out.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn abandoned(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }
}

fn packets(count: usize) -> VecDeque<Arc<Packet>> {
    (0..count as u64).map(|number| Arc::new(super::super::testing::packet(number, 100))).collect()
}

#[test]
fn unread_packets_stay_in_the_queue_and_held_bytes_come_back_at_the_end() {
    let mut both = begin();
    let all = packets(3 * UNREAD_PACKETS_MAX);
    let sources: Vec<Arc<Source>> = (0..2).map(|_| Arc::default()).collect();
    let mut kept = Kept::default();
    for (dest, source) in [1, 2].into_iter().zip(&sources) {
        *source.packets.lock() = all.clone();
        both.session.feeds.lock().insert(dest, Arc::new(Feed::new(7, source.clone())));
        both.session.feed(dest);
        both.session.feed(dest);
        let message = both.reader.next().unwrap();
        let ToChild::Media { dest: of, packets } = message.content else { panic!("no media") };
        let crossed: usize = packets.iter().filter(|sent| matches!(sent.payload, Place::Behind(_))).count();
        let expected = if dest == 1 { UNREAD_PACKETS_MAX } else { 0 };
        assert_eq!((of, packets.len(), crossed), (dest, UNREAD_PACKETS_MAX, expected));
        assert_eq!(message.bytes.len(), 100 * expected);
        let mut bytes = message.bytes;
        for (sent, packet) in packets.into_iter().zip(&all) {
            let payload = match sent.payload {
                Place::Behind(len) => {
                    kept.add(bytes.slice(..len), |_| {});
                    bytes.split_to(len)
                }
                Place::Kept(number) => kept.get(number).unwrap().clone(),
            };
            assert_eq!((payload, sent.packet.sequence), (packet.payload.clone(), packet.sequence));
        }
    }
    let progress = |packets: usize, released: usize| Progress {
        dest: 1,
        packets,
        bytes: 100 * packets,
        released: 100 * released,
        is_given_back: false,
    };
    both.say(&ToHost::Media(vec![progress(3, 2)]));
    let ToChild::Media { dest: 1, packets } = both.reader.next().unwrap().content else { panic!("no media") };
    assert_eq!(packets.len(), 3, "as many as were read");
    assert_eq!(sources[0].out.load(Ordering::Relaxed), 100 * (UNREAD_PACKETS_MAX + 1));
    both.say(&ToHost::Media(vec![Progress { is_given_back: true, ..progress(0, 0) }, progress(9, 0)]));
    assert!(sources[0].is_abandoned.load(Ordering::Relaxed));
    both.session.bury(&Error::internal("it crashed"));
    for source in &sources {
        assert_eq!(source.out.load(Ordering::Relaxed), 0, "all comes back");
        assert!(source.is_abandoned.load(Ordering::Relaxed));
    }
    assert!(
        sources[0].packets.lock().len() == 2 * UNREAD_PACKETS_MAX - 3,
        "nothing was sent after the queue was given back"
    );
}

#[test]
fn bytes_that_wait_for_viewers_are_limited() {
    let held = Held::default();
    let half = Bytes::from(vec![0; (ANSWER_BYTES_HELD_MAX / 2) as usize]);
    let first = held.hold(half.clone()).unwrap();
    let second = held.hold(half).unwrap();
    assert!(held.hold(Bytes::from_static(b"x")).is_none());
    // A viewer holds a part of it.
    let part = first.slice(..10);
    drop(first);
    assert!(held.hold(Bytes::from_static(b"x")).is_none());
    drop(part);
    assert_eq!(held.hold(Bytes::from_static(b"x")).unwrap(), "x");
    drop(second);
    assert_eq!(held.0.taken(), 0);
}
