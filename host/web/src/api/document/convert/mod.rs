//! A driver's JSON Schema (2020-12) as a schema of OpenAPI 3.0.3.
//!
//! The result is a valid schema of an object for every input. It accepts everything that the driver's schema accepts, so that no
//! client refuses a valid value; constraints that 3.0.3 cannot express are omitted.

mod parts;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use self::parts::{allow_null, both, hide, into_items, is_common, is_null, merge, types, united};

/// Deepest nesting that is described, including references; below it, anything is accepted.
const DEPTH_MAX: usize = 12;
/// Largest result in bytes of JSON, with references expanded; a larger result becomes a plain object.
const BYTES_MAX: usize = 64 * 1024;
/// Bytes counted for a schema besides its content.
const SCHEMA_BYTES: usize = 16;
/// Longest description in characters; longer ones are truncated.
const TEXT_CHARS_MAX: usize = 1_000;
/// The mark of secret fields.
const SECRET: &str = "x-secret";
/// Annotation keywords: beside a reference they override those of its target.
const NOTES: [&str; 8] =
    ["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", SECRET];

/// Converts the schema of a configuration.
pub(super) fn config_schema(schema: &Value) -> Value {
    let mut conversion = Conversion { root: schema, left: BYTES_MAX, inside: Vec::new() };
    match conversion.schema(schema, 0) {
        Some(Value::Object(mut fields)) => {
            fields.remove("nullable");
            match fields.get("type").and_then(Value::as_str) {
                Some("object") => Value::Object(fields),
                Some(_) => plain_object(),
                None => {
                    fields.insert("type".to_owned(), json!("object"));
                    Value::Object(fields)
                }
            }
        }
        _ => plain_object(),
    }
}

fn plain_object() -> Value {
    json!({"type": "object", "additionalProperties": true})
}

/// One conversion; every step returns `None` when the result would become too large.
struct Conversion<'a> {
    root: &'a Value,
    left: usize,
    /// Targets of the references that are being expanded.
    inside: Vec<&'a str>,
}

impl<'a> Conversion<'a> {
    fn schema(&mut self, schema: &'a Value, depth: usize) -> Option<Value> {
        self.pay(SCHEMA_BYTES)?;
        let Some(fields) = schema.as_object().filter(|_| depth < DEPTH_MAX) else { return Some(json!({})) };
        match fields.get("$ref").or_else(|| fields.get("$dynamicRef")) {
            Some(target) => self.reference(fields, target, depth),
            None => self.plain(fields, depth),
        }
    }

    /// Expands a reference and merges the keywords beside it. A recursive reference is expanded once.
    fn reference(
        &mut self,
        fields: &'a Map<String, Value>,
        target: &'a Value,
        depth: usize,
    ) -> Option<Value> {
        let path = target.as_str().and_then(|target| target.strip_prefix('#'));
        let path = path.filter(|path| !self.inside.contains(path));
        let mut converted = match path.and_then(|path| Some((path, self.root.pointer(path)?))) {
            Some((path, found)) => {
                self.inside.push(path);
                let converted = self.schema(found, depth + 1);
                self.inside.pop();
                converted?
            }
            None => json!({}),
        };
        let mut own = fields.keys().filter(|name| !matches!(name.as_str(), "$ref" | "$dynamicRef"));
        if own.all(|name| NOTES.contains(&name.as_str())) {
            let mut notes = Map::new();
            self.notes(fields, &mut notes)?;
            merge(&mut converted, notes);
            return Some(converted);
        }
        let own = self.plain(fields, depth)?;
        Some(json!({"allOf": [converted, own]}))
    }

    fn plain(&mut self, fields: &'a Map<String, Value>, depth: usize) -> Option<Value> {
        let mut out = Map::new();
        self.notes(fields, &mut out)?;
        self.values(fields, &mut out)?;
        self.bounds(fields, &mut out)?;
        self.members(fields, &mut out, depth)?;
        let mut alternatives = Vec::new();
        types(fields, &mut out, &mut alternatives);
        self.alternatives(fields, &mut out, &mut alternatives, depth)?;
        match alternatives.len() {
            0 => {}
            1 => {
                let choices = alternatives.remove(0);
                out.insert("anyOf".to_owned(), choices);
            }
            // Two choices that must both match.
            _ => {
                let all = alternatives.into_iter().map(|choices| json!({"anyOf": choices}));
                let all = all.chain(out.remove("allOf").and_then(into_items).into_iter().flatten());
                out.insert("allOf".to_owned(), all.collect());
            }
        }
        if fields.get(SECRET) == Some(&Value::Bool(true)) {
            let mut schema = Value::Object(out);
            hide(&mut schema);
            return Some(schema);
        }
        Some(Value::Object(out))
    }

    /// Annotations.
    fn notes(&mut self, fields: &Map<String, Value>, out: &mut Map<String, Value>) -> Option<()> {
        if let Some(text) = fields.get("description").and_then(Value::as_str) {
            let is_shown = |c: &char| !c.is_control() || *c == '\n';
            let text: String = text.chars().filter(is_shown).take(TEXT_CHARS_MAX).collect();
            self.put(out, "description", json!(text))?;
        }
        for name in ["deprecated", "readOnly", "writeOnly"] {
            if fields.get(name) == Some(&Value::Bool(true)) {
                self.put(out, name, json!(true))?;
            }
        }
        if fields.get(SECRET) == Some(&Value::Bool(true)) {
            return self.put(out, "writeOnly", json!(true));
        }
        // A null default or example only says that the field is optional, which the schema already shows.
        if let Some(default) = fields.get("default").filter(|default| !default.is_null()) {
            self.put(out, "default", default.clone())?;
        }
        if let Some(example) = fields.get("examples").and_then(|examples| examples.get(0)) {
            self.put(out, "example", example.clone())?;
        }
        Some(())
    }

    /// Enumerated values.
    fn values(&mut self, fields: &Map<String, Value>, out: &mut Map<String, Value>) -> Option<()> {
        let constant = fields.get("const").map(|value| json!([value]));
        let listed = fields.get("enum").filter(|list| list.as_array().is_some_and(|list| !list.is_empty()));
        match constant.or_else(|| listed.cloned()) {
            Some(values) => self.put(out, "enum", values),
            None => Some(()),
        }
    }

    /// Bounds of numbers, texts, lists and objects.
    fn bounds(&mut self, fields: &Map<String, Value>, out: &mut Map<String, Value>) -> Option<()> {
        for name in ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"] {
            if let Some(count) = fields.get(name).and_then(Value::as_u64) {
                self.put(out, name, json!(count))?;
            }
        }
        for (name, exclusive, is_stronger) in [
            ("minimum", "exclusiveMinimum", (|own, other| own >= other) as fn(f64, f64) -> bool),
            ("maximum", "exclusiveMaximum", |own, other| own <= other),
        ] {
            let bound = fields.get(name).filter(|bound| bound.is_number());
            let open = fields.get(exclusive).filter(|bound| bound.is_number());
            match (bound, open) {
                (bound, Some(open)) if bound.is_none_or(|bound| both(open, bound, is_stronger)) => {
                    self.put(out, name, open.clone())?;
                    self.put(out, exclusive, json!(true))?;
                }
                (Some(bound), _) => self.put(out, name, bound.clone())?,
                (None, _) => {}
            }
        }
        if let Some(step) = fields.get("multipleOf").filter(|step| step.as_f64() > Some(0.0)) {
            self.put(out, "multipleOf", step.clone())?;
        }
        if let Some(pattern) = fields.get("pattern").and_then(Value::as_str).filter(|text| is_common(text)) {
            self.put(out, "pattern", json!(pattern))?;
        }
        if fields.get("uniqueItems") == Some(&Value::Bool(true)) {
            self.put(out, "uniqueItems", json!(true))?;
        }
        // The service does not enforce string formats, so they could refuse valid values.
        let formats = ["int32", "int64", "uint32", "uint64", "float", "double"];
        match fields.get("format").and_then(Value::as_str).filter(|format| formats.contains(format)) {
            Some(format) => self.put(out, "format", json!(format)),
            None => Some(()),
        }
    }

    /// Fields of objects and entries of lists.
    fn members(
        &mut self,
        fields: &'a Map<String, Value>,
        out: &mut Map<String, Value>,
        depth: usize,
    ) -> Option<()> {
        if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
            let mut converted = Map::new();
            for (name, schema) in properties {
                self.pay(name.len())?;
                converted.insert(name.clone(), self.schema(schema, depth + 1)?);
            }
            out.insert("properties".to_owned(), Value::Object(converted));
        }
        let required = fields.get("required").and_then(Value::as_array).into_iter().flatten();
        let required: BTreeSet<&str> = required.filter_map(Value::as_str).collect();
        if !required.is_empty() {
            self.put(out, "required", json!(required))?;
        }
        // Fields that match a pattern are not unknown fields.
        if !fields.contains_key("patternProperties") {
            match fields.get("additionalProperties") {
                Some(Value::Bool(allowed)) => self.put(out, "additionalProperties", json!(allowed))?,
                Some(schema @ Value::Object(_)) => {
                    let schema = self.schema(schema, depth + 1)?;
                    out.insert("additionalProperties".to_owned(), schema);
                }
                _ => {}
            }
        }
        if let Some(items) = fields.get("items").filter(|items| items.is_object()) {
            let first = fields.contains_key("prefixItems");
            let items = if first { json!({}) } else { self.schema(items, depth + 1)? };
            out.insert("items".to_owned(), items);
        }
        Some(())
    }

    /// `allOf` is merged into `out`; `anyOf` and `oneOf` each give a list of choices. `oneOf` becomes `anyOf`, because schemas with
    /// omitted constraints may match more than once.
    fn alternatives(
        &mut self,
        fields: &'a Map<String, Value>,
        out: &mut Map<String, Value>,
        alternatives: &mut Vec<Value>,
        depth: usize,
    ) -> Option<()> {
        let list = |name| fields.get(name).and_then(Value::as_array).filter(|list| !list.is_empty());
        if let Some(all) = list("allOf") {
            let all: Option<Vec<_>> = all.iter().map(|schema| self.schema(schema, depth + 1)).collect();
            out.insert("allOf".to_owned(), Value::Array(all?));
        }
        for choices in ["anyOf", "oneOf"].into_iter().filter_map(list) {
            let (null, rest): (Vec<_>, Vec<_>) = choices.iter().partition(|schema| is_null(schema));
            let rest: Option<Vec<_>> =
                rest.into_iter().map(|schema| self.schema(schema, depth + 1)).collect();
            let mut rest = rest?;
            if let Some(values) = united(&rest) {
                rest = vec![values];
            }
            if !null.is_empty() {
                rest.iter_mut().for_each(allow_null);
            }
            let stands_alone = |only: &Value| {
                let is_free = |name: &String, value: &Value| out.get(name).is_none_or(|own| own == value);
                let mut fields = only.as_object().into_iter().flatten();
                fields.all(|(name, value)| name == "description" || is_free(name, value))
            };
            match rest.as_slice() {
                [] => {}
                [only] if stands_alone(only) => {
                    for (name, value) in only.as_object().into_iter().flatten() {
                        out.entry(name).or_insert_with(|| value.clone());
                    }
                }
                _ => alternatives.push(Value::Array(rest)),
            }
        }
        Some(())
    }

    fn put(&mut self, out: &mut Map<String, Value>, name: &str, value: Value) -> Option<()> {
        self.pay(name.len() + value.to_string().len())?;
        out.insert(name.to_owned(), value);
        Some(())
    }

    fn pay(&mut self, bytes: usize) -> Option<()> {
        self.left = self.left.checked_sub(bytes)?;
        Some(())
    }
}
