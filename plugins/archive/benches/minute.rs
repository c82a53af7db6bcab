//! CPU time of recording a minute of a 6 Mbit/s stream while the store is down, and the upload speed when it is back.
//!
//! `cargo bench -p satcast-driver-archive`. The testkit's part of the work is measured too; the store is a process of
//! its own.

mod common;

use std::time::Instant;

use common::{Store, cpu, is_store, record};
use satcast_driver_archive::{Archive, TYPE};
use satcast_plugin_api::driver::{Recording, RecordingState};
use satcast_plugin_api::testkit::{HostCall, Options, Testkit};
use satcast_plugin_api::{Error, driver_entry};

driver_entry!(entry, Archive);

const MINUTES: i64 = 20;

/// Most memory so far in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn main() {
    if is_store() {
        return;
    }
    let store = Store::start();
    let options = Options { settings: store.settings(), data_dir: None };
    let kit = Testkit::start_with(entry, options).expect("the driver starts");
    kit.fail(HostCall::Connect, Error::network("the store is down"));
    let (before, start) = (cpu(), Instant::now());
    record(&kit, TYPE, MINUTES);
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
}
