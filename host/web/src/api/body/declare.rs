//! Declarations of request bodies: each gives the parser, the error texts and the schema in the API document.

use std::fmt;

use poem_openapi::registry::{MetaSchema, MetaSchemaRef, Registry};
use serde_json::{Map, Value};

use super::kind::Kind;
use crate::base::{ApiError, Code};

type Result<T> = std::result::Result<T, ApiError>;

/// Title that marks schemas without additional fields, which poem-openapi cannot express; the document replaces it.
pub(in crate::api) const CLOSED: &str = "closed";

/// A JSON object of a request; implemented by [`body!`].
pub(in crate::api) trait Declared: Sized + 'static {
    /// Its schema.
    fn shape() -> &'static Shape;

    /// Reads the value from the fields.
    ///
    /// # Errors
    /// The error of the first invalid field.
    fn from_fields(fields: &mut Fields<'_>) -> Result<Self>;
}

/// Schema of a JSON object.
pub(in crate::api) struct Shape {
    name: &'static str,
    about: String,
    fields: Vec<Property>,
    /// Fields of which at least one must be sent, and the code of the error if none is.
    needed: Option<(&'static [&'static str], Code)>,
}

/// Schema of a field.
pub(in crate::api) struct Property {
    pub(super) name: &'static str,
    pub(super) about: String,
    pub(super) is_required: bool,
    pub(super) schema: MetaSchemaRef,
    pub(super) register: fn(&mut Registry),
}

impl Shape {
    pub(in crate::api) fn new(name: &'static str, about: &[&str], fields: Vec<Property>) -> Self {
        Self { name, about: joined(about), fields, needed: None }
    }

    pub(in crate::api) fn needing(self, fields: &'static [&'static str], code: Code) -> Self {
        Self { needed: Some((fields, code)), ..self }
    }

    pub(super) fn reference(&self) -> MetaSchemaRef {
        MetaSchemaRef::Reference(self.name.to_owned())
    }
}

/// Joins the lines of a comment.
pub(super) fn joined(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n")
}

/// Adds the schema of `T` and all schemas that it refers to.
pub(in crate::api) fn register<T: Declared>(registry: &mut Registry) {
    let shape = T::shape();
    registry.create_schema::<T, _>(shape.name.to_owned(), |registry| {
        shape.fields.iter().for_each(|field| (field.register)(registry));
        let about = |about| MetaSchema { description: Some(about), ..MetaSchema::ANY };
        let field = |field: &'static Property| (field.name, field.schema.clone().merge(about(&field.about)));
        MetaSchema {
            title: Some(CLOSED.to_owned()),
            ty: "object",
            required: shape.fields.iter().filter(|field| field.is_required).map(|field| field.name).collect(),
            properties: shape.fields.iter().map(field).collect(),
            min_properties: shape.needed.map(|_| 1),
            ..about(&shape.about)
        }
    });
}

/// Path of a value in a body: `destinations[1].config`; empty for the body itself.
#[derive(Debug, Default)]
pub(in crate::api) struct Place(String);

impl Place {
    /// Path of an entry of the list at this path.
    pub(super) fn entry(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    fn field(&self, name: &str) -> Self {
        Self(if self.0.is_empty() { name.to_owned() } else { format!("{}.{name}", self.0) })
    }

    /// 400; `fault` continues a sentence that starts with the field's name.
    pub(in crate::api) fn malformed(&self, fault: &str) -> ApiError {
        ApiError::malformed(Code::MalformedField, format!("{self} {fault}"))
    }

    /// 422; `fault` continues a sentence that starts with the field's name.
    pub(in crate::api) fn refused(&self, code: Code, fault: &str) -> ApiError {
        ApiError::refused(code, format!("{self} {fault}"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Field `{}`", self.0)
    }
}

/// The fields of a JSON object that are not read yet.
#[derive(Debug)]
pub(in crate::api) struct Fields<'a> {
    map: Map<String, Value>,
    place: &'a Place,
}

impl Fields<'_> {
    /// Removes and reads a field.
    ///
    /// # Errors
    /// The error of its kind, and 400 for a missing field.
    pub(in crate::api) fn take<T>(&mut self, name: &str, kind: Kind<T>) -> Result<T> {
        let place = self.place.field(name);
        match self.map.remove(name).or(kind.notes.default) {
            Some(value) => (kind.read)(value, &place),
            None => kind.absent.ok_or_else(|| place.malformed("is required")),
        }
    }
}

/// Reads a whole object.
///
/// # Errors
/// 400 for a value that is not an object and for unknown fields; the errors of its fields; 422 when none of the fields is sent of
/// which one is required.
pub(in crate::api) fn read<T: Declared>(value: Value, place: &Place) -> Result<T> {
    let Value::Object(map) = value else {
        let subject = if place.0.is_empty() { "The request body" } else { &place.0 };
        return Err(ApiError::malformed(Code::MalformedBody, format!("{subject} must be a JSON object")));
    };
    let shape = T::shape();
    let known = || shape.fields.iter().map(|field| field.name);
    if let Some(name) = map.keys().find(|name| !known().any(|known| known == *name)) {
        let (name, known) = (place.field(&shown_name(name)).0, known().collect::<Vec<_>>().join(", "));
        let text = format!("Unknown field `{name}`; known fields: {known}");
        return Err(ApiError::malformed(Code::UnknownField, text));
    }
    let missing = shape.needed.filter(|(names, _)| !names.iter().any(|name| map.contains_key(*name)));
    let read = T::from_fields(&mut Fields { map, place })?;
    missing.map_or(Ok(read), |(names, code)| Err(ApiError::refused(code, send_one(names))))
}

/// "Send `a`, `b` or both", "Send `a`, `b` or `c`".
fn send_one(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [first, second] => format!("Send {first}, {second} or both"),
        [rest @ .., last] => format!("Send {} or {last}", rest.join(", ")),
        [] => String::new(),
    }
}

/// The name of an unknown field for an error text: shortened and printable.
fn shown_name(name: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 64;
    name.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect()
}

/// Declares a request body:
///
/// ```text
/// body! {
///     /// Description in the API document.
///     struct Input: "NameInTheDocument" {
///         /// Description of the field in the API document.
///         field_name "fieldName": String = text(),
///     }
/// }
/// ```
///
/// After the `=` stands the [`Kind`] of the field: its parser and its schema. The JSON name is omitted where it is the same.
/// `, one of ["a", "b"] or Code::X` after the name of the body refuses a body that has none of these fields. A body may hold
/// secrets and is never printed.
macro_rules! body {
    (
        $(#[doc = $about:literal])+
        $(#[derive($($derive:ident),+)])?
        $vis:vis struct $body:ident: $name:literal $(, one of [$($one:literal),+] or $code:path)? {
            $($(#[doc = $doc:literal])+ $field:ident $($json:literal)?: $type:ty = $kind:expr,)+
        }
    ) => {
        $(#[doc = $about])+
        $(#[derive($($derive),+)])?
        $vis struct $body {
            $($(#[doc = $doc])+ $vis $field: $type,)+
        }

        impl $crate::api::body::Declared for $body {
            fn shape() -> &'static $crate::api::body::Shape {
                static SHAPE: std::sync::LazyLock<$crate::api::body::Shape> = std::sync::LazyLock::new(|| {
                    let fields = vec![$(
                        $crate::api::body::Kind::<$type>::property(
                            $kind, body!(@name $field $($json)?), &[$($doc),+],
                        )
                    ),+];
                    $crate::api::body::Shape::new($name, &[$($about),+], fields)
                        $(.needing(&[$($one),+], $code))?
                });
                &SHAPE
            }

            fn from_fields(
                fields: &mut $crate::api::body::Fields<'_>,
            ) -> std::result::Result<Self, $crate::base::ApiError> {
                Ok(Self { $($field: fields.take(body!(@name $field $($json)?), $kind)?,)+ })
            }
        }

        impl std::fmt::Debug for $body {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($body)).finish_non_exhaustive()
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $json:literal) => { $json };
}
pub(in crate::api) use body;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_shortened_and_printable() {
        assert_eq!(shown_name("la\u{1b}[31mbel\n"), "la[31mbel");
        assert_eq!(shown_name(&"x".repeat(1_000)).len(), 64);
    }
}
