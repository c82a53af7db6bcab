//! Annotations in the schemas of drivers beside validation: the address to show, the list of origins, private fields
//! of an operator's entry, the host table that provides settings. GUIDE.md documents them; [`super::masking`] reads
//! the marks of secrets.

use std::collections::BTreeMap;

use serde_json::Value;

use super::masking::{field, masked_text};
use satcast_core::secret::{mask_key, mask_url};

/// At a type: its address, as `{url}/{key}`, with field names of its configuration.
const ADDRESS: &str = "x-address";
/// At a list: the origins whose pages may play.
const ORIGINS: &str = "x-origins";
/// At a field of an entry that makes a type: `true` = not shown, a text = shown as a flag of this name.
const PRIVATE: &str = "x-private";
/// At settings: the table of the host's configuration that provides values missing in the driver's own table.
const TABLE: &str = "x-table";

// Older drivers have no annotations. They are recognised by their field names; this is the complete list.
/// The address of a type with these fields; the first match counts. `url` and `server` are addresses and `key` is a
/// secret.
const OLD_ADDRESSES: [(&str, &str); 3] =
    [("bucket", "s3://{bucket}/{prefix}"), ("url", "{url}/{key}"), ("server", "{server}/{key}")];
/// The list of origins.
const OLD_ORIGINS: &str = "allowedOrigins";
const OLD_PRIVATE: [(&str, Option<&str>); 2] = [("backup", Some("hasBackup")), ("ingests", None)];
/// The driver that gets the table of its own name.
const OLD_TABLE: &str = "archive";

/// The masked address of a destination; the operator's settings provide it where the configuration lacks the first
/// field. Missing fields have their defaults. `None` when the type has no address.
pub(crate) fn address(
    schema: Option<&Value>,
    config: &Value,
    settings: impl FnOnce() -> Value,
) -> Option<String> {
    let declared = schema.and_then(|schema| schema.get(ADDRESS)?.as_str());
    let has = |name: &str| schema.is_some_and(|schema| schema["properties"].get(name).is_some());
    let by_name = || OLD_ADDRESSES.iter().find(|(name, _)| has(name) || config.get(name).is_some());
    let template = declared.or_else(|| by_name().map(|(_, template)| *template))?;
    let text = |from: &Value, name: &str| {
        from.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    // Field names alternate with the text between them.
    let parts: Vec<&str> = template.split(['{', '}']).collect();
    let first = parts.get(1)?;
    let settings = text(config, first).is_none().then(settings).filter(|given| text(given, first).is_some());
    let given = settings.as_ref().unwrap_or(config);
    let mut shown = parts[0].to_owned();
    for pair in parts[1..].chunks(2) {
        let (name, at) = (pair[0], schema.and_then(|schema| field(Some(schema), pair[0])));
        if let Some(value) = text(given, name).or_else(|| text(at?, "default")) {
            let masked = match name {
                "url" | "server" if declared.is_none() => mask_url(&value),
                "key" if declared.is_none() => mask_key(&value),
                _ => masked_text(at, &value),
            };
            shown.push_str(masked.trim_matches('/'));
            shown.push_str(pair.get(1).copied().unwrap_or_default());
        }
    }
    let is_scheme = shown.ends_with("://");
    Some(if is_scheme { shown } else { shown.trim_end_matches('/').to_owned() })
}

/// The origins whose pages may play a destination; empty = all.
pub(crate) fn origins(schema: Option<&Value>, config: &Value) -> Vec<String> {
    let properties = schema.and_then(|schema| schema["properties"].as_object());
    let mut properties = properties.into_iter().flatten();
    let declared = properties.find(|(_, schema)| schema.get(ORIGINS) == Some(&Value::Bool(true)));
    let listed = config.get(declared.map_or(OLD_ORIGINS, |(name, _)| name)).and_then(Value::as_array);
    listed.into_iter().flatten().filter_map(|origin| origin.as_str().map(str::to_owned)).collect()
}

/// The fields of an entry that are not shown, each with the flag that is shown instead, if there is one.
pub(crate) fn private(schema: Option<&Value>) -> BTreeMap<&str, Option<&str>> {
    let properties = schema.and_then(|schema| schema["properties"].as_object());
    let properties = properties.into_iter().flatten();
    let declared: BTreeMap<_, _> = properties
        .filter_map(|(name, schema)| Some((name.as_str(), schema.get(PRIVATE)?.as_str())))
        .collect();
    if declared.is_empty() { OLD_PRIVATE.into() } else { declared }
}

/// Whether the driver also gets this table of the host's configuration.
pub(crate) fn takes_table(id: &str, settings: Option<&Value>, table: &str) -> bool {
    match settings.and_then(|settings| settings.get(TABLE)) {
        Some(declared) => declared == table,
        None => id == OLD_TABLE && table == OLD_TABLE,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(schema: &Value, config: &Value) -> Option<String> {
        address(Some(schema), config, || json!({ "bucket": "theirs", "prefix": "/p/" }))
    }

    #[test]
    fn addresses_follow_the_schema_with_secrets_masked() {
        let texts = |address: &str| {
            json!({ "x-address": address, "properties": {
                "host": { "type": "string" }, "token": { "type": "string", "x-secret": true },
                "at": { "type": "string", "default": "rtmp://a.example/app" }
            } })
        };
        let config = json!({ "host": "b.example", "token": "token-0123456", "at": "" });
        for (address, expected) in [
            ("{at}/{token}", "rtmp://a.example/app/tok...456"),
            ("tcp://{host}", "tcp://b.example"),
            ("{token}@{host}", "tok...456@b.example"),
            ("udp://{none}/{none}", "udp://"),
            ("{at}/{none}", "rtmp://a.example/app"),
        ] {
            assert_eq!(shown(&texts(address), &config).as_deref(), Some(expected), "{address}");
        }
        let secret_in_address = json!({ "at": "rtmp://u:p@a.example/app/key-0123456789?t=1" });
        assert_eq!(
            shown(&texts("{at}/{token}"), &secret_in_address).unwrap(),
            "rtmp://a.example/app/key...789"
        );
        let store = json!({ "x-address": "s3://{bucket}/{prefix}", "properties": {
            "bucket": { "type": "string" }, "prefix": { "type": ["string", "null"] } } });
        assert_eq!(shown(&store, &json!({})).unwrap(), "s3://theirs/p");
        assert_eq!(shown(&store, &json!({ "bucket": "own" })).unwrap(), "s3://own");
        assert_eq!(address(Some(&store), &json!({}), Value::default).unwrap(), "s3://");
    }

    #[test]
    fn without_annotations_field_names_count() {
        let schema = |field: &str| json!({ "properties": { field: { "type": "string" } } });
        let pushed = json!({ "url": "rtmp://a.example/app", "key": "key-0123456789" });
        for schema in [Some(&schema("url")), None] {
            let shown = address(schema, &pushed, Value::default);
            assert_eq!(shown.as_deref(), Some("rtmp://a.example/app/key...789"));
        }
        assert_eq!(shown(&schema("server"), &json!({ "server": "nothing" })).unwrap(), "***");
        assert_eq!(shown(&schema("bucket"), &json!({ "bucket": "own" })).unwrap(), "s3://own");
        assert_eq!(shown(&schema("host"), &json!({ "host": "a" })), None);
        let listed = json!({ "allowedOrigins": ["https://a.example", 5], "sites": ["https://b.example"] });
        let declared = json!({ "properties": { "sites": { "x-origins": true } } });
        assert_eq!(origins(None, &listed), ["https://a.example"]);
        assert_eq!(origins(Some(&schema("url")), &listed), ["https://a.example"]);
        assert_eq!(origins(Some(&declared), &listed), ["https://b.example"]);
        let declared =
            json!({ "properties": { "a": { "x-private": true }, "b": { "x-private": "hasB" }, "c": {} } });
        assert_eq!(private(Some(&declared)), [("a", None), ("b", Some("hasB"))].into());
        assert_eq!(private(Some(&schema("backup"))), OLD_PRIVATE.into());
        assert!(takes_table("archive", None, "archive") && !takes_table("mine", None, "archive"));
        let asks = json!({ "x-table": "archive" });
        assert!(takes_table("mine", Some(&asks), "archive") && !takes_table("mine", Some(&asks), "log"));
    }
}
