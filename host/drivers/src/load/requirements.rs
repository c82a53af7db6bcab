//! Requirements for a stream of the service behind a destination type: the annotation `x-platform` of the type's
//! schema, which any driver may give. They are shown and compared with the stream, never enforced.

use serde::Deserialize;
use serde_json::Value;

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
    /// The requirements in the schema of a type; `None` when it has none. An unreadable annotation is logged.
    pub(crate) fn of(name: &str, title: &str, schema: &Value) -> Option<Self> {
        let annotation = schema.get(ANNOTATION)?;
        match Self::deserialize(annotation) {
            Ok(requirements) => Some(Self { title: title.to_owned(), ..requirements }),
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
    fn requirements_are_read_from_the_schema_of_a_type() {
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
        assert_eq!(Requirements::of("a", "A", &schema), Some(expected));
        let takes = Requirements::of("a", "A", &json!({"x-platform": {}})).unwrap();
        assert!(takes.b_frames && takes.needs_video && !takes.needs_audio);
        assert_eq!(Requirements::of("a", "A", &json!({"type": "object"})), None);
        assert_eq!(Requirements::of("a", "A", &json!({"x-platform": {"videoKbpsMax": "much"}})), None);
    }
}
