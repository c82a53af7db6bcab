//! The operator's settings below `[driver.<id>]` for the driver itself, checked by the schema that the driver
//! declares.

use serde_json::{Map, Value};

use super::annotations::takes_table;
use super::masking::field;
use super::schema::ConfigSchema;
use satcast_core::config::{ARCHIVE_TABLE, DriverSettings, nearest};

#[derive(Default)]
pub(crate) struct OperatorSettings {
    /// A JSON object.
    pub(crate) json: String,
    /// The texts in it that must not be shown.
    pub(crate) secrets: Vec<String>,
}

/// The settings under the names of the schema. The words of a name may be separated: `retry_hours`, as in environment
/// variables, is `retryHours`, and has priority where both are given. `[archive]` provides missing values where the
/// schema asks for it.
pub(crate) fn named(id: &str, schema: Option<&Value>, chosen: &DriverSettings) -> Value {
    let mut settings = renamed(schema, chosen.settings.iter());
    if takes_table(id, schema, ARCHIVE_TABLE) {
        for (name, value) in renamed(schema, chosen.archive.iter()) {
            settings.entry(name).or_insert(value);
        }
    }
    Value::Object(settings)
}

fn renamed<'a>(
    schema: Option<&Value>,
    given: impl Iterator<Item = (&'a String, &'a Value)>,
) -> Map<String, Value> {
    let names = schema.and_then(|schema| schema["properties"].as_object());
    let is_known = |name: &String| names.is_some_and(|names| names.contains_key(name));
    let (exact, apart): (Vec<_>, Vec<_>) = given.partition(|(name, _)| is_known(name));
    let mut settings = Map::new();
    for (name, value) in exact.into_iter().chain(apart) {
        let same = |known: &&String| !is_known(name) && together(known) == together(name);
        let name = names.into_iter().flat_map(Map::keys).find(same).unwrap_or(name);
        let value = match value {
            Value::Object(fields) => Value::Object(renamed(field(schema, name), fields.iter())),
            plain => plain.clone(),
        };
        put(&mut settings, name, value);
    }
    settings
}

/// Sets a field; tables that were given in parts are merged.
fn put(fields: &mut Map<String, Value>, name: &str, value: Value) {
    match (fields.get_mut(name), value) {
        (Some(Value::Object(known)), Value::Object(more)) => {
            more.into_iter().for_each(|(name, value)| put(known, &name, value));
        }
        (_, value) => drop(fields.insert(name.to_owned(), value)),
    }
}

/// The name with its separated words joined.
fn together(name: &str) -> String {
    name.replace('_', "").to_ascii_lowercase()
}

/// The settings as passed to the driver.
///
/// # Errors
/// One sentence that names the key; never a value.
pub(crate) fn checked(
    id: &str,
    schema: Option<&Value>,
    chosen: &DriverSettings,
) -> Result<OperatorSettings, String> {
    let object = named(id, schema, chosen);
    let Some(schema) = schema else {
        return match chosen.settings.keys().next() {
            Some(key) => Err(format!("takes no settings of its own; remove {key} from [driver.{id}]")),
            None => Ok(OperatorSettings { json: "{}".to_string(), secrets: Vec::new() }),
        };
    };
    let compiled = ConfigSchema::compile(schema)
        .map_err(|error| format!("the schema of its settings is invalid: {error}"))?;
    compiled.check(&object).map_err(|refused| match refused.field.as_str() {
        "" => format!("its settings in [driver.{id}] are refused: {}", refused.reason),
        name => {
            let suggestion =
                suggestion(schema, name).map(|suggestion| format!("; did you mean {suggestion}?"));
            setting_refused(id, name, &refused.reason) + &suggestion.unwrap_or_default()
        }
    })?;
    Ok(OperatorSettings { json: object.to_string(), secrets: compiled.secrets(&object) })
}

/// The known name that is nearest to the last part of an unknown one.
fn suggestion<'a>(schema: &'a Value, path: &str) -> Option<&'a str> {
    let mut parts: Vec<&str> = path.split('.').collect();
    let name = parts.pop()?;
    let table = parts.into_iter().try_fold(schema, |schema, part| field(Some(schema), part))?;
    let known = table["properties"].as_object().filter(|known| !known.contains_key(name))?;
    nearest(name, known.keys().map(String::as_str))
}

fn setting_refused(id: &str, field: &str, reason: &str) -> String {
    format!("its setting {field} in [driver.{id}] is refused: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(settings: Value) -> DriverSettings {
        DriverSettings { settings: serde_json::from_value(settings).unwrap(), ..DriverSettings::default() }
    }

    #[test]
    fn words_of_names_may_be_separated() {
        let entry =
            json!({ "properties": { "keyHelp": { "type": "string" }, "title": { "type": "string" } } });
        let schema = json!({
            "additionalProperties": false,
            "properties": { "retryHours": { "type": "integer" }, "madeTypes": { "additionalProperties": entry } },
        });
        let named = |settings: Value| named("x", Some(&schema), &of(settings));
        assert_eq!(named(json!({ "retry_hours": 2, "retryHours": 1 })), json!({ "retryHours": 2 }));
        let given = json!({ "madeTypes": { "a": { "title": "A" } }, "made_types": { "a": { "key_help": "h" }, "b_c": {} } });
        let expected = json!({ "madeTypes": { "a": { "title": "A", "keyHelp": "h" }, "b_c": {} } });
        assert_eq!(named(given), expected);
        assert_eq!(suggestion(&schema, "retry_hour"), Some("retryHours"));
        assert!(checked("x", Some(&schema), &of(json!({ "retry_hour": 2 }))).is_err());
        let inner = json!({ "madeTypes": { "a": { "titel": "A" } } });
        assert!(checked("x", Some(&schema), &of(inner)).is_ok(), "the entry has other fields");
        assert_eq!(suggestion(&schema, "madeTypes.a.titel"), Some("title"));
        assert_eq!(suggestion(&schema, "madeTypes.a.title"), None, "it is known");
        assert_eq!(suggestion(&schema, "colour"), None);
    }

    #[test]
    fn the_operators_store_reaches_drivers_that_ask_for_it() {
        let mut chosen = of(json!({ "region": "own", "quota": 5 }));
        chosen.archive = of(json!({ "access_key": "a", "region": "r" })).settings;
        let schema = |table: Value| json!({ "properties": { "accessKey": {}, "region": {}, "quota": {} }, "x-table": table });
        let own = json!({ "region": "own", "quota": 5 });
        let all = json!({ "region": "own", "quota": 5, "accessKey": "a" });
        assert_eq!(named("x", Some(&schema(json!("archive"))), &chosen), all);
        assert_eq!(named("x", Some(&schema(json!("log"))), &chosen), own);
        assert_eq!(named("x", Some(&json!({})), &chosen), own);
        assert_eq!(
            named("archive", Some(&json!({ "properties": { "accessKey": {} } })), &chosen),
            all,
            "an older one"
        );
    }

    #[test]
    fn settings_follow_the_drivers_schema() {
        let schema = json!({
            "type": "object", "additionalProperties": false, "required": ["folder"],
            "properties": { "folder": { "type": "string" }, "token": { "type": "string", "x-secret": true } },
        });
        let good = checked("x", Some(&schema), &of(json!({ "folder": "a", "token": "sesame" }))).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&good.json).unwrap()["folder"], "a");
        assert_eq!(good.secrets, ["sesame"]);
        let error = |settings| checked("x", Some(&schema), &of(settings)).err().unwrap();
        assert!(error(json!({})).starts_with(&setting_refused("x", "folder", "")));
        let unknown = error(json!({ "folder": "a", "colour": "red" }));
        assert!(unknown.starts_with(&setting_refused("x", "colour", "")), "{unknown}");
        let wrong = error(json!({ "folder": "a", "token": 4711 }));
        assert!(wrong.starts_with(&setting_refused("x", "token", "")) && !wrong.contains("4711"), "{wrong}");
    }

    #[test]
    fn a_refused_setting_text() {
        assert_eq!(
            setting_refused("x", "folder", "is no text"),
            "its setting folder in [driver.x] is refused: is no text"
        );
    }

    #[test]
    fn a_driver_without_settings_accepts_none() {
        assert_eq!(checked("x", None, &DriverSettings::default()).unwrap().json, "{}");
        let error = checked("x", None, &of(json!({ "colour": "red" }))).err().unwrap();
        assert_eq!(error, "takes no settings of its own; remove colour from [driver.x]");
        assert!(checked("x", Some(&json!({ "type": 5 })), &DriverSettings::default()).is_err());
    }
}
