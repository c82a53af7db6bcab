//! The OpenAPI document: generated from the handlers, then completed and corrected by one deterministic function.
//!
//! It is served, printed by `satcast openapi`, and committed as `openapi/openapi.json`, which `cargo xtask test` compares. It
//! describes the destination configurations of the loaded drivers.

mod convert;
mod errors;
mod examples;
mod generated;
mod operations;
mod playback;
#[cfg(test)]
pub(in crate::api) mod testing;
mod traits;
mod union;
mod webhooks;
mod whip;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

#[cfg(test)]
pub(super) use self::traits::{is_public, is_secured};
use crate::base::middleware;
use satcast_drivers::{Drivers, TypeSchema};

/// Order of the groups: as in the specification, then those that it does not have.
const GROUPS: [&str; 9] =
    ["Public", "Streams", "Destinations", "Wallet", "Analytics", "Archives", "Webhooks", "Keys", "Accounts"];

/// The complete document with these destination types. The same types give the same text.
pub fn document(types: &[TypeSchema]) -> Value {
    let mut document = generated::document();
    document["openapi"] = json!("3.0.3");
    document["info"]["description"] = json!(
        "Forwards a live stream to many destinations, plays it back over HLS and meters it in sats. \
         Times are Unix milliseconds unless a field says otherwise."
    );
    document["info"]["license"] = json!({"name": "MIT", "url": "https://opensource.org/license/mit"});
    document["servers"] = json!([{"url": "/", "description": "This service"}]);
    in_order(&mut document["tags"]);
    union::describe(&mut document, types);
    errors::declare(&mut document);
    operations::describe(&mut document);
    playback::describe(&mut document);
    whip::describe(&mut document);
    webhooks::describe(&mut document);
    examples::describe(&mut document);
    document.sort_all_objects();
    document
}

/// Sorts the groups, which are generated in the order of their names.
fn in_order(groups: &mut Value) {
    let place = |group: &Value| GROUPS.iter().position(|name| group["name"] == *name).unwrap_or(GROUPS.len());
    groups.as_array_mut().into_iter().for_each(|groups| groups.sort_by_key(place));
}

/// The document as committed and served: sorted keys, two spaces, one final line break.
pub fn document_text(document: &Value) -> String {
    format!("{document:#}\n")
}

/// Cache of the current document, which is generated when it is first asked for, and again when the loaded drivers change.
pub(super) struct Documents {
    drivers: Drivers,
    /// The version of the drivers, and the document as JSON.
    now: Mutex<Option<(u64, Arc<str>)>>,
}

impl Documents {
    pub(super) fn new(drivers: &Drivers) -> Self {
        Self { drivers: drivers.clone(), now: Mutex::default() }
    }

    /// The document for the current drivers.
    pub(super) fn get(&self) -> Arc<str> {
        let mut now = self.now.lock();
        // Read before the types, so that a change in between causes another generation.
        let version = self.drivers.version();
        match &*now {
            Some((known, text)) if *known == version => text.clone(),
            _ => {
                let text: Arc<str> = document_text(&document(&self.drivers.schemas())).into();
                *now = Some((version, text.clone()));
                text
            }
        }
    }
}

/// The `Allow` header of every path: `/api/streams/{id}` gives `DELETE, GET, HEAD`. It needs no document, whose generation would delay
/// every start.
pub(super) fn methods_by_path() -> BTreeMap<String, String> {
    let mut described = Value::Null;
    playback::describe(&mut described);
    whip::describe(&mut described);
    let mut paths: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, method) in generated::operations().into_iter().chain(operations_of(&described)) {
        paths.entry(path).or_default().push(method);
    }
    for (path, methods) in &mut paths {
        if methods.iter().any(|name| name == "GET") {
            methods.push("HEAD".to_owned());
        }
        if middleware::has_cors(path) {
            methods.push("OPTIONS".to_owned());
        }
        methods.sort();
    }
    paths.into_iter().map(|(path, methods)| (path, methods.join(", "))).collect()
}

/// Path and method of every operation of a document.
fn operations_of(document: &Value) -> Vec<(String, String)> {
    let paths = document["paths"].as_object().into_iter().flatten();
    let operations = paths.flat_map(|(path, operations)| {
        operations.as_object().into_iter().flatten().map(move |(method, _)| (path, method))
    });
    operations.map(|(path, method)| (path.clone(), method.to_ascii_uppercase())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::testing::bundled;
    use super::*;

    #[test]
    fn every_operation_has_an_id_a_summary_and_errors() {
        let document = bundled();
        let mut count = 0;
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                count += 1;
                assert!(operation["operationId"].is_string(), "{method} {path}");
                assert!(
                    operation["summary"].as_str().is_some_and(|text| !text.is_empty()),
                    "{method} {path}"
                );
                assert_eq!(operation["responses"]["500"]["$ref"], "#/components/responses/Internal");
            }
        }
        assert!(count >= 30, "only {count} operations");
    }

    #[test]
    fn groups_are_in_the_order_of_the_specification() {
        let document = bundled();
        let groups = document["tags"].as_array().unwrap().iter();
        assert!(groups.map(|group| group["name"].as_str().unwrap()).eq(GROUPS), "{}", document["tags"]);
    }

    #[test]
    fn allow_headers_name_the_operations_of_the_document() {
        let methods = methods_by_path();
        assert_eq!(methods["/api/streams"], "GET, HEAD, POST");
        assert_eq!(methods["/api/public/config"], "GET, HEAD, OPTIONS");
        assert_eq!(methods["/api/streams/{id}/destinations/{destId}"], "DELETE, PATCH");
        let allowed = methods.iter().flat_map(|(path, methods)| {
            methods.split(", ").map(move |method| (path.clone(), method.to_owned()))
        });
        let allowed = allowed.filter(|(_, method)| !["HEAD", "OPTIONS"].contains(&method.as_str()));
        assert!(allowed.eq(BTreeSet::from_iter(operations_of(&bundled()))));
    }

    #[test]
    fn the_same_types_give_the_same_text_in_any_order() {
        let mut types = testing::bundled_types();
        let first = document_text(&document(&types));
        types.reverse();
        assert!(document_text(&document(&types)) == first);
        assert!(first.ends_with("}\n") && !first.contains("; charset"));
    }

    #[test]
    fn links_name_operations_and_their_parameters() {
        let document = bundled();
        let operations = || {
            let paths = document["paths"].as_object().unwrap().values();
            paths.flat_map(|path| path.as_object().unwrap().values())
        };
        let links = operations().filter_map(|operation| operation["responses"]["200"]["links"].as_object());
        let links: Vec<_> = links.flat_map(|links| links.values()).collect();
        assert!(links.len() >= 23, "{links:?}");
        for link in links {
            let next = operations().find(|operation| operation["operationId"] == link["operationId"]);
            let parameters = next.unwrap_or_else(|| panic!("{link}"))["parameters"].as_array().unwrap();
            for (name, from) in link["parameters"].as_object().unwrap() {
                assert!(parameters.iter().any(|parameter| parameter["name"] == json!(name)), "{link}");
                assert!(from.as_str().unwrap().starts_with('$'), "{link}");
            }
        }
    }

    #[test]
    fn every_reference_has_a_target() {
        let document = bundled();
        let text = document.to_string();
        let targets = text.match_indices("\"$ref\":\"#").map(|(at, found)| {
            let rest = &text[at + found.len()..];
            &rest[..rest.find('"').unwrap()]
        });
        let mut count = 0;
        for target in targets {
            count += 1;
            assert!(document.pointer(target).is_some(), "{target}");
        }
        assert!(count > 100, "{count} references");
    }

    #[test]
    fn nullable_fields_are_required_and_nullable() {
        let document = bundled();
        let destination = &document["components"]["schemas"]["Destination"];
        for name in ["config", "error", "nextRetryAt", "liveSince", "stateSince"] {
            assert_eq!(destination["properties"][name]["nullable"], true, "{name}");
            assert!(destination["required"].as_array().unwrap().contains(&json!(name)), "{name}");
        }
    }

    /// OpenAPI 3.0.3: `nullable` has an effect only beside `type`.
    #[test]
    fn nullable_schemas_have_a_type() {
        fn typeless(value: &Value, place: &str, found: &mut Vec<String>) {
            if value["nullable"] == true && !value["type"].is_string() {
                found.push(place.to_owned());
            }
            let fields = value.as_object().into_iter().flatten();
            fields.for_each(|(name, field)| typeless(field, &format!("{place}/{name}"), found));
        }
        let document = bundled();
        let mut found = Vec::new();
        typeless(&document["components"]["schemas"], "", &mut found);
        assert_eq!(found, Vec::<String>::new());
        let schemas = &document["components"]["schemas"];
        let last = &schemas["Webhook"]["properties"]["lastDelivery"];
        assert_eq!(last["properties"]["status"]["nullable"], true, "{last}");
        assert_eq!(last["description"], "The newest attempt; null before the first.");
        assert_eq!(schemas["WebhookLastDelivery"], Value::Null);
        assert_eq!(schemas["NewWebhook"]["properties"]["stream_key_id"]["nullable"], true);
    }

    #[test]
    fn the_status_has_examples_with_every_field_and_names_its_errors() {
        let document = bundled();
        let operation = &document["paths"]["/api/public/stream/status"]["get"];
        let examples = &operation["responses"]["200"]["content"]["application/json"]["examples"];
        let properties = document["components"]["schemas"]["StreamStatus"]["properties"].as_object().unwrap();
        for name in ["live", "offline"] {
            let fields = examples[name]["value"].as_object().unwrap();
            assert!(fields.keys().eq(properties.keys()), "{name}: {fields:?}");
        }
        let errors: Vec<_> = operation["responses"].as_object().unwrap().keys().collect();
        assert_eq!(errors, ["200", "400", "401", "429", "500", "502"]);
        assert_eq!(properties["streamKeyLabel"]["deprecated"], true);
        for name in ["hlsUrl", "startedAt", "startedAtMs", "latencyMs", "playbackToken"] {
            assert_eq!(properties[name]["nullable"], true, "{name}");
        }
    }
}
