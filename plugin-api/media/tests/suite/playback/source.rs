//! Streams made by ffmpeg, as packets.

use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use mp4_atom::{Atom, Codec as Entry, Decode, Moof, Moov};
use satcast_media::flv::demux;
use satcast_media::{Codec, Kind, Packet, Role};

const VIDEO: &str = "testsrc2=size=320x240:rate=";

/// Runs ffmpeg with the words of `arguments`, into `output`.
pub(super) fn encode(arguments: &str, output: &Path) {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-y"]).args(arguments.split_whitespace()).arg(output);
    let result = command.output().expect("ffmpeg is installed (cargo xtask setup)");
    assert!(result.status.success(), "{arguments}: {}", String::from_utf8_lossy(&result.stderr));
}

/// Encodes FLV with H.264 at a rate, and AAC, and reads its packets. `{v}` and `{a}` in the arguments are the
/// lavfi sources.
pub(super) fn flv(folder: &Path, rate: &str, arguments: &str) -> Vec<Packet> {
    let path = folder.join("source.flv");
    let arguments = arguments
        .replace("{v}", &format!("-f lavfi -i {VIDEO}{rate}"))
        .replace("{a}", "-f lavfi -i sine=frequency=440:sample_rate=44100");
    encode(&format!("{arguments} -f flv"), &path);
    read_flv(&path)
}

fn read_flv(path: &PathBuf) -> Vec<Packet> {
    let file = Bytes::from(std::fs::read(path).expect("encoded"));
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
            packets.extend(demux(kind, i64::from(time), &body).expect("ffmpeg writes valid tags"));
        }
        at += 11 + size + 4;
    }
    packets
}

/// Encodes MP4 with a fragment for every frame and reads its packets, as an Enhanced RTMP encoder would send
/// them. For codecs that old ffmpeg versions cannot write into FLV.
pub(super) fn mp4(folder: &Path, arguments: &str) -> Vec<Packet> {
    let path = folder.join("source.mp4");
    let flags = "-movflags +frag_every_frame+delay_moov+default_base_moof -f mp4";
    encode(&format!("{arguments} {flags}"), &path);
    let file = std::fs::read(&path).expect("encoded");
    let mut rest = &file[..];
    let mut tracks = Vec::new();
    let mut packets = Vec::new();
    while rest.len() >= 8 {
        let size = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
        let (atom, behind) = rest.split_at(size);
        match &atom[4..8] {
            b"moov" => tracks = read_moov(atom),
            b"moof" => packets.extend(read_moof(atom, behind, &tracks)),
            _ => {}
        }
        rest = behind;
    }
    packets.sort_by_key(|packet: &Packet| packet.dts_ns);
    let records = tracks.iter().map(|track| packet(track.codec, Role::Config, false, (0, 0), &track.record));
    records.chain(packets).collect()
}

struct Track {
    id: u32,
    timescale: u64,
    codec: Codec,
    record: Vec<u8>,
}

fn read_moov(atom: &[u8]) -> Vec<Track> {
    let moov = Moov::decode(&mut &atom[..]).expect("valid moov");
    let track = |trak: &mp4_atom::Trak| {
        let mut record = Vec::new();
        let codec = match &trak.mdia.minf.stbl.stsd.codecs[0] {
            Entry::Hvc1(entry) => {
                entry.hvcc.encode_body(&mut record).expect("encodes");
                Codec::Hevc
            }
            Entry::Av01(entry) => {
                entry.av1c.encode_body(&mut record).expect("encodes");
                Codec::Av1
            }
            Entry::Opus(entry) => {
                record.extend_from_slice(b"OpusHead\x01");
                record.push(entry.dops.output_channel_count);
                record.extend_from_slice(&entry.dops.pre_skip.to_le_bytes());
                record.extend_from_slice(&entry.dops.input_sample_rate.to_le_bytes());
                record.extend_from_slice(&entry.dops.output_gain.to_le_bytes());
                record.push(0);
                Codec::Opus
            }
            Entry::Mp4a(entry) => {
                record = entry.esds.es_desc.dec_config.dec_specific.clone().expect("record").raw;
                Codec::Aac
            }
            other => panic!("unexpected sample entry {other:?}"),
        };
        Track { id: trak.tkhd.track_id, timescale: u64::from(trak.mdia.mdhd.timescale), codec, record }
    };
    moov.trak.iter().map(track).collect()
}

/// The samples of a fragment; `behind` is the file from the end of `moof` on.
fn read_moof(atom: &[u8], behind: &[u8], tracks: &[Track]) -> Vec<Packet> {
    let moof = Moof::decode(&mut &atom[..]).expect("valid moof");
    let mut packets = Vec::new();
    for traf in &moof.traf {
        let track = tracks.iter().find(|track| track.id == traf.tfhd.track_id).expect("known track");
        let mut dts = traf.tfdt.as_ref().expect("tfdt").base_media_decode_time;
        for trun in &traf.trun {
            let mut at = trun.data_offset.expect("offset") as usize - atom.len();
            for sample in trun.samples.iter() {
                let size = sample.size.or(traf.tfhd.default_sample_size).expect("size") as usize;
                let flags = sample.flags.or(traf.tfhd.default_sample_flags).unwrap_or(0);
                let nanos = |ticks: i64| ticks * 1_000_000_000 / track.timescale as i64;
                let times = (nanos(dts as i64), nanos(dts as i64 + sample.cts.unwrap_or(0)));
                let keyframe = track.codec.kind() == Kind::Video && flags & 0x1_0000 == 0;
                packets.push(packet(track.codec, Role::Data, keyframe, times, &behind[at..at + size]));
                dts += u64::from(sample.duration.or(traf.tfhd.default_sample_duration).expect("duration"));
                at += size;
            }
        }
    }
    packets
}

fn packet(codec: Codec, role: Role, keyframe: bool, times: (i64, i64), payload: &[u8]) -> Packet {
    let payload = Bytes::copy_from_slice(payload);
    Packet { role, ..Packet::media(codec, keyframe, times.0, times.1, payload) }
}
