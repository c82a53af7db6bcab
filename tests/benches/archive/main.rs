//! The archive driver: what recording costs while the store is down, and how fast a recording is uploaded and what that costs, beside
//! a plain multipart upload of the same file by `object_store` to the same store.
//!
//! `cargo xtask bench archive [recording] [upload] [--repeats N]`. The store is a process of its own.

mod media;
mod plain;
mod upload;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use satcast_driver_archive::Archive;
use satcast_plugin_api::testkit::{HostCall, Options as KitOptions, Testkit};
use satcast_plugin_api::{Error, driver_entry};
use satcast_tests::figures::Options;
use satcast_tests::figures::results::{OURS, Results};
use satcast_tests::peer::{Peer, asked_for};
use satcast_tests::s3;
use tempfile::TempDir;

driver_entry!(entry, Archive);

const REPEATS: usize = 5;
/// There is no window: a recording and its upload end by themselves.
const WINDOW_SECONDS: u64 = 1;
const PARTS: [&str; 2] = ["recording", "upload"];
/// Length of the recordings: about 600 MB.
const MINUTES: i64 = 13;

/// A store in a process of its own.
struct Store {
    peer: Peer,
    _root: TempDir,
}

impl Store {
    fn start() -> Self {
        let root = tempfile::tempdir().expect("a folder for the store");
        let peer = Peer::start("the store", &root.path().to_string_lossy());
        Self { peer, _root: root }
    }

    fn endpoint(&self) -> String {
        format!("http://{}", self.peer.address())
    }
}

/// A driver with one recording that waits for its store.
struct Recorded {
    kit: Testkit,
    cpu: Duration,
    wall: Duration,
}

impl Recorded {
    fn new(store: &Store) -> Self {
        let options = KitOptions { settings: s3::config(&store.endpoint()), data_dir: None };
        let kit = Testkit::start_with(entry, options).expect("the driver starts");
        kit.fail(HostCall::Connect, Error::network("the store is down"));
        let (before, began) = (cpu(), Instant::now());
        media::record(&kit, MINUTES);
        Self { kit, cpu: cpu() - before, wall: began.elapsed() }
    }

    /// The recording's file.
    fn file(&self) -> PathBuf {
        let folder = self.kit.data_dir().expect("a folder").join("spool");
        let mut files = std::fs::read_dir(folder).expect("the spool").flatten();
        files.next().expect("the recording").path()
    }
}

/// CPU time of this process.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("known clock").into()
}

fn main() {
    if let Some((port, root)) = asked_for() {
        return s3::serve_at(port, Path::new(&root));
    }
    let (options, asked) = Options::with_names(REPEATS, WINDOW_SECONDS, &PARTS);
    let store = Store::start();
    let mut results = Results::new();
    for repeat in 0..options.repeats {
        println!("archive, repeat {}", repeat + 1);
        let recorded = Recorded::new(&store);
        if asked.contains(&"recording") {
            let minutes = MINUTES as f64;
            println!("a minute of media was recorded in {:.1?}", recorded.wall.div_f64(minutes));
            results.note(
                "archive recording",
                "cpu_minute",
                OURS,
                repeat,
                recorded.cpu.as_secs_f64() / minutes,
            );
        }
        if asked.contains(&"upload") {
            upload::measure(&recorded, &store.endpoint(), repeat, &mut results);
        }
        recorded.kit.shut_down();
    }
    results.print();
}
