//! Drops of a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use satcast_plugin_api::Packet;
use satcast_plugin_api::host::{DriverWaker, MediaSource as _, Recv};

use super::group::Configs;
use super::queue::*;
use satcast_drivers::testing::{audio, audio_config, video, video_config};

struct Rig {
    queue: Queue,
    dropped: Arc<AtomicU64>,
}

impl Rig {
    fn new() -> Self {
        let dropped = Arc::new(AtomicU64::new(0));
        Self { queue: Queue::new(dropped.clone(), Bounds::USUAL), dropped }
    }

    fn push(&self, packet: &Arc<Packet>) {
        self.push_at(packet, Duration::ZERO);
    }

    fn push_at(&self, packet: &Arc<Packet>, now: Duration) {
        assert!(self.queue.push(packet, true, now).is_none(), "no driver waits");
    }

    fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn drain(&self) -> Vec<(u64, bool, bool)> {
        self.queue.drain()
    }
}

#[test]
fn begins_at_a_keyframe_with_the_configurations_first() {
    let rig = Rig::new();
    rig.push(&video_config(0, b"v"));
    rig.push(&audio_config(1, b"a"));
    rig.push(&audio(2, 0));
    rig.push(&video(3, 0, false));
    assert_eq!(rig.queue.level().0, 0);
    rig.push(&video(4, 33, true));
    rig.push(&audio(5, 40));
    let seen = rig.drain();
    assert_eq!(seen, [(0, true, false), (1, true, false), (4, false, false), (5, false, false)]);
    assert_eq!(rig.dropped(), 0, "packets before the start are no loss");
}

#[test]
fn audio_without_video_does_not_wait() {
    let rig = Rig::new();
    rig.queue.push(&audio_config(0, b"a"), false, Duration::ZERO);
    rig.queue.push(&audio(1, 0), false, Duration::ZERO);
    assert_eq!(rig.drain(), [(0, true, false), (1, false, false)]);
}

#[test]
fn an_operators_limits_hold() {
    let packet = video(9, 0, true);
    let bytes = 3 * packet.payload.len();
    let usual = Bounds::USUAL;
    for bounds in [
        Bounds { packets: 3, ..usual },
        Bounds { bytes, ..usual },
        Bounds { wait: Duration::from_millis(2), ..usual },
    ] {
        let dropped = Arc::new(AtomicU64::new(0));
        let queue = Queue::new(dropped.clone(), bounds);
        for sequence in 0..4 {
            assert_eq!(dropped.load(Ordering::Relaxed), 0, "{bounds:?}");
            queue.push(&video(sequence, 0, true), true, Duration::from_millis(sequence));
        }
        assert_eq!(dropped.load(Ordering::Relaxed), 2, "{bounds:?}: all before the newest keyframe");
    }
}

#[test]
fn overflow_drops_to_the_newest_queued_keyframe_and_repeats_the_configuration() {
    let rig = Rig::new();
    rig.push(&video_config(0, b"v"));
    let at = Duration::from_millis;
    rig.push(&video(1, 0, true));
    rig.push_at(&video(2, 2_000, true), at(2_000));
    rig.push_at(&video_config(3, b"changed"), at(3_000));
    rig.push_at(&video(4, 4_000, true), at(4_000));
    rig.push_at(&video(5, 4_500, false), Bounds::USUAL.wait);
    assert_eq!(rig.dropped(), 0);
    rig.push_at(&video(6, 5_001, false), Bounds::USUAL.wait + at(1));
    let seen = rig.drain();
    assert_eq!(seen, [(3, true, false), (4, false, true), (5, false, false), (6, false, false)]);
    assert_eq!(rig.dropped(), 2);
}

#[test]
fn overflow_without_a_queued_keyframe_drops_all_and_waits_for_the_next() {
    let rig = Rig::new();
    rig.push(&video_config(0, b"v"));
    rig.push(&video(1, 0, true));
    // The configuration counts as well.
    for sequence in 2..Bounds::USUAL.packets as u64 {
        rig.push(&video(sequence, 1, false));
    }
    assert_eq!(rig.dropped(), 0);
    rig.push(&video(50_000, 1, false));
    assert_eq!(rig.queue.level(), (0, 0));
    rig.push(&audio(50_001, 1));
    rig.push(&video_config(50_002, b"new"));
    assert_eq!(rig.dropped(), Bounds::USUAL.packets as u64 + 1);
    rig.push(&video(50_003, 2, true));
    assert_eq!(rig.drain(), [(50_002, true, false), (50_003, false, true)]);
}

#[test]
fn a_minute_of_media_in_one_burst_is_no_overflow() {
    let rig = Rig::new();
    rig.push(&video_config(0, b"v"));
    for n in 0..60 * 77 {
        rig.push(&video(n + 1, n as i64 * 13, n % 154 == 0));
    }
    assert_eq!((rig.dropped(), rig.queue.level().0), (0, 60 * 77 + 1));
    // A destination that does not take it in time is still slow.
    rig.push_at(&video(9_000, 60_000, true), Bounds::USUAL.wait + Duration::from_millis(1));
    assert!(rig.dropped() > 4_000);
}

#[test]
fn the_byte_limit_applies() {
    let rig = Rig::new();
    let mut large = (*video(1, 0, true)).clone();
    large.payload = vec![0; Bounds::USUAL.bytes].into();
    rig.push(&Arc::new(large));
    rig.push(&video(2, 1, false));
    assert_eq!(rig.queue.level(), (0, 0));
    assert_eq!(rig.dropped(), 2);
}

#[test]
fn audio_alone_loses_its_older_half() {
    let rig = Rig::new();
    for sequence in 0..=Bounds::USUAL.packets as u64 {
        rig.queue.push(&audio(sequence, 0), false, Duration::ZERO);
    }
    assert_eq!(rig.dropped(), Bounds::USUAL.packets as u64 / 2);
    let seen = rig.drain();
    assert_eq!(seen[0], (Bounds::USUAL.packets as u64 / 2, false, true));
    assert_eq!(seen.last(), Some(&(Bounds::USUAL.packets as u64, false, false)));
}

#[test]
fn the_first_group_may_be_longer_than_the_limits() {
    const GROUP: u64 = 2 * Bounds::USUAL.packets as u64;
    let rig = Rig::new();
    let mut configs = Configs::default();
    configs.replace(&video_config(0, b"v"));
    let group: Vec<_> = (1..=GROUP).map(|n| video(n, n as i64 * 5, n == 1)).collect();
    rig.queue.begin(&configs, group.iter(), Duration::ZERO);
    rig.push(&video(GROUP + 1, 10_005, false));
    assert_eq!(rig.queue.level().0, GROUP as usize + 2);
    assert_eq!(rig.dropped(), 0);
    // The allowance is not permanent.
    for n in 0..Bounds::USUAL.packets as u64 {
        rig.push(&video(2 * GROUP + n, 10_010, false));
    }
    assert!(rig.dropped() > 0);
}

#[test]
fn an_emptied_queue_gives_the_memory_of_its_first_gop_back() {
    let rig = Rig::new();
    let mut configs = Configs::default();
    configs.replace(&video_config(0, b"v"));
    let group: Vec<_> = (1..=300).map(|n| video(n, n as i64 * 5, n == 1)).collect();
    rig.queue.begin(&configs, group.iter(), Duration::ZERO);
    assert!(rig.queue.reserved() > 300);
    let mut taken = Vec::new();
    for _ in 0..2 {
        assert_eq!(rig.queue.recv(200, &mut taken, DriverWaker::calling(|| ())), Recv::Ready);
    }
    assert_eq!((taken.len(), rig.queue.level()), (301, (0, 0)));
    assert!(rig.queue.reserved() < 2 * PACKETS_KEPT, "{}", rig.queue.reserved());
    rig.push(&video(301, 1_505, false));
    assert_eq!(rig.queue.level().0, 1);
}

#[test]
fn a_closed_queue_takes_nothing_more() {
    let rig = Rig::new();
    rig.push(&video(1, 0, true));
    rig.queue.close();
    rig.push(&video(2, 1, true));
    assert_eq!(rig.queue.level().0, 1);
    rig.queue.abandoned();
    assert_eq!(rig.queue.level(), (0, 0));
}

#[test]
fn a_flood_of_configurations_is_bounded_and_the_newest_is_not_lost() {
    static RECORDS: [&[u8]; 2] = [b"one", b"two"];
    let rig = Rig::new();
    rig.push(&video_config(0, b"first"));
    rig.push(&video(1, 0, true));
    for n in 2..10 * Bounds::USUAL.packets as u64 {
        rig.push(&video_config(n, RECORDS[n as usize % 2]));
        assert!(rig.queue.level().0 <= Bounds::USUAL.packets);
    }
    rig.push(&video_config(900_000, b"last"));
    rig.push(&video(900_001, 1, true));
    let seen = rig.drain();
    let last: Vec<_> = seen.iter().rev().take(2).map(|(sequence, ..)| *sequence).collect();
    assert_eq!(last, [900_001, 900_000]);
}
