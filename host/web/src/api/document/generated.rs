//! The document as poem-openapi generates it from the handlers, normalized.

use poem_openapi::{OpenApi, OpenApiService};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value, json};

use crate::api::body::CLOSED;
use crate::api::service::service;

/// The generated document, not yet completed.
pub(super) fn document() -> Value {
    let mut document =
        serde_json::from_str::<Merged>(&service().spec()).map_or(Value::Null, |merged| merged.0);
    plain(&mut document);
    let schemas = document["components"]["schemas"].as_object_mut();
    for fields in schemas.into_iter().flatten().filter_map(|(_, shape)| shape.as_object_mut()) {
        // The name is already the key; code generators would make a second schema of the title.
        if fields.remove("title").is_some_and(|title| title == CLOSED) {
            fields.insert("additionalProperties".to_owned(), json!(false));
        }
    }
    document
}

/// Path and method of every operation.
pub(super) fn operations() -> Vec<(String, String)> {
    fn all<T: OpenApi>(_: OpenApiService<T, ()>) -> Vec<(String, String)> {
        let paths = T::meta().into_iter().flat_map(|group| group.paths);
        let operations = paths.flat_map(|path| {
            path.operations
                .into_iter()
                .map(move |operation| (path.path.clone(), operation.method.to_string()))
        });
        operations.collect()
    }
    all(service())
}

/// Rewrites constructs into the forms that other tools expect.
fn plain(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // With a parameter the key would not match the plain media type that is sent and accepted.
            if let Some(content) = fields.remove("application/json; charset=utf-8") {
                fields.insert("application/json".to_owned(), content);
            }
            if let Some(anything) = fields.get_mut("additionalProperties").filter(|any| **any == json!({})) {
                *anything = json!(true);
            }
            // The description of a field with a reference is beside the list and repeated in it.
            if let Some(Value::Array(parts)) = fields.get_mut("allOf") {
                parts.truncate(1);
            }
            fields.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        Value::Number(number) => {
            // Bounds are generated as `1.0`; generators of typed clients need `1`.
            const EXACT_MAX: f64 = 9_007_199_254_740_991.0;
            let whole = |n: &f64| n.fract() == 0.0 && n.abs() <= EXACT_MAX;
            if let Some(whole) = number.as_f64().filter(whole) {
                *value = json!(whole as i64);
            }
        }
        _ => {}
    }
}

/// A JSON object that merges duplicate keys: the generator writes a path once for each group of operations, and a plain parser
/// would keep only the last.
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
