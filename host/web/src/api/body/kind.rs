//! Kinds of fields: parser and schema.

use poem_openapi::registry::{MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::types::{ParseFromJSON, Type};
use serde_json::Value;

use super::declare::{Declared, Place, Property, joined, read, register};
use crate::api::null::AnyFields;
use crate::base::{ApiError, Code};

/// Longest label in characters, after trimming.
pub(in crate::api) const LABEL_CHARS_MAX: usize = 128;

type Result<T> = std::result::Result<T, ApiError>;
type Read<T> = Box<dyn Fn(Value, &Place) -> Result<T>>;

/// A field that is read as a `T`.
pub(in crate::api) struct Kind<T> {
    schema: fn() -> MetaSchemaRef,
    register: fn(&mut Registry),
    /// Further constraints in the schema. A field with a default may be omitted and is then read as the default.
    pub(super) notes: MetaSchema,
    /// Value of an omitted field; `None` when the field is required.
    pub(super) absent: Option<T>,
    pub(super) read: Read<T>,
}

impl<T: 'static> Kind<T> {
    /// A field with the schema of `S`; `read` returns 400 for another type, 422 for a refused value, and names the path.
    pub(in crate::api) fn of<S: Type>(read: impl Fn(Value, &Place) -> Result<T> + 'static) -> Self {
        let (schema, register) = (S::schema_ref, S::register);
        Self { schema, register, notes: MetaSchema::ANY, absent: None, read: Box::new(read) }
    }

    /// Adds constraints to the schema.
    pub(in crate::api) fn noted(self, notes: MetaSchema) -> Self {
        Self { notes: self.notes.merge(notes), ..self }
    }

    /// Makes the field optional, with a default.
    pub(in crate::api) fn or(self, default: impl Into<Value>) -> Self {
        self.noted(MetaSchema { default: Some(default.into()), ..MetaSchema::ANY })
    }

    /// Makes the field optional, with the value `absent`.
    pub(in crate::api) fn or_is(self, absent: T) -> Self {
        Self { absent: Some(absent), ..self }
    }

    /// Makes the field optional.
    pub(in crate::api) fn optional(self) -> Kind<Option<T>> {
        let Self { schema, register, notes, read, .. } = self;
        let read = Box::new(move |value: Value, place: &Place| read(value, place).map(Some));
        Kind { schema, register, notes, absent: Some(None), read }
    }

    pub(in crate::api) fn property(self, name: &'static str, about: &[&str]) -> Property {
        let is_required = self.absent.is_none() && self.notes.default.is_none();
        let schema = (self.schema)().merge(self.notes);
        Property { name, about: joined(about), is_required, schema, register: self.register }
    }
}

impl Kind<String> {
    /// Length in characters, for the schema only: the code that uses the text checks it and has its own error texts.
    pub(in crate::api) fn length(self, min: usize, max: usize) -> Self {
        let min_length = (min > 0).then_some(min);
        self.noted(MetaSchema { min_length, max_length: Some(max), ..MetaSchema::ANY })
    }

    /// A name for people: no control characters, and if `min` is not 0, not only white space. For the schema only, as the length.
    pub(in crate::api) fn plain(self, min: usize, max: usize) -> Self {
        let pattern = if min == 0 {
            r"^[^\x00-\x1f\x7f-\x9f]*$"
        } else {
            r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
        };
        self.length(min, max).noted(MetaSchema { pattern: Some(pattern.to_owned()), ..MetaSchema::ANY })
    }
}

pub(in crate::api) fn text() -> Kind<String> {
    checked_text(|text, _| Ok(text))
}

/// A string that `check` converts.
pub(in crate::api) fn checked_text(
    check: impl Fn(String, &Place) -> Result<String> + 'static,
) -> Kind<String> {
    Kind::of::<String>(move |value, place| match value {
        Value::String(text) => check(text, place),
        _ => Err(place.malformed("must be a text")),
    })
}

/// A label with at least `min` characters after trimming.
pub(in crate::api) fn label(min: usize) -> Kind<String> {
    let label = checked_text(move |text, place| {
        let label = text.trim();
        if !(min..=LABEL_CHARS_MAX).contains(&label.chars().count()) {
            let fault = format!("must have {min} to {LABEL_CHARS_MAX} characters");
            return Err(place.refused(Code::LabelRefused, &fault));
        }
        if label.chars().any(char::is_control) {
            return Err(place.refused(Code::LabelRefused, "must not hold control characters"));
        }
        Ok(label.to_owned())
    });
    label.plain(min, LABEL_CHARS_MAX)
}

pub(in crate::api) fn flag() -> Kind<bool> {
    Kind::of::<bool>(|value, place| value.as_bool().ok_or_else(|| place.malformed("must be true or false")))
}

/// A whole number; `fault` is the error for other values.
pub(in crate::api) fn whole(fault: fn(&Place) -> ApiError) -> Kind<i64> {
    Kind::of::<i64>(move |value, place| value.as_i64().ok_or_else(|| fault(place)))
}

/// An object with any fields.
pub(in crate::api) fn any_object() -> Kind<Value> {
    Kind::of::<AnyFields>(|value, place| {
        if value.is_object() { Ok(value) } else { Err(place.malformed("must be an object")) }
    })
}

/// One of the names of `T`; for any other text 422 with `code`, and `fault` after the field's name.
pub(in crate::api) fn choice<T: ParseFromJSON + 'static>(code: Code, fault: &'static str) -> Kind<T> {
    Kind::of::<T>(move |value, place| match value {
        Value::String(_) => T::parse_from_json(Some(value)).map_err(|_| place.refused(code, fault)),
        _ => Err(place.malformed("must be a text")),
    })
}

/// An object with a declaration of its own.
pub(in crate::api) fn object<T: Declared>() -> Kind<T> {
    let any = any_object();
    Kind {
        schema: || T::shape().reference(),
        register: register::<T>,
        notes: any.notes,
        absent: None,
        read: Box::new(move |value, place| read((any.read)(value, place)?, place)),
    }
}

/// A list of objects with a declaration of their own.
pub(in crate::api) fn list<T: Declared>() -> Kind<Vec<T>> {
    Kind {
        schema: || {
            let items = Some(Box::new(T::shape().reference()));
            MetaSchemaRef::Inline(Box::new(MetaSchema { items, ..MetaSchema::new("array") }))
        },
        register: register::<T>,
        notes: MetaSchema::ANY,
        absent: None,
        read: Box::new(|value, place| match value {
            Value::Array(items) => {
                items.into_iter().enumerate().map(|(index, item)| read(item, &place.entry(index))).collect()
            }
            _ => Err(place.malformed("must be a list")),
        }),
    }
}
