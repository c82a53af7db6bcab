//! What the handlers say of themselves: read from the generator's text, and put into plain words.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value, json};

use crate::api::body::CLOSED;
use crate::api::service::service;

/// The document as it is generated, not yet completed.
pub(super) fn document() -> Value {
    let mut document =
        serde_json::from_str::<Merged>(&service().spec()).map_or(Value::Null, |merged| merged.0);
    plain(&mut document);
    let schemas = document["components"]["schemas"].as_object_mut();
    for fields in schemas.into_iter().flatten().filter_map(|(_, shape)| shape.as_object_mut()) {
        // The name stands above already; generators would make a second shape of it.
        if fields.remove("title").is_some_and(|title| title == CLOSED) {
            fields.insert("additionalProperties".to_owned(), json!(false));
        }
    }
    document
}

/// Says everything as readers expect it who know other generators.
fn plain(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // As a key it would miss the plain media type that is sent and taken.
            if let Some(content) = fields.remove("application/json; charset=utf-8") {
                fields.insert("application/json".to_owned(), content);
            }
            if let Some(anything) = fields.get_mut("additionalProperties").filter(|any| **any == json!({})) {
                *anything = json!(true);
            }
            // What is said of a field that refers to a shape stands beside the list and in it once more.
            if let Some(Value::Array(parts)) = fields.get_mut("allOf") {
                parts.truncate(1);
            }
            fields.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        Value::Number(number) => {
            // Bounds come as `1.0`; generators of typed clients want `1`.
            const EXACT_MAX: f64 = 9_007_199_254_740_991.0;
            let whole = |n: &f64| n.fract() == 0.0 && n.abs() <= EXACT_MAX;
            if let Some(whole) = number.as_f64().filter(whole) {
                *value = json!(whole as i64);
            }
        }
        _ => {}
    }
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
