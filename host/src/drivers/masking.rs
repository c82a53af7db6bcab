//! Configurations as their owner is shown them, and as they come back: secrets masked, and kept when they return masked.

use serde_json::{Map, Value};

use super::schema::{ConfigRefused, field, is_secret, is_secret_text, item, url_secrets};
use crate::secret::{is_masked_key, mask_key, mask_url};

/// `config` with every secret in it masked, of the addresses in it too.
pub(super) fn masked(schema: Option<&Value>, config: &Value) -> Value {
    match config {
        Value::String(text) => Value::String(masked_text(schema, text)),
        Value::Array(items) => items.iter().map(|value| masked(item(schema), value)).collect(),
        Value::Object(fields) => {
            let shown = |(name, value): (&String, &Value)| (name.clone(), masked(field(schema, name), value));
            Value::Object(fields.iter().map(shown).collect())
        }
        plain => plain.clone(),
    }
}

/// Why a secret that is sent as it is shown may not stay.
const WHOLE_SECRET: &str = "send the whole secret when something else of the configuration changes";

/// What is to be stored when the owner of `stored` sends `sent`: a secret that comes as it is shown stays what it is.
///
/// # Errors
/// Names a field that holds the shown form of no stored secret, or of one that may not stay: secrets stay only while everything
/// else does, so that nobody who cannot read a secret can have it sent to another address, or over another connection.
pub(super) fn restored(schema: Option<&Value>, stored: &Value, sent: &Value) -> Result<Value, ConfigRefused> {
    let mut restoring = Restoring::default();
    let config = restoring.restore(schema, Some(stored), sent, "");
    if let Some(field) = restoring.unknown {
        let reason = "is the shown form of no stored secret; send the whole value";
        return Err(ConfigRefused { field, reason: reason.into() });
    }
    match restoring.kept {
        Some(field) if !is_same_but_secrets(schema, stored, &config) => {
            Err(ConfigRefused { field, reason: WHOLE_SECRET.into() })
        }
        _ => Ok(config),
    }
}

/// Whether two configurations differ in values alone that are marked as secrets.
fn is_same_but_secrets(schema: Option<&Value>, one: &Value, other: &Value) -> bool {
    if schema.is_some_and(is_secret) {
        return true;
    }
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            let schema = item(schema);
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same_but_secrets(schema, one, other))
        }
        (Value::Object(one), Value::Object(other)) => one.keys().chain(other.keys()).all(|name| {
            let value = |fields: &Map<String, Value>| fields.get(name).cloned().unwrap_or_default();
            field(schema, name).is_some_and(is_secret)
                || one.contains_key(name) == other.contains_key(name)
                    && is_same_but_secrets(field(schema, name), &value(one), &value(other))
        }),
        (one, other) => one == other,
    }
}

/// The text as it is shown to who may not see secrets.
pub(super) fn masked_text(schema: Option<&Value>, text: &str) -> String {
    if is_secret_text(schema) {
        return mask_key(text);
    }
    if url_secrets(text).is_empty() { text.to_owned() } else { mask_url(text) }
}

/// What was found on the way through a configuration.
#[derive(Default)]
struct Restoring {
    /// A secret that stays.
    kept: Option<String>,
    /// A shown form that is that of no stored secret.
    unknown: Option<String>,
}

impl Restoring {
    fn restore(&mut self, schema: Option<&Value>, stored: Option<&Value>, sent: &Value, path: &str) -> Value {
        match sent {
            Value::String(text) => {
                Value::String(self.text(schema, stored.and_then(Value::as_str), text, path))
            }
            Value::Array(items) => {
                let schema = item(schema);
                let known = |index| stored.and_then(|stored| stored.get(index));
                let items = items.iter().enumerate();
                items
                    .map(|(at, item)| self.restore(schema, known(at), item, &join(path, &at.to_string())))
                    .collect()
            }
            Value::Object(fields) => {
                let mut config = Map::new();
                for (name, value) in fields {
                    let known = stored.and_then(|stored| stored.get(name));
                    let value = self.restore(field(schema, name), known, value, &join(path, name));
                    config.insert(name.clone(), value);
                }
                Value::Object(config)
            }
            plain => plain.clone(),
        }
    }

    fn text(&mut self, schema: Option<&Value>, stored: Option<&str>, sent: &str, path: &str) -> String {
        if stored == Some(sent) {
            return sent.to_owned();
        }
        if let Some(stored) = stored.filter(|stored| masked_text(schema, stored) == sent) {
            self.kept = Some(path.to_owned());
            return stored.to_owned();
        }
        let secret = is_secret_text(schema) || !url_secrets(sent).is_empty();
        let shown = sent.rsplit(['/', '=']).next().is_some_and(is_masked_key);
        if secret && shown {
            self.unknown = Some(path.to_owned());
        }
        sent.to_owned()
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
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
    fn secrets_are_masked_wherever_they_stand() {
        assert_eq!(
            shown(&stored()),
            json!({"url": "rtmp://a.example/live", "key": "key...789", "delay": 1, "tokens": ["***"]})
        );
        let in_address = shown(&json!({"url": "rtmp://u:p@a.example/live/key-0123456789?t=1"}));
        assert_eq!(in_address, json!({"url": "rtmp://a.example/live/key...789"}));
        assert_eq!(masked(None, &json!({"any": "text"})), json!({"any": "***"}), "no schema: all is secret");
    }

    #[test]
    fn what_comes_back_as_shown_stays_and_other_secrets_may_change() {
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
    fn a_field_that_is_only_taken_for_a_secret_does_not_move_one() {
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
        assert!(restored(Some(&schema), &stored, &sent).is_err(), "left out deep inside");
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
    fn a_shown_form_of_nothing_is_refused() {
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
    fn a_secret_that_may_not_stay_text() {
        assert_eq!(WHOLE_SECRET, "send the whole secret when something else of the configuration changes");
    }
}
