//! Parses the host text of a user into an address or a name, and the operator's list of exceptions.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

/// Longest host text: a DNS name has at most 253 characters (RFC 1035), and a root dot.
pub(super) const HOST_BYTES_MAX: usize = 254;

/// A host in the one spelling that is checked and then used. Nothing else of the user's text reaches the resolver, so
/// two parsers cannot disagree about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// A literal address in any spelling; IPv4-mapped addresses are unwrapped.
    Address(IpAddr),
    /// A DNS name: lower case, punycode, no root dot.
    Name(String),
}

impl Target {
    /// Parses a host like an http URL: decimal, hexadecimal, octal and short IPv4 forms, IPv6 with and without
    /// brackets, percent escapes and full-width digits are all parsed as their address. `None` for text that is
    /// not a host, also with user, port, path or zone index.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.len() > HOST_BYTES_MAX {
            return None;
        }
        if let Ok(bare) = text.parse::<Ipv6Addr>() {
            return Some(Self::Address(IpAddr::V6(bare).to_canonical()));
        }
        match url::Host::parse(text).ok()? {
            url::Host::Ipv4(address) => Some(Self::Address(address.into())),
            url::Host::Ipv6(address) => Some(Self::Address(IpAddr::V6(address).to_canonical())),
            url::Host::Domain(name) => {
                let name = name.strip_suffix('.').unwrap_or(&name);
                let labels_ok = name.split('.').all(|label| !label.is_empty() && label.len() <= 63);
                labels_ok.then(|| Self::Name(name.to_owned()))
            }
        }
    }

    /// Whether this name always means the machine itself (RFC 6761 section 6.3), so that no resolver is needed.
    pub(super) fn is_localhost(&self) -> bool {
        matches!(self, Self::Name(name) if name == "localhost" || name.ends_with(".localhost"))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(out),
            Self::Name(name) => out.write_str(name),
        }
    }
}

/// Targets that the operator allows although the address table forbids them.
#[derive(Debug, Default)]
pub(super) struct AllowList {
    networks: Vec<IpNet>,
    names: Vec<String>,
}

/// An entry of the allow list that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{setting}: \"{entry}\" is not an address, network or host name; write for example \"10.1.2.0/24\", \"10.1.2.3\" or \"nas.example.net\", without port, path or wildcard"
)]
pub struct AllowError {
    /// The setting with the entry, e.g. `[outbound] allow`.
    pub setting: &'static str,
    /// The entry as written.
    pub entry: String,
}

impl AllowList {
    /// Reads entries: a network in CIDR form, a single address in any spelling, or an exact host name.
    pub(super) fn parse(entries: &[String], setting: &'static str) -> Result<Self, AllowError> {
        let mut list = Self::default();
        for entry in entries {
            let refused = || AllowError { setting, entry: entry.clone() };
            let text = entry.trim();
            if text.contains('/') {
                list.networks.push(text.parse().ok().and_then(canonical).ok_or_else(refused)?);
                continue;
            }
            match Target::parse(text).ok_or_else(refused)? {
                Target::Address(address) => list.networks.push(address.into()),
                Target::Name(name) if name.contains('*') => return Err(refused()),
                Target::Name(name) => list.names.push(name),
            }
        }
        Ok(list)
    }

    /// Whether the operator listed a network that contains `address` (unwrapped from its IPv4-mapped form).
    pub(super) fn holds_address(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// Whether the operator listed this name: it may then resolve to any address.
    pub(super) fn holds_name(&self, name: &str) -> bool {
        self.names.iter().any(|listed| listed == name)
    }
}

/// The network in canonical form: an IPv4-mapped network becomes the IPv4 network.
fn canonical(network: IpNet) -> Option<IpNet> {
    let address = network.addr().to_canonical();
    if address.is_ipv4() == network.addr().is_ipv4() {
        return Some(network.trunc());
    }
    let prefix = network.prefix_len().checked_sub(96)?;
    IpNet::new(address, prefix).ok().map(|network| network.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<Target> {
        Some(Target::Address(text.parse().unwrap()))
    }

    fn name(text: &str) -> Option<Target> {
        Some(Target::Name(text.to_owned()))
    }

    #[test]
    fn every_spelling_of_an_address_is_seen_as_that_address() {
        for (text, expected) in [
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.1.", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("0x7f000001", "127.0.0.1"),
            ("0X7F000001", "127.0.0.1"),
            ("0x7f.1", "127.0.0.1"),
            ("0177.0.0.1", "127.0.0.1"),
            ("017700000001", "127.0.0.1"),
            ("127.1", "127.0.0.1"),
            ("127.0.1", "127.0.0.1"),
            ("0", "0.0.0.0"),
            ("0x", "0.0.0.0"),
            ("10.5", "10.0.0.5"),
            ("%31%32%37.0.0.1", "127.0.0.1"),
            ("１２７.0.0.1", "127.0.0.1"),
            ("127。0。0。1", "127.0.0.1"),
            ("[::1]", "::1"),
            ("::1", "::1"),
            ("[0:0:0:0:0:0:0:1]", "::1"),
            ("[::ffff:127.0.0.1]", "127.0.0.1"),
            ("::ffff:127.0.0.1", "127.0.0.1"),
            ("::ffff:7f00:1", "127.0.0.1"),
            ("0:0:0:0:0:ffff:a00:5", "10.0.0.5"),
            ("[64:ff9b::a00:5]", "64:ff9b::a00:5"),
            ("[FD00:EC2::254]", "fd00:ec2::254"),
        ] {
            assert_eq!(Target::parse(text), address(expected), "{text}");
        }
    }

    #[test]
    fn names_have_one_spelling() {
        for (text, expected) in [
            ("Live.Example.COM", "live.example.com"),
            ("live.example.com.", "live.example.com"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("a_b.example", "a_b.example"),
            ("1.2.3.4.example", "1.2.3.4.example"),
        ] {
            assert_eq!(Target::parse(text), name(expected), "{text}");
        }
    }

    #[test]
    fn invalid_host_texts_are_refused() {
        let long = format!("{}.example", "a".repeat(HOST_BYTES_MAX));
        let label = format!("{}.example", "a".repeat(64));
        for text in [
            "",
            " ",
            ".",
            "..",
            "a..b",
            "a b",
            "user@host.example",
            "user:pass@10.0.0.5",
            "10.0.0.5:80",
            "host/path",
            "http://10.0.0.5",
            "10.0.0.5/8",
            "[::1",
            "::1]",
            "[::1]:80",
            "fe80::1%eth0",
            "[fe80::1%25eth0]",
            "1.2.3.4.5",
            "256.1.1.1",
            "0x100000000",
            "host?x",
            "host#x",
            "ho\0st",
            "host\r\n",
            "a\tb",
            &long,
            &label,
        ] {
            assert_eq!(Target::parse(text), None, "{text}");
        }
    }

    #[test]
    fn localhost_is_known_without_a_resolver() {
        for text in ["localhost", "LOCALHOST.", "a.localhost", "a.b.LocalHost"] {
            assert!(Target::parse(text).unwrap().is_localhost(), "{text}");
        }
        for text in ["localhost.example", "mylocalhost", "127.0.0.1"] {
            assert!(!Target::parse(text).unwrap().is_localhost(), "{text}");
        }
    }

    fn list(entries: &[&str]) -> Result<AllowList, AllowError> {
        let entries: Vec<_> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        AllowList::parse(&entries, "[outbound] allow")
    }

    #[test]
    fn allow_list_knows_networks_addresses_and_names() {
        let list =
            list(&[" 10.1.2.9/24 ", "192.168.7.1", "fd00::/8", "::ffff:172.16.0.0/108", "NAS.home.arpa."])
                .unwrap();
        for (address, held) in [
            ("10.1.2.0", true),
            ("10.1.2.255", true),
            ("10.1.3.0", false),
            ("192.168.7.1", true),
            ("192.168.7.2", false),
            ("fd00:ec2::254", true),
            ("fe80::1", false),
            ("172.16.255.255", true),
            ("172.32.0.0", false),
        ] {
            assert_eq!(list.holds_address(address.parse().unwrap()), held, "{address}");
        }
        assert!(list.holds_name("nas.home.arpa"));
        assert!(!list.holds_name("x.nas.home.arpa"));
        assert!(!list.holds_name("home.arpa"));
    }

    #[test]
    fn unreadable_allow_entries_name_themselves() {
        for entry in [
            "",
            "10.0.0.0/33",
            "10.0.0.5:1935",
            "rtmp://10.0.0.5",
            "*.example.com",
            "/",
            "::ffff:0:0/80",
            "a b",
        ] {
            let error = list(&["10.0.0.1", entry]).unwrap_err();
            assert_eq!(error.entry, entry);
            assert!(error.to_string().starts_with("[outbound] allow: "), "{error}");
        }
    }
}
