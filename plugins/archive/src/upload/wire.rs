//! Requests of `object_store` over the driver's sockets, and the parts of their answers that are kept.

use std::sync::Arc;

use http::{HeaderValue, Method, header};
use http_body_util::{BodyExt as _, Full};
use object_store::ClientOptions;
use object_store::aws::AmazonS3;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use parking_lot::Mutex;

use super::fault::Fault;
use super::sockets::Sockets;

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
            let seen = self.wire.fault.lock().take();
            seen.unwrap_or_else(|| {
                Fault::remote(format!("{} sent an answer that cannot be read", self.wire.place))
            })
        })
    }
}

/// The library's requests over the driver's sockets.
#[derive(Debug, Clone)]
pub(super) struct Wire {
    pub(super) sockets: Arc<Sockets>,
    /// Bucket and store for texts.
    pub(super) place: Arc<str>,
    /// Its request to complete is refused when the object exists.
    pub(super) is_conditional: bool,
    /// The failure, if there was one.
    pub(super) fault: Arc<Mutex<Option<Fault>>>,
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
        if completes && self.is_conditional {
            // The library supports this only for its own copies.
            request.headers_mut().insert(header::IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        let outcome = self.sockets.exchange(request).await;
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
        let body = Full::new(body).map_err(|never| match never {});
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
    }
}

impl Wire {
    fn note(&self, fault: Fault) {
        *self.fault.lock() = Some(fault);
    }
}
