//! The operations of the document.

use std::collections::BTreeSet;

use poem::http::Method;
use serde_json::Value;

use super::INTERNAL;
use crate::api::document::{is_public, is_secured};
use crate::api::tests::contract::documented;

/// One operation, as the document describes it.
pub(super) struct Operation {
    pub(super) id: &'static str,
    pub(super) method: Method,
    /// Path template with `{id}`.
    pub(super) template: &'static str,
    value: &'static Value,
}

/// All of the API.
pub(super) fn operations() -> Vec<Operation> {
    let paths = documented()["paths"].as_object().unwrap();
    // The API does not serve playback paths: `playback/tests` covers them.
    let paths = paths.iter().filter(|(template, _)| template.starts_with("/api/"));
    let operations = paths.flat_map(|(template, operations)| {
        operations.as_object().unwrap().iter().map(move |(method, value)| Operation {
            id: value["operationId"].as_str().unwrap(),
            method: method.to_uppercase().parse().unwrap(),
            template,
            value,
        })
    });
    operations.collect()
}

impl Operation {
    pub(super) fn is_secured(&self) -> bool {
        is_secured(self.value)
    }

    pub(super) fn is_public(&self) -> bool {
        is_public(self.value)
    }

    pub(super) fn reads(&self) -> bool {
        self.method == Method::GET
    }

    pub(super) fn has_id(&self) -> bool {
        self.template.contains('{')
    }

    /// The schema of its body.
    pub(super) fn body(&self) -> Option<&'static Value> {
        self.value.pointer("/requestBody/content/application~1json/schema")
    }

    /// Names of its parameters in `place` (`query`, `header`, `path`).
    pub(super) fn parameters(&self, place: &str) -> Vec<&'static str> {
        let parameters = self.value["parameters"].as_array().into_iter().flatten();
        let named = parameters.filter(|parameter| parameter["in"] == place);
        named.map(|parameter| parameter["name"].as_str().unwrap()).collect()
    }

    /// Whether it accepts an `Idempotency-Key`.
    pub(super) fn is_once(&self) -> bool {
        self.parameters("header").contains(&"Idempotency-Key")
    }

    /// The declared statuses, without internal errors.
    pub(super) fn declared(&self) -> BTreeSet<u16> {
        let statuses = self.value["responses"].as_object().unwrap().keys();
        statuses.map(|status| status.parse().unwrap()).filter(|status| *status != INTERNAL).collect()
    }
}
