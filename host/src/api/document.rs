//! The OpenAPI document: generated from the handlers, then corrected by one deterministic function.
//!
//! It is served, printed by `satcast openapi`, and committed as `openapi/openapi.json`, which a test compares.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value, json};

use super::idempotency::{IDEMPOTENCY_KEY, KEY_BYTES_MAX};
use super::{cors, service};

/// The corrected document.
pub fn document() -> Value {
    let mut document =
        serde_json::from_str::<Merged>(&service().spec()).map_or(Value::Null, |merged| merged.0);
    correct(&mut document);
    sorted(document)
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

/// The same value with the fields of every object in order, whatever map the JSON library was built with.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields: BTreeMap<String, Value> =
                map.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}

/// The document as it is committed and served: sorted keys, two spaces, one line end.
pub fn document_text(document: &Value) -> String {
    format!("{document:#}\n")
}

/// The `Allow` header of every path: `/api/streams/{id}` gives `DELETE, GET, HEAD`.
pub(super) fn methods_by_path(document: &Value) -> BTreeMap<String, String> {
    let paths = document["paths"].as_object().into_iter().flatten();
    let methods = |path: &str, operations: &Value| {
        let names = operations.as_object().into_iter().flatten().map(|(name, _)| name.to_ascii_uppercase());
        let mut names: Vec<String> = names.collect();
        if names.iter().any(|name| name == "GET") {
            names.push("HEAD".to_owned());
        }
        if cors::is_public(path) {
            names.push("OPTIONS".to_owned());
        }
        names.sort();
        names.join(", ")
    };
    paths.map(|(path, operations)| (path.clone(), methods(path, operations))).collect()
}

fn correct(document: &mut Value) {
    document["openapi"] = json!("3.0.3");
    document["info"]["description"] = json!(
        "Forwards a live stream to many destinations, plays it back over HLS and meters it in sats. \
         Times are Unix milliseconds unless a field says otherwise."
    );
    document["info"]["license"] = json!({"name": "MIT", "url": "https://opensource.org/license/mit"});
    document["servers"] = json!([{"url": "/", "description": "This service"}]);
    document["components"]["schemas"]["Error"] = error_schema();
    document["components"]["responses"] = error_responses();
    document["components"]["headers"] = headers();
    if let Some(paths) = document["paths"].as_object_mut() {
        let operations = paths.values_mut().filter_map(Value::as_object_mut).flat_map(Map::iter_mut);
        for (method, operation) in operations {
            correct_operation(method, operation);
        }
    }
    correct_config(document);
    plain_content_types(document);
    let status = &mut document["paths"]["/api/public/stream/status"]["get"];
    status["responses"]["200"]["content"]["application/json"]["examples"] = super::status::examples();
    whole_numbers(document);
}

/// An operation answers every error in the one shape; which ones follows from what it takes.
fn correct_operation(method: &str, operation: &mut Value) {
    let secured = operation.get("security").is_some();
    let public = is_public(operation);
    let in_path = |parameter: &Value| parameter["in"] == "path";
    let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has_id = parameters.iter().any(in_path);
    let is_list = parameters.iter().any(|parameter| parameter["name"] == "cursor");
    let has_body = operation.get("requestBody").is_some();
    let once = secured && method == "post";
    // Without a key, but with a password or a link.
    let enters = !secured && method == "post";
    let errors = [
        ("400", has_id || is_list || has_body || once, "Malformed"),
        ("400", secured && public, "KeyRequired"),
        ("401", secured || enters, "Unauthorized"),
        ("403", enters || secured && !public, "Forbidden"),
        ("404", has_id || enters, "NotFound"),
        ("409", once || enters, "Conflict"),
        ("413", has_body || once, "BodyTooLarge"),
        ("415", has_body, "ContentTypeNotSupported"),
        ("422", has_body, "Refused"),
        ("429", true, "RateLimited"),
        ("500", true, "Internal"),
        ("502", secured || enters, "StoreFailed"),
    ];
    if once {
        let mut parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        parameters.push(key_parameter());
        operation["parameters"] = Value::Array(parameters);
    }
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        if parameter["name"] == "cursor" {
            parameter["schema"]["pattern"] = json!("^[1-9][0-9]{0,17}$");
        }
    }
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    for (status, _, name) in errors.into_iter().filter(|(_, applies, _)| *applies) {
        responses.insert(status.to_owned(), json!({"$ref": format!("#/components/responses/{name}")}));
    }
    if let Some(success) = responses.get_mut("200") {
        if success["description"] == "" {
            success["description"] = json!("Success");
        }
        let mut names = vec!["X-Request-Id", "RateLimit", "RateLimit-Policy"];
        if is_list {
            names.push("Link");
        }
        if once {
            names.push("Idempotent-Replayed");
        }
        let references = names
            .into_iter()
            .map(|name| (name.to_owned(), json!({"$ref": format!("#/components/headers/{name}")})));
        success["headers"] = Value::Object(references.collect());
    }
}

/// Whether an operation is one of those for websites and players.
pub(super) fn is_public(operation: &Value) -> bool {
    operation["tags"].as_array().is_some_and(|tags| tags.iter().any(|tag| tag == "Public"))
}

/// The header that makes it safe to send a POST again.
fn key_parameter() -> Value {
    json!({
        "name": IDEMPOTENCY_KEY, "in": "header", "required": false,
        "description": "Names this request, so that it can be sent again without being done again: for 24 hours the \
            same key gets the answer of the first success. With another body it is refused.",
        "schema": {"type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX, "pattern": "^[ -~]+$"}
    })
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "description": "Every answer that is not a success.",
        "required": ["error", "code", "requestId"],
        "properties": {
            "error": {"type": "string", "description": "A sentence for people."},
            "code": {"type": "string", "description": "A name for programs."},
            "requestId": {"type": "string", "description": "Names the request in the operator's log."},
            "retryAfter": {
                "type": "integer", "minimum": 1,
                "description": "Whole seconds until the window has room; only with status 429."
            }
        }
    })
}

fn error_responses() -> Value {
    let answer = |description: &str| {
        json!({
            "description": description,
            "headers": {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}},
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        })
    };
    let mut limited = answer("Too many requests");
    for name in ["Retry-After", "RateLimit", "RateLimit-Policy"] {
        limited["headers"][name] = json!({"$ref": format!("#/components/headers/{name}")});
    }
    json!({
        "Malformed": answer("The request cannot be read; the text names the field"),
        "KeyRequired": answer("No key was sent; the text lists the ways to send one"),
        "Unauthorized": answer("No key, or no valid one"),
        "Forbidden": answer("This kind of key, or a key without this scope, cannot do that"),
        "NotFound": answer("Unknown, or another owner's"),
        "Conflict": answer("A cap is reached, the state does not allow it, or the Idempotency-Key is in use"),
        "BodyTooLarge": answer("The body is too large"),
        "ContentTypeNotSupported": answer("The body is not declared as JSON"),
        "Refused": answer("A value is refused; the text names the field"),
        "RateLimited": limited,
        "Internal": answer("A fault of the service"),
        "StoreFailed": answer("The database failed"),
    })
}

fn headers() -> Value {
    let header =
        |description: &str, kind: &str| json!({"description": description, "schema": {"type": kind}});
    json!({
        "X-Request-Id": header("Names the request in the operator's log.", "string"),
        "Link": header("The next page with rel=\"next\"; absent on the last one.", "string"),
        "Idempotent-Replayed": header("`true` when this is the answer of an earlier request.", "string"),
        "Retry-After": header("Whole seconds until the window has room.", "integer"),
        "RateLimit": header("Requests left and seconds until the window has more room.", "string"),
        "RateLimit-Policy": header("Requests in one window and its length in seconds.", "string"),
    })
}

/// A destination's configuration is an object; what is in it depends on the type.
fn correct_config(document: &mut Value) {
    let config = &mut document["components"]["schemas"]["NewDestination"]["properties"]["config"];
    let description = config["description"].take();
    *config = json!({"type": "object", "additionalProperties": true, "description": description});
}

/// `application/json; charset=utf-8` as a key misses the plain media type that is sent and taken.
fn plain_content_types(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(entry) = map.remove("application/json; charset=utf-8") {
                map.insert("application/json".to_owned(), entry);
            }
            map.values_mut().for_each(plain_content_types);
        }
        Value::Array(items) => items.iter_mut().for_each(plain_content_types),
        _ => {}
    }
}

/// Bounds come as `1.0`; generators of typed clients want `1`.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Number(number) => {
            const EXACT_MAX: f64 = 9_007_199_254_740_991.0;
            let whole =
                number.as_f64().filter(|n| number.is_f64() && n.fract() == 0.0 && n.abs() <= EXACT_MAX);
            if let Some(whole) = whole {
                *value = json!(whole as i64);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi/openapi.json");

    #[test]
    fn committed_document_is_the_generated_one() {
        let text = document_text(&document());
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(COMMITTED, &text).unwrap();
        }
        let committed = std::fs::read_to_string(COMMITTED).unwrap_or_default();
        assert!(
            committed == text,
            "openapi/openapi.json is stale; run: UPDATE_OPENAPI=1 cargo test -p satcast --lib"
        );
    }

    #[test]
    fn every_operation_has_an_id_a_summary_and_errors() {
        let document = document();
        let mut count = 0;
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                count += 1;
                assert!(operation["operationId"].is_string(), "{method} {path}");
                assert!(
                    operation["summary"].as_str().is_some_and(|text| !text.is_empty()),
                    "{method} {path}"
                );
                assert_eq!(operation["responses"]["500"]["$ref"], "#/components/responses/Internal");
            }
        }
        assert_eq!(count, 31, "operations of the document");
    }

    #[test]
    fn allow_headers_follow_from_the_document() {
        let methods = methods_by_path(&document());
        assert_eq!(methods["/api/streams"], "GET, HEAD, POST");
        assert_eq!(methods["/api/public/config"], "GET, HEAD, OPTIONS");
        assert_eq!(methods["/api/streams/{id}/destinations/{destId}"], "DELETE, PATCH");
    }

    #[test]
    fn nullable_fields_are_required_and_nullable() {
        let document = document();
        let destination = &document["components"]["schemas"]["Destination"];
        for name in ["error", "nextRetryAt", "liveSince"] {
            assert_eq!(destination["properties"][name]["nullable"], true, "{name}");
            assert!(destination["required"].as_array().unwrap().contains(&json!(name)), "{name}");
        }
    }

    #[test]
    fn the_status_has_examples_with_every_field_and_names_its_errors() {
        let document = document();
        let operation = &document["paths"]["/api/public/stream/status"]["get"];
        let examples = &operation["responses"]["200"]["content"]["application/json"]["examples"];
        let properties = document["components"]["schemas"]["StreamStatus"]["properties"].as_object().unwrap();
        for name in ["live", "offline"] {
            let fields = examples[name]["value"].as_object().unwrap();
            assert!(fields.keys().eq(properties.keys()), "{name}: {fields:?}");
        }
        let errors: Vec<_> = operation["responses"].as_object().unwrap().keys().collect();
        assert_eq!(errors, ["200", "400", "401", "429", "500", "502"]);
        assert_eq!(properties["streamKeyLabel"]["deprecated"], true);
        for name in ["hlsUrl", "startedAt", "startedAtMs", "playbackToken"] {
            assert_eq!(properties[name]["nullable"], true, "{name}");
        }
    }
}
