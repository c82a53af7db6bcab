//! CPU time of recording a minute of a 6 Mbit/s stream while the store is down, and how fast it goes up when it is back.
//!
//! `cargo bench -p satcast-driver-archive`. The testkit's part of the work is measured too; the store is a process of its own.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use nix::time::{ClockId, clock_gettime};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use satcast_driver_archive::{Archive, TYPE};
use satcast_media::fuzz::RECORDS;
use satcast_plugin_api::driver::{About, Recording, RecordingState};
use satcast_plugin_api::packet::Codec;
use satcast_plugin_api::testkit::{HostCall, Options, TestDestination, Testkit, config, media};
use satcast_plugin_api::{Error, driver_entry};
use serde_json::json;

driver_entry!(entry, Archive);

const MINUTES: i64 = 20;
/// Pictures of 23.6 kB, every sixtieth a keyframe of 100 kB; about 47 AAC packets of 427 bytes a second.
const PICTURE_BYTES: usize = 23_600;
const KEYFRAME_BYTES: usize = 100_000;
/// Says to this program that it is the store.
const STORE: &str = "SATCAST_BENCH_STORE";

fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("known clock").into()
}

/// Most memory so far in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn serve() {
    let root = std::env::temp_dir().join(format!("satcast-bench-store-{}", std::process::id()));
    std::fs::create_dir_all(root.join("bench")).expect("a folder");
    let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(&root).expect("a store"));
    builder.set_auth(SimpleAuth::from_single("key", "secret"));
    let service = builder.build();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("{} {}", listener.local_addr().expect("an address"), root.display());
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service.clone()));
        }
    });
}

/// A second from `start_ms` on.
fn push(destination: &TestDestination, start_ms: i64) {
    let payload = |bytes: usize| Bytes::from(vec![0x5a; bytes]);
    let mut sound_ms = start_ms;
    for picture in 0..30 {
        let dts_ms = start_ms + picture * 100 / 3;
        let is_key = picture == 0 && start_ms % 2000 == 0;
        let bytes = if is_key { KEYFRAME_BYTES } else { PICTURE_BYTES };
        destination.push(media(Codec::H264, 0, dts_ms, is_key, payload(bytes)));
        while sound_ms < dts_ms + 33 {
            destination.push(media(Codec::Aac, 0, sound_ms, false, payload(427)));
            sound_ms += 64 / 3;
        }
    }
}

fn main() {
    if std::env::var_os(STORE).is_some() {
        return serve();
    }
    let program = std::env::current_exe().expect("this program");
    let mut store =
        Command::new(program).env(STORE, "1").stdout(Stdio::piped()).spawn().expect("the store starts");
    let mut line = String::new();
    BufReader::new(store.stdout.take().expect("its output")).read_line(&mut line).expect("its address");
    let (address, root) = line.trim().split_once(' ').expect("address and folder");
    let settings = json!({
        "endpoint": format!("http://{address}"), "bucket": "bench", "accessKey": "key", "secretKey": "secret",
    });
    let kit = Testkit::start_with(entry, Options { settings, data_dir: None }).expect("the driver starts");
    kit.fail(HostCall::Connect, Error::network("the store is down"));
    let about = About { session_id: "bench".into(), ..About::default() };
    let destination = kit.open_for(&about, TYPE, &json!({})).expect("the destination opens");
    destination.push(config(Codec::H264, RECORDS[0].1));
    destination.push(config(Codec::Aac, RECORDS[2].1));
    let (before, start) = (cpu(), Instant::now());
    for second in 0..MINUTES * 60 {
        push(&destination, second * 1000);
        // Media comes much faster than its time here; the disk must keep up. What is not written is two seconds at most.
        let floor = u64::try_from((second - 2).max(0)).unwrap_or(0) * 29 * PICTURE_BYTES as u64;
        while destination.counter("bytes_sent") < floor {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    destination.stop_within(30_000);
    destination.wait_for_end().expect("a good end");
    let (used, wall) = (cpu() - before, start.elapsed());
    println!(
        "recording a minute: {:.1?} of CPU, {:.1?} in all",
        used / MINUTES as u32,
        wall / MINUTES as u32
    );
    println!("memory so far: {} MiB at most", peak_mib());
    kit.heal(HostCall::Connect);
    let (before, start) = (cpu(), Instant::now());
    let done = |recording: &Recording| recording.state == RecordingState::Ready;
    let recording = std::iter::repeat_with(|| kit.wait_for_recording(done)).flatten().next().expect("ready");
    let megabytes = recording.size_bytes as f64 / 1e6;
    let (used, wall) = (cpu() - before, start.elapsed());
    println!(
        "{megabytes:.0} MB went up in {wall:.1?}: {:.0} MB/s, {:.2?} of CPU for a GB (pauses between tries included)",
        megabytes / wall.as_secs_f64(),
        used.div_f64(megabytes / 1000.0)
    );
    println!("memory: {} MiB at most", peak_mib());
    kit.shut_down();
    store.kill().expect("the store ends");
    store.wait().expect("it ended");
    std::fs::remove_dir_all(root).expect("it is this bench's own");
}
