//! Reads packets from tag bodies.

use bytes::Bytes;

use super::{
    AUDIO_AAC, AUDIO_EX, AUDIO_PACKET_MULTITRACK, FRAME_COMMAND, FRAME_KEY, FlvError, MODEX_TIMESTAMP_NANOS,
    MULTITRACK_ONE, PACKET_CODED_FRAMES, PACKET_CODED_FRAMES_X, PACKET_MODEX, PACKET_SEQUENCE_START,
    VIDEO_AVC, VIDEO_PACKET_METADATA, VIDEO_PACKET_MULTITRACK, codec_of_fourcc,
};
use crate::codec::av1::strip_temporal_delimiter;
use crate::rtmp::limits::{CONFIG_BYTES_MAX, MODEX_MAX};
use crate::{Codec, Kind, NANOS_PER_MILLI, Packet, Role};

/// Largest nanosecond offset a ModEx prefix can mean; it refines a whole millisecond.
const MODEX_NANOS_MAX: u32 = 999_999;

/// Reads one tag body with its message time in milliseconds. The payload is a slice of `body`.
///
/// `Ok(None)` is a tag skipped by policy (see the module documentation) or an empty one. A ModEx nanosecond offset
/// is added to both times, so that their difference stays the composition time.
///
/// # Errors
/// [`FlvError::Truncated`], [`FlvError::TooManyModEx`] or [`FlvError::ConfigTooLong`].
pub fn demux(kind: Kind, time_ms: i64, body: &Bytes) -> Result<Option<Packet>, FlvError> {
    let mut cursor = Cursor { body, at: 0 };
    let tag = match kind {
        Kind::Video => video(&mut cursor)?,
        Kind::Audio => audio(&mut cursor)?,
    };
    let Some(tag) = tag else { return Ok(None) };
    let mut payload = body.slice(cursor.at..);
    if tag.role == Role::Config && payload.len() > CONFIG_BYTES_MAX {
        return Err(FlvError::ConfigTooLong(payload.len()));
    }
    if tag.codec == Codec::Av1 && tag.role == Role::Data {
        payload = strip_temporal_delimiter(payload);
    }
    if payload.is_empty() || tag.codec.kind() != kind {
        return Ok(None);
    }
    let dts_ns = time_ms.saturating_mul(NANOS_PER_MILLI).saturating_add(i64::from(tag.nanos));
    let pts_ns = dts_ns.saturating_add(i64::from(tag.composition_ms) * NANOS_PER_MILLI);
    let keyframe = tag.keyframe && tag.role == Role::Data;
    Ok(Some(Packet { role: tag.role, ..Packet::media(tag.codec, keyframe, dts_ns, pts_ns, payload) }))
}

/// Fields of a tag header.
struct Tag {
    codec: Codec,
    role: Role,
    keyframe: bool,
    composition_ms: i32,
    nanos: u32,
}

pub(super) struct Cursor<'a> {
    pub(super) body: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], FlvError> {
        let array = self.body[self.at..].first_chunk::<N>().ok_or(FlvError::Truncated)?;
        self.at += N;
        Ok(*array)
    }

    pub(super) fn byte(&mut self) -> Result<u8, FlvError> {
        self.array().map(|[byte]| byte)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], FlvError> {
        let bytes = self.body[self.at..].get(..count).ok_or(FlvError::Truncated)?;
        self.at += count;
        Ok(bytes)
    }

    /// Signed 24-bit composition time.
    fn composition_ms(&mut self) -> Result<i32, FlvError> {
        let [high, middle, low] = self.array()?;
        Ok(i32::from_be_bytes([high, middle, low, 0]) >> 8)
    }
}

fn video(cursor: &mut Cursor<'_>) -> Result<Option<Tag>, FlvError> {
    let first = cursor.byte()?;
    if first & 0x80 != 0 {
        return video_ex(cursor, first);
    }
    if first & 0x0f != VIDEO_AVC || first >> 4 == FRAME_COMMAND {
        return Ok(None);
    }
    let packet_type = cursor.byte()?;
    let composition_ms = cursor.composition_ms()?;
    let Some(role) = legacy_role(packet_type) else { return Ok(None) };
    let composition_ms = if role == Role::Data { composition_ms } else { 0 };
    Ok(Some(Tag { codec: Codec::H264, role, keyframe: first >> 4 == FRAME_KEY, composition_ms, nanos: 0 }))
}

fn legacy_role(packet_type: u8) -> Option<Role> {
    match packet_type {
        PACKET_SEQUENCE_START => Some(Role::Config),
        PACKET_CODED_FRAMES => Some(Role::Data),
        _ => None,
    }
}

fn video_ex(cursor: &mut Cursor<'_>, first: u8) -> Result<Option<Tag>, FlvError> {
    let frame_type = (first >> 4) & 7;
    let (mut packet_type, nanos) = mod_ex(cursor, first & 0x0f)?;
    if packet_type == VIDEO_PACKET_METADATA || frame_type == FRAME_COMMAND {
        return Ok(None);
    }
    let multitrack = packet_type == VIDEO_PACKET_MULTITRACK;
    if multitrack {
        match one_track(cursor)? {
            Some(inner) => packet_type = inner,
            None => return Ok(None),
        }
    }
    let Some(codec) = codec_of_fourcc(cursor.array()?) else { return Ok(None) };
    if multitrack && cursor.byte()? != 0 {
        return Ok(None);
    }
    let with_composition = matches!(codec, Codec::H264 | Codec::Hevc) && packet_type == PACKET_CODED_FRAMES;
    let composition_ms = if with_composition { cursor.composition_ms()? } else { 0 };
    let role = match packet_type {
        PACKET_SEQUENCE_START => Role::Config,
        PACKET_CODED_FRAMES | PACKET_CODED_FRAMES_X => Role::Data,
        _ => return Ok(None),
    };
    Ok(Some(Tag { codec, role, keyframe: frame_type == FRAME_KEY, composition_ms, nanos }))
}

fn audio(cursor: &mut Cursor<'_>) -> Result<Option<Tag>, FlvError> {
    let first = cursor.byte()?;
    let (codec, packet_type, nanos) = match first >> 4 {
        AUDIO_AAC => (Codec::Aac, cursor.byte()?, 0),
        AUDIO_EX => {
            let (mut packet_type, nanos) = mod_ex(cursor, first & 0x0f)?;
            let multitrack = packet_type == AUDIO_PACKET_MULTITRACK;
            if multitrack {
                match one_track(cursor)? {
                    Some(inner) => packet_type = inner,
                    None => return Ok(None),
                }
            }
            let Some(codec) = codec_of_fourcc(cursor.array()?) else { return Ok(None) };
            if multitrack && cursor.byte()? != 0 {
                return Ok(None);
            }
            (codec, packet_type, nanos)
        }
        _ => return Ok(None),
    };
    let Some(role) = legacy_role(packet_type) else { return Ok(None) };
    Ok(Some(Tag { codec, role, keyframe: false, composition_ms: 0, nanos }))
}

/// Reads ModEx prefixes; returns the packet type after them and the nanosecond offset.
pub(super) fn mod_ex(cursor: &mut Cursor<'_>, mut packet_type: u8) -> Result<(u8, u32), FlvError> {
    let mut nanos = 0;
    let mut count = 0;
    while packet_type == PACKET_MODEX {
        count += 1;
        if count > MODEX_MAX {
            return Err(FlvError::TooManyModEx);
        }
        let mut bytes = usize::from(cursor.byte()?) + 1;
        if bytes == 256 {
            bytes = usize::from(u16::from_be_bytes(cursor.array()?)) + 1;
        }
        let data = cursor.take(bytes)?;
        let types = cursor.byte()?;
        packet_type = types & 0x0f;
        if types >> 4 == MODEX_TIMESTAMP_NANOS
            && let Some([high, middle, low]) = data.first_chunk()
        {
            nanos = u32::from_be_bytes([0, *high, *middle, *low]).min(MODEX_NANOS_MAX);
        }
    }
    Ok((packet_type, nanos))
}

/// Reads the multitrack byte; returns the inner packet type, or `None` if the tag has several tracks.
pub(super) fn one_track(cursor: &mut Cursor<'_>) -> Result<Option<u8>, FlvError> {
    let types = cursor.byte()?;
    Ok((types >> 4 == MULTITRACK_ONE).then_some(types & 0x0f))
}
