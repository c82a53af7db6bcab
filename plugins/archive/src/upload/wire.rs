//! Requests of `object_store` on our own sockets, and what of their answers is kept.

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
    /// The outcome, with what was seen on the wire instead of the library's error: that one repeats whole answers.
    pub(super) async fn run<T>(
        &self,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, Fault> {
        work.await.map_err(|_| {
            let seen = self.wire.fault.lock().take();
            seen.unwrap_or_else(|| {
                Fault::remote(format!("{} gave an answer that cannot be read", self.wire.place))
            })
        })
    }
}

/// The library's requests on our sockets.
#[derive(Debug, Clone)]
pub(super) struct Wire {
    pub(super) sockets: Arc<Sockets>,
    /// Bucket and store in words.
    pub(super) place: Arc<str>,
    /// Its request to complete is refused when there is an object already.
    pub(super) is_conditional: bool,
    /// What went wrong, if something did.
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
            // The library has this for its own copies only.
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
        // S3 says some failures to complete with status 200 and an error document.
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
