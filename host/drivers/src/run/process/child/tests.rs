//! Both sides in one process: packets of the host's queues cross to the child's queues.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;
use satcast_plugin_api::Packet;
use satcast_plugin_api::host::{Delivery, DriverWaker, MediaSource, Recv, Services};

use super::super::session::tests::Deaf;
use super::super::session::{Feed, Session};
use super::super::testing::packet;
use super::*;
use crate::run::pump::Pump;

/// The packets of a queue until its end.
struct Source {
    packets: Mutex<VecDeque<Arc<Packet>>>,
    out: AtomicUsize,
}

impl MediaSource for Source {
    fn recv(&self, max: usize, out: &mut Vec<Delivery>, _: DriverWaker) -> Recv {
        let mut packets = self.packets.lock();
        let count = packets.len().min(max);
        for packet in packets.drain(..count) {
            self.out.fetch_add(packet.payload.len(), Ordering::Relaxed);
            out.push(Delivery { discontinuity: packet.sequence.is_multiple_of(7), packet });
        }
        if count > 0 { Recv::Ready } else { Recv::Closed }
    }

    fn released(&self, bytes: usize) {
        self.out.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn abandoned(&self) {}
}

/// Reads a queue to its end as a library does.
fn read_all(queue: &RemoteQueue) -> Vec<Delivery> {
    let (mut all, mut taken) = (Vec::new(), Vec::new());
    loop {
        let (wake, woken) = mpsc::channel();
        // Nothing wakes a queue that has packets.
        let waker = DriverWaker::calling(move || {
            let _ = wake.send(());
        });
        match queue.recv(16, &mut taken, waker) {
            Recv::Ready => {
                queue.released(taken.iter().map(|delivery| delivery.packet.payload.len()).sum());
                all.append(&mut taken);
            }
            Recv::Empty => woken.recv().unwrap(),
            Recv::Closed => return all,
        }
    }
}

#[test]
fn every_packet_crosses_unchanged_to_every_destination() {
    let (ours, theirs) = channel::pair().unwrap();
    let (sender, mut supervisor) = channel::split(ours, 64 * 1024);
    let services: Arc<dyn Services> = Arc::new(Deaf);
    let session = Session::new("t", sender, &services, &Arc::new(Pump::start("t").unwrap()));
    let handling = session.clone();
    thread::spawn(move || {
        while let Ok(message) = supervisor.next() {
            assert!(handling.handle(message).unwrap().is_none());
        }
    });
    let (sender, mut receiver) = channel::split(theirs, BLOCK_BYTES);
    let link = Link::new(sender, "t").unwrap();
    link.start_ticker("t").unwrap();
    let reading = link.clone();
    thread::spawn(move || {
        while let Ok(Message { content, bytes, .. }) = receiver.next() {
            match content {
                ToChild::Media { dest, packets } => reading.take_media(dest, packets, bytes),
                ToChild::MediaEnd { dest } => reading.end_media(dest),
                other => panic!("{other:?}"),
            }
        }
    });
    let len = |number: u64| if number.is_multiple_of(50) { 300_000 } else { (number as usize * 37) % 9_000 };
    let all: VecDeque<Arc<Packet>> = (0..600).map(|number| Arc::new(packet(number, len(number)))).collect();
    let destinations: Vec<(u64, Arc<Source>, Arc<RemoteQueue>)> = (1..=3)
        .map(|dest| {
            let source = Arc::new(Source { packets: Mutex::new(all.clone()), out: AtomicUsize::new(0) });
            let queue = Arc::new(RemoteQueue::new(link.pump.clone(), link.ticker.clone()));
            link.add_queue(dest, &queue);
            session.feeds.lock().insert(dest, Arc::new(Feed::new(7, source.clone())));
            (dest, source, queue)
        })
        .collect();
    let readers: Vec<_> = destinations
        .iter()
        .map(|(_, _, queue)| {
            let queue = queue.clone();
            thread::spawn(move || read_all(&queue))
        })
        .collect();
    destinations.iter().for_each(|(dest, _, _)| session.feed(*dest));
    for (reader, (dest, source, _)) in readers.into_iter().zip(&destinations) {
        let came = reader.join().unwrap();
        assert_eq!(came.len(), all.len());
        for (came, sent) in came.iter().zip(&all) {
            assert_eq!((came.packet.sequence, came.packet.keyframe), (sent.sequence, sent.keyframe));
            assert_eq!((came.packet.dts_ns, came.packet.pts_ns), (sent.dts_ns, sent.pts_ns));
            assert_eq!(came.discontinuity, sent.sequence.is_multiple_of(7));
            assert!(came.packet.payload == sent.payload, "packet {}", sent.sequence);
        }
        session.forget(*dest);
        assert_eq!(source.out.load(Ordering::Relaxed), 0);
    }
}
