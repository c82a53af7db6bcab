//! Destination types that operators make or change by a setting of a driver: the driver's own types combined with the
//! operator's entries. The driver finds the same entries in its settings.

use std::collections::BTreeMap;

use satcast_plugin_api::DestType;
use satcast_plugin_api::manifest::{Manifest, is_name};
use serde_json::{Map, Value, json};

use super::annotations::private;
use super::masking::field;
use satcast_net::outbound::Guard;

/// Fields of an entry that replace the type's own.
const TITLE: &str = "title";
const DESCRIPTION: &str = "description";

/// The types that a driver serves with these settings, which its schema accepts.
///
/// # Errors
/// One sentence that names the entry; never a value.
pub(crate) fn types(id: &str, manifest: &Manifest, settings: &Value) -> Result<Vec<DestType>, String> {
    let Some(made) = &manifest.made else { return Ok(manifest.types.clone()) };
    let entry_schema = |name| field(field(manifest.settings.as_ref(), &made.setting), name);
    let mut types = manifest.types.clone();
    let entries = settings.get(&made.setting).and_then(Value::as_object).into_iter().flatten();
    for (name, entry) in entries {
        let place = place(id, &made.setting, name);
        if !is_name(name) {
            return Err(format!("{place}: is not a valid type name; use up to 32 of a-z, 0-9 and -"));
        }
        let Some(entry) = entry.as_object() else { return Err(format!("{place}: must be a table")) };
        let private = private(entry_schema(name));
        match types.iter_mut().find(|kind| kind.name == *name) {
            Some(kind) => {
                let known = kind.schema[DESCRIPTION].clone();
                let keeps_description = !entry.contains_key(DESCRIPTION) && !changes_facts(kind, entry);
                change(kind, entry, &private);
                if keeps_description && !known.is_null() {
                    kind.schema[DESCRIPTION] = known;
                }
            }
            None => {
                let (name, title) = (name.to_owned(), name.to_owned());
                let mut kind = DestType { name, title, ..made.like.clone() };
                change(&mut kind, entry, &private);
                types.push(kind);
            }
        }
    }
    // The limits of a manifest apply to the result.
    let whole = Manifest { types, ..manifest.clone() };
    let json = serde_json::to_string(&whole).map_err(|error| error.to_string())?;
    Manifest::parse(&json)
        .map(|manifest| manifest.types)
        .map_err(|error| format!("with {} in [driver.{id}] {error}", made.setting))
}

/// Checks the addresses in the entries; a literal address must not be a forbidden one.
///
/// # Errors
/// One sentence that names the entry and the field.
pub(crate) fn check_addresses(
    id: &str,
    manifest: &Manifest,
    settings: &Value,
    guard: &Guard,
) -> Result<(), String> {
    let Some(made) = &manifest.made else { return Ok(()) };
    for (name, entry) in settings.get(&made.setting).and_then(Value::as_object).into_iter().flatten() {
        for (field, value) in entry.as_object().into_iter().flatten() {
            let checked = guard.check_url(value.as_str().unwrap_or_default());
            checked.map_err(|refused| format!("{}: {field}: {refused}", place(id, &made.setting, name)))?;
        }
    }
    Ok(())
}

/// The entry that makes the type `name`; `None` for a type that the driver itself declares.
pub(crate) fn made_by(id: &str, manifest: &Manifest, name: &str) -> Option<String> {
    let made = manifest.made.as_ref().filter(|_| manifest.types.iter().all(|known| known.name != name))?;
    Some(place(id, &made.setting, name))
}

fn place(id: &str, setting: &str, name: &str) -> String {
    format!("{setting}.{name} in [driver.{id}]")
}

/// Whether an entry changes facts that the type's description may mention: its title and the facts about the
/// platform.
fn changes_facts(kind: &DestType, entry: &Map<String, Value>) -> bool {
    let facts = &kind.schema["x-platform"];
    let differs = |field: &str, value: &Value| facts.get(field).is_some_and(|known| known != value);
    entry.iter().any(|(field, value)| !value.is_null() && (*field == *TITLE || differs(field, value)))
}

/// Applies an entry to a type. A field that also exists in the configuration sets its default, and destinations need
/// not give it any more; any other field joins the facts about the platform. A private field shows at most its flag.
fn change(kind: &mut DestType, entry: &Map<String, Value>, private: &BTreeMap<&str, Option<&str>>) {
    if let Some(title) = entry.get(TITLE).and_then(Value::as_str) {
        kind.title = title.to_owned();
    }
    let described = format!("{}, as the operator of this service set it up.", kind.title);
    let description = entry.get(DESCRIPTION).and_then(Value::as_str).unwrap_or(&described);
    let schema = &mut kind.schema;
    (schema[TITLE], schema[DESCRIPTION]) = (json!(kind.title), json!(description));
    let mut has_new_default = false;
    for (field, value) in entry {
        let field = field.as_str();
        if [TITLE, DESCRIPTION].contains(&field) || private.contains_key(field) || value.is_null() {
            continue;
        }
        if schema["properties"].get(field).is_some() {
            has_new_default = true;
            let property = &mut schema["properties"][field];
            // Texts about the old default are adapted to the new one.
            if let (Some(text), Some(old), Some(new)) =
                (property[DESCRIPTION].as_str(), property["default"].as_str(), value.as_str())
            {
                property[DESCRIPTION] = json!(text.replace(old, new));
            }
            property["default"] = value.clone();
            if let Some(required) = schema["required"].as_array_mut() {
                required.retain(|name| name != field);
            }
        } else {
            schema["x-platform"][field] = value.clone();
        }
    }
    let facts = &mut schema["x-platform"];
    for (field, flag) in private.iter().filter_map(|(field, flag)| Some((*field, (*flag)?))) {
        let is_given = entry.get(field).is_some_and(|value| !value.is_null());
        // Facts about the old default do not apply to the new one.
        if is_given || (has_new_default && facts.get(flag).is_some()) {
            facts[flag] = json!(is_given);
        }
    }
}

#[cfg(test)]
mod tests {
    use satcast_plugin_api::manifest::TypesSetting;

    use super::*;

    fn kind(name: &str) -> DestType {
        let schema = json!({
            "type": "object", "required": ["key", "server"],
            "properties": {"key": {"type": "string"}, "server": {"type": "string"}},
            "x-platform": {"keyframeSeconds": 2, "videoKbpsMax": 6000},
        });
        DestType {
            name: name.into(),
            title: name.into(),
            schema,
            codecs: vec!["h264".into()],
            playback: false,
            wants_backfill: false,
            routes: Vec::new(),
        }
    }

    fn made(entries: Value) -> Result<Vec<DestType>, String> {
        let made = TypesSetting { setting: "types".into(), like: kind("like") };
        let manifest = Manifest {
            title: "t".into(),
            types: vec![kind("twitch")],
            settings: None,
            made: Some(made.into()),
        };
        types("platform", &manifest, &json!({ "types": entries }))
    }

    #[test]
    fn known_types_are_changed_and_new_ones_made() {
        let types = made(json!({
            "twitch": {"videoKbpsMax": 8000, "server": "rtmp://a.example/app", "keyframeSeconds": null},
            "church-tv": {"title": "Church TV", "description": "Ours.", "backup": "rtmp://b.example/app"},
        }));
        let types = types.unwrap();
        let names: Vec<_> = types.iter().map(|kind| (kind.name.as_str(), kind.title.as_str())).collect();
        assert_eq!(names, [("twitch", "twitch"), ("church-tv", "Church TV")]);
        let (twitch, church) = (&types[0].schema, &types[1].schema);
        assert_eq!(twitch["x-platform"], json!({"keyframeSeconds": 2, "videoKbpsMax": 8000}));
        assert_eq!(twitch["properties"]["server"]["default"], "rtmp://a.example/app");
        assert_eq!((&twitch["required"], &church["required"]), (&json!(["key"]), &json!(["key", "server"])));
        assert_eq!(twitch["description"], "twitch, as the operator of this service set it up.");
        assert_eq!((&church["title"], &church["description"]), (&json!("Church TV"), &json!("Ours.")));
        assert_eq!(types[1].codecs, ["h264"]);
        assert_eq!(made(json!({})).unwrap(), [kind("twitch")]);
    }

    #[test]
    fn entries_may_not_lead_to_forbidden_addresses() {
        let made = TypesSetting { setting: "types".into(), like: kind("like") };
        let manifest =
            Manifest { title: "t".into(), types: Vec::new(), settings: None, made: Some(made.into()) };
        let check = |entry: Value, allow: &[String]| {
            let settings = json!({ "types": { "church-tv": entry } });
            check_addresses("platform", &manifest, &settings, &Guard::new(allow).unwrap())
        };
        for field in ["server", "backup", "ingests"] {
            let said = check(json!({ field: "rtmp://169.254.169.254/app/secret" }), &[]).unwrap_err();
            assert!(said.starts_with(&format!("types.church-tv in [driver.platform]: {field}: ")), "{said}");
            assert!(!said.contains("secret"), "{said}");
        }
        let inside = json!({ "server": "rtmp://10.1.2.3/app", "title": "At 10.1.2.3", "bFrames": true });
        check(inside.clone(), &[]).unwrap_err();
        check(inside, &["10.0.0.0/8".to_owned()]).unwrap();
        check(json!({ "server": "rtmp://a.example/app", "ingests": "" }), &[]).unwrap();
    }

    #[test]
    fn private_fields_show_only_that_there_is_a_backup() {
        let mut known = kind("twitch");
        known.schema["x-platform"]["hasBackup"] = json!(true);
        let mut like = kind("like");
        like.schema["x-platform"]["hasBackup"] = json!(false);
        let shown = |name: &str, entry: Value| {
            let manifest = Manifest {
                title: "t".into(),
                types: vec![known.clone()],
                settings: None,
                made: Some(TypesSetting { setting: "types".into(), like: like.clone() }.into()),
            };
            let types = types("platform", &manifest, &json!({ "types": { name: entry } })).unwrap();
            let schema = &types.iter().find(|kind| kind.name == name).unwrap().schema;
            assert!(!schema["x-platform"].to_string().contains("://"), "{schema}");
            schema["x-platform"]["hasBackup"].clone()
        };
        let (server, backup) = ("rtmp://a.example/app", "rtmp://b.example/app");
        assert_eq!(shown("church-tv", json!({ "server": server, "backup": backup })), true);
        assert_eq!(shown("church-tv", json!({ "server": server })), false);
        assert_eq!(shown("twitch", json!({ "ingests": "https://c.example/", "backup": null })), true);
        assert_eq!(
            shown("twitch", json!({ "server": server })),
            false,
            "the known backup does not belong to that server"
        );
        assert_eq!(shown("twitch", json!({ "server": server, "backup": backup })), true);
    }

    #[test]
    fn descriptions_match_the_changed_type() {
        let (old, new) = ("rtmp://old.example/app", "rtmp://new.example/app");
        let mut known = kind("twitch");
        known.schema["description"] = json!("Stream to Twitch, up to 6000 kbit/s.");
        known.schema["properties"]["server"] =
            json!({"type": "string", "default": old, "description": format!("Left out, {old} is used.")});
        let changed = |entry: Value| {
            let made = TypesSetting { setting: "types".into(), like: kind("like") };
            let manifest = Manifest {
                title: "t".into(),
                types: vec![known.clone()],
                settings: None,
                made: Some(made.into()),
            };
            let settings = json!({ "types": { "twitch": entry } });
            types("platform", &manifest, &settings).unwrap().remove(0).schema
        };
        let schema = changed(json!({ "server": new, "ingests": "", "videoKbpsMax": 6000 }));
        assert_eq!(schema["description"], "Stream to Twitch, up to 6000 kbit/s.");
        assert_eq!(
            schema["properties"]["server"]["description"],
            "Left out, rtmp://new.example/app is used."
        );
        let theirs = "twitch, as the operator of this service set it up.";
        assert_eq!(changed(json!({ "videoKbpsMax": 8000 }))["description"], theirs);
        assert_eq!(
            changed(json!({ "title": "TV" }))["description"],
            "TV, as the operator of this service set it up."
        );
        assert_eq!(changed(json!({ "description": "Ours." }))["description"], "Ours.");
    }

    #[test]
    fn invalid_type_entries_texts() {
        let error = made(json!({"Church TV": {}})).unwrap_err();
        assert_eq!(
            error,
            "types.Church TV in [driver.platform]: is not a valid type name; use up to 32 of a-z, 0-9 and -"
        );
        let many: Map<String, Value> = (0..64).map(|n| (format!("t{n}"), json!({}))).collect();
        let error = made(json!(many)).unwrap_err();
        assert!(error.contains("65"), "{error}");
        assert_eq!(made(json!({"a": 5})).unwrap_err(), "types.a in [driver.platform]: must be a table");
    }

    #[test]
    fn a_driver_without_such_a_setting_serves_its_own_types() {
        let manifest = Manifest { title: "t".into(), types: vec![kind("a")], settings: None, made: None };
        let settings = json!({"types": {"b": {}}});
        assert_eq!(types("x", &manifest, &settings).unwrap(), [kind("a")]);
    }
}
