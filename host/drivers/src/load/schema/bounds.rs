//! What a schema may be before configurations are checked with it: what it costs to check one is bounded, and what it marks as secret
//! is understood. References make a small schema a large one, and one that refers to itself has no size at all.

use serde_json::{Map, Value};

/// Most parts of a schema: every value in it is one, and each reference counts as what it leads to.
pub(super) const PARTS_MAX: usize = 10_000;
/// Deepest nesting of a schema, references followed.
const DEPTH_MAX: usize = 256;

/// Keywords that lead elsewhere by another rule than a pointer into the schema.
const OTHER_REFERENCES: [&str; 4] = ["$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"];
/// Marks that hide a text.
const MARKS: [&str; 2] = ["x-secret", "x-secret-url"];

/// How many parts the schema has, references followed.
///
/// # Errors
/// One sentence that says where it is not as it has to be.
pub(super) fn parts(schema: &Value) -> Result<usize, String> {
    let mut walk = Walk { root: schema, parts: 0 };
    walk.go(schema, 0)?;
    Ok(walk.parts)
}

struct Walk<'a> {
    root: &'a Value,
    parts: usize,
}

impl Walk<'_> {
    /// Everything that may be a schema counts as one: what is a name and what a keyword depends on the place.
    fn go(&mut self, value: &Value, depth: usize) -> Result<(), String> {
        // A list of names costs as much as one of schemas.
        self.parts += 1;
        if self.parts > PARTS_MAX || depth > DEPTH_MAX {
            return Err(format!(
                "it refers to itself, or has more than {PARTS_MAX} parts when its references are followed"
            ));
        }
        match value {
            Value::Object(fields) => {
                check_marks(fields)?;
                fields.values().try_for_each(|value| self.go(value, depth + 1))?;
                self.follow(fields, depth)
            }
            Value::Array(items) => items.iter().try_for_each(|item| self.go(item, depth + 1)),
            _ => Ok(()),
        }
    }

    fn follow(&mut self, fields: &Map<String, Value>, depth: usize) -> Result<(), String> {
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        if let Some(name) = OTHER_REFERENCES.into_iter().find(|name| text(name).is_some()) {
            return Err(format!(
                "{name} is not taken; refer by $ref to a place of the schema, as #/$defs/name"
            ));
        }
        if depth > 0 && text("$id").is_some() {
            return Err("$id is taken at the top of the schema alone".to_owned());
        }
        let Some(reference) = text("$ref") else { return Ok(()) };
        let target = reference.strip_prefix('#').filter(|pointer| !pointer.contains('%'));
        match target.and_then(|pointer| self.root.pointer(pointer)) {
            Some(target) => self.go(target, depth + 1),
            None => {
                Err(format!("$ref {reference} leads to no place of the schema; write it as #/$defs/name"))
            }
        }
    }
}

/// A mark that hides nothing is worse than none.
fn check_marks(fields: &Map<String, Value>) -> Result<(), String> {
    let is_kind = |kind: &Value, kinds: &[&str]| kind.as_str().is_some_and(|kind| kinds.contains(&kind));
    let any_kind = |kinds: &[&str]| match fields.get("type") {
        Some(Value::Array(all)) => all.iter().any(|kind| is_kind(kind, kinds)),
        Some(kind) => is_kind(kind, kinds),
        None => false,
    };
    let is_hidden = fields.get("writeOnly") == Some(&Value::Bool(true))
        || fields.get("format").is_some_and(|format| format == "password");
    if is_hidden && any_kind(&["integer", "number", "boolean"]) {
        return Err("writeOnly and the format password hide texts alone; take a string".to_owned());
    }
    for mark in MARKS {
        // A field may have that name; then its schema stands here.
        let Some(value) = fields.get(mark).filter(|value| !value.is_object()) else { continue };
        if value != &Value::Bool(true) {
            return Err(format!("{mark} must be true or be left out"));
        }
        let others = ["integer", "number", "boolean", "object", "array"];
        if !any_kind(&["string"]) || any_kind(&others) {
            return Err(format!(
                "{mark} stands at a text alone: its type must be string, or string and null"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Alternatives that each lead to the next two, `deep` times.
    fn swelling(deep: usize) -> Value {
        let mut definitions = Map::new();
        for level in 0..deep {
            let next = json!({ "$ref": format!("#/$defs/a{}", level + 1) });
            definitions.insert(format!("a{level}"), json!({ "anyOf": [next, next] }));
        }
        definitions.insert(format!("a{deep}"), json!({ "type": "null" }));
        json!({ "$defs": definitions, "properties": { "x": { "$ref": "#/$defs/a0" } } })
    }

    #[test]
    fn references_count_as_what_they_lead_to() {
        assert_eq!(parts(&json!({ "type": "object" })), Ok(2));
        assert_eq!(parts(&json!({ "required": ["a", "b"] })), Ok(4), "names count");
        let schema =
            json!({ "properties": { "a": { "$ref": "#/$defs/t" } }, "$defs": { "t": { "type": "null" } } });
        assert_eq!(parts(&schema), Ok(9));
        assert!(parts(&swelling(4)).unwrap() < 500);
        for deep in [13, 40, 300] {
            assert!(parts(&swelling(deep)).unwrap_err().contains("parts"), "{deep}");
        }
    }

    #[test]
    fn what_refers_to_itself_or_elsewhere_is_refused() {
        for (schema, reason) in [
            (json!({ "properties": { "x": { "$ref": "#" } } }), "refers to itself"),
            (json!({ "$defs": { "a": { "items": { "$ref": "#/$defs/a" } } } }), "refers to itself"),
            (json!({ "$ref": "https://a.example/s.json" }), "leads to no place"),
            (json!({ "$ref": "#/$defs/none" }), "leads to no place"),
            (json!({ "$ref": "#/%24defs/a", "$defs": { "a": {} } }), "leads to no place"),
            (json!({ "$dynamicRef": "#a" }), "$dynamicRef is not taken"),
            (json!({ "$defs": { "a": { "$anchor": "a" } } }), "$anchor is not taken"),
            (json!({ "$defs": { "a": { "$id": "b" } } }), "$id is taken"),
        ] {
            let refused = parts(&schema).unwrap_err();
            assert!(refused.contains(reason), "{schema}: {refused}");
        }
        assert!(parts(&json!({ "$id": "urn:a", "properties": { "$ref": { "type": "string" } } })).is_ok());
    }

    #[test]
    fn marks_stand_at_texts_and_are_true() {
        for schema in [
            json!({ "type": "string", "x-secret": true }),
            json!({ "type": ["string", "null"], "x-secret-url": true }),
            json!({ "properties": { "x-secret": { "type": "integer" } } }),
        ] {
            assert!(parts(&schema).is_ok(), "{schema}");
        }
        for schema in [
            json!({ "type": "string", "x-secret": "true" }),
            json!({ "type": "string", "x-secret": false }),
            json!({ "type": "integer", "x-secret": true }),
            json!({ "type": "array", "items": { "type": "string" }, "x-secret": true }),
            json!({ "x-secret-url": true }),
            json!({ "type": "integer", "writeOnly": true }),
            json!({ "type": ["number", "null"], "format": "password" }),
        ] {
            assert!(parts(&json!({ "properties": { "a": schema } })).is_err(), "{schema}");
        }
    }
}
