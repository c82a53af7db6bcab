//! Single steps of a conversion that do not need the whole schema.

use serde_json::{Map, Value, json};

/// Longest pattern in bytes that is copied.
const PATTERN_BYTES_MAX: usize = 512;
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// One type becomes `type`, several become a choice, null becomes `nullable`.
pub(super) fn types(
    fields: &Map<String, Value>,
    out: &mut Map<String, Value>,
    alternatives: &mut Vec<Value>,
) {
    let names: Vec<&str> = match fields.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => return,
    };
    let known: Vec<&str> = names.iter().copied().filter(|name| TYPES.contains(name)).collect();
    let takes_null = names.contains(&"null");
    let choice = |name: &str| {
        let mut choice = json!({"type": name});
        if name == "array" {
            choice["items"] = json!({});
        }
        if takes_null {
            choice["nullable"] = json!(true);
        }
        choice
    };
    match known.as_slice() {
        [] => {}
        [name] => {
            for (name, value) in choice(name).as_object().into_iter().flatten() {
                out.entry(name).or_insert_with(|| value.clone());
            }
        }
        names => alternatives.push(names.iter().map(|name| choice(name)).collect()),
    }
}

pub(super) fn is_null(schema: &Value) -> bool {
    schema["type"] == "null" || schema.get("const").is_some_and(Value::is_null)
}

/// Merges choices between single values, as a documented Rust `enum` has them, into one list of values.
pub(super) fn united(choices: &[Value]) -> Option<Value> {
    let only = ["enum", "type", "description"];
    let kind = choices.first()?.get("type");
    let mut values = Vec::new();
    for choice in choices {
        let plain = choice.as_object()?.keys().all(|name| only.contains(&name.as_str()));
        if !plain || choice.get("type") != kind {
            return None;
        }
        values.extend(choice.get("enum")?.as_array()?.iter().cloned());
    }
    let mut united = json!({"enum": values});
    if let Some(kind) = kind {
        united["type"] = kind.clone();
    }
    Some(united)
}

pub(super) fn both(left: &Value, right: &Value, is: fn(f64, f64) -> bool) -> bool {
    left.as_f64().zip(right.as_f64()).is_some_and(|(left, right)| is(left, right))
}

pub(super) fn into_items(list: Value) -> Option<Vec<Value>> {
    if let Value::Array(items) = list { Some(items) } else { None }
}

pub(super) fn merge(schema: &mut Value, notes: Map<String, Value>) {
    if let Some(fields) = schema.as_object_mut() {
        fields.extend(notes);
    }
    if schema["writeOnly"] == true {
        hide(schema);
    }
}

/// Marks a secret: no example, no default, and format `password`.
pub(super) fn hide(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.insert("writeOnly".to_owned(), json!(true));
    for name in ["example", "default"] {
        fields.remove(name);
    }
    if fields.get("type") == Some(&json!("string")) {
        fields.insert("format".to_owned(), json!("password"));
    }
}

/// Makes a converted schema accept null. A schema without a type accepts null already, unless it enumerates its values.
pub(super) fn allow_null(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(Value::Array(values)) = fields.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    if fields.contains_key("type") {
        fields.insert("nullable".to_owned(), json!(true));
    }
    for name in ["allOf", "anyOf"] {
        let parts = fields.get_mut(name).and_then(Value::as_array_mut);
        parts.into_iter().flatten().for_each(allow_null);
    }
}

/// Whether a pattern means the same to every regex engine; patterns with special flags, classes or anchors are omitted.
pub(super) fn is_common(pattern: &str) -> bool {
    let bare = pattern.replace("(?:", "(").replace("\\\\", "");
    let odd = ["(?", "\\p", "\\P", "\\A", "\\z", "\\Z", "\\h", "\\x", "\\u", "[[", "&&", "--", "~~"];
    pattern.len() <= PATTERN_BYTES_MAX && !odd.iter().any(|part| bare.contains(part))
}
