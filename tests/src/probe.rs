//! Checks of received media with ffprobe and ffmpeg.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::boxes::{self, Span};
use crate::flv;
use crate::hls::Chunk;
use crate::playlist::Segment;
use crate::process::guarded;
use crate::record::{Record, Track};

/// Times of ffprobe have six decimals, EXTINF five.
const ROUNDING_SECONDS: f64 = 0.000_1;
/// Entries of ffprobe for [`Packet`].
const PACKET: &str = "packet=codec_type,pts_time,dts_time,flags";

/// One packet of a segment, as ffprobe sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packet {
    /// Kind of the track.
    pub track: Track,
    /// Presentation time, seconds.
    pub pts: f64,
    /// Decoding time, seconds.
    pub dts: f64,
    /// A decoder can start here.
    pub keyframe: bool,
}

/// The properties of one track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// ffmpeg's name of the codec.
    pub codec: String,
    /// Width and height of a video track.
    pub size: Option<(u64, u64)>,
    /// Rate and channels of a audio track.
    pub audio: Option<(u64, u64)>,
}

/// Packets of a segment.
///
/// # Panics
/// When ffprobe cannot read it.
#[track_caller]
#[must_use]
pub fn packets(chunk: &Chunk) -> Vec<Packet> {
    packets_of_run(std::slice::from_ref(chunk)).remove(0)
}

/// Packets of each of some segments with one initialization segment. One start of ffprobe reads them all: its start costs more
/// than the reading.
#[track_caller]
fn packets_of_run(chunks: &[Chunk]) -> Vec<Vec<Packet>> {
    let file = scratch_of(chunks);
    let answer = ffprobe(&["-show_entries", &format!("{PACKET},pos"), "-of", "json"], &file.path);
    let end_of = |end: &mut usize, chunk: &Chunk| {
        *end += chunk.bytes.len();
        Some(*end)
    };
    let ends: Vec<usize> = chunks.iter().scan(chunks[0].init.len(), end_of).collect();
    let mut all = vec![Vec::new(); chunks.len()];
    for packet in answer["packets"].as_array().into_iter().flatten() {
        let at = packet["pos"].as_str().and_then(|at| at.parse().ok());
        let at: usize = at.unwrap_or_else(|| panic!("a packet without a position: {packet}"));
        all[ends.partition_point(|end| *end <= at)].push(packet_of(packet));
    }
    all
}

/// Packets of a file, and the hash of each packet of its video.
///
/// # Panics
/// When ffprobe cannot read it.
#[track_caller]
#[must_use]
pub fn packets_and_hashes(path: &Path) -> (Vec<Packet>, Vec<String>) {
    let entries = format!("{PACKET},data_hash");
    let hashed = ["-show_entries", &entries, "-show_data_hash", "sha256", "-of", "json"];
    let answer = ffprobe(&hashed, path);
    let list = answer["packets"].as_array().map(Vec::as_slice).unwrap_or_default();
    let video = list.iter().filter(|packet| packet["codec_type"] == "video");
    (list.iter().map(packet_of).collect(), video.map(hash_of).collect())
}

/// Tracks of a segment.
///
/// # Panics
/// When ffprobe cannot read it.
#[track_caller]
#[must_use]
pub fn streams(chunk: &Chunk) -> Vec<Stream> {
    let file = Scratch::of(&[&chunk.init, &chunk.bytes]);
    let answer = ffprobe(&["-show_streams", "-of", "json"], &file.path);
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let stream = |stream: &Value| Stream {
        codec: stream["codec_name"].as_str().unwrap_or_default().to_owned(),
        size: number(&stream["width"]).zip(number(&stream["height"])),
        audio: number(&stream["sample_rate"]).zip(number(&stream["channels"])),
    };
    answer["streams"].as_array().into_iter().flatten().map(stream).collect()
}

/// Expects that every segment begins with a keyframe, that decoding times rise, that frames have no gap up to the next segment, and
/// that EXTINF and the sum of all EXTINF values so far are right to within a frame. Returns the packets of each segment.
///
/// The frames are those of the video, or of the audio where no segment has video.
///
/// # Panics
/// With the first segment that breaks a rule.
#[track_caller]
pub fn assert_segments(chunks: &[Chunk]) -> Vec<Vec<Packet>> {
    let all: Vec<Vec<Packet>> = runs(chunks).into_iter().flat_map(packets_of_run).collect();
    // One can be read without those before it.
    let alone = chunks.last().map(packets);
    assert_eq!(all.last(), alone.as_ref());
    let spans: Vec<Vec<Span>> = chunks.iter().map(spans).collect();
    let has_video = spans.iter().flatten().any(|span| span.track == Track::Video);
    let lead = if has_video { Track::Video } else { Track::Audio };
    let lead_of = |at: usize| {
        let span: Option<&Span> = spans[at].iter().find(|span| span.track == lead);
        span.unwrap_or_else(|| panic!("nothing of {lead:?} in {:?}", chunks[at].entry))
    };
    let mut drift = 0.0;
    for (at, chunk) in chunks.iter().enumerate() {
        let (entry, span) = (&chunk.entry, lead_of(at));
        assert_times_rise(entry, &all[at]);
        let here = of_track(&all[at], lead);
        assert!(here[0].keyframe, "{entry:?} does not begin with a keyframe: {:?}", here[0]);
        assert_eq!(
            here.len(),
            span.durations.len(),
            "ffprobe finds other frames than the boxes of {entry:?}"
        );
        let last = span.start + span.seconds();
        let next = chunks.get(at + 1).map(|next| &next.entry);
        if next.is_some_and(|next| !next.discontinuity && next.sequence == entry.sequence + 1) {
            let gap = lead_of(at + 1).start - last;
            assert!(gap.abs() <= ROUNDING_SECONDS, "{gap} s between {entry:?} and the next");
        }
        let frame = span.longest() + ROUNDING_SECONDS;
        drift = if entry.discontinuity { 0.0 } else { drift } + entry.duration - span.seconds();
        assert!((entry.duration - span.seconds()).abs() <= frame, "{entry:?} lasts {} s", span.seconds());
        assert!(drift.abs() <= frame, "EXTINF is off by {drift} s up to {entry:?}");
    }
    all
}

/// The times in the boxes of a segment.
///
/// # Panics
/// When they cannot be read.
#[track_caller]
#[must_use]
pub fn spans(chunk: &Chunk) -> Vec<Span> {
    let spans = boxes::spans(&chunk.init, &chunk.bytes);
    spans.unwrap_or_else(|error| panic!("{error} in {:?}", chunk.entry))
}

#[track_caller]
fn assert_times_rise(entry: &Segment, packets: &[Packet]) {
    for track in [Track::Video, Track::Audio] {
        if let Some(pair) = of_track(packets, track).windows(2).find(|pair| pair[0].dts >= pair[1].dts) {
            panic!("decoding times of {entry:?} do not rise: {pair:?}");
        }
    }
}

/// The packets of one track.
#[must_use]
pub fn of_track(packets: &[Packet], track: Track) -> Vec<Packet> {
    packets.iter().copied().filter(|packet| packet.track == track).collect()
}

/// Expects that ffmpeg decodes the segments without a message, those of one initialization segment together.
///
/// # Panics
/// With the output of ffmpeg.
#[track_caller]
pub fn assert_decodes(chunks: &[Chunk]) {
    for run in runs(chunks) {
        let file = scratch_of(run);
        let mut ffmpeg = ffmpeg();
        // Cameras have no steady rate: frames keep their own times.
        ffmpeg.arg("-i").arg(&file.path).args(["-enc_time_base", "-1", "-f", "null", "-"]);
        let output = ffmpeg.output();
        assert_silent(&format!("{} segments of {}", run.len(), run[0].entry.init), &output.expect("ffmpeg"));
    }
}

/// Expects that ffmpeg plays `url` for `seconds` without an error; gives the number of decoded frames.
///
/// Warnings are ignored: ffmpeg warns about every live stream of fragmented MP4, as it loads the initialization segment again with
/// each playlist.
///
/// # Panics
/// With the output of ffmpeg.
#[track_caller]
#[must_use]
pub fn assert_plays(url: &str, seconds: u64) -> u64 {
    let mut ffmpeg = ffmpeg();
    ffmpeg.args([
        "-v",
        "error",
        "-progress",
        "pipe:1",
        "-i",
        url,
        "-t",
        &seconds.to_string(),
        "-enc_time_base",
        "-1",
        "-f",
        "null",
        "-",
    ]);
    let output = ffmpeg.output().expect("ffmpeg");
    assert_silent("the stream", &output);
    let progress = String::from_utf8_lossy(&output.stdout).into_owned();
    let frames = progress.lines().filter_map(|line| line.strip_prefix("frame=")).next_back();
    frames.and_then(|frames| frames.trim().parse().ok()).unwrap_or_else(|| panic!("no frame: {progress}"))
}

/// The H.264 and AAC packets of segments with one initialization segment, read by ffmpeg, without parameter sets inside frames.
///
/// # Panics
/// When ffmpeg cannot.
#[track_caller]
#[must_use]
pub fn records(chunks: &[Chunk]) -> Vec<Record> {
    records_of_file(&scratch_of(chunks).path)
}

/// The same of a file.
///
/// # Panics
/// With what ffmpeg complains about.
#[track_caller]
#[must_use]
pub fn records_of_file(path: &Path) -> Vec<Record> {
    let folder = tempfile::tempdir().expect("a folder");
    let flv = folder.path().join("out.flv");
    let mut ffmpeg = ffmpeg();
    let output = ffmpeg.arg("-i").arg(path).args(["-c", "copy", "-f", "flv"]).arg(&flv).output();
    assert_silent("the file", &output.expect("ffmpeg"));
    flv::read_without_sets(&flv)
}

/// A hash of each packet of one track, for segments with one initialization segment.
///
/// # Panics
/// When ffprobe cannot read them.
#[track_caller]
#[must_use]
pub fn hashes(chunks: &[Chunk], track: Track) -> Vec<String> {
    hashes_of_file(&scratch_of(chunks).path, track)
}

/// The same of a file.
///
/// # Panics
/// When ffprobe cannot read it.
#[track_caller]
#[must_use]
pub fn hashes_of_file(path: &Path, track: Track) -> Vec<String> {
    let select = if track == Track::Video { "v:0" } else { "a:0" };
    let entries = ["-show_entries", "packet=data_hash", "-show_data_hash", "sha256", "-of", "json"];
    let answer = ffprobe(&[["-select_streams", select].as_slice(), &entries].concat(), path);
    answer["packets"].as_array().into_iter().flatten().map(hash_of).collect()
}

/// The same of the H.264 video of an MP4 file, without parameter sets inside frames.
///
/// # Panics
/// When ffmpeg cannot read it.
#[track_caller]
#[must_use]
pub fn hashes_without_sets(path: &Path) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let bare = folder.path().join("bare.mp4");
    let mut ffmpeg = ffmpeg();
    ffmpeg.args(["-v", "error", "-i"]).arg(path).args(["-map", "0:v:0", "-c", "copy"]);
    let output = ffmpeg.args(["-bsf:v", "filter_units=remove_types=7-8"]).arg(&bare).output();
    assert_silent("the file", &output.expect("ffmpeg"));
    hashes_of_file(&bare, Track::Video)
}

/// Stretches of segments with one initialization segment and no discontinuity between.
#[must_use]
pub fn runs(chunks: &[Chunk]) -> Vec<&[Chunk]> {
    chunks.chunk_by(|one, next| one.entry.init == next.entry.init && !next.entry.discontinuity).collect()
}

#[track_caller]
fn packet_of(packet: &Value) -> Packet {
    let text = |field: &str| packet[field].as_str();
    let seconds = |field: &str| text(field)?.parse().ok();
    let whole = || {
        Some(Packet {
            track: match text("codec_type")? {
                "video" => Track::Video,
                "audio" => Track::Audio,
                _ => return None,
            },
            pts: seconds("pts_time")?,
            dts: seconds("dts_time")?,
            keyframe: text("flags")?.starts_with('K'),
        })
    };
    whole().unwrap_or_else(|| panic!("a packet without times: {packet}"))
}

fn hash_of(packet: &Value) -> String {
    packet["data_hash"].as_str().unwrap_or_default().to_owned()
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

/// A file that is deleted with its folder.
struct Scratch {
    _folder: TempDir,
    path: PathBuf,
}

impl Scratch {
    fn of(parts: &[&[u8]]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for segments");
        let path = folder.path().join("segment.mp4");
        std::fs::write(&path, parts.concat()).expect("a file for a segment");
        Self { _folder: folder, path }
    }
}

fn scratch_of(chunks: &[Chunk]) -> Scratch {
    let init = chunks.first().map(|chunk| chunk.init.as_slice());
    let parts: Vec<&[u8]> =
        init.into_iter().chain(chunks.iter().map(|chunk| chunk.bytes.as_slice())).collect();
    Scratch::of(&parts)
}
