//! Request bodies: read within limits of size and time, and parsed as declared.
//!
//! The framework's parser is not used, because its messages repeat parts of the body, which may hold secrets.

mod declare;
mod kind;

use std::time::Duration;

use bytes::Bytes;
use poem::error::ReadBodyError;
use poem::{FromRequest, Request, RequestBody, Result};
use poem_openapi::payload::{Json, Payload as _};
use poem_openapi::registry::{MetaMediaType, MetaRequest, Registry};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};
use serde_json::Value;

pub(super) use self::declare::{CLOSED, Declared, Fields, Place, Shape, body, read};
pub(super) use self::kind::{Kind, any_object, checked_text, choice, flag, label, list, object, text, whole};
use crate::base::{ApiError, Code};

/// Largest request body in bytes: 50 destinations with 4 KiB each, and a reserve.
pub(super) const BODY_MAX_BYTES: usize = 256 * 1024;
/// Longest time a client may take to send its body.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The whole body, within its limits of size and time.
///
/// # Errors
/// 413 when it is too large, 400 when the connection breaks or the body does not arrive in time.
pub(super) async fn read_bytes(body: poem::Body) -> std::result::Result<Bytes, ApiError> {
    match tokio::time::timeout(BODY_TIMEOUT, body.into_bytes_limit(BODY_MAX_BYTES)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(ReadBodyError::PayloadTooLarge)) => Err(ApiError::too_large(BODY_MAX_BYTES)),
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
    async fn read(request: &Request, body: &mut RequestBody) -> std::result::Result<Self, ApiError> {
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
        declare::register::<T>(registry);
    }

    fn request_meta() -> Option<MetaRequest> {
        let content = MetaMediaType { content_type: "application/json", schema: T::shape().reference() };
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

/// No request body: a body is refused rather than ignored. An empty object counts as no body.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoBody;

impl<'a> FromRequest<'a> for NoBody {
    async fn from_request(_: &'a Request, body: &mut RequestBody) -> Result<Self> {
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
        let silent = stream::pending::<Result<Vec<u8>, std::io::Error>>();
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
}
