//! Configurations checked against the JSON Schema of their destination type, and the secrets in them found by its marks.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

/// Largest configuration of a destination in bytes of JSON.
pub(super) const CONFIG_BYTES_MAX: usize = 64 * 1024;

/// A configuration that was refused: which field, and why. Never holds a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRefused {
    /// Path of the field inside the configuration, as `url`; empty for the whole.
    pub field: String,
    /// One sentence.
    pub reason: String,
}

/// The compiled schema of one type.
pub(super) struct ConfigSchema {
    schema: Value,
    validator: Validator,
}

impl ConfigSchema {
    pub(super) fn compile(schema: &Value) -> Result<Self, String> {
        let validator = jsonschema::draft202012::options()
            .should_validate_formats(false)
            // Linear in the text, whatever pattern a driver declares.
            .with_pattern_options(PatternOptions::regex())
            .build(schema)
            .map_err(|error| error.to_string())?;
        Ok(Self { schema: schema.clone(), validator })
    }

    pub(super) fn json(&self) -> &Value {
        &self.schema
    }

    pub(super) fn check(&self, config: &Value) -> Result<(), ConfigRefused> {
        if !config.is_object() {
            return Err(ConfigRefused { field: String::new(), reason: "must be a JSON object".into() });
        }
        if config.to_string().len() > CONFIG_BYTES_MAX {
            let reason = format!("is larger than {CONFIG_BYTES_MAX} bytes");
            return Err(ConfigRefused { field: String::new(), reason });
        }
        let Some(error) = self.validator.iter_errors(config).next() else { return Ok(()) };
        let path = error.instance_path().to_string();
        // An unknown or missing field is an error of the object that should not or should hold it.
        let child = match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => unexpected.first().cloned(),
            ValidationErrorKind::Required { property } => property.as_str().map(str::to_string),
            _ => None,
        };
        let parts = path.split('/').filter(|part| !part.is_empty()).map(str::to_string).chain(child);
        Err(ConfigRefused {
            field: parts.collect::<Vec<_>>().join("."),
            // The plain message would repeat the value, which may be a secret.
            reason: error.masked_with("the value").to_string(),
        })
    }

    /// A message of the driver that begins with the name of a property and a colon is about that field.
    pub(super) fn refused_by_driver(&self, message: &str) -> ConfigRefused {
        let properties = self.schema.get("properties").and_then(Value::as_object);
        let named = message
            .split_once(": ")
            .filter(|(field, _)| properties.is_some_and(|properties| properties.contains_key(*field)));
        match named {
            Some((field, reason)) => ConfigRefused { field: field.into(), reason: reason.into() },
            None => ConfigRefused { field: String::new(), reason: message.into() },
        }
    }

    /// The values of `config` that must not be shown.
    pub(super) fn secrets(&self, config: &Value) -> Vec<String> {
        let mut found = Vec::new();
        collect_secrets(Some(&self.schema), config, &mut found);
        found
    }
}

/// Walks configuration and schema together. A text whose schema is not plain to see counts as secret: hiding too much is the
/// lesser harm. The nesting is bounded by the parser the configuration came from.
fn collect_secrets(schema: Option<&Value>, config: &Value, found: &mut Vec<String>) {
    match config {
        Value::String(text) => {
            if is_secret_text(schema) {
                found.push(text.clone());
            }
            found.extend(url_secrets(text));
        }
        Value::Array(items) => {
            let schema = schema.and_then(|schema| schema.get("items"));
            items.iter().for_each(|item| collect_secrets(schema, item, found));
        }
        Value::Object(fields) => {
            let properties = schema.and_then(|schema| schema.get("properties"));
            // A table of entries under any name.
            let any =
                schema.and_then(|schema| schema.get("additionalProperties")).filter(|any| any.is_object());
            for (name, value) in fields {
                collect_secrets(properties.and_then(|properties| properties.get(name)).or(any), value, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether a text with this schema is a secret.
pub(super) fn is_secret_text(schema: Option<&Value>) -> bool {
    schema.is_none_or(|schema| is_secret(schema) || schema.get("$ref").is_some())
}

pub(super) fn is_secret(schema: &Value) -> bool {
    let marked = |schema: &Value| schema.get("x-secret") == Some(&Value::Bool(true));
    let alternatives =
        ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|name| schema.get(name)?.as_array());
    marked(schema) || alternatives.flatten().any(marked)
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
        assert!(schema.check(&large).unwrap_err().reason.contains("larger than"));
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
