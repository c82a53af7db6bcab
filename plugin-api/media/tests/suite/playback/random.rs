//! Random packet streams, seeded: every sample comes out once and in order, times rise, memory is bounded.

use bytes::Bytes;
use satcast_media::fuzz::RECORDS;
use satcast_media::segment::{Event, Part, Segment, Segmenter, TARGET_EXCESS_NANOS};
use satcast_media::{Kind, Packet, Role};

use super::FIRST;
use crate::common::{MS, Random};

const STREAMS: u64 = 150;
const SEED: u64 = 0x5e90_e475_0000_0001;
/// Payload bytes that may be held for streams of at most [`PAYLOAD_BYTES_MAX`] a packet: 20 s of them.
const HELD_BYTES_BOUND: usize = 4 * 1024 * 1024;
const PAYLOAD_BYTES_MAX: usize = 400;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A publisher: regular most of the time, with occasional faults.
struct Publisher {
    random: Random,
    video: Option<usize>,
    audio: Option<usize>,
    frame_ns: i64,
    gop_frames: usize,
    now: [i64; 2],
    frames: usize,
    /// Number of the next sample of each track, written into its payload.
    samples: [u64; 2],
}

impl Publisher {
    fn new(mut random: Random) -> Self {
        let kind = random.below(8);
        Publisher {
            video: (kind != 0).then(|| random.below(2)),
            audio: (kind != 1).then(|| 2 + random.below(3)),
            frame_ns: [33, 40, 17, 100, 500][random.below(5)] * MS,
            gop_frames: 1 + random.below(150),
            now: [random.below(100_000) as i64 * MS; 2],
            frames: 0,
            samples: [0; 2],
            random,
        }
    }

    fn packet(&mut self, record: usize, role: Role, keyframe: bool) -> Packet {
        let (codec, bytes) = RECORDS[record];
        let track = usize::from(codec.kind() == Kind::Audio);
        let payload = match role {
            Role::Config => Bytes::from_static(bytes),
            Role::Data => {
                let mut payload = vec![0; 16 + self.random.below(PAYLOAD_BYTES_MAX - 16)];
                // The contents byte of Opus: 20 ms.
                payload[0] = 0xfc;
                let end = payload.len() - 8;
                payload[end..].copy_from_slice(&self.samples[track].to_be_bytes());
                self.samples[track] += 1;
                Bytes::from(payload)
            }
        };
        // Times are whole milliseconds.
        let dts_ns = self.now[track] / MS * MS;
        let composition = if track == 0 && !keyframe { self.random.below(4) as i64 - 1 } else { 0 };
        let pts_ns = dts_ns + composition * self.frame_ns;
        Packet { role, ..Packet::media(codec, keyframe, dts_ns, pts_ns, payload) }
    }

    fn records(&mut self) -> Vec<Packet> {
        let records: Vec<usize> = self.video.into_iter().chain(self.audio).collect();
        records.into_iter().map(|record| self.packet(record, Role::Config, false)).collect()
    }

    /// The next packets; `None` for a gap.
    fn next(&mut self) -> Option<Vec<Packet>> {
        match self.random.below(4000) {
            0 => return None,
            1 => self.now = [self.random.below(1 << 20) as i64 * MS; 2],
            2 => self.video = self.video.map(|record| 1 - record),
            3 => self.audio = Some(2 + self.random.below(3)),
            4 => self.audio = None,
            5 => self.now[0] += self.random.below(5000) as i64 * MS,
            6 => self.now[1] += self.random.below(5000) as i64 * MS - 1000 * MS,
            7 => self.gop_frames = 1 + self.random.below(400),
            8 => self.frame_ns = (1 + self.random.below(1500) as i64) * MS,
            _ => {
                let video_next = self.video.is_some() && (self.now[0] <= self.now[1] || self.audio.is_none());
                return Some(if video_next { self.video_frame() } else { self.audio() });
            }
        }
        Some(self.records())
    }

    fn video_frame(&mut self) -> Vec<Packet> {
        let Some(record) = self.video else { return vec![] };
        let keyframe = self.frames.is_multiple_of(self.gop_frames);
        self.frames += 1;
        // Headers are repeated with every keyframe.
        let mut packets = if keyframe { self.records() } else { vec![] };
        packets.push(self.packet(record, Role::Data, keyframe));
        // Whole milliseconds with jitter; sometimes two frames have the same time.
        self.now[0] += (self.frame_ns + (self.random.below(3) as i64 - 1) * MS).max(0);
        packets
    }

    fn audio(&mut self) -> Vec<Packet> {
        let Some(record) = self.audio else { return vec![] };
        let packet = self.packet(record, Role::Data, false);
        self.now[1] += match record {
            2 => 1024 * 1_000_000 / 48,
            3 => 1024 * 10_000_000 / 441,
            _ => 20 * MS,
        };
        vec![packet]
    }
}

/// State of each track so far: end in nanoseconds, and the last sample number.
#[derive(Default)]
struct Seen {
    ends: [u64; 2],
    samples: [Option<u64>; 2],
    count: u64,
}

impl Seen {
    /// Reads a segment, or a part of one.
    fn read(&mut self, file: &[u8], rates: [u64; 2]) {
        let moofs = super::check::moofs(file);
        for (at, traf) in moofs.iter().flat_map(|(at, moof)| moof.traf.iter().map(move |traf| (*at, traf))) {
            let track = traf.tfhd.track_id as usize - 1;
            let nanos = |ticks: u64| (u128::from(ticks) * 1_000_000_000 / u128::from(rates[track])) as u64;
            let mut tick = traf.tfdt.as_ref().expect("tfdt").base_media_decode_time;
            assert!(nanos(tick) + 50_000 >= self.ends[track], "{} after {}", nanos(tick), self.ends[track]);
            let trun = &traf.trun[0];
            let mut offset = at + trun.data_offset.expect("offset") as usize;
            for sample in trun.samples.iter() {
                // The number is at the end, because parameter sets may precede it.
                let end = offset + sample.size.expect("size") as usize;
                let number: [u8; 8] = file[end - 8..end].try_into().expect("eight bytes");
                let number = u64::from_be_bytes(number);
                let before = self.samples[track].replace(number);
                assert!(
                    before.is_none_or(|before| before < number),
                    "{number} of track {track} after {before:?}"
                );
                let duration = sample.duration.or(traf.tfhd.default_sample_duration).expect("duration");
                assert!(duration > 0);
                tick += u64::from(duration);
                offset = end;
                self.count += 1;
            }
            self.ends[track] = nanos(tick);
        }
    }
}

/// Checks that the segment is the concatenation of the parts.
fn assert_made_of(segment: &Segment, parts: &[Part], limit_ns: i64) {
    let bytes: Vec<&[u8]> = parts.iter().map(|part| &part.bytes[..]).collect();
    assert!(segment.bytes == bytes.concat(), "other bytes than those of the parts");
    let first = &parts[0];
    assert_eq!(
        (first.independent, first.program_date_time_ms),
        (segment.independent, segment.program_date_time_ms)
    );
    assert!(
        parts
            .iter()
            .all(|part| part.init_id == segment.init_id && part.discontinuity == segment.discontinuity)
    );
    let duration_ns: i64 = parts.iter().map(|part| part.duration_ns).sum();
    // A part never has duration 0: one of late audio may last a nanosecond.
    let apart = (duration_ns - segment.duration_ns).abs();
    let (sequence, listed_ns) = (segment.sequence, segment.duration_ns);
    assert!(listed_ns <= limit_ns, "segment {sequence} has a duration of {listed_ns} ns");
    assert!(apart <= parts.len() as i64, "parts of segment {sequence}: {duration_ns} ns, not {listed_ns} ns");
}

/// Runs one stream; returns the number of segments, of samples in them and of dropped samples.
fn stream(seed: u64) -> [u64; 3] {
    let mut random = Random::new(seed);
    let packets = 500 + random.below(6000);
    let mut publisher = Publisher::new(random);
    let mut segmenter = Segmenter::new(FIRST);
    // Every second stream has parts.
    if seed % 2 == 1 {
        segmenter = segmenter.with_parts(500 * MS);
    }
    let mut parts: Vec<Part> = vec![];
    let (mut seen, mut rates, mut target, mut next) = (Seen::default(), [90_000, 1], 0, FIRST);
    let mut wall = 0;
    let mut drain = |segmenter: &mut Segmenter| {
        while let Some(event) = segmenter.poll_event() {
            match event {
                Event::Started { target_seconds } => target = target_seconds,
                Event::TargetRaised { target_seconds } => {
                    assert!(target < target_seconds, "{target} s before {target_seconds} s");
                    target = target_seconds;
                }
                Event::Init(init) => rates[1] = init.audio.map_or(1, |track| u64::from(track.timescale())),
                Event::Segment(segment) => {
                    assert_eq!(segment.sequence, next);
                    next += 1;
                    assert!(segment.program_date_time_ms >= wall, "{segment:?}");
                    wall = segment.program_date_time_ms;
                    let limit = i64::from(target) * 1_000_000_000 + TARGET_EXCESS_NANOS;
                    assert!((1..=limit).contains(&segment.duration_ns), "{segment:?}");
                    match seed % 2 {
                        1 => assert_made_of(&segment, &std::mem::take(&mut parts), limit),
                        _ => seen.read(&segment.bytes, rates),
                    }
                }
                Event::Part(part) => {
                    assert_eq!((part.sequence, part.index as usize), (next, parts.len()));
                    seen.read(&part.bytes, rates);
                    parts.push(part);
                }
                Event::TrackRefused { .. } => panic!("records are valid"),
            }
        }
    };
    for record in publisher.records() {
        segmenter.push(&record, 0);
    }
    for at in 0..packets {
        match publisher.next() {
            None => segmenter.gap(),
            Some(packets) => packets.iter().for_each(|packet| segmenter.push(packet, at as i64 * 15)),
        }
        assert!(segmenter.held_bytes() < HELD_BYTES_BOUND, "{} bytes held", segmenter.held_bytes());
        drain(&mut segmenter);
    }
    segmenter.finish();
    drain(&mut segmenter);
    let stats = segmenter.stats();
    assert_eq!(stats.samples_in, stats.samples_out + stats.samples_dropped, "{stats:?}");
    assert_eq!((seen.count, segmenter.held_bytes()), (stats.samples_out, 0));
    [next - FIRST, stats.samples_out, stats.samples_dropped]
}

#[test]
fn random_streams_keep_the_rules() {
    let seed = number("SATCAST_SEED", SEED);
    let rounds = STREAMS * number("SATCAST_SOAK_ITERATIONS", 1);
    println!("seed {seed} (SATCAST_SEED), {rounds} streams");
    let mut total = [0; 3];
    for round in 0..rounds {
        println!("stream with seed {}", seed.wrapping_add(round));
        let counts = stream(seed.wrapping_add(round));
        total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }
    let [segments, samples, dropped] = total;
    println!("{segments} segments, {samples} samples, {dropped} dropped");
    assert!(
        segments > rounds * 5 && dropped * 3 < samples,
        "too few segments or too many drops to test the rules"
    );
}
