//! The address ranges that users must not make this host connect to, and the IPv4 address behind a translated one.
//!
//! Source: the IANA special-purpose registries (RFC 6890 and its updates), plus the fixed addresses at which cloud
//! providers answer their machines. Pure tables, no I/O.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(segments: [u16; 8], prefix: u8) -> Ipv6Net {
    let [a, b, c, d, e, f, g, h] = segments;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix)
}

/// Forbidden IPv4 ranges, each with the word that ends the sentence "address X is ...".
const FORBIDDEN_V4: [(Ipv4Net, &str); 16] = [
    (v4(0, 0, 0, 0, 8), "unspecified"),
    (v4(10, 0, 0, 0, 8), "private"),
    (v4(100, 64, 0, 0, 10), "private to a carrier's network"),
    (v4(127, 0, 0, 0, 8), "loopback"),
    (v4(168, 63, 129, 16, 32), "a cloud provider's internal service"),
    (v4(169, 254, 0, 0, 16), "link-local"),
    (v4(172, 16, 0, 0, 12), "private"),
    (v4(192, 0, 0, 0, 24), "reserved"),
    (v4(192, 0, 2, 0, 24), "for documentation only"),
    (v4(192, 88, 99, 0, 24), "reserved"),
    (v4(192, 168, 0, 0, 16), "private"),
    (v4(198, 18, 0, 0, 15), "for benchmarks only"),
    (v4(198, 51, 100, 0, 24), "for documentation only"),
    (v4(203, 0, 113, 0, 24), "for documentation only"),
    (v4(224, 0, 0, 0, 4), "multicast"),
    (v4(240, 0, 0, 0, 4), "reserved"),
];

/// Forbidden IPv6 ranges. The first match names the reason, so the narrow entries of a block come before it.
const FORBIDDEN_V6: [(Ipv6Net, &str); 15] = [
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "unspecified"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "loopback"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 96), "reserved"),
    (v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96), "a translated IPv4 address (NAT64)"),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "a translated IPv4 address (NAT64)"),
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "discard-only"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), "reserved"),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "for documentation only"),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), "a tunnelled IPv4 address (6to4)"),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "for documentation only"),
    (v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), "reserved"),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "private"),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "private"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
];

/// The only IPv6 block in public use (RFC 4291 section 2.4, IANA's global unicast registry).
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// Why `address` must not be connected to, or `None` for a public one. An IPv4-mapped address must have been
/// unwrapped before ([`IpAddr::to_canonical`]); a left-over one is refused.
pub(super) fn forbidden(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => {
            FORBIDDEN_V4.iter().find(|(net, _)| net.contains(&address)).map(|(_, why)| *why)
        }
        IpAddr::V6(address) => FORBIDDEN_V6
            .iter()
            .find(|(net, _)| net.contains(&address))
            .map(|(_, why)| *why)
            .or_else(|| (!GLOBAL_V6.contains(&address)).then_some("not in public use")),
    }
}

/// The IPv4 address a translator would connect to on behalf of `address`: NAT64 (RFC 6052) and 6to4 (RFC 3056).
/// It has to pass the same check, so that allowing a translator's prefix does not open the private network behind it.
pub(super) fn translated(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return None };
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            let [a, b] = high.to_be_bytes();
            let [c, d] = low.to_be_bytes();
            Some(Ipv4Addr::new(a, b, c, d))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(address: &str) -> Option<&'static str> {
        forbidden(address.parse().unwrap())
    }

    #[test]
    fn first_and_last_address_of_every_range_is_forbidden() {
        for (net, reason) in FORBIDDEN_V4 {
            assert_eq!(forbidden(net.network().into()), Some(reason), "{net}");
            assert_eq!(forbidden(net.broadcast().into()), Some(reason), "{net}");
        }
        for (net, _) in FORBIDDEN_V6 {
            assert!(forbidden(net.network().into()).is_some(), "{net}");
            assert!(forbidden(net.broadcast().into()).is_some(), "{net}");
        }
    }

    #[test]
    fn neighbours_of_the_ranges_are_public() {
        for address in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "191.255.255.255",
            "192.0.1.0",
            "192.0.3.0",
            "192.88.98.255",
            "192.88.100.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "198.51.99.255",
            "198.51.101.0",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
            "8.8.8.8",
            "2000::1",
            "2001:200::1",
            "2001:db7:ffff::1",
            "2001:db9::1",
            "2003::1",
            "2606:4700::1111",
            "2a00:1450:4001:830::200e",
            "3ffe:ffff::1",
        ] {
            assert_eq!(why(address), None, "{address}");
        }
    }

    #[test]
    fn reasons_are_the_ones_a_user_understands() {
        for (address, reason) in [
            ("0.0.0.0", "unspecified"),
            ("10.0.0.5", "private"),
            ("127.0.0.1", "loopback"),
            ("169.254.169.254", "link-local"),
            ("100.100.100.200", "private to a carrier's network"),
            ("255.255.255.255", "reserved"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::7f00:1", "reserved"),
            ("fd00:ec2::254", "private"),
            ("fe80::1", "link-local"),
            ("ff02::1", "multicast"),
            ("64:ff9b::a00:5", "a translated IPv4 address (NAT64)"),
            ("4000::1", "not in public use"),
            ("::ffff:8.8.8.8", "not in public use"),
        ] {
            assert_eq!(why(address), Some(reason), "{address}");
        }
    }

    #[test]
    fn translators_reveal_the_address_behind_them() {
        for (address, behind) in [
            ("64:ff9b::10.0.0.5", Some("10.0.0.5")),
            ("64:ff9b::8.8.8.8", Some("8.8.8.8")),
            ("2002:7f00:1::", Some("127.0.0.1")),
            ("2002:a00:5:1::9", Some("10.0.0.5")),
            ("64:ff9b:1::a00:5", None),
            ("2606:4700::1111", None),
            ("10.0.0.5", None),
        ] {
            let behind = behind.map(|text: &str| text.parse().unwrap());
            assert_eq!(translated(address.parse().unwrap()), behind, "{address}");
        }
    }
}
