//! Who gets which datagrams of the port, and which sender has which resource of the HTTP side.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use satcast_core::secret::new_uid;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::limits::{DATAGRAMS_QUEUED_MAX, WHIP_ADDRESSES_MAX, WHIP_ADDRESSES_TRIED_MAX};
use super::stun::local_name;

/// When a datagram came, from where, and its bytes.
pub(super) type Datagram = (Instant, SocketAddr, Bytes);

/// The tables of the port.
#[derive(Debug, Default)]
pub(super) struct Routes(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    /// By the user name that ICE gives the sender. It cannot be guessed.
    names: HashMap<Arc<str>, mpsc::Sender<Datagram>>,
    /// By addresses from which a request with the password of ICE came. Each stays with its sender: requests can be sent in the name
    /// of any address, also of another sender's.
    addresses: HashMap<SocketAddr, mpsc::Sender<Datagram>>,
    /// By the id in `Location`.
    resources: HashMap<Arc<str>, Resource>,
}

#[derive(Debug)]
struct Resource {
    /// Hash of the stream key or backup key.
    key: [u8; 32],
    left: CancellationToken,
}

/// Why a sender cannot leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotLeft {
    Unknown,
    /// The key is another one.
    WrongKey,
}

impl Routes {
    /// Leads a datagram to its sender; one that belongs to nobody is dropped. If the sender's task is too slow, it is a loss like one
    /// on the way.
    pub(super) fn lead(&self, datagram: &[u8], from: SocketAddr, now: Instant) {
        let tables = self.0.lock();
        let route = match local_name(datagram) {
            Some(name) => tables.names.get(name),
            None => tables.addresses.get(&from),
        };
        if let Some(route) = route {
            let _full = route.try_send((now, from, Bytes::copy_from_slice(datagram)));
        }
    }

    /// A place for a sender with this user name of ICE and this hash of its key.
    pub(super) fn register(
        self: &Arc<Self>,
        name: &str,
        key: [u8; 32],
    ) -> (Registered, mpsc::Receiver<Datagram>) {
        let (datagrams, received) = mpsc::channel(DATAGRAMS_QUEUED_MAX);
        let (name, id): (Arc<str>, Arc<str>) = (name.into(), new_uid().into());
        let left = CancellationToken::new();
        let mut tables = self.0.lock();
        tables.names.insert(Arc::clone(&name), datagrams.clone());
        tables.resources.insert(Arc::clone(&id), Resource { key, left: left.clone() });
        let (routes, addresses, tried) = (Arc::clone(self), VecDeque::new(), HashSet::new());
        (Registered { routes, name, id, left, datagrams, addresses, tried }, received)
    }

    /// Tells the sender of a resource to leave.
    ///
    /// # Errors
    /// The resource is unknown, or belongs to another key.
    pub(super) fn leave(&self, id: &str, key: [u8; 32]) -> Result<(), NotLeft> {
        let tables = self.0.lock();
        let resource = tables.resources.get(id).ok_or(NotLeft::Unknown)?;
        if resource.key != key {
            return Err(NotLeft::WrongKey);
        }
        resource.left.cancel();
        Ok(())
    }
}

/// The places of a sender in the tables of the port; dropped, it has none.
#[derive(Debug)]
pub(super) struct Registered {
    routes: Arc<Routes>,
    name: Arc<str>,
    /// The resource.
    pub(super) id: Arc<str>,
    /// Cancelled when the sender says that it leaves.
    pub(super) left: CancellationToken,
    datagrams: mpsc::Sender<Datagram>,
    /// Those that lead to the sender, the oldest first.
    addresses: VecDeque<SocketAddr>,
    /// All that it ever had.
    tried: HashSet<SocketAddr>,
}

impl Registered {
    /// A request with the password of the sender came from this address. Whether it may be used: not while another sender has the
    /// address, and not after too many of them.
    pub(super) fn claim(&mut self, address: SocketAddr) -> bool {
        if self.addresses.contains(&address) {
            return true;
        }
        let is_one_too_many = self.tried.len() >= WHIP_ADDRESSES_TRIED_MAX && !self.tried.contains(&address);
        let mut tables = self.routes.0.lock();
        if is_one_too_many || tables.addresses.contains_key(&address) {
            return false;
        }
        if self.addresses.len() == WHIP_ADDRESSES_MAX
            && let Some(oldest) = self.addresses.pop_front()
        {
            tables.addresses.remove(&oldest);
        }
        self.tried.insert(address);
        self.addresses.push_back(address);
        tables.addresses.insert(address, self.datagrams.clone());
        true
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut tables = self.routes.0.lock();
        tables.names.remove(&self.name);
        tables.resources.remove(&self.id);
        for address in &self.addresses {
            tables.addresses.remove(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: usize) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port as u16))
    }

    fn lead(routes: &Routes, port: usize) {
        routes.lead(&[0x80; 20], address(port), Instant::now());
    }

    #[test]
    fn only_claimed_addresses_lead_to_a_sender() {
        let routes = Arc::new(Routes::default());
        let (mut sender, mut received) = routes.register("name", [1; 32]);
        lead(&routes, 1);
        assert!(received.try_recv().is_err());
        for port in 1..=WHIP_ADDRESSES_MAX + 1 {
            assert!(sender.claim(address(port)) && sender.claim(address(port)));
        }
        lead(&routes, 1);
        assert!(received.try_recv().is_err(), "the oldest is forgotten");
        lead(&routes, 2);
        assert_eq!(received.try_recv().unwrap().1, address(2));
        let (mut other, mut theirs) = routes.register("other", [1; 32]);
        assert!(!other.claim(address(2)), "an address stays with its sender");
        lead(&routes, 2);
        assert!(received.try_recv().is_ok() && theirs.try_recv().is_err());
        drop(sender);
        assert!(other.claim(address(2)));
        lead(&routes, 2);
        assert!(theirs.try_recv().is_ok());
        drop(other);
        let tables = routes.0.lock();
        assert!(tables.names.is_empty() && tables.addresses.is_empty() && tables.resources.is_empty());
    }

    #[test]
    fn a_sender_has_a_limited_number_of_addresses_in_all() {
        let routes = Arc::new(Routes::default());
        let (mut sender, _received) = routes.register("name", [1; 32]);
        assert!((1..=WHIP_ADDRESSES_TRIED_MAX).all(|port| sender.claim(address(port))));
        assert!(!sender.claim(address(WHIP_ADDRESSES_TRIED_MAX + 1)));
        assert!(sender.claim(address(1)), "it had this one before");
        assert_eq!(routes.0.lock().addresses.len(), WHIP_ADDRESSES_MAX);
    }

    #[test]
    fn a_full_queue_drops_datagrams() {
        let routes = Arc::new(Routes::default());
        let (mut sender, mut received) = routes.register("name", [1; 32]);
        sender.claim(address(1));
        (0..DATAGRAMS_QUEUED_MAX + 5).for_each(|_| lead(&routes, 1));
        let mut count = 0;
        while received.try_recv().is_ok() {
            count += 1;
        }
        assert_eq!(count, DATAGRAMS_QUEUED_MAX);
    }

    #[test]
    fn a_resource_is_left_with_its_key() {
        let routes = Arc::new(Routes::default());
        let (sender, _received) = routes.register("name", [1; 32]);
        assert_eq!(routes.leave("another", [1; 32]), Err(NotLeft::Unknown));
        assert_eq!(routes.leave(&sender.id, [2; 32]), Err(NotLeft::WrongKey));
        assert!(!sender.left.is_cancelled());
        assert_eq!(routes.leave(&sender.id, [1; 32]), Ok(()));
        assert!(sender.left.is_cancelled());
    }
}
