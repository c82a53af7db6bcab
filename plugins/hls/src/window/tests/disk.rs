//! A disk that is slow, full or hangs, and a host that refuses: the live edge goes on.

use std::time::Duration;

use super::super::health::{
    COUNTER_FAILED, COUNTER_LOST, DISK_TOO_SLOW, EVENT_DEGRADED, EVENT_RECOVERED, QUOTA_TAKEN,
};
use super::*;

#[test]
fn a_slow_disk_delays_the_list_for_a_bounded_time() {
    let mut opening = Opening::with(3600);
    opening.disk = Disk::Hangs;
    opening.segment();
    opening.write();
    opening.pass(Duration::from_millis(499));
    assert!(!opening.window.is_playable());
    opening.pass(Duration::from_millis(1));
    assert_eq!(opening.listed(), [0]);
    assert_eq!(opening.host.events(), [""; 0]);
}

#[test]
fn a_broken_disk_shortens_the_window_and_the_live_edge_goes_on() {
    let mut opening = Opening::with(3600);
    opening.run(50);
    opening.disk = Disk::Refuses;
    for number in 50..150 {
        opening.segment();
        opening.write();
        assert_eq!(opening.listed().last(), Some(&number), "listed at once from memory");
        opening.pass(Duration::from_secs(2));
    }
    // The newest six, and thirty more without a file; nothing before the hole.
    assert_eq!(opening.listed(), (114..150).collect::<Vec<_>>());
    assert_eq!(opening.host.events(), [EVENT_DEGRADED], "reported once");
    assert_eq!(opening.host.events.borrow()[0].1["reason"], "broken");
    assert_eq!(opening.host.count(COUNTER_LOST), 64);
    let tries = opening.host.count(COUNTER_FAILED);
    assert!((8..=14).contains(&tries), "{tries} tries in 200 s with pauses up to 30 s");
    opening.disk = Disk::Writes;
    opening.pass(Duration::from_secs(30));
    assert_eq!(opening.host.events(), [EVENT_DEGRADED, EVENT_RECOVERED]);
    opening.run(100);
    assert_eq!(opening.listed(), (114..250).collect::<Vec<_>>(), "the window grows again");
    assert_eq!(opening.host.segment_memory(), 1000);
}

#[test]
fn one_destination_stays_within_its_disk_quota() {
    let mut opening = Opening::new(3600, Limits { window_bytes_max: 20_500, ..Limits::default() });
    opening.run(20);
    assert_eq!((opening.listed().len(), opening.host.events().len()), (20, 0));
    // A thousand bytes each.
    run_within(&mut opening, 100, 20, 20);
    assert_eq!(opening.host.events(), [EVENT_DEGRADED], "reported once");
    assert_eq!(opening.host.events.borrow()[0].1["reason"], QUOTA_TAKEN);
    // The live edge stays, however little is left.
    let mut opening = Opening::new(3600, Limits { window_bytes_max: 1, ..Limits::default() });
    opening.run(30);
    assert_eq!(opening.listed().len(), 6);
}

/// Runs on and expects that every list has from `least` to `most` segments.
fn run_within(opening: &mut Opening, count: u64, least: usize, most: usize) {
    for _ in 0..count {
        opening.run(1);
        let listed = opening.listed();
        assert!((least..=most).contains(&listed.len()), "{} of {least} to {most}", listed.len());
        assert_eq!(
            (listed.last(), listed[0]),
            (Some(&(opening.made - 1)), opening.made - listed.len() as u64)
        );
    }
}

#[test]
fn a_full_disk_limits_the_window() {
    let mut opening = Opening::with(1200);
    opening.disk = Disk::Holds(200);
    opening.run(200);
    assert_eq!((opening.listed().len(), opening.host.count(COUNTER_FAILED)), (200, 0));
    // The missing, waiting and spare bytes are freed, and used again.
    run_within(&mut opening, 600, 190, 201);
    assert_eq!(opening.host.events(), [EVENT_DEGRADED], "reported once");
    assert_eq!(opening.host.events.borrow()[0].1["reason"], "no space");
    let failed = opening.host.count(COUNTER_FAILED);
    assert!((60..=75).contains(&failed), "{failed} failed writes");
    assert_eq!(opening.host.count(COUNTER_LOST), 800 - opening.listed().len() as u64);
    // Somebody takes half of the disk, and gives it back.
    opening.disk = Disk::Holds(100);
    opening.run(60);
    run_within(&mut opening, 200, 90, 101);
    opening.disk = Disk::Writes;
    opening.run(130);
    assert_eq!(opening.host.events(), [EVENT_DEGRADED]);
    opening.run(21);
    assert_eq!(opening.host.events(), [EVENT_DEGRADED, EVENT_RECOVERED]);
    run_within(&mut opening, 700, 240, 600);
    assert_eq!(opening.listed().len(), 600);
}

#[test]
fn space_that_is_being_freed_is_not_freed_twice() {
    let mut opening = Opening::with(3600);
    opening.run(100);
    opening.segment();
    // Missing, waiting and eight spare segments are ten segments.
    let going = [10_000; 5].map(|bytes| (bytes, 101)).into_iter().chain([(9000, 100), (0, 90)]);
    for (going_bytes, listed) in going {
        // However often it failed before, the next try is not far.
        let (sequence, _) = opening.window.next_write(opening.now).expect("a try after 4 s");
        let full = WriteFailed { going_bytes, ..failed("no space", Some(1000)) };
        opening.window.written(sequence, Err(full), opening.now, &opening.host);
        assert_eq!(opening.listed().len(), listed);
        opening.now += Duration::from_secs(4);
    }
}

/// Files in their grace time go first.
#[test]
fn a_full_disk_costs_the_grace_time_before_the_window() {
    let mut opening = Opening::with(400);
    opening.disk = Disk::Holds(211);
    opening.run(200);
    run_within(&mut opening, 300, 200, 200);
    assert!(opening.host.count(COUNTER_FAILED) > 0);
    assert_eq!(opening.host.count(COUNTER_LOST), 0);
}

/// The preview, the live edge and the segments in memory go on where the disk holds next to nothing.
#[test]
fn a_disk_without_space_costs_only_the_rewind() {
    let mut opening = Opening::with(3600);
    opening.run(100);
    opening.disk = Disk::Holds(0);
    opening.run(200);
    run_within(&mut opening, 100, 36, 36);
    assert_eq!(opening.files_left(), 0);
    assert_eq!(opening.host.text(PREVIEW_MEDIA).matches(".m4s\n").count(), 10);
}

#[test]
fn the_first_pause_is_short_and_doubles() {
    let mut opening = Opening::with(3600);
    let mut pauses = Vec::new();
    opening.disk = Disk::Refuses;
    opening.segment();
    for _ in 0..8 {
        opening.write();
        let wake = opening.window.next_wake().unwrap();
        pauses.push((wake - opening.now).as_secs());
        assert_eq!(opening.window.next_write(wake - Duration::from_millis(1)), None);
        opening.now = wake;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
}

#[test]
fn a_disk_that_hangs_is_reported() {
    let mut opening = Opening::with(3600);
    opening.disk = Disk::Hangs;
    opening.run(100);
    assert_eq!(opening.listed(), (64..100).collect::<Vec<_>>());
    assert_eq!(opening.host.events(), [EVENT_DEGRADED]);
    assert_eq!(opening.host.events.borrow()[0].1["reason"], DISK_TOO_SLOW);
    // The write that comes back at last is of a segment that has left.
    write_segment(opening.folder.path(), FIRST, b"late").unwrap();
    let late = SegmentFile::new(opening.folder.clone(), FIRST, 4);
    opening.window.written(FIRST, Ok(late), opening.now, &opening.host);
    opening.disk = Disk::Writes;
    opening.write();
    assert_eq!(opening.host.events(), [EVENT_DEGRADED, EVENT_RECOVERED]);
    assert_eq!(opening.listed(), (64..100).collect::<Vec<_>>());
}

#[test]
fn unwritten_bytes_have_a_limit_too() {
    let limits = Limits { unwritten_bytes_max: 4000, ..Limits::default() };
    let mut opening = Opening::new(3600, limits);
    opening.disk = Disk::Refuses;
    opening.run(20);
    assert_eq!(opening.listed(), (10..20).collect::<Vec<_>>());
}

#[test]
fn three_targets_stay_listed_whatever_the_disk_does() {
    let limits = Limits { unwritten_bytes_max: 0, edge_segments: 1, ..Limits::default() };
    let mut opening = Opening::new(3600, limits);
    opening.disk = Disk::Refuses;
    opening.run(20);
    assert_eq!(opening.listed(), [17, 18, 19]);
}

#[test]
fn memory_has_a_limit_whatever_has_a_grace_time() {
    let limits = Limits { memory_bytes_max: 20_000, ..Limits::default() };
    for dvr_seconds in [0, 3600] {
        let mut opening = Opening::new(dvr_seconds, limits);
        opening.disk = Disk::Refuses;
        for _ in 0..100 {
            opening.segment();
            opening.write();
            assert!(opening.host.segment_memory() <= 20_000, "{}", opening.host.segment_memory());
            opening.pass(Duration::from_secs(2));
        }
        assert_eq!(opening.published(), (80..100).collect::<Vec<_>>());
        let shown = opening.host.text(PREVIEW_MEDIA).matches(".m4s\n").count();
        assert!((4..=6).contains(&shown), "{shown} groups of the preview");
    }
    // Not even the live edge fits: it stays, as there is nothing else to show.
    let mut opening = Opening::new(0, Limits { memory_bytes_max: 0, ..limits });
    opening.run(30);
    assert_eq!(opening.published(), (24..30).collect::<Vec<_>>());
}

#[test]
fn a_refused_segment_costs_itself_and_a_discontinuity() {
    let mut opening = Opening::with(3600);
    opening.run(5);
    opening.host.refuses.set(Some(".m4s"));
    opening.run(3);
    assert_eq!(opening.host.count(COUNTER_REFUSED), 3);
    opening.host.refuses.set(None);
    opening.run(5);
    assert_eq!(opening.listed(), (0..10).collect::<Vec<_>>(), "numbers have no hole");
    let text = opening.host.text(MEDIA);
    let sixth = format!("#EXT-X-DISCONTINUITY\n#EXT-X-MAP:URI=\"i{FIRST}-0.mp4\"\n#EXT-X-PROGRAM-DATE-TIME:");
    assert_eq!(text.matches("#EXT-X-DISCONTINUITY\n").count(), 1, "{text}");
    assert!(text.contains(&sixth), "{text}");
}

#[test]
fn a_refused_init_segment_is_offered_again() {
    let mut opening = Opening::with(3600);
    opening.run(2);
    opening.host.refuses.set(Some(".mp4"));
    opening.change();
    opening.run(2);
    assert_eq!(opening.listed(), [0, 1]);
    opening.host.refuses.set(None);
    opening.run(2);
    assert_eq!(opening.listed(), [0, 1, 2, 3]);
    // Configurations that never got a segment do not pile up.
    opening.host.refuses.set(Some(".m4s"));
    for _ in 0..50 {
        opening.change();
        opening.segment();
    }
    let inits = opening.host.names().iter().filter(|name| name.ends_with(".mp4")).count();
    assert_eq!(inits, 3);
}

#[test]
fn a_segment_that_no_playlist_can_list_is_dropped() {
    let mut opening = Opening::with(3600);
    opening.run(1);
    for duration_ns in [0, -5, 3 * SECOND_NS, i64::MAX] {
        let segment = Segment {
            sequence: 0,
            init_id: 0,
            duration_ns,
            independent: true,
            discontinuity: false,
            program_date_time_ms: 0,
            offset_ns: 0,
            video_samples: 0,
            bytes: Bytes::from_static(b"x"),
        };
        opening.push(segment);
    }
    opening.run(1);
    assert_eq!((opening.listed(), opening.host.count(COUNTER_REFUSED)), (vec![0, 1], 4));
}

#[test]
fn refused_files_stay_in_memory_within_its_limit() {
    let mut opening = Opening::with(3600);
    opening.host.refuses_files.set(true);
    opening.run(60);
    assert_eq!(opening.listed(), (24..60).collect::<Vec<_>>());
    assert_eq!(opening.host.events(), [EVENT_DEGRADED]);
}

#[test]
fn frequent_configuration_changes_stay_within_the_asset_limit() {
    let mut opening = Opening::with(3600);
    (opening.segment_bytes, opening.segment_ms) = (8, 33);
    opening.host.checks.set(false);
    for round in 0..3000 {
        opening.change();
        opening.segment();
        opening.write();
        opening.now += Duration::from_millis(33);
        if round % 300 == 0 {
            opening.host.check();
        }
        assert!(opening.host.len() <= ASSETS_MAX + 8, "{}", opening.host.len());
    }
    assert_eq!(opening.host.count(COUNTER_REFUSED), 0);
    opening.host.check();
    assert!(opening.host.len() > ASSETS_MAX - 8, "the limit was reached");
    assert!(opening.listed().len() > 2000, "{}", opening.listed().len());
}

#[test]
fn a_burst_does_not_wait_for_the_disk() {
    let mut opening = Opening::with(3600);
    for _ in 0..20 {
        opening.segment();
    }
    assert_eq!(opening.listed(), (0..14).collect::<Vec<_>>(), "only the live edge waits");
}
