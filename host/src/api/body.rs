//! Request bodies: read with a limit of size and time, and taken apart field by field with texts of our own.
//!
//! The schema comes from the type's poem-openapi derive; the reading is ours, because the framework's messages
//! repeat parts of the body, which may hold secrets.

use std::time::Duration;

use bytes::Bytes;
use poem::error::ReadBodyError;
use poem::{FromRequest, Request, RequestBody, Result};
use poem_openapi::payload::{Json, Payload as _};
use poem_openapi::registry::{MetaMediaType, MetaRequest, Registry};
use poem_openapi::types::Type;
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};
use serde_json::{Map, Value};

use super::ApiError;

/// Largest request body in bytes: 50 destinations with 4 KiB each, and some room.
pub(super) const BODY_MAX_BYTES: usize = 256 * 1024;
/// Longest time a client may take to send its body.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A value that can be read from the fields of a JSON object.
pub(super) trait FromFields: Sized {
    /// Every field the object may have.
    const FIELDS: &'static [&'static str];

    /// Takes the value out of the fields.
    ///
    /// # Errors
    /// 400 naming the field.
    fn from_fields(fields: Fields) -> std::result::Result<Self, ApiError>;
}

/// A JSON object being taken apart; `path` is put before field names in errors, `destinations[1].`.
#[derive(Debug)]
pub(super) struct Fields {
    map: Map<String, Value>,
    path: String,
}

impl Fields {
    /// Reads `value` as a `T`.
    ///
    /// # Errors
    /// 400: not an object, an unknown field, or what `T` says.
    pub(super) fn read<T: FromFields>(value: Value, path: &str) -> std::result::Result<T, ApiError> {
        let Value::Object(map) = value else {
            let what = if path.is_empty() { "The request body" } else { path.trim_end_matches('.') };
            return Err(ApiError::malformed("malformed_body", format!("{what} must be a JSON object")));
        };
        if let Some(name) = map.keys().find(|name| !T::FIELDS.contains(&name.as_str())) {
            let (name, known) = (shown_name(name), T::FIELDS.join(", "));
            let text = format!("Unknown field `{path}{name}`; known are: {known}");
            return Err(ApiError::malformed("unknown_field", text));
        }
        T::from_fields(Fields { map, path: path.to_owned() })
    }

    /// The path of a field as it is named in errors.
    pub(super) fn path_of(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// A required text.
    ///
    /// # Errors
    /// 400 when it is missing or no text.
    pub(super) fn text(&mut self, name: &str) -> std::result::Result<String, ApiError> {
        match self.map.remove(name) {
            Some(Value::String(text)) => Ok(text),
            None => Err(self.malformed(name, "is required")),
            Some(_) => Err(self.malformed(name, "must be a text")),
        }
    }

    /// An object, empty when absent.
    ///
    /// # Errors
    /// 400 when it is something else.
    pub(super) fn object(&mut self, name: &str) -> std::result::Result<Value, ApiError> {
        match self.map.remove(name) {
            None => Ok(Value::Object(Map::new())),
            Some(object @ Value::Object(_)) => Ok(object),
            Some(_) => Err(self.malformed(name, "must be an object")),
        }
    }

    /// A list of objects, empty when absent.
    ///
    /// # Errors
    /// 400 when it is something else or an entry cannot be read.
    pub(super) fn list<T: FromFields>(&mut self, name: &str) -> std::result::Result<Vec<T>, ApiError> {
        let items = match self.map.remove(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(self.malformed(name, "must be a list")),
        };
        let path = self.path_of(name);
        items
            .into_iter()
            .enumerate()
            .map(|(index, item)| Self::read(item, &format!("{path}[{index}].")))
            .collect()
    }

    /// A field of any type, `None` when absent.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.map.remove(name)
    }

    /// An optional text.
    ///
    /// # Errors
    /// 400 when it is no text.
    pub(super) fn optional_text(&mut self, name: &str) -> std::result::Result<Option<String>, ApiError> {
        if self.map.contains_key(name) { self.text(name).map(Some) } else { Ok(None) }
    }

    /// An optional truth value.
    ///
    /// # Errors
    /// 400 when it is something else.
    pub(super) fn optional_bool(&mut self, name: &str) -> std::result::Result<Option<bool>, ApiError> {
        match self.map.remove(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(_) => Err(self.malformed(name, "must be true or false")),
        }
    }

    /// 400 for a field, in words that follow its name.
    pub(super) fn malformed(&self, name: &str, fault: &str) -> ApiError {
        ApiError::malformed("malformed_field", format!("Field `{}` {fault}", self.path_of(name)))
    }
}

/// An unknown field's name as it may be repeated: short and printable.
fn shown_name(name: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 64;
    name.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect()
}

/// The whole body, within its limits of size and time.
///
/// # Errors
/// 413 when it is too large, 400 when it breaks off or does not come.
pub(super) async fn read_bytes(body: poem::Body) -> std::result::Result<Bytes, ApiError> {
    match tokio::time::timeout(BODY_TIMEOUT, body.into_bytes_limit(BODY_MAX_BYTES)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(ReadBodyError::PayloadTooLarge)) => Err(ApiError::too_large(BODY_MAX_BYTES)),
        Ok(Err(_)) => Err(ApiError::malformed("malformed_body", "The request body broke off")),
        Err(_) => Err(ApiError::malformed("malformed_body", "The request body came too slowly")),
    }
}

/// A JSON request body.
#[derive(Debug)]
pub(super) struct Body<T>(pub T);

impl<T: Type + FromFields> Body<T> {
    async fn read(request: &Request, body: &mut RequestBody) -> std::result::Result<Self, ApiError> {
        let content_type = request.content_type().unwrap_or_default();
        if !Json::<T>::check_content_type(content_type) {
            return Err(ApiError::not_json());
        }
        let body = body.take().map_err(|_| ApiError::internal())?;
        let bytes = read_bytes(body).await?;
        let value = serde_json::from_slice(&bytes).map_err(|error| {
            let text =
                format!("The request body is no JSON (line {}, column {})", error.line(), error.column());
            ApiError::malformed("malformed_body", text)
        })?;
        Fields::read(value, "").map(Self)
    }
}

impl<'a, T: Type + FromFields> ApiExtractor<'a> for Body<T> {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::RequestObject];

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        T::register(registry);
    }

    fn request_meta() -> Option<MetaRequest> {
        let content = MetaMediaType { content_type: Json::<T>::CONTENT_TYPE, schema: T::schema_ref() };
        Some(MetaRequest { description: None, content: vec![content], required: true })
    }

    async fn from_request(
        request: &'a Request,
        body: &mut RequestBody,
        _options: ExtractParamOptions<Self::ParamType>,
    ) -> Result<Self> {
        Ok(Self::read(request, body).await?)
    }
}

/// No request body: what is in one would be lost without a word. An empty object is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoBody;

impl<'a> FromRequest<'a> for NoBody {
    async fn from_request(_: &'a Request, body: &mut RequestBody) -> Result<Self> {
        // Taken already: there is none.
        let Ok(body) = body.take() else { return Ok(Self) };
        let bytes = read_bytes(body).await?;
        let text = bytes.trim_ascii();
        let is_object = text.strip_prefix(b"{").is_some_and(|rest| rest.trim_ascii() == b"}");
        if text.is_empty() || is_object {
            return Ok(Self);
        }
        let text = "This operation takes no body; send none, or {}";
        Err(ApiError::malformed("unexpected_body", text).into())
    }
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
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let start = tokio::time::Instant::now();
        let silent = stream::pending::<Result<Vec<u8>, std::io::Error>>();
        assert_eq!(read(poem::Body::from_bytes_stream(silent)).await, "The request body came too slowly");
        assert_eq!(start.elapsed(), BODY_TIMEOUT);
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_an_error_and_one_without_end_is_cut() {
        let broken = stream::iter([Ok(b"{".to_vec()), Err(std::io::Error::other("hunter2"))]);
        assert_eq!(read(poem::Body::from_bytes_stream(broken)).await, "The request body broke off");
        let endless = stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b' '; 4_096]));
        let text = read(poem::Body::from_bytes_stream(endless)).await;
        assert_eq!(text, format!("The request body is larger than {BODY_MAX_BYTES} bytes"));
    }

    #[test]
    fn unknown_names_are_repeated_short_and_printable() {
        assert_eq!(shown_name("la\u{1b}[31mbel\n"), "la[31mbel");
        assert_eq!(shown_name(&"x".repeat(1_000)).len(), 64);
    }
}
