//! Corrections of shapes: what the derive of the handlers' types cannot say.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Where shapes stand.
const SHAPES: &str = "#/components/schemas/";
/// Shapes in which a request must send something, whatever it is.
const NOT_EMPTY: &[&str] = &["DestinationChange", "LimitsChange", "StreamChange"];
/// Fields of requests that may be null, which means another thing than leaving them out.
const NULLABLE: &[(&str, &str)] =
    &[("LimitsChange", "maxSats"), ("LimitsChange", "maxDurationMinutes"), ("NewWebhook", "stream_key_id")];
/// Fields that are objects with any fields.
const OPEN: &[(&str, &str)] = &[("AuditEntry", "detail")];
/// Texts with no control characters, and whether they must have more than white space.
const PLAIN_TEXTS: &[(&str, &str, bool)] = &[
    ("NewStream", "label", true),
    ("StreamChange", "label", true),
    ("SetupRequest", "name", true),
    ("NewApiKey", "label", false),
];
const PLAIN: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";
const PLAIN_NOT_BLANK: &str = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$";

/// Corrects every shape.
pub(super) fn describe(document: &mut Value) {
    references(document);
    nullable_shapes(document);
    let of_answers = reached(document, "responses");
    let of_requests = reached(document, "requestBody");
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    for (name, schema) in schemas.iter_mut() {
        // A request may hold nothing that is not known; answers may get more fields one day.
        if of_requests.contains(name) && !of_answers.contains(name) && schema.get("properties").is_some() {
            schema["additionalProperties"] = json!(false);
        }
        // The name stands above already; generators would make a second shape of it.
        if let Some(fields) = schema.as_object_mut() {
            fields.remove("title");
        }
    }
    for name in NOT_EMPTY {
        schemas[*name]["minProperties"] = json!(1);
    }
    for (name, field) in NULLABLE {
        schemas[*name]["properties"][*field]["nullable"] = json!(true);
    }
    for (name, field) in OPEN {
        schemas[*name]["properties"][*field]["type"] = json!("object");
        schemas[*name]["properties"][*field]["additionalProperties"] = json!(true);
    }
    for (name, field, is_needed) in PLAIN_TEXTS {
        schemas[*name]["properties"][*field]["pattern"] =
            json!(if *is_needed { PLAIN_NOT_BLANK } else { PLAIN });
    }
}

/// The generator puts the description of a field that refers to a shape into a shape of its own: beside the reference it
/// would mean nothing. One list of one reference with the description around it says the same and is understood by more.
fn references(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Array(parts)) = fields.get_mut("allOf") {
                let says_only = |part: &Value| {
                    let notes = ["description", "nullable", "deprecated", "title"];
                    part.as_object()
                        .is_some_and(|part| part.keys().all(|name| notes.contains(&name.as_str())))
                };
                let (notes, rest): (Vec<_>, Vec<_>) = parts.drain(..).partition(says_only);
                *parts = rest;
                for note in notes {
                    fields.extend(note.as_object().cloned().unwrap_or_default());
                }
            }
            fields.values_mut().for_each(references);
        }
        Value::Array(items) => items.iter_mut().for_each(references),
        _ => {}
    }
}

/// A field that refers to a shape and may be null has the shape in itself: beside a reference `nullable` means nothing, and
/// the shape takes no null. One that nothing else refers to is left out.
fn nullable_shapes(document: &mut Value) {
    let Some(shapes) = document["components"]["schemas"].as_object().cloned() else { return };
    let mut moved = BTreeSet::new();
    take_in(document, &shapes, &mut moved);
    let text = document.to_string();
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    schemas.retain(|name, _| !moved.contains(name) || text.contains(&format!("\"{SHAPES}{name}\"")));
}

fn take_in(value: &mut Value, shapes: &Map<String, Value>, moved: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            let name = fields.get("allOf").and_then(|parts| parts[0]["$ref"].as_str());
            let name = name.and_then(|path| path.strip_prefix(SHAPES)).map(str::to_owned);
            let is_nullable = fields.get("nullable") == Some(&json!(true));
            if let Some(name) = name.filter(|_| is_nullable)
                && let Some(shape) = shapes.get(&name).and_then(Value::as_object)
            {
                fields.remove("allOf");
                for (key, part) in shape.iter().filter(|(key, _)| *key != "title") {
                    fields.entry(key).or_insert_with(|| part.clone());
                }
                moved.insert(name);
            }
            fields.values_mut().for_each(|field| take_in(field, shapes, moved));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| take_in(item, shapes, moved)),
        _ => {}
    }
}

/// The names of the shapes that are reached from one part of every operation.
fn reached(document: &Value, part: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let operations = document["paths"].as_object().into_iter().flatten().map(|(_, path)| path);
    let operations = operations.filter_map(Value::as_object).flat_map(Map::values);
    let mut open: Vec<&Value> = operations.filter_map(|operation| operation.get(part)).collect();
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                open.extend(fields.values());
                let name = fields.get("$ref").and_then(Value::as_str);
                let name = name.and_then(|path| path.strip_prefix(SHAPES));
                if let Some(name) = name.filter(|name| found.insert((*name).to_owned())) {
                    open.push(&document["components"]["schemas"][name]);
                }
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    found
}

/// `application/json; charset=utf-8` as a key misses the plain media type that is sent and taken.
pub(super) fn plain_content_types(value: &mut Value) {
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
pub(super) fn whole_numbers(value: &mut Value) {
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
