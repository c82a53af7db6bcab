//! Names of codecs that Satcast does not support, so that an error can name the codec to change in the encoder.

use std::fmt;

use super::{
    AUDIO_AAC, AUDIO_EX, AUDIO_PACKET_MULTITRACK, Cursor, VIDEO_AVC, VIDEO_PACKET_MULTITRACK,
    codec_of_fourcc, mod_ex, one_track,
};
use crate::Kind;

/// The codec of a tag that [`super::demux`] skips, or of a stream that [`crate::ts::Demuxer`] skips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForeignCodec {
    /// Kind of its track.
    pub kind: Kind,
    id: Id,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Id {
    /// The codec id or audio format of a legacy tag.
    Number(u8),
    /// The FourCC of an Enhanced RTMP tag.
    FourCc([u8; 4]),
    /// The common name, for transport streams: there a codec has no number of its own.
    Name(&'static str),
}

impl ForeignCodec {
    /// The codec of the tag `body`, if the header has it and it is not in [`crate::Codec`]. Only the first track of its
    /// kind counts.
    pub fn of(kind: Kind, body: &[u8]) -> Option<Self> {
        let first = *body.first()?;
        let (is_enhanced, number, supported, multitrack) = match kind {
            Kind::Video => (first & 0x80 != 0, first & 0x0f, VIDEO_AVC, VIDEO_PACKET_MULTITRACK),
            Kind::Audio => (first >> 4 == AUDIO_EX, first >> 4, AUDIO_AAC, AUDIO_PACKET_MULTITRACK),
        };
        let id = if is_enhanced {
            Id::FourCc(enhanced(body, first, multitrack)?)
        } else {
            // An empty body is not proof of a codec: encoders send it to mark the start.
            (number != supported && body.len() > 1).then_some(Id::Number(number))?
        };
        Some(Self { kind, id })
    }

    /// A codec by its common name.
    pub(crate) fn named(kind: Kind, name: &'static str) -> Self {
        Self { kind, id: Id::Name(name) }
    }
}

/// The FourCC of an Enhanced RTMP tag if its codec is not supported.
fn enhanced(body: &[u8], first: u8, multitrack: u8) -> Option<[u8; 4]> {
    let mut cursor = Cursor { body, at: 1 };
    let (packet_type, _) = mod_ex(&mut cursor, first & 0x0f).ok()?;
    let is_multitrack = packet_type == multitrack;
    if is_multitrack {
        one_track(&mut cursor).ok()??;
    }
    let fourcc = cursor.array::<4>().ok()?;
    let is_first = !is_multitrack || cursor.byte().ok()? == 0;
    (is_first && codec_of_fourcc(fourcc).is_none()).then_some(fourcc)
}

/// The common name of the codec.
impl fmt::Display for ForeignCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match (self.kind, self.id) {
            // Adobe FLV specification, annex E.4.3.1.
            (Kind::Video, Id::Number(2)) => "Sorenson H.263",
            (Kind::Video, Id::Number(3 | 6)) => "Screen Video",
            (Kind::Video, Id::Number(4 | 5)) => "VP6",
            // Not in any specification, but some encoders send it.
            (Kind::Video, Id::Number(12)) => "HEVC without Enhanced RTMP",
            // Annex E.4.2.1.
            (Kind::Audio, Id::Number(0 | 3)) => "PCM",
            (Kind::Audio, Id::Number(1)) => "ADPCM",
            (Kind::Audio, Id::Number(2 | 14)) | (_, Id::FourCc([b'.', b'm', b'p', b'3'])) => "MP3",
            (Kind::Audio, Id::Number(4..=6)) => "Nellymoser",
            (Kind::Audio, Id::Number(7 | 8)) => "G.711",
            (Kind::Audio, Id::Number(11)) => "Speex",
            (_, Id::FourCc([b'v', b'p', b'0', b'8'])) => "VP8",
            (_, Id::FourCc([b'v', b'p', b'0', b'9'])) => "VP9",
            (_, Id::FourCc([b'v', b'v', b'c', b'1'])) => "VVC",
            (_, Id::FourCc([b'a', b'c', b'-', b'3'])) => "AC-3",
            (_, Id::FourCc([b'e', b'c', b'-', b'3'])) => "E-AC-3",
            (_, Id::FourCc([b'f', b'L', b'a', b'C'])) => "FLAC",
            (_, Id::Name(name)) => name,
            (_, Id::Number(number)) => return write!(f, "number {number} of FLV"),
            // The publisher chose the bytes: escaping keeps control characters away from terminals.
            (_, Id::FourCc(fourcc)) => return write!(f, "{}", fourcc.escape_ascii()),
        };
        f.write_str(name)
    }
}
