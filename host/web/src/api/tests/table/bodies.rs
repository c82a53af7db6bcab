//! Hostile bodies, paths and queries: they are refused, and their content is not repeated.

use serde_json::{Map, Value, json};

use super::operation::{Operation, operations};
use super::row_of;
use super::rows::Row;
use super::world::{Call, World};
use crate::api::tests::contract::documented;

/// Text that responses must not repeat.
const SECRET: &str = "hunter2hunter2";

/// Path of a field in a body: names, and `0` for the first entry of a list.
type Place = Vec<String>;

/// Resolves a reference to a schema.
fn resolved(schema: &'static Value) -> &'static Value {
    match schema["$ref"].as_str() {
        Some(path) => resolved(documented().pointer(path.trim_start_matches('#')).unwrap()),
        None => schema,
    }
}

/// All fields of a schema, recursively.
fn places(schema: &'static Value, place: &Place, all: &mut Vec<Place>) {
    let schema = resolved(schema);
    for several in ["oneOf", "anyOf", "allOf"] {
        for schema in schema[several].as_array().into_iter().flatten() {
            places(schema, place, all);
        }
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    let properties = properties.map(|(name, schema)| (name.as_str(), schema));
    for (name, schema) in properties.chain(schema.get("items").map(|schema| ("0", schema))) {
        let mut inner = place.clone();
        inner.push(name.to_owned());
        if !all.contains(&inner) {
            all.push(inner.clone());
        }
        places(schema, &inner, all);
    }
}

/// The body with another value at the path; missing parents are created.
fn with(body: &Value, place: &[String], value: &Value) -> Value {
    let Some((name, rest)) = place.split_first() else { return value.clone() };
    if name == "0" {
        let first = with(body.get(0).unwrap_or(&Value::Null), rest, value);
        return json!([first]);
    }
    let mut fields: Map<String, Value> = body.as_object().cloned().unwrap_or_default();
    let inner = with(fields.get(name).unwrap_or(&Value::Null), rest, value);
    fields.insert(name.clone(), inner);
    Value::Object(fields)
}

fn wrong_values() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(0.5),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1e300),
        json!(""),
        json!(SECRET),
        json!(format!("rtmp://{SECRET}@[::1]:99999/{SECRET}")),
        json!(format!("\u{0}{SECRET}\u{202e}\n")),
        json!(SECRET.repeat(500)),
        json!([SECRET, [SECRET]]),
        json!({"x": {"y": SECRET}}),
    ]
}

/// Bodies that are not JSON, not an object, or have a duplicate field.
fn raw_bodies(field: &str) -> Vec<Vec<u8>> {
    let deep = |open: &str| format!("{{\"{field}\":{}", open.repeat(100_000)).into_bytes();
    let value = |value: &[u8]| [format!("{{\"{field}\":").as_bytes(), value, b"}"].concat();
    vec![
        Vec::new(),
        b"\xff\xfe{\0}\0".to_vec(),
        b"\xef\xbb\xbf{}".to_vec(),
        value(b"\"\xff hunter2hunter2\""),
        value(b"\"\xed\xa0\x80 hunter2hunter2\""),
        value(b"\"\\ud800 hunter2hunter2\""),
        value(b"\"\0hunter2hunter2\""),
        value(b"\"\\u0000hunter2hunter2\""),
        value(b"1e999999"),
        value("9".repeat(100_000).as_bytes()),
        value(b"NaN"),
        value(b"\"hunter2hunter2\",}"),
        format!("{{\"{field}\":\"{SECRET}\",\"{field}\":[\"{SECRET}\"]}}").into_bytes(),
        deep("["),
        deep("{\"a\":"),
        format!("[\"{SECRET}\"]").into_bytes(),
        format!("\"{SECRET}\"").into_bytes(),
        b"null".to_vec(),
        b"{}{}".to_vec(),
    ]
}

/// Sends the call and checks the response.
async fn survives(world: &World, call: Call, call_text: &str) -> u16 {
    let answer = world.send(call).await;
    let status = answer.status.as_u16();
    assert!(status < 500, "{call_text}: {status} {}", answer.text);
    assert!(status < 400 || !answer.text.contains("hunter2"), "{call_text}: {}", answer.text);
    status
}

async fn every_field_survives(world: &World, operation: &Operation, row: &'static Row) {
    let Some(schema) = operation.body() else { return };
    let mut fields = Vec::new();
    places(schema, &Vec::new(), &mut fields);
    assert!(!fields.is_empty(), "{} has a body without fields", operation.id);
    let mut refused = 0;
    for (place, value) in
        fields.iter().flat_map(|place| wrong_values().into_iter().map(move |value| (place, value)))
    {
        let resource = world.resource(row.about).await;
        let good = row.body.unwrap()(&resource);
        let body = with(&good, place, &value);
        let call = Call::new(operation, row, &resource, row.takes.first()).with_body(body.to_string());
        let call_text = format!("{} with {body}", operation.id);
        refused += usize::from(survives(world, call, &call_text).await >= 400);
    }
    assert!(refused >= fields.len() * 5, "{}: of {} fields {refused} refused", operation.id, fields.len());
    for body in raw_bodies(&fields[0][0]) {
        let call_text =
            format!("{} with {:?}", operation.id, String::from_utf8_lossy(&body[..body.len().min(80)]));
        let call = world.call(operation, row, row.takes.first()).await.with_body(body);
        assert!(survives(world, call, &call_text).await >= 400, "{call_text}");
    }
}

async fn every_body_survives(of_people: bool) {
    let world = World::new().await;
    let of_group = |operation: &&Operation| operation.template.starts_with("/api/auth/") == of_people;
    let mut count = 0;
    for operation in operations().iter().filter(of_group).filter(|operation| operation.body().is_some()) {
        count += 1;
        every_field_survives(&world, operation, row_of(operation.id)).await;
    }
    assert!(count >= 3, "{count} operations");
}

#[tokio::test]
async fn hostile_bodies_are_refused_and_not_repeated() {
    every_body_survives(false).await;
}

#[tokio::test]
async fn hostile_bodies_of_account_operations_are_refused_and_not_repeated() {
    every_body_survives(true).await;
}

#[tokio::test]
async fn hostile_paths_and_queries_are_refused_and_not_repeated() {
    let world = World::new().await;
    let values = [
        "",
        "-1",
        "0.5",
        "9223372036854775807",
        "-9223372036854775808",
        "99999999999999999999",
        "%00",
        "%ff%fe",
        "%zz",
        "%2e%2e%2f",
        "hunter2hunter2%0d%0aX:%20y",
        "hunter2hunter2'%22;--",
    ];
    for operation in &operations() {
        let row = row_of(operation.id);
        for value in values.into_iter().filter(|value| operation.has_id() && !value.is_empty()) {
            let path =
                operation.template.split('/').map(|part| if part.starts_with('{') { value } else { part });
            let path = path.collect::<Vec<_>>().join("/");
            let call = Call { path, ..world.call(operation, row, row.takes.first()).await };
            let status = survives(&world, call, &format!("{} with {value}", operation.id)).await;
            assert!(status == 400 || status == 404, "{} with {value}: {status}", operation.id);
        }
        for name in operation.parameters("query") {
            for value in values {
                let call = world.call(operation, row, row.takes.first()).await;
                let call_text = format!("{} with {name}={value}", operation.id);
                survives(&world, call.with_query(format!("{name}={value}")), &call_text).await;
            }
        }
    }
}
