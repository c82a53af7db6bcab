//! Checks configurations against the JSON Schema of their destination type, and finds the secrets in them by its
//! marks.

mod bounds;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::masking::{ConfigRefused, secrets};

/// Of the JSON text.
pub(crate) const CONFIG_BYTES_MAX: usize = 64 * 1024;
/// Most of the product of a configuration's bytes and its schema's parts, which bounds the cost of a check: a
/// fraction of a second at worst.
const CHECK_WORK_MAX: usize = 128 * CONFIG_BYTES_MAX;
/// The same limit for a refusal that names the wrong field: it collects all errors of an alternative, and each takes
/// memory.
const REASON_WORK_MAX: usize = 500_000;

/// The refusal of a configuration that is too large to find the wrong field.
const DOES_NOT_FIT: &str = "does not match the schema of its type, and is too large to find the wrong field";

fn too_large(bytes_max: usize) -> String {
    format!("is larger than {bytes_max} bytes")
}

pub(crate) struct ConfigSchema {
    schema: Value,
    validator: Validator,
    /// Number of parts with references followed.
    parts: usize,
}

impl ConfigSchema {
    /// # Errors
    /// Why configurations cannot be checked with this schema.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        let parts = bounds::parts(schema)?;
        let validator = jsonschema::draft202012::options()
            .should_validate_formats(false)
            // Linear in the text, whatever pattern a driver declares.
            .with_pattern_options(PatternOptions::regex())
            .build(schema)
            .map_err(|error| error.to_string())?;
        Ok(Self { schema: schema.clone(), validator, parts })
    }

    pub(crate) fn json(&self) -> &Value {
        &self.schema
    }

    pub(crate) fn check(&self, config: &Value) -> Result<(), ConfigRefused> {
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
        // An unknown or missing field is an error of the object that contains it or lacks it.
        let child = match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => unexpected.first().cloned(),
            ValidationErrorKind::Required { property } => property.as_str().map(str::to_string),
            _ => None,
        };
        let child = child.map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1")));
        let place = error.instance_path().to_string() + &child.unwrap_or_default();
        let text = match error.kind() {
            ValidationErrorKind::AdditionalProperties { .. } if error.instance_path().is_empty() => {
                self.known_fields()
            }
            ValidationErrorKind::AdditionalProperties { .. } => "is unknown; leave it out".to_owned(),
            ValidationErrorKind::Required { .. } => "is required".to_owned(),
            // The plain message would repeat the value, which may be a secret.
            _ => error.masked_with("the value").to_string(),
        };
        Err(ConfigRefused::at(&place, text))
    }

    fn known_fields(&self) -> String {
        let fields = self.schema.get("properties").and_then(Value::as_object);
        let names: Vec<&str> = fields.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        format!("is unknown; known fields: {}", names.join(", "))
    }

    /// A message of the driver that begins with a property name and a colon is about that field.
    pub(crate) fn refused_by_driver(&self, message: &str) -> ConfigRefused {
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
    pub(crate) fn secrets(&self, config: &Value) -> Vec<String> {
        secrets(Some(&self.schema), config)
    }
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
        assert_eq!(
            DOES_NOT_FIT,
            "does not match the schema of its type, and is too large to find the wrong field"
        );
    }

    #[test]
    fn a_drivers_refusal_finds_its_field() {
        let schema = schema();
        let refused = schema.refused_by_driver("url: has no stream key");
        assert_eq!((refused.field.as_str(), refused.reason.as_str()), ("url", "has no stream key"));
        assert_eq!(schema.refused_by_driver("odd: thing").field, "");
    }

    #[test]
    fn secrets_are_the_marked_fields_and_the_secret_parts_of_urls() {
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
        let secrets = schema().secrets(&json!({ "url": "srt://:9000?mode=listener&streamid=sesame" }));
        assert_eq!(secrets, ["mode=listener&streamid=sesame", "sesame"]);
    }

    #[test]
    fn a_text_is_shown_only_with_a_direct_schema() {
        let token = json!({ "type": "string", "x-secret": true });
        let (text, none) = (json!({ "type": "string" }), json!({ "type": "null" }));
        let reference = json!({ "$ref": "#/$defs/token" });
        for (schema, secret) in [
            (text.clone(), false),
            (json!({ "type": ["string", "null"] }), false),
            (json!({ "anyOf": [text, none] }), false),
            (json!({ "anyOf": [token, none] }), true),
            // As derived for an optional type that the author defined.
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
    fn a_large_schema_allows_smaller_configurations_and_a_large_refusal_names_no_field() {
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
        // Each item would be 8,000 more errors.
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
