//! Fields of answers that are always present: one that may be `null`, and one that is an object with any fields.
//!
//! poem-openapi declares `Option` as "may be absent" but sends `null`, which breaks generated clients.

use std::borrow::Cow;
use std::collections::BTreeMap;

use poem_openapi::registry::{MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::types::{ParseError, ParseFromJSON, ParseResult, ToJSON, Type};
use serde_json::Value;

/// An object with any fields.
pub(super) type AnyFields = BTreeMap<String, Value>;

/// The fields of an object; empty for any other value.
pub(super) fn any_fields(value: Value) -> AnyFields {
    if let Value::Object(fields) = value { fields.into_iter().collect() } else { AnyFields::new() }
}

/// A required, nullable field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Null<T>(pub Option<T>);

impl<T> From<Option<T>> for Null<T> {
    fn from(value: Option<T>) -> Self {
        Self(value)
    }
}

impl<T: Type> Type for Null<T> {
    const IS_REQUIRED: bool = true;

    type RawValueType = T::RawValueType;
    type RawElementValueType = T::RawElementValueType;

    fn name() -> Cow<'static, str> {
        format!("nullable_{}", T::name()).into()
    }

    fn schema_ref() -> MetaSchemaRef {
        // `nullable` beside a reference is ignored, so the schema is written inline.
        let shape = Registry::new().create_fake_schema::<T>();
        MetaSchemaRef::Inline(Box::new(MetaSchema { title: None, nullable: true, ..shape }))
    }

    fn register(registry: &mut Registry) {
        T::register(registry);
    }

    fn as_raw_value(&self) -> Option<&Self::RawValueType> {
        self.0.as_ref().and_then(T::as_raw_value)
    }

    fn raw_element_iter<'a>(&'a self) -> Box<dyn Iterator<Item = &'a Self::RawElementValueType> + 'a> {
        match &self.0 {
            Some(value) => value.raw_element_iter(),
            None => Box::new(std::iter::empty()),
        }
    }
}

impl<T: ToJSON> ToJSON for Null<T> {
    fn to_json(&self) -> Option<Value> {
        Some(self.0.as_ref().and_then(T::to_json).unwrap_or(Value::Null))
    }
}

impl<T: ParseFromJSON> ParseFromJSON for Null<T> {
    fn parse_from_json(value: Option<Value>) -> ParseResult<Self> {
        match value {
            None => Err(ParseError::expected_input()),
            Some(Value::Null) => Ok(Self(None)),
            value => T::parse_from_json(value).map(|value| Self(Some(value))).map_err(ParseError::propagate),
        }
    }
}
