//! Sample entries: the codec of a track and its configuration, in the form that packets carry.

use bytes::Bytes;
use mp4_atom::{Atom as _, Dops};

use super::{Mp4Error, child, children, number};
use crate::codec::av1::Av1Config;
use crate::codec::avc::AvcConfig;
use crate::codec::hevc::HevcConfig;
use crate::fmp4::{RECORD_BYTES_MAX, TrackConfig, opus_head};
use crate::{Codec, Kind};

/// Bytes of a sample entry before its boxes, without header (8.5.2.2, 12.1.3.2 and 12.2.3.2).
const VIDEO_FIELDS: usize = 78;
const AUDIO_FIELDS: usize = 28;
/// Bytes of `stsd` before its entries: version, flags, count.
const STSD_FIELDS: usize = 8;
/// Tags of descriptors in `esds` (ISO/IEC 14496-1, table 1).
const ES_DESCRIPTOR: u8 = 3;
const DECODER_CONFIG: u8 = 4;
const DECODER_SPECIFIC: u8 = 5;
/// MPEG-4 audio (ISO/IEC 14496-1, table 5).
const OBJECT_TYPE_AAC: u8 = 0x40;

/// Profiles with 4:2:0 and 8 bits: Baseline, Main, Extended and High (ISO/IEC 14496-10, annex A.2), and up to Main of HEVC
/// (ISO/IEC 23008-2, annex A.3.2). AV1 Main (annex A.2) has 8 and 10 bits.
const AVC_PLAIN: [u8; 4] = [66, 77, 88, 100];
const HEVC_MAIN: u8 = 1;
const AV1_MAIN: u8 = 0;

/// Audio as only QuickTime files describe it.
const QUICK_TIME: &str = "it is a QuickTime movie; write an MP4 (ffmpeg: -i slate.mov -c copy slate.mp4)";

/// The track of a complete `stsd`.
pub(super) fn track(stsd: &[u8], kind: Kind) -> Result<TrackConfig, Mp4Error> {
    if number(stsd, 4).is_some_and(|entries| entries > 1) {
        return Err(Mp4Error::Several("codec setting in a track"));
    }
    let entries = stsd.get(STSD_FIELDS..).unwrap_or_default();
    let (code, entry) = children(entries).next().ok_or(Mp4Error::NotMp4("a track has no codec"))?;
    // Another version of audio entries has more fields, and is not in MP4 files.
    if kind == Kind::Audio && entry.get(8..10).is_some_and(|version| version != [0, 0]) {
        return Err(Mp4Error::NotMp4(QUICK_TIME));
    }
    let refused = || Mp4Error::Codec(short(kind), shown(code));
    let (codec, record) =
        record(&code, entry).filter(|(codec, _)| codec.kind() == kind).ok_or_else(refused)?;
    if has_rare_pixels(codec, &record) {
        return Err(Mp4Error::PixelFormat);
    }
    TrackConfig::parse(codec, &Bytes::copy_from_slice(&record)).map_err(|_| refused())
}

/// Whether video has pixels that not every player takes: 4:2:2, 4:4:4, or more than 8 bits. A record that cannot be read is refused
/// elsewhere.
fn has_rare_pixels(codec: Codec, record: &[u8]) -> bool {
    match codec {
        Codec::H264 => AvcConfig::parse(record).is_ok_and(|config| !AVC_PLAIN.contains(&config.profile)),
        Codec::Hevc => HevcConfig::parse(record).is_ok_and(|config| config.profile > HEVC_MAIN),
        Codec::Av1 => {
            Av1Config::parse(record).is_ok_and(|config| config.profile > AV1_MAIN || config.bit_depth > 8)
        }
        Codec::Aac | Codec::Opus => false,
    }
}

fn short(kind: Kind) -> &'static str {
    match kind {
        Kind::Video => "video",
        Kind::Audio => "audio",
    }
}

/// The code of a sample entry, which is text of the file.
fn shown(code: [u8; 4]) -> String {
    code.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' }).collect()
}

/// Codec and configuration; `None` for others, and for a configuration that is not there or too long.
fn record(code: &[u8; 4], entry: &[u8]) -> Option<(Codec, Vec<u8>)> {
    let video = entry.get(VIDEO_FIELDS..).unwrap_or_default();
    let audio = entry.get(AUDIO_FIELDS..).unwrap_or_default();
    let (codec, record) = match code {
        b"avc1" | b"avc3" => (Codec::H264, child(video, b"avcC")?.to_vec()),
        b"hvc1" | b"hev1" => (Codec::Hevc, child(video, b"hvcC")?.to_vec()),
        b"av01" => (Codec::Av1, child(video, b"av1C")?.to_vec()),
        b"mp4a" => (Codec::Aac, specific(child(audio, b"esds")?)?.to_vec()),
        b"Opus" => {
            let mut head = Vec::new();
            opus_head(&Dops::decode_body(&mut child(audio, b"dOps")?).ok()?, &mut head);
            (Codec::Opus, head)
        }
        _ => return None,
    };
    (record.len() <= RECORD_BYTES_MAX).then_some((codec, record))
}

/// The AudioSpecificConfig in an `esds` (ISO/IEC 14496-14, 3.1.2; 14496-1, 7.2.6).
fn specific(esds: &[u8]) -> Option<&[u8]> {
    let stream = descriptor(esds.get(4..)?, ES_DESCRIPTOR)?;
    let flags = *stream.get(2)?;
    let mut at = 3;
    if flags & 0x80 != 0 {
        at += 2;
    }
    if flags & 0x40 != 0 {
        at += 1 + usize::from(*stream.get(at)?);
    }
    if flags & 0x20 != 0 {
        at += 2;
    }
    let decoder = descriptor(stream.get(at..)?, DECODER_CONFIG)?;
    let is_aac = decoder.first() == Some(&OBJECT_TYPE_AAC);
    // Object type, stream type, buffer size, and two bit rates.
    descriptor(decoder.get(13..).filter(|_| is_aac)?, DECODER_SPECIFIC)
}

/// Content of the descriptor at the front, if it has this tag. Its length has seven bits in each of up to four bytes.
fn descriptor(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    let (own, mut rest) = bytes.split_first()?;
    let mut length = 0usize;
    for _ in 0..4 {
        let (part, behind) = rest.split_first()?;
        rest = behind;
        length = length << 7 | usize::from(part & 0x7f);
        if part & 0x80 == 0 {
            break;
        }
    }
    rest.get(..length).filter(|_| *own == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audio_of_a_quicktime_movie_is_refused_as_such() {
        let mut entry = [0; AUDIO_FIELDS];
        entry[9] = 1;
        let stsd =
            [&[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 8 + AUDIO_FIELDS as u8], &b"mp4a"[..], &entry].concat();
        assert_eq!(track(&stsd, Kind::Audio).unwrap_err(), Mp4Error::NotMp4(QUICK_TIME));
    }
}
