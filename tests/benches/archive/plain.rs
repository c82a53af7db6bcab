//! A plain multipart upload by `object_store`, with parts of the driver's size, as many at a time, read from the disk too. It signs
//! them, checks nothing of what arrived, and would not continue after a crash.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::rt::TokioExecutor;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::multipart::MultipartStore as _;
use object_store::path::Path as Key;
use object_store::{ClientOptions, PutPayload};
use satcast_tests::s3::{ACCESS_KEY, BUCKET, SECRET_KEY};

/// As the driver's: bytes of a part, and parts at one time.
const PART_BYTES: u64 = 8 * 1024 * 1024;
const AT_ONCE: usize = 2;

/// hyper's own client, as it comes.
#[derive(Debug, Clone)]
struct Plain(Client<Tcp, HttpRequestBody>);

impl HttpConnector for Plain {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait::async_trait]
impl HttpService for Plain {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let failed = |error| HttpError::new(HttpErrorKind::Unknown, error);
        let (head, body) = self.0.request(request).await.map_err(failed)?.into_parts();
        let body = body.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error));
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
    }
}

/// A client of the store.
pub(crate) fn client(endpoint: &str) -> AmazonS3 {
    let client = Plain(Client::builder(TokioExecutor::new()).build(Tcp::new()));
    AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_region("us-east-1")
        .with_bucket_name(BUCKET)
        .with_access_key_id(ACCESS_KEY)
        .with_secret_access_key(SECRET_KEY)
        .with_allow_http(true)
        .with_http_connector(client)
        .build()
        .expect("a client")
}

/// Uploads `file`, of `bytes`, under `name`.
pub(crate) async fn upload(store: Arc<AmazonS3>, file: Arc<File>, bytes: u64, name: &str) {
    let key = Key::from(name);
    let id = store.create_multipart(&key).await.expect("an upload");
    let part = |index: usize| {
        let (store, file, key, id) = (store.clone(), file.clone(), key.clone(), id.clone());
        async move {
            let offset = index as u64 * PART_BYTES;
            let read = tokio::task::spawn_blocking(move || {
                let mut part = vec![0; usize::try_from(PART_BYTES.min(bytes - offset)).expect("a part")];
                file.read_exact_at(&mut part, offset).map(|()| Bytes::from(part))
            });
            let part = read.await.expect("it reads").expect("a part");
            store.put_part(&key, &id, index, PutPayload::from(part)).await
        }
    };
    let parts = stream::iter((0..bytes.div_ceil(PART_BYTES)).map(|index| part(index as usize)));
    let parts = parts.buffered(AT_ONCE).try_collect().await.expect("all parts");
    store.complete_multipart(&key, &id, parts).await.expect("an object");
}
