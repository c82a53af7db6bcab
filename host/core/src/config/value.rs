//! Parsing of single configuration values; each type's error names the expected form.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr as _;

use ipnet::IpNet;
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use url::Url;

use crate::secret::Redacted;

/// Longest list, and so the longest allow list of the address guard.
const LIST_ENTRIES_MAX: usize = 1_000;
/// Longest host name (RFC 1035).
const HOST_NAME_MAX_BYTES: usize = 253;

/// One entry of an allow list of the address guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowEntry {
    /// Every address in the network.
    Network(IpNet),
    /// A host name in lower case; it may resolve to any address.
    Host(String),
}

impl fmt::Display for AllowEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllowEntry::Network(network) => network.fmt(f),
            AllowEntry::Host(host) => f.write_str(host),
        }
    }
}

/// Text that may look like a number, a boolean or a date in the file: `key = 0123` is that text or an error,
/// never another value.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

/// A list, or one text separated by commas.
struct List(Vec<String>);

impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor;
        impl<'de> Visitor<'de> for ListVisitor {
            type Value = List;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list such as [\"a\", \"b\"]")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<List, E> {
                let list = split_list(text);
                if list.len() > LIST_ENTRIES_MAX { Err(too_many()) } else { Ok(List(list)) }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<List, A::Error> {
                let mut list = Vec::new();
                while let Some(Text(item)) = items.next_element()? {
                    if list.len() == LIST_ENTRIES_MAX {
                        return Err(too_many());
                    }
                    list.push(item);
                }
                Ok(List(list))
            }
        }
        deserializer.deserialize_any(ListVisitor)
    }
}

fn too_many<E: Error>() -> E {
    E::custom(format!("has more than {LIST_ENTRIES_MAX} entries; use fewer"))
}

/// The entries of `a,b`, trimmed, without empty ones.
fn split_list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

pub(super) fn plain_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Some(Text::deserialize(deserializer)?.0))
}

pub(super) fn secret<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Redacted<String>>, D::Error> {
    Ok(Some(Redacted::new(Text::deserialize(deserializer)?.0)))
}

pub(super) fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let List(names) = List::deserialize(deserializer)?;
    let plain = |name: &String| {
        let allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
        !name.is_empty() && name.bytes().all(allowed)
    };
    match names.iter().find(|name| !plain(name)) {
        Some(name) => {
            Err(D::Error::custom(format!("holds \"{name}\"; use lower-case letters, digits, - and _")))
        }
        None => Ok(names),
    }
}

pub(super) fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Url, D::Error> {
    parse_url(&Text::deserialize(deserializer)?.0).map_err(D::Error::custom)
}

pub(super) fn optional_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Url>, D::Error> {
    url(deserializer).map(Some)
}

/// An http or https address without credentials, query and fragment.
fn parse_url(text: &str) -> Result<Url, String> {
    let wanted = "use an address such as \"https://live.example.com\"";
    let url = Url::parse(text).map_err(|_| format!("is not an address; {wanted}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(format!("is not an http or https address; {wanted}"));
    }
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err(format!("holds a user, a query or a fragment; {wanted}"));
    }
    Ok(url)
}

pub(super) fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    parse_address(&Text::deserialize(deserializer)?.0).map_err(D::Error::custom)
}

pub(super) fn optional_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    address(deserializer).map(Some)
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    SocketAddr::from_str(text.trim()).map_err(|_| {
        format!("\"{text}\" is not an address and port; use one such as \"127.0.0.1:8080\" or \"[::]:8080\"")
    })
}

pub(super) fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let List(entries) = List::deserialize(deserializer)?;
    let parse = |text: String| {
        parse_network(&text).ok_or_else(|| {
            D::Error::custom(format!("holds \"{text}\"; use a network such as \"10.0.0.0/8\""))
        })
    };
    entries.into_iter().map(parse).collect()
}

pub(super) fn addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpAddr>, D::Error> {
    let List(entries) = List::deserialize(deserializer)?;
    let parse = |text: String| {
        let address: Option<IpAddr> = text.trim().parse().ok();
        address.filter(|address| !address.is_unspecified()).ok_or_else(|| {
            D::Error::custom(format!("holds \"{text}\"; use an address such as \"203.0.113.7\""))
        })
    };
    entries.into_iter().map(parse).collect()
}

/// A CIDR, or a single address.
fn parse_network(text: &str) -> Option<IpNet> {
    let single = || text.parse().ok().map(|address: IpAddr| IpNet::from(address));
    text.parse().ok().or_else(single)
}

pub(super) fn allow_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<AllowEntry>, D::Error> {
    let List(entries) = List::deserialize(deserializer)?;
    let parse = |text: String| {
        parse_allow_entry(&text).ok_or_else(|| {
            D::Error::custom(format!(
                "holds \"{text}\"; use a network such as \"10.1.2.0/24\" or a host name"
            ))
        })
    };
    entries.into_iter().map(parse).collect()
}

/// Full names of hosts in lower case, without wildcards and addresses.
pub(super) fn host_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let List(names) = List::deserialize(deserializer)?;
    let parse = |text: String| match parse_allow_entry(&text) {
        Some(AllowEntry::Host(name)) if name.contains('.') => Ok(name),
        _ => Err(D::Error::custom(format!(
            "holds \"{text}\"; use full names such as \"live.example.com\", without *"
        ))),
    };
    names.into_iter().map(parse).collect()
}

fn parse_allow_entry(text: &str) -> Option<AllowEntry> {
    if let Some(network) = parse_network(text) {
        return Some(AllowEntry::Network(network));
    }
    let label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && label.bytes().all(allowed)
    };
    // Resolvers read a name whose last label is digits as an IPv4 address.
    let named = text.rsplit('.').next().is_some_and(|last| !last.bytes().all(|byte| byte.is_ascii_digit()));
    let is_host = text.len() <= HOST_NAME_MAX_BYTES && named && text.split('.').all(label);
    is_host.then(|| AllowEntry::Host(text.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allow_entries_are_networks_addresses_or_host_names() {
        assert_eq!(parse_allow_entry("10.1.2.0/24").unwrap().to_string(), "10.1.2.0/24");
        assert_eq!(parse_allow_entry("127.0.0.1").unwrap().to_string(), "127.0.0.1/32");
        assert_eq!(parse_allow_entry("NAS.lan"), Some(AllowEntry::Host("nas.lan".into())));
        assert_eq!(parse_allow_entry("localhost"), Some(AllowEntry::Host("localhost".into())));
        for text in
            ["", "10.1.2.0/33", "10.1.2", "a b", "http://x", "x:80", "a..b", "*.lan", &"a".repeat(254)]
        {
            assert_eq!(parse_allow_entry(text), None, "{text}");
        }
    }

    #[test]
    fn errors_of_addresses_and_urls_show_the_expected_form() {
        assert!(parse_address("[::1]:0").is_ok());
        for text in ["8080", "localhost:8080", "127.0.0.1", "127.0.0.1:99999"] {
            assert!(parse_address(text).unwrap_err().contains("127.0.0.1:8080"), "{text}");
        }
        assert!(parse_url("https://live.example.com/sub").is_ok());
        for text in ["", "live.example.com", "ftp://x", "http://u:p@x", "http://x/?q=1", "http://x/#f"] {
            assert!(parse_url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lists_are_split_at_commas() {
        assert_eq!(split_list(" a , b,,"), ["a", "b"]);
        assert!(split_list("").is_empty());
    }
}
