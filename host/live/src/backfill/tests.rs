//! A window of real segments, a queue, and a driver that takes packets.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use satcast_media::fuzz::RECORDS;
use satcast_media::segment::{Event, Segmenter};
use satcast_plugin_api::{
    Asset, AssetBody, Audience, Followed, Kind, NANOS_PER_MILLI, Packet, Playback, SegmentPosition,
};

use super::*;
use crate::queue::{Bounds, LEASED_BYTES_MAX};
use satcast_core::ids::{DestinationId, SessionId, UnixMillis};

const MS: i64 = NANOS_PER_MILLI;
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Bytes of a frame, unless a test sets more.
const FRAME_BYTES: usize = 40;
/// Wall time of the session's start.
const WALL_MS: i64 = 1_700_000_000_000;

fn unit(index: usize, number: i64, at_ms: i64, keyframe: bool, bytes: usize) -> Packet {
    let (codec, _) = RECORDS[index];
    let mut payload = vec![0xfc; bytes];
    payload[..8].copy_from_slice(&number.to_be_bytes());
    // Start of an Opus packet of 20 ms.
    payload[0] = 0xfc;
    Packet::media(codec, keyframe, at_ms * MS, at_ms * MS, payload.into())
}

fn record(index: usize) -> Packet {
    let (codec, record) = RECORDS[index];
    Packet::configuration(codec, Bytes::from_static(record))
}

/// Frames of 40 ms in GOPs of a second, and audio of 20 ms, from `from_ms` on. Each packet holds its time.
fn media(from_ms: i64, to_ms: i64, bytes: usize) -> Vec<Packet> {
    let frames = (from_ms..to_ms).step_by(40).map(|at| unit(0, at, at, at % 1000 == 0, bytes));
    let audio = (from_ms..to_ms).step_by(20).map(|at| unit(4, at, at, false, 10));
    let mut all: Vec<_> = frames.chain(audio).collect();
    all.sort_by_key(|packet| packet.dts_ns);
    all
}

/// A destination with a DVR window, as its driver creates it, and the queue of another one.
struct Rig {
    opening: Arc<Opening>,
    queue: Arc<Queue>,
    segmenter: Segmenter,
    init: String,
    folder: tempfile::TempDir,
    first_ms: Option<i64>,
}

impl Rig {
    fn new() -> Self {
        let opening = Opening::new(DestinationId(1), SessionId("s".into()), UnixMillis(WALL_MS));
        let queue = Arc::new(Queue::new(Arc::new(AtomicU64::new(0)), Bounds::USUAL));
        let mut segmenter = Segmenter::new(100);
        [record(0), record(4)].iter().for_each(|packet| segmenter.push(packet, WALL_MS));
        for packet in [record(0), record(4)] {
            assert!(queue.push(&Arc::new(Packet { source: 9, ..packet }), true, Duration::ZERO).is_none());
        }
        let (init, first_ms) = (String::new(), None);
        let folder = tempfile::tempdir().unwrap();
        Self { opening: Arc::new(opening), queue, segmenter, init, folder, first_ms }
    }

    /// Both destinations of the stream get these; the queue from its first keyframe on.
    fn publish(&mut self, packets: &[Packet]) {
        for packet in packets {
            let wall_ms = WALL_MS + packet.dts_ns / MS;
            self.segmenter.push(packet, wall_ms);
            let live = Packet { sequence: 1, source: 9, ..packet.clone() };
            assert!(self.queue.push(&Arc::new(live), true, Duration::ZERO).is_none());
        }
        self.show();
    }

    /// Only the window has these.
    fn before(&mut self, packets: &[Packet]) {
        packets.iter().for_each(|packet| self.segmenter.push(packet, WALL_MS + packet.dts_ns / MS));
        self.show();
    }

    /// As the driver does at the end.
    fn end(&mut self) {
        self.segmenter.finish();
        self.show();
    }

    /// Every second segment lies in a file.
    fn show(&mut self) {
        while let Some(event) = self.segmenter.poll_event() {
            match event {
                Event::Init(init) => {
                    self.init = format!("init-{}.mp4", init.id);
                    self.put(&self.init.clone(), AssetBody::Memory(init.bytes), None);
                }
                Event::Segment(segment) => {
                    let name = format!("{}.m4s", segment.sequence);
                    let body = if segment.sequence.is_multiple_of(2) {
                        std::fs::write(self.folder.path().join(&name), &segment.bytes).unwrap();
                        let (len, keep) = (segment.bytes.len() as u64, None);
                        AssetBody::File { path: name.clone().into(), offset: 0, len, keep }
                    } else {
                        AssetBody::Memory(segment.bytes)
                    };
                    let place = SegmentPosition {
                        number: segment.sequence,
                        offset_ns: segment.offset_ns,
                        start_ms: segment.program_date_time_ms,
                        init: self.init.clone(),
                    };
                    let first_ms = *self.first_ms.get_or_insert(place.start_ms);
                    self.put(&name, body, Some(place));
                    self.tell(first_ms);
                }
                _ => {}
            }
        }
    }

    fn tell(&self, first_ms: i64) {
        let entry = "index.m3u8".to_owned();
        let (window_ms, window_max_ms) = (60_000, 3_600_000);
        let facts =
            Playback { entry, preview: None, first_ms, window_ms, window_max_ms, fresh_ms: 0, ended: false };
        self.opening.assets().set_playback(facts, Duration::ZERO);
    }

    fn put(&self, name: &str, body: AssetBody, segment: Option<SegmentPosition>) {
        let followed = Followed { segment, ..Followed::default() };
        let (name, content_type, audience) = (name.to_owned(), "video/mp4".to_owned(), Audience::Both);
        let asset = Asset { name, content_type, max_age_secs: 1, audience, body, followed };
        self.opening.assets().publish(asset, self.folder.path()).unwrap();
    }

    fn backfill(&self) -> Arc<Backfill> {
        Arc::new(Backfill::new(self.queue.clone(), Waker::idle(), self.opening.clone(), 9))
    }

    /// Reads on a separate thread.
    fn start(&self) -> (Arc<Backfill>, std::thread::JoinHandle<()>) {
        let backfill = self.backfill();
        let shared = backfill.shared.clone();
        let reading = Reading::new(shared, backfill.window.clone(), backfill.source);
        (backfill, std::thread::spawn(move || reading.run()))
    }
}

/// Takes packets; waits if there are none.
fn take_some(backfill: &Backfill, all: &mut Vec<Delivery>) {
    let (wake, woken) = mpsc::channel();
    let waker = DriverWaker::calling(move || wake.send(()).unwrap_or_default());
    match backfill.recv(16, all, waker) {
        Recv::Ready => {}
        Recv::Empty => woken.recv_timeout(WAIT_MAX).expect("a wake-up"),
        Recv::Closed => panic!("closed after {} packets", all.len()),
    }
}

/// Takes packets until the media packet with this time, and releases each batch at once.
fn take_until(backfill: &Backfill, last_ms: i64) -> Vec<Delivery> {
    let mut all: Vec<Delivery> = Vec::new();
    let is_last = |all: &[Delivery]| {
        all.iter().any(|one| one.packet.kind() == Kind::Video && one.packet.dts_ns / MS == last_ms)
    };
    while !is_last(&all) {
        let from = all.len();
        take_some(backfill, &mut all);
        backfill.released(all[from..].iter().map(|one| one.packet.payload.len()).sum());
    }
    all
}

/// Times of media in milliseconds, in the order received.
fn times(all: &[Delivery], kind: Kind) -> Vec<i64> {
    let of_kind = all.iter().filter(|one| one.packet.kind() == kind && !one.packet.is_config());
    of_kind.map(|one| (one.packet.dts_ns + MS / 2) / MS).collect()
}

fn cuts(all: &[Delivery]) -> Vec<i64> {
    let cut = all.iter().filter(|one| one.discontinuity || one.packet.discontinuity);
    cut.map(|one| (one.packet.dts_ns + MS / 2) / MS).collect()
}

fn assert_all(all: &[Delivery], from_ms: i64, to_ms: i64) {
    assert_eq!(times(all, Kind::Video), (from_ms..to_ms).step_by(40).collect::<Vec<_>>());
    let audio = times(all, Kind::Audio);
    // The last audio packet may be after the last frame.
    let expected: Vec<i64> = (from_ms..to_ms).step_by(20).take(audio.len()).collect();
    assert!(audio == expected && audio.len() * 20 >= (to_ms - from_ms - 60) as usize, "{audio:?}");
}

#[test]
fn the_backfill_comes_first_and_joins_the_queue() {
    let mut rig = Rig::new();
    rig.before(&media(0, 9_000, FRAME_BYTES));
    // The queue begins in the middle of a segment, which is finished later.
    rig.publish(&media(9_000, 9_800, FRAME_BYTES));
    let (backfill, reading) = rig.start();
    rig.publish(&media(9_800, 13_000, FRAME_BYTES));
    let all = take_until(&backfill, 12_960);
    reading.join().unwrap();
    assert_all(&all, 0, 13_000);
    assert_eq!(cuts(&all), [0; 0]);
    let configs: Vec<_> = all.iter().filter(|one| one.packet.is_config()).collect();
    // The configurations twice: before the backfill and before the queue.
    let records: Vec<_> = configs.iter().map(|one| one.packet.payload.clone()).collect();
    let (video, audio) = (RECORDS[0].1, RECORDS[4].1);
    assert_eq!(records, [video, audio, video, audio].map(Bytes::from_static));
    let numbers: Vec<u64> = all.iter().map(|one| one.packet.sequence).collect();
    let live = all.iter().position(|one| one.packet.sequence == 1).unwrap();
    assert!(numbers[..live].iter().all(|number| *number == 0), "of before");
    assert!(backfill.shared.state.lock().leased == 0);
}

#[test]
fn a_missing_segment_is_only_a_gap() {
    let mut rig = Rig::new();
    rig.before(&media(0, 20_000, FRAME_BYTES));
    rig.publish(&media(20_000, 25_000, FRAME_BYTES));
    let assets = rig.opening.assets();
    let names: Vec<String> = assets.segments(0).into_iter().map(|(_, name)| name).collect();
    // One was removed, one cannot be read, one is truncated.
    assets.retract(&names[2]);
    let file = names.iter().find(|name| Path::new(name).with_extension("").to_str() == Some("106")).unwrap();
    std::fs::write(rig.folder.path().join(file), b"half").unwrap();
    let (backfill, reading) = rig.start();
    let all = take_until(&backfill, 24_960);
    reading.join().unwrap();
    let frames = times(&all, Kind::Video);
    assert!(frames.is_sorted_by(|one, next| one < next), "{frames:?}");
    assert_eq!(frames.len(), 625 - 2 * 50);
    assert_eq!(cuts(&all), [6_000, 14_000]);
}

#[test]
fn segments_outside_the_window_are_not_given() {
    let mut rig = Rig::new();
    rig.before(&media(0, 12_000, FRAME_BYTES));
    rig.tell(WALL_MS + 4_000);
    rig.first_ms = Some(WALL_MS + 4_000);
    rig.publish(&media(12_000, 16_000, FRAME_BYTES));
    let (backfill, reading) = rig.start();
    let all = take_until(&backfill, 15_960);
    reading.join().unwrap();
    assert_all(&all, 4_000, 16_000);
    assert_eq!(cuts(&all), [0; 0]);
}

#[test]
fn an_encoder_gap_in_the_window_is_kept() {
    let mut rig = Rig::new();
    rig.before(&media(0, 6_000, FRAME_BYTES));
    rig.segmenter.gap();
    rig.before(&media(11_000, 15_000, FRAME_BYTES));
    rig.publish(&media(15_000, 19_000, FRAME_BYTES));
    let (backfill, reading) = rig.start();
    let all = take_until(&backfill, 18_960);
    reading.join().unwrap();
    assert_eq!(cuts(&all), [11_000]);
    // What the segmenter had not finished is lost with the encoder.
    let frames = times(&all, Kind::Video);
    assert_eq!(frames.iter().filter(|at| **at >= 11_000).count(), 200);
}

#[test]
fn no_more_is_read_than_the_driver_takes() {
    const SEGMENT_BYTES_MAX: usize = 2 * 25 * 150_100;
    let mut rig = Rig::new();
    // Together far more than the driver may hold.
    rig.before(&media(0, 24_000, 150_000));
    rig.publish(&media(24_000, 27_000, FRAME_BYTES));
    let (backfill, reading) = rig.start();
    let leased = || backfill.shared.state.lock().leased;
    let mut held = Vec::new();
    while leased() < LEASED_BYTES_MAX {
        take_some(&backfill, &mut held);
    }
    // Before the limit, the driver got the rest of one segment.
    while let Recv::Ready = backfill.recv(64, &mut held, DriverWaker::calling(|| {})) {}
    assert!(leased() < LEASED_BYTES_MAX + SEGMENT_BYTES_MAX);
    assert!(!reading.is_finished() && backfill.shared.state.lock().packets.is_empty());
    // It gets more after it releases packets.
    backfill.released(leased());
    held.extend(take_until(&backfill, 26_960));
    reading.join().unwrap();
    assert_all(&held, 0, 27_000);
}

#[test]
fn a_driver_that_abandons_the_queue_ends_the_reading() {
    let mut rig = Rig::new();
    rig.before(&media(0, 20_000, 100_000));
    let (backfill, reading) = rig.start();
    backfill.abandoned();
    reading.join().unwrap();
    let mut out = Vec::new();
    assert!(matches!(backfill.recv(1, &mut out, DriverWaker::calling(|| {})), Recv::Closed));
    assert!(out.is_empty() && backfill.shared.state.lock().packets.is_empty());
    assert!(backfill.is_over() && !backfill.is_taken());
}

#[test]
fn a_window_that_ends_before_the_queue_leaves_a_gap() {
    let mut rig = Rig::new();
    rig.before(&media(0, 6_000, FRAME_BYTES));
    rig.publish(&media(6_000, 6_400, FRAME_BYTES));
    // The unfinished segment is part of the gap.
    rig.segmenter.gap();
    let openings = satcast_drivers::published::Openings::default();
    openings.end(&rig.opening, Duration::ZERO);
    let (backfill, reading) = rig.start();
    let all = take_until(&backfill, 6_360);
    reading.join().unwrap();
    let frames = times(&all, Kind::Video);
    assert!(frames.is_sorted_by(|one, next| one < next) && frames.ends_with(&[6_320, 6_360]), "{frames:?}");
    assert_eq!(cuts(&all), [6_000]);
}

#[test]
fn a_window_that_ends_with_the_session_gives_all() {
    let mut rig = Rig::new();
    rig.before(&media(0, 6_000, FRAME_BYTES));
    rig.publish(&media(6_000, 6_400, FRAME_BYTES));
    let (backfill, reading) = rig.start();
    rig.end();
    satcast_drivers::published::Openings::default().end(&rig.opening, Duration::ZERO);
    let all = take_until(&backfill, 6_360);
    reading.join().unwrap();
    assert_all(&all, 0, 6_400);
    assert_eq!(cuts(&all), [0; 0]);
}

#[test]
fn a_backfill_is_taken_when_the_driver_has_all_packets() {
    let mut rig = Rig::new();
    rig.before(&media(0, 6_000, FRAME_BYTES));
    rig.publish(&media(6_000, 8_000, FRAME_BYTES));
    rig.end();
    let backfill = rig.backfill();
    backfill.start();
    assert!(!backfill.is_taken() && !backfill.is_over(), "nothing was taken yet");
    assert_all(&take_until(&backfill, 7_960), 0, 8_000);
    assert!(backfill.is_taken() && backfill.is_over());
    let never = rig.backfill();
    never.give_up();
    assert!(!never.is_taken() && never.is_over());
}
