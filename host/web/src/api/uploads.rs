//! Uploads of slates: the file is read, checked, and compared with the live encoder.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use poem::web::Data;
use poem::{Request, RequestBody, Result};
use poem_openapi::param::{Path, Query};
use poem_openapi::payload::Json;
use poem_openapi::registry::{MetaMediaType, MetaRequest, MetaSchema, MetaSchemaRef};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions, OpenApi};
use satcast_media::mp4::{Movie, Mp4Error};

use super::app::{App, Tag};
use super::body::read_limited;
use super::caller::Caller;
use super::destinations::Done;
use super::slate::StreamSlate;
use super::streams::owned;
use crate::base::{ApiError, Code};
use satcast_core::ids::StreamId;
use satcast_live::slate_record;
use satcast_store::SlateRecord;

/// Largest file of a slate in bytes: a minute at 2 Mbit/s.
pub(super) const SLATE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest time for its upload: 16 MiB at 1.2 Mbit/s.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(120);
/// Seconds that a slate plays at most, if the upload names none.
const PLAY_SECS: u32 = 300;
/// Media type of the body.
const MP4: &str = "video/mp4";

/// A file as the request body, which is not read yet.
pub(super) struct Mp4Body(poem::Body);

impl<'a> ApiExtractor<'a> for Mp4Body {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::RequestObject];

    type ParamType = ();
    type ParamRawType = ();

    fn request_meta() -> Option<MetaRequest> {
        let file = MetaSchema { format: Some("binary"), ..MetaSchema::new("string") };
        let content = MetaMediaType { content_type: MP4, schema: MetaSchemaRef::Inline(Box::new(file)) };
        let description = Some("The file, of at most 16 MiB.");
        Some(MetaRequest { description, content: vec![content], required: true })
    }

    async fn from_request(
        request: &'a Request,
        body: &mut RequestBody,
        _options: ExtractParamOptions<Self::ParamType>,
    ) -> Result<Self> {
        let content_type = request.content_type().unwrap_or_default();
        if content_type.split(';').next().map(str::trim) != Some(MP4) {
            return Err(ApiError::not_mp4().into());
        }
        Ok(Self(body.take().map_err(|_| ApiError::internal())?))
    }
}

/// Operations on slates.
pub(super) struct SlatesApi;

#[OpenApi(prefix_path = "/api", tag = "Tag::Streams")]
impl SlatesApi {
    /// Set the slate
    ///
    /// Uploads or replaces the clip that plays in a loop while the encoder is away: an ordinary MP4 with one video and at most
    /// one audio track, which begins with a keyframe and lasts half a second to two minutes. Its codecs, size, frame rate, sample
    /// rate and channels must be those of the encoder: the clip is not encoded again. If the stream is live, they are compared.
    #[oai(path = "/streams/:id/slate", method = "put", operation_id = "setSlate")]
    async fn set(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Stream key identifier.
        id: Path<i64>,
        /// Seconds for which it plays at most, 1 to 3600; 300 if absent.
        #[oai(name = "maxSeconds", validator(minimum(value = "1"), maximum(value = "3600")))]
        max_seconds: Query<Option<u32>>,
        body: Mp4Body,
    ) -> Result<Json<StreamSlate>> {
        let stream = owned(&app, &caller, id.0).await?.stream.id;
        let max_seconds = max_seconds.0.unwrap_or(PLAY_SECS);
        let permit = app.limits.uploads.try_take(caller.account, 1);
        let permit = permit.map_err(|_| ApiError::uploads_busy())?;
        let file = read_limited(body.0, SLATE_BYTES_MAX, UPLOAD_TIMEOUT).await?;
        let record = check(&app, stream, file.clone(), max_seconds).await?;
        let app = Arc::clone(&app);
        let slate = App::to_the_end(async move {
            let slate = app.store.set_slate(&caller.actor(&app), stream, record, file.into()).await?;
            app.live.destinations_changed(stream).await;
            drop(permit);
            Ok(slate)
        });
        Ok(Json(slate.await?.into()))
    }

    /// Delete the slate
    ///
    /// A slate that is on air ends.
    #[oai(path = "/streams/:id/slate", method = "delete", operation_id = "deleteSlate")]
    async fn delete(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Stream key identifier.
        id: Path<i64>,
    ) -> Result<Json<Done>> {
        let (app, stream) = (Arc::clone(&app), StreamId(id.0));
        App::to_the_end(async move {
            app.store.delete_slate(&caller.actor(&app), stream).await?;
            app.live.destinations_changed(stream).await;
            Ok(())
        })
        .await?;
        Ok(Json(Done::new()))
    }
}

/// What is known of a file that can be the slate of a stream.
async fn check(
    app: &App,
    stream: StreamId,
    file: Bytes,
    max_seconds: u32,
) -> std::result::Result<SlateRecord, ApiError> {
    let read = tokio::task::spawn_blocking(move || Movie::read(&file)).await;
    let movie = read.map_err(|_| ApiError::internal())?.map_err(|error| refused(&error))?;
    let record = slate_record(&movie, max_seconds);
    match app.live.slate_differs(stream, &record) {
        Some(differences) => Err(ApiError::refused(
            Code::SlateDiffers,
            format!("The slate differs from the encoder's media: {differences}; make it with these settings"),
        )),
        None => Ok(record),
    }
}

/// 422 with the reason.
fn refused(error: &Mp4Error) -> ApiError {
    let text = format!("The slate cannot be used: {error}");
    match error {
        Mp4Error::NotMp4(_) | Mp4Error::Fragmented => ApiError::refused(Code::SlateUnreadable, text),
        Mp4Error::NoVideo => ApiError::refused(Code::SlateNoVideo, text),
        Mp4Error::Codec(..) | Mp4Error::Several(_) | Mp4Error::PixelFormat => {
            ApiError::refused(Code::SlateCodec, text)
        }
        Mp4Error::FirstFrame => ApiError::refused(Code::SlateFirstFrame, text),
        Mp4Error::Edits => ApiError::refused(Code::SlateEdits, text),
        Mp4Error::Length(_) | Mp4Error::Apart(_) | Mp4Error::Samples | Mp4Error::Rate => {
            ApiError::refused(Code::SlateLength, text)
        }
    }
}
