//! What the operator wrote below `[driver.<id>]` for the driver itself, checked by the schema the driver declares.

use std::collections::BTreeMap;

use serde_json::Value;

use super::schema::ConfigSchema;
use super::services::OperatorSettings;

/// The settings as the driver gets them.
///
/// # Errors
/// One sentence that names the key; never a value.
pub(super) fn checked(
    id: &str,
    schema: Option<&Value>,
    settings: &BTreeMap<String, Value>,
) -> Result<OperatorSettings, String> {
    let Some(schema) = schema else {
        return match settings.keys().next() {
            Some(key) => Err(format!("takes no settings of its own; remove {key} from [driver.{id}]")),
            None => Ok(OperatorSettings { json: "{}".to_string(), secrets: Vec::new() }),
        };
    };
    let schema = ConfigSchema::compile(schema)
        .map_err(|error| format!("the schema of its settings is invalid: {error}"))?;
    let object = Value::Object(settings.clone().into_iter().collect());
    schema.check(&object).map_err(|refused| match refused.field.as_str() {
        "" => format!("its settings in [driver.{id}] are refused: {}", refused.reason),
        field => setting_refused(id, field, &refused.reason),
    })?;
    Ok(OperatorSettings { json: object.to_string(), secrets: schema.secrets(&object) })
}

fn setting_refused(id: &str, field: &str, reason: &str) -> String {
    format!("its setting {field} in [driver.{id}] is refused: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(settings: Value) -> BTreeMap<String, Value> {
        serde_json::from_value(settings).unwrap()
    }

    #[test]
    fn settings_are_what_the_driver_declares() {
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
    fn a_driver_without_settings_takes_none() {
        assert_eq!(checked("x", None, &BTreeMap::new()).unwrap().json, "{}");
        let error = checked("x", None, &of(json!({ "colour": "red" }))).err().unwrap();
        assert_eq!(error, "takes no settings of its own; remove colour from [driver.x]");
        assert!(checked("x", Some(&json!({ "type": 5 })), &BTreeMap::new()).is_err());
    }
}
