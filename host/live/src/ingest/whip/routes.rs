//! Who gets which datagrams of the port, and which sender has which resource of the HTTP side.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use satcast_core::secret::new_uid;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::limits::{DATAGRAMS_QUEUED_MAX, WHIP_ADDRESSES_MAX};
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
    /// By addresses from which a request with the password of ICE came, with the user name.
    addresses: HashMap<SocketAddr, (Arc<str>, mpsc::Sender<Datagram>)>,
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
            None => tables.addresses.get(&from).map(|(_, route)| route),
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
        let (routes, addresses) = (Arc::clone(self), VecDeque::new());
        (Registered { routes, name, id, left, datagrams, addresses }, received)
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
    addresses: VecDeque<SocketAddr>,
}

impl Registered {
    /// The sender has proved with its password that it sends from this address.
    pub(super) fn claim(&mut self, address: SocketAddr) {
        if self.addresses.contains(&address) {
            return;
        }
        let mut tables = self.routes.0.lock();
        if self.addresses.len() == WHIP_ADDRESSES_MAX
            && let Some(oldest) = self.addresses.pop_front()
        {
            tables.forget(oldest, &self.name);
        }
        self.addresses.push_back(address);
        tables.addresses.insert(address, (Arc::clone(&self.name), self.datagrams.clone()));
    }
}

impl Tables {
    /// Forgets an address, unless it belongs to another sender by now.
    fn forget(&mut self, address: SocketAddr, name: &Arc<str>) {
        if self.addresses.get(&address).is_some_and(|(owner, _)| owner == name) {
            self.addresses.remove(&address);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut tables = self.routes.0.lock();
        tables.names.remove(&self.name);
        tables.resources.remove(&self.id);
        for address in std::mem::take(&mut self.addresses) {
            tables.forget(address, &self.name);
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
            sender.claim(address(port));
            sender.claim(address(port));
        }
        lead(&routes, 1);
        assert!(received.try_recv().is_err(), "the oldest is forgotten");
        lead(&routes, 2);
        assert_eq!(received.try_recv().unwrap().1, address(2));
        let (mut other, mut theirs) = routes.register("other", [1; 32]);
        other.claim(address(2));
        drop(sender);
        lead(&routes, 2);
        assert!(theirs.try_recv().is_ok(), "an address that another sender has taken over stays");
        drop(other);
        let tables = routes.0.lock();
        assert!(tables.names.is_empty() && tables.addresses.is_empty() && tables.resources.is_empty());
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
