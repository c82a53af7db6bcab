//! Clips of written segments: tables read back, ranges, hostile input.

use mp4_atom::{Decode as _, Ftyp, StszSamples};

use super::*;
use crate::fmp4::read::tests::{Written, programme, segments};
use crate::fmp4::tests::{AV1, HEVC};
use crate::fmp4::{AUDIO_TRACK_ID, BoxHeader, TrackRun, VIDEO_TRACK_ID, first_frame, media_segment};
use crate::fuzz::RECORDS;
use crate::testing::{Random, hex};
use crate::{Codec, Packet};

const MILLI: i64 = NANOS_PER_MILLI;

/// The source of written segments, each with its own number.
fn source(written: &Written) -> ClipSource {
    let mut source = ClipSource::new(&written.init).expect("an init segment");
    for (number, (bytes, _)) in written.segments.iter().enumerate() {
        let mut at = 0;
        while let Some(header) = BoxHeader::parse(&bytes[at..]) {
            let end = at + header.bytes as usize;
            if &header.kind == b"moof" {
                let pushed = source.push(&bytes[at..end], number as u32, at as u64, bytes.len() as u64);
                assert_eq!(pushed, Ok(()));
            }
            at = end;
        }
    }
    source
}

/// The whole file of a clip.
fn file(clip: &Clip, written: &Written) -> Vec<u8> {
    let mut file = clip.head.to_vec();
    for range in &clip.ranges {
        let from = &written.segments[range.source as usize].0;
        file.extend_from_slice(&from[range.offset as usize..(range.offset + range.bytes) as usize]);
    }
    assert_eq!(file.len() as u64, clip.bytes());
    file
}

/// A sample as a player reads it: presentation time in nanoseconds after the edit list, payload, keyframe.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    at_ns: i64,
    payload: Vec<u8>,
    keyframe: bool,
}

/// The tracks of a file: timescale and samples.
fn tracks(file: &[u8]) -> Vec<(u32, Vec<Shown>)> {
    let mut rest = file;
    Ftyp::decode(&mut rest).expect("ftyp first");
    let moov = Moov::decode(&mut rest).expect("moov before the media");
    assert_eq!(
        (&rest[4..8], rest.len()),
        (&b"mdat"[..], u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize)
    );
    assert!(moov.mvex.is_none());
    moov.trak.iter().map(|trak| (trak.tkhd.track_id, samples(trak, file))).collect()
}

fn samples(trak: &mp4_atom::Trak, file: &[u8]) -> Vec<Shown> {
    let stbl = &trak.mdia.minf.stbl;
    let StszSamples::Different { sizes } = &stbl.stsz.samples else { panic!("sizes") };
    let deltas: Vec<u32> =
        stbl.stts.entries.iter().flat_map(|run| vec![run.sample_delta; run.sample_count as usize]).collect();
    let composed: Vec<i64> = match &stbl.ctts {
        Some(ctts) => {
            ctts.entries.iter().flat_map(|run| vec![run.sample_offset; run.sample_count as usize]).collect()
        }
        None => vec![0; sizes.len()],
    };
    assert_eq!((deltas.len(), composed.len()), (sizes.len(), sizes.len()));
    let edits = &trak.edts.as_ref().unwrap().elst.as_ref().unwrap().entries;
    let wait: u64 =
        edits.iter().filter(|edit| edit.media_time.is_none()).map(|edit| edit.segment_duration).sum();
    let skipped = edits.last().unwrap().media_time.unwrap();
    let scale = trak.mdia.mdhd.timescale;
    let (mut next, mut dts, mut shown) = (0, 0_i64, Vec::new());
    for (chunk, at) in stbl.stco.as_ref().unwrap().entries.iter().enumerate() {
        let length = stbl.stsc.entries.iter().rfind(|entry| entry.first_chunk as usize <= chunk + 1).unwrap();
        let mut at = *at as usize;
        for _ in 0..length.samples_per_chunk {
            let end = at + sizes[next] as usize;
            let ticks = dts + composed[next] - skipped as i64;
            let at_ns =
                ticks_to_nanos(ticks.unsigned_abs(), scale) * ticks.signum() + ticks_to_nanos(wait, 90_000);
            let keyframe = stbl.stss.as_ref().is_none_or(|stss| stss.entries.contains(&(next as u32 + 1)));
            shown.push(Shown { at_ns, payload: file[at..end].to_vec(), keyframe });
            (at, dts, next) = (end, dts + i64::from(deltas[next]), next + 1);
        }
    }
    assert_eq!(next, sizes.len(), "every sample is in a chunk");
    shown
}

/// The packets of a kind, with their presentation times.
fn given(packets: &[Packet], kind: Kind) -> Vec<(i64, &[u8])> {
    let media = packets.iter().filter(|packet| !packet.is_config() && packet.kind() == kind);
    media.map(|packet| (packet.pts_ns, &packet.payload[..])).collect()
}

#[test]
fn a_clip_of_any_range_has_the_packets_of_that_range() {
    let codecs = [
        (RECORDS[0], RECORDS[2]),
        ((Codec::Hevc, &hex(HEVC)[..]), RECORDS[4]),
        ((Codec::Av1, &hex(AV1)[..]), RECORDS[2]),
    ];
    let mut random = Random::new(28);
    for (video, audio) in codecs {
        for parts in [false, true] {
            let packets = programme(video, audio, 0);
            let written = segments(&packets, parts);
            let source = source(&written);
            for _ in 0..60 {
                let from = random.below(5_500) as i64 * MILLI;
                let to = from + (1 + random.below(3_000)) as i64 * MILLI;
                let clip = source.cut(from, to).expect("a clip");
                check(&clip, &file(&clip, &written), &packets, (from, to));
            }
        }
    }
}

fn check(clip: &Clip, file: &[u8], packets: &[Packet], (from, to): (i64, i64)) {
    let tracks = tracks(file);
    let (_, video) = tracks.iter().find(|(id, _)| *id == VIDEO_TRACK_ID).expect("video");
    let sent = given(packets, Kind::Video);
    let begin = sent.iter().position(|(_, payload)| *payload == video[0].payload).expect("was sent");
    assert!(video[0].keyframe && begin % 25 == 0, "begins with a keyframe");
    // The source begins with its first packet, so both clocks are equal.
    assert_eq!(clip.start_ns, sent[begin].0);
    let is_last = sent.get(begin + 25).is_none_or(|(next, _)| *next > from);
    assert!((clip.start_ns <= from || begin == 0) && is_last, "at most one GOP early");
    let poster = first_frame(&clip.head).expect("tables").expect("video");
    let place = poster.offset as usize..poster.offset as usize + poster.bytes as usize;
    assert_eq!((&file[place], poster.config.kind()), (&video[0].payload[..], Kind::Video));
    assert!(!clip.audio_only);
    for (shown, (at, payload)) in video.iter().zip(&sent[begin..]) {
        assert_eq!(shown.payload, *payload);
        assert!((shown.at_ns - (at - clip.start_ns)).abs() < 12_000, "{shown:?} {at}");
    }
    let last = sent[begin + video.len() - 1].0;
    assert!(last <= to + 200 * MILLI && (sent.len() == begin + video.len() || last >= to - 200 * MILLI));
    let Some((_, audio)) = tracks.iter().find(|(id, _)| *id == AUDIO_TRACK_ID) else { panic!("audio") };
    let sent = given(packets, Kind::Audio);
    // Payloads repeat after four seconds.
    let same = (0..sent.len()).filter(|index| sent[*index].1 == audio[0].payload);
    let begin = same.min_by_key(|index| (sent[*index].0 - clip.start_ns).abs()).expect("was sent");
    for (shown, (at, payload)) in audio.iter().zip(&sent[begin..]) {
        assert_eq!(shown.payload, *payload);
        assert!((shown.at_ns - (at - clip.start_ns)).abs() < 40 * MILLI, "in time with the video");
    }
    let (first, last) = (audio[0].at_ns, audio[audio.len() - 1].at_ns);
    assert!(
        (-40 * MILLI..40 * MILLI).contains(&first) || sent[0].0 > clip.start_ns,
        "begins with the video: {first}"
    );
    assert!(last < clip.duration_ns && clip.duration_ns < to - from + 1_500 * MILLI);
}

#[test]
fn a_range_outside_of_the_media_is_no_clip() {
    let written = segments(&programme(RECORDS[0], RECORDS[2], 0), false);
    let source = source(&written);
    assert_eq!(source.cut(-2_000 * MILLI, -1_000 * MILLI), Err(Fmp4Error::NoMedia));
    assert_eq!(ClipSource::new(&written.init).unwrap().cut(0, i64::MAX), Err(Fmp4Error::NoMedia));
    // All of it, and a range behind the end, which has the last GOP.
    let whole = source.cut(i64::MIN, i64::MAX).unwrap();
    assert_eq!(tracks(&file(&whole, &written))[0].1.len(), 150);
    let end = source.cut(i64::MAX - 1, i64::MAX).unwrap();
    assert_eq!(tracks(&file(&end, &written))[0].1.len(), 25);
}

#[test]
fn audio_alone_is_cut_at_its_packets() {
    let packets: Vec<Packet> = programme(RECORDS[0], RECORDS[4], 0)
        .into_iter()
        .filter(|packet| packet.kind() == Kind::Audio)
        .collect();
    let written = segments(&packets, false);
    let source = source(&written);
    let clip = source.cut(1_000 * MILLI, 2_000 * MILLI).unwrap();
    let tracks = tracks(&file(&clip, &written));
    assert_eq!((tracks.len(), tracks[0].0), (1, AUDIO_TRACK_ID));
    assert_eq!(tracks[0].1[0].at_ns, 0);
    assert_eq!((first_frame(&clip.head), clip.audio_only), (Ok(None), true));
    assert!((980 * MILLI..1_040 * MILLI).contains(&clip.duration_ns), "{}", clip.duration_ns);
}

#[test]
fn hostile_fragments_are_errors() {
    let written = segments(&programme(RECORDS[0], RECORDS[2], 0), false);
    let run = |decode_time, samples| TrackRun { track_id: VIDEO_TRACK_ID, decode_time, samples };
    let sample = |bytes: usize| crate::fmp4::Sample {
        duration: 1,
        composition: 0,
        sync: true,
        payload: Bytes::from(vec![0; bytes]),
    };
    let moof = |run: TrackRun| {
        let segment = media_segment(1, &[run]).unwrap();
        let styp = BoxHeader::parse(&segment).unwrap().bytes as usize;
        let end = styp + BoxHeader::parse(&segment[styp..]).unwrap().bytes as usize;
        segment.slice(styp..end)
    };
    let fresh = || ClipSource::new(&written.init).unwrap();
    let good = moof(run(9, vec![sample(5)]));
    assert_eq!(fresh().push(&good, 0, 0, 1_000), Ok(()));
    assert!(matches!(fresh().push(&good, 0, 0, 20), Err(Fmp4Error::Box(_))), "outside of the source");
    assert!(matches!(fresh().push(&good, 0, u64::MAX, u64::MAX), Err(Fmp4Error::Box(_))));
    assert!(matches!(fresh().push(&good[..9], 0, 0, 1_000), Err(Fmp4Error::Box(_))));
    let long = vec![0; MOOF_BYTES_MAX + 1];
    assert!(matches!(fresh().push(&long, 0, 0, 1_000), Err(Fmp4Error::Box(_))));
    let mut source = fresh();
    assert_eq!(source.push(&good, 0, 0, 1_000), Ok(()));
    let back = moof(run(8, vec![sample(5)]));
    assert!(matches!(source.push(&back, 0, 0, 1_000), Err(Fmp4Error::Box(_))), "times go back");
    // A gap that no table holds.
    let far = moof(run(1 << 40, vec![sample(5)]));
    assert_eq!(source.push(&far, 0, 500, 1_000), Ok(()));
    assert!(matches!(source.cut(i64::MIN, i64::MAX), Err(Fmp4Error::Box(_))));
    let mut unknown = moof(run(9, vec![sample(5)])).to_vec();
    let id = unknown.windows(4).position(|bytes| bytes == b"tfhd").unwrap() + 8;
    unknown[id + 3] = 9;
    assert_eq!(fresh().push(&unknown, 0, 0, 1_000), Err(Fmp4Error::Tracks));
}

#[test]
fn a_head_that_is_cut_off_or_not_ours_has_no_first_frame() {
    let written = segments(&programme(RECORDS[0], RECORDS[2], 0), false);
    let head = source(&written).cut(0, 1_000 * MILLI).unwrap().head;
    let whole = head.len() - 8;
    assert!(first_frame(&head[..whole]).is_ok());
    for end in (0..whole).step_by(7) {
        assert!(first_frame(&head[..end]).is_err(), "{end} of {whole}");
    }
    let mut random = Random::new(29);
    for _ in 0..2_000 {
        let mut hostile = head.to_vec();
        for _ in 0..=random.below(4) {
            let at = random.below(hostile.len());
            hostile[at] = random.below(256) as u8;
        }
        // Ends without a panic, whatever it finds.
        let _ = first_frame(&hostile);
    }
    // A fragmented file has empty tables.
    assert!(first_frame(&written.init).is_err());
}

#[test]
fn samples_and_bytes_are_limited() {
    let written = segments(&programme(RECORDS[0], RECORDS[2], 0), false);
    let of = |bytes: u32, count: usize| {
        let mut source = ClipSource::new(&written.init).unwrap();
        let sample = |number: usize| Sample {
            source: 0,
            bytes,
            offset: 0,
            dts: number as u64,
            duration: 1,
            composition: 0,
            keyframe: true,
        };
        source.tracks[0].samples = (0..count).map(sample).collect();
        source.samples = count;
        source
    };
    let most = (CLIP_BYTES_MAX / 1_000_000) as usize;
    assert!(of(1_000_000, most).cut(0, i64::MAX).is_ok());
    assert_eq!(of(1_000_000, most + 1).cut(0, i64::MAX), Err(Fmp4Error::ClipTooLarge));
    let (bytes, _) = &written.segments[0];
    let moof = bytes.windows(4).position(|kind| kind == b"moof").unwrap() - 4;
    let end = moof + BoxHeader::parse(&bytes[moof..]).unwrap().bytes as usize;
    let mut full = of(1, CLIP_SAMPLES_MAX);
    let pushed = full.push(&bytes[moof..end], 0, moof as u64, bytes.len() as u64);
    assert_eq!(pushed, Err(Fmp4Error::ClipTooLarge));
}
