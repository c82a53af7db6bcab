//! Masks the secrets of configurations for display, and restores them when a masked configuration is sent back. Secrets
//! are found by the marks of schemas.

use serde_json::Value;

use satcast_core::secret::{is_masked_key, mask_key, mask_url};

/// Keywords by which a schema describes a value in another place: code that reads a mark there would have to follow
/// them.
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
/// Keywords of an optional value.
const ALTERNATIVES: [&str; 2] = ["anyOf", "oneOf"];

/// A refused configuration: the field and the reason. Never holds a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRefused {
    /// Path of the field inside the configuration, as `url`; empty for the whole configuration.
    pub field: String,
    /// One sentence.
    pub reason: String,
}

impl ConfigRefused {
    /// For the field at the JSON pointer `place` ([`Value::pointer`]).
    pub(crate) fn at(place: &str, reason: impl Into<String>) -> Self {
        let field = place.trim_start_matches('/').replace('/', ".");
        Self { field: field.replace("~1", "/").replace("~0", "~"), reason: reason.into() }
    }
}

/// `config` with every text replaced by `change`, which gets the schema of the text and its JSON pointer
/// ([`Value::pointer`]). The parser of the configuration has bounded the nesting.
fn with_texts(
    schema: Option<&Value>,
    config: &Value,
    place: &str,
    change: &mut dyn FnMut(Option<&Value>, &str, &str) -> String,
) -> Value {
    match config {
        Value::String(text) => Value::String(change(schema, text, place)),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items
                .map(|(at, value)| with_texts(item(schema), value, &format!("{place}/{at}"), change))
                .collect()
        }
        Value::Object(fields) => {
            let changed = fields.iter().map(|(name, value)| {
                let place = format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"));
                (name.clone(), with_texts(field(schema, name), value, &place, change))
            });
            Value::Object(changed.collect())
        }
        plain => plain.clone(),
    }
}

/// The values of `config` that must not be shown. A text without a direct schema counts as a secret: hiding too much
/// is the lesser harm.
pub(crate) fn secrets(schema: Option<&Value>, config: &Value) -> Vec<String> {
    let mut found = Vec::new();
    with_texts(schema, config, "", &mut |schema, text, _| {
        found.extend(is_secret_text(schema).then(|| text.to_owned()));
        found.extend(url_secrets(text));
        String::new()
    });
    found
}

/// `config` with every secret masked, also inside addresses.
pub(crate) fn masked(schema: Option<&Value>, config: &Value) -> Value {
    with_texts(schema, config, "", &mut |schema, text, _| masked_text(schema, text))
}

/// The text as shown to a reader who may not see secrets.
pub(crate) fn masked_text(schema: Option<&Value>, text: &str) -> String {
    if is_secret_text(schema) {
        return mask_key(text);
    }
    if url_secrets(text).is_empty() { text.to_owned() } else { mask_url(text) }
}

/// Why a masked secret cannot be kept.
const WHOLE_SECRET: &str = "send the whole secret when another field of the configuration changes";
/// Why a masked value is refused.
const NO_SECRET: &str = "is a masked value that matches no stored secret; send the whole value";

/// The configuration to store when the owner of `stored` sends `sent`: a masked secret keeps its stored value.
///
/// # Errors
/// Names a field with a masked value that matches no stored secret, or with a secret that cannot be kept. Secrets are
/// kept only while everything else stays the same, so that a caller who cannot read a secret cannot have it sent to
/// another address or over another connection.
pub(crate) fn restored(schema: Option<&Value>, stored: &Value, sent: &Value) -> Result<Value, ConfigRefused> {
    let (mut kept, mut unknown) = (None, None);
    let config = with_texts(schema, sent, "", &mut |schema, text, place| {
        let known = stored.pointer(place).and_then(Value::as_str);
        if let Some(known) = known.filter(|known| *known == text || masked_text(schema, known) == text) {
            if known != text {
                kept = Some(place.to_owned());
            }
            return known.to_owned();
        }
        let secret = is_secret_text(schema) || !url_secrets(text).is_empty();
        if secret && text.rsplit(['/', '=']).next().is_some_and(is_masked_key) {
            unknown = Some(place.to_owned());
        }
        text.to_owned()
    });
    let kept = kept.filter(|_| without_secrets(schema, stored) != without_secrets(schema, &config));
    match (unknown, kept) {
        (Some(place), _) => Err(ConfigRefused::at(&place, NO_SECRET)),
        (None, Some(place)) => Err(ConfigRefused::at(&place, WHOLE_SECRET)),
        (None, None) => Ok(config),
    }
}

/// The configuration without everything that is marked as a secret.
fn without_secrets(schema: Option<&Value>, config: &Value) -> Value {
    match config {
        _ if schema.is_some_and(is_secret) => Value::Null,
        Value::Array(items) => items.iter().map(|value| without_secrets(item(schema), value)).collect(),
        Value::Object(fields) => {
            let open = fields.iter().filter(|(name, _)| !field(schema, name).is_some_and(is_secret));
            let left = open.map(|(name, value)| (name.clone(), without_secrets(field(schema, name), value)));
            Value::Object(left.collect())
        }
        plain => plain.clone(),
    }
}

/// Schema of the items of a list; `None` where it cannot be found directly.
fn item(schema: Option<&Value>) -> Option<&Value> {
    schema.filter(|schema| is_plain(schema))?.get("items")
}

/// Schema of the field `name`, or of every field of a table; `None` where it cannot be found directly.
pub(crate) fn field<'a>(schema: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    let schema = schema.filter(|schema| is_plain(schema))?;
    let own = schema.get("properties").and_then(|properties| properties.get(name));
    own.or_else(|| schema.get("additionalProperties").filter(|any| any.is_object()))
}

/// The schema is complete in itself and hides nothing.
fn is_plain(schema: &Value) -> bool {
    schema.is_object() && !is_marked(schema) && !ELSEWHERE.iter().any(|name| schema.get(name).is_some())
}

/// Whether a text with this schema is a secret, or may be one.
fn is_secret_text(schema: Option<&Value>) -> bool {
    let Some(schema) = schema.filter(|schema| schema.is_object()) else { return true };
    let others = || ELSEWHERE.iter().filter(|name| !ALTERNATIVES.contains(name));
    is_secret(schema)
        || others().any(|name| schema.get(name).is_some())
        || !alternatives(schema).all(is_plain)
}

/// Whether it is marked as a secret: such a field may change while other secrets stay.
fn is_secret(schema: &Value) -> bool {
    is_marked(schema) || alternatives(schema).any(is_marked)
}

fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    ALTERNATIVES.into_iter().filter_map(|name| schema.get(name)?.as_array()).flatten()
}

/// Marked by our annotation, or by the keywords that forms use.
fn is_marked(schema: &Value) -> bool {
    let is_true = |name: &str| schema.get(name) == Some(&Value::Bool(true));
    is_true("x-secret")
        || is_true("writeOnly")
        || schema.get("format").is_some_and(|format| format == "password")
}

/// The secret parts of a URL: password, query, and the path after its first part, where RTMP servers expect the key.
fn url_secrets(text: &str) -> Vec<String> {
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
        // The value of `mode` is a word such as `listener`, which messages about the destination use too.
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        found.extend(pairs.filter(|(name, _)| *name != "mode").map(|(_, value)| value.to_string()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({"properties": {
            "url": {"type": "string"},
            "key": {"anyOf": [{"type": "string", "x-secret": true}, {"type": "null"}]},
            "delay": {"type": "integer"},
            "tokens": {"items": {"type": "string", "x-secret": true}}
        }})
    }

    fn stored() -> Value {
        json!({"url": "rtmp://a.example/live", "key": "key-0123456789", "delay": 1, "tokens": ["short"]})
    }

    fn shown(config: &Value) -> Value {
        masked(Some(&schema()), config)
    }

    fn restore(sent: &Value) -> Result<Value, ConfigRefused> {
        restored(Some(&schema()), &stored(), sent)
    }

    #[test]
    fn secrets_are_masked_at_every_place() {
        assert_eq!(
            shown(&stored()),
            json!({"url": "rtmp://a.example/live", "key": "key...789", "delay": 1, "tokens": ["***"]})
        );
        let in_address = shown(&json!({"url": "rtmp://u:p@a.example/live/key-0123456789?t=1"}));
        assert_eq!(in_address, json!({"url": "rtmp://a.example/live/key...789"}));
        assert_eq!(
            masked(None, &json!({"any": "text"})),
            json!({"any": "***"}),
            "without a schema everything is secret"
        );
    }

    #[test]
    fn masked_secrets_are_kept_and_other_secrets_may_change() {
        assert_eq!(restore(&shown(&stored())).unwrap(), stored());
        let mut sent = shown(&stored());
        sent["tokens"] = json!(["another"]);
        let mut expected = stored();
        expected["tokens"] = json!(["another"]);
        assert_eq!(restore(&sent).unwrap(), expected);
        sent["tokens"] = Value::Null;
        assert_eq!(restore(&sent).unwrap_err().field, "key", "its items are secrets, the list is not");
        sent.as_object_mut().unwrap().remove("tokens");
        assert!(restore(&sent).is_err());
        sent["tokens"] = json!(["short"]);
        for (name, value) in [("delay", json!(2)), ("delay", json!(null)), ("more", json!(true))] {
            let mut sent = sent.clone();
            sent[name] = value;
            assert_eq!(restore(&sent).unwrap_err().field, "key", "{name}");
        }
        let mut sent = stored();
        sent["delay"] = json!(2);
        assert_eq!(restore(&sent).unwrap(), sent, "with the whole secret everything may change");
    }

    #[test]
    fn a_field_that_only_may_be_a_secret_cannot_redirect_one() {
        let schema = json!({"properties": {
            "url": {"$ref": "#/$defs/address"},
            "key": {"type": "string", "x-secret": true},
            "inner": {"properties": {"host": {"type": "string"}}}
        }});
        let stored = json!({"url": "tcp://a.example", "key": "key-0123456789", "inner": {"host": "a"}});
        let shown = masked(Some(&schema), &stored);
        assert_eq!(restored(Some(&schema), &stored, &shown).unwrap(), stored);
        for (path, value) in [("/url", "tcp://evil.example"), ("/inner/host", "evil")] {
            let mut sent = shown.clone();
            *sent.pointer_mut(path).unwrap() = json!(value);
            assert!(restored(Some(&schema), &stored, &sent).is_err(), "{path}");
        }
        let mut sent = shown.clone();
        sent["inner"] = json!({});
        assert!(restored(Some(&schema), &stored, &sent).is_err(), "missing deep inside");
    }

    #[test]
    fn a_kept_secret_never_goes_to_another_address() {
        let mut sent = shown(&stored());
        sent["url"] = json!("rtmp://evil.example/live");
        let refused = restore(&sent).unwrap_err();
        assert_eq!(refused.reason, WHOLE_SECRET);
        sent["key"] = json!("key-9876543210");
        sent["tokens"] = json!(["other"]);
        assert_eq!(restore(&sent).unwrap()["key"], "key-9876543210");
        let left_out = json!({"key": "key...789"});
        assert_eq!(restore(&left_out).unwrap_err().field, "key");
    }

    #[test]
    fn a_masked_value_without_a_stored_secret_is_refused() {
        let mut sent = stored();
        sent["key"] = json!("abc...xyz");
        assert_eq!(restore(&sent).unwrap_err().field, "key");
        sent["key"] = json!("***");
        assert_eq!(restore(&sent).unwrap_err().field, "key");
        sent = json!({"url": "rtmp://b.example/live/key...789"});
        assert_eq!(restore(&sent).unwrap_err().field, "url");
        sent = json!({"url": "rtmp://b.example/live/whole-key-123"});
        assert_eq!(restore(&sent).unwrap(), sent);
    }

    #[test]
    fn a_secret_that_cannot_be_kept_text() {
        assert_eq!(WHOLE_SECRET, "send the whole secret when another field of the configuration changes");
    }
}
