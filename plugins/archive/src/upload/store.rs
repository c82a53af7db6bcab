//! A bucket of an S3-compatible store, through `object_store`, over our own sockets.
//!
//! What is proved: the store compares each part, and at the end the object, with a CRC-64/NVME that was computed when the
//! recording was written, and repeats it in its answers. A store that repeats none is not believed for that: the ETag of
//! each part is compared with its MD5 while the store's ETags are MD5s (they are not with some kinds of encryption). At
//! the end size and checksum of the whole object are asked for and compared. The signature covers the SHA-256 of a part,
//! except over TLS once the store has repeated a checksum of this upload.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::{HeaderName, HeaderValue, Method, Request, header};
use object_store::aws::AmazonS3Builder;
use object_store::client::HttpRequestBody;
use object_store::multipart::{MultipartStore as _, PartId};
use object_store::path::Path;
use object_store::signer::Signer as _;
use object_store::{
    Attribute, Attributes, ClientOptions, GetOptions, GetRange, ObjectStore as _, PutMultipartOptions,
    PutPayload, RetryConfig,
};

use url::Url;

use super::fault::{Fault, Kind};
use super::sockets::Sockets;
use super::sums::is_crc;
use super::wire::{CRC, Client, Extra, Payload, Wire, element, sign};
use crate::config::Target;
use crate::crc::Crc;
use crate::entry::{Entry, Opened};
use crate::limits::TOKEN_BYTES_MAX;
use crate::names;

/// Metadata key of the session.
const SESSION: &str = "session";
/// Most open uploads of one key that are read.
const UPLOADS_MAX: usize = 100;
/// Says with which checksum the parts of an upload will come.
const ALGORITHM: HeaderName = HeaderName::from_static("x-amz-checksum-algorithm");
/// Asks for the checksum of an object.
const MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");

/// Checksums of an object, as the store says them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Without quotation marks.
    etag: Option<String>,
    crc: Option<String>,
}

impl Sums {
    /// The checksum of the same kind as `sum`, which is an ETag or a CRC-64/NVME.
    pub(crate) fn like(&self, sum: &str) -> Option<&str> {
        if is_crc(sum) { self.crc.as_deref() } else { self.etag.as_deref() }
    }
}

/// An object in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) bytes: u64,
    pub(crate) sums: Sums,
    /// The session in its metadata.
    pub(crate) session: Option<String>,
}

/// Metadata of the object.
#[derive(Debug, Clone)]
pub(crate) struct Labels {
    pub(crate) title: String,
    pub(crate) session: String,
    /// ISO 8601, UTC.
    pub(crate) started: String,
}

impl Labels {
    pub(crate) fn of(entry: &Entry) -> Self {
        Labels {
            title: entry.about.label.clone(),
            session: entry.about.session_id.clone(),
            started: names::iso(entry.started_at_ms),
        }
    }
}

/// A part on its way.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) bytes: PutPayload,
    pub(crate) payload: Payload,
    /// For a store that compares it with what arrives.
    pub(crate) crc: Option<Crc>,
}

/// A bucket and how to get in.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    target: Arc<Target>,
    sockets: Arc<Sockets>,
}

impl Store {
    pub(crate) fn new(target: Target, sockets: Arc<Sockets>) -> Self {
        Store { target: Arc::new(target), sockets }
    }

    /// `s3://bucket/key`.
    pub(crate) fn url(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.target.bucket)
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.target.endpoint.starts_with("https://")
    }

    /// The object `key`, if it exists. `sum`: its expected checksum. Only if it is a CRC-64/NVME the store is asked for
    /// one, because a store that knows none might refuse the question.
    pub(crate) async fn find(&self, key: &str, sum: Option<&str>) -> Result<Option<Found>, Fault> {
        let mut extra = Extra::default();
        if sum.is_some_and(is_crc) {
            extra = extra.header(MODE, HeaderValue::from_static("ENABLED"));
        }
        let client = self.client_with(extra)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        match client.run(client.s3.get_opts(&path(key)?, options)).await {
            Ok(found) => {
                let session = found.attributes.get(&Attribute::Metadata(SESSION.into()));
                let session = session.map(|session| session.to_string());
                let etag = found.meta.e_tag.map(|etag| bare(&etag).to_owned());
                let sums = Sums { etag, crc: client.crc() };
                Ok(Some(Found { bytes: found.meta.size, sums, session }))
            }
            Err(fault) if fault.kind == Kind::Missing => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// `len` bytes of an object from `offset` on.
    pub(crate) async fn read(&self, key: &str, offset: u64, len: u32) -> Result<Bytes, Fault> {
        let client = self.client()?;
        let range = GetRange::Bounded(offset..offset.saturating_add(u64::from(len)));
        let options = GetOptions { range: Some(range), ..GetOptions::default() };
        let key = path(key)?;
        let read = async { client.s3.get_opts(&key, options).await?.bytes().await };
        let bytes = client.run(read).await?;
        if bytes.len() == len as usize {
            return Ok(bytes);
        }
        Err(Fault::remote("the store gave other bytes of the recording than were asked for"))
    }

    /// Opens an upload for parts with a CRC-64/NVME. A store that does not take the request so is asked without it.
    pub(crate) async fn open(&self, key: &str, labels: &Labels) -> Result<Opened, Fault> {
        let extra = Extra::default().header(ALGORITHM, HeaderValue::from_static("CRC64NVME"));
        match self.open_with(extra, key, labels).await {
            Err(Fault { kind: Kind::Unknown | Kind::Other, .. }) => {
                let id = self.open_with(Extra::default(), key, labels).await?;
                Ok(Opened { id, takes_crcs: false })
            }
            opened => opened.map(|id| Opened { id, takes_crcs: true }),
        }
    }

    async fn open_with(&self, extra: Extra, key: &str, labels: &Labels) -> Result<String, Fault> {
        let client = self.client_with(extra)?;
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::ContentType, "video/mp4".into());
        for (name, value) in
            [("title", &labels.title), (SESSION, &labels.session), ("start", &labels.started)]
        {
            attributes.insert(Attribute::Metadata(name.into()), header_text(value).into());
        }
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        client.run(client.s3.create_multipart_opts(&path(key)?, options)).await
    }

    /// Ids of the open uploads of `key`, at most a hundred. `object_store` has no such request, so it is made here.
    pub(crate) async fn uploads(&self, key: &str) -> Result<Vec<String>, Fault> {
        let target = &self.target;
        let mut url =
            Url::parse(&self.base()).map_err(|_| Fault::config("endpoint: is not a valid address"))?;
        url.query_pairs_mut()
            .append_pair("max-uploads", "100")
            .append_pair("prefix", key)
            .append_pair("uploads", "");
        let mut request = Request::new(HttpRequestBody::empty());
        *request.uri_mut() =
            url.as_str().parse().map_err(|_| Fault::internal("a request has an invalid address"))?;
        sign(target, &mut request, Payload::Short)?;
        let answer = self.sockets.exchange(request).await?;
        match answer.status().is_success() {
            true => Ok(upload_ids(answer.body(), key)),
            false => Err(Fault::answer(answer.status(), answer.body(), &self.place())),
        }
    }

    /// Sends part `index` (from 0), with its checksum if there is one; returns its ETag as the store wrote it, and the
    /// checksum that the store repeats.
    pub(crate) async fn part(
        &self,
        key: &str,
        upload: &str,
        index: usize,
        part: Sending,
    ) -> Result<(String, Option<String>), Fault> {
        let Sending { bytes, payload, crc } = part;
        let client = self.client_with(Extra { payload, ..with_crc(crc)? })?;
        let upload = upload.to_owned();
        let part = client.run(client.s3.put_part(&path(key)?, &upload, index, bytes)).await?;
        Ok((part.content_id, client.crc()))
    }

    /// Makes one object of the parts if none of this name exists, which the store compares with `crc` if there is one;
    /// returns its checksums. A store without conditional requests is asked without the condition: the absence was
    /// checked before the upload was opened.
    pub(crate) async fn complete(
        &self,
        key: &str,
        upload: &str,
        parts: Vec<String>,
        crc: Option<Crc>,
    ) -> Result<Sums, Fault> {
        let parts: Vec<PartId> = parts.into_iter().map(|content_id| PartId { content_id }).collect();
        let extra = with_crc(crc)?;
        // The library supports the condition only for its own copies.
        let conditional = extra.clone().header(header::IF_NONE_MATCH, HeaderValue::from_static("*"));
        match self.complete_with(conditional, key, upload, parts.clone()).await {
            Err(fault) if fault.kind == Kind::Unknown => self.complete_with(extra, key, upload, parts).await,
            outcome => outcome,
        }
    }

    async fn complete_with(
        &self,
        extra: Extra,
        key: &str,
        upload: &str,
        parts: Vec<PartId>,
    ) -> Result<Sums, Fault> {
        let client = self.client_with(extra)?;
        let done = client.run(client.s3.complete_multipart(&path(key)?, &upload.to_owned(), parts)).await?;
        Ok(Sums { etag: done.e_tag.map(|etag| bare(&etag).to_owned()), crc: client.crc() })
    }

    /// Aborts an upload. An unknown one counts as aborted.
    pub(crate) async fn abort(&self, key: &str, upload: &str) -> Result<(), Fault> {
        let client = self.client()?;
        match client.run(client.s3.abort_multipart(&path(key)?, &upload.to_owned())).await {
            Err(fault) if fault.kind == Kind::Missing => Ok(()),
            outcome => outcome,
        }
    }

    /// Deletes an object. A missing one counts as deleted.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), Fault> {
        let client = self.client()?;
        let deleted = client.s3.delete_stream(stream::once(std::future::ready(Ok(path(key)?))).boxed());
        let first = deleted.into_future().map(|(first, _)| first.map_or(Ok(()), |deleted| deleted.map(drop)));
        match client.run(first).await {
            Err(fault) if fault.kind == Kind::Missing => Ok(()),
            outcome => outcome,
        }
    }

    /// A signed address, valid for `valid`: anyone who has it can fetch the object. No I/O.
    pub(crate) fn sign(&self, key: &str, valid: Duration) -> Result<String, Fault> {
        let client = self.client()?;
        let path = path(key)?;
        // With static keys the result is ready at once.
        match client.s3.signed_url(Method::GET, &path, valid).now_or_never() {
            Some(Ok(url)) => Ok(url.into()),
            _ => Err(Fault::internal("an address for the recording could not be signed")),
        }
    }

    /// The endpoint with the bucket before its host; `None` when the bucket is in the path.
    fn virtual_host(&self) -> Option<String> {
        let target = &self.target;
        let (scheme, host) = target.endpoint.split_once("://").filter(|_| !target.path_style)?;
        Some(format!("{scheme}://{}.{host}", target.bucket))
    }

    /// Address of the bucket.
    fn base(&self) -> String {
        self.virtual_host().unwrap_or_else(|| format!("{}/{}", self.target.endpoint, self.target.bucket))
    }

    /// Bucket and store for texts.
    fn place(&self) -> String {
        let endpoint = &self.target.endpoint;
        let host = endpoint.split_once("://").map_or(endpoint.as_str(), |(_, host)| host);
        format!("bucket {} at {host}", self.target.bucket)
    }

    /// A client for one request, which keeps the store's answer.
    fn client(&self) -> Result<Client, Fault> {
        self.client_with(Extra::default())
    }

    fn client_with(&self, extra: Extra) -> Result<Client, Fault> {
        let target = &self.target;
        let endpoint = self.virtual_host().unwrap_or_else(|| target.endpoint.clone());
        let place = self.place().into();
        let sockets = self.sockets.clone();
        let wire = Wire { sockets, target: target.clone(), place, extra, seen: Arc::default() };
        let s3 = AmazonS3Builder::new()
            .with_endpoint(endpoint)
            .with_region(&target.region)
            .with_bucket_name(&target.bucket)
            .with_access_key_id(&target.access_key)
            .with_secret_access_key(&target.secret_key)
            .with_virtual_hosted_style_request(!target.path_style)
            // The wire signs, because it adds headers.
            .with_skip_signature(true)
            .with_allow_http(true)
            .with_client_options(ClientOptions::new().with_allow_http(true))
            // One object, one request: not every store supports bulk deletion.
            .with_disable_bulk_delete(true)
            // This driver has its own retries.
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            .with_http_connector(wire.clone())
            .build()
            .map_err(|_| Fault::internal("the store's client could not be set up"))?;
        Ok(Client { s3, wire })
    }
}

/// A request with this checksum.
fn with_crc(crc: Option<Crc>) -> Result<Extra, Fault> {
    let mut extra = Extra::default();
    if let Some(crc) = crc {
        let value = HeaderValue::try_from(crc.text())
            .map_err(|_| Fault::internal("a checksum is not valid in a request"))?;
        extra = extra.header(CRC, value);
    }
    Ok(extra)
}

fn path(key: &str) -> Result<Path, Fault> {
    Path::parse(key).map_err(|_| Fault::internal("a recording has an invalid name"))
}

/// Ids of exactly this key in a store's list of open uploads.
fn upload_ids(document: &[u8], key: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(document);
    let field = |block: &str, name: &str| element(block.as_bytes(), name);
    let blocks = text.split("<Upload>").skip(1);
    let of_key = blocks.filter(|block| field(block, "Key").as_deref() == Some(key));
    let ids = of_key.filter_map(|block| field(block, "UploadId"));
    // An id with an escaped character would be read wrongly; stores make none.
    ids.filter(|id| !id.is_empty() && id.len() <= TOKEN_BYTES_MAX && !id.contains('&'))
        .take(UPLOADS_MAX)
        .collect()
}

/// An ETag without quotation marks.
pub(crate) fn bare(etag: &str) -> &str {
    etag.trim().trim_start_matches("W/").trim_matches('"')
}

/// The characters of a text that a header may contain.
pub(crate) fn header_text(text: &str) -> String {
    let visible = |letter: char| if letter == ' ' || letter.is_ascii_graphic() { letter } else { '?' };
    text.chars().map(visible).take(256).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_uploads_of_the_key_are_found() {
        let upload =
            |key: &str, id: &str| format!("<Upload><Key>{key}</Key><UploadId>{id}</UploadId></Upload>");
        let list =
            [upload("a/b.mp4", "1"), upload("a/b.mp4.x", "2"), upload("a/b.mp4", "3"), upload("a/b.mp4", "")];
        let text = format!("<?xml?><R><Prefix>a/b.mp4</Prefix>{}</R>", list.concat());
        assert_eq!(upload_ids(text.as_bytes(), "a/b.mp4"), ["1", "3"]);
        assert!(upload_ids(b"<Upload><Key>a/b.mp4</Key>", "a/b.mp4").is_empty());
        let many = upload("k", "1").repeat(UPLOADS_MAX + 1);
        assert_eq!(upload_ids(many.as_bytes(), "k").len(), UPLOADS_MAX);
        assert_eq!(header_text(" Ñandú\nlive "), "?and??live");
        assert_eq!((bare("\"a\""), bare("W/\"a\""), bare("a")), ("a", "a", "a"));
    }
}
