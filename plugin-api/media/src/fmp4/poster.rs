//! Posters: a keyframe as a video of one frame, in its codec. Nothing is decoded.

use bytes::Bytes;

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
