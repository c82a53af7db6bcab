//! Tests schemas of OpenAPI 3.0.3 with a JSON Schema validator.

use serde_json::{Map, Value, json};

use satcast_drivers::TypeSchema;

/// The document with types like those of the bundled drivers, which unit tests do not load.
pub(in crate::api) fn bundled() -> Value {
    super::document(&bundled_types())
}

/// Types like those of the bundled drivers.
pub(in crate::api) fn bundled_types() -> Vec<TypeSchema> {
    let text = json!({"type": "string"});
    let kind = |name: &str, properties: Value, required: Value| TypeSchema {
        name: name.to_owned(),
        title: name.to_owned(),
        playback: false,
        schema: json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false}),
    };
    let origins = json!({"type": "array", "items": text});
    let hosted =
        json!({"dvrSeconds": {"type": "integer", "minimum": 0, "maximum": 3600}, "allowedOrigins": origins});
    let key = json!({"type": ["string", "null"], "x-secret": true});
    vec![
        kind("rtmp", json!({"url": text, "key": key}), json!(["url"])),
        kind("self-hosted", hosted, json!([])),
    ]
}

/// Whether a schema without references accepts the instance.
pub(super) fn accepts(schema: &Value, instance: &Value) -> bool {
    first_fault(&json!({}), schema, instance, Unknown::Allowed).is_none()
}

/// Handling of undeclared fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api) enum Unknown {
    /// As the schema says.
    Allowed,
    /// An undeclared field is an error, as in responses and examples.
    Fault,
}

/// Why a schema of the document refuses the instance; `None` if it accepts it.
pub(in crate::api) fn first_fault(
    document: &Value,
    schema: &Value,
    instance: &Value,
    unknown: Unknown,
) -> Option<String> {
    let mut root = Map::new();
    root.insert("allOf".to_owned(), json!([plain(schema, unknown)]));
    let mut schemas = Map::new();
    collect(schema, document, unknown, &mut schemas);
    root.insert("components".to_owned(), json!({"schemas": schemas}));
    let validator =
        jsonschema::draft202012::options().should_validate_formats(false).build(&Value::Object(root));
    match validator {
        Ok(validator) => validator
            .iter_errors(instance)
            .next()
            .map(|error| format!("{} at {}", error, error.instance_path())),
        Err(error) => Some(format!("the schema is invalid: {error}")),
    }
}

/// The schemas of the document that `schema` refers to, directly or not. Preparing all of them for each answer would be most of the
/// cost of the tests.
fn collect(schema: &Value, document: &Value, unknown: Unknown, schemas: &mut Map<String, Value>) {
    match schema {
        Value::Object(fields) => {
            let name =
                fields.get("$ref").and_then(|path| path.as_str()?.strip_prefix("#/components/schemas/"));
            if let Some(name) = name.filter(|name| !schemas.contains_key(*name)) {
                let referred = &document["components"]["schemas"][name];
                schemas.insert(name.to_owned(), plain(referred, unknown));
                collect(referred, document, unknown, schemas);
            }
            fields.values().for_each(|value| collect(value, document, unknown, schemas));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, document, unknown, schemas)),
        _ => {}
    }
}

/// The same schema in JSON Schema 2020-12.
fn plain(schema: &Value, unknown: Unknown) -> Value {
    match schema {
        Value::Object(fields) => {
            let mut fields: Map<String, Value> =
                fields.iter().map(|(name, value)| (name.clone(), plain(value, unknown))).collect();
            for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
                if fields.get(exclusive) == Some(&json!(true)) {
                    let value = fields.remove(bound).unwrap_or_default();
                    fields.insert(exclusive.to_owned(), value);
                }
            }
            if unknown == Unknown::Fault && fields.get("properties").is_some_and(Value::is_object) {
                fields.entry("additionalProperties").or_insert(json!(false));
            }
            if fields.get("nullable") != Some(&json!(true)) {
                return Value::Object(fields);
            }
            match fields.get("type").and_then(Value::as_str).map(str::to_owned) {
                Some(kind) => {
                    fields.insert("type".to_owned(), json!([kind, "null"]));
                    Value::Object(fields)
                }
                // Beside a reference, `nullable` also allows null here.
                None => json!({"anyOf": [fields, {"type": "null"}]}),
            }
        }
        Value::Array(items) => items.iter().map(|item| plain(item, unknown)).collect(),
        other => other.clone(),
    }
}
