//! H.264 and AAC, as encoders send them.

use super::{Input, WALL_MS, check, package, packets, source};
use satcast_media::playlist::Multivariant;
use satcast_media::{Kind, Packet};

const X264: &str = "-c:v libx264 -preset veryfast -sc_threshold 0";

fn flv(rate: &str, arguments: &str) -> Vec<Packet> {
    let folder = tempfile::tempdir().expect("temporary folder");
    source::flv(folder.path(), rate, &arguments.replace("{x264}", X264))
}

fn durations(packaged: &super::Packaged) -> Vec<i64> {
    packaged.segments.iter().map(|segment| (segment.duration_ns + 500_000) / 1_000_000).collect()
}

#[test]
fn b_frames_of_ntsc_rate_with_mono_audio() {
    let source = flv("30000/1001", "{v} {a} -t 11 {x264} -bf 3 -g 60 -c:a aac -ac 1");
    let reordered = source.iter().any(|packet| packet.pts_ns > packet.dts_ns);
    assert!(reordered, "the encoder used no B-frames");
    let packaged = package(packets(source));
    check::all(&packaged);
    assert_eq!(packaged.target, 2);
    assert_eq!(durations(&packaged)[..5], [2002; 5]);
    // Audio before the first frame is dropped.
    assert!(packaged.stats.samples_dropped <= 4, "{:?}", packaged.stats);
    assert_eq!(packaged.stats.audio_resyncs, 0);
    let index = Multivariant::new(&packaged.inits[0], &packaged.rates());
    assert_eq!((index.frame_rate_milli, index.resolution), (Some(29_970), Some((320, 240))));
    assert!(index.codecs.starts_with("avc1.64") && index.codecs.ends_with(",mp4a.40.2"), "{}", index.codecs);
    assert_eq!(packaged.segments[0].program_date_time_ms - WALL_MS, 2, "the wall time of the first keyframe");
    assert_eq!(packaged.segments[1].program_date_time_ms - WALL_MS, 2004);
}

#[test]
fn keyframes_every_five_seconds() {
    let packaged = package(packets(flv("30", "{v} {a} -t 21 {x264} -g 150 -c:a aac")));
    check::all(&packaged);
    assert_eq!((packaged.target, packaged.stats.overlong_gops), (5, 0));
    assert_eq!(durations(&packaged), [5000, 5000, 5000, 5000, 1000]);
}

#[test]
fn gops_that_become_longer_are_not_cut() {
    // Keyframes of x264 with its defaults: every 250 frames, and at scene changes.
    let keys = "-force_key_frames 0,2,4,5.5,13.8,22.2 -g 9999";
    let packaged = package(packets(flv("30", &format!("{{v}} {{a}} -t 25 {{x264}} -bf 2 {keys} -c:a aac"))));
    check::all(&packaged);
    assert_eq!((packaged.target, packaged.stats.overlong_gops), (10, 0));
    assert_eq!(durations(&packaged), [2000, 2000, 1500, 8300, 8400, 2800]);
    assert!(packaged.playlist(&packaged.segments).contains("INDEPENDENT"));
}

#[test]
fn a_later_gop_that_is_too_long_is_cut_in_the_middle() {
    let keys = "-force_key_frames 0,2,4,19 -g 9999";
    let packaged = package(packets(flv("30", &format!("{{v}} {{a}} -t 21 {{x264}} -bf 2 {keys} -c:a aac"))));
    check::all(&packaged);
    assert_eq!((packaged.target, packaged.stats.overlong_gops), (10, 1), "{:?}", durations(&packaged));
    let independent: Vec<bool> = packaged.segments.iter().map(|segment| segment.independent).collect();
    assert_eq!(independent, [true, true, true, false, true]);
    assert!(!packaged.playlist(&packaged.segments).contains("INDEPENDENT"));
}

#[test]
fn a_variable_frame_rate() {
    let select =
        "-vf select='lt(mod(n,60),20)+not(mod(n,7))' -vsync vfr -force_key_frames expr:gte(t,n_forced*2)";
    let arguments = format!("{{v}} {{a}} -t 12 {select} {{x264}} -bf 2 -g 9999 -c:a aac");
    let packaged = package(packets(flv("30", &arguments)));
    check::all(&packaged);
    assert!(packaged.segments.len() >= 5, "{:?}", durations(&packaged));
}

#[test]
fn audio_only() {
    let packaged = package(packets(flv("30", "{a} -t 9 -c:a aac -ac 1")));
    check::all(&packaged);
    assert_eq!((packaged.target, packaged.stats.samples_dropped), (2, 0));
    assert!(durations(&packaged)[..4].iter().all(|length| (1980..2030).contains(length)));
    let index = Multivariant::new(&packaged.inits[0], &packaged.rates()).render("media.m3u8", true);
    let index = index.expect("plain name");
    assert!(index.contains("CODECS=\"mp4a.40.2\"\nmedia.m3u8\n"), "{index}");
}

#[test]
fn video_only() {
    let packaged = package(packets(flv("25", "{v} -t 9 {x264} -bf 2 -g 25")));
    check::all(&packaged);
    assert_eq!((packaged.target, packaged.stats.samples_dropped), (2, 0));
    assert_eq!(durations(&packaged), [2000, 2000, 2000, 2000, 1000]);
}

/// Two runs of different video size on one continuous timeline, as from one encoder.
#[test]
fn a_header_changes_in_the_middle() {
    let first = flv("30", "{v} {a} -t 7 {x264} -bf 2 -g 60 -c:a aac");
    let frames = first.iter().filter(|packet| packet.kind() == Kind::Video);
    let end_ns = frames.map(|packet| packet.dts_ns).max().expect("frames") + 33_000_000;
    let mut second = flv("30", "{v} {a} -t 6 -vf scale=480:270 {x264} -bf 2 -g 60 -c:a aac -ac 1");
    for packet in &mut second {
        packet.dts_ns += end_ns;
        packet.pts_ns += end_ns;
    }
    // Encoders repeat their headers at every keyframe; this must not cause a discontinuity.
    let records: Vec<Packet> = first.iter().filter(|packet| packet.is_config()).cloned().collect();
    let repeated = first.into_iter().flat_map(|packet| {
        let records = if packet.keyframe { records.clone() } else { vec![] };
        records.into_iter().chain([packet])
    });
    let packaged = package(repeated.chain(second).map(Input::Packet));
    check::all(&packaged);
    let flags: Vec<_> =
        packaged.segments.iter().map(|segment| (segment.init_id, segment.discontinuity)).collect();
    let plain = |id| (id, false);
    let expected = [plain(0), plain(0), plain(0), plain(0), (1, true), plain(1), plain(1)];
    assert_eq!(flags, expected);
    let text = packaged.playlist(&packaged.segments);
    assert_eq!(text.matches("#EXT-X-MAP:URI=\"i1760000000-1.mp4\"\n").count(), 1, "{text}");
    assert!(packaged.stats.samples_dropped < 10, "{:?}", packaged.stats);
}

/// The encoder disconnects in the middle of a segment and reconnects with another video size and times from 0.
#[test]
fn a_reconnect_ends_the_unfinished_segment() {
    let mut first = flv("30", "{v} {a} -t 7 {x264} -bf 2 -g 60 -c:a aac");
    first.truncate(first.len() - 4);
    let second = flv("30", "{v} {a} -t 6 -vf scale=480:270 {x264} -bf 2 -g 60 -c:a aac");
    let inputs = packets(first).chain([Input::Gap]).chain(packets(second));
    let packaged = package(inputs);
    check::all(&packaged);
    assert_eq!(durations(&packaged), [2000, 2000, 2000, 1000, 2000, 2000, 2000]);
    let breaks: Vec<usize> = (0..7).filter(|index| packaged.segments[*index].discontinuity).collect();
    assert_eq!(breaks, [4]);
    // Audio before the first frame of each run.
    assert!(packaged.stats.samples_dropped < 10, "{:?}", packaged.stats);
    let sequences: Vec<u64> =
        packaged.segments.iter().map(|segment| segment.sequence - super::FIRST).collect();
    assert_eq!(sequences, [0, 1, 2, 3, 4, 5, 6]);
    let times: Vec<i64> = packaged.segments.iter().map(|segment| segment.program_date_time_ms).collect();
    assert!(times.is_sorted(), "{times:?}");
}
