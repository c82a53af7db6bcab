//! Discontinuities: records, gaps, jumps, tracks that come and go.

use super::*;

fn breaks(segments: &[Segment]) -> Vec<usize> {
    (0..segments.len()).filter(|index| segments[*index].discontinuity).collect()
}

#[test]
fn repeated_and_taken_back_records_change_nothing() {
    let mut packets = vec![];
    for start in (0..8000).step_by(2000) {
        packets.extend([record(AVC), record(OPUS)]);
        packets.extend(mixed([pictures(start, start + 2000, 2000), sound(start, start + 2000)]));
    }
    packets.extend([record(OTHER_AVC), record(AVC), key(8000)]);
    let (_, segments, stats) = session(&packets);
    assert_eq!((breaks(&segments), stats.samples_dropped), (vec![], 0));
}

#[test]
fn changed_records_are_gathered_until_the_next_keyframe() {
    let mut segmenter = Segmenter::new(0);
    let first = mixed([vec![record(AVC), record(OPUS)], pictures(0, 5000, 2000), sound(0, 5000)]);
    push(&mut segmenter, &first);
    push(&mut segmenter, &[record(OTHER_AVC), record(AAC)]);
    push(&mut segmenter, &mixed([pictures(5000, 9000, 2000)]));
    push(&mut segmenter, &[packet(AAC, Role::Data, false, 9000, 10)]);
    segmenter.finish();
    let events = events(&mut segmenter);
    let inits: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Init(init) => Some((init.id, init.audio.as_ref().map(|track| track.codec().name()))),
            _ => None,
        })
        .collect();
    assert_eq!(inits, [(0, Some("opus")), (1, None)]);
    let segments: Vec<Segment> = events
        .into_iter()
        .filter_map(|event| match event {
            Event::Segment(segment) => Some(segment),
            _ => None,
        })
        .collect();
    // The group that the new record interrupts is a whole segment.
    assert_eq!((breaks(&segments), durations(&segments)), (vec![3], vec![2000, 2000, 1000, 2000, 2000]));
    assert_eq!(segments[3].init_id, 1);
}

#[test]
fn keyframes_carry_their_parameter_sets_from_the_second_configuration_on() {
    let mut packets = vec![];
    for (start, which) in [(0, AVC), (4000, OTHER_AVC), (8000, AVC)] {
        packets.push(record(which));
        packets.extend(pictures(start, start + 4000, 2000));
    }
    let (_, segments, _) = session(&packets);
    let sets = |which: usize| crate::codec::avc::in_band(RECORDS[which].1).expect("lengths of four bytes");
    let count = |segment: &Segment, which: usize| {
        let sets = sets(which);
        segment.bytes.windows(sets.len()).filter(|window| *window == sets).count()
    };
    let found: Vec<_> =
        segments.iter().map(|segment| (count(segment, AVC), count(segment, OTHER_AVC))).collect();
    assert_eq!(
        found,
        [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0)],
        "a reader may have any of the first two"
    );
}

#[test]
fn a_gap_ends_the_unfinished_segment_and_times_may_start_anew() {
    let mut segmenter = Segmenter::new(0);
    let start = mixed([vec![record(AVC), record(OPUS)], pictures(0, 5000, 2000), sound(0, 5000)]);
    push(&mut segmenter, &start);
    segmenter.gap();
    for packet in mixed([vec![record(AVC), record(OPUS)], pictures(0, 4000, 2000), sound(0, 4000)]) {
        segmenter.push(&packet, 1_009_000);
    }
    segmenter.finish();
    let stats = segmenter.stats();
    let segments = segments(&mut segmenter);
    assert_eq!((breaks(&segments), durations(&segments)), (vec![3], vec![2000, 2000, 1000, 2000, 2000]));
    assert_eq!(stats.samples_dropped, 0);
    // The same initialization segment serves, the wall clock is asked again, decode times go on.
    assert!(segments.iter().all(|segment| segment.init_id == 0));
    let walls: Vec<i64> = segments.iter().map(|segment| segment.program_date_time_ms).collect();
    assert_eq!(walls, [1_000_000, 1_002_000, 1_004_000, 1_009_000, 1_011_000]);
    assert_eq!(first_tick(&segments[3], 0), 5000 * 90);
    // A wall clock that was set back does not set the playlist back.
    segmenter.gap();
    for packet in pictures(0, 4000, 2000) {
        segmenter.push(&packet, 5);
    }
    segmenter.finish();
    assert_eq!(super::segments(&mut segmenter)[0].program_date_time_ms, 1_013_000);
}

#[test]
fn jumps_of_the_time_stamps_are_discontinuities() {
    // Step of the time stamps to a keyframe, whether it is a jump. Pictures that are missing for a second or more
    // make their group too long for the target, and less makes a long group.
    let table = [(400, false), (960, false), (1000, true), (2600, true), (3_600_000, true)];
    for (step, jump) in table.into_iter().chain([(-500, false), (-3000, true)]) {
        let first = mixed([vec![record(AVC)], pictures(0, 6000, 2000)]);
        let second = pictures(6000 - 40 + step, 10_000 - 40 + step, 2000);
        let packets: Vec<Packet> = first.into_iter().chain(second).collect();
        let (target, segments, stats) = session(&packets);
        assert_eq!(breaks(&segments).len(), usize::from(jump), "{step} ms: {:?}", durations(&segments));
        assert_eq!(target, if step == 960 { 10 } else { 2 }, "{step} ms");
        assert_eq!(stats.samples_dropped, 0, "{step} ms");
    }
    // In the middle of a group nothing can be decoded until the next keyframe.
    let first = mixed([vec![record(AVC)], pictures(0, 5000, 2000)]);
    let rest: Vec<Packet> = pictures(100_000, 104_000, 2000).split_off(10);
    let packets: Vec<Packet> = first.into_iter().chain(rest).collect();
    let (_, segments, stats) = session(&packets);
    assert_eq!((breaks(&segments), stats.samples_dropped), (vec![3], 40));
}

#[test]
fn sound_that_stops_and_returns_changes_the_tracks() {
    let packets = mixed([
        vec![record(AVC), record(OPUS)],
        pictures(0, 20_000, 2000),
        sound(0, 5000),
        sound(13_000, 20_000),
    ]);
    let (_, segments, _) = session(&packets);
    let tracks: Vec<u32> = segments.iter().map(|segment| segment.init_id).collect();
    // Off at the first keyframe 3 s after the last sound, on at the first keyframe after its return.
    assert_eq!((breaks(&segments), &tracks[..]), (vec![4, 7], &[0, 0, 0, 0, 1, 1, 1, 2, 2, 2][..]));
}

#[test]
fn pictures_that_stop_and_return_change_the_tracks() {
    let mut packets = mixed([
        vec![record(AVC), record(OPUS)],
        pictures(0, 6000, 2000),
        sound(0, 30_000),
        pictures(24_000, 30_000, 2000),
    ]);
    packets.retain(|packet| packet.is_config() || packet.dts_ns < 28_000 * MS);
    let (_, segments, _) = session(&packets);
    let pictures: Vec<bool> = segments.iter().map(|segment| segment.video_samples > 0).collect();
    let alone = pictures.iter().filter(|with| !**with).count();
    assert_eq!((breaks(&segments).len(), alone), (2, 5), "{pictures:?} {:?}", durations(&segments));
}

#[test]
fn sound_alone_starts_a_session_and_pictures_may_follow() {
    let packets = mixed([vec![record(OPUS)], sound(0, 9000)]);
    let mut segmenter = Segmenter::new(0);
    push(&mut segmenter, &packets);
    push(&mut segmenter, &[record(AVC)]);
    push(&mut segmenter, &mixed([pictures(9000, 13_000, 2000), sound(9000, 13_000)]));
    segmenter.finish();
    let segments = segments(&mut segmenter);
    assert_eq!(durations(&segments), [2000, 2000, 2000, 2000, 1000, 2000, 2000]);
    assert_eq!(breaks(&segments), [5]);
    assert!(segments.iter().all(|segment| segment.independent));
}

#[test]
fn a_refused_record_stops_only_its_track() {
    let mut segmenter = Segmenter::new(0);
    let broken = Packet { payload: Bytes::from_static(b"broken"), ..record(OPUS) };
    push(&mut segmenter, &[broken, record(AVC)]);
    push(&mut segmenter, &mixed([pictures(0, 6000, 2000), sound(0, 6000)]));
    segmenter.finish();
    let (stats, events) = (segmenter.stats(), events(&mut segmenter));
    let refused = |event: &Event| matches!(event, Event::TrackRefused { kind: Kind::Audio, .. });
    assert_eq!((stats.records_refused, events.iter().filter(|event| refused(event)).count()), (1, 1));
    assert_eq!((stats.samples_out, stats.samples_dropped), (150, 300));
}
