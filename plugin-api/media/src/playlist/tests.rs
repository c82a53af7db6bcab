//! Playlists as text: window, tags, rounding, limits.

use bytes::Bytes;

use super::*;
use crate::segment::Segment;

const SECOND: i64 = 1_000_000_000;
const WALL_MS: i64 = 1_763_660_700_000;

fn entry(sequence: u64, duration_ns: i64) -> Entry<'static> {
    Entry {
        sequence,
        duration_ns,
        program_date_time_ms: WALL_MS + sequence as i64 * 2000,
        discontinuity: false,
        independent: true,
        init: "i0.mp4",
        name: "s.m4s",
    }
}

fn segment(sequence: u64, duration_ns: i64, discontinuity: bool) -> Segment {
    Segment {
        sequence,
        init_id: 0,
        duration_ns,
        independent: true,
        discontinuity,
        program_date_time_ms: WALL_MS,
        offset_ns: 0,
        video_samples: 60,
        bytes: Bytes::from_static(&[0; 1000]),
    }
}

#[test]
fn a_playlist_has_all_its_lines() {
    let mut playlist = MediaPlaylist::new(3, 60);
    assert_eq!((playlist.render(), playlist.first_sequence()), (None, None));
    playlist.push(entry(7, 2_002_000_000)).expect("valid");
    playlist.push(Entry { discontinuity: true, init: "i1.mp4", ..entry(8, 2 * SECOND) }).expect("valid");
    playlist.end();
    let expected = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:3\n#EXT-X-MEDIA-SEQUENCE:7\n\
        #EXT-X-DISCONTINUITY-SEQUENCE:0\n#EXT-X-INDEPENDENT-SEGMENTS\n#EXT-X-MAP:URI=\"i0.mp4\"\n\
        #EXT-X-PROGRAM-DATE-TIME:2025-11-20T17:45:14.000Z\n#EXTINF:2.00200,\ns.m4s\n\
        #EXT-X-DISCONTINUITY\n#EXT-X-MAP:URI=\"i1.mp4\"\n\
        #EXT-X-PROGRAM-DATE-TIME:2025-11-20T17:45:16.000Z\n#EXTINF:2.00000,\ns.m4s\n#EXT-X-ENDLIST\n";
    assert_eq!(playlist.render().as_deref(), Some(expected));
    assert_eq!(playlist.push(entry(9, SECOND)), Err(PlaylistError::Ended));
    assert_eq!(playlist.version(), 3);
}

#[test]
fn the_window_is_never_exceeded_and_keeps_the_map() {
    let mut playlist = MediaPlaylist::new(2, WINDOW_SECONDS_MAX * 2);
    let mut removed = 0;
    for sequence in 0..2000 {
        let discontinuity = sequence == 100;
        removed += playlist.push(Entry { discontinuity, ..entry(sequence, 2 * SECOND) }).expect("valid");
        assert!(playlist.duration_ns() <= i64::from(WINDOW_SECONDS_MAX) * SECOND);
        let text = playlist.render().expect("not empty");
        assert_eq!(text.matches("#EXTINF").count(), playlist.len());
        let head = text.split("#EXTINF").next().expect("head");
        assert_eq!(head.matches("#EXT-X-MAP:URI=\"i0.mp4\"").count(), 1, "{head}");
        let first = playlist.first_sequence().expect("not empty");
        assert!(head.contains(&format!("#EXT-X-MEDIA-SEQUENCE:{first}\n")), "{head}");
        // A discontinuity is counted once its segment is removed.
        let counted = u64::from(first > 100);
        assert!(head.contains(&format!("#EXT-X-DISCONTINUITY-SEQUENCE:{counted}\n")), "{head}");
        assert_eq!(text.contains("#EXT-X-DISCONTINUITY\n"), (first..=sequence).contains(&100));
    }
    assert_eq!((removed, playlist.len(), playlist.last_sequence()), (200, 1800, Some(1999)));
}

#[test]
fn the_window_is_never_under_three_targets_and_entries_are_bounded() {
    for (target, duration_ns, listed) in [(10, 10 * SECOND, 3), (3, 2 * SECOND, 5), (3, 3_400_000_000, 3)] {
        let mut playlist = MediaPlaylist::new(target, 1);
        for sequence in 0..20 {
            let removed = playlist.push(entry(sequence, duration_ns)).expect("valid");
            let kept = playlist.duration_ns();
            assert!(
                removed == 0 || kept >= i64::from(3 * target) * SECOND,
                "{kept} ns are left of {target} s"
            );
        }
        assert_eq!(playlist.len(), listed, "targets of {target} s");
    }
    // The longest target: three targets and one more segment fit into an hour.
    let mut playlist = MediaPlaylist::new(u32::MAX, 0);
    for sequence in 0..20 {
        playlist.push(entry(sequence, i64::from(playlist.target_seconds()) * SECOND - 1)).expect("valid");
        assert!(playlist.duration_ns() <= i64::from(WINDOW_SECONDS_MAX) * SECOND);
    }
    assert_eq!(playlist.len(), 4);
    let mut playlist = MediaPlaylist::new(2, WINDOW_SECONDS_MAX);
    for sequence in 0..ENTRIES_MAX as u64 + 10 {
        playlist.push(entry(sequence, SECOND / 10)).expect("valid");
    }
    assert_eq!((playlist.len(), playlist.first_sequence()), (ENTRIES_MAX, Some(10)));
}

#[test]
fn a_raised_target_keeps_what_is_listed_and_its_window() {
    let mut playlist = MediaPlaylist::new(2, 6);
    let mut preview = PreviewPlaylist::new(2);
    for sequence in 0..9 {
        playlist.push(entry(sequence, 2 * SECOND)).expect("valid");
        preview.push(&segment(sequence, 2 * SECOND, false), "i0.mp4").expect("valid");
    }
    assert_eq!(playlist.len(), 3);
    let version = playlist.version();
    playlist.raise_target(2);
    playlist.raise_target(1);
    assert_eq!((playlist.version(), playlist.target_seconds()), (version, 2));
    playlist.raise_target(10);
    preview.raise_target(10);
    assert_eq!((playlist.version(), playlist.target_seconds()), (version + 1, 10));
    assert!(playlist.render().expect("not empty").contains("#EXT-X-TARGETDURATION:10\n"));
    assert_eq!(preview.playlist().target_seconds(), 31);
    for sequence in 9..60 {
        let duration_ns = if sequence % 2 == 0 { 10_400_000_000 } else { 2 * SECOND };
        let removed = playlist.push(entry(sequence, duration_ns)).expect("rounds to 10");
        assert!(removed == 0 || playlist.duration_ns() >= 30 * SECOND, "{}", playlist.duration_ns());
        preview.push(&segment(sequence, duration_ns, false), "i0.mp4").expect("up to 31 s");
        assert!(playlist.len() <= 14 && preview.playlist().duration_ns() <= 124 * SECOND);
    }
    // A longer window stays if it has three targets.
    let mut long = MediaPlaylist::new(2, 60);
    long.raise_target(10);
    (0..99).for_each(|sequence| assert!(long.push(entry(sequence, 2 * SECOND)).is_ok()));
    assert_eq!(long.len(), 30);
}

#[test]
fn a_changed_window_never_restores_removed_segments() {
    let mut playlist = MediaPlaylist::new(2, 60);
    let push = |playlist: &mut MediaPlaylist, sequences: std::ops::Range<u64>| {
        for sequence in sequences {
            playlist.push(entry(sequence, 2 * SECOND)).expect("valid");
        }
    };
    push(&mut playlist, 0..40);
    let version = playlist.version();
    assert_eq!((playlist.set_window(60), playlist.version()), (0, version));
    assert_eq!((playlist.set_window(20), playlist.version()), (20, version + 1));
    assert_eq!((playlist.first_sequence(), playlist.len()), (Some(30), 10));
    let text = playlist.render().expect("not empty");
    assert!(text.contains("#EXT-X-MEDIA-SEQUENCE:30\n") && text.contains("#EXT-X-MAP:"), "{text}");
    assert_eq!((playlist.set_window(0), playlist.len()), (7, 3), "three targets");
    assert_eq!((playlist.set_window(20), playlist.len()), (0, 3));
    push(&mut playlist, 40..99);
    assert_eq!(playlist.len(), 10);
    assert_eq!(playlist.set_window(WINDOW_SECONDS_MAX * 2), 0);
    push(&mut playlist, 99..2100);
    assert_eq!(playlist.len(), 1800);
}

#[test]
fn independent_segments_tag_stays_off_after_a_dependent_segment() {
    let mut playlist = MediaPlaylist::new(2, 6);
    playlist.push(entry(1, 2 * SECOND)).expect("valid");
    assert!(playlist.is_independent());
    playlist.push(Entry { independent: false, ..entry(2, 2 * SECOND) }).expect("valid");
    for sequence in 3..20 {
        playlist.push(entry(sequence, 2 * SECOND)).expect("valid");
        assert!(!playlist.render().expect("not empty").contains("INDEPENDENT"));
    }
}

#[test]
fn entries_that_break_a_rule_are_refused() {
    let mut playlist = MediaPlaylist::new(2, 60);
    playlist.push(entry(5, 2_499_999_999)).expect("rounds to 2");
    let version = playlist.version();
    let too_long = |duration_ns| Err(PlaylistError::Duration { duration_ns, target_seconds: 2 });
    for duration_ns in [2_500_000_000, 0, -1, i64::MAX, i64::MIN] {
        assert_eq!(playlist.push(entry(6, duration_ns)), too_long(duration_ns));
    }
    for given in [5, 7, 0] {
        assert_eq!(playlist.push(entry(given, SECOND)), Err(PlaylistError::Sequence { last: 5, given }));
    }
    let long = "a".repeat(NAME_BYTES_MAX + 1);
    for name in ["", "a b", "a\nb", "a\"b", "?apiKey=x", &long] {
        assert_eq!(playlist.push(Entry { name, ..entry(6, SECOND) }), Err(PlaylistError::Name), "{name:?}");
        assert_eq!(playlist.push(Entry { init: name, ..entry(6, SECOND) }), Err(PlaylistError::Name));
    }
    assert_eq!((playlist.version(), playlist.len()), (version, 1));
    // 2.49999 and not 2.50000: readers must not round it up.
    assert!(playlist.render().expect("not empty").contains("#EXTINF:2.49999,"));
}

#[test]
fn segments_are_removed_from_the_front_and_three_targets_stay() {
    let mut playlist = MediaPlaylist::new(2, 60);
    for sequence in 0..9 {
        playlist.push(entry(sequence, 2 * SECOND)).expect("valid");
    }
    assert_eq!((playlist.remove_before(2), playlist.first_sequence()), (2, Some(2)));
    assert_eq!((playlist.remove_before(99), playlist.first_sequence()), (4, Some(6)));
    let version = playlist.version();
    assert_eq!((playlist.remove_before(99), playlist.version()), (0, version));
    // Lost segments cannot stay.
    assert_eq!((playlist.lose_before(7), playlist.first_sequence()), (1, Some(7)));
    assert_eq!((playlist.lose_before(99), playlist.first_sequence()), (1, Some(8)));
    assert_eq!(playlist.duration_ns(), 2 * SECOND);
}

#[test]
fn the_discontinuity_count_continues_from_another_playlist() {
    let mut playlist = MediaPlaylist::new(2, 6).with_discontinuity_sequence(7);
    for sequence in 0..5 {
        playlist.push(Entry { discontinuity: sequence == 0, ..entry(sequence, 2 * SECOND) }).expect("valid");
        let text = playlist.render().expect("not empty");
        let counted = if sequence < 3 { 7 } else { 8 };
        assert!(text.contains(&format!("#EXT-X-DISCONTINUITY-SEQUENCE:{counted}\n")), "{text}");
        assert_eq!(text.contains("#EXT-X-DISCONTINUITY\n"), sequence < 3, "{text}");
    }
    let mut preview = PreviewPlaylist::new(2).with_discontinuity_sequence(7);
    preview.push(&segment(0, 2 * SECOND, true), "i0.mp4").expect("valid");
    preview.end().expect("valid");
    let text = preview.playlist().render().expect("not empty");
    assert!(text.contains("DISCONTINUITY-SEQUENCE:7\n") && text.contains("#EXT-X-DISCONTINUITY\n"), "{text}");
}

#[test]
fn dates_follow_the_calendar() {
    let table = [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_400_123, "2000-02-29T00:00:00.123Z"),
        (951_868_799_999, "2000-02-29T23:59:59.999Z"),
        (1_709_164_800_000, "2024-02-29T00:00:00.000Z"),
        (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        (i64::MIN, "1970-01-01T00:00:00.000Z"),
        (i64::MAX, "9999-12-31T23:59:59.999Z"),
    ];
    for (millis, expected) in table {
        assert_eq!(program_date_time(millis), expected);
    }
}

#[test]
fn preview_groups_three_segments_and_ends_at_discontinuities() {
    let mut preview = PreviewPlaylist::new(2);
    let mut groups = Vec::new();
    for sequence in 10..18 {
        groups.extend(
            preview.push(&segment(sequence, 2_400_000_000, sequence == 14), "i0.mp4").expect("valid"),
        );
    }
    groups.extend(preview.end().expect("valid"));
    let listed: Vec<(u64, usize)> = groups.iter().map(|group| (group.first, group.count)).collect();
    assert_eq!(listed, [(10, 3), (13, 1), (14, 3), (17, 1)]);
    let text = preview.playlist().render().expect("not empty");
    assert!(text.contains("#EXT-X-TARGETDURATION:7\n#EXT-X-MEDIA-SEQUENCE:10\n"), "{text}");
    assert!(
        text.contains("#EXTINF:7.20000,\np10-3.m4s\n") && text.contains("#EXT-X-DISCONTINUITY\n"),
        "{text}"
    );
    assert!(text.ends_with("p17-1.m4s\n#EXT-X-ENDLIST\n"), "{text}");
    let mut long = PreviewPlaylist::new(2);
    for sequence in 0..90 {
        long.push(&segment(sequence, 2 * SECOND, false), "i0.mp4").expect("valid");
    }
    assert!(long.playlist().duration_ns() <= i64::from(PREVIEW_WINDOW_SECONDS) * SECOND);
    assert_eq!((long.playlist().len(), long.playlist().last_sequence()), (10, Some(29)));
    assert_eq!((long.lose_first(3), long.playlist().first_sequence()), (3, Some(23)));
    assert_eq!((long.lose_first(99), long.playlist().len()), (6, 1));
    let text = long.playlist().render().expect("the last stays");
    assert!(text.contains("#EXT-X-MAP:URI=\"i0.mp4\"\n") && text.ends_with("p87-3.m4s\n"), "{text}");
}

#[test]
fn rates_are_those_of_the_segments() {
    let mut rates = Rates::default();
    assert_eq!((rates.bandwidth(), rates.frame_rate_milli()), (0, None));
    rates.observe(&Segment { bytes: Bytes::from(vec![0; 500_000]), ..segment(0, 2 * SECOND, false) }, 2);
    rates.observe(&Segment { bytes: Bytes::from(vec![0; 250_000]), ..segment(1, 2 * SECOND, false) }, 2);
    // A short last segment does not count for the peak.
    rates.observe(&Segment { bytes: Bytes::from(vec![0; 90_000]), ..segment(2, SECOND / 4, false) }, 2);
    assert_eq!((rates.bandwidth(), rates.average_bandwidth()), (2_200_000, 1_581_176));
    let frame_rate = |frames: u32, duration_ns: i64| {
        let mut rates = Rates::default();
        rates.observe(&Segment { video_samples: frames, ..segment(0, duration_ns, false) }, 2);
        rates.frame_rate_milli()
    };
    let table = [
        (60, 2_002_000_000, Some(29_970)),
        (60, 2_001_000_000, Some(29_970)),
        (60, 2_000_000_000, Some(30_000)),
        (48, 2_002_000_000, Some(23_976)),
        (100, 1_999_000_000, Some(50_000)),
        (120, 2_002_000_000, Some(59_940)),
        (27, 2_000_000_000, Some(13_500)),
        (0, 2_000_000_000, None),
    ];
    for (frames, duration_ns, expected) in table {
        assert_eq!(frame_rate(frames, duration_ns), expected, "{frames} in {duration_ns} ns");
    }
}
