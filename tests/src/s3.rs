//! An S3 server in the test's own process that checks signatures and checksums, and can fail on request.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use s3s::auth::SimpleAuth;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::checksums::Checksums;

/// Access key id with permission.
pub const ACCESS_KEY: &str = "testkey";
/// Must never appear in output.
pub const SECRET_KEY: &str = "very-secret-value-of-the-store";
/// The one bucket.
pub const BUCKET: &str = "recordings";

/// Behaviour of the store; a number of 400 or more is its status code for every request.
const WELL: u16 = 0;
const GONE: u16 = 1;

/// A running store; it ends when it is dropped.
#[derive(Debug)]
pub struct Store {
    root: TempDir,
    address: SocketAddr,
    health: Arc<AtomicU16>,
    turned_away: Arc<AtomicU64>,
    /// The origin that the CORS rule of the bucket allows.
    origin: Arc<Mutex<Option<&'static str>>>,
    _runtime: Runtime,
}

impl Default for Store {
    fn default() -> Self {
        Self::start()
    }
}

impl Store {
    /// Starts one with an empty bucket.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn start() -> Self {
        Self::with_skew(S3Config::default().presigned_url_max_skew_time_secs)
    }

    /// The same for a service with a manipulated clock: it accepts requests of any time.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn of_any_time() -> Self {
        Self::with_skew(u32::MAX)
    }

    fn with_skew(seconds: u32) -> Self {
        let root = tempfile::Builder::new().prefix("satcast-s3-").tempdir().expect("a folder for the store");
        let (service, health) = (service(root.path(), seconds), Arc::new(AtomicU16::new(WELL)));
        let (origin, turned_away) = (Arc::default(), Arc::default());
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port for the store");
        let address = listener.local_addr().expect("the store's address");
        listener.set_nonblocking(true).expect("a socket of ours");
        let counted = Arc::clone(&turned_away);
        runtime.spawn(serve(listener, service, Arc::clone(&health), Arc::clone(&origin), counted));
        Self { root, address, health, turned_away, origin, _runtime: runtime }
    }

    /// Its address.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The configuration of a destination that records into it.
    #[must_use]
    pub fn config(&self) -> Value {
        config(&self.endpoint())
    }

    /// Gives the bucket a CORS rule that lets pages of this origin read ranges.
    pub fn allow_origin(&self, origin: &'static str) {
        *self.origin.lock() = Some(origin);
    }

    /// Works again from now on.
    pub fn recover(&self) {
        self.health.store(WELL, Ordering::SeqCst);
    }

    /// Closes every connection at once from now on.
    pub fn vanish(&self) {
        self.health.store(GONE, Ordering::SeqCst);
    }

    /// Connections and requests that it closed while it was gone.
    #[must_use]
    pub fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::SeqCst)
    }

    /// Answers every request with `status` from now on.
    pub fn refuse(&self, status: u16) {
        self.health.store(status, Ordering::SeqCst);
    }

    /// The file of the object `key`, which may not exist.
    #[must_use]
    pub fn file(&self, key: &str) -> PathBuf {
        self.root.path().join(BUCKET).join(key)
    }

    /// Keys of all objects, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let bucket = self.root.path().join(BUCKET);
        let mut keys = Vec::new();
        collect(&bucket, &bucket, &mut keys);
        keys.sort();
        keys
    }
}

/// The configuration of a destination that records into the store at `endpoint`.
#[must_use]
pub fn config(endpoint: &str) -> Value {
    json!({
        "endpoint": endpoint, "bucket": BUCKET, "prefix": "shows",
        "accessKey": ACCESS_KEY, "secretKey": SECRET_KEY
    })
}

/// Is a store with an empty bucket in the folder `root` until this process is ended.
///
/// # Panics
/// When it cannot.
pub fn serve_at(port: u16, root: &Path) {
    let service = service(root, S3Config::default().presigned_url_max_skew_time_secs);
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port of the store");
    listener.set_nonblocking(true).expect("a socket of ours");
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(serve(
        listener,
        service,
        Arc::new(AtomicU16::new(WELL)),
        Arc::default(),
        Arc::default(),
    ));
}

fn service(root: &Path, skew_seconds: u32) -> S3Service {
    std::fs::create_dir(root.join(BUCKET)).expect("a bucket");
    let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(root).expect("a store"));
    let mut config = S3Config::default();
    config.presigned_url_max_skew_time_secs = skew_seconds;
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
    builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
    builder.build()
}

fn collect(bucket: &Path, folder: &Path, keys: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(bucket, &path, keys);
        } else if let Ok(key) = path.strip_prefix(bucket) {
            let key = key.to_string_lossy().into_owned();
            // Objects that the store is still writing have other names.
            if !key.contains(".tmp.") {
                keys.push(key);
            }
        }
    }
}

type Rule = Arc<Mutex<Option<&'static str>>>;

async fn serve(
    listener: TcpListener,
    service: S3Service,
    health: Arc<AtomicU16>,
    rule: Rule,
    turned_away: Arc<AtomicU64>,
) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a socket of ours");
    let checksums = Arc::new(Checksums::default());
    while let Ok((socket, _)) = listener.accept().await {
        if health.load(Ordering::SeqCst) == GONE {
            turned_away.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        let (service, health, checksums) = (service.clone(), Arc::clone(&health), Arc::clone(&checksums));
        let (rule, turned_away) = (Arc::clone(&rule), Arc::clone(&turned_away));
        let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
            let (service, health, checksums) = (service.clone(), Arc::clone(&health), Arc::clone(&checksums));
            let (rule, turned_away) = (Arc::clone(&rule), Arc::clone(&turned_away));
            async move {
                if health.load(Ordering::SeqCst) == GONE {
                    turned_away.fetch_add(1, Ordering::SeqCst);
                    return Err(std::io::Error::other("gone"));
                }
                if request.method() == Method::OPTIONS && health.load(Ordering::SeqCst) == WELL {
                    return Ok(preflight(&request, *rule.lock()));
                }
                let asked = origin_of(&request, *rule.lock());
                let mut answer = answer(&service, &checksums, &health, request).await;
                answer
                    .headers_mut()
                    .extend(asked.map(|origin| (header::ACCESS_CONTROL_ALLOW_ORIGIN, origin)));
                Ok(answer)
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), answer));
    }
}

/// The origin for the answer to a browser, if the rule of the bucket allows it.
fn origin_of(request: &Request<hyper::body::Incoming>, allowed: Option<&'static str>) -> Option<HeaderValue> {
    let asked = request.headers().get(header::ORIGIN)?.to_str().ok()?;
    allowed.filter(|allowed| *allowed == "*" || asked == *allowed).map(HeaderValue::from_static)
}

/// As S3 answers the question of a browser: 403 without a rule for its origin.
fn preflight(request: &Request<hyper::body::Incoming>, allowed: Option<&'static str>) -> Response<s3s::Body> {
    let mut response = Response::new(s3s::Body::empty());
    match origin_of(request, allowed) {
        None => *response.status_mut() = StatusCode::FORBIDDEN,
        Some(origin) => {
            let headers = response.headers_mut();
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD"));
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("range"));
        }
    }
    response
}

async fn answer(
    service: &S3Service,
    checksums: &Checksums,
    health: &AtomicU16,
    request: Request<hyper::body::Incoming>,
) -> Response<s3s::Body> {
    let wanted = StatusCode::from_u16(health.load(Ordering::SeqCst)).ok();
    let refused = |status, code: &str| {
        let mut refused = Response::new(s3s::Body::from(format!("<Error><Code>{code}</Code></Error>")));
        *refused.status_mut() = status;
        refused
    };
    if let Some(status) = wanted {
        return refused(status, "BadDay");
    }
    // The file system would open an upload in any bucket.
    if request.uri().path().split('/').nth(1) != Some(BUCKET) {
        return refused(StatusCode::NOT_FOUND, "NoSuchBucket");
    }
    checksums
        .answer(service, request)
        .await
        .unwrap_or_else(|_| refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"))
}
