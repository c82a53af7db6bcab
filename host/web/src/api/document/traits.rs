//! What the document already says of an operation, from which its answers follow.

use serde_json::Value;

/// What an operation takes, as far as its answers follow from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    /// It needs a key or a session.
    pub(super) secured: bool,
    /// It is for websites and players.
    pub(super) public: bool,
    /// It names something in its path.
    pub(super) has_id: bool,
    /// It has parameters of its own.
    pub(super) has_parameters: bool,
    /// It is one page of a list.
    pub(super) is_list: bool,
    /// It takes a body.
    pub(super) has_body: bool,
    /// It can be sent again under an `Idempotency-Key`.
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
            once: secured && method == "post",
        }
    }
}

/// Whether an operation needs a key or a session.
pub(in crate::api) fn is_secured(operation: &Value) -> bool {
    operation["security"].as_array().is_some_and(|schemes| !schemes.is_empty())
}

/// Whether an operation is one of those for websites and players.
pub(in crate::api) fn is_public(operation: &Value) -> bool {
    has_tag(operation, "Public")
}

pub(super) fn has_tag(operation: &Value, name: &str) -> bool {
    operation["tags"].as_array().is_some_and(|tags| tags.iter().any(|tag| tag == name))
}
