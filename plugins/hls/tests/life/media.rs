//! Streams made by ffmpeg, as the host delivers them, and the published assets, as players read them.

use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use satcast_media::flv::demux;
use satcast_plugin_api::testkit::{Report, TestDestination};
use satcast_plugin_api::{AssetBody, Kind, Packet};

pub(crate) const VIDEO: &str = "-f lavfi -i testsrc2=size=160x120:rate=30";
pub(crate) const LARGER: &str = "-f lavfi -i testsrc2=size=240x136:rate=30";
pub(crate) const AUDIO: &str = "-f lavfi -i sine=frequency=440:sample_rate=48000";
pub(crate) const CODECS: &str = "-c:v libx264 -preset ultrafast -bf 0 -g 60 -sc_threshold 0 -c:a aac";

/// What ffmpeg says when it fails, or its output.
pub(crate) fn run(program: &str, arguments: &str, folder: &Path) -> String {
    let mut command = Command::new(program);
    let output =
        command.current_dir(folder).args(["-v", "error"]).args(arguments.split_whitespace()).output();
    let output = output.expect("ffmpeg is installed (cargo xtask setup)");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{program} {arguments}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Encodes `seconds` of the given inputs.
pub(crate) fn encode(inputs: &str, seconds: u32) -> Vec<Packet> {
    encode_with(inputs, seconds, "")
}

/// The same with further options for the encoder.
pub(crate) fn encode_with(inputs: &str, seconds: u32, options: &str) -> Vec<Packet> {
    let folder = tempfile::tempdir().unwrap();
    run("ffmpeg", &format!("{inputs} -t {seconds} {CODECS} {options} -f flv source.flv"), folder.path());
    read_flv(&Bytes::from(std::fs::read(folder.path().join("source.flv")).unwrap()))
}

fn read_flv(file: &Bytes) -> Vec<Packet> {
    let mut packets = Vec::new();
    let mut at = 13;
    while at + 11 <= file.len() {
        let head = &file[at..at + 11];
        let size = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
        let time = u32::from_be_bytes([head[7], head[4], head[5], head[6]]);
        let body = file.slice(at + 11..at + 11 + size);
        let kind = match head[0] {
            8 => Some(Kind::Audio),
            9 => Some(Kind::Video),
            _ => None,
        };
        if let Some(kind) = kind {
            let read = demux(kind, i64::from(time), &body).unwrap();
            packets.extend(read.map(|packet| Packet { source: 1, ..packet }));
        }
        at += 11 + size + 4;
    }
    packets
}

/// Hands everything out at once; returns the payload bytes.
pub(crate) fn push(destination: &TestDestination, packets: Vec<Packet>) -> u64 {
    let bytes = packets.iter().map(|packet| packet.payload.len() as u64).sum();
    packets.into_iter().for_each(|packet| destination.push(packet));
    bytes
}

/// A published text.
pub(crate) fn text(report: &Report, name: &str) -> String {
    let asset = report.assets.get(name).unwrap_or_else(|| panic!("{name} is not published"));
    String::from_utf8(asset.bytes().unwrap()).unwrap()
}

/// Files that a playlist names.
pub(crate) fn listed(report: &Report, name: &str) -> Vec<String> {
    let Some(asset) = report.assets.get(name) else { return Vec::new() };
    let text = String::from_utf8(asset.bytes().unwrap()).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(ToOwned::to_owned).collect()
}

/// Numbers in the names of listed segments.
pub(crate) fn numbers(report: &Report) -> Vec<u64> {
    let names = listed(report, "media.m3u8");
    names.iter().map(|name| name.strip_suffix(".m4s").unwrap().parse().unwrap()).collect()
}

/// EXT-X-DISCONTINUITY-SEQUENCE of a playlist, and how many discontinuities are listed.
pub(crate) fn discontinuities(report: &Report, name: &str) -> (u64, usize) {
    let text = text(report, name);
    let counted = text.lines().find_map(|line| line.strip_prefix("#EXT-X-DISCONTINUITY-SEQUENCE:")).unwrap();
    (counted.parse().unwrap(), text.matches("#EXT-X-DISCONTINUITY\n").count())
}

/// Bytes of an asset, whatever its body.
pub(crate) fn bytes(report: &Report, name: &str) -> Vec<u8> {
    let asset = report.assets.get(name).unwrap_or_else(|| panic!("{name} is not published"));
    match &asset.asset.body {
        AssetBody::Parts(parts) => parts.iter().flat_map(|part| bytes(report, part)).collect(),
        _ => asset.bytes().unwrap(),
    }
}

/// Writes every asset into a folder, as a player would fetch them.
pub(crate) fn fetch(report: &Report, folder: &Path) {
    for name in report.assets.keys() {
        std::fs::write(folder.join(name), bytes(report, name)).unwrap();
    }
}

/// Video that ffmpeg decodes, without a single error.
pub(crate) fn decoded(folder: &Path, playlist: &str, stream: &str) -> usize {
    let options = "-allowed_extensions ALL";
    run("ffmpeg", &format!("{options} -i {playlist} -f null -"), folder);
    let counted = "-count_packets -show_entries stream=nb_read_packets -of csv=p=0";
    let out = run("ffprobe", &format!("{options} -select_streams {stream} {counted} {playlist}"), folder);
    out.lines().find_map(|line| line.trim_matches(',').parse().ok()).unwrap_or(0)
}
