//! What the handlers say of themselves, read from the generator's text.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::api::service;

/// The document as it is generated, not yet corrected.
pub(super) fn document() -> Value {
    serde_json::from_str::<Merged>(&service().spec()).map_or(Value::Null, |merged| merged.0)
}

/// A JSON object in which objects of the same name are merged: the generator writes a path once for each group of
/// operations that has it, and a plain reader keeps only the last.
struct Merged(Value);

impl<'de> Deserialize<'de> for Merged {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Merged;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Merged, M::Error> {
                let mut merged = Map::new();
                while let Some(name) = map.next_key::<String>()? {
                    let value =
                        if name == "paths" { map.next_value::<Merged>()?.0 } else { map.next_value()? };
                    match (merged.get_mut(&name), value) {
                        (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
                        (_, value) => {
                            merged.insert(name, value);
                        }
                    }
                }
                Ok(Merged(Value::Object(merged)))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}
