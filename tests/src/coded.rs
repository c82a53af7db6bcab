//! Streams in codecs that Debian's ffmpeg cannot publish: packets taken out of an MP4 file, sent by an RTMP client of
//! our own as Enhanced RTMP.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use satcast_media::{Codec, Kind, Packet, Role};
use serde_json::Value;

use crate::caller::Call;
use crate::source::scratch;

const NANOS_PER_SECOND: f64 = 1e9;

/// A stream of given codecs: its name among the files, and how ffmpeg makes it.
#[derive(Clone, Copy, Debug)]
pub struct Coding {
    name: &'static str,
    video: Codec,
    audio: Codec,
    encoding: &'static str,
}

impl Coding {
    /// HEVC and Opus.
    pub const HEVC_OPUS: Self = Self {
        name: "hevc-opus-v2",
        video: Codec::Hevc,
        audio: Codec::Opus,
        encoding: "-c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=50:min-keyint=50:scenecut=0 \
            -tag:v hvc1 -c:a libopus -b:a 64k",
    };
    /// AV1 and Opus.
    pub const AV1_OPUS: Self = Self {
        name: "av1-opus-v2",
        video: Codec::Av1,
        audio: Codec::Opus,
        encoding: "-c:v libaom-av1 -cpu-used 8 -usage realtime -row-mt 1 -lag-in-frames 0 -g 50 -keyint_min 50 \
            -b:v 300k -c:a libopus -b:a 64k",
    };
}

/// The packets of a file, configuration first.
#[derive(Debug)]
pub struct Coded {
    path: PathBuf,
    packets: Vec<Packet>,
}

impl Coded {
    /// 320 x 180 at 25 frames per second with audio, 11 s; created by the first test that needs it.
    ///
    /// # Panics
    /// When ffmpeg fails.
    #[must_use]
    pub fn of(coding: Coding) -> Self {
        let path = scratch().join(format!("{}.mp4", coding.name));
        let lock = File::create(path.with_extension("lock")).expect("a lock for the source");
        lock.lock().expect("the source can be locked");
        if !path.exists() {
            make(&path, coding.encoding);
        }
        let packets = read(&path, coding);
        Self { path, packets }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends everything in real time.
    ///
    /// # Panics
    /// When the publish was not accepted.
    pub fn publish(&self, call: &mut Call) {
        self.publish_faster(call, 1);
    }

    /// Sends everything `times` as fast as real time.
    ///
    /// # Panics
    /// When the publish was not accepted.
    pub fn publish_faster(&self, call: &mut Call, times: u32) {
        self.publish_some(call, times, |_| true);
    }

    /// Sends the configurations of both tracks, and then audio alone, in real time.
    ///
    /// # Panics
    /// When the publish was not accepted.
    pub fn publish_audio(&self, call: &mut Call) {
        self.publish_some(call, 1, |packet| packet.is_config() || packet.kind() == Kind::Audio);
    }

    fn publish_some(&self, call: &mut Call, times: u32, is_sent: impl Fn(&Packet) -> bool) {
        let began = Instant::now();
        for packet in self.packets.iter().filter(|packet| is_sent(packet)) {
            let due = Duration::from_nanos(u64::try_from(packet.dts_ns).unwrap_or(0));
            std::thread::sleep((due / times).saturating_sub(began.elapsed()));
            call.send(packet);
        }
    }
}

fn make(path: &Path, encoding: &str) {
    let temporary = path.with_extension("part");
    let inputs =
        "-f lavfi -i testsrc2=size=320x180:rate=25 -f lavfi -i sine=frequency=440:sample_rate=48000 -t 11";
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-nostdin", "-hide_banner", "-loglevel", "error", "-y"]).args(inputs.split_whitespace());
    ffmpeg.args(["-pix_fmt", "yuv420p"]).args(encoding.split_whitespace()).args(["-f", "mp4"]);
    let output = ffmpeg.arg(&temporary).output().expect("ffmpeg can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ffmpeg could not make {}: {errors}", path.display());
    std::fs::rename(&temporary, path).expect("the source gets its name");
}

fn read(path: &Path, coding: Coding) -> Vec<Packet> {
    let mut ffprobe = Command::new("ffprobe");
    // The times of the file without its edit list, which may begin below zero: RTMP has no negative times.
    ffprobe.args(["-ignore_editlist", "1"]);
    ffprobe.args(["-v", "error", "-show_packets", "-show_streams", "-show_data", "-of", "json"]).arg(path);
    let answer: Value =
        serde_json::from_slice(&ffprobe.output().expect("ffprobe").stdout).expect("JSON of ffprobe");
    let list = |name: &str| answer[name].as_array().cloned().unwrap_or_default();
    let mut packets: Vec<Packet> = list("streams")
        .iter()
        .map(|stream| packet(stream, coding, Role::Config, "extradata").expect("a configuration record"))
        .collect();
    packets.extend(
        list("packets")
            .iter()
            .map(|data| packet(data, coding, Role::Data, "data").expect("a packet with times")),
    );
    packets.sort_by_key(|packet| (!packet.is_config(), packet.dts_ns));
    packets
}

fn packet(value: &Value, coding: Coding, role: Role, field: &str) -> Option<Packet> {
    let nanos = |field: &str| {
        let seconds: f64 = value[field].as_str()?.parse().ok()?;
        Some((seconds * NANOS_PER_SECOND) as i64)
    };
    let codec = if value["codec_type"].as_str()? == "video" { coding.video } else { coding.audio };
    let data = role == Role::Data;
    let keyframe = data && codec.kind() == Kind::Video && value["flags"].as_str()?.starts_with('K');
    let (dts_ns, pts_ns) = if data { (nanos("dts_time")?, nanos("pts_time")?) } else { (0, 0) };
    Some(Packet { role, ..Packet::media(codec, keyframe, dts_ns, pts_ns, bytes(value[field].as_str()?)) })
}

/// Bytes of a dump: lines of an offset, groups of hexadecimal digits, and the same as text after two spaces.
fn bytes(dump: &str) -> Bytes {
    let mut bytes = Vec::new();
    for line in dump.lines() {
        let Some((_, rest)) = line.split_once(": ") else { continue };
        let digits = rest.split("  ").next().unwrap_or_default();
        let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or_default(), 16).ok();
        bytes.extend(digits.chunks(2).filter_map(pair));
    }
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_are_read() {
        let dump = "\n00000000: 0148 5f00 2061 6263 6465 6667 6869 6a6b  .H_. abcdefghijk\n00000010: ff                                       .\n";
        assert_eq!(&bytes(dump)[..], b"\x01\x48_\x00 abcdefghijk\xff");
    }
}
