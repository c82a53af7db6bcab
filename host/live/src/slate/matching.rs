//! What a slate must have in common with the encoder's media. Pure.

use std::fmt::Write as _;

use crate::health::Figures;
use satcast_store::SlateRecord;

/// Largest difference of frame rates, as a part of the encoder's: measured rates are not exact.
const FRAME_RATE_TOLERANCE: f64 = 0.05;

/// One difference between a slate and the encoder's media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) what: Property,
    /// The value of the slate.
    pub(crate) slate: String,
    /// The value of the encoder.
    pub(crate) encoder: String,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Property {
    VideoCodec,
    Size,
    FrameRate,
    AudioCodec,
    SampleRate,
    Channels,
}

impl Property {
    fn name(self) -> &'static str {
        match self {
            Property::VideoCodec => "video codec",
            Property::Size => "size",
            Property::FrameRate => "frame rate",
            Property::AudioCodec => "audio codec",
            Property::SampleRate => "sample rate",
            Property::Channels => "channels",
        }
    }
}

const NONE: &str = "none";

/// All differences; a value that is not known yet does not differ, nor before the figures are settled the frame rate, and a track
/// that is missing. A rate that varies is not compared.
pub(crate) fn differences(slate: &SlateRecord, figures: &Figures) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut differ = |what, slate: String, encoder: String| found.push(Difference { what, slate, encoder });
    match &figures.video {
        Some(video) if video.codec == slate.video_codec => {
            if let Some(size) = video.size.filter(|size| *size != slate.size) {
                differ(Property::Size, pixels(slate.size), pixels(size));
            }
            let rate = f64::from(slate.frame_rate_milli) / 1_000.0;
            let is_steady = figures.is_settled && !figures.rate_varies;
            let other = |own: &f64| is_steady && (rate - own).abs() > own * FRAME_RATE_TOLERANCE;
            if let Some(own) = video.frame_rate.filter(other) {
                differ(Property::FrameRate, format!("{rate:.2}"), format!("{own:.2}"));
            }
        }
        None if !figures.is_settled => {}
        video => {
            let codec = video.as_ref().map_or(NONE, |video| video.codec);
            differ(Property::VideoCodec, slate.video_codec.clone(), codec.to_owned());
        }
    }
    match (&slate.audio, &figures.audio) {
        (None, None) => {}
        (Some(_), None) if !figures.is_settled => {}
        (Some(slate), Some(audio)) if slate.codec == audio.codec => {
            if let Some(rate) = audio.sample_rate.filter(|rate| *rate != slate.sample_rate) {
                differ(Property::SampleRate, slate.sample_rate.to_string(), rate.to_string());
            }
            if let Some(channels) = audio.channels.filter(|channels| *channels != slate.channels) {
                differ(Property::Channels, slate.channels.to_string(), channels.to_string());
            }
        }
        (slate, audio) => {
            let own = slate.as_ref().map_or(NONE, |slate| &slate.codec);
            let codec = audio.as_ref().map_or(NONE, |audio| audio.codec);
            differ(Property::AudioCodec, own.to_owned(), codec.to_owned());
        }
    }
    found
}

fn pixels((width, height): (u32, u32)) -> String {
    format!("{width}x{height}")
}

/// The differences for people: "size 1280x720 instead of 1920x1080, channels 1 instead of 2".
pub(crate) fn texts(differences: &[Difference]) -> String {
    let mut text = String::new();
    for Difference { what, slate, encoder } in differences {
        let between = if text.is_empty() { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{between}{} {slate} instead of {encoder}", what.name());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{AudioHealth, VideoHealth};
    use satcast_core::ids::UnixMillis;
    use satcast_store::SlateAudio;

    fn slate() -> SlateRecord {
        let audio = SlateAudio { codec: "aac".into(), sample_rate: 48_000, channels: 2 };
        SlateRecord {
            max_seconds: 60,
            length_ms: 10_000,
            bytes: 1,
            video_codec: "h264".into(),
            size: (1_920, 1_080),
            frame_rate_milli: 29_970,
            audio: Some(audio),
            uploaded_at: UnixMillis(0),
        }
    }

    fn video() -> VideoHealth {
        VideoHealth {
            codec: "h264",
            size: Some((1_920, 1_080)),
            frame_rate: Some(30.0),
            bitrate: None,
            keyframe_interval: None,
            b_frames: false,
        }
    }

    fn audio() -> AudioHealth {
        AudioHealth { codec: "aac", sample_rate: Some(48_000), channels: Some(2), bitrate: None }
    }

    fn found(video: Option<VideoHealth>, audio: Option<AudioHealth>) -> Vec<Property> {
        let figures = Figures { video, audio, is_settled: true, ..Figures::default() };
        differences(&slate(), &figures).into_iter().map(|difference| difference.what).collect()
    }

    #[test]
    fn each_property_is_compared_and_unknown_ones_match() {
        let table = [
            (video(), audio(), vec![]),
            (VideoHealth { codec: "hevc", ..video() }, audio(), vec![Property::VideoCodec]),
            (VideoHealth { size: Some((1_280, 720)), ..video() }, audio(), vec![Property::Size]),
            (VideoHealth { frame_rate: Some(31.5), ..video() }, audio(), vec![]),
            (VideoHealth { frame_rate: Some(31.6), ..video() }, audio(), vec![Property::FrameRate]),
            (VideoHealth { frame_rate: Some(25.0), ..video() }, audio(), vec![Property::FrameRate]),
            (VideoHealth { size: None, frame_rate: None, ..video() }, audio(), vec![]),
            (video(), AudioHealth { codec: "opus", ..audio() }, vec![Property::AudioCodec]),
            (video(), AudioHealth { sample_rate: Some(44_100), ..audio() }, vec![Property::SampleRate]),
            (video(), AudioHealth { channels: Some(1), ..audio() }, vec![Property::Channels]),
            (video(), AudioHealth { sample_rate: None, channels: None, ..audio() }, vec![]),
        ];
        for (video, audio, expected) in table {
            assert_eq!(found(Some(video.clone()), Some(audio.clone())), expected, "{video:?} {audio:?}");
        }
        assert_eq!(found(Some(video()), None), [Property::AudioCodec]);
        assert_eq!(found(None, Some(audio())), [Property::VideoCodec]);
        assert_eq!(differences(&slate(), &Figures::default()), [], "nothing is known");
        let silent = SlateRecord { audio: None, ..slate() };
        let figures = |audio| Figures { video: Some(video()), audio, ..Figures::default() };
        assert_eq!(differences(&silent, &figures(None)), []);
        assert_eq!(differences(&silent, &figures(Some(audio())))[0].what, Property::AudioCodec);
        let first = VideoHealth { size: Some((1_280, 720)), frame_rate: Some(20.0), ..video() };
        let begun = Figures { video: Some(first), ..Figures::default() };
        let found = differences(&slate(), &begun);
        assert_eq!(
            (found.len(), found[0].what),
            (1, Property::Size),
            "a rate may be wrong in the first seconds"
        );
        let slow = VideoHealth { frame_rate: Some(20.0), ..video() };
        let of_rate = |rate_varies| Figures {
            video: Some(slow.clone()),
            audio: Some(audio()),
            is_settled: true,
            rate_varies,
            ..Figures::default()
        };
        assert_eq!(differences(&slate(), &of_rate(false))[0].what, Property::FrameRate);
        assert_eq!(differences(&slate(), &of_rate(true)), []);
    }

    #[test]
    fn differences_are_said_with_both_values_text() {
        let video = VideoHealth { size: Some((1_280, 720)), ..video() };
        let figures = Figures { video: Some(video), is_settled: true, ..Figures::default() };
        let text = "size 1920x1080 instead of 1280x720, audio codec aac instead of none";
        assert_eq!(texts(&differences(&slate(), &figures)), text);
    }
}
