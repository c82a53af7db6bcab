//! Reading segments with ffprobe and playlists with ffmpeg.

use std::path::Path;
use std::process::Command;

use mp4_atom::{Decode, Moof};
use satcast_media::segment::Segment;

use super::Packaged;

/// RTMP times are whole milliseconds, so frames are up to one longer than the shortest.
const ROUNDING: f64 = 0.001_1;

/// One packet as ffprobe reads it; times in seconds. Its durations are not used: they are guesses from the
/// codec.
#[derive(Debug, Clone, Copy)]
struct Read {
    pts: f64,
    key: bool,
}

/// Video and audio packets of a file. ffprobe must not warn about an independent segment.
fn probe(path: &Path, independent: bool) -> [Vec<Read>; 2] {
    let entries = "packet=codec_type,pts_time,flags";
    let mut command = Command::new("ffprobe");
    let level = if independent { "warning" } else { "fatal" };
    command.args(["-v", level, "-show_entries", entries, "-of", "csv=p=0"]).arg(path);
    let output = command.output().expect("ffprobe is installed (cargo xtask setup)");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{path:?}: {errors}");
    let mut read = [vec![], vec![]];
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let fields: Vec<&str> = line.split(',').collect();
        let pts = fields[1].parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
        read[usize::from(fields[0] == "audio")].push(Read { pts, key: fields[2].contains('K') });
    }
    read
}

/// First and last presentation time, and the longest distance between two.
fn span(track: &[Read]) -> (f64, f64, f64) {
    let mut times: Vec<f64> = track.iter().map(|read| read.pts).collect();
    times.sort_by(f64::total_cmp);
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    (times[0], times[times.len() - 1], longest)
}

/// Reads every segment on its own: it starts with a keyframe if it is marked independent, EXTINF is its presentation
/// span within a frame, and its tracks start and end within a frame of each other.
fn segments(packaged: &Packaged, folder: &Path) {
    for (index, segment) in packaged.segments.iter().enumerate() {
        let path = super::write(folder, "whole.mp4", &packaged.whole(segment));
        let [video, audio] = probe(&path, segment.independent);
        let label = format!("segment {index} of {}", packaged.segments.len());
        assert_eq!(video.len(), segment.video_samples as usize, "{label}");
        let main = if video.is_empty() { &audio } else { &video };
        assert!(main[0].key == segment.independent, "{label} starts with {:?}", main[0]);
        let (start, end, frame) = span(main);
        let extinf = segment.duration_ns as f64 / 1e9;
        let last_frame = extinf - (end - start);
        // A cut among B-frames is between decode times: frames may be presented before or after it.
        let cut_inside_gop =
            !segment.independent || packaged.segments.get(index + 1).is_some_and(|next| !next.independent);
        let slack = if cut_inside_gop { 4.0 } else { 1.0 } * frame + ROUNDING;
        let least = if cut_inside_gop { -slack } else { 0.0 };
        assert!((least..=slack).contains(&last_frame), "{label}: EXTINF {extinf}, {start} to {end}");
        if !video.is_empty() && !audio.is_empty() {
            let (audio_start, audio_end, audio_frame) = span(&audio);
            let longest = frame.max(audio_frame) * if cut_inside_gop { 4.0 } else { 1.0 } + ROUNDING;
            assert!((audio_start - start).abs() <= longest, "{label}: {start} s, audio {audio_start} s");
            let last = packaged.segments.get(index + 1).is_none_or(|next| next.discontinuity);
            let rest = start + extinf - audio_end;
            // After a cut inside a GOP, the segment does not start at the time of its first frame.
            let early = if cut_inside_gop { longest } else { ROUNDING };
            assert!(last || (-early..=longest).contains(&rest), "{label}: audio ends {rest} s early");
        }
    }
}

/// The `moof` boxes in a segment or a part, each with its offset.
pub(super) fn moofs(file: &[u8]) -> Vec<(usize, Moof)> {
    let (mut moofs, mut at) = (Vec::new(), 0);
    while at < file.len() {
        let rest = &file[at..];
        if &rest[4..8] == b"moof" {
            moofs.push((at, Moof::decode(&mut &rest[..]).expect("valid moof")));
        }
        at += u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
    }
    moofs
}

/// Start and end of each run of samples in a segment, in ticks of its track.
fn times(segment: &Segment) -> Vec<(u32, u64, u64)> {
    let track = |traf: &mp4_atom::Traf| {
        let start = traf.tfdt.as_ref().expect("tfdt").base_media_decode_time;
        let duration = |sample: mp4_atom::TrunEntry| sample.duration.or(traf.tfhd.default_sample_duration);
        let samples = traf.trun.iter().flat_map(|trun| trun.samples.iter());
        let ticks: u64 = samples.map(|sample| u64::from(duration(sample).expect("duration"))).sum();
        (traf.tfhd.track_id, start, start + ticks)
    };
    moofs(&segment.bytes).iter().flat_map(|(_, moof)| moof.traf.iter().map(track)).collect()
}

/// Each track continues at the tick where it stopped, and never goes back.
fn decode_times(packaged: &Packaged) {
    let mut ends = [0; 3];
    for segment in &packaged.segments {
        for (track, start, end) in times(segment) {
            let before = std::mem::replace(&mut ends[track as usize], end);
            let joined =
                start == before || (before == 0 && segment.sequence == packaged.segments[0].sequence);
            assert!(joined || (segment.discontinuity && start > before), "{start} after {before} of {track}");
        }
    }
}

/// Decodes playlists: ffmpeg must not warn.
pub(super) fn playlists(packaged: &Packaged, folder: &Path) {
    for path in packaged.write(folder) {
        let mut command = Command::new("ffmpeg");
        command.args(["-v", "warning", "-xerror", "-allowed_extensions", "ALL", "-i"]).arg(&path);
        let output = command.args(["-f", "null", "-"]).output().expect("ffmpeg is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{path:?}: {errors}");
    }
}

/// Checks that apply to every stream.
pub(super) fn all(packaged: &Packaged) {
    if let Some(keep) = std::env::var_os("SATCAST_KEEP_PLAYLISTS") {
        let name = std::thread::current().name().unwrap_or("test").replace(':', "_");
        let keep = Path::new(&keep).join(name);
        std::fs::create_dir_all(&keep).expect("folder to keep");
        packaged.write(&keep);
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    segments(packaged, folder.path());
    decode_times(packaged);
    playlists(packaged, folder.path());
}
