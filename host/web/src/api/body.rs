//! Request bodies: read within limits of size and time, and parsed as declared. A declaration gives the parser, the error texts and
//! the schema in the API document.
//!
//! The framework's parser is not used, because its messages repeat parts of the body, which may hold secrets.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use poem::error::ReadBodyError;
use poem::{FromRequest, Request, RequestBody};
use poem_openapi::payload::{Json, Payload as _};
use poem_openapi::registry::{MetaMediaType, MetaRequest, MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::types::{ParseFromJSON, Type};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};
use serde_json::{Map, Value};

use super::null::{AnyFields, Null};
use crate::base::{ApiError, Code};
use satcast_core::networks::{NETWORKS_MAX, Networks};
use satcast_core::secret::Redacted;

type Result<T> = std::result::Result<T, ApiError>;

/// Largest request body in bytes: 50 destinations with 4 KiB each, and a reserve.
pub(super) const BODY_MAX_BYTES: usize = 256 * 1024;
/// Length of a passphrase of SRT, as libsrt takes it.
const PASSPHRASE_BYTES: std::ops::RangeInclusive<usize> = 10..=79;
/// Longest time a client may take to send its body.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The whole body, within its limits of size and time.
///
/// # Errors
/// 413 when it is too large, 400 when the connection breaks or the body does not arrive in time.
pub(super) async fn read_bytes(body: poem::Body) -> Result<Bytes> {
    read_bytes_within(body, BODY_MAX_BYTES).await
}

/// The same for a body of at most `max` bytes.
///
/// # Errors
/// As [`read_bytes`].
pub(super) async fn read_bytes_within(body: poem::Body, max: usize) -> Result<Bytes> {
    match tokio::time::timeout(BODY_TIMEOUT, body.into_bytes_limit(max)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(ReadBodyError::PayloadTooLarge)) => Err(ApiError::too_large(max)),
        Ok(Err(_)) => Err(ApiError::malformed(
            Code::MalformedBody,
            "The request body is incomplete: the connection broke",
        )),
        Err(_) => Err(ApiError::malformed(Code::MalformedBody, "The request body did not arrive in time")),
    }
}

/// A JSON request body.
#[derive(Debug)]
pub(super) struct Body<T>(pub T);

impl<T: Declared> Body<T> {
    async fn read(request: &Request, body: &mut RequestBody) -> Result<Self> {
        let content_type = request.content_type().unwrap_or_default();
        if !Json::<Value>::check_content_type(content_type) {
            return Err(ApiError::not_json());
        }
        let body = body.take().map_err(|_| ApiError::internal())?;
        let bytes = read_bytes(body).await?;
        let value = serde_json::from_slice(&bytes).map_err(|error| {
            let text =
                format!("The request body is not JSON (line {}, column {})", error.line(), error.column());
            ApiError::malformed(Code::MalformedBody, text)
        })?;
        read(value, &Place::default()).map(Self)
    }
}

impl<'a, T: Declared> ApiExtractor<'a> for Body<T> {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::RequestObject];

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        register::<T>(registry);
    }

    fn request_meta() -> Option<MetaRequest> {
        let content = MetaMediaType { content_type: "application/json", schema: T::shape().reference() };
        Some(MetaRequest { description: None, content: vec![content], required: true })
    }

    async fn from_request(
        request: &'a Request,
        body: &mut RequestBody,
        _options: ExtractParamOptions<Self::ParamType>,
    ) -> poem::Result<Self> {
        Ok(Self::read(request, body).await?)
    }
}

/// No request body: a body is refused rather than ignored. An empty object counts as no body.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoBody;

impl<'a> FromRequest<'a> for NoBody {
    async fn from_request(_: &'a Request, body: &mut RequestBody) -> poem::Result<Self> {
        // The body was already taken: there is none.
        let Ok(body) = body.take() else { return Ok(Self) };
        let bytes = read_bytes(body).await?;
        let text = bytes.trim_ascii();
        let is_object = text.strip_prefix(b"{").is_some_and(|rest| rest.trim_ascii() == b"}");
        if text.is_empty() || is_object {
            return Ok(Self);
        }
        let text = "This operation takes no body; send no body or {}";
        Err(ApiError::malformed(Code::UnexpectedBody, text).into())
    }
}

/// Title that marks schemas without additional fields, which poem-openapi cannot express; the document replaces it.
pub(super) const CLOSED: &str = "closed";

/// A JSON object of a request; implemented by [`body!`].
pub(super) trait Declared: Sized + 'static {
    /// Its schema.
    fn shape() -> &'static Shape;

    /// Reads the value from the fields.
    ///
    /// # Errors
    /// The error of the first invalid field.
    fn from_fields(fields: &mut Fields<'_>) -> Result<Self>;
}

/// Schema of a JSON object.
pub(super) struct Shape {
    name: &'static str,
    about: String,
    fields: Vec<Property>,
    /// Fields of which at least one must be sent, and the code of the error if none is.
    needed: Option<(&'static [&'static str], Code)>,
}

/// Schema of a field.
pub(super) struct Property {
    name: &'static str,
    about: String,
    is_required: bool,
    schema: MetaSchemaRef,
    register: fn(&mut Registry),
}

impl Shape {
    pub(super) fn new(name: &'static str, about: &[&str], fields: Vec<Property>) -> Self {
        Self { name, about: joined(about), fields, needed: None }
    }

    pub(super) fn needing(self, fields: &'static [&'static str], code: Code) -> Self {
        Self { needed: Some((fields, code)), ..self }
    }

    fn reference(&self) -> MetaSchemaRef {
        MetaSchemaRef::Reference(self.name.to_owned())
    }
}

/// Joins the lines of a comment.
fn joined(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n")
}

/// Adds the schema of `T` and all schemas that it refers to.
fn register<T: Declared>(registry: &mut Registry) {
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
pub(super) struct Place(String);

impl Place {
    /// Path of an entry of the list at this path.
    fn entry(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    fn field(&self, name: &str) -> Self {
        Self(if self.0.is_empty() { name.to_owned() } else { format!("{}.{name}", self.0) })
    }

    /// 400; `fault` continues a sentence that starts with the field's name.
    pub(super) fn malformed(&self, fault: &str) -> ApiError {
        ApiError::malformed(Code::MalformedField, format!("{self} {fault}"))
    }

    /// 422; `fault` continues a sentence that starts with the field's name.
    pub(super) fn refused(&self, code: Code, fault: &str) -> ApiError {
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
pub(super) struct Fields<'a> {
    map: Map<String, Value>,
    place: &'a Place,
}

impl Fields<'_> {
    /// Removes and reads a field.
    ///
    /// # Errors
    /// The error of its kind, and 400 for a missing field.
    pub(super) fn take<T>(&mut self, name: &str, kind: Kind<T>) -> Result<T> {
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
pub(super) fn read<T: Declared>(value: Value, place: &Place) -> Result<T> {
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
pub(super) use body;

/// Longest label in characters, after trimming.
const LABEL_CHARS_MAX: usize = 128;

type Read<T> = Box<dyn Fn(Value, &Place) -> Result<T>>;

/// A field that is read as a `T`.
pub(super) struct Kind<T> {
    schema: fn() -> MetaSchemaRef,
    register: fn(&mut Registry),
    /// Further constraints in the schema. A field with a default may be omitted and is then read as the default.
    notes: MetaSchema,
    /// Value of an omitted field; `None` when the field is required.
    absent: Option<T>,
    read: Read<T>,
}

impl<T: 'static> Kind<T> {
    /// A field with the schema of `S`; `read` returns 400 for another type, 422 for a refused value, and names the path.
    pub(super) fn of<S: Type>(read: impl Fn(Value, &Place) -> Result<T> + 'static) -> Self {
        let (schema, register) = (S::schema_ref, S::register);
        Self { schema, register, notes: MetaSchema::ANY, absent: None, read: Box::new(read) }
    }

    /// Adds constraints to the schema.
    pub(super) fn noted(self, notes: MetaSchema) -> Self {
        Self { notes: self.notes.merge(notes), ..self }
    }

    /// Makes the field optional, with a default.
    pub(super) fn or(self, default: impl Into<Value>) -> Self {
        self.noted(MetaSchema { default: Some(default.into()), ..MetaSchema::ANY })
    }

    /// Makes the field optional, with the value `absent`.
    pub(super) fn or_is(self, absent: T) -> Self {
        Self { absent: Some(absent), ..self }
    }

    /// Makes the field optional.
    pub(super) fn optional(self) -> Kind<Option<T>> {
        let Self { schema, register, notes, read, .. } = self;
        let read = Box::new(move |value: Value, place: &Place| read(value, place).map(Some));
        Kind { schema, register, notes, absent: Some(None), read }
    }

    pub(super) fn property(self, name: &'static str, about: &[&str]) -> Property {
        let is_required = self.absent.is_none() && self.notes.default.is_none();
        let schema = (self.schema)().merge(self.notes);
        Property { name, about: joined(about), is_required, schema, register: self.register }
    }
}

impl Kind<String> {
    /// Length in characters, for the schema only: the code that uses the text checks it and has its own error texts.
    pub(super) fn length(self, min: usize, max: usize) -> Self {
        let min_length = (min > 0).then_some(min);
        self.noted(MetaSchema { min_length, max_length: Some(max), ..MetaSchema::ANY })
    }

    /// A name for people: no control characters, and if `min` is not 0, not only white space. For the schema only, as the length.
    pub(super) fn plain(self, min: usize, max: usize) -> Self {
        let pattern = if min == 0 {
            r"^[^\x00-\x1f\x7f-\x9f]*$"
        } else {
            r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
        };
        self.length(min, max).noted(MetaSchema { pattern: Some(pattern.to_owned()), ..MetaSchema::ANY })
    }
}

pub(super) fn text() -> Kind<String> {
    checked_text(|text, _| Ok(text))
}

/// A string that `check` converts.
pub(super) fn checked_text(check: impl Fn(String, &Place) -> Result<String> + 'static) -> Kind<String> {
    Kind::of::<String>(move |value, place| match value {
        Value::String(text) => check(text, place),
        _ => Err(place.malformed("must be a text")),
    })
}

/// A label with at least `min` characters after trimming.
pub(super) fn label(min: usize) -> Kind<String> {
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

/// A passphrase of SRT, or null for none.
pub(super) fn passphrase() -> Kind<Option<Redacted<String>>> {
    let passphrase = Kind::of::<Null<String>>(|value, place| match value {
        Value::Null => Ok(None),
        Value::String(text) if PASSPHRASE_BYTES.contains(&text.len()) && text.is_ascii() => {
            Ok(Some(Redacted::new(text)))
        }
        _ => {
            let (min, max) = (PASSPHRASE_BYTES.start(), PASSPHRASE_BYTES.end());
            let fault = format!("must have {min} to {max} ASCII characters, or be null to remove it");
            Err(place.refused(Code::PassphraseRefused, &fault))
        }
    });
    let (min_length, max_length) = (Some(*PASSPHRASE_BYTES.start()), Some(*PASSPHRASE_BYTES.end()));
    passphrase.noted(MetaSchema { min_length, max_length, ..MetaSchema::ANY })
}

pub(super) fn flag() -> Kind<bool> {
    Kind::of::<bool>(|value, place| value.as_bool().ok_or_else(|| place.malformed("must be true or false")))
}

/// A whole number; `fault` is the error for other values.
pub(super) fn whole(fault: fn(&Place) -> ApiError) -> Kind<i64> {
    Kind::of::<i64>(move |value, place| value.as_i64().ok_or_else(|| fault(place)))
}

/// An object with any fields.
pub(super) fn any_object() -> Kind<Value> {
    Kind::of::<AnyFields>(|value, place| {
        if value.is_object() { Ok(value) } else { Err(place.malformed("must be an object")) }
    })
}

/// One of the names of `T`; for any other text 422 with `code`, and `fault` after the field's name.
pub(super) fn choice<T: ParseFromJSON + 'static>(code: Code, fault: &'static str) -> Kind<T> {
    Kind::of::<T>(move |value, place| match value {
        Value::String(_) => T::parse_from_json(Some(value)).map_err(|_| place.refused(code, fault)),
        _ => Err(place.malformed("must be a text")),
    })
}

/// An object with a declaration of its own.
pub(super) fn object<T: Declared>() -> Kind<T> {
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
pub(super) fn list<T: Declared>() -> Kind<Vec<T>> {
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

/// Addresses, or networks in CIDR form. The error says which entry is none; never its text.
pub(super) fn addresses() -> Kind<Networks> {
    let list = Kind::of::<Vec<String>>(|value, place| {
        let items = value.as_array();
        let texts: Option<Vec<&str>> = items.and_then(|items| items.iter().map(Value::as_str).collect());
        let networks = Networks::parse(texts.ok_or_else(|| place.malformed("must be a list of texts"))?);
        networks.map_err(|error| ApiError::refused(Code::AddressesRefused, format!("{place}: {error}")))
    });
    list.noted(MetaSchema { max_items: Some(NETWORKS_MAX), ..MetaSchema::ANY })
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;
    use crate::api::streams::StreamInput;

    async fn read(body: poem::Body) -> String {
        let (request, mut body) = Request::builder().content_type("application/json").body(body).split();
        Body::<StreamInput>::read(&request, &mut body)
            .await
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_times_out() {
        let start = tokio::time::Instant::now();
        let silent = stream::pending::<std::io::Result<Vec<u8>>>();
        assert_eq!(
            read(poem::Body::from_bytes_stream(silent)).await,
            "The request body did not arrive in time"
        );
        assert_eq!(start.elapsed(), BODY_TIMEOUT);
    }

    #[tokio::test]
    async fn incomplete_and_endless_bodies_are_refused() {
        let broken = stream::iter([Ok(b"{".to_vec()), Err(std::io::Error::other("hunter2"))]);
        assert_eq!(
            read(poem::Body::from_bytes_stream(broken)).await,
            "The request body is incomplete: the connection broke"
        );
        let endless = stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b' '; 4_096]));
        let text = read(poem::Body::from_bytes_stream(endless)).await;
        assert_eq!(text, format!("The request body is larger than {BODY_MAX_BYTES} bytes"));
    }

    #[test]
    fn unknown_names_are_shortened_and_printable() {
        assert_eq!(shown_name("la\u{1b}[31mbel\n"), "la[31mbel");
        assert_eq!(shown_name(&"x".repeat(1_000)).len(), 64);
    }
}
