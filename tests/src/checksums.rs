//! What `s3s-fs` leaves out: it checks the CRC-64/NVME of parts and objects, and repeats it in the answers, as stores do.
//!
//! The archive driver's own tests include this file too.

use std::collections::BTreeMap;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use crc_fast::CrcAlgorithm::Crc64Nvme;
use crc_fast::{Digest, checksum_combine};
use hyper::body::{Body, Frame, SizeHint};
use hyper::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use s3s::service::S3Service;

/// The checksum, in requests and answers.
const SUM: &str = "x-amz-checksum-crc64nvme";
/// Asks for the checksum of an object.
const MODE: &str = "x-amz-checksum-mode";

/// The checksums of one store.
#[derive(Debug, Default)]
pub(crate) struct Checksums {
    /// Checksum and bytes of each part that came with one, by upload and number.
    parts: Mutex<BTreeMap<(String, u32), (u64, u64)>>,
    /// Checksum and number of parts of each object that was completed with one, by path.
    objects: Mutex<BTreeMap<String, (String, usize)>>,
}

impl Checksums {
    /// The store's answer; a part or an object with another checksum than its own is refused.
    pub(crate) async fn answer<B>(
        &self,
        service: &S3Service,
        request: Request<B>,
    ) -> Result<Response<s3s::Body>, s3s::HttpError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        Box<dyn Error + Send + Sync>: From<B::Error>,
    {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let upload = field(&request, "uploadId");
        let number = field(&request, "partNumber").and_then(|number| number.parse::<u32>().ok());
        let (said, is_asked) = (header(&request, SUM), header(&request, MODE).is_some());
        if let (&Method::POST, Some(upload), Some(said)) = (&method, &upload, &said) {
            let (sum, count) = self.whole(upload);
            if *said != sum {
                return Ok(refusal());
            }
            self.objects.lock().insert(path.clone(), (sum, count));
        }
        let digest = Arc::new(Mutex::new(Digest::new(Crc64Nvme)));
        let summed = digest.clone();
        let request =
            request.map(|body| s3s::Body::http_body_unsync(Summed { body: Box::pin(body), digest: summed }));
        let mut answer = service.call(request).await?;
        if !answer.status().is_success() {
            return Ok(answer);
        }
        let sum = match (method, upload, number, said) {
            (Method::PUT, Some(upload), Some(number), Some(said)) => {
                let (sum, bytes) = {
                    let digest = digest.lock();
                    (digest.finalize(), digest.get_amount())
                };
                if said != text(sum) {
                    return Ok(refusal());
                }
                self.parts.lock().insert((upload, number), (sum, bytes));
                Some(said)
            }
            (Method::HEAD, None, None, None) if is_asked => self.object(&path, &answer),
            _ => None,
        };
        if let Some(sum) = sum {
            answer.headers_mut().insert(SUM, sum.parse().expect("base64 is valid in a header"));
        }
        Ok(answer)
    }

    /// Checksum of all parts of an upload, and their number.
    fn whole(&self, upload: &str) -> (String, usize) {
        let parts = self.parts.lock();
        let parts = parts.iter().filter(|((of, _), _)| of == upload);
        let (sum, count) = parts.fold((0, 0), |(whole, count), (_, (sum, bytes))| {
            (checksum_combine(Crc64Nvme, whole, *sum, *bytes), count + 1)
        });
        (text(sum), count)
    }

    /// Checksum of an object, if it is still the one that was completed: its ETag ends with the number of its parts.
    fn object(&self, path: &str, answer: &Response<s3s::Body>) -> Option<String> {
        let (sum, count) = self.objects.lock().get(path)?.clone();
        let etag = answer.headers().get("etag")?.to_str().ok()?;
        etag.ends_with(&format!("-{count}\"")).then_some(sum)
    }
}

/// A field of the query.
fn field<B>(request: &Request<B>, name: &str) -> Option<String> {
    let mut pairs = request.uri().query()?.split('&');
    pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
}

fn header<B>(request: &Request<B>, name: &str) -> Option<String> {
    request.headers().get(name)?.to_str().ok().map(str::to_owned)
}

fn text(sum: u64) -> String {
    STANDARD.encode(sum.to_be_bytes())
}

fn refusal() -> Response<s3s::Body> {
    let text = "<?xml version=\"1.0\"?><Error><Code>BadDigest</Code></Error>";
    let mut refusal = Response::new(s3s::Body::from(text.to_owned()));
    *refusal.status_mut() = StatusCode::BAD_REQUEST;
    refusal
}

/// A body that is summed up while it is read.
struct Summed<B> {
    body: Pin<Box<B>>,
    digest: Arc<Mutex<Digest>>,
}

impl<B: Body<Data = Bytes>> Body for Summed<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(self.body.as_mut().poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            self.digest.lock().update(bytes);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
