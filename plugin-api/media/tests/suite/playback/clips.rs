//! Clips of real streams: ffmpeg decodes exactly the frames of the range, and ffprobe finds audio and video together.

use std::path::Path;
use std::process::Command;

use satcast_media::fmp4::{BoxHeader, Clip, ClipSource};

use super::source::{flv, mp4};
use super::{Packaged, package, packets};
use crate::common::Random;

const VIDEO: &str = "-f lavfi -i testsrc2=size=320x180:rate=25";
const AUDIO: &str = "-f lavfi -i sine=frequency=440:sample_rate=48000";
/// Largest distance between the starts of audio and video, in seconds.
const APART_MAX: f64 = 0.040;
const GOP_NANOS: i64 = 1_000_000_000;

fn output(program: &str, arguments: &str, path: &Path) -> String {
    let mut command = Command::new(program);
    let arguments = arguments.split_whitespace().map(|word| match word {
        "{}" => path.as_os_str(),
        word => word.as_ref(),
    });
    let output = command.args(["-v", "error"]).args(arguments).output().expect("ffmpeg is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{program} {path:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Hashes of the decoded frames of a file.
fn frames(path: &Path) -> Vec<String> {
    let text = output("ffmpeg", "-i {} -map 0:v -fps_mode passthrough -f framemd5 -", path);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit(',').next().unwrap_or_default().trim().to_owned()).collect()
}

/// Presentation time in seconds of the first packet of each kind that is not discarded.
fn starts(path: &Path) -> [f64; 2] {
    let text = output("ffprobe", "-show_entries packet=codec_type,pts_time,flags -of csv=p=0 {}", path);
    let first = |kind: &str| {
        let lines = text.lines().filter(|line| line.starts_with(kind) && !line.contains('D'));
        let times = lines.map(|line| line.split(',').nth(1).and_then(|time| time.parse::<f64>().ok()));
        times.map(|time| time.expect("a time")).fold(f64::MAX, f64::min)
    };
    [first("video"), first("audio")]
}

fn source(packaged: &Packaged) -> ClipSource {
    let mut source = ClipSource::new(&packaged.inits[0].bytes).expect("an init segment");
    for (number, segment) in packaged.segments.iter().enumerate() {
        let (bytes, mut at) = (&segment.bytes, 0);
        while let Some(header) = BoxHeader::parse(&bytes[at..]) {
            let end = at + header.bytes as usize;
            if &header.kind == b"moof" {
                let pushed = source.push(&bytes[at..end], number as u32, at as u64, bytes.len() as u64);
                pushed.expect("segments of this crate");
            }
            at = end;
        }
    }
    source
}

fn file(clip: &Clip, packaged: &Packaged) -> Vec<u8> {
    let mut file = clip.head.to_vec();
    for range in &clip.ranges {
        let from = &packaged.segments[range.source as usize].bytes;
        file.extend_from_slice(&from[range.offset as usize..(range.offset + range.bytes) as usize]);
    }
    file
}

/// Cuts random ranges and compares them with the whole stream.
fn check(name: &str, packaged: &Packaged, clips: usize) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let whole: Vec<u8> =
        packaged.segments.iter().fold(packaged.inits[0].bytes.to_vec(), |mut whole, segment| {
            whole.extend_from_slice(&segment.bytes);
            whole
        });
    let all = frames(&super::write(folder.path(), "whole.mp4", &whole));
    let source = source(packaged);
    let first_ns = source.first_ns().expect("media");
    let mut random = Random::new(28);
    for number in 0..clips {
        let from = first_ns + random.below(4_000) as i64 * 1_000_000;
        let to = from + (200 + random.below(2_500)) as i64 * 1_000_000;
        let clip = source.cut(from, to).expect("a clip");
        assert!(clip.start_ns <= from && from - clip.start_ns < GOP_NANOS, "{name}: at most one GOP early");
        let path = super::write(folder.path(), &format!("{number}.mp4"), &file(&clip, packaged));
        let shown = frames(&path);
        let begin = ((clip.start_ns - first_ns) as f64 / 40e6).round() as usize;
        let expected = &all[begin..(begin + shown.len()).min(all.len())];
        assert!(!shown.is_empty() && shown == expected, "{name} clip {number}: frames from {begin}");
        let [video, audio] = starts(&path);
        assert!(video.abs() < 0.001, "{name} clip {number} begins at {video}");
        assert!((video - audio).abs() <= APART_MAX, "{name} clip {number}: video {video}, audio {audio}");
    }
}

#[test]
fn clips_of_h264_have_the_frames_of_their_range() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let arguments =
        "{v} {a} -t 6 -c:v libx264 -preset ultrafast -bf 2 -g 25 -keyint_min 25 -sc_threshold 0 -c:a aac";
    check("h264", &package(packets(flv(folder.path(), "25", arguments))), 8);
}

#[test]
fn clips_of_hevc_with_opus_have_the_frames_of_their_range() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let x265 = "-c:v libx265 -preset ultrafast -tag:v hvc1 -x265-params keyint=25:min-keyint=25:scenecut=0:log-level=none:open-gop=0";
    let arguments = format!("{VIDEO} {AUDIO} -t 6 {x265} -c:a libopus");
    check("hevc", &package(packets(mp4(folder.path(), &arguments))), 4);
}

#[test]
fn clips_of_av1_have_the_frames_of_their_range() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let aom = "-c:v libaom-av1 -cpu-used 8 -usage realtime -g 25 -keyint_min 25 -b:v 300k";
    let arguments = format!("{VIDEO} {AUDIO} -t 6 {aom} -c:a aac");
    check("av1", &package(packets(mp4(folder.path(), &arguments))), 4);
}
