//! Packaging of a synthetic 6 Mbps stream: 30 frames and about 47 AAC packets per second, for one minute.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use satcast_media::fuzz::RECORDS;
use satcast_media::playlist::{
    Entry, MediaPlaylist, PartEntry, PartRules, init_name, part_name, segment_name,
};
use satcast_media::segment::{Event, Segmenter};
use satcast_media::{Codec, Packet, Role};

const SECONDS: i64 = 60;
const PART_NANOS: i64 = 500 * MILLI;
const HOLD_BACK_NANOS: i64 = 2000 * MILLI;
const MILLI: i64 = 1_000_000;
fn packet(codec: Codec, role: Role, keyframe: bool, dts_ns: i64, payload: Bytes) -> Packet {
    Packet { role, ..Packet::media(codec, keyframe, dts_ns, dts_ns, payload) }
}

/// Keyframes of 100 kB every two seconds, other frames of 23.6 kB, audio packets of 427 bytes. Each payload has its own
/// memory, so that reads come from memory and not from a cache.
fn packets() -> Vec<Packet> {
    let payload = |bytes: usize| Bytes::from(vec![0x5a; bytes]);
    let mut packets = vec![
        packet(Codec::H264, Role::Config, false, 0, Bytes::from_static(RECORDS[0].1)),
        packet(Codec::Aac, Role::Config, false, 0, Bytes::from_static(RECORDS[2].1)),
    ];
    for frame in 0..SECONDS * 30 {
        let keyframe = frame % 60 == 0;
        let bytes = if keyframe { 100_000 } else { 23_600 };
        let dts = frame * 100 / 3 * MILLI;
        packets.push(packet(Codec::H264, Role::Data, keyframe, dts, payload(bytes)));
    }
    for frame in 0..SECONDS * 48_000 / 1024 {
        let dts = frame * 1024 / 48 * MILLI;
        packets.push(packet(Codec::Aac, Role::Data, false, dts, payload(427)));
    }
    packets.sort_by_key(|packet| (!packet.is_config(), packet.dts_ns));
    packets
}

/// Packages all packets; returns the number of segments and bytes.
fn package(mut segmenter: Segmenter, packets: &[Packet]) -> (usize, usize) {
    let (mut playlist, mut number) = (None, 0);
    let (mut segments, mut bytes) = (0, 0);
    for packet in packets {
        segmenter.push(packet, 0);
        while let Some(event) = segmenter.poll_event() {
            match event {
                Event::Started { target_seconds } => {
                    let plain = MediaPlaylist::new(target_seconds, 3600);
                    playlist = Some(match segmenter.part_target_ns() {
                        None => plain,
                        Some(target_ns) => {
                            plain.with_parts(PartRules { target_ns, hold_back_ns: HOLD_BACK_NANOS })
                        }
                    });
                }
                Event::Part(part) => {
                    let entry = PartEntry {
                        sequence: part.sequence,
                        duration_ns: part.duration_ns,
                        independent: part.independent,
                        program_date_time_ms: part.program_date_time_ms,
                        discontinuity: part.discontinuity,
                        init: &init_name(1, part.init_id),
                        name: &part_name(1, number),
                        next: &part_name(1, number + 1),
                    };
                    number += 1;
                    let playlist = playlist.as_mut().expect("started first");
                    playlist.push_part(entry).expect("valid");
                    black_box((playlist.render(), playlist.render_delta()));
                }
                Event::Segment(segment) => {
                    segments += 1;
                    bytes += segment.bytes.len();
                    let entry = Entry {
                        sequence: segment.sequence,
                        duration_ns: segment.duration_ns,
                        program_date_time_ms: segment.program_date_time_ms,
                        discontinuity: segment.discontinuity,
                        independent: segment.independent,
                        init: &init_name(1, segment.init_id),
                        name: &segment_name(segment.sequence),
                    };
                    let playlist = playlist.as_mut().expect("started first");
                    playlist.push(entry).expect("valid");
                    black_box(playlist.render());
                }
                _ => {}
            }
        }
    }
    (segments, bytes)
}

/// Lists and renders a full window.
fn full_window(mut playlist: MediaPlaylist) -> MediaPlaylist {
    for sequence in 0..1900 {
        next(&mut playlist, sequence);
    }
    playlist
}

fn next(playlist: &mut MediaPlaylist, sequence: u64) {
    for index in 0..4 {
        part(playlist, sequence, index);
    }
    let entry = Entry {
        sequence,
        duration_ns: 2_000_000_000,
        program_date_time_ms: 1_700_000_000_000 + sequence as i64 * 2000,
        discontinuity: false,
        independent: true,
        init: "i0.mp4",
        name: &segment_name(sequence),
    };
    playlist.push(entry).expect("valid");
}

/// No effect on a playlist without parts.
fn part(playlist: &mut MediaPlaylist, sequence: u64, index: u64) {
    let entry = PartEntry {
        sequence,
        duration_ns: 500_000_000,
        independent: index == 0,
        program_date_time_ms: 1_700_000_000_000 + sequence as i64 * 2000,
        discontinuity: false,
        init: "i0.mp4",
        name: &part_name(1_700_000_000, sequence * 4 + index),
        next: &part_name(1_700_000_000, sequence * 4 + index + 1),
    };
    playlist.push_part(entry).expect("valid");
}

fn benches(criterion: &mut Criterion) {
    let packets = packets();
    let payload: usize = packets.iter().map(|packet| packet.payload.len()).sum();
    let (segments, bytes) = package(Segmenter::new(1), &packets);
    assert!(segments >= 28 && bytes * 10 > payload * 9, "{segments} segments, {bytes} of {payload} bytes");
    let mut group = criterion.benchmark_group("package");
    group.throughput(Throughput::Bytes(payload as u64));
    group.bench_function("a minute of 6 Mbps", |bencher| {
        bencher.iter(|| black_box(package(Segmenter::new(1), &packets)));
    });
    group.bench_function("a minute of 6 Mbps in parts", |bencher| {
        bencher.iter(|| black_box(package(Segmenter::new(1).with_parts(PART_NANOS), &packets)));
    });
    group.finish();
    let mut playlist = full_window(MediaPlaylist::new(2, 3600));
    let mut sequence = 1900;
    criterion.bench_function("playlist of 1800: push", |bencher| {
        bencher.iter(|| {
            next(&mut playlist, sequence);
            sequence += 1;
        });
    });
    criterion
        .bench_function("playlist of 1800: render", |bencher| bencher.iter(|| black_box(playlist.render())));
    let rules = PartRules { target_ns: 502_000_000, hold_back_ns: HOLD_BACK_NANOS };
    let mut near = full_window(MediaPlaylist::new(2, 3600).with_parts(rules));
    part(&mut near, 1900, 0);
    let (full, delta) = (near.render().expect("not empty"), near.render_delta().expect("long enough"));
    println!("with parts: {} bytes, the delta {}", full.len(), delta.len());
    criterion.bench_function("playlist of 1800 with parts: render", |bencher| {
        bencher.iter(|| black_box(near.render()));
    });
    criterion.bench_function("playlist of 1800 with parts: delta", |bencher| {
        bencher.iter(|| black_box(near.render_delta()));
    });
}

criterion_group!(package_benches, benches);
criterion_main!(package_benches);
