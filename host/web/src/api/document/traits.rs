//! Properties of an operation in the document, from which its responses follow.

use serde_json::Value;

/// Properties of an operation that decide its responses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    /// Needs a key or a session.
    pub(super) secured: bool,
    /// For websites and players.
    pub(super) public: bool,
    /// Has a path parameter.
    pub(super) has_id: bool,
    /// Has parameters of its own.
    pub(super) has_parameters: bool,
    /// Returns one page of a list.
    pub(super) is_list: bool,
    /// Takes a body.
    pub(super) has_body: bool,
    /// Can be repeated with an `Idempotency-Key`.
    pub(super) once: bool,
}

impl Traits {
    pub(super) fn of(method: &str, operation: &Value) -> Self {
        let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
        let secured = is_secured(operation);
        Self {
            secured,
            public: is_public(operation),
            has_id: parameters.iter().any(|parameter| parameter["in"] == "path"),
            has_parameters: !parameters.is_empty(),
            is_list: parameters.iter().any(|parameter| parameter["name"] == "cursor"),
            has_body: operation.get("requestBody").is_some(),
            once: secured && matches!(method, "post" | "patch"),
        }
    }
}

/// Whether an operation needs a key or a session.
pub(in crate::api) fn is_secured(operation: &Value) -> bool {
    operation["security"].as_array().is_some_and(|schemes| !schemes.is_empty())
}

/// Whether an operation is for websites and players.
pub(in crate::api) fn is_public(operation: &Value) -> bool {
    has_tag(operation, "Public")
}

pub(super) fn has_tag(operation: &Value, name: &str) -> bool {
    operation["tags"].as_array().is_some_and(|tags| tags.iter().any(|tag| tag == name))
}
