//! Networks: the unit of per-client limits, and the lists that restrict the use of a stream key.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

/// Most networks of one list.
pub const NETWORKS_MAX: usize = 32;

/// The unit of per-client limits: an IPv4 address, or the /64 that every IPv6 subscriber has at least.
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

/// Its first address.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A list of networks; an empty list allows all addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

/// Why a list is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworksError {
    /// An entry is neither an address nor a network; its number.
    #[error("entry {0} is not an address or network; write for example \"203.0.113.7\" or \"2001:db8::/32\"")]
    Entry(usize),
    /// More than [`NETWORKS_MAX`].
    #[error("has more than {NETWORKS_MAX} entries; join addresses into networks")]
    TooMany,
}

impl Networks {
    /// Reads addresses and networks in CIDR form; host bits are cleared, duplicates dropped.
    ///
    /// # Errors
    /// Any [`NetworksError`]; entries count from 1.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, NetworksError> {
        let mut networks = Vec::new();
        for (index, entry) in entries.into_iter().enumerate() {
            if index == NETWORKS_MAX {
                return Err(NetworksError::TooMany);
            }
            let network = network(entry.trim()).ok_or(NetworksError::Entry(index + 1))?;
            if !networks.contains(&network) {
                networks.push(network);
            }
        }
        Ok(Self(networks))
    }

    /// Whether the list allows `address`.
    pub fn allow(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.is_empty() || self.0.iter().any(|network| network.contains(&address))
    }

    /// The networks in CIDR form.
    pub fn to_texts(&self) -> Vec<String> {
        self.0.iter().map(IpNet::to_string).collect()
    }

    /// The stored form, separated by commas.
    pub fn to_text(&self) -> String {
        self.to_texts().join(",")
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// As [`Networks::parse`].
    pub fn from_text(text: &str) -> Result<Self, NetworksError> {
        Self::parse(text.split(',').filter(|entry| !entry.is_empty()))
    }
}

/// A network in canonical form: an IPv4-mapped network becomes the IPv4 network.
fn network(entry: &str) -> Option<IpNet> {
    let Ok(network) = entry.parse::<IpNet>() else {
        return entry.parse::<IpAddr>().ok().map(|address| address.to_canonical().into());
    };
    let address = network.addr().to_canonical();
    let bits = if address.is_ipv4() == network.addr().is_ipv4() {
        network.prefix_len()
    } else {
        // Shorter than the prefix of mapped addresses: it would contain all of them and more.
        network.prefix_len().checked_sub(96)?
    };
    IpNet::new(address, bits).ok().map(|network| network.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(entries: &[&str], address: &str) -> bool {
        Networks::parse(entries.iter().copied()).unwrap().allow(address.parse().unwrap())
    }

    #[test]
    fn addresses_and_networks_of_both_families_are_parsed_in_every_form() {
        assert!(allowed(&[], "203.0.113.7"), "an empty list allows all");
        for (entries, address, expected) in [
            (&["203.0.113.7"][..], "203.0.113.7", true),
            (&["203.0.113.7"], "::ffff:203.0.113.7", true),
            (&["::ffff:203.0.113.7"], "203.0.113.7", true),
            (&["::ffff:203.0.113.0/120"], "203.0.113.9", true),
            (&["203.0.113.7"], "203.0.113.8", false),
            (&[" 203.0.113.77/24 "], "203.0.113.1", true),
            (&["203.0.113.77/24"], "203.0.114.1", false),
            (&["198.51.100.1", "2001:db8::/32"], "2001:db8:1::1", true),
            (&["2001:db8::/32"], "2001:db9::1", false),
            (&["2001:db8::/32"], "203.0.113.7", false),
            (&["0.0.0.0/0"], "203.0.113.7", true),
            (&["::/0"], "203.0.113.7", false),
        ] {
            assert_eq!(allowed(entries, address), expected, "{entries:?} {address}");
        }
    }

    #[test]
    fn lists_survive_their_text() {
        let list = Networks::parse(["203.0.113.77/24", "203.0.113.0/24", "2001:db8::1"]).unwrap();
        assert_eq!(list.to_texts(), ["203.0.113.0/24", "2001:db8::1/128"]);
        assert_eq!(Networks::from_text(&list.to_text()), Ok(list));
        assert_eq!(Networks::from_text(""), Ok(Networks::default()));
    }

    #[test]
    fn an_invalid_network_is_refused_with_its_number() {
        for entry in ["", "home", "203.0.113.7/33", "203.0.113", "::ffff:0.0.0.0/90", "203.0.113.7:1935"] {
            assert_eq!(Networks::parse(["::1", entry]), Err(NetworksError::Entry(2)), "{entry}");
        }
        let many: Vec<String> = (0..=NETWORKS_MAX).map(|n| format!("203.0.113.{n}")).collect();
        assert!(Networks::parse(many.iter().take(NETWORKS_MAX).map(String::as_str)).is_ok());
        assert_eq!(Networks::parse(many.iter().map(String::as_str)), Err(NetworksError::TooMany));
    }

    #[test]
    fn a_network_is_an_ipv4_address_or_an_ipv6_subscriber() {
        let network = |text: &str| Network::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(network("::ffff:1.2.3.4"), network("1.2.3.4"));
        assert_ne!(network("1.2.3.4"), network("1.2.3.5"));
        assert_eq!(network("2001:db8:1:2::3"), network("2001:db8:1:2:ffff::1"));
        assert_ne!(network("2001:db8:1:2::3"), network("2001:db8:1:3::3"));
    }
}
