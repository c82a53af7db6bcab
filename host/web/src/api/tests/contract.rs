//! Checks every response of every test against the document: its status is declared, and its body has the declared schema.

use std::sync::OnceLock;

use poem::http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};

use super::{Rig, drivers};
use crate::api::document::document;
use crate::api::document::testing::{Unknown, first_fault};
use crate::base::requests::matches_template;

/// The document of the test service.
pub(super) fn documented() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| document(&drivers().schemas()))
}

/// Asserts that the document declares the response for its operation; paths outside the document are skipped.
#[track_caller]
pub(crate) fn check(method: &Method, path: &str, status: StatusCode, headers: &HeaderMap, text: &str) {
    let document = documented();
    let paths = document["paths"].as_object().unwrap();
    let exact = paths.get_key_value(path);
    let Some((template, operations)) =
        exact.or_else(|| paths.iter().find(|(template, _)| matches_template(template, path)))
    else {
        return;
    };
    // HEAD is GET without its body.
    let documented = if *method == Method::HEAD { "get".to_owned() } else { method.as_str().to_lowercase() };
    let Some(operation) = operations.get(&documented) else {
        let expected = if *method == Method::OPTIONS { [204, 405] } else { [405, 405] };
        assert!(
            expected.contains(&status.as_u16()),
            "{method} {template} is undocumented and answers {status}"
        );
        return;
    };
    let place = format!("{} ({method} {template}) answers {status}", operation["operationId"]);
    let response = &operation["responses"][status.as_str()];
    assert!(
        response.is_object(),
        "{place}, which the document does not declare; add it to MORE in host/web/src/api/document/errors.rs"
    );
    let reference = response["$ref"].as_str().and_then(|path| document.pointer(path.trim_start_matches('#')));
    let response = reference.unwrap_or(response);
    for (name, _) in headers.iter().filter(|(name, _)| DECLARED.contains(&name.as_str())) {
        let mut declared = response["headers"].as_object().into_iter().flatten().map(|(name, _)| name);
        assert!(
            declared.any(|known| known.eq_ignore_ascii_case(name.as_str())),
            "{place} with header {name}"
        );
    }
    let kind = headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    if *method != Method::HEAD && !text.is_empty() {
        assert!(response["content"][kind].is_object(), "{place} with content type {kind:?}");
    }
    if kind != "application/json" {
        return;
    }
    let schema = &response["content"]["application/json"]["schema"];
    if *method != Method::HEAD && !schema.is_null() {
        let body: Value =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{place}: {error}: {text}"));
        let fault = first_fault(document, schema, &body, Unknown::Fault);
        assert_eq!(fault, None, "{place} with {body}");
    }
}

/// Headers that must be declared where they are sent.
const DECLARED: [&str; 3] = ["link", "retry-after", "idempotent-replayed"];

#[tokio::test]
async fn the_served_document_describes_the_loaded_drivers() {
    let rig = Rig::new().await;
    let served = rig.get("/openapi.json").await.ok();
    assert_eq!(&served, documented());
    let choices = &served["components"]["schemas"]["NewDestination"]["discriminator"]["mapping"];
    let names: Vec<_> = choices.as_object().unwrap().keys().collect();
    assert_eq!(names, ["rtmp", "self-hosted"]);
}

/// The document and the service accept the same destination bodies.
#[tokio::test]
async fn bodies_are_accepted_as_documented() {
    let rig = Rig::new().await;
    let path = format!("/api/streams/{}/destinations", rig.stream().await);
    let schema = json!({"$ref": "#/components/schemas/NewDestination"});
    for body in [
        json!({"type": "rtmp", "config": {"url": "rtmp://a.example/live"}}),
        json!({"type": "rtmp", "config": {"url": "rtmp://a.example/live", "key": null}}),
        json!({"type": "rtmp", "config": {"url": 3}}),
        json!({"type": "rtmp", "config": {"key": "x"}}),
        json!({"type": "rtmp", "config": {"url": "rtmp://a.example/live", "more": 1}}),
        json!({"type": "rtmp", "config": null}),
        json!({"type": "rtmp"}),
        json!({"type": "self-hosted"}),
        json!({"type": "self-hosted", "config": {"dvrSeconds": null}}),
        json!({"type": "self-hosted", "config": {"dvrSeconds": -1}}),
        json!({"type": "self-hosted", "more": 1}),
        json!({"type": "unknown", "config": {}}),
        json!({"config": {}}),
        json!({"type": null}),
        json!([]),
    ] {
        let declared = first_fault(documented(), &schema, &body, Unknown::Allowed).is_none();
        let status = rig.post(&path, &body).await.status;
        assert_eq!(declared, status == StatusCode::OK, "{body} gives {status}");
    }
}
