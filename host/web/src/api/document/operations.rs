//! Completes every operation: security, errors, headers and links.

use serde_json::{Map, Value, json};

use super::errors;
use super::traits::{Traits, has_tag};
use crate::api::idempotency::{IDEMPOTENCY_KEY, KEY_BYTES_MAX};
use crate::auth::LOGIN_COOKIE;

/// Security scheme of the session cookie.
const COOKIE: &str = "sessionCookie";
/// Operations that a login session may not call.
const KEYS_ONLY: &[&str] = &["getStreamStatus"];
/// Tag of the operations that accept only permanent keys.
const PERMANENT_ONLY: &str = "Webhooks";
/// The operation with an endless response.
const FOLLOWS: &str = "followEvents";

/// Parameters of a linked operation, and where in the request and response they come from.
type Sources = &'static [(&'static str, &'static str)];
/// Links to follow-up operations: operation id, id of the linked operation, sources of its parameters.
const LINKS: &[(&str, &str, Sources)] = &[
    ("createStream", "getStream", ANSWERED),
    ("createStream", "changeStream", ANSWERED),
    ("createStream", "setLimits", ANSWERED),
    ("createStream", "listDestinations", ANSWERED),
    ("createStream", "addDestination", ANSWERED),
    ("createStream", "stopStream", ANSWERED),
    ("createStream", "rotateStreamKey", ANSWERED),
    ("createStream", "setSlate", ANSWERED),
    ("createStream", "deleteStream", ANSWERED),
    ("addDestination", "changeDestination", OF_STREAM),
    ("addDestination", "deleteStreamDestination", OF_STREAM),
    ("addDestination", "deleteDestination", ANSWERED),
    ("createKey", "rotateKey", ANSWERED),
    ("createKey", "revokeKey", ANSWERED),
    ("rotateKey", "revokeKey", ANSWERED),
    ("listLoginSessions", "endLoginSession", FIRST_LISTED),
    ("createWebhook", "testWebhook", ANSWERED),
    ("createWebhook", "listWebhookDeliveries", ANSWERED),
    ("createWebhook", "enableWebhook", ANSWERED),
    ("createWebhook", "rotateWebhookSecret", ANSWERED),
    ("createWebhook", "deleteWebhook", ANSWERED),
    (
        "testWebhook",
        "redeliverWebhookDelivery",
        &[("id", "$request.path.id"), ("deliveryId", "$response.body#/deliveryId")],
    ),
    (
        "listWebhookDeliveries",
        "redeliverWebhookDelivery",
        &[("id", "$request.path.id"), ("deliveryId", "$response.body#/0/id")],
    ),
    ("listArchives", "deleteArchive", FIRST_LISTED),
    ("createClip", "getClip", ANSWERED),
    ("createClip", "changeClip", ANSWERED),
    ("createClip", "deleteClip", ANSWERED),
    ("createAccount", "changeAccount", ANSWERED),
    ("createTopUp", "getTopUp", &[("id", "$response.body#/invoiceId")]),
];
const ANSWERED: Sources = &[("id", "$response.body#/id")];
const FIRST_LISTED: Sources = &[("id", "$response.body#/0/id")];
const OF_STREAM: Sources = &[("id", "$request.path.id"), ("destId", "$response.body#/id")];

/// Completes every operation.
pub(super) fn describe(document: &mut Value) {
    document["components"]["headers"] = headers();
    document["components"]["securitySchemes"][COOKIE] = json!({
        "type": "apiKey", "in": "cookie", "name": LOGIN_COOKIE,
        "description": "The login session; writes also need the header `X-Requested-With`."
    });
    let Some(paths) = document["paths"].as_object_mut() else { return };
    for (method, operation) in paths.values_mut().filter_map(Value::as_object_mut).flat_map(Map::iter_mut) {
        let is = Traits::of(method, operation);
        let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
        parameters(operation, &id, &is);
        errors::describe(operation, &id, &is);
        success(operation, &is);
        links(operation, &id);
        security(operation, &id, &is);
    }
}

fn parameters(operation: &mut Value, id: &str, is: &Traits) {
    let more = [(is.once, key_parameter as fn() -> Value), (id == FOLLOWS, last_event_parameter)];
    for (_, parameter) in more.into_iter().filter(|(applies, _)| *applies) {
        let mut parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        parameters.push(parameter());
        operation["parameters"] = Value::Array(parameters);
    }
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        if parameter["name"] == "cursor" {
            parameter["schema"]["pattern"] = json!("^[1-9][0-9]{0,17}$");
        }
    }
}

fn success(operation: &mut Value, is: &Traits) {
    let Some(success) = operation["responses"].get_mut("200") else { return };
    if success["description"] == "" {
        success["description"] = json!("Success");
    }
    let names = ["X-Request-Id", "RateLimit", "RateLimit-Policy"];
    let more = [(is.is_list, "Link"), (is.once, "Idempotent-Replayed")];
    let names = names.into_iter().chain(more.into_iter().filter(|(has, _)| *has).map(|(_, name)| name));
    let references =
        names.map(|name| (name.to_owned(), json!({"$ref": format!("#/components/headers/{name}")})));
    success["headers"] = Value::Object(references.collect());
}

fn links(operation: &mut Value, id: &str) {
    for (_, next, parameters) in LINKS.iter().filter(|(from, ..)| *from == id) {
        let parameters: Map<String, Value> =
            parameters.iter().map(|(name, from)| ((*name).to_owned(), json!(from))).collect();
        operation["responses"]["200"]["links"][next] = json!({"operationId": next, "parameters": parameters});
    }
}

/// Operations without a key are declared so; operations that accept a session also accept the cookie.
fn security(operation: &mut Value, id: &str, is: &Traits) {
    if !is.secured {
        operation["security"] = json!([]);
    } else if !KEYS_ONLY.contains(&id) && !has_tag(operation, PERMANENT_ONLY) {
        let schemes = operation["security"].as_array_mut();
        schemes.into_iter().for_each(|schemes| schemes.push(json!({COOKIE: []})));
    }
}

/// The header that makes it safe to repeat a POST.
fn key_parameter() -> Value {
    json!({
        "name": IDEMPOTENCY_KEY, "in": "header", "required": false,
        "description": "Makes a repeated request safe: for 24 hours, a request with the same key gets the response of the \
        first success and is not executed again. The same key with a different body is refused.",
        "schema": {"type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX, "pattern": "^[ -~]+$"}
    })
}

/// The header by which a client resumes an event stream; an unreadable value is treated as too old.
fn last_event_parameter() -> Value {
    json!({
        "name": "Last-Event-ID", "in": "header", "required": false,
        "description": "Id of the last event that the client has seen; the response continues after it.",
        "schema": {"type": "string"}
    })
}

fn headers() -> Value {
    let header =
        |description: &str, kind: &str| json!({"description": description, "schema": {"type": kind}});
    json!({
        "X-Request-Id": header("Identifies the request in the operator's log.", "string"),
        "Link": header("The next page with rel=\"next\"; absent on the last page.", "string"),
        "Idempotent-Replayed": header("`true` if this is the response of an earlier request.", "string"),
        "Retry-After": header("Seconds to wait before trying again.", "integer"),
        "RateLimit": header("Remaining requests, and seconds until more are allowed.", "string"),
        "RateLimit-Policy": header("Requests per window, and length of the window in seconds.", "string"),
    })
}
