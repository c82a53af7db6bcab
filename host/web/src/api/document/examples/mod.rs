//! Examples of every operation: request bodies and successful responses.
//!
//! They stand in `examples/*.json`, one file for each group of operations, by the operation's id:
//! `{"createThing": {"request": BODY, "answer": BODY}}`, or with several of each `"requests"` and `"answers"`:
//! `{"name": {"summary": TEXT, "value": BODY}}`; `"csv"` is the answer in that form. The tests hold each against its shape, and fail for an operation that
//! lacks one.

use serde_json::{Map, Value, json};

/// The files.
const FILES: &[&str] = &[
    include_str!("accounts.json"),
    include_str!("analytics.json"),
    include_str!("archives.json"),
    include_str!("audit.json"),
    include_str!("clips.json"),
    include_str!("destinations.json"),
    include_str!("keys.json"),
    include_str!("public.json"),
    include_str!("streams.json"),
    include_str!("wallet.json"),
    include_str!("webhooks.json"),
];

/// Puts the examples beside the shapes of bodies and successful answers.
pub(super) fn describe(document: &mut Value) {
    let mut all = Map::new();
    for file in FILES {
        // A file that cannot be read is found by the tests: its operations lack examples.
        let examples: Value = serde_json::from_str(file).unwrap_or_default();
        all.extend(examples.as_object().cloned().unwrap_or_default());
    }
    all.insert("getStreamStatus".to_owned(), json!({"answers": crate::api::status::examples()}));
    let Some(paths) = document["paths"].as_object_mut() else { return };
    for operation in paths.values_mut().filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
        let Some(examples) = operation["operationId"].as_str().and_then(|id| all.get(id)) else { continue };
        let bodies = operation.get_mut("requestBody").map(|body| &mut body["content"]);
        attach(bodies, examples, "request");
        let answers = operation["responses"].get_mut("200").map(|answer| &mut answer["content"]);
        attach(answers, examples, "answer");
    }
}

/// One example of each kind of content, or several.
fn attach(content: Option<&mut Value>, examples: &Value, one: &str) {
    let several = format!("{one}s");
    for (kind, media) in content.and_then(Value::as_object_mut).into_iter().flatten() {
        // The same entries in another form.
        if let Some(csv) = examples.get("csv").filter(|_| kind == "text/csv") {
            media["example"] = csv.clone();
            continue;
        }
        for (name, value) in [("example", examples.get(one)), ("examples", examples.get(&several))] {
            if let Some(value) = value {
                media[name] = value.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document::testing::{Unknown, bundled, first_fault};

    #[test]
    fn every_file_can_be_read_and_every_example_belongs_to_an_operation() {
        let document = bundled();
        let ids: Vec<&str> =
            operations(&document).map(|(_, operation)| operation["operationId"].as_str().unwrap()).collect();
        for file in FILES {
            let examples: Value =
                serde_json::from_str(file).unwrap_or_else(|error| panic!("{error} in {file}"));
            for (id, kinds) in examples.as_object().unwrap() {
                assert!(ids.contains(&id.as_str()), "examples of \"{id}\", which is no operation");
                for kind in kinds.as_object().unwrap().keys() {
                    assert!(
                        ["request", "requests", "answer", "answers", "csv"].contains(&kind.as_str()),
                        "{id}: {kind}"
                    );
                }
            }
        }
    }

    #[test]
    fn every_operation_has_true_examples() {
        let document = bundled();
        let mut missing = Vec::new();
        for (place, operation) in operations(&document) {
            let id = operation["operationId"].as_str().unwrap();
            for (part, content) in [
                ("request", &operation["requestBody"]["content"]),
                ("answer", &operation["responses"]["200"]["content"]),
            ] {
                // Nobody reads an example of media.
                let is_text = |media: &&Value| media["schema"]["format"] != "binary";
                for media in content.as_object().into_iter().flat_map(Map::values).filter(is_text) {
                    let named = media["examples"].as_object().into_iter().flat_map(Map::values);
                    let values: Vec<&Value> =
                        media.get("example").into_iter().chain(named.map(|one| &one["value"])).collect();
                    if values.is_empty() {
                        missing.push(format!("\"{id}\": {{\"{part}\": ...}} ({place})"));
                    }
                    for value in values {
                        let fault = first_fault(&document, &media["schema"], value, Unknown::Fault);
                        assert_eq!(
                            fault, None,
                            "the {part} example of {id} does not match the document: {value}"
                        );
                    }
                }
            }
        }
        assert!(
            missing.is_empty(),
            "add examples to a file of host/web/src/api/document/examples (a new file also to FILES in examples.rs):\n{}",
            missing.join("\n")
        );
    }

    #[test]
    fn examples_hold_no_key_that_could_be_real() {
        for file in FILES {
            let words = file.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for word in words {
                assert_eq!(satcast_core::secret::api_key_kind(word), None, "{word}");
            }
        }
    }

    fn operations(document: &Value) -> impl Iterator<Item = (String, &Value)> {
        let paths = document["paths"].as_object().into_iter().flatten();
        paths.flat_map(|(path, operations)| {
            let operations = operations.as_object().into_iter().flatten();
            operations.map(move |(method, operation)| (format!("{method} {path}"), operation))
        })
    }
}
