//! Who counts as one stranger, and how many connections strangers may hold: in all, and from one network.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// What counts as one stranger: an IPv4 address, or the /64 that a single IPv6 subscriber is given at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network(IpAddr);

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
            address @ IpAddr::V4(_) => Self(address),
        }
    }
}

/// Why a connection was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The service holds as many connections as it may.
    Service,
    /// This network does.
    Network,
}

/// The connections there may be, in all and per network.
#[derive(Debug)]
pub struct Places {
    taken: Mutex<Taken>,
    total_max: usize,
    per_network_max: usize,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    by_network: HashMap<Network, usize>,
}

/// One connection's place, given back when dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    network: Network,
}

impl Places {
    /// Room for `total_max` connections, of which `per_network_max` from one network.
    pub fn new(total_max: usize, per_network_max: usize) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), total_max, per_network_max })
    }

    /// A place for one more connection from `network`.
    ///
    /// # Errors
    /// Which cap is reached.
    pub fn take(self: &Arc<Self>, network: Network) -> Result<Place, Full> {
        let mut taken = self.taken.lock();
        if taken.total >= self.total_max {
            return Err(Full::Service);
        }
        let here = taken.by_network.entry(network).or_default();
        if *here >= self.per_network_max {
            return Err(Full::Network);
        }
        *here += 1;
        taken.total += 1;
        Ok(Place { places: Arc::clone(self), network })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.total -= 1;
        if let Some(here) = taken.by_network.get_mut(&self.network) {
            *here -= 1;
            if *here == 0 {
                taken.by_network.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        Network::from(text.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn a_network_is_an_ipv4_address_or_an_ipv6_subscriber() {
        assert_eq!(network("::ffff:1.2.3.4"), network("1.2.3.4"));
        assert_ne!(network("1.2.3.4"), network("1.2.3.5"));
        assert_eq!(network("2001:db8:1:2::3"), network("2001:db8:1:2:ffff::1"));
        assert_ne!(network("2001:db8:1:2::3"), network("2001:db8:1:3::3"));
    }

    #[test]
    fn places_are_limited_in_all_and_per_network_and_come_back() {
        let places = Places::new(3, 2);
        let (a, b) = (network("1.1.1.1"), network("2.2.2.2"));
        let first = places.take(a).unwrap();
        let _second = places.take(a).unwrap();
        assert_eq!(places.take(a).unwrap_err(), Full::Network);
        let third = places.take(b).unwrap();
        assert_eq!(places.take(b).unwrap_err(), Full::Service);
        drop(first);
        let _fourth = places.take(a).unwrap();
        drop(third);
        assert_eq!(places.taken.lock().by_network.len(), 1, "no entry stays behind for a network that left");
    }
}
