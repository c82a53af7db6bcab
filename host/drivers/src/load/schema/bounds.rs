//! Limits of a schema before configurations are checked with it: the cost of a check is bounded, and its marks of
//! secrets are understood. References make a small schema a large one, and a schema that refers to itself has no size
//! at all.

use serde_json::{Map, Value};

/// Most parts of a schema: every value in it is one, and each reference counts as its target.
pub(super) const PARTS_MAX: usize = 10_000;
/// Deepest nesting of a schema with references followed.
const DEPTH_MAX: usize = 256;

/// Keywords that refer to another place by a rule other than a pointer into the schema.
const OTHER_REFERENCES: [&str; 4] = ["$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"];
/// Marks that hide a text.
const MARKS: [&str; 2] = ["x-secret", "x-secret-url"];

/// Number of parts of the schema with references followed.
///
/// # Errors
/// One sentence with the place that is invalid.
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
    /// Every value that may be a schema counts as one: whether a value is a name or a keyword depends on its place.
    fn go(&mut self, value: &Value, depth: usize) -> Result<(), String> {
        // A list of names costs as much as a list of schemas.
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
                "{name} is not supported; use $ref with a place in the schema, as #/$defs/name"
            ));
        }
        if depth > 0 && text("$id").is_some() {
            return Err("$id is allowed only at the top of the schema".to_owned());
        }
        let Some(reference) = text("$ref") else { return Ok(()) };
        let target = reference.strip_prefix('#').filter(|pointer| !pointer.contains('%'));
        match target.and_then(|pointer| self.root.pointer(pointer)) {
            Some(target) => self.go(target, depth + 1),
            None => {
                Err(format!("$ref {reference} points to nothing in the schema; write it as #/$defs/name"))
            }
        }
    }
}

/// A mark without effect is worse than no mark.
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
        return Err(
            "writeOnly and the format password are allowed only on a string; use the type string".to_owned()
        );
    }
    for mark in MARKS {
        // A field may have that name; then the value is the field's schema.
        let Some(value) = fields.get(mark).filter(|value| !value.is_object()) else { continue };
        if value != &Value::Bool(true) {
            return Err(format!("{mark} must be true or be left out"));
        }
        let others = ["integer", "number", "boolean", "object", "array"];
        if !any_kind(&["string"]) || any_kind(&others) {
            return Err(format!(
                "{mark} is allowed only on a string: the type must be string, or string and null"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Alternatives that each refer to the next two, `deep` times.
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
    fn references_count_as_their_targets() {
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
    fn self_references_and_outside_references_are_refused() {
        for (schema, reason) in [
            (json!({ "properties": { "x": { "$ref": "#" } } }), "refers to itself"),
            (json!({ "$defs": { "a": { "items": { "$ref": "#/$defs/a" } } } }), "refers to itself"),
            (json!({ "$ref": "https://a.example/s.json" }), "points to nothing"),
            (json!({ "$ref": "#/$defs/none" }), "points to nothing"),
            (json!({ "$ref": "#/%24defs/a", "$defs": { "a": {} } }), "points to nothing"),
            (json!({ "$dynamicRef": "#a" }), "$dynamicRef is not supported"),
            (json!({ "$defs": { "a": { "$anchor": "a" } } }), "$anchor is not supported"),
            (json!({ "$defs": { "a": { "$id": "b" } } }), "$id is allowed only"),
        ] {
            let refused = parts(&schema).unwrap_err();
            assert!(refused.contains(reason), "{schema}: {refused}");
        }
        assert!(parts(&json!({ "$id": "urn:a", "properties": { "$ref": { "type": "string" } } })).is_ok());
    }

    #[test]
    fn marks_are_true_and_only_on_strings() {
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
