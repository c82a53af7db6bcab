//! The loop with the testkit's host, on a disk that fails on command.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant as Clock;

use bytes::Bytes;
use satcast_media::fuzz::RECORDS;
use satcast_plugin_api::driver::{self, Driver, DriverInfo, DynDestination};
use satcast_plugin_api::testkit::{STOP_DEADLINE_MS, TestDestination, Testkit, config, media};
use satcast_plugin_api::{Codec, DestType, driver_entry};
use serde_json::json;

use super::*;
use crate::window::MEDIA;

const WORKS: u8 = 0;
const FULL: u8 = 1;
const HANGS: u8 = 2;
static DISK: AtomicU8 = AtomicU8::new(WORKS);

fn write(folder: &Path, sequence: u64, bytes: &[u8]) -> Result<(), WriteFailed> {
    let end = Clock::now() + Duration::from_secs(60);
    while DISK.load(Ordering::SeqCst) == HANGS && Clock::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    match DISK.load(Ordering::SeqCst) {
        FULL => Err(WriteFailed::new(&io::ErrorKind::StorageFull.into(), bytes.len())),
        _ => write_segment(folder, sequence, bytes),
    }
}

struct Faulty(Arc<Shared>);

impl Driver for Faulty {
    const INFO: DriverInfo = DriverInfo { id: "faulty", version: "1.0.0", title: "HLS on a bad disk" };

    fn types() -> Vec<DestType> {
        vec![DestType::of::<crate::Config>("faulty").playback()]
    }

    fn load(host: &driver::Host) -> Result<Self, Error> {
        let retry = Duration::from_millis(50);
        let limits =
            Limits { retry_first: retry, retry_max: retry, full_cooldown: retry, ..Limits::default() };
        Ok(Faulty(Arc::new(Shared::start_with(&host.data_dir()?, "faulty", limits, write)?)))
    }

    fn open(&self, _: driver::Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        Ok(Arc::new(Opening::new(self.0.clone(), &serde_json::from_str("{}").unwrap())))
    }
}

driver_entry!(entry, Faulty);

/// Video frames of the given seconds, ten a second, with a keyframe every two seconds.
fn push(destination: &TestDestination, seconds: std::ops::Range<i64>) {
    for frame in seconds.start * 10..seconds.end * 10 {
        let payload = Bytes::from_static(&[0x65; 100]);
        destination.push(media(Codec::H264, frame as u64, frame * 100, frame % 20 == 0, payload));
    }
}

fn listed(destination: &TestDestination) -> usize {
    numbers(destination).len()
}

/// The numbers of the listed segments.
fn numbers(destination: &TestDestination) -> Vec<u64> {
    let list = destination.report(|report| report.assets.get(MEDIA).map(|asset| asset.bytes().unwrap()));
    let list = String::from_utf8(list.unwrap_or_default()).unwrap();
    list.lines().filter_map(|line| line.strip_suffix(".m4s")?.parse().ok()).collect()
}

fn events(destination: &TestDestination) -> Vec<String> {
    destination.report(|report| report.events.iter().map(|(name, _)| name.clone()).collect())
}

#[track_caller]
fn until(is_met: impl Fn() -> bool) {
    let end = Clock::now() + Duration::from_secs(20);
    while !is_met() {
        assert!(Clock::now() < end, "the condition was not met in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_failing_disk_does_not_end_playback() {
    let kit = Testkit::start(entry).unwrap();
    let destination = kit.open("faulty", &json!({})).unwrap();
    destination.push(config(Codec::H264, RECORDS[0].1));
    push(&destination, 0..21);
    until(|| listed(&destination) == 10);
    let tenth = numbers(&destination)[9];
    DISK.store(FULL, Ordering::SeqCst);
    push(&destination, 21..201);
    // Six at the live edge and thirty more without a file.
    until(|| listed(&destination) == 36 && numbers(&destination)[35] == tenth + 90);
    assert!(destination.counter("dvr_segments_lost") > 0);
    assert_eq!(events(&destination), ["dvr_degraded"]);
    DISK.store(WORKS, Ordering::SeqCst);
    until(|| events(&destination) == ["dvr_degraded", "dvr_recovered"]);
    push(&destination, 201..221);
    until(|| listed(&destination) == 46);
    DISK.store(HANGS, Ordering::SeqCst);
    push(&destination, 221..231);
    // Listed without their files, after the wait for the disk.
    until(|| listed(&destination) == 51);
    let stopped = Clock::now();
    destination.stop();
    destination.wait_for_end().unwrap();
    assert!(
        stopped.elapsed() < Duration::from_millis(u64::from(STOP_DEADLINE_MS)),
        "{:?}",
        stopped.elapsed()
    );
    assert_eq!(listed(&destination), 52);
    // Files that the disk finishes after the end are removed as well.
    DISK.store(WORKS, Ordering::SeqCst);
    kit.forget_assets(&destination);
    let folder = kit.data_dir().unwrap().join("faulty");
    let openings = || {
        let boots = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        boots.filter(|path| path.is_dir()).map(|boot| std::fs::read_dir(boot).unwrap().count()).sum::<usize>()
    };
    until(|| openings() == 0);
    kit.shut_down();
}
