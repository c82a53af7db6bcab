//! Boundaries of parts, and parts of segments that end early.

use super::*;

const HALF: i64 = 500 * MS;

/// Parts and segments of a whole session, in the order of events.
fn parted(packets: &[Packet]) -> (Vec<Part>, Vec<Segment>, Segmenter) {
    let mut segmenter = Segmenter::new(5).with_parts(HALF);
    push(&mut segmenter, packets);
    let (mut parts, mut segments) = (vec![], vec![]);
    drain(&mut segmenter, &mut parts, &mut segments);
    (parts, segments, segmenter)
}

fn drain(segmenter: &mut Segmenter, parts: &mut Vec<Part>, segments: &mut Vec<Segment>) {
    for event in events(segmenter) {
        match event {
            Event::Part(part) => {
                assert!(
                    segments.last().is_none_or(|last| last.sequence < part.sequence),
                    "a part after its segment"
                );
                parts.push(part);
            }
            Event::Segment(segment) => {
                let own: Vec<&Part> = parts.iter().filter(|part| part.sequence == segment.sequence).collect();
                assert!(own.iter().enumerate().all(|(index, part)| part.index as usize == index));
                assert!(segment.bytes == own.iter().map(|part| &part.bytes[..]).collect::<Vec<_>>().concat());
                assert_eq!(segment.duration_ns, own.iter().map(|part| part.duration_ns).sum::<i64>());
                segments.push(segment);
            }
            _ => {}
        }
    }
}

fn millis(parts: &[Part]) -> Vec<(u64, i64, bool)> {
    parts.iter().map(|part| (part.sequence, part.duration_ns / MS, part.independent)).collect()
}

#[test]
fn parts_have_whole_frames_and_the_last_part_has_the_remainder() {
    // 13 frames of 40 ms are 520 ms; 50 frames are a segment.
    let packets = mixed([vec![record(AVC), record(OPUS)], frames(0, 8000, 2000), audio(0, 8000)]);
    let (parts, segments, mut segmenter) = parted(&packets);
    assert_eq!(segmenter.part_target_ns(), Some(522 * MS));
    let of_one = |sequence| {
        [(sequence, 520, true), (sequence, 520, false), (sequence, 520, false), (sequence, 440, false)]
    };
    assert_eq!(millis(&parts)[..8], [of_one(5), of_one(6)].concat());
    assert_eq!(durations(&segments), [2000; 3]);
    // The last segment has not ended, but its complete parts are emitted.
    assert_eq!(millis(&parts)[12..], of_one(8)[..3]);
    let (mut parts, mut segments) = (parts, segments);
    segmenter.finish();
    drain(&mut segmenter, &mut parts, &mut segments);
    assert_eq!((millis(&parts)[15], durations(&segments)), ((8, 440, false), vec![2000; 4]));
    let stats = segmenter.stats();
    assert_eq!((stats.samples_in, stats.samples_dropped), (200 + 400, 0));
    assert_eq!((stats.samples_out, segmenter.held_bytes()), (600, 0));
}

#[test]
fn a_part_is_emitted_when_the_frame_after_it_arrives() {
    let packets = mixed([vec![record(AVC)], frames(0, 4000, 2000)]);
    let mut segmenter = Segmenter::new(5).with_parts(HALF);
    push(&mut segmenter, &packets);
    push(&mut segmenter, &[key(4000)]);
    events(&mut segmenter);
    // The thirteenth frame ends at 4520 ms; this is known when the next frame arrives.
    for ms in (4040..4520).step_by(40) {
        push(&mut segmenter, &[delta(ms)]);
        assert!(events(&mut segmenter).is_empty(), "{ms} ms");
    }
    push(&mut segmenter, &[delta(4520)]);
    assert!(matches!(&events(&mut segmenter)[..], [Event::Part(part)] if part.duration_ns == 520 * MS));
}

#[test]
fn the_first_part_does_not_wait_for_the_gops() {
    let packets = mixed([vec![record(AVC), record(OPUS)], frames(0, 5000, 1 << 40), audio(0, 5000)]);
    let until = |ms: i64| packets.iter().position(|packet| packet.dts_ns >= ms * MS).expect("is there");
    let mut segmenter = Segmenter::new(5).with_parts(HALF);
    push(&mut segmenter, &packets[..until(520)]);
    assert_eq!(events(&mut segmenter), []);
    push(&mut segmenter, &packets[until(520)..until(560)]);
    let first = events(&mut segmenter);
    let [Event::Started { target_seconds: 2 }, Event::Init(init), Event::Part(part)] = &first[..] else {
        panic!("{first:?}")
    };
    assert!(init.audio.is_some() && part.independent);
    assert_eq!((part.duration_ns, segmenter.part_target_ns()), (520 * MS, Some(522 * MS)));
    push(&mut segmenter, &packets[until(560)..]);
    assert!(events(&mut segmenter).iter().all(|event| matches!(event, Event::Part(_))));
    // The GOP of five seconds is complete: the target is known before the segment.
    push(&mut segmenter, &mixed([frames(5000, 5200, 5000), audio(5000, 5200)]));
    let rest = events(&mut segmenter);
    assert!(matches!(
        &rest[..],
        [Event::TargetRaised { target_seconds: 5 }, Event::Part(_), Event::Segment(segment)]
            if segment.duration_ns == 5000 * MS
    ));
}

#[test]
fn parts_begin_without_audio_when_none_came_in_a_second() {
    let mut segmenter = Segmenter::new(5).with_parts(HALF);
    push(&mut segmenter, &mixed([vec![record(AVC)], frames(0, 1000, 2000)]));
    assert_eq!(events(&mut segmenter), []);
    push(&mut segmenter, &[delta(1000)]);
    assert!(matches!(
        &events(&mut segmenter)[..],
        [Event::Started { target_seconds: 2 }, Event::Init(_), Event::Part(_)]
    ));
}

#[test]
fn the_target_with_parts_is_that_of_the_first_segment() {
    // Keyframes, the target at the end, durations of the first segments.
    let every = |gop: i64| (0..30_000 / gop).map(|number| number * gop).collect::<Vec<_>>();
    let table: [(Vec<i64>, i64, &[i64]); 9] = [
        (every(400), 2, &[2000, 2000]),
        (every(1000), 2, &[2000, 2000]),
        (every(1480), 2, &[1480, 1480]),
        (every(2000), 2, &[2000, 2000]),
        (every(2400), 2, &[2400, 2400]),
        (every(2520), 3, &[2520, 2520]),
        (every(8000), 8, &[8000, 8000]),
        // The parts of the first GOP are out when the second one turns out to be long.
        (vec![0, 1000, 1400, 3800, 5800, 7800], 4, &[3800, 2000]),
        // No target is long enough: cut inside the GOP.
        (vec![0], 10, &[10_480, 10_480]),
    ];
    for (keys, target, expected) in table {
        let end = if keys.len() > 1 { keys[keys.len() - 1] + 40 } else { 30_000 };
        let (_, segments, segmenter) = parted(&mixed([vec![record(AVC)], keyed(&keys, end)]));
        assert_eq!((segmenter.limit_ns() / NANOS_PER_SECOND, &durations(&segments)[..2]), (target, expected));
        assert_eq!(segmenter.stats().samples_dropped, 0);
    }
}

#[test]
fn a_gap_in_the_first_gop_keeps_its_parts() {
    // The encoder leaves inside a GOP of five seconds and returns.
    let (mut parts, mut segments, mut segmenter) = parted(&mixed([vec![record(AVC)], frames(0, 3200, 5000)]));
    assert_eq!(parts.len(), 6);
    segmenter.gap();
    assert!(segmenter.events.contains(&Event::TargetRaised { target_seconds: 3 }));
    push(&mut segmenter, &mixed([frames(0, 10_200, 5000)]));
    drain(&mut segmenter, &mut parts, &mut segments);
    assert_eq!(durations(&segments), [3200, 5000, 5000]);
    assert_eq!((segments[1].discontinuity, segmenter.limit_ns() / NANOS_PER_SECOND), (true, 5));
}

#[test]
fn audio_only_sessions_have_parts() {
    let packets = mixed([vec![record(OPUS)], audio(0, 8000)]);
    let (parts, segments, segmenter) = parted(&packets);
    assert_eq!(segmenter.part_target_ns(), Some(520 * MS));
    assert_eq!(millis(&parts)[..4], [(5, 520, true), (5, 520, true), (5, 520, true), (5, 440, true)]);
    assert_eq!(durations(&segments), [2000; 3]);
}

#[test]
fn late_audio_goes_into_a_later_part() {
    let mut packets = mixed([frames(0, 8000, 2000), audio(0, 8000)]);
    // Audio arrives 200 ms behind video.
    let behind = |packet: &Packet| if packet.kind() == Kind::Audio { 200 * MS } else { 0 };
    packets.sort_by_key(|packet| packet.dts_ns + behind(packet));
    packets.splice(0..0, [record(AVC), record(OPUS)]);
    let (parts, segments, segmenter) = parted(&packets);
    assert_eq!((durations(&segments), segmenter.stats().samples_dropped), (vec![2000; 3], 0));
    // The segment waits for its audio and is complete.
    let starts: Vec<u64> = segments.iter().map(|segment| first_tick(segment, 1)).collect();
    assert_eq!(starts, [0, 96_000, 192_000]);
    assert_eq!(millis(&parts)[..4].iter().map(|part| part.1).collect::<Vec<_>>(), [520, 520, 520, 440]);
}

#[test]
fn emitted_parts_are_never_withdrawn() {
    // The encoder disconnects in the middle of a segment.
    let packets = mixed([vec![record(AVC)], frames(0, 7200, 2000)]);
    let (mut parts, mut segments, mut segmenter) = parted(&packets);
    segmenter.gap();
    push(&mut segmenter, &mixed([frames(0, 2600, 2000)]));
    drain(&mut segmenter, &mut parts, &mut segments);
    assert_eq!(durations(&segments), [2000, 2000, 2000, 1200, 2000]);
    assert_eq!(
        segments.iter().map(|segment| segment.discontinuity).collect::<Vec<_>>(),
        [false, false, false, false, true]
    );
    assert_eq!(segments[4].sequence, 9);
    assert_eq!(segmenter.stats().samples_dropped, 0);
    // No part of the last segment is emitted yet.
    let packets = mixed([vec![record(AVC)], frames(0, 6200, 2000)]);
    let (mut parts, mut segments, mut segmenter) = parted(&packets);
    segmenter.gap();
    drain(&mut segmenter, &mut parts, &mut segments);
    assert_eq!((durations(&segments), segmenter.stats().samples_dropped), (vec![2000, 2000, 2000, 200], 0));
}

#[test]
fn last_frames_without_audio_stay_in_the_segment_before() {
    // End of video, end of audio, durations of the last two segments, parts of the last.
    let table: [(i64, i64, &[i64], &[i64]); 6] = [
        (6040, 6000, &[2000, 2040], &[520, 520, 520, 480]),
        (6080, 6000, &[2000, 2080], &[520, 520, 520, 520]),
        (6200, 6000, &[2000, 2200], &[520, 520, 520, 520, 120]),
        // There is audio up to the cut and not after it.
        (6200, 5600, &[2000, 2200], &[520, 520, 520, 520, 120]),
        // Too long for the target.
        (6520, 6000, &[2000, 520], &[520]),
        (6080, 6020, &[2000, 80], &[80]),
    ];
    for (frames_end, audio_end, expected, expected_parts) in table {
        let packets =
            mixed([vec![record(AVC), record(OPUS)], frames(0, frames_end, 2000), audio(0, audio_end)]);
        for ends in [Segmenter::gap, Segmenter::finish] {
            let (mut parts, mut segments, mut segmenter) = parted(&packets);
            ends(&mut segmenter);
            drain(&mut segmenter, &mut parts, &mut segments);
            let lasts = durations(&segments);
            assert_eq!(lasts[lasts.len() - 2..], *expected, "{frames_end} {audio_end}");
            let last = segments.last().map(|segment| segment.sequence);
            let of_last = parts.iter().filter(|part| Some(part.sequence) == last);
            let of_last: Vec<i64> = of_last.map(|part| part.duration_ns / MS).collect();
            assert_eq!(of_last, expected_parts, "{frames_end} {audio_end}");
            assert_eq!(segmenter.stats().samples_dropped, 0, "{frames_end} {audio_end}");
            let mut plain = Segmenter::new(5);
            push(&mut plain, &packets);
            ends(&mut plain);
            assert_eq!(durations(&super::segments(&mut plain)), lasts, "{frames_end} {audio_end}");
        }
    }
}

#[test]
fn an_extra_keyframe_ends_a_segment_early() {
    // GOPs of two seconds, one with a scene cut: without parts the segment would be split at the cut once it is too long.
    let keys = [0, 2000, 4000, 4800, 6800, 8800];
    let packets = mixed([vec![record(AVC)], keyed(&keys, 10_800)]);
    let (parts, segments, segmenter) = parted(&packets);
    assert_eq!(durations(&segments), [2000, 2000, 800, 2000, 2000]);
    assert!(segments.iter().all(|segment| segment.independent));
    assert!(parts.iter().all(|part| part.independent == (part.index == 0)));
    assert_eq!(segmenter.limit_ns() / NANOS_PER_SECOND, 2, "the target stands");
}

#[test]
fn long_frames_are_not_cut() {
    // A frame of 900 ms in the middle, as screen sharing sends them.
    let mut packets = mixed([vec![record(AVC)], frames(0, 6000, 2000)]);
    packets.retain(|packet| !(4240 * MS..5100 * MS).contains(&packet.dts_ns));
    let (parts, segments, _) = parted(&packets);
    assert_eq!(durations(&segments), [2000; 2]);
    let open: Vec<_> = millis(&parts).into_iter().filter(|part| part.0 == 7).collect();
    // Six frames are too short for a part. With the long frame the part is over the target, which is allowed.
    assert_eq!(open, [(7, 1120, true), (7, 520, false)]);
}

/// One frame per second from `from` to `to`, with a keyframe every `gop` milliseconds.
fn slow(from: i64, to: i64, gop: i64) -> Vec<Packet> {
    let frame = |ms| if (ms - from) % gop == 0 { key(ms) } else { delta(ms) };
    (from..to).step_by(1000).map(frame).collect()
}

#[test]
fn an_encoder_that_reconnects_with_one_frame_per_second_loses_nothing() {
    // Length of its GOPs; durations of the segments after the reconnect; whether the target must rise.
    let table: [(i64, &[i64], bool); 4] = [
        (2000, &[2000; 12], false),
        (4000, &[4000; 6], true),
        (8000, &[8000; 3], true),
        // Too long for any target: cut inside the GOP, at a frame.
        (24_000, &[10_000, 10_000, 4000], true),
    ];
    for (gop, expected, is_raised) in table {
        let mut segmenter = Segmenter::new(5).with_parts(HALF);
        push(
            &mut segmenter,
            &mixed([vec![record(AVC), record(OPUS)], frames(0, 6000, 2000), audio(0, 6000)]),
        );
        segmenter.gap();
        push(&mut segmenter, &mixed([slow(0, 24_000, gop), audio(0, 24_000)]));
        segmenter.finish();
        let events = events(&mut segmenter);
        let raises = events.iter().filter(|event| matches!(event, Event::TargetRaised { .. })).count();
        assert_eq!(raises, usize::from(is_raised), "GOPs of {gop} ms");
        let segments: Vec<&Segment> = events
            .iter()
            .filter_map(|event| match event {
                Event::Segment(segment) => Some(segment),
                _ => None,
            })
            .skip(3)
            .collect();
        let lasts = segments.iter().map(|segment| segment.duration_ns / MS).collect::<Vec<_>>();
        // The last frame lasts as long as the one before it.
        assert_eq!(lasts, expected, "GOPs of {gop} ms");
        let broken = segments.iter().map(|segment| segment.discontinuity);
        assert!(broken.eq((0..segments.len()).map(|index| index == 0)), "GOPs of {gop} ms");
        let stats = segmenter.stats();
        assert_eq!((stats.samples_in, stats.samples_dropped), (150 + 300 + 24 + 1200, 0), "{stats:?}");
        assert_eq!(stats.samples_out, stats.samples_in);
    }
}
