//! What every operation has besides what its handler says: who may call it, its errors, its headers.

use serde_json::{Map, Value, json};

use super::errors;
use super::traits::{Traits, has_tag};
use crate::api::idempotency::{IDEMPOTENCY_KEY, KEY_BYTES_MAX};
use crate::auth::LOGIN_COOKIE;

/// The scheme of the cookie that a login sets.
const COOKIE: &str = "sessionCookie";
/// Operations that no login session may call.
const KEYS_ONLY: &[&str] = &["getStreamStatus"];
/// The group of operations that take permanent keys alone.
const PERMANENT_ONLY: &str = "Webhooks";
/// The operation whose answer never ends.
const FOLLOWS: &str = "followEvents";

/// Parameters of an operation, and where in a request and its answer they come from.
type Sources = &'static [(&'static str, &'static str)];
/// What can be done next with what an operation made: its id, the other operation's, and where its parameters come from.
const LINKS: &[(&str, &str, Sources)] = &[
    ("createStream", "getStream", ANSWERED),
    ("createStream", "changeStream", ANSWERED),
    ("createStream", "setLimits", ANSWERED),
    ("createStream", "listDestinations", ANSWERED),
    ("createStream", "addDestination", ANSWERED),
    ("createStream", "stopStream", ANSWERED),
    ("createStream", "rotateStreamKey", ANSWERED),
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
        "description": "The session of somebody who logged in; writes also need the header `X-Requested-With`."
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

/// An operation that needs no key says so; one that takes a session may be called with the cookie.
fn security(operation: &mut Value, id: &str, is: &Traits) {
    if !is.secured {
        operation["security"] = json!([]);
    } else if !KEYS_ONLY.contains(&id) && !has_tag(operation, PERMANENT_ONLY) {
        let schemes = operation["security"].as_array_mut();
        schemes.into_iter().for_each(|schemes| schemes.push(json!({COOKIE: []})));
    }
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

/// The header with which a follower goes on where it was; one that cannot be read is as good as one that is too old.
fn last_event_parameter() -> Value {
    json!({
        "name": "Last-Event-ID", "in": "header", "required": false,
        "description": "The id of the last event that was seen: the answer goes on after it.",
        "schema": {"type": "string"}
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
