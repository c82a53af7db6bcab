//! How fast a recording is uploaded and what that costs, beside a plain multipart upload of the same file by
//! `object_store` to the same store.
//!
//! `cargo bench -p satcast-driver-archive --bench archive [-- --repeats N]`. The plain one has parts of the same size, as
//! many at a time, and reads them from the disk too; it signs them, checks nothing of what arrived, and would not
//! continue after a crash. The store is a process of its own. Each ratio is made inside one repeat, and the order
//! changes with each, because the machine's speed drifts.

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

const REPEATS: usize = 5;
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

/// One upload.
struct Run {
    bytes: u64,
    wall: Duration,
    cpu: Duration,
}

impl Run {
    fn gigabits_a_second(&self) -> f64 {
        self.bytes as f64 * 8.0 / 1e9 / self.wall.as_secs_f64()
    }

    fn cpu_seconds_a_gigabyte(&self) -> f64 {
        self.cpu.as_secs_f64() / (self.bytes as f64 / 1e9)
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

/// Ours and the plain one, of the same recording. Each repeat has a driver of its own, without kept connections.
fn repeat(store: &Store, number: usize) -> (Run, Run) {
    let options = Options { settings: store.settings(), data_dir: None };
    let kit = Testkit::start_with(entry, options).expect("the driver starts");
    kit.fail(HostCall::Connect, Error::network("the store is down"));
    record(&kit, TYPE, MINUTES);
    let file = copy(&kit);
    let name = format!("plain{number}");
    let runs = if number.is_multiple_of(2) {
        let plain = plain(store, &file, &name);
        (ours(&kit), plain)
    } else {
        let ours = ours(&kit);
        (ours, plain(store, &file, &name))
    };
    kit.shut_down();
    std::fs::remove_file(file).expect("it is this bench's own");
    runs
}

/// `--repeats N` of the command line; cargo's own options are passed over.
fn repeats() -> usize {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--repeats").skip(1);
    arguments.next().map_or(REPEATS, |number| number.parse().expect("--repeats needs a number"))
}

/// Median, least and greatest.
fn summary(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let (middle, last) = (values.len() / 2, values.len() - 1);
    let median = if values.len().is_multiple_of(2) {
        (values[middle - 1] + values[middle]) / 2.0
    } else {
        values[middle]
    };
    format!("{median:.3} ({:.3}-{:.3})", values[0], values[last])
}

fn show(what: &str, runs: &[(Run, Run)], value: impl Fn(&Run) -> f64) {
    let (ours, plain): (Vec<f64>, Vec<f64>) =
        runs.iter().map(|(ours, plain)| (value(ours), value(plain))).unzip();
    let ratios = ours.iter().zip(&plain).map(|(ours, plain)| ours / plain).collect();
    println!("archive: {what}, ours {}", summary(ours));
    println!("archive: {what}, plain object_store {}", summary(plain));
    println!("archive: {what}, ours to plain {}", summary(ratios));
}

fn main() {
    if is_store() {
        return;
    }
    let store = Store::start();
    let runs: Vec<(Run, Run)> = (0..repeats().max(1)).map(|number| repeat(&store, number)).collect();
    show("Gbit/s", &runs, Run::gigabits_a_second);
    show("CPU seconds for a GB", &runs, Run::cpu_seconds_a_gigabyte);
}
