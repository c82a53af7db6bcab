//! Configurations checked against the JSON Schema of their destination type, and the secrets in them found by its marks.

mod bounds;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::masking::secrets;

/// Largest configuration of a destination in bytes of JSON.
pub(super) const CONFIG_BYTES_MAX: usize = 64 * 1024;
/// Most of the product of a configuration's bytes and its schema's parts, which bounds what checking it costs: parts of a second at worst.
const CHECK_WORK_MAX: usize = 128 * CONFIG_BYTES_MAX;
/// The same for a refusal that says which field is wrong: all errors of an alternative are collected for that, and each takes memory.
const REASON_WORK_MAX: usize = 500_000;

/// Keywords by which a schema says more of a value than what stands beside its type: who reads a mark there must follow them.
const ELSEWHERE: [&str; 18] = [
    "$ref",
    "$dynamicRef",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "patternProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "prefixItems",
    "contains",
    "contentSchema",
    "propertyNames",
    "dependencies",
];
/// Those of an optional value.
const ALTERNATIVES: [&str; 2] = ["anyOf", "oneOf"];

/// A configuration that was refused: which field, and why. Never holds a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRefused {
    /// Path of the field inside the configuration, as `url`; empty for the whole.
    pub field: String,
    /// One sentence.
    pub reason: String,
}

impl ConfigRefused {
    /// Of the field at a place as [`Value::pointer`] takes it.
    pub(super) fn at(place: &str, reason: impl Into<String>) -> Self {
        let field = place.trim_start_matches('/').replace('/', ".");
        Self { field: field.replace("~1", "/").replace("~0", "~"), reason: reason.into() }
    }
}

/// Why a configuration is refused that is not searched for the field.
const DOES_NOT_FIT: &str = "does not fit the schema of its type, and is too large to say where";

fn too_large(bytes_max: usize) -> String {
    format!("is larger than {bytes_max} bytes")
}

/// The compiled schema of one type.
pub(super) struct ConfigSchema {
    schema: Value,
    validator: Validator,
    /// References followed.
    parts: usize,
}

impl ConfigSchema {
    /// # Errors
    /// Why it is no schema that configurations can be checked with.
    pub(super) fn compile(schema: &Value) -> Result<Self, String> {
        let parts = bounds::parts(schema)?;
        let validator = jsonschema::draft202012::options()
            .should_validate_formats(false)
            // Linear in the text, whatever pattern a driver declares.
            .with_pattern_options(PatternOptions::regex())
            .build(schema)
            .map_err(|error| error.to_string())?;
        Ok(Self { schema: schema.clone(), validator, parts })
    }

    pub(super) fn json(&self) -> &Value {
        &self.schema
    }

    pub(super) fn check(&self, config: &Value) -> Result<(), ConfigRefused> {
        if !config.is_object() {
            return Err(ConfigRefused::at("", "must be a JSON object"));
        }
        let bytes = config.to_string().len();
        if bytes > CONFIG_BYTES_MAX || bytes.saturating_mul(self.parts) > CHECK_WORK_MAX {
            let bytes_max = CONFIG_BYTES_MAX.min(CHECK_WORK_MAX / self.parts);
            return Err(ConfigRefused::at("", too_large(bytes_max)));
        }
        if self.validator.is_valid(config) {
            return Ok(());
        }
        if bytes.saturating_mul(self.parts) > REASON_WORK_MAX {
            return Err(ConfigRefused::at("", DOES_NOT_FIT));
        }
        let Err(error) = self.validator.validate(config) else { return Ok(()) };
        // An unknown or missing field is an error of the object that should not or should hold it.
        let child = match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => unexpected.first().cloned(),
            ValidationErrorKind::Required { property } => property.as_str().map(str::to_string),
            _ => None,
        };
        let child = child.map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1")));
        let place = error.instance_path().to_string() + &child.unwrap_or_default();
        // The plain message would repeat the value, which may be a secret.
        Err(ConfigRefused::at(&place, error.masked_with("the value").to_string()))
    }

    /// A message of the driver that begins with the name of a property and a colon is about that field.
    pub(super) fn refused_by_driver(&self, message: &str) -> ConfigRefused {
        let properties = self.schema.get("properties").and_then(Value::as_object);
        let named = message
            .split_once(": ")
            .filter(|(field, _)| properties.is_some_and(|properties| properties.contains_key(*field)));
        match named {
            Some((field, reason)) => ConfigRefused { field: field.into(), reason: reason.into() },
            None => ConfigRefused::at("", message),
        }
    }

    /// The values of `config` that must not be shown.
    pub(super) fn secrets(&self, config: &Value) -> Vec<String> {
        secrets(Some(&self.schema), config)
    }
}

/// Schema of the items of a list; `None` where it is not plain to see.
pub(super) fn item(schema: Option<&Value>) -> Option<&Value> {
    schema.filter(|schema| is_plain(schema))?.get("items")
}

/// Schema of the field `name`, or of every field of a table; `None` where it is not plain to see.
pub(super) fn field<'a>(schema: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    let schema = schema.filter(|schema| is_plain(schema))?;
    let own = schema.get("properties").and_then(|properties| properties.get(name));
    own.or_else(|| schema.get("additionalProperties").filter(|any| any.is_object()))
}

/// It says all that it says in itself, and hides nothing.
fn is_plain(schema: &Value) -> bool {
    schema.is_object() && !is_marked(schema) && !ELSEWHERE.iter().any(|name| schema.get(name).is_some())
}

/// Whether a text with this schema is a secret, or may be one.
pub(super) fn is_secret_text(schema: Option<&Value>) -> bool {
    let Some(schema) = schema.filter(|schema| schema.is_object()) else { return true };
    let others = || ELSEWHERE.iter().filter(|name| !ALTERNATIVES.contains(name));
    is_secret(schema)
        || others().any(|name| schema.get(name).is_some())
        || !alternatives(schema).all(is_plain)
}

/// Whether it is marked as a secret: a field that is free to change while other secrets stay.
pub(super) fn is_secret(schema: &Value) -> bool {
    is_marked(schema) || alternatives(schema).any(is_marked)
}

fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    ALTERNATIVES.into_iter().filter_map(|name| schema.get(name)?.as_array()).flatten()
}

/// By our mark, or by those that forms know.
fn is_marked(schema: &Value) -> bool {
    let is_true = |name: &str| schema.get(name) == Some(&Value::Bool(true));
    is_true("x-secret")
        || is_true("writeOnly")
        || schema.get("format").is_some_and(|format| format == "password")
}

/// The parts of a URL that let somebody in: password, query, and the path after its first part, where RTMP servers expect the
/// key.
pub(super) fn url_secrets(text: &str) -> Vec<String> {
    let Some((_, rest)) = text.split_once("://") else { return Vec::new() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let path = rest.strip_prefix('/').unwrap_or(rest);
    let mut found = Vec::new();
    if let Some((user_info, _)) = authority.rsplit_once('@') {
        found.extend(user_info.split_once(':').map(|(_, password)| password.to_string()));
        found.push(user_info.to_string());
    }
    let (path, fragment) = path.split_once('#').unwrap_or((path, ""));
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    found.extend((!fragment.is_empty()).then(|| fragment.to_string()));
    // The first part is the app, which is no secret.
    found.extend(path.split('/').skip(1).filter(|part| !part.is_empty()).map(str::to_string));
    if !query.is_empty() {
        found.push(query.to_string());
        found.extend(query.split('&').filter_map(|pair| Some(pair.split_once('=')?.1.to_string())));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> ConfigSchema {
        ConfigSchema::compile(&json!({
            "type": "object",
            "properties": {
                "url": { "type": "string", "maxLength": 60 },
                "key": { "anyOf": [{ "type": "string", "x-secret": true }, { "type": "null" }] }
            },
            "required": ["url"],
            "additionalProperties": false
        }))
        .unwrap()
    }

    #[test]
    fn refusals_name_the_field_and_never_the_value() {
        let schema = schema();
        schema.check(&json!({ "url": "rtmp://a/b/c", "key": null })).unwrap();
        let refused = schema.check(&json!({ "url": "x", "key": 771_234 })).unwrap_err();
        assert_eq!(refused.field, "key");
        assert!(!refused.reason.contains("771234"), "{refused:?}");
        let refused = schema.check(&json!({})).unwrap_err();
        assert_eq!(refused.field, "url");
        let refused = schema.check(&json!({ "url": "x", "extra": "sesame" })).unwrap_err();
        assert_eq!(refused.field, "extra");
        assert!(!refused.reason.contains("sesame"), "{refused:?}");
        assert!(schema.check(&json!("text")).is_err());
        let large = json!({ "url": "x".repeat(CONFIG_BYTES_MAX) });
        assert_eq!(schema.check(&large).unwrap_err().reason, too_large(CONFIG_BYTES_MAX));
    }

    #[test]
    fn large_configurations_texts() {
        assert_eq!(too_large(7), "is larger than 7 bytes");
        assert_eq!(DOES_NOT_FIT, "does not fit the schema of its type, and is too large to say where");
    }

    #[test]
    fn a_drivers_refusal_finds_its_field() {
        let schema = schema();
        let refused = schema.refused_by_driver("url: has no stream key");
        assert_eq!((refused.field.as_str(), refused.reason.as_str()), ("url", "has no stream key"));
        assert_eq!(schema.refused_by_driver("odd: thing").field, "");
    }

    #[test]
    fn secrets_are_the_marked_fields_and_the_telling_parts_of_urls() {
        let secrets =
            schema().secrets(&json!({ "url": "rtmp://u:pass@h:1/app/skey?token=tok1", "key": "k-0001" }));
        for secret in ["k-0001", "pass", "u:pass", "skey", "token=tok1", "tok1"] {
            assert!(secrets.iter().any(|found| found == secret), "{secret} in {secrets:?}");
        }
        assert!(!secrets.iter().any(|found| found == "app"));
        for url in ["tcp://h?t=s3cret", "tcp://h#s3cret", "tcp://h/#s3cret", "tcp://h/?t=s3cret"] {
            let secrets = schema().secrets(&json!({ "url": url }));
            assert!(secrets.iter().any(|found| found == "s3cret"), "{url}: {secrets:?}");
        }
        let secrets = schema().secrets(&json!({ "url": "rtmp://h/app/inst/skey/" }));
        assert_eq!(secrets, ["inst", "skey"]);
    }

    #[test]
    fn a_text_is_shown_only_where_its_schema_is_plain_to_see() {
        let token = json!({ "type": "string", "x-secret": true });
        let (text, none) = (json!({ "type": "string" }), json!({ "type": "null" }));
        let reference = json!({ "$ref": "#/$defs/token" });
        for (schema, secret) in [
            (text.clone(), false),
            (json!({ "type": ["string", "null"] }), false),
            (json!({ "anyOf": [text, none] }), false),
            (json!({ "anyOf": [token, none] }), true),
            // What is derived for an optional type of an author's own.
            (json!({ "anyOf": [reference, none] }), true),
            (json!({ "anyOf": [{ "anyOf": [token] }] }), true),
            (json!({ "if": {}, "then": token }), true),
            (json!({ "type": "string", "allOf": [token] }), true),
            (json!({ "type": "string", "not": token }), true),
            (json!({ "type": "string", "writeOnly": true }), true),
            (json!({ "type": "string", "format": "password" }), true),
            (json!(true), true),
        ] {
            let schema = json!({ "properties": { "a": schema }, "$defs": { "token": token } });
            let schema = ConfigSchema::compile(&schema).unwrap();
            let found = schema.secrets(&json!({ "a": "sesame" }));
            assert_eq!(!found.is_empty(), secret, "{}", schema.json());
        }
        for beside in [
            json!({ "allOf": [{ "properties": { "a": token } }] }),
            json!({ "patternProperties": { "a": token } }),
            json!({ "if": { "properties": { "a": token } } }),
        ] {
            let mut schema = json!({ "properties": { "a": { "type": "string" } } });
            schema.as_object_mut().unwrap().extend(beside.as_object().unwrap().clone());
            let schema = ConfigSchema::compile(&schema).unwrap();
            assert_eq!(schema.secrets(&json!({ "a": "sesame" })), ["sesame"], "{beside}");
        }
    }

    #[test]
    fn a_large_schema_takes_smaller_configurations_and_a_refusal_of_many_parts_names_none() {
        let names: Vec<_> = (0..8_000).map(|number| number.to_string()).collect();
        let schema = json!({ "properties": { "x": { "items": { "type": "object", "required": names } } } });
        let schema = ConfigSchema::compile(&schema).unwrap();
        let items = |count: usize| json!({ "x": vec![json!({}); count] });
        let refused = schema.check(&items(10)).unwrap_err();
        assert_eq!(
            (refused.field.as_str(), refused.reason.contains("required")),
            ("x.0.0", true),
            "{refused:?}"
        );
        // Each would be 8,000 errors more.
        let refused = schema.check(&items(300)).unwrap_err();
        assert_eq!((refused.field.as_str(), refused.reason.as_str()), ("", DOES_NOT_FIT));
        let refused = schema.check(&items(9_000)).unwrap_err();
        assert_eq!(refused.reason, too_large(CHECK_WORK_MAX / schema.parts));
        assert!(refused.reason.contains(" 104"), "{refused:?}");
    }

    #[test]
    fn secrets_are_found_at_any_depth() {
        let schema = ConfigSchema::compile(&json!({
            "properties": {
                "plain": { "type": "string" },
                "list": { "items": { "properties": { "token": { "type": "string", "x-secret": true } } } },
                "other": { "$ref": "#/$defs/o" },
                "table": { "additionalProperties": { "properties": {
                    "title": { "type": "string" }, "token": { "type": "string", "x-secret": true }
                } } },
                "open": { "additionalProperties": true }
            },
            "$defs": { "o": { "type": "string" } }
        }))
        .unwrap();
        let table = json!({ "any": { "title": "plain", "token": "deeper" } });
        let config = json!({ "plain": "open", "list": [{ "token": "deep" }], "other": "unseen", "table": table,
            "open": { "any": "hidden" } });
        let mut secrets = schema.secrets(&config);
        secrets.sort();
        assert_eq!(secrets, ["deep", "deeper", "hidden", "unseen"]);
    }
}
