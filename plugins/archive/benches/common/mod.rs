//! What the benches share: a store in a process of its own, and the stream that is recorded.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use nix::time::{ClockId, clock_gettime};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use satcast_media::fuzz::RECORDS;
use satcast_plugin_api::Codec;
use satcast_plugin_api::driver::About;
use satcast_plugin_api::testkit::{TestDestination, Testkit, config, media};
use serde_json::{Value, json};

#[path = "../../../../tests/src/checksums.rs"]
mod checksums;

use checksums::Checksums;

/// Video frames of 23.6 kB, every sixtieth a keyframe of 100 kB; about 47 AAC packets of 427 bytes a second.
pub(crate) const FRAME_BYTES: usize = 23_600;
const KEYFRAME_BYTES: usize = 100_000;
/// Says to this program that it is the store.
const STORE: &str = "SATCAST_BENCH_STORE";
/// Its bucket, and its keys.
pub(crate) const BUCKET: &str = "bench";
pub(crate) const ACCESS_KEY: &str = "key";
pub(crate) const SECRET_KEY: &str = "secret";

/// CPU time of this process.
pub(crate) fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("known clock").into()
}

/// True in the process of the store, at its end.
pub(crate) fn is_store() -> bool {
    let is_store = std::env::var_os(STORE).is_some();
    if is_store {
        serve();
    }
    is_store
}

/// A store that runs; it ends and takes its files away when it is dropped.
pub(crate) struct Store {
    child: Child,
    pub(crate) endpoint: String,
    root: PathBuf,
}

impl Store {
    pub(crate) fn start() -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child =
            Command::new(program).env(STORE, "1").stdout(Stdio::piped()).spawn().expect("the store starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("its address");
        let (address, root) = line.trim().split_once(' ').expect("address and folder");
        let (endpoint, root) = (format!("http://{address}"), root.into());
        Store { child, endpoint, root }
    }

    /// The driver's settings for it.
    pub(crate) fn settings(&self) -> Value {
        json!({ "endpoint": self.endpoint, "bucket": BUCKET, "accessKey": ACCESS_KEY, "secretKey": SECRET_KEY })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.child.kill().expect("the store ends");
        self.child.wait().expect("it ended");
        std::fs::remove_dir_all(&self.root).expect("it is this bench's own");
    }
}

fn serve() {
    let root = std::env::temp_dir().join(format!("satcast-bench-store-{}", std::process::id()));
    std::fs::create_dir_all(root.join("bench")).expect("a folder");
    let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(&root).expect("a store"));
    builder.set_auth(SimpleAuth::from_single("key", "secret"));
    let service = builder.build();
    let checksums = Arc::new(Checksums::default());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("{} {}", listener.local_addr().expect("an address"), root.display());
        while let Ok((socket, _)) = listener.accept().await {
            let (service, checksums) = (service.clone(), checksums.clone());
            let answer = service_fn(move |request: hyper::Request<Incoming>| {
                let (service, checksums) = (service.clone(), checksums.clone());
                async move { checksums.answer(&service, request).await }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), answer));
        }
    });
}

/// Records so many minutes as fast as the disk takes them.
pub(crate) fn record(kit: &Testkit, kind: &str, minutes: i64) {
    let about = About { session_id: "bench".into(), ..About::default() };
    let destination = kit.open_for(&about, kind, &json!({})).expect("the destination opens");
    destination.push(config(Codec::H264, RECORDS[0].1));
    destination.push(config(Codec::Aac, RECORDS[2].1));
    for second in 0..minutes * 60 {
        push(&destination, second * 1000);
        // Media comes much faster than its time here; the disk must keep up. What is not written is two seconds at most.
        let floor = u64::try_from((second - 2).max(0)).unwrap_or(0) * 29 * FRAME_BYTES as u64;
        while destination.counter("bytes_sent") < floor {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    destination.stop_within(30_000);
    destination.wait_for_end().expect("a good end");
}

/// A second from `start_ms` on.
fn push(destination: &TestDestination, start_ms: i64) {
    let payload = |bytes: usize| Bytes::from(vec![0x5a; bytes]);
    let mut audio_ms = start_ms;
    for frame in 0..30 {
        let dts_ms = start_ms + frame * 100 / 3;
        let is_key = frame == 0 && start_ms % 2000 == 0;
        let bytes = if is_key { KEYFRAME_BYTES } else { FRAME_BYTES };
        destination.push(media(Codec::H264, 0, dts_ms, is_key, payload(bytes)));
        while audio_ms < dts_ms + 33 {
            destination.push(media(Codec::Aac, 0, audio_ms, false, payload(427)));
            audio_ms += 64 / 3;
        }
    }
}
