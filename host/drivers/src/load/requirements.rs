//! Requirements for a stream of the service behind a destination type: the annotation `x-platform` of the type's
//! schema, which any driver may give. They are shown and compared with the stream, never enforced.

use satcast_plugin_api::manifest::DestType;
use satcast_plugin_api::{Codec, Kind};
use serde::Deserialize;

const ANNOTATION: &str = "x-platform";

/// Requirements of a platform. A missing field requires nothing; unknown fields are ignored.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Requirements {
    /// The title of the type, shown to users.
    #[serde(skip)]
    pub title: String,
    /// Accepted video codecs: `h264`, `hevc`, `av1`.
    pub video_codecs: Option<Vec<String>>,
    /// Accepted audio codecs: `aac`, `opus`.
    pub audio_codecs: Option<Vec<String>>,
    /// Highest video bit rate, in kbit/s.
    pub video_kbps_max: Option<u32>,
    /// Highest audio bit rate, in kbit/s.
    pub audio_kbps_max: Option<u32>,
    /// Recommended keyframe distance, in seconds.
    pub keyframe_seconds: Option<f64>,
    /// Longest accepted keyframe distance, in seconds; if missing, the recommended one.
    pub keyframe_seconds_max: Option<f64>,
    /// Effect of a longer distance, as text for users.
    pub keyframe_why: Option<String>,
    /// Most frames per second.
    pub frame_rate_max: Option<f64>,
    /// Whether B-frames are accepted; true if missing.
    pub b_frames: bool,
    /// Whether a stream without video is refused; true if missing.
    pub needs_video: bool,
    /// Whether a stream without audio is refused.
    pub needs_audio: bool,
}

impl Default for Requirements {
    fn default() -> Self {
        Self {
            title: String::new(),
            video_codecs: None,
            audio_codecs: None,
            video_kbps_max: None,
            audio_kbps_max: None,
            keyframe_seconds: None,
            keyframe_seconds_max: None,
            keyframe_why: None,
            frame_rate_max: None,
            b_frames: true,
            needs_video: true,
            needs_audio: false,
        }
    }
}

impl Requirements {
    /// Those of a service that takes these codecs; a kind of track without one is not compared.
    pub fn of_codecs(title: &str, codecs: &[Codec]) -> Self {
        let names = |kind| {
            let names =
                codecs.iter().filter(|codec| codec.kind() == kind).map(|codec| codec.name().to_owned());
            Some(names.collect::<Vec<_>>()).filter(|names| !names.is_empty())
        };
        Self {
            title: title.to_owned(),
            video_codecs: names(Kind::Video),
            audio_codecs: names(Kind::Audio),
            needs_video: false,
            ..Self::default()
        }
    }

    /// The requirements of a type: those in its schema, or else the codecs that it declares; `None` when it has neither.
    /// An unreadable annotation is logged.
    pub(crate) fn of(kind: &DestType) -> Option<Self> {
        let DestType { name, title, .. } = kind;
        let Some(annotation) = kind.schema.get(ANNOTATION) else {
            let codecs =
                Codec::ALL.into_iter().filter(|codec| kind.codecs.iter().any(|name| name == codec.name()));
            let codecs: Vec<Codec> = codecs.collect();
            return (!codecs.is_empty()).then(|| Self::of_codecs(title, &codecs));
        };
        match Self::deserialize(annotation) {
            Ok(requirements) => Some(Self { title: title.clone(), ..requirements }),
            Err(error) => {
                tracing::warn!(
                    kind = name,
                    %error,
                    "{ANNOTATION} of a destination type cannot be read; streams are not compared with it"
                );
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn requirements_are_read_from_the_schema_of_a_type() {
        let of = |schema: Value, codecs: &[&str]| {
            let codecs = codecs.iter().map(|name| (*name).to_owned()).collect();
            let (name, title, routes) = ("a".into(), "A".into(), Vec::new());
            let (playback, wants_backfill) = (false, false);
            Requirements::of(&DestType { name, title, schema, codecs, playback, wants_backfill, routes })
        };
        let schema = json!({"x-platform": {
            "videoCodecs": ["h264"], "videoKbpsMax": 6000, "audioKbpsMax": null, "keyframeSeconds": 2,
            "keyLink": "https://a.example",
        }});
        let expected = Requirements {
            title: "A".into(),
            video_codecs: Some(vec!["h264".into()]),
            video_kbps_max: Some(6_000),
            keyframe_seconds: Some(2.0),
            ..Requirements::default()
        };
        assert_eq!(of(schema, &["hevc"]), Some(expected));
        let takes = of(json!({"x-platform": {}}), &[]).unwrap();
        assert!(takes.b_frames && takes.needs_video && !takes.needs_audio);
        assert_eq!(of(json!({"x-platform": {"videoKbpsMax": "much"}}), &[]), None);
        // Without the annotation the codecs of the type count.
        assert_eq!(of(json!({"type": "object"}), &[]), None);
        let codecs = of(json!({"type": "object"}), &["h264", "hevc", "a-new-one"]).unwrap();
        assert_eq!(codecs, Requirements::of_codecs("A", &[Codec::H264, Codec::Hevc]));
        assert_eq!(codecs.video_codecs, Some(vec!["h264".into(), "hevc".into()]));
        assert!(codecs.audio_codecs.is_none() && !codecs.needs_video);
    }
}
