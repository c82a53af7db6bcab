//! Spans in the JSON of OTLP 1, with the names of OpenTelemetry's semantic conventions where there are some.

use serde_json::{Value, json};

use super::spans::{Ended, FieldValue};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// `SpanKind` of OTLP.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
/// `StatusCode` of OTLP.
const FAILED: u8 = 2;
/// Fields with a conventional name. All others begin with `satcast.`.
const NAMES: [(&str, &str); 4] = [
    ("error", "error.type"),
    ("method", "http.request.method"),
    ("route", "http.route"),
    ("status", "http.response.status_code"),
];

/// The service that the spans are of.
pub(super) fn resource(service: &str, node: Option<&str>) -> Value {
    let text = |key: &str, text: &str| json!({"key": key, "value": {"stringValue": text}});
    let mut attributes = vec![text("service.name", service), text("service.version", VERSION)];
    attributes.extend(node.map(|node| text("service.instance.id", node)));
    json!({"attributes": attributes})
}

/// A body for `/v1/traces`.
pub(super) fn body(resource: &Value, spans: &[Ended]) -> Vec<u8> {
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let scope = json!({"name": "satcast", "version": VERSION});
    let body =
        json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}]});
    body.to_string().into_bytes()
}

fn span(ended: &Ended) -> Value {
    let (context, fields) = (ended.place.context, &ended.fields);
    let attributes: Vec<Value> =
        fields.iter().map(|(key, value)| json!({"key": name(key), "value": shown(value)})).collect();
    let mut span = json!({
        "traceId": format!("{:032x}", context.trace),
        "spanId": format!("{:016x}", context.span),
        "name": title(ended),
        "kind": kind(ended.name),
        // 64 bits are texts in the JSON of Protocol Buffers.
        "startTimeUnixNano": ended.start.to_string(),
        "endTimeUnixNano": ended.end.to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = ended.place.parent {
        span["parentSpanId"] = json!(format!("{parent:016x}"));
    }
    if has_failed(ended) {
        span["status"] = json!({"code": FAILED});
    }
    span
}

fn name(key: &str) -> String {
    let known = NAMES.iter().find(|(own, _)| *own == key);
    known.map_or_else(|| format!("satcast.{key}"), |(_, name)| (*name).to_owned())
}

/// A request has its method and route.
fn title(ended: &Ended) -> String {
    match (ended.fields.get("method"), ended.fields.get("route")) {
        (Some(FieldValue::Text(method)), Some(FieldValue::Text(route))) => format!("{method} {route}"),
        _ => ended.name.to_owned(),
    }
}

fn kind(name: &str) -> u8 {
    match name {
        "request" => SERVER,
        "webhook" => CLIENT,
        _ => INTERNAL,
    }
}

/// Whether it has an error, or a status that says that the service has a fault.
fn has_failed(ended: &Ended) -> bool {
    let status = ended.fields.get("status");
    ended.fields.get("error").is_some() || matches!(status, Some(FieldValue::Number(500..)))
}

fn shown(value: &FieldValue) -> Value {
    match value {
        FieldValue::Text(text) => json!({"stringValue": text}),
        FieldValue::Number(number) => json!({"intValue": number.to_string()}),
        FieldValue::Flag(flag) => json!({"boolValue": flag}),
    }
}
