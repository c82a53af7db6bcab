//! Requests of `object_store` over the driver's sockets, with headers that it does not know, and signed here for that
//! reason. The parts of the answers that it drops are kept.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};
use http_body_util::{BodyExt as _, Full};
use object_store::ClientOptions;
use object_store::aws::{AmazonS3, AwsAuthorizer, AwsCredential};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use parking_lot::Mutex;

use super::fault::Fault;
use super::sockets::Sockets;
use crate::config::Target;

/// The checksum of a part or an object, in requests and answers.
pub(super) const CRC: HeaderName = HeaderName::from_static("x-amz-checksum-crc64nvme");
/// The same in the document that answers the request to complete an upload.
const CRC_ELEMENT: &str = "ChecksumCRC64NVME";

/// A client for one request.
pub(super) struct Client {
    pub(super) s3: AmazonS3,
    pub(super) wire: Wire,
}

impl Client {
    /// Returns the outcome, with the failure seen on the wire instead of the library's error, which repeats whole
    /// answers.
    pub(super) async fn run<T>(
        &self,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, Fault> {
        work.await.map_err(|_| {
            let seen = self.wire.seen.lock().fault.take();
            seen.unwrap_or_else(|| {
                Fault::remote(format!("{} sent an answer that cannot be read", self.wire.place))
            })
        })
    }

    /// The CRC-64/NVME in the answer.
    pub(super) fn crc(&self) -> Option<String> {
        self.wire.seen.lock().crc.take()
    }
}

/// How the signature covers the body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Payload {
    /// With its SHA-256, which is computed here: for short bodies of one chunk.
    #[default]
    Short,
    /// With this SHA-256.
    Sha256([u8; 32]),
    /// Not at all: TLS protects it, and the store compares it with a checksum in a signed header.
    Unsigned,
}

/// What a request has beyond the library's part.
#[derive(Debug, Clone, Default)]
pub(super) struct Extra {
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) payload: Payload,
}

impl Extra {
    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}

/// Signs a request.
pub(super) fn sign(target: &Target, request: &mut HttpRequest, payload: Payload) -> Result<(), Fault> {
    let credential = AwsCredential {
        key_id: target.access_key.clone(),
        secret_key: target.secret_key.clone(),
        token: None,
    };
    let sha256 = match &payload {
        Payload::Sha256(sha256) => Some(&sha256[..]),
        Payload::Short | Payload::Unsigned => None,
    };
    AwsAuthorizer::new(&credential, "s3", &target.region)
        .with_sign_payload(payload != Payload::Unsigned)
        .try_authorize(request, sha256)
        .map_err(|_| Fault::internal("a request could not be signed"))
}

/// The library's requests over the driver's sockets.
#[derive(Debug, Clone)]
pub(super) struct Wire {
    pub(super) sockets: Arc<Sockets>,
    pub(super) target: Arc<Target>,
    /// Bucket and store for texts.
    pub(super) place: Arc<str>,
    pub(super) extra: Extra,
    pub(super) seen: Arc<Mutex<Seen>>,
}

/// Parts of the answer.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The failure, if there was one.
    fault: Option<Fault>,
    crc: Option<String>,
}

impl HttpConnector for Wire {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait::async_trait]
impl HttpService for Wire {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let completes = request.method() == Method::POST
            && request.uri().query().is_some_and(|query| query.starts_with("uploadId="));
        request.headers_mut().extend(self.extra.headers.iter().cloned());
        let signed = sign(&self.target, &mut request, self.extra.payload);
        let outcome = match signed {
            Ok(()) => self.sockets.exchange(request).await,
            Err(fault) => Err(fault),
        };
        let answer = match outcome {
            Ok(answer) => answer,
            Err(fault) => {
                self.note(fault.clone());
                return Err(HttpError::new(HttpErrorKind::Unknown, fault));
            }
        };
        let (head, body) = answer.into_parts();
        // S3 reports some failures to complete with status 200 and an error document.
        if !head.status.is_success() {
            self.note(Fault::answer(head.status, &body, &self.place));
        } else if completes && body.windows(7).any(|window| window == b"<Error>") {
            self.note(Fault::answer(http::StatusCode::INTERNAL_SERVER_ERROR, &body, &self.place));
        }
        self.seen.lock().crc = match head.headers.get(CRC) {
            Some(crc) => crc.to_str().ok().map(str::to_owned),
            None if completes => element(&body, CRC_ELEMENT),
            None => None,
        };
        let body = Full::new(body).map_err(|never| match never {});
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
    }
}

impl Wire {
    fn note(&self, fault: Fault) {
        self.seen.lock().fault = Some(fault);
    }
}

/// The text of the first element of this name in a document.
pub(super) fn element(document: &[u8], name: &str) -> Option<String> {
    let text = std::str::from_utf8(document).ok()?;
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (value, _) = rest.split_once(&format!("</{name}>"))?;
    Some(value.to_owned())
}

#[cfg(test)]
mod tests {
    use object_store::client::HttpRequestBody;

    use super::*;

    #[test]
    fn the_signature_covers_the_checksum_and_as_much_of_the_body_as_it_says() {
        let target = Target {
            endpoint: "https://s3.example.org".into(),
            region: "eu".into(),
            bucket: "b".into(),
            prefix: String::new(),
            access_key: "a".into(),
            secret_key: "s".into(),
            path_style: true,
        };
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        for (payload, said) in [
            (Payload::Short, empty.to_owned()),
            (Payload::Sha256([0xab; 32]), "ab".repeat(32)),
            (Payload::Unsigned, "UNSIGNED-PAYLOAD".to_owned()),
        ] {
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.uri_mut() = "https://s3.example.org/b/k?partNumber=1".parse().unwrap();
            request.headers_mut().insert(CRC, HeaderValue::from_static("rosUhgp5mIg="));
            sign(&target, &mut request, payload).unwrap();
            let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
            assert_eq!(header("x-amz-content-sha256"), said);
            let signed = "SignedHeaders=host;x-amz-checksum-crc64nvme;x-amz-content-sha256;x-amz-date,";
            assert!(header("authorization").contains(signed), "{}", header("authorization"));
        }
    }

    #[test]
    fn elements_are_read_from_answers() {
        let document = b"<?xml?><R><ETag>e</ETag><ChecksumCRC64NVME>rosUhgp5mIg=</ChecksumCRC64NVME></R>";
        assert_eq!(element(document, CRC_ELEMENT).as_deref(), Some("rosUhgp5mIg="));
        assert_eq!(element(b"<R><ETag>e</ETag></R>", CRC_ELEMENT), None);
        assert_eq!(element(b"<ChecksumCRC64NVME>never closed", CRC_ELEMENT), None);
    }
}
