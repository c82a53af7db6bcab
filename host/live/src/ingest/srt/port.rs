//! What the port and the tasks of its callers share: the socket, and who gets which datagrams.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use satcast_core::secret::random_u64;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::conn::Shared;
use super::super::limits::DATAGRAMS_QUEUED_MAX;

/// A datagram and when it came.
pub(super) type Datagram = (Duration, BytesMut);
/// A caller by its address and the number of its socket there.
pub(super) type CallerId = (SocketAddr, u32);

/// State of the port.
pub(super) struct Port<A> {
    pub(super) shared: Arc<Shared<A>>,
    pub(super) stopped: CancellationToken,
    socket: std::net::UdpSocket,
    routes: Mutex<Routes>,
}

#[derive(Default)]
struct Routes {
    /// Accepted callers by the number of our socket.
    accepted: HashMap<u32, Route>,
    /// Callers whose conclusion came; with the answer as soon as there is one.
    callers: HashMap<CallerId, Option<Arc<[u8]>>>,
}

struct Route {
    peer: SocketAddr,
    datagrams: mpsc::Sender<Datagram>,
}

impl Routes {
    /// A new number of a socket of ours, and the datagrams that come to it from `peer`.
    fn open(&mut self, peer: SocketAddr) -> (u32, mpsc::Receiver<Datagram>) {
        let (datagrams, received) = mpsc::channel(DATAGRAMS_QUEUED_MAX);
        loop {
            let socket = random_u64() as u32;
            if socket != 0 && !self.accepted.contains_key(&socket) {
                self.accepted.insert(socket, Route { peer, datagrams });
                return (socket, received);
            }
        }
    }

    fn lead(&self, now: Duration, datagram: &[u8], socket: u32, from: SocketAddr) {
        if let Some(route) = self.accepted.get(&socket).filter(|route| route.peer == from) {
            let _full = route.datagrams.try_send((now, BytesMut::from(datagram)));
        }
    }
}

impl<A> Port<A> {
    pub(super) fn new(
        shared: Arc<Shared<A>>,
        stopped: CancellationToken,
        socket: std::net::UdpSocket,
    ) -> Arc<Self> {
        Arc::new(Self { shared, stopped, socket, routes: Mutex::default() })
    }

    /// The socket, to read from.
    pub(super) fn socket(&self) -> &std::net::UdpSocket {
        &self.socket
    }

    /// Monotonic time of this port.
    pub(super) fn now(&self) -> Duration {
        self.shared.started.elapsed()
    }

    /// Sends what the system takes at once; the rest counts as lost on the way.
    pub(super) fn send(&self, datagram: &[u8], to: SocketAddr) {
        let _may_be_lost = self.socket.send_to(datagram, to);
    }

    /// Leads a datagram to the caller of `socket`. If the caller is too slow, it is a loss like one on the way.
    pub(super) fn lead(&self, datagram: &[u8], socket: u32, from: SocketAddr) {
        self.routes.lock().lead(self.now(), datagram, socket, from);
    }

    /// Whether a conclusion of this caller came before; then it gets its answer again, if there is one.
    pub(super) fn is_known(&self, id: CallerId) -> bool {
        let answer = self.routes.lock().callers.get(&id).cloned();
        if let Some(Some(answer)) = &answer {
            self.send(answer, id.0);
        }
        answer.is_some()
    }

    /// A place for a caller that is not known.
    pub(super) fn register(self: &Arc<Self>, id: CallerId) -> Registered<A> {
        self.routes.lock().callers.insert(id, None);
        Registered { port: Arc::clone(self), id, socket: None }
    }
}

/// The places of a caller in the tables of the port; dropped, it has none.
pub(super) struct Registered<A> {
    pub(super) port: Arc<Port<A>>,
    pub(super) id: CallerId,
    /// Our socket, once the caller is accepted.
    socket: Option<u32>,
}

impl<A> Registered<A> {
    /// Keeps the answer, which repeated conclusions get again.
    pub(super) fn answered(&self, answer: &[u8]) {
        self.port.routes.lock().callers.insert(self.id, Some(Arc::from(answer)));
    }

    /// Opens a socket for the caller. Its numbers cannot be guessed, because they are all that a datagram shows.
    pub(super) fn open(&mut self) -> (u32, mpsc::Receiver<Datagram>) {
        let (socket, received) = self.port.routes.lock().open(self.id.0);
        self.socket = Some(socket);
        (socket, received)
    }
}

impl<A> Drop for Registered<A> {
    fn drop(&mut self) {
        let mut routes = self.port.routes.lock();
        routes.callers.remove(&self.id);
        if let Some(socket) = self.socket {
            routes.accepted.remove(&socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_a_bounded_queue_of_its_own_datagrams() {
        let [peer, other] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut routes = Routes::default();
        let (socket, mut received) = routes.open(peer);
        for _ in 0..DATAGRAMS_QUEUED_MAX + 10 {
            routes.lead(Duration::ZERO, b"its own", socket, peer);
            routes.lead(Duration::ZERO, b"forged", socket, other);
            routes.lead(Duration::ZERO, b"for nobody", socket.wrapping_add(1), peer);
        }
        for _ in 0..DATAGRAMS_QUEUED_MAX {
            assert_eq!(received.try_recv().unwrap().1, b"its own"[..]);
        }
        assert!(received.try_recv().is_err());
        routes.lead(Duration::ZERO, b"later", socket, peer);
        assert_eq!(received.try_recv().unwrap().1, b"later"[..]);
    }
}
