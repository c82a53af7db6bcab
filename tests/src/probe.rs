//! ffprobe and ffmpeg as judges of what a viewer gets.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::flv;
use crate::hls::Piece;
use crate::process::guarded;
use crate::record::{Record, Track};

/// Times in ffprobe's answers have six digits, EXTINF five.
const ROUNDING_SECONDS: f64 = 0.000_1;

/// One packet of a segment, as ffprobe sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packet {
    /// Picture or sound.
    pub track: Track,
    /// Presentation time, seconds.
    pub pts: f64,
    /// Decoding time, seconds.
    pub dts: f64,
    /// How long it is shown, seconds; 0 when the file does not say.
    pub duration: f64,
    /// A decoder can start here.
    pub keyframe: bool,
}

/// What one track of a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// ffmpeg's name of the codec.
    pub codec: String,
    /// Width and height of a picture track.
    pub size: Option<(u64, u64)>,
    /// Rate and channels of a sound track.
    pub sound: Option<(u64, u64)>,
}

/// Packets of a segment.
///
/// # Panics
/// When ffprobe cannot read it.
#[track_caller]
#[must_use]
pub fn packets(piece: &Piece) -> Vec<Packet> {
    let file = Scratch::of(&[&piece.init, &piece.bytes]);
    let entries = "packet=codec_type,pts_time,dts_time,duration_time,flags";
    let answer = ffprobe(&["-show_entries", entries, "-of", "json"], &file.path);
    let list = answer["packets"].as_array().cloned().unwrap_or_default();
    list.iter()
        .map(|packet| packet_of(packet).unwrap_or_else(|| panic!("a packet without times: {packet}")))
        .collect()
}

/// Tracks of a segment.
///
/// # Panics
/// When ffprobe cannot read it.
#[track_caller]
#[must_use]
pub fn streams(piece: &Piece) -> Vec<Stream> {
    let file = Scratch::of(&[&piece.init, &piece.bytes]);
    let answer = ffprobe(&["-show_streams", "-of", "json"], &file.path);
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let stream = |stream: &Value| Stream {
        codec: stream["codec_name"].as_str().unwrap_or_default().to_owned(),
        size: number(&stream["width"]).zip(number(&stream["height"])),
        sound: number(&stream["sample_rate"]).zip(number(&stream["channels"])),
    };
    answer["streams"].as_array().into_iter().flatten().map(stream).collect()
}

/// Expects of every segment: it begins with a keyframe, times of decoding rise, sound begins with the picture, and
/// EXTINF is its real length within a frame, as is the sum of all up to it. Gives the packets of each.
///
/// The real length is the time to the next segment's first picture, and the sum of the frames for the last one and
/// before a discontinuity.
///
/// # Panics
/// With the first segment that is otherwise.
#[track_caller]
pub fn assert_segments(pieces: &[Piece]) -> Vec<Vec<Packet>> {
    let all: Vec<Vec<Packet>> = pieces.iter().map(packets).collect();
    let mut drift = 0.0;
    for (at, piece) in pieces.iter().enumerate() {
        let (entry, here) = (&piece.entry, &all[at]);
        assert!(here.iter().any(|packet| packet.track == Track::Video), "no picture in {entry:?}");
        for track in [Track::Video, Track::Audio] {
            let of_track: Vec<Packet> = here.iter().copied().filter(|packet| packet.track == track).collect();
            if let Some(pair) = of_track.windows(2).find(|pair| pair[0].dts >= pair[1].dts) {
                panic!("decoding times of {entry:?} do not rise: {pair:?}");
            }
        }
        let pictures: Vec<Packet> =
            here.iter().copied().filter(|packet| packet.track == Track::Video).collect();
        assert!(pictures[0].keyframe, "{entry:?} does not begin with a keyframe: {:?}", pictures[0]);
        let frame = pictures.iter().map(|packet| packet.duration).fold(0.0, f64::max) + ROUNDING_SECONDS;
        let frames: f64 = pictures.iter().map(|packet| packet.duration).sum();
        let next = pieces
            .get(at + 1)
            .filter(|next| !next.entry.discontinuity && next.entry.sequence == entry.sequence + 1);
        let real = match next {
            Some(_) => first_picture(&all[at + 1]).dts - pictures[0].dts,
            None => frames,
        };
        drift = if entry.discontinuity { 0.0 } else { drift } + entry.duration - real;
        assert!((entry.duration - real).abs() <= frame, "{entry:?} lasts {real} s");
        assert!((frames - real).abs() <= frame, "the frames of {entry:?} last {frames} s, not {real} s");
        assert!(drift.abs() <= frame, "EXTINF is off by {drift} s up to {entry:?}");
    }
    all
}

/// The first picture of a segment.
///
/// # Panics
/// When there is none.
#[track_caller]
#[must_use]
pub fn first_picture(packets: &[Packet]) -> Packet {
    *packets.iter().find(|packet| packet.track == Track::Video).expect("a picture")
}

/// Expects that ffmpeg decodes the segments without a word, those of each initialization segment in one go.
///
/// # Panics
/// With what ffmpeg said.
#[track_caller]
pub fn assert_decodes(pieces: &[Piece]) {
    for run in runs(pieces) {
        let file = scratch_of(run);
        let mut ffmpeg = ffmpeg();
        let output = ffmpeg.arg("-i").arg(&file.path).args(["-f", "null", "-"]).output();
        assert_silent(&format!("{} segments of {}", run.len(), run[0].entry.init), &output.expect("ffmpeg"));
    }
}

/// Expects that ffmpeg plays `url` for `seconds` without a word; gives the pictures that it decoded.
///
/// # Panics
/// With what ffmpeg said.
#[track_caller]
#[must_use]
pub fn assert_plays(url: &str, seconds: u64) -> u64 {
    let mut ffmpeg = ffmpeg();
    ffmpeg.args(["-progress", "pipe:1", "-i", url, "-t", &seconds.to_string(), "-f", "null", "-"]);
    let output = ffmpeg.output().expect("ffmpeg");
    assert_silent("the stream", &output);
    let progress = String::from_utf8_lossy(&output.stdout).into_owned();
    let frames = progress.lines().filter_map(|line| line.strip_prefix("frame=")).next_back();
    frames.and_then(|frames| frames.trim().parse().ok()).unwrap_or_else(|| panic!("no frame: {progress}"))
}

/// The H.264 and AAC packets of segments of one initialization segment, as ffmpeg takes them out.
///
/// # Panics
/// When ffmpeg cannot.
#[track_caller]
#[must_use]
pub fn records(pieces: &[Piece]) -> Vec<Record> {
    let file = scratch_of(pieces);
    let flv = file.folder.path().join("out.flv");
    let mut ffmpeg = ffmpeg();
    let output = ffmpeg.arg("-i").arg(&file.path).args(["-c", "copy", "-f", "flv"]).arg(&flv).output();
    assert_silent("the segments", &output.expect("ffmpeg"));
    flv::read(&flv)
}

/// Stretches of segments with one initialization segment and no discontinuity between.
#[must_use]
pub fn runs(pieces: &[Piece]) -> Vec<&[Piece]> {
    pieces.chunk_by(|one, next| one.entry.init == next.entry.init && !next.entry.discontinuity).collect()
}

fn packet_of(packet: &Value) -> Option<Packet> {
    let seconds = |field: &str| packet[field].as_str()?.parse().ok();
    Some(Packet {
        track: match packet["codec_type"].as_str()? {
            "video" => Track::Video,
            "audio" => Track::Audio,
            _ => return None,
        },
        pts: seconds("pts_time")?,
        dts: seconds("dts_time")?,
        // A packet whose end is not said lasts until the next.
        duration: seconds("duration_time").unwrap_or(0.0),
        keyframe: packet["flags"].as_str()?.starts_with('K'),
    })
}

fn ffmpeg() -> Command {
    let mut command = guarded(Path::new("ffmpeg"));
    command.args(["-nostdin", "-hide_banner", "-v", "warning"]);
    command
}

#[track_caller]
fn ffprobe(arguments: &[&str], file: &Path) -> Value {
    let mut command = guarded(Path::new("ffprobe"));
    let output = command.args(["-v", "warning"]).args(arguments).arg(file).output().expect("ffprobe");
    assert_silent("a segment", &output);
    serde_json::from_slice(&output.stdout).expect("JSON of ffprobe")
}

#[track_caller]
fn assert_silent(what: &str, output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{what}: {}: {said}", output.status);
}

/// A file of bytes that goes with its folder.
struct Scratch {
    folder: TempDir,
    path: PathBuf,
}

impl Scratch {
    fn of(parts: &[&[u8]]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for segments");
        let path = folder.path().join("segment.mp4");
        std::fs::write(&path, parts.concat()).expect("a file for a segment");
        Self { folder, path }
    }
}

fn scratch_of(pieces: &[Piece]) -> Scratch {
    let init = pieces.first().map(|piece| piece.init.as_slice());
    let parts: Vec<&[u8]> =
        init.into_iter().chain(pieces.iter().map(|piece| piece.bytes.as_slice())).collect();
    Scratch::of(&parts)
}
