//! Rules of cutting with made-up packets.

use bytes::Bytes;
use satcast_media::codec::avc::in_band;
use satcast_media::fuzz::RECORDS;

use super::*;
use crate::tests::media::{
    AAC, AVC, MS, OPUS, OTHER_AAC, OTHER_AVC, audio, events, files, mixed, packet, record, video, video_of,
};

/// Files, each as the ends of its fragments in milliseconds.
fn shape(packets: Vec<Packet>) -> Vec<Vec<i64>> {
    let mut files: Vec<Vec<i64>> = Vec::new();
    for event in events(packets) {
        match event {
            CutEvent::Begin { .. } => files.push(Vec::new()),
            CutEvent::Fragment { end_ns, .. } => files.last_mut().unwrap().push(end_ns / MS),
            CutEvent::TrackRefused(..) => {}
        }
    }
    files
}

#[test]
fn fragments_end_within_a_second_wherever_keyframes_are() {
    // One keyframe in four seconds.
    let files = shape(mixed([video(100, 100), audio(0, 4000)]));
    assert_eq!(files.len(), 1);
    let ends = &files[0];
    assert!(ends.windows(2).all(|pair| pair[1] - pair[0] <= 960), "{ends:?}");
    assert_eq!(ends.last(), Some(&4000));
    // Less than a second of media is unwritten when the next frame comes.
    let mut cutter = Cutter::default();
    let mut written = 0;
    for packet in video(200, 200) {
        let dts_ms = packet.dts_ns / MS;
        cutter.push(packet);
        while let Some(event) = cutter.poll() {
            if let CutEvent::Fragment { end_ns, .. } = event {
                written = end_ns / MS;
            }
        }
        assert!(dts_ms + 40 - written <= 1000, "{dts_ms} {written}");
    }
}

#[test]
fn media_before_the_first_keyframe_is_dropped() {
    let mut packets = video_of(AVC, 1000, 50, 25, 100);
    packets.insert(1, packet(AVC, false, 960, 100));
    let all = mixed([packets, audio(0, 3000)]);
    let mut cutter = Cutter::default();
    let count = all.iter().filter(|packet| !packet.is_config()).count() as u64;
    all.into_iter().for_each(|packet| cutter.push(packet));
    cutter.finish();
    let ends: Vec<i64> = std::iter::from_fn(|| cutter.poll())
        .filter_map(|event| match event {
            CutEvent::Fragment { end_ns, .. } => Some(end_ns / MS),
            _ => None,
        })
        .collect();
    assert_eq!(ends.last(), Some(&2000), "time 0 is the first keyframe");
    assert_eq!(cutter.dropped(), 51, "a video frame and 50 audio packets of {count}");
}

#[test]
fn another_configuration_begins_another_file_at_its_keyframe() {
    let second = video_of(OTHER_AVC, 2000, 50, 25, 100);
    let packets: Vec<Packet> = video(50, 25).into_iter().chain(second).collect();
    let files = shape(packets);
    assert_eq!(files.iter().map(|file| *file.last().unwrap()).collect::<Vec<_>>(), [2000, 2000]);
    // Audio of another kind waits for the keyframe as well.
    let mut packets = video(100, 25);
    let other: Vec<Packet> = (0..180).map(|n| packet(OTHER_AAC, false, n * 22, 50)).collect();
    let switch = other.iter().position(|packet| packet.dts_ns >= 2100 * MS).unwrap();
    packets.extend(other);
    packets.sort_by_key(|packet| (!packet.is_config(), packet.dts_ns));
    packets.insert(1, record(AAC));
    let at = packets.iter().position(|packet| packet.dts_ns >= 2100 * MS && packet.kind() == Kind::Audio);
    packets.insert(at.unwrap(), record(OTHER_AAC));
    assert!(switch > 0);
    let files = shape(packets);
    assert_eq!(files.len(), 2, "{files:?}");
    assert!((2980..=3020).contains(files[0].last().unwrap()), "{files:?}");
}

#[test]
fn keyframes_carry_their_parameter_sets_from_the_second_configuration_on() {
    let parts = [(AVC, 0), (OTHER_AVC, 2000), (AVC, 4000)];
    let packets = parts.iter().flat_map(|(which, from)| video_of(*which, *from, 50, 25, 100)).collect();
    let count = |file: &Vec<u8>, which: usize| {
        let sets = in_band(RECORDS[which].1).expect("lengths of four bytes");
        file.windows(sets.len()).filter(|window| *window == sets).count()
    };
    let found: Vec<_> =
        files(packets).iter().map(|file| (count(file, AVC), count(file, OTHER_AVC))).collect();
    assert_eq!(found, [(0, 0), (0, 2), (2, 0)]);
}

#[test]
fn a_repeated_configuration_changes_nothing() {
    let mut packets = video(100, 25);
    packets.insert(60, record(AVC));
    packets.insert(61, record(OTHER_AVC));
    packets.insert(62, record(AVC));
    assert_eq!(shape(packets).len(), 1);
}

#[test]
fn audio_only_is_recorded_and_later_video_begins_another_file() {
    let files = shape(audio(0, 10_000));
    assert_eq!((files.len(), files[0].last()), (1, Some(&10_000)));
    assert!(files[0].windows(2).all(|pair| pair[1] - pair[0] <= 920), "{files:?}");
    let late = video_of(AVC, 6000, 100, 25, 100);
    let files = shape(mixed([audio(0, 10_000), late]));
    assert_eq!(
        files.iter().map(|file| *file.last().unwrap()).collect::<Vec<_>>(),
        [6020, 4000],
        "the audio of that instant came first"
    );
    // Audio that comes late joins with the next keyframe.
    let files = shape(mixed([video(100, 25), audio(1500, 4000)]));
    assert_eq!(files.iter().map(|file| *file.last().unwrap()).collect::<Vec<_>>(), [2000, 2000]);
}

#[test]
fn a_hole_stays_a_hole_and_a_jump_begins_a_file() {
    let with_second = |from_ms: i64| {
        let second = video_of(AVC, from_ms, 50, 25, 100);
        let packets: Vec<Packet> = video(50, 25).into_iter().chain(second).collect();
        shape(packets).iter().map(|file| *file.last().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(with_second(30_000), [32_000]);
    assert_eq!(with_second(2_000_000), [2000, 2000]);
    assert_eq!(with_second(500), [2000, 2000]);
    // After a gap nothing but a keyframe is of use.
    let mut cutter = Cutter::default();
    video(30, 25).into_iter().for_each(|packet| cutter.push(packet));
    cutter.gap();
    (30..55).for_each(|number| cutter.push(packet(AVC, number == 50, number * 40, 100)));
    cutter.finish();
    assert_eq!(cutter.dropped(), 20);
}

#[test]
fn implausible_packets_are_dropped() {
    let mut cutter = Cutter::default();
    cutter.push(packet(AVC, true, 0, 100));
    cutter.push(record(AVC));
    cutter.push(Packet { payload: Bytes::from_static(b"junk"), ..record(AVC) });
    assert!(matches!(cutter.poll(), Some(CutEvent::TrackRefused(Kind::Video, _))));
    cutter.push(record(AVC));
    cutter.push(Packet { payload: Bytes::new(), ..packet(AVC, true, 0, 1) });
    cutter.push(Packet { dts_ns: i64::MAX, ..packet(AVC, true, 0, 1) });
    cutter.push(packet(AVC, true, 0, SAMPLE_BYTES_MAX + 1));
    cutter.push(packet(OTHER_AAC, false, 0, 10));
    assert_eq!((cutter.dropped(), cutter.held_bytes()), (5, 0));
    for number in 0..2 * WAITING_PACKETS_MAX as i64 {
        cutter.push(packet(AAC, false, number, 10));
    }
    cutter.push(record(AAC));
    for number in 0..2 * WAITING_PACKETS_MAX as i64 {
        cutter.push(packet(AAC, false, number, 10));
        assert!(cutter.held_bytes() <= 10 * (WAITING_PACKETS_MAX + 100));
    }
    cutter.abandon();
    assert_eq!(cutter.held_bytes(), 0);
}

#[test]
fn large_frames_make_small_fragments() {
    let large = video_of(AVC, 0, 20, 20, 8 * 1024 * 1024);
    let sizes: Vec<usize> = events(large)
        .iter()
        .filter_map(|event| match event {
            CutEvent::Fragment { bytes, .. } => Some(bytes.len()),
            _ => None,
        })
        .collect();
    assert!(sizes.len() >= 5 && sizes.iter().all(|bytes| *bytes < 64 * 1024 * 1024), "{sizes:?}");
}

#[test]
fn flush_and_roll() {
    let mut cutter = Cutter::default();
    video(10, 10).into_iter().for_each(|packet| cutter.push(packet));
    assert_eq!(cutter.poll(), None);
    cutter.flush();
    assert!(matches!(cutter.poll(), Some(CutEvent::Begin { .. })));
    assert!(matches!(cutter.poll(), Some(CutEvent::Fragment { end_ns, .. }) if end_ns == 360 * MS));
    cutter.roll();
    (10..60).for_each(|number| cutter.push(packet(AVC, number % 25 == 0, number * 40, 100)));
    cutter.finish();
    let begins = std::iter::from_fn(|| cutter.poll()).filter(|event| matches!(event, CutEvent::Begin { .. }));
    assert_eq!(begins.count(), 1, "at the next keyframe, once");
}

/// Whatever comes, files are whole and bounded.
#[test]
fn packets_in_any_order_make_files_that_can_be_read() {
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) % below
    };
    let (mut cutter, mut times, mut files) = (Cutter::default(), [0_i64; 2], Vec::<Vec<u8>>::new());
    for _ in 0..20_000 {
        let which = random(5) as usize;
        let at = &mut times[usize::from(which > OTHER_AVC)];
        // Mostly milliseconds, now and then a jump of minutes either way.
        *at += if random(400) == 0 { random(1_200_000) as i64 - 600_000 } else { random(60) as i64 - 5 };
        match random(60) {
            0 => cutter.push(record(which)),
            1 => cutter.gap(),
            2 => cutter.roll(),
            3 => cutter.flush(),
            4 => cutter.push(Packet { payload: Bytes::from_static(b"junk"), ..record(which) }),
            kind => {
                let mut packet =
                    packet(which, which <= OTHER_AVC && kind < 10, *at, 1 + random(300) as usize);
                packet.pts_ns += random(200) as i64 * MS - 50 * MS;
                cutter.push(packet);
            }
        }
        take(&mut cutter, &mut files);
        assert!(cutter.held_bytes() < 1_000_000);
    }
    cutter.finish();
    take(&mut cutter, &mut files);
    assert!(files.len() > 20, "{}", files.len());
    for bytes in files {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        assert_eq!(crate::boxes::whole(&file).unwrap().bytes, bytes.len() as u64);
    }
}

fn take(cutter: &mut Cutter, files: &mut Vec<Vec<u8>>) {
    while let Some(event) = cutter.poll() {
        match event {
            CutEvent::Begin { init, .. } => files.push(init.to_vec()),
            CutEvent::Fragment { bytes, .. } => files.last_mut().unwrap().extend_from_slice(&bytes),
            CutEvent::TrackRefused(..) => {}
        }
    }
}

/// Encoders send audio and video in any order: audio that plays with the first frame of a configuration is in its file.
#[test]
fn audio_sent_before_the_keyframe_of_a_new_configuration_is_in_its_file() {
    let marked = |ms: i64, mark: u8| {
        let mut one = packet(OPUS, false, ms, 50);
        let mut payload = vec![mark; 50];
        payload[0] = 0xfc;
        one.payload = payload.into();
        one
    };
    let stream = |ends: bool| {
        let mut packets = mixed([video_of(AVC, 0, 50, 25, 100), audio(0, 2000)]);
        packets.push(record(OTHER_AVC));
        // Late audio of the previous configuration, and audio of the next one.
        packets.extend([marked(1980, 0xfb), marked(2000, 0xfd), marked(2020, 0xfe)]);
        if !ends {
            packets.extend((0..25).map(|number| packet(OTHER_AVC, number == 0, 2000 + number * 40, 100)));
        }
        packets
    };
    let has = |file: &[u8], mark: u8| file.windows(49).any(|window| window == [mark; 49]);
    let made = files(stream(false));
    assert_eq!(made.len(), 2);
    let found = [0xfb, 0xfd, 0xfe].map(|mark| (has(&made[0], mark), has(&made[1], mark)));
    assert_eq!(found, [(true, false), (false, true), (false, true)]);
    // When the keyframe never comes, nothing is lost.
    let made = files(stream(true));
    assert_eq!(made.len(), 1);
    assert!([0xfb, 0xfd, 0xfe].iter().all(|mark| has(&made[0], *mark)));
    // Nor when another record of audio comes first, or more audio than may wait.
    let mut packets = stream(true);
    packets.push(record(AAC));
    assert!(has(&files(packets)[0], 0xfe));
    let mut packets = stream(true);
    packets.extend((0..WAITING_PACKETS_MAX as i64).map(|number| marked(2040 + number * 20, 0xff)));
    let mut cutter = Cutter::default();
    packets.into_iter().for_each(|packet| cutter.push(packet));
    cutter.flush();
    let written: Vec<u8> = std::iter::from_fn(|| cutter.poll())
        .filter_map(|event| match event {
            CutEvent::Fragment { bytes, .. } => Some(bytes),
            _ => None,
        })
        .flatten()
        .collect();
    assert!(has(&written, 0xfe) && cutter.dropped() == 0);
}
