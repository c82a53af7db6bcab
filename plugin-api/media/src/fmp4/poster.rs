//! Posters: a keyframe as a video of one frame, in its codec. Nothing is decoded.

use bytes::Bytes;
use mp4_atom::{Decode as _, Stsd};

use super::read::{boxes, record, refuse_unknown_entries};
use super::{
    Fmp4Error, Reader, Sample, TrackConfig, TrackRun, VIDEO_TIMESCALE, VIDEO_TRACK_ID, init_segment,
    write_fragment,
};
use crate::{Kind, Packet};

/// A video of one second with this keyframe.
///
/// # Errors
/// The codec configuration is broken or not packaged, or the keyframe is too large.
pub fn poster(config: &Packet, keyframe: &Packet) -> Result<Bytes, Fmp4Error> {
    let track = TrackConfig::parse(config.codec, &config.payload)?;
    let payload = keyframe.payload.clone();
    let sample = Sample { duration: VIDEO_TIMESCALE, composition: 0, sync: true, payload };
    let run = TrackRun { track_id: VIDEO_TRACK_ID, decode_time: 0, samples: vec![sample] };
    let mut video = init_segment(&[&track])?.to_vec();
    write_fragment(&mut video, 1, &[run])?;
    Ok(video.into())
}

/// The poster of the first keyframe in whole fragments of a file; `None` if they have none. The bytes may be hostile.
///
/// # Errors
/// As [`Reader`] and [`poster`].
pub fn first_poster(init: &[u8], fragments: &Bytes) -> Result<Option<Bytes>, Fmp4Error> {
    let reader = Reader::new(init)?;
    let is_video = |packet: &&Packet| packet.codec.kind() == Kind::Video;
    let configs = reader.configs(0);
    let Some(config) = configs.iter().find(is_video) else { return Ok(None) };
    let segment = reader.segment(fragments, 0)?;
    let keyframe = segment.packets.iter().filter(is_video).find(|packet| packet.keyframe);
    keyframe.map(|keyframe| poster(config, keyframe)).transpose()
}

/// The first frame of the video in an ordinary MP4. In a clip it is a keyframe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstFrame {
    /// The codec configuration.
    pub config: Packet,
    /// First byte of the frame in the file.
    pub offset: u64,
    /// Bytes of the frame.
    pub bytes: u32,
}

/// Finds the first frame of the video in the tables of an ordinary MP4; `None` if it has no video. `head` is the start of the
/// file, with its whole `moov`, and may be hostile.
///
/// # Errors
/// [`Fmp4Error::Tracks`] for boxes that are not there, [`Fmp4Error::Box`] and [`Fmp4Error::Unsupported`] for those that
/// cannot be read.
pub fn first_frame(head: &[u8]) -> Result<Option<FirstFrame>, Fmp4Error> {
    let moov = inside(head, b"moov").next().ok_or(Fmp4Error::Tracks)?;
    for trak in inside(content(moov), b"trak") {
        let of = |outer, kind| inside(content(outer), kind).next().ok_or(Fmp4Error::Tracks);
        let stbl = of(of(of(trak, b"mdia")?, b"minf")?, b"stbl")?;
        let mut stsd = of(stbl, b"stsd")?;
        refuse_unknown_entries(stsd)?;
        let stsd = Stsd::decode(&mut stsd)?;
        let (codec, payload) = record(stsd.codecs.last().ok_or(Fmp4Error::Tracks)?)?;
        if codec.kind() != Kind::Video {
            continue;
        }
        // Both boxes begin with version and flags (8.7.3.2, 8.7.5).
        let (sizes, offsets) = (content(of(stbl, b"stsz")?), content(of(stbl, b"stco")?));
        let bytes = match number(sizes, 4)? {
            0 => number(sizes, 12)?,
            same => same,
        };
        let offset = u64::from(number(offsets, 8)?);
        return Ok(Some(FirstFrame { config: Packet::configuration(codec, payload), offset, bytes }));
    }
    Ok(None)
}

/// The boxes of a kind among these, with their headers.
fn inside<'a>(bytes: &'a [u8], kind: &'a [u8; 4]) -> impl Iterator<Item = &'a [u8]> {
    boxes(bytes).filter(move |(own, ..)| own == kind).map(|(_, from, to)| &bytes[from..to])
}

/// What follows a header with a size of 32 bits.
fn content(atom: &[u8]) -> &[u8] {
    atom.get(8..).unwrap_or_default()
}

fn number(bytes: &[u8], at: usize) -> Result<u32, Fmp4Error> {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk());
    four.map(|four| u32::from_be_bytes(*four)).ok_or(Fmp4Error::Tracks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Codec;
    use crate::fmp4::AUDIO_TRACK_ID;
    use crate::fuzz::RECORDS;

    fn track(codec: Codec) -> TrackConfig {
        let (_, record) = RECORDS.iter().find(|(known, _)| *known == codec).expect("a record");
        TrackConfig::parse(codec, &Bytes::from_static(record)).expect("valid")
    }

    fn fragment(runs: &[TrackRun]) -> Bytes {
        let mut bytes = Vec::new();
        write_fragment(&mut bytes, 1, runs).expect("it fits");
        bytes.into()
    }

    fn run(track_id: u32, frames: &[(bool, &'static [u8])]) -> TrackRun {
        let sample = |(sync, payload): &(bool, &'static [u8])| Sample {
            duration: 3000,
            composition: 0,
            sync: *sync,
            payload: Bytes::from_static(payload),
        };
        TrackRun { track_id, decode_time: 0, samples: frames.iter().map(sample).collect() }
    }

    #[test]
    fn the_first_keyframe_of_a_file_becomes_a_video_of_one_frame() {
        let (video, audio) = (track(Codec::H264), track(Codec::Aac));
        let init = init_segment(&[&video, &audio]).expect("two tracks");
        let frames = [(false, &b"first"[..]), (true, b"second"), (true, b"third")];
        let both = fragment(&[run(VIDEO_TRACK_ID, &frames), run(AUDIO_TRACK_ID, &[(true, b"audio")])]);
        let made = first_poster(&init, &both).expect("readable").expect("a keyframe");
        assert!(made.ends_with(b"mdatsecond"));
        // It is a whole file: read again it gives the same.
        let moof = made.windows(4).position(|four| four == b"moof").expect("a fragment") - 4;
        let again = first_poster(&made[..moof], &made.slice(moof..)).expect("readable");
        assert_eq!(again, Some(made));
        let none = fragment(&[run(VIDEO_TRACK_ID, &[(false, b"first")])]);
        assert_eq!(first_poster(&init, &none), Ok(None));
        let alone = init_segment(&[&audio]).expect("one track");
        let only = fragment(&[run(AUDIO_TRACK_ID, &[(true, b"audio")])]);
        assert_eq!(first_poster(&alone, &only), Ok(None));
        assert!(first_poster(&init, &Bytes::from_static(b"\0\0\0\x09moofx")).is_err());
        assert!(first_poster(b"", &both).is_err());
    }
}
