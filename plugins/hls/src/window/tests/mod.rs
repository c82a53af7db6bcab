//! The window with a fake host, in virtual time, with real files.

mod disk;
mod host;
mod parts;
mod segments;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use satcast_media::Codec;
use satcast_media::fmp4::{TrackConfig, init_segment};
use satcast_media::fuzz::RECORDS;
use satcast_media::segment::{Init, Segment};
use tempfile::TempDir;

use super::*;
use crate::disk::write_segment;
use crate::folder::{Folder, Root};
use crate::janitor::Janitor;
use host::FakeHost;

const FIRST: u64 = 1_760_000_000;
const SECOND_NS: i64 = 1_000_000_000;

/// What the disk does.
#[derive(Clone, Copy, PartialEq)]
enum Disk {
    Writes,
    Refuses,
    Hangs,
    /// Has space for this many segments.
    Holds(usize),
}

/// An opening with a scripted disk.
struct Opening {
    window: Window,
    host: FakeHost,
    now: Duration,
    made: u64,
    init: u32,
    /// The next segment does not continue the one before.
    cut: bool,
    /// Segments start with a keyframe.
    keyed: bool,
    segment_bytes: usize,
    segment_ms: i64,
    disk: Disk,
    folder: Arc<Folder>,
    data: TempDir,
}

impl Opening {
    fn new(dvr_seconds: u32, limits: Limits) -> Self {
        Self::targeting(2, dvr_seconds, limits)
    }

    fn targeting(target_seconds: u32, dvr_seconds: u32, limits: Limits) -> Self {
        Self::starting(target_seconds, None, dvr_seconds, limits)
    }

    fn starting(target_seconds: u32, part_target_ns: Option<i64>, dvr_seconds: u32, limits: Limits) -> Self {
        let data = tempfile::tempdir().unwrap();
        let root = Root::new(data.path(), "dvr", "boot");
        let mut opening = Opening {
            window: Window::new(FIRST, None, dvr_seconds, limits),
            host: FakeHost::new(data.path()),
            now: Duration::ZERO,
            made: 0,
            init: 0,
            cut: false,
            keyed: true,
            segment_bytes: 1000,
            segment_ms: i64::from(target_seconds) * 1000,
            disk: Disk::Writes,
            folder: root.opening(FIRST, Janitor::start().unwrap()),
            data,
        };
        opening.window.started(target_seconds, part_target_ns);
        opening.window.init(init(0), &opening.host);
        opening
    }

    fn with(dvr_seconds: u32) -> Self {
        Self::new(dvr_seconds, Limits::default())
    }

    /// A segment arrives, of 2 s as a rule.
    fn segment(&mut self) {
        let segment = Segment {
            sequence: FIRST + self.made,
            init_id: self.init,
            duration_ns: self.segment_ms * 1_000_000,
            independent: self.keyed,
            discontinuity: std::mem::take(&mut self.cut),
            program_date_time_ms: 1_760_000_000_000 + self.made as i64 * self.segment_ms,
            offset_ns: 0,
            video_samples: 60,
            bytes: Bytes::from(self.made.to_be_bytes().repeat(self.segment_bytes / 8)),
        };
        self.push(segment);
    }

    fn push(&mut self, segment: Segment) {
        self.made += 1;
        self.window.segment(segment, self.now, &self.host);
    }

    /// The encoder's configuration changes.
    fn change(&mut self) {
        self.init += 1;
        self.cut = true;
        self.window.init(init(self.init), &self.host);
    }

    /// The encoder sends audio alone from now on.
    fn change_to_audio(&mut self) {
        self.init += 1;
        self.cut = true;
        let record = Bytes::from_static(&[0x11, 0x90]);
        let audio = TrackConfig::parse(Codec::Aac, &record).unwrap();
        let bytes = init_segment(&[&audio]).unwrap();
        let init = Init { id: self.init, bytes, video: None, audio: Some(Arc::new(audio)) };
        self.window.init(init, &self.host);
    }

    /// Writes the waiting segments.
    fn write(&mut self) {
        while let Some((sequence, bytes)) = self.window.next_write(self.now) {
            let outcome = match self.disk {
                Disk::Hangs => return,
                Disk::Refuses => Err(failed("broken", None)),
                Disk::Holds(files) if self.files_left() >= files => {
                    let short = (self.files_left() + 1 - files) * bytes.len();
                    Err(failed("no space", Some(short as u64)))
                }
                Disk::Writes | Disk::Holds(_) => self.folder.write(write_segment, sequence, &bytes),
            };
            self.window.written(sequence, outcome, self.now, &self.host);
        }
    }

    /// Time passes, and timers go off.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..10_000 {
            match self.window.next_wake().filter(|wake| *wake <= end) {
                Some(wake) => self.now = self.now.max(wake),
                None => {
                    self.now = end;
                    return;
                }
            }
            self.window.roll(self.now, &self.host);
            self.write();
            let wake = self.window.next_wake();
            assert!(wake.is_none_or(|wake| wake > self.now), "a timer that changes nothing: {wake:?}");
        }
        panic!("timers without end");
    }

    /// `count` segments, each as long after the one before as that lasts.
    fn run(&mut self, count: u64) {
        for _ in 0..count {
            self.segment();
            self.write();
            self.pass(Duration::from_millis(self.segment_ms as u64));
        }
    }

    /// Listed numbers, counted from the first.
    fn listed(&self) -> Vec<u64> {
        let text = self.host.text(MEDIA);
        let names = text.lines().filter_map(|line| line.strip_suffix(".m4s"));
        names.map(|name| name.parse::<u64>().unwrap() - FIRST).collect()
    }

    /// Published segments, counted from the first.
    fn published(&self) -> Vec<u64> {
        let names = self.host.names();
        let numbers = names.iter().filter_map(|name| name.strip_suffix(".m4s")?.parse::<u64>().ok());
        numbers.map(|number| number - FIRST).collect()
    }

    /// Number of files on the disk after all unneeded ones are removed.
    fn files_left(&self) -> usize {
        let needed = self.window.held.all.iter().filter(|held| held.has_file()).count();
        for _ in 0..2000 {
            if self.files() == needed {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(self.files(), needed, "files that nobody needs");
        needed
    }

    fn files(&self) -> usize {
        std::fs::read_dir(self.folder.path()).map_or(0, Iterator::count)
    }
}

fn failed(reason: &str, short_bytes: Option<u64>) -> WriteFailed {
    WriteFailed { reason: reason.to_owned(), short_bytes, going_bytes: 0 }
}

/// The init segment number `id`, alternating between two configurations.
fn init(id: u32) -> Init {
    let (codec, record) = RECORDS[id as usize % 2];
    let video = TrackConfig::parse(codec, &Bytes::from_static(record)).unwrap();
    assert_eq!(codec, Codec::H264);
    let bytes = init_segment(&[&video]).unwrap();
    Init { id, bytes, video: Some(Arc::new(video)), audio: None }
}
