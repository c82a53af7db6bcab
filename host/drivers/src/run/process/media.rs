//! Media on its way to a child. It is sent at once as long as the library has not too many unread packets: further
//! packets stay in the queue, where they can be dropped.

use std::sync::{Arc, Weak};

use satcast_plugin_api::host::{Delivery, DriverWaker, Recv};

use super::message::{Progress, Sent, ToChild};
use super::payloads::Place;
use super::session::{Out, Session};

impl Session {
    /// Sends the available packets of a destination, now and whenever there are more.
    pub(super) fn feed(self: &Arc<Self>, dest: u64) {
        let Some(feed) = self.feeds.lock().get(&dest).cloned() else { return };
        let (mut out, mut taken, mut is_sent) = (feed.out.lock(), Vec::new(), false);
        while out.free_packets() > 0 {
            let session = Arc::downgrade(self);
            let waker = DriverWaker::calling(move || {
                if let Some(session) = Weak::upgrade(&session) {
                    session.feed(dest);
                }
            });
            let received = feed.source.recv(out.free_packets(), &mut taken, waker);
            is_sent |= received != Recv::Empty;
            match received {
                Recv::Ready => self.send_media(dest, &mut out, &mut taken),
                Recv::Empty => break,
                Recv::Closed => {
                    out.is_over = true;
                    self.push(&ToChild::MediaEnd { dest }, Vec::new());
                }
            }
        }
        drop(out);
        if is_sent {
            self.flush_soon();
        }
    }

    fn send_media(&self, dest: u64, out: &mut Out, taken: &mut Vec<Delivery>) {
        let mut bytes = Vec::new();
        // Held until the message is queued: payloads are numbered in the order of messages.
        let mut crossed = self.crossed.lock();
        let mut place = |Delivery { packet, discontinuity }: Delivery| {
            let len = packet.payload.len();
            (out.packets, out.bytes, out.held) = (out.packets + 1, out.bytes + len, out.held + len);
            let payload = crossed.place(&packet.payload);
            if matches!(payload, Place::Behind(_)) {
                bytes.push(packet.payload.clone());
            }
            Sent { packet, discontinuity, payload }
        };
        let packets = taken.drain(..).map(&mut place).collect();
        self.push(&ToChild::Media { dest, packets }, bytes);
        drop(crossed);
    }

    /// Applies a report of the library about a destination's media.
    pub(super) fn progress(self: &Arc<Self>, progress: &Progress) {
        let Some(feed) = self.feeds.lock().get(&progress.dest).cloned() else { return };
        let released = {
            let mut out = feed.out.lock();
            out.packets = out.packets.saturating_sub(progress.packets);
            out.bytes = out.bytes.saturating_sub(progress.bytes);
            out.is_over |= progress.is_given_back;
            let released = progress.released.min(out.held);
            out.held -= released;
            released
        };
        // Not under the lock: both may hand over more.
        if released > 0 {
            feed.source.released(released);
        }
        if progress.is_given_back {
            feed.source.abandoned();
        } else {
            self.feed(progress.dest);
        }
    }

    /// Forgets a destination and gives its media back.
    pub(super) fn forget(&self, dest: u64) {
        let feed = self.feeds.lock().remove(&dest);
        feed.into_iter().for_each(|feed| feed.leave());
    }

    /// The account of a destination.
    pub(super) fn account_of(&self, dest: u64) -> Option<i64> {
        self.feeds.lock().get(&dest).map(|feed| feed.account)
    }
}
