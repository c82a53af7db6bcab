//! Discontinuities: codec configurations, gaps, jumps, tracks that start and stop.

use super::*;

fn breaks(segments: &[Segment]) -> Vec<usize> {
    (0..segments.len()).filter(|index| segments[*index].discontinuity).collect()
}

#[test]
fn repeated_and_reverted_records_change_nothing() {
    let mut packets = vec![];
    for start in (0..8000).step_by(2000) {
        packets.extend([record(AVC), record(OPUS)]);
        packets.extend(mixed([frames(start, start + 2000, 2000), audio(start, start + 2000)]));
    }
    packets.extend([record(OTHER_AVC), record(AVC), key(8000)]);
    let (_, segments, stats) = session(&packets);
    assert_eq!((breaks(&segments), stats.samples_dropped), (vec![], 0));
}

#[test]
fn changed_records_apply_from_the_next_keyframe() {
    let mut segmenter = Segmenter::new(0);
    let first = mixed([vec![record(AVC), record(OPUS)], frames(0, 5000, 2000), audio(0, 5000)]);
    push(&mut segmenter, &first);
    push(&mut segmenter, &[record(OTHER_AVC), record(AAC)]);
    push(&mut segmenter, &mixed([frames(5000, 9000, 2000)]));
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
    // The GOP before the new configuration is a segment of its own.
    assert_eq!((breaks(&segments), durations(&segments)), (vec![3], vec![2000, 2000, 1000, 2000, 2000]));
    assert_eq!(segments[3].init_id, 1);
}

#[test]
fn keyframes_carry_their_parameter_sets_from_the_second_configuration_on() {
    let mut packets = vec![];
    for (start, which) in [(0, AVC), (4000, OTHER_AVC), (8000, AVC)] {
        packets.push(record(which));
        packets.extend(frames(start, start + 4000, 2000));
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
        "keyframes of later configurations carry their own parameter sets"
    );
}

#[test]
fn a_gap_ends_the_unfinished_segment_and_timestamps_may_restart() {
    let mut segmenter = Segmenter::new(0);
    let start = mixed([vec![record(AVC), record(OPUS)], frames(0, 5000, 2000), audio(0, 5000)]);
    push(&mut segmenter, &start);
    segmenter.gap();
    for packet in mixed([vec![record(AVC), record(OPUS)], frames(0, 4000, 2000), audio(0, 4000)]) {
        segmenter.push(&packet, 1_009_000);
    }
    segmenter.finish();
    let stats = segmenter.stats();
    let segments = segments(&mut segmenter);
    assert_eq!((breaks(&segments), durations(&segments)), (vec![3], vec![2000, 2000, 1000, 2000, 2000]));
    assert_eq!(stats.samples_dropped, 0);
    // The initialization segment stays, the wall time is anchored again, decode times continue.
    assert!(segments.iter().all(|segment| segment.init_id == 0));
    let walls: Vec<i64> = segments.iter().map(|segment| segment.program_date_time_ms).collect();
    assert_eq!(walls, [1_000_000, 1_002_000, 1_004_000, 1_009_000, 1_011_000]);
    assert_eq!(first_tick(&segments[3], 0), 5000 * 90);
    // A wall clock that is set back does not move the playlist back.
    segmenter.gap();
    for packet in frames(0, 4000, 2000) {
        segmenter.push(&packet, 5);
    }
    segmenter.finish();
    assert_eq!(super::segments(&mut segmenter)[0].program_date_time_ms, 1_013_000);
}

/// A sender without retransmission on a bad network: each loss is followed by a keyframe that was asked for.
#[test]
fn an_encoder_that_never_completes_a_gop_is_seen() {
    let mut segmenter = Segmenter::new(0);
    push(&mut segmenter, &[record(AVC)]);
    for from in [0, 1000, 2000] {
        push(&mut segmenter, &frames(from, from + 600, 2000));
        segmenter.gap();
    }
    assert_eq!(segmenter.stats().samples_dropped, 0);
    let segments = segments(&mut segmenter);
    assert_eq!((breaks(&segments), durations(&segments)), (vec![1, 2], vec![600, 600, 600]));
    // The target of the first whole GOP holds for the rest.
    push(&mut segmenter, &frames(3000, 11_000, 4000));
    let events = super::events(&mut segmenter);
    assert!(matches!(events[0], Event::TargetRaised { target_seconds: 4 }), "{events:?}");
}

#[test]
fn timestamp_jumps_are_discontinuities() {
    // Step of the timestamps to a keyframe, and whether it is a jump. A second or more of lost frames makes the GOP
    // too long for the target; less only makes a long GOP.
    let table = [(400, false), (960, false), (1000, true), (2600, true), (3_600_000, true)];
    for (step, jump) in table.into_iter().chain([(-500, false), (-3000, true)]) {
        let first = mixed([vec![record(AVC)], frames(0, 6000, 2000)]);
        let second = frames(6000 - 40 + step, 10_000 - 40 + step, 2000);
        let packets: Vec<Packet> = first.into_iter().chain(second).collect();
        let (target, segments, stats) = session(&packets);
        assert_eq!(breaks(&segments).len(), usize::from(jump), "{step} ms: {:?}", durations(&segments));
        assert_eq!(target, if step == 960 { 10 } else { 2 }, "{step} ms");
        assert_eq!(stats.samples_dropped, 0, "{step} ms");
    }
    // In the middle of a GOP no frame can be decoded until the next keyframe.
    let first = mixed([vec![record(AVC)], frames(0, 5000, 2000)]);
    let rest: Vec<Packet> = frames(100_000, 104_000, 2000).split_off(10);
    let packets: Vec<Packet> = first.into_iter().chain(rest).collect();
    let (_, segments, stats) = session(&packets);
    assert_eq!((breaks(&segments), stats.samples_dropped), (vec![3], 40));
}

#[test]
fn audio_that_stops_and_resumes_changes_the_tracks() {
    let packets = mixed([
        vec![record(AVC), record(OPUS)],
        frames(0, 20_000, 2000),
        audio(0, 5000),
        audio(13_000, 20_000),
    ]);
    let (_, segments, _) = session(&packets);
    let tracks: Vec<u32> = segments.iter().map(|segment| segment.init_id).collect();
    // Off at the first keyframe 3 s after the last audio, on at the first keyframe after it resumes.
    assert_eq!((breaks(&segments), &tracks[..]), (vec![4, 7], &[0, 0, 0, 0, 1, 1, 1, 2, 2, 2][..]));
}

#[test]
fn video_that_stops_and_resumes_changes_the_tracks() {
    let mut packets = mixed([
        vec![record(AVC), record(OPUS)],
        frames(0, 6000, 2000),
        audio(0, 30_000),
        frames(24_000, 30_000, 2000),
    ]);
    packets.retain(|packet| packet.is_config() || packet.dts_ns < 28_000 * MS);
    let (_, segments, _) = session(&packets);
    let frames: Vec<bool> = segments.iter().map(|segment| segment.video_samples > 0).collect();
    let alone = frames.iter().filter(|with| !**with).count();
    assert_eq!((breaks(&segments).len(), alone), (2, 5), "{frames:?} {:?}", durations(&segments));
}

#[test]
fn an_audio_only_session_may_get_video_later() {
    let packets = mixed([vec![record(OPUS)], audio(0, 9000)]);
    let mut segmenter = Segmenter::new(0);
    push(&mut segmenter, &packets);
    push(&mut segmenter, &[record(AVC)]);
    push(&mut segmenter, &mixed([frames(9000, 13_000, 2000), audio(9000, 13_000)]));
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
    push(&mut segmenter, &mixed([frames(0, 6000, 2000), audio(0, 6000)]));
    segmenter.finish();
    let (stats, events) = (segmenter.stats(), events(&mut segmenter));
    let refused = |event: &Event| matches!(event, Event::TrackRefused { kind: Kind::Audio, .. });
    assert_eq!((stats.records_refused, events.iter().filter(|event| refused(event)).count()), (1, 1));
    assert_eq!((stats.samples_out, stats.samples_dropped), (150, 300));
}
