//! The operator's settings: which ports destinations may open.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

/// Longest list of ports and ranges.
pub(crate) const ENTRIES_MAX: usize = 100;

/// Operator settings in `[driver.srt]`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// UDP ports that destinations in mode listener may open: numbers and ranges such as "9000-9009". Without any this mode is off.
    #[schemars(schema_with = "ports_schema")]
    pub listener_ports: Ports,
    /// Address that these ports are opened at.
    #[schemars(with = "String")]
    pub listener_address: IpAddr,
}

impl Default for Settings {
    fn default() -> Self {
        Self { listener_ports: Ports::default(), listener_address: Ipv4Addr::UNSPECIFIED.into() }
    }
}

fn ports_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["array", "string", "integer"],
        "items": { "type": ["string", "integer"] },
        "maxItems": ENTRIES_MAX,
        "default": []
    })
}

/// A set of ports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct Ports(Vec<RangeInclusive<u16>>);

/// Ports as an operator writes them; an environment variable is one text or number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u16),
    Text(String),
    List(Vec<Written>),
}

impl Ports {
    /// Whether destinations may open `port`.
    pub fn hold(&self, port: u16) -> bool {
        self.0.iter().any(|range| range.contains(&port))
    }

    fn add(&mut self, written: Written) -> Result<(), &'static str> {
        match written {
            Written::Number(port) => self.0.push(port..=port),
            Written::Text(text) => {
                for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
                    let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
                    let [first, last] = [first, last].map(|port| port.trim().parse::<u16>());
                    let (Ok(first), Ok(last)) = (first, last) else { return Err(FORM) };
                    self.0.push(first..=last);
                }
            }
            Written::List(list) => list.into_iter().try_for_each(|entry| self.add(entry))?,
        }
        let is_wrong = |range: &RangeInclusive<u16>| range.is_empty() || *range.start() == 0;
        if self.0.len() > ENTRIES_MAX || self.0.iter().any(is_wrong) { Err(FORM) } else { Ok(()) }
    }
}

const FORM: &str = "listener_ports holds ports of 1 to 65535 and ranges such as \"9000-9009\", at most 100";

impl TryFrom<Written> for Ports {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let mut ports = Self::default();
        ports.add(written).map(|()| ports)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ports(written: Value) -> Option<Ports> {
        serde_json::from_value::<Settings>(json!({ "listener_ports": written }))
            .ok()
            .map(|read| read.listener_ports)
    }

    #[test]
    fn numbers_texts_and_lists_are_ports() {
        let none = serde_json::from_value::<Settings>(json!({})).unwrap();
        assert!(!none.listener_ports.hold(9_000), "none by default");
        for (written, in_it, outside) in [
            (json!(9_000), vec![9_000], vec![8_999, 9_001]),
            (json!("9000"), vec![9_000], vec![8_999, 9_001]),
            (json!("9000-9002, 9010"), vec![9_000, 9_002, 9_010], vec![9_003, 9_009]),
            (json!([1, "65535", "20-30"]), vec![1, 65_535, 20, 30], vec![2, 19]),
            (json!([]), vec![], vec![9_000]),
        ] {
            let ports = ports(written.clone()).unwrap_or_else(|| panic!("{written}"));
            assert!(in_it.iter().all(|port| ports.hold(*port)), "{written}");
            assert!(!outside.iter().any(|port| ports.hold(*port)), "{written}");
        }
    }

    #[test]
    fn other_texts_and_long_lists_are_refused() {
        for written in
            [json!(0), json!("0-5"), json!("9-8"), json!("a"), json!(70_000), json!("1-2-3"), json!(true)]
        {
            assert_eq!(ports(written.clone()), None, "{written}");
        }
        let list = |count: usize| Value::from((1..=count).collect::<Vec<_>>());
        assert!(ports(list(ENTRIES_MAX)).is_some() && ports(list(ENTRIES_MAX + 1)).is_none());
    }
}
