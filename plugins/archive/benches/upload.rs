//! How fast a recording goes up, beside a plain multipart upload of the same file by `object_store` to the same store.
//!
//! `cargo bench -p satcast-driver-archive --bench upload`. The plain one has parts of the same size, as many at one time, and reads
//! them from the disk too; it proves nothing of what came, and would not go on after a crash.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{ACCESS_KEY, BUCKET, SECRET_KEY, Store, cpu, is_store, record};
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
use satcast_driver_archive::{Archive, TYPE};
use satcast_plugin_api::driver::RecordingState;
use satcast_plugin_api::testkit::{HostCall, Options, Testkit};
use satcast_plugin_api::{Error, driver_entry};

driver_entry!(entry, Archive);

/// About 600 MB.
const MINUTES: i64 = 13;
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

/// A speed with what it cost.
struct Run {
    bytes: u64,
    wall: Duration,
    cpu: Duration,
}

impl Run {
    fn megabytes_a_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.wall.as_secs_f64()
    }

    fn show(&self, what: &str) {
        println!(
            "{what}: {:.0} MB in {:.2?}, {:.0} MB/s, {:.2?} of CPU for a GB",
            self.bytes as f64 / 1e6,
            self.wall,
            self.megabytes_a_second(),
            self.cpu.div_f64(self.bytes as f64 / 1e9)
        );
    }
}

/// From the first part that the store has to the end: the pause before the first try is not part of it.
fn ours(kit: &Testkit) -> Run {
    kit.heal(HostCall::Connect);
    let first =
        std::iter::repeat_with(|| kit.wait_for_recording(|one| one.uploaded_bytes > 0)).flatten().next();
    let (before, start) = (cpu(), Instant::now());
    let first = first.expect("the first part").uploaded_bytes;
    let done = || kit.wait_for_recording(|one| one.state == RecordingState::Ready);
    let ready = std::iter::repeat_with(done).flatten().next().expect("ready");
    Run { bytes: ready.size_bytes - first, wall: start.elapsed(), cpu: cpu() - before }
}

async fn upload(store: Arc<AmazonS3>, file: Arc<File>, key: Key) {
    let bytes = file.metadata().expect("its size").len();
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

fn plain(store: &Store, file: &Path, name: &str) -> Run {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let client = Plain(Client::builder(TokioExecutor::new()).build(Tcp::new()));
    let s3 = AmazonS3Builder::new()
        .with_endpoint(&store.endpoint)
        .with_region("us-east-1")
        .with_bucket_name(BUCKET)
        .with_access_key_id(ACCESS_KEY)
        .with_secret_access_key(SECRET_KEY)
        .with_allow_http(true)
        .with_http_connector(client)
        .build();
    let s3 = Arc::new(s3.expect("a client"));
    let opened = Arc::new(File::open(file).expect("the file"));
    let (before, start) = (cpu(), Instant::now());
    runtime.expect("a runtime").block_on(upload(s3, opened.clone(), Key::from(name)));
    let (wall, cpu) = (start.elapsed(), cpu() - before);
    Run { bytes: opened.metadata().expect("its size").len(), wall, cpu }
}

/// The recording as it lies here, under a name that stays.
fn copy(kit: &Testkit) -> PathBuf {
    let folder = kit.data_dir().expect("a folder").join("spool");
    let mut files = std::fs::read_dir(folder).expect("the spool").flatten();
    let spooled = files.next().expect("the recording").path();
    let copy = std::env::temp_dir().join(format!("satcast-bench-copy-{}", std::process::id()));
    std::fs::copy(spooled, &copy).expect("a copy");
    copy
}

fn main() {
    if is_store() {
        return;
    }
    let store = Store::start();
    let options = Options { settings: store.settings(), data_dir: None };
    let kit = Testkit::start_with(entry, options).expect("the driver starts");
    kit.fail(HostCall::Connect, Error::network("the store is down"));
    record(&kit, TYPE, MINUTES);
    let file = copy(&kit);
    let first = plain(&store, &file, "first");
    let ours = ours(&kit);
    let second = plain(&store, &file, "second");
    first.show("plain");
    ours.show("ours");
    second.show("plain again");
    let both = (first.megabytes_a_second() + second.megabytes_a_second()) / 2.0;
    println!("ours to plain: {:.2}", ours.megabytes_a_second() / both);
    kit.shut_down();
    std::fs::remove_file(file).expect("it is this bench's own");
}
