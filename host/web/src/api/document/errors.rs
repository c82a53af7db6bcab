//! The error responses of the document, and the operations that return them.

use serde_json::{Value, json};

use super::traits::Traits;

/// Errors that do not follow from the parameters of an operation: operation id, status, name of the response.
///
/// If a line is missing here, the API's tests fail with the operation and the status.
const MORE: &[(&str, &str, &str)] = &[
    ("createStream", "503", "DriverUnavailable"),
    ("addDestination", "503", "DriverUnavailable"),
    ("changeDestination", "503", "DriverUnavailable"),
    ("setSlate", "503", "Busy"),
    // The destination of a public key.
    ("createKey", "404", "NotFound"),
    ("changeDriver", "404", "NotFound"),
    // A permanent key without the scope `read`.
    ("getActiveCost", "403", "Forbidden"),
    ("recoverArchive", "402", "InsufficientFunds"),
    ("recoverArchive", "404", "NotFound"),
    ("deleteArchive", "409", "Conflict"),
    ("createClip", "402", "InsufficientFunds"),
    ("createClip", "503", "Busy"),
    // No wallet to receive payments.
    ("connectWallet", "409", "Conflict"),
    ("getWalletBalance", "503", "WalletSilent"),
    ("followEvents", "503", "Busy"),
    // The stream key that the webhook is restricted to.
    ("createWebhook", "404", "NotFound"),
    ("testWebhook", "503", "Busy"),
    // Another request has just ended the session.
    ("logOut", "404", "NotFound"),
    ("changePassword", "503", "Busy"),
    ("logIn", "401", "Unauthorized"),
    // An operator disabled the account.
    ("logIn", "403", "Forbidden"),
    ("logIn", "502", "StoreFailed"),
    ("logIn", "503", "Busy"),
    ("setUp", "403", "Forbidden"),
    ("setUp", "404", "NotFound"),
    ("setUp", "409", "Conflict"),
    ("setUp", "422", "Refused"),
    ("setUp", "502", "StoreFailed"),
    ("setUp", "503", "Busy"),
];

/// Operations that refuse no readable value.
const TAKES_ALL: &[&str] = &["logIn", "recoverArchive", "changeArchive"];

/// Declares the error schema and the shared error responses.
pub(super) fn declare(document: &mut Value) {
    document["components"]["schemas"]["Error"] = error_schema();
    document["components"]["responses"] = responses();
}

/// Adds references to all error responses of the operation `id`.
pub(super) fn describe(operation: &mut Value, id: &str, is: &Traits) {
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    let rules = [
        ("400", is.has_parameters || is.has_body || is.once, "Malformed"),
        ("400", is.secured && is.public, "KeyRequired"),
        ("401", is.secured, "Unauthorized"),
        ("403", is.secured && !is.public, "Forbidden"),
        ("404", is.has_id, "NotFound"),
        ("409", is.once, "Conflict"),
        ("413", is.has_body || is.once, "BodyTooLarge"),
        ("415", is.has_body, "ContentTypeNotSupported"),
        ("422", is.has_body && !TAKES_ALL.contains(&id), "Refused"),
        ("429", true, "RateLimited"),
        ("500", true, "Internal"),
        ("502", is.secured, "StoreFailed"),
    ];
    let rules =
        rules.into_iter().filter(|(_, applies, _)| *applies).map(|(status, _, answer)| (status, answer));
    let more =
        MORE.iter().filter(|(operation, ..)| *operation == id).map(|(_, status, name)| (*status, *name));
    for (status, name) in rules.chain(more) {
        responses.insert(status.to_owned(), json!({"$ref": format!("#/components/responses/{name}")}));
    }
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "description": "Body of every error response.",
        "required": ["error", "code", "requestId"],
        "properties": {
            "error": {"type": "string", "description": "Text for people."},
            "code": {"type": "string", "description": "Code for programs."},
            "requestId": {"type": "string", "description": "Identifies the request in the operator's log."},
            "retryAfter": {
                "type": "integer", "minimum": 1,
                "description": "Seconds to wait before trying again; only with statuses 404, 429 and 503."
            }
        }
    })
}

/// A response of the document with an example.
pub(super) fn answer(description: &str, code: &str, error: &str) -> Value {
    let example = json!({"error": error, "code": code, "requestId": "req_4f9zQ0cTvW3nJk8s"});
    let schema = json!({"$ref": "#/components/schemas/Error"});
    json!({
        "description": description,
        "headers": {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}},
        "content": {"application/json": {"schema": schema, "example": example}}
    })
}

fn responses() -> Value {
    let text = "Rate limit exceeded. Maximum 60 requests per minute.";
    let mut limited = answer("Too many requests", "rate_limited", text);
    limited["content"]["application/json"]["example"]["retryAfter"] = json!(17);
    for name in ["Retry-After", "RateLimit", "RateLimit-Policy"] {
        limited["headers"][name] = json!({"$ref": format!("#/components/headers/{name}")});
    }
    let key = "An API key is required: send it as X-API-Key header, as Authorization: Bearer header, or as apiKey \
        (or key) query parameter";
    json!({
        "Malformed": answer("The request is malformed; the text names the field", "malformed_field",
            "Field `label` is required"),
        "KeyRequired": answer("No key was sent; the text lists the ways to send one", "key_required", key),
        "Unauthorized": answer("No key, or an invalid key", "invalid_key", "Invalid API key"),
        "InsufficientFunds": answer("The account cannot pay", "insufficient_funds",
            "Recovering a recording costs 360 sats and the balance is 12 sats; add credit first"),
        "Forbidden": answer("The kind of key is not allowed here, or the key lacks the scope", "scope_not_allowed",
            "This key lacks the scope \"manage\"; use a key that has it"),
        "NotFound": answer("Unknown, or owned by another account", "not_found", "No such stream"),
        "Conflict": answer("A cap is reached, the state does not allow it, or the Idempotency-Key is in use",
            "cap_reached", "A stream can have 50 destinations; send fewer"),
        "BodyTooLarge": answer("The body is too large", "body_too_large",
            "The request body is larger than 262144 bytes"),
        "ContentTypeNotSupported": answer("The Content-Type is not the one of the operation", "content_type_not_supported",
            "Send the body as JSON with the header Content-Type: application/json"),
        "Refused": answer("A value is refused; the text names the field", "label_refused",
            "Field `label` must have 1 to 128 characters"),
        "RateLimited": limited,
        "Internal": answer("An internal error of the service", "internal",
            "Internal error; give the requestId to the operator"),
        "StoreFailed": answer("The database, a wallet, or the archive store failed", "store_failed",
            "The database failed; try again, then give the requestId to the operator"),
        "DriverUnavailable": answer("The driver of a destination type does not respond or has failed", "driver_unavailable",
            "The driver of this destination type does not respond or has failed; try again, then tell the operator"),
        "WalletSilent": answer("The connected wallet does not respond", "wallet_silent",
            "The connected wallet does not respond, and its last known balance is over a minute old; try again in a moment"),
        "Busy": answer("Too many requests of this kind at once", "busy",
            "Too many logins are running; try again in a few seconds"),
    })
}
