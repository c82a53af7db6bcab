//! Limits on everything that a publisher controls.

use super::*;
use crate::fmp4::{RECORD_BYTES_MAX, SEGMENT_BYTES_MAX, SEGMENT_SAMPLES_MAX};

#[test]
fn a_start_without_keyframes_is_held_up_to_the_packet_limit() {
    let mut segmenter = Segmenter::new(0);
    push(&mut segmenter, &[record(AVC)]);
    let frame = delta(0);
    for _ in 0..HELD_PACKETS_MAX {
        segmenter.push(&frame, 0);
    }
    assert_eq!(segmenter.poll_event(), Some(Event::Started { target_seconds: TARGET_SECONDS_MIN }));
    assert_eq!((segmenter.held_bytes(), segmenter.stats().samples_dropped), (0, HELD_PACKETS_MAX as u64));
}

#[test]
fn a_start_is_held_up_to_the_byte_limit() {
    let mut segmenter = Segmenter::new(0);
    push(&mut segmenter, &[record(AVC)]);
    let payload = Bytes::from(vec![0; SAMPLE_BYTES_MAX]);
    let mut pushed = 0;
    while segmenter.poll_event().is_none() {
        let first = pushed == 0;
        let frame = if first { key(0) } else { delta(pushed) };
        segmenter.push(&Packet { payload: payload.clone(), ..frame }, 0);
        pushed += 1;
        assert!(segmenter.held_bytes() <= HELD_BYTES_MAX);
    }
    assert_eq!(pushed as usize, HELD_BYTES_MAX / SAMPLE_BYTES_MAX);
    // Each segment has at most half of the size limit.
    segmenter.finish();
    let segments = segments(&mut segmenter);
    assert_eq!(segments.iter().map(|segment| segment.video_samples).sum::<u32>(), pushed as u32);
    assert!(segments.iter().all(|segment| segment.bytes.len() < SEGMENT_BYTES_MAX), "{}", segments.len());
}

#[test]
fn frames_without_duration_are_cut_by_number() {
    let mut packets = mixed([vec![record(AVC)], frames(0, 4040, 2000)]);
    packets.extend(std::iter::repeat_n(delta(4040), SEGMENT_SAMPLES_MAX));
    let (_, segments, stats) = session(&packets);
    assert!(segments.iter().all(|segment| segment.video_samples as usize <= SEGMENT_SAMPLES_MAX / 2));
    assert_eq!((stats.samples_dropped, stats.samples_in), (0, stats.samples_out));
}

#[test]
fn implausible_packets_are_dropped() {
    let start = mixed([vec![record(AVC)], frames(0, 4040, 2000)]);
    let mut segmenter = Segmenter::new(0);
    push(&mut segmenter, &start);
    let large = Bytes::from(vec![0; SAMPLE_BYTES_MAX + 1]);
    let odd = [
        Packet { payload: Bytes::new(), ..delta(5000) },
        Packet { payload: large, ..delta(5000) },
        Packet { dts_ns: TIME_NANOS_MAX + 1, ..delta(5000) },
        Packet { pts_ns: i64::MIN, ..delta(5000) },
        // No codec configuration for it.
        packet(AAC, Role::Data, false, 5000, 10),
    ];
    push(&mut segmenter, &odd);
    assert_eq!(segmenter.stats().samples_dropped, odd.len() as u64);
    // A composition time of hours is clamped to the limit.
    segmenter.push(&Packet { pts_ns: i64::from(u32::MAX) * MS, ..delta(4080) }, 0);
    let long = Bytes::from(vec![0; RECORD_BYTES_MAX + 1]);
    segmenter.push(&Packet { payload: long, ..record(AVC) }, 0);
    segmenter.finish();
    assert_eq!(segmenter.stats().records_refused, 1);
    assert_eq!(durations(&segments(&mut segmenter)), [2000, 2000, 160]);
}

#[test]
fn audio_waiting_for_a_keyframe_is_bounded() {
    let mut segmenter = Segmenter::new(0);
    push(&mut segmenter, &mixed([vec![record(AVC), record(OPUS)], frames(0, 4040, 2000), audio(0, 4040)]));
    segmenter.gap();
    push(&mut segmenter, &audio(10_000, 19_000));
    assert_eq!(segmenter.waiting.len(), WAITING_AUDIO_PACKETS_MAX);
    // After 10 s of audio the segmenter no longer waits for video.
    push(&mut segmenter, &audio(19_000, 23_000));
    assert!(segmenter.waiting.is_empty());
    assert!(segmenter.epoch.as_ref().is_some_and(|epoch| epoch.video.is_none()));
}

#[test]
fn missing_audio_does_not_hold_a_segment() {
    let mut segmenter = Segmenter::new(0);
    let start = mixed([vec![record(AVC), record(OPUS)], frames(0, 4040, 2000), audio(0, 3000)]);
    push(&mut segmenter, &start);
    assert_eq!(segments(&mut segmenter).len(), 1);
    push(&mut segmenter, &frames(4040, 4960, 100_000)[1..]);
    assert_eq!(segments(&mut segmenter).len(), 0);
    push(&mut segmenter, &[delta(5040)]);
    assert_eq!(durations(&segments(&mut segmenter)), [2000]);
}

#[test]
fn an_audio_gap_extends_a_sample_or_is_a_jump() {
    for (silence, breaks) in [(280, 0), (320, 1)] {
        let packets = mixed([vec![record(OPUS)], audio(0, 5000), audio(5000 + silence - 20, 9000)]);
        let (_, segments, stats) = session(&packets);
        let found = segments.iter().filter(|segment| segment.discontinuity).count();
        assert_eq!((found, stats.samples_dropped), (breaks, 0), "{silence} ms");
    }
    let other = [record(OTHER_AAC), packet(OTHER_AAC, Role::Data, false, 5000, 9)];
    let packets: Vec<Packet> = mixed([vec![record(OPUS)], audio(0, 5000)]).into_iter().chain(other).collect();
    assert!(session(&packets).1.last().is_some_and(|segment| segment.discontinuity));
}
