//! What the service behind a destination type asks of a stream: the annotation `x-platform` of the type's schema, which any
//! driver may give. It is shown and compared with what comes, never enforced.

use serde::Deserialize;
use serde_json::Value;

/// Where it stands in the schema.
const ANNOTATION: &str = "x-platform";

/// What a platform takes; a field that is left out asks for nothing, fields that are not known are passed over.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Wishes {
    /// Name that people know; that of the type.
    #[serde(skip)]
    pub title: String,
    /// Video codecs it takes: `h264`, `hevc`, `av1`.
    pub video_codecs: Option<Vec<String>>,
    /// Audio codecs it takes: `aac`, `opus`.
    pub audio_codecs: Option<Vec<String>>,
    /// Highest video bit rate, in kbit/s.
    pub video_kbps_max: Option<u32>,
    /// Highest audio bit rate, in kbit/s.
    pub audio_kbps_max: Option<u32>,
    /// Keyframe distance it asks for, in seconds.
    pub keyframe_seconds: Option<f64>,
    /// Longest keyframe distance it takes, in seconds; left out, that which it asks for.
    pub keyframe_seconds_max: Option<f64>,
    /// What a longer one means, for people.
    pub keyframe_why: Option<String>,
    /// Most frames a second.
    pub frame_rate_max: Option<f64>,
    /// It takes B-frames; true when left out.
    pub b_frames: bool,
    /// It takes no stream without video; true when left out.
    pub needs_video: bool,
    /// It takes no stream without audio.
    pub needs_audio: bool,
}

impl Default for Wishes {
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

impl Wishes {
    /// Those in the schema of a type; `None` when it has none. One that cannot be read is logged.
    pub(crate) fn of(name: &str, title: &str, schema: &Value) -> Option<Self> {
        let annotation = schema.get(ANNOTATION)?;
        match Self::deserialize(annotation) {
            Ok(wishes) => Some(Self { title: title.to_owned(), ..wishes }),
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
    use serde_json::json;

    use super::*;

    #[test]
    fn wishes_are_read_from_the_schema_of_a_type() {
        let schema = json!({"x-platform": {
            "videoCodecs": ["h264"], "videoKbpsMax": 6000, "audioKbpsMax": null, "keyframeSeconds": 2,
            "keyLink": "https://a.example",
        }});
        let expected = Wishes {
            title: "A".into(),
            video_codecs: Some(vec!["h264".into()]),
            video_kbps_max: Some(6_000),
            keyframe_seconds: Some(2.0),
            ..Wishes::default()
        };
        assert_eq!(Wishes::of("a", "A", &schema), Some(expected));
        let takes = Wishes::of("a", "A", &json!({"x-platform": {}})).unwrap();
        assert!(takes.b_frames && takes.needs_video && !takes.needs_audio);
        assert_eq!(Wishes::of("a", "A", &json!({"type": "object"})), None);
        assert_eq!(Wishes::of("a", "A", &json!({"x-platform": {"videoKbpsMax": "much"}})), None);
    }
}
