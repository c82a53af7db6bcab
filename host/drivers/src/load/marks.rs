//! The schema of a value in a configuration, where it can be found directly, and whether the value is a secret.

use serde_json::Value;

/// Keywords by which a schema describes a value in another place: code that reads a mark there would have to follow
/// them.
const ELSEWHERE: [&str; 18] = [
    "$ref",
    "$dynamicRef",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "patternProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "prefixItems",
    "contains",
    "contentSchema",
    "propertyNames",
    "dependencies",
];
/// Keywords of an optional value.
const ALTERNATIVES: [&str; 2] = ["anyOf", "oneOf"];

/// Schema of the items of a list; `None` where it cannot be found directly.
pub(crate) fn item(schema: Option<&Value>) -> Option<&Value> {
    schema.filter(|schema| is_plain(schema))?.get("items")
}

/// Schema of the field `name`, or of every field of a table; `None` where it cannot be found directly.
pub(crate) fn field<'a>(schema: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    let schema = schema.filter(|schema| is_plain(schema))?;
    let own = schema.get("properties").and_then(|properties| properties.get(name));
    own.or_else(|| schema.get("additionalProperties").filter(|any| any.is_object()))
}

/// The schema is complete in itself and hides nothing.
fn is_plain(schema: &Value) -> bool {
    schema.is_object() && !is_marked(schema) && !ELSEWHERE.iter().any(|name| schema.get(name).is_some())
}

/// Whether a text with this schema is a secret, or may be one.
pub(crate) fn is_secret_text(schema: Option<&Value>) -> bool {
    let Some(schema) = schema.filter(|schema| schema.is_object()) else { return true };
    let others = || ELSEWHERE.iter().filter(|name| !ALTERNATIVES.contains(name));
    is_secret(schema)
        || others().any(|name| schema.get(name).is_some())
        || !alternatives(schema).all(is_plain)
}

/// Whether it is marked as a secret: such a field may change while other secrets stay.
pub(crate) fn is_secret(schema: &Value) -> bool {
    is_marked(schema) || alternatives(schema).any(is_marked)
}

fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    ALTERNATIVES.into_iter().filter_map(|name| schema.get(name)?.as_array()).flatten()
}

/// Marked by our annotation, or by the keywords that forms use.
fn is_marked(schema: &Value) -> bool {
    let is_true = |name: &str| schema.get(name) == Some(&Value::Bool(true));
    is_true("x-secret")
        || is_true("writeOnly")
        || schema.get("format").is_some_and(|format| format == "password")
}

/// The secret parts of a URL: password, query, and the path after its first part, where RTMP servers expect the key.
pub(crate) fn url_secrets(text: &str) -> Vec<String> {
    let Some((_, rest)) = text.split_once("://") else { return Vec::new() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let path = rest.strip_prefix('/').unwrap_or(rest);
    let mut found = Vec::new();
    if let Some((user_info, _)) = authority.rsplit_once('@') {
        found.extend(user_info.split_once(':').map(|(_, password)| password.to_string()));
        found.push(user_info.to_string());
    }
    let (path, fragment) = path.split_once('#').unwrap_or((path, ""));
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    found.extend((!fragment.is_empty()).then(|| fragment.to_string()));
    // The first part is the app, which is no secret.
    found.extend(path.split('/').skip(1).filter(|part| !part.is_empty()).map(str::to_string));
    if !query.is_empty() {
        found.push(query.to_string());
        found.extend(query.split('&').filter_map(|pair| Some(pair.split_once('=')?.1.to_string())));
    }
    found
}
