//! The numbers of an onMetaData message.

use super::amf0::{self, Value};
use super::message::without_envelope;
use crate::flv::{codec_of_fourcc, fourcc};
use crate::{Codec, Kind};

/// FLV number of H.264.
const VIDEO_CODEC_AVC: f64 = 7.0;
/// FLV number of AAC.
const AUDIO_CODEC_AAC: f64 = 10.0;

/// Summary of onMetaData: numbers only, no text of the publisher. `None` where absent or not usable.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Metadata {
    /// Video width in pixels, 1 to 65,535.
    pub width: Option<u32>,
    /// Video height in pixels, 1 to 65,535.
    pub height: Option<u32>,
    /// Frames per second, above 0, at most 1,000.
    pub frame_rate: Option<f64>,
    /// Video bit rate in kilobits per second, above 0, at most 10,000,000.
    pub video_kbps: Option<f64>,
    /// Audio bit rate in kilobits per second, above 0, at most 10,000,000.
    pub audio_kbps: Option<f64>,
    /// Audio sample rate in hertz, 1 to 1,000,000.
    pub audio_sample_rate: Option<u32>,
    /// Audio channels, 1 to 255.
    pub audio_channels: Option<u32>,
    /// Video codec: FLV number 7 or a FourCC as number or text.
    pub video_codec: Option<Codec>,
    /// Audio codec: FLV number 10 or a FourCC as number or text.
    pub audio_codec: Option<Codec>,
    /// It names an unsupported video codec.
    pub foreign_video: bool,
    /// It names an unsupported audio codec.
    pub foreign_audio: bool,
}

impl Metadata {
    /// Reads a data message body; `None` if it is not a readable onMetaData.
    pub(crate) fn parse(kind: u8, body: &[u8]) -> Option<Self> {
        let values = amf0::decode_all(without_envelope(kind, body)).ok()?;
        let values = match values.first()?.text()? {
            "@setDataFrame" => &values[1..],
            _ => &values[..],
        };
        if values.first()?.text()? != "onMetaData" {
            return None;
        }
        let properties = values.get(1)?;
        properties.members()?;
        let number = |name: &str, max: f64| {
            let number = properties.member(name)?.number()?;
            (number > 0.0 && number <= max).then_some(number)
        };
        let whole = |name: &str, max: f64| {
            number(name, max).map(|number| number.round() as u32).filter(|&whole| whole > 0)
        };
        let stereo = properties.member("stereo").map(|value| match value {
            Value::Boolean(true) => 2,
            _ => 1,
        });
        let codec_of = |name: &str, kind| {
            let named = properties.member(name);
            let codec = codec(named, kind);
            (codec, named.is_some() && codec.is_none())
        };
        let (video_codec, foreign_video) = codec_of("videocodecid", Kind::Video);
        let (audio_codec, foreign_audio) = codec_of("audiocodecid", Kind::Audio);
        Some(Metadata {
            width: whole("width", 65_535.0),
            height: whole("height", 65_535.0),
            frame_rate: number("framerate", 1_000.0).or_else(|| number("fps", 1_000.0)),
            video_kbps: number("videodatarate", 1e7),
            audio_kbps: number("audiodatarate", 1e7),
            audio_sample_rate: whole("audiosamplerate", 1e6),
            audio_channels: whole("audiochannels", 255.0).or(stereo),
            video_codec,
            audio_codec,
            foreign_video,
            foreign_audio,
        })
    }

    /// Writes the body of a data message that sets onMetaData.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut members = Vec::new();
        let mut put = |name: &str, number: Option<f64>| {
            if let Some(number) = number {
                members.push((name.to_owned(), Value::Number(number)));
            }
        };
        put("width", self.width.map(f64::from));
        put("height", self.height.map(f64::from));
        put("framerate", self.frame_rate);
        put("videodatarate", self.video_kbps);
        put("videocodecid", self.video_codec.map(codec_number));
        put("audiodatarate", self.audio_kbps);
        put("audiosamplerate", self.audio_sample_rate.map(f64::from));
        put("audiochannels", self.audio_channels.map(f64::from));
        put("audiocodecid", self.audio_codec.map(codec_number));
        if let Some(channels) = self.audio_channels {
            members.push(("stereo".to_owned(), Value::Boolean(channels >= 2)));
        }
        amf0::encode_all(&[
            Value::String("@setDataFrame".to_owned()),
            Value::String("onMetaData".to_owned()),
            Value::EcmaArray(members),
        ])
    }
}

fn codec(value: Option<&Value>, kind: Kind) -> Option<Codec> {
    let codec = match value? {
        Value::Number(VIDEO_CODEC_AVC) if kind == Kind::Video => Codec::H264,
        Value::Number(AUDIO_CODEC_AAC) if kind == Kind::Audio => Codec::Aac,
        // Truncation is harmless: a number that is not a FourCC gives no codec.
        Value::Number(number) => codec_of_fourcc((*number as u32).to_be_bytes())?,
        Value::String(text) => codec_of_fourcc(text.as_bytes().try_into().ok()?)?,
        _ => return None,
    };
    (codec.kind() == kind).then_some(codec)
}

fn codec_number(codec: Codec) -> f64 {
    match codec {
        Codec::H264 => VIDEO_CODEC_AVC,
        Codec::Aac => AUDIO_CODEC_AAC,
        Codec::Hevc | Codec::Av1 | Codec::Opus => f64::from(u32::from_be_bytes(fourcc(codec))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtmp::message::kind;
    use crate::testing::object;

    fn full() -> Metadata {
        Metadata {
            width: Some(1280),
            height: Some(720),
            frame_rate: Some(29.97),
            video_kbps: Some(6000.0),
            audio_kbps: Some(160.0),
            audio_sample_rate: Some(48_000),
            audio_channels: Some(2),
            video_codec: Some(Codec::H264),
            audio_codec: Some(Codec::Aac),
            ..Metadata::default()
        }
    }

    fn parsed(properties: Value) -> Option<Metadata> {
        Metadata::parse(kind::DATA, &amf0::encode_all(&[Value::String("onMetaData".to_owned()), properties]))
    }

    #[test]
    fn numbers_survive_a_round_trip() {
        for metadata in [
            full(),
            Metadata::default(),
            Metadata { video_codec: Some(Codec::Hevc), audio_codec: Some(Codec::Opus), ..full() },
            Metadata { video_codec: Some(Codec::Av1), audio_channels: Some(6), ..full() },
        ] {
            assert_eq!(Metadata::parse(kind::DATA, &metadata.encode()), Some(metadata));
            let envelope = [&[0], &metadata.encode()[..]].concat();
            assert_eq!(Metadata::parse(kind::DATA_AMF3, &envelope), Some(metadata));
        }
    }

    #[test]
    fn a_body_cut_off_at_every_byte_is_no_metadata() {
        let body = full().encode();
        for end in 0..body.len() {
            assert_eq!(Metadata::parse(kind::DATA, &body[..end]), None, "cut at {end}");
        }
    }

    #[test]
    fn unusable_values_are_ignored() {
        for number in [f64::NAN, f64::INFINITY, -1.0, 0.0, 0.2, 1e300] {
            let properties = object([("width", Value::Number(number)), ("audiochannels", Value::Null)]);
            assert_eq!(parsed(properties), Some(Metadata::default()), "{number}");
        }
        let texts = object([
            ("videocodecid", Value::String("hvc1".to_owned())),
            ("audiocodecid", Value::String("avc1".to_owned())),
            ("stereo", Value::Boolean(true)),
        ]);
        let expected = Metadata {
            video_codec: Some(Codec::Hevc),
            audio_channels: Some(2),
            foreign_audio: true,
            ..Metadata::default()
        };
        assert_eq!(parsed(texts), Some(expected));
        assert_eq!(parsed(Value::Null), None);
        assert_eq!(Metadata::parse(kind::DATA, &amf0::encode_all(&[Value::Null])), None);
    }
}
