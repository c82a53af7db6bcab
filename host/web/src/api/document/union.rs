//! The configuration of a destination: one schema for each destination type of the loaded drivers.

use serde_json::{Value, json};

use super::convert::config_schema;
use satcast_drivers::TypeSchema;

/// Prefixes of schema names.
const DESTINATION: &str = "NewDestination";
const CONFIG: &str = "DestinationConfig";
/// Fields that differ by type.
const OF_TYPE: [&str; 2] = ["type", "config"];

/// Makes `NewDestination` a choice between the types, discriminated by `type`. Without types, `config` stays a plain object.
pub(super) fn describe(document: &mut Value, types: &[TypeSchema]) {
    let schemas = &mut document["components"]["schemas"];
    let description = schemas[DESTINATION]["description"].clone();
    let mut common = schemas[DESTINATION]["properties"].clone();
    if let Some(common) = common.as_object_mut() {
        OF_TYPE.iter().for_each(|name| drop(common.remove(*name)));
    }
    if types.is_empty() {
        return;
    }
    let mut sorted: Vec<&TypeSchema> = types.iter().collect();
    sorted.sort_by(|left, right| left.name.cmp(&right.name));
    let (mut choices, mut mapping) = (Vec::new(), json!({}));
    for kind in sorted {
        let schema = config_schema(&kind.schema);
        let config = free_name(schemas, CONFIG, &kind.name);
        schemas[&config] = schema;
        let destination = free_name(schemas, DESTINATION, &kind.name);
        schemas[&destination] = choice(kind, &config, &schemas[&config], &common);
        let reference = format!("#/components/schemas/{destination}");
        mapping[&kind.name] = json!(reference);
        choices.push(json!({"$ref": reference}));
    }
    schemas[DESTINATION] = json!({
        "description": description,
        "oneOf": choices,
        "discriminator": {"propertyName": "type", "mapping": mapping}
    });
}

/// A destination of one type; `common` are the fields that every type has.
fn choice(kind: &TypeSchema, config: &str, schema: &Value, common: &Value) -> Value {
    // An omitted configuration is an empty object.
    let needs_config = schema["required"].as_array().is_some_and(|names| !names.is_empty());
    let required = if needs_config { json!(["type", "config"]) } else { json!(["type"]) };
    let title: String = kind.title.chars().filter(|c| !c.is_control()).take(TITLE_CHARS_MAX).collect();
    let mut properties = common.clone();
    properties["type"] = json!({"type": "string", "enum": [kind.name], "description": "Destination type."});
    properties["config"] = json!({"$ref": format!("#/components/schemas/{config}")});
    json!({
        "type": "object",
        "description": format!("A destination of type `{}`: {title}.", kind.name),
        "required": required,
        "properties": properties,
        "additionalProperties": false
    })
}

/// Longest title of a type in characters.
const TITLE_CHARS_MAX: usize = 100;

/// The schema name for a type: only letters and digits, with a capital after each hyphen, and unique even if case is ignored, as
/// in the file names of generated code.
fn free_name(schemas: &Value, prefix: &str, kind: &str) -> String {
    let words = kind.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.fold(prefix.to_owned(), |mut name, word| {
        name.extend(word.chars().take(1).map(|c| c.to_ascii_uppercase()));
        name.extend(word.chars().skip(1));
        name
    });
    let is_free = |name: &String| {
        schemas.as_object().is_none_or(|known| known.keys().all(|key| !key.eq_ignore_ascii_case(name)))
    };
    let numbered = (2..).map(|number: u32| format!("{name}_{number}"));
    std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document;
    use crate::api::document::testing::{Unknown, first_fault};

    fn kind(name: &str, schema: Value) -> TypeSchema {
        TypeSchema { name: name.to_owned(), title: name.to_owned(), playback: false, schema }
    }

    fn takes(document: &Value, destination: &Value) -> bool {
        let schema = json!({"$ref": "#/components/schemas/NewDestination"});
        first_fault(document, &schema, destination, Unknown::Allowed).is_none()
    }

    #[test]
    fn every_type_is_a_choice_with_its_own_configuration() {
        let url = json!({"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]});
        let document = document(&[kind("self-hosted", json!({"type": "object"})), kind("rtmp", url)]);
        let union = &document["components"]["schemas"]["NewDestination"];
        assert_eq!(
            union["discriminator"],
            json!({"propertyName": "type", "mapping": {
                "rtmp": "#/components/schemas/NewDestinationRtmp",
                "self-hosted": "#/components/schemas/NewDestinationSelfHosted"
            }})
        );
        assert_eq!(union["oneOf"].as_array().map(Vec::len), Some(2));
        for (destination, expected) in [
            (json!({"type": "rtmp", "config": {"url": "rtmp://a.example/app"}}), true),
            (
                json!({"type": "rtmp", "config": {"url": "rtmp://a.example/app", "more": "as its schema allows"}}),
                true,
            ),
            (json!({"type": "rtmp", "config": {}}), false),
            (json!({"type": "rtmp"}), false),
            (json!({"type": "self-hosted"}), true),
            (json!({"type": "self-hosted", "startDelaySeconds": 300}), true),
            (json!({"type": "self-hosted", "startDelaySeconds": 301}), false),
            (json!({"type": "other", "config": {}}), false),
            (json!({"type": "self-hosted", "config": {}, "more": 1}), false),
            (json!({"type": "self-hosted", "config": []}), false),
        ] {
            assert_eq!(takes(&document, &destination), expected, "{destination}");
        }
        let stream = json!({"label": "x", "destinations": [{"type": "rtmp", "config": {"url": "rtmp://a"}}]});
        let schema = json!({"$ref": "#/components/schemas/NewStream"});
        assert_eq!(first_fault(&document, &schema, &stream, Unknown::Allowed), None);
    }

    #[test]
    fn schema_names_are_safe_and_unique() {
        let names = ["a-b", "ab", "a--b", "-", "--", "2", "rtmp", "x2", "rtmp-2", "a1-b"];
        let types: Vec<_> = names.iter().map(|name| kind(name, json!({}))).collect();
        let document = document(&types);
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let mapping = document["components"]["schemas"]["NewDestination"]["discriminator"]["mapping"].clone();
        let mut found = std::collections::BTreeSet::new();
        for name in names {
            let target = mapping[name].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
            assert_eq!(schemas[&target]["properties"]["type"]["enum"], json!([name]));
            assert!(target.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{target}");
            assert!(found.insert(target.to_ascii_lowercase()), "{target} twice");
            assert_ne!(target, "NewDestination");
        }
    }

    #[test]
    fn without_drivers_and_in_changes_a_configuration_is_an_object() {
        let document = document(&[]);
        for name in ["NewDestination", "DestinationChange"] {
            let config = &document["components"]["schemas"][name]["properties"]["config"];
            assert_eq!((&config["type"], &config["additionalProperties"]), (&json!("object"), &json!(true)));
        }
    }
}
