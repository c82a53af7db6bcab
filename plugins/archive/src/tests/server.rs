//! An S3 server in this process that checks signatures and checksums, with a script in front of it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use s3s::auth::SimpleAuth;
use s3s::host::MultiDomain;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::net::TcpListener;

use crate::limits::{ETAG_BYTES_MAX, TOKEN_BYTES_MAX};

#[path = "../../../../tests/src/checksums.rs"]
mod checksums;

use checksums::Checksums;

pub(crate) const ACCESS_KEY: &str = "testkey";
pub(crate) const SECRET_KEY: &str = "verysecretvalue";
pub(crate) const BUCKET: &str = "recordings";

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Find,
    Open,
    /// From 1 on.
    Part(u32),
    Complete,
    Abort,
    Delete,
    Get,
    /// Open uploads.
    List,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Pass,
    /// This status, and the store never hears of it.
    Answer(u16),
    /// There is no such bucket, as S3 says it.
    NoBucket,
    /// The store does it, and calls it by a name that is far too long.
    LongName,
    /// The connection is cut when so many bytes of the body have come.
    Cut(usize),
    /// The store does it, and the connection is cut before the answer.
    LoseAnswer,
    /// A byte of the body changes on the way.
    Corrupt,
    /// No answer for a long time.
    Hang,
    /// The store does it, and there is no answer for a long time.
    DoAndHang,
    /// The store does it after this many milliseconds.
    Slow(u64),
}

/// What the store does with checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Support {
    /// It compares and repeats them.
    Full,
    /// It does not know their headers and ignores them.
    Ignores,
    /// It does not know their headers and refuses them.
    Refuses,
}

type Script = Box<dyn FnMut(u64, Ask) -> Act + Send>;

/// The server; it ends with its runtime.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    root: tempfile::TempDir,
    shared: Arc<Shared>,
}

struct Shared {
    script: Mutex<Script>,
    asked: Mutex<Vec<Ask>>,
    count: AtomicU64,
    store: S3Service,
    checksums: Checksums,
    support: Mutex<Support>,
    root: PathBuf,
}

impl Shared {
    /// Ids of open uploads.
    fn uploads(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.root).unwrap().map(|entry| entry.unwrap().file_name());
        let id = |name: std::ffi::OsString| {
            Some(name.to_str()?.strip_prefix(".upload-")?.strip_suffix(".json")?.to_owned())
        };
        entries.filter_map(id).collect()
    }
}

impl Server {
    /// Starts one in the running runtime.
    pub(crate) async fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join(BUCKET)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(root.path()).unwrap());
        builder.set_host(
            MultiDomain::new([address.to_string(), format!("s3.test:{}", address.port())]).unwrap(),
        );
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(|_, _| Act::Pass)),
            asked: Mutex::default(),
            count: AtomicU64::new(0),
            store: builder.build(),
            checksums: Checksums::default(),
            support: Mutex::new(Support::Full),
            root: root.path().to_path_buf(),
        });
        let serving = shared.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let shared = serving.clone();
                let service = service_fn(move |request| serve(shared.clone(), request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
            }
        });
        Server { address, root, shared }
    }

    /// Decides by the number of the request, from 0 since this call, and its kind.
    pub(crate) fn script(&self, script: impl FnMut(u64, Ask) -> Act + Send + 'static) {
        *self.shared.script.lock() = Box::new(script);
        self.shared.count.store(0, Ordering::SeqCst);
        self.shared.asked.lock().clear();
    }

    pub(crate) fn support(&self, support: Support) {
        *self.shared.support.lock() = support;
    }

    /// Handles the first `times` requests of a kind as given.
    pub(crate) fn on(&self, kind: Ask, times: u32, act: Act) {
        let mut left = times;
        self.script(move |_, ask| {
            let is_meant = ask == kind && left > 0;
            left -= u32::from(is_meant);
            if is_meant { act } else { Act::Pass }
        });
    }

    /// What was asked since the script was set.
    pub(crate) fn asked(&self) -> Vec<Ask> {
        self.shared.asked.lock().clone()
    }

    /// Makes another bucket.
    pub(crate) fn add_bucket(&self, name: &str) {
        std::fs::create_dir(self.root.path().join(name)).unwrap();
    }

    /// Objects: key and bytes, in the order of their keys.
    pub(crate) fn objects(&self) -> Vec<(String, Vec<u8>)> {
        self.objects_in(BUCKET)
    }

    /// The same of another bucket.
    pub(crate) fn objects_in(&self, name: &str) -> Vec<(String, Vec<u8>)> {
        let bucket = self.root.path().join(name);
        let (mut folders, mut found) = (vec![bucket.clone()], Vec::new());
        while let Some(folder) = folders.pop() {
            // A file that disappears meanwhile does not count.
            for entry in std::fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => {
                        let key = path.strip_prefix(&bucket).unwrap().to_str().unwrap().to_owned();
                        // Being written under another name.
                        let bytes = std::fs::read(path).ok().filter(|_| !key.contains(".tmp."));
                        found.extend(bytes.map(|bytes| (key, bytes)));
                    }
                }
            }
        }
        found.sort();
        found
    }

    /// Puts an object there, as another program would.
    pub(crate) fn place(&self, key: &str, bytes: &[u8]) {
        let path = self.root.path().join(BUCKET).join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Takes one away.
    pub(crate) fn remove(&self, key: &str) {
        std::fs::remove_file(self.root.path().join(BUCKET).join(key)).unwrap();
    }

    /// Nobody is connected. What a client sent before it died is done or dropped then: this server would go on to store parts of an
    /// upload that another client has completed meanwhile, and stores of others throw them away.
    pub(crate) fn is_idle(&self) -> bool {
        // This handle and the loop that accepts; each connection has one more.
        Arc::strong_count(&self.shared) == 2
    }

    /// Uploads that are open, and parts that wait, as files of the server.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.root.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.to_str().unwrap().contains(".upload")).collect()
    }

    /// What the server keeps beside its objects: metadata.
    pub(crate) fn notes(&self) -> String {
        let entries = std::fs::read_dir(self.root.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_file()).filter_map(|path| std::fs::read_to_string(path).ok()).collect()
    }

    /// Loses the files of the parts it has.
    pub(crate) fn lose_parts(&self) -> usize {
        let parts: Vec<PathBuf> =
            self.leftovers().into_iter().filter(|path| path.to_str().unwrap().contains(".part-")).collect();
        parts.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        parts.len()
    }
}

fn kind(request: &Request<Incoming>) -> Ask {
    let query = request.uri().query().unwrap_or_default();
    match *request.method() {
        Method::HEAD => Ask::Find,
        Method::GET if query.contains("uploads=") => Ask::List,
        Method::GET => Ask::Get,
        Method::POST if query.starts_with("uploadId=") => Ask::Complete,
        Method::POST => Ask::Open,
        Method::PUT => {
            let number = query.split('&').find_map(|pair| pair.strip_prefix("partNumber="));
            Ask::Part(number.unwrap().parse().unwrap())
        }
        _ if query.contains("uploadId=") => Ask::Abort,
        _ => Ask::Delete,
    }
}

fn refusal(status: u16, code: &str) -> Response<s3s::Body> {
    let text = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>");
    let mut answer = Response::new(s3s::Body::from(text));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
    answer
}

/// The list of open uploads, which this server checks the signature of and then does not know how to make: all are said to be of
/// the key that is asked for, which in these tests they are.
fn upload_list(shared: &Shared, query: &str) -> Response<s3s::Body> {
    let key = query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).unwrap().replace("%2F", "/");
    let ids = shared.uploads().into_iter();
    let blocks = ids.map(|id| format!("<Upload><Key>{key}</Key><UploadId>{id}</UploadId></Upload>"));
    let text = format!("<?xml version=\"1.0\"?><R>{}</R>", blocks.collect::<String>());
    Response::new(s3s::Body::from(text))
}

/// What the store makes of a request.
async fn stored(shared: &Shared, request: Request<Bytes>) -> Answered {
    let has_checksum = request.headers().keys().any(|name| name.as_str().starts_with("x-amz-checksum-"));
    let support = *shared.support.lock();
    let answer = match support {
        Support::Refuses if has_checksum => return Ok(refusal(400, "InvalidArgument")),
        Support::Full => shared.checksums.answer(&shared.store, request.map(Full::new)).await,
        Support::Ignores | Support::Refuses => shared.store.call(request.map(s3s::Body::from)).await,
    };
    answer.map_err(|_| std::io::Error::other("the store failed"))
}

type Answered = Result<Response<s3s::Body>, std::io::Error>;

async fn serve(shared: Arc<Shared>, request: Request<Incoming>) -> Answered {
    let ask = kind(&request);
    let number = shared.count.fetch_add(1, Ordering::SeqCst);
    let act = (shared.script.lock())(number, ask);
    shared.asked.lock().push(ask);
    let cut = || Err(std::io::Error::other("cut by the script"));
    let (head, mut body) = request.into_parts();
    if let Act::Cut(most) = act {
        let mut come = 0;
        while come < most {
            match body.frame().await {
                Some(Ok(frame)) => come += frame.data_ref().map_or(0, Bytes::len),
                _ => break,
            }
        }
        return cut();
    }
    let Ok(body) = body.collect().await else { return cut() };
    let mut body = body.to_bytes();
    match act {
        Act::Answer(status) => return Ok(refusal(status, "Scripted")),
        Act::NoBucket => return Ok(refusal(404, "NoSuchBucket")),
        Act::Hang => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            return cut();
        }
        Act::Slow(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
        Act::Corrupt if !body.is_empty() => {
            let mut bytes = body.to_vec();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            body = bytes.into();
        }
        _ => {}
    }
    let query = head.uri.query().unwrap_or_default().to_owned();
    let answer = stored(&shared, Request::from_parts(head, body)).await?;
    if ask == Ask::List && answer.status() == StatusCode::NOT_IMPLEMENTED {
        return Ok(upload_list(&shared, &query));
    }
    // Some of its answers do their work while they are read.
    let (head, body) = answer.into_parts();
    let body = http_body_util::BodyExt::collect(body).await.map_err(|_| std::io::Error::other("no body"))?;
    if act == Act::DoAndHang {
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
    let (mut head, mut body) = (head, body.to_bytes());
    if act == Act::LoseAnswer {
        return cut();
    }
    if act == Act::LongName {
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        head.headers.insert("etag", format!("\"{}\"", &long[..ETAG_BYTES_MAX]).parse().unwrap());
        let text = String::from_utf8(body.to_vec()).unwrap();
        body = text.replace("</UploadId>", &format!("{long}</UploadId>")).into();
        head.headers.remove("content-length");
    }
    Ok(Response::from_parts(head, s3s::Body::from(body)))
}
