//! Derives issues from figures and requirements.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::sync::Arc;

use satcast_media::Kind;
use satcast_media::flv::ForeignCodec;

use super::gauge::Figures;
use super::issues::{Issue, IssueCode};
use satcast_drivers::Requirements;

/// A longer keyframe interval is an issue for all destinations: viewers cannot join between keyframes.
pub(crate) const KEYFRAME_SECS_MAX: f64 = 10.0;
/// Longest text of an issue, in characters.
pub(crate) const TEXT_CHARS_MAX: usize = 500;

/// Tolerance above a limit. A shown issue clears at a smaller tolerance, because encoders do not keep rates exactly.
#[derive(Clone, Copy)]
struct Slack {
    rate: f64,
    secs: f64,
}

const FRESH: Slack = Slack { rate: 1.1, secs: 0.25 };
const SHOWN: Slack = Slack { rate: 1.02, secs: 0.05 };

/// The verdict for one code.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Bad(Issue),
    Good,
    /// Not enough media to decide.
    Unknown,
}

/// The verdict for each code.
pub(crate) type Verdicts = [(IssueCode, Verdict); IssueCode::ALL.len()];

/// Destination type and requirements.
pub(crate) type PlatformRequirements = (String, Arc<Requirements>);

/// All verdicts, in the order of [`IssueCode::ALL`]. `is_shown`: the issue is already shown.
pub(crate) fn judge(
    figures: &Figures,
    requirements: &[PlatformRequirements],
    is_shown: impl Fn(IssueCode) -> bool,
) -> Verdicts {
    IssueCode::ALL.map(|code| {
        let slack = if is_shown(code) { SHOWN } else { FRESH };
        (code, verdict(code, figures, requirements, slack))
    })
}

fn verdict(
    code: IssueCode,
    figures: &Figures,
    requirements: &[PlatformRequirements],
    slack: Slack,
) -> Verdict {
    // The session compares its slate.
    if code == IssueCode::SlateMismatch {
        return Verdict::Unknown;
    }
    // When nothing arrives, this is the only issue.
    if figures.is_silent && code != IssueCode::NothingArrives {
        return Verdict::Unknown;
    }
    match code {
        IssueCode::NothingArrives => {
            general(code, figures.is_silent, "the encoder is connected but sends nothing")
        }
        IssueCode::TimestampJumps => {
            let text = "the encoder's timestamps jumped; viewers see a break each time";
            general(code, figures.jumped_lately, text)
        }
        IssueCode::VideoMissing | IssueCode::AudioMissing => missing(code, figures, requirements),
        IssueCode::AudioCodec | IssueCode::AudioBitrate => audio(code, figures, requirements, slack),
        _ => video(code, figures, requirements, slack),
    }
}

/// An issue of all destinations.
fn general(code: IssueCode, is_bad: bool, text: &str) -> Verdict {
    if !is_bad {
        return Verdict::Good;
    }
    Verdict::Bad(Issue { code, text: text.to_owned(), platforms: Vec::new() })
}

fn missing(code: IssueCode, figures: &Figures, requirements: &[PlatformRequirements]) -> Verdict {
    let (arrives, kind, finding) = match code {
        IssueCode::VideoMissing => (figures.video.is_some(), Kind::Video, "no video arrives"),
        _ => (figures.audio.is_some(), Kind::Audio, "no audio arrives"),
    };
    // The track arrives with an unsupported codec, which is an issue of its own.
    if foreign(figures, kind).is_some() {
        return Verdict::Good;
    }
    if arrives || !figures.is_settled {
        return if arrives { Verdict::Good } else { Verdict::Unknown };
    }
    let needs = |requirements: &Requirements| {
        let needs = match code {
            IssueCode::VideoMissing => requirements.needs_video,
            _ => requirements.needs_audio,
        };
        needs.then(|| "needs it".to_owned())
    };
    let Complaints { text, platforms } = complaints(requirements, needs);
    Verdict::Bad(issue(code, finding, text, platforms))
}

fn foreign(figures: &Figures, kind: Kind) -> Option<ForeignCodec> {
    figures.foreign.iter().copied().find(|codec| codec.kind == kind)
}

fn audio(code: IssueCode, figures: &Figures, requirements: &[PlatformRequirements], slack: Slack) -> Verdict {
    let Some(audio) = &figures.audio else {
        return unsupported(code, IssueCode::AudioCodec, figures, Kind::Audio);
    };
    match code {
        IssueCode::AudioCodec => codec(code, "audio", audio.codec, requirements, |requirements| {
            requirements.audio_codecs.as_deref()
        }),
        _ => bitrate(code, "audio", audio.bitrate, requirements, slack, |requirements| {
            requirements.audio_kbps_max
        }),
    }
}

/// The track is left out because of its codec, which is an issue of all destinations.
fn unsupported(code: IssueCode, of_codec: IssueCode, figures: &Figures, kind: Kind) -> Verdict {
    let codec = foreign(figures, kind).filter(|_| code == of_codec);
    codec.map_or(Verdict::Unknown, |codec| Verdict::Bad(Issue::unsupported(codec)))
}

fn video(code: IssueCode, figures: &Figures, requirements: &[PlatformRequirements], slack: Slack) -> Verdict {
    let Some(video) = &figures.video else {
        return unsupported(code, IssueCode::VideoCodec, figures, Kind::Video);
    };
    match code {
        IssueCode::VideoCodec => codec(code, "video", video.codec, requirements, |requirements| {
            requirements.video_codecs.as_deref()
        }),
        IssueCode::VideoBitrate => {
            bitrate(code, "video", video.bitrate, requirements, slack, |requirements| {
                requirements.video_kbps_max
            })
        }
        IssueCode::FrameRate => {
            let Some(rate) = video.frame_rate else { return Verdict::Unknown };
            let over = |requirements: &Requirements| {
                let max = requirements.frame_rate_max.filter(|max| rate > max * slack.rate)?;
                Some(format!("takes {max}"))
            };
            found(code, &format!("{rate:.0} frames per second"), complaints(requirements, over))
        }
        IssueCode::BFrames => {
            let refuses = |requirements: &Requirements| {
                (video.b_frames && !requirements.b_frames).then(|| "takes none".to_owned())
            };
            found(code, "the video has B-frames", complaints(requirements, refuses))
        }
        _ => keyframes(code, video.keyframe_interval, requirements, slack),
    }
}

fn keyframes(
    code: IssueCode,
    interval: Option<f64>,
    requirements: &[PlatformRequirements],
    slack: Slack,
) -> Verdict {
    let Some(interval) = interval else { return Verdict::Unknown };
    let over = |requirements: &Requirements| {
        let asks = requirements.keyframe_seconds?;
        let most = requirements.keyframe_seconds_max.unwrap_or(asks).max(asks);
        let text = if most > asks {
            format!("asks for {asks} s, {most} s at most")
        } else {
            format!("asks for {asks} s")
        };
        let why = requirements.keyframe_why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
        (interval > most + slack.secs).then(|| text + &why)
    };
    let finding = format!("keyframe interval {interval:.1} s");
    let complaints = complaints(requirements, over);
    if complaints.platforms.is_empty() && interval > KEYFRAME_SECS_MAX + slack.secs {
        let text = format!("{finding}: viewers cannot join between keyframes; set 2 s in the encoder");
        return general(code, true, &text);
    }
    found(code, &finding, complaints)
}

fn codec<'a>(
    code: IssueCode,
    track: &str,
    codec: &str,
    requirements: &'a [PlatformRequirements],
    taken: impl Fn(&'a Requirements) -> Option<&'a [String]>,
) -> Verdict {
    let refuses = |requirements: &'a Requirements| {
        let taken = taken(requirements).filter(|taken| !taken.iter().any(|taken| taken == codec))?;
        Some(format!("takes {}", taken.join(", ")))
    };
    found(code, &format!("{track} codec {codec}"), complaints(requirements, refuses))
}

fn bitrate(
    code: IssueCode,
    track: &str,
    bits: Option<u64>,
    requirements: &[PlatformRequirements],
    slack: Slack,
    most: impl Fn(&Requirements) -> Option<u32>,
) -> Verdict {
    let Some(bits) = bits else { return Verdict::Unknown };
    let kbps = bits as f64 / 1e3;
    let over = |requirements: &Requirements| {
        let max = most(requirements).filter(|max| kbps > f64::from(*max) * slack.rate)?;
        Some(format!("takes {max} kbit/s"))
    };
    found(code, &format!("{track} bitrate {kbps:.0} kbit/s"), complaints(requirements, over))
}

/// The platforms that do not accept it, and their requirements.
#[derive(Default)]
struct Complaints {
    text: String,
    platforms: Vec<String>,
}

fn complaints<'a>(
    requirements: &'a [PlatformRequirements],
    complains: impl Fn(&'a Requirements) -> Option<String>,
) -> Complaints {
    let mut all = Complaints::default();
    for (kind, requirements) in requirements {
        // Of several servers of one type that refused the codec, the first one is named.
        let Some(wants) = complains(requirements).filter(|_| !all.platforms.contains(kind)) else { continue };
        let between = if all.platforms.is_empty() { "" } else { "; " };
        // Writing to a String cannot fail.
        let _ = write!(all.text, "{between}{} {wants}", requirements.title);
        all.platforms.push(kind.clone());
    }
    all
}

/// Bad when at least one platform does not accept it.
fn found(code: IssueCode, finding: &str, complaints: Complaints) -> Verdict {
    if complaints.platforms.is_empty() {
        return Verdict::Good;
    }
    Verdict::Bad(issue(code, finding, complaints.text, complaints.platforms))
}

fn issue(code: IssueCode, finding: &str, wants: String, platforms: Vec<String>) -> Issue {
    let text = if wants.is_empty() { finding.to_owned() } else { format!("{finding}: {wants}") };
    Issue { code, text: text.chars().take(TEXT_CHARS_MAX).collect(), platforms }
}
