//! From figures and wishes to issues.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::sync::Arc;

use satcast_media::Kind;
use satcast_media::flv::ForeignCodec;

use super::figures::Figures;
use super::issues::{Issue, IssueCode};
use satcast_drivers::Wishes;

/// Keyframes that are further apart are bad for everyone: nobody can join in between.
pub(crate) const KEYFRAME_SECS_MAX: f64 = 10.0;
/// Longest text of an issue, in characters.
pub(crate) const TEXT_CHARS_MAX: usize = 500;

/// How far over a limit something is an issue, and how far one that is shown must fall: encoders keep to no rate exactly.
#[derive(Clone, Copy)]
struct Slack {
    rate: f64,
    secs: f64,
}

const FRESH: Slack = Slack { rate: 1.1, secs: 0.25 };
const SHOWN: Slack = Slack { rate: 1.02, secs: 0.05 };

/// What is to be said of one code.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It is an issue.
    Bad(Issue),
    /// It is none.
    Good,
    /// Too little has come to say it.
    Unknown,
}

/// What is to be said of each code.
pub(crate) type Verdicts = [(IssueCode, Verdict); IssueCode::ALL.len()];

/// Wishes of a destination type.
pub(crate) type Wish = (String, Arc<Wishes>);

/// Judges everything, in the order of [`IssueCode::ALL`]; `is_shown` says what is an issue already.
pub(crate) fn judge(figures: &Figures, wishes: &[Wish], is_shown: impl Fn(IssueCode) -> bool) -> Verdicts {
    IssueCode::ALL.map(|code| {
        let slack = if is_shown(code) { SHOWN } else { FRESH };
        (code, verdict(code, figures, wishes, slack))
    })
}

fn verdict(code: IssueCode, figures: &Figures, wishes: &[Wish], slack: Slack) -> Verdict {
    // When nothing comes, that is the one thing to say.
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
        IssueCode::VideoMissing | IssueCode::AudioMissing => missing(code, figures, wishes),
        IssueCode::AudioCodec | IssueCode::AudioBitrate => audio(code, figures, wishes, slack),
        _ => video(code, figures, wishes, slack),
    }
}

/// Bad for everyone.
fn general(code: IssueCode, is_bad: bool, text: &str) -> Verdict {
    if !is_bad {
        return Verdict::Good;
    }
    Verdict::Bad(Issue { code, text: text.to_owned(), platforms: Vec::new() })
}

fn missing(code: IssueCode, figures: &Figures, wishes: &[Wish]) -> Verdict {
    let (comes, kind, what) = match code {
        IssueCode::VideoMissing => (figures.video.is_some(), Kind::Video, "no video comes"),
        _ => (figures.audio.is_some(), Kind::Audio, "no audio comes"),
    };
    // It comes, in a codec that nobody takes, and that is what is said.
    if foreign(figures, kind).is_some() {
        return Verdict::Good;
    }
    if comes || !figures.is_settled {
        return if comes { Verdict::Good } else { Verdict::Unknown };
    }
    let needs = |wishes: &Wishes| {
        let needs = match code {
            IssueCode::VideoMissing => wishes.needs_video,
            _ => wishes.needs_audio,
        };
        needs.then(|| "needs it".to_owned())
    };
    let Complaints { text, platforms } = complaints(wishes, needs);
    Verdict::Bad(issue(code, what, text, platforms))
}

fn foreign(figures: &Figures, kind: Kind) -> Option<ForeignCodec> {
    figures.foreign.iter().copied().find(|codec| codec.kind == kind)
}

fn audio(code: IssueCode, figures: &Figures, wishes: &[Wish], slack: Slack) -> Verdict {
    let Some(audio) = &figures.audio else {
        return unsupported(code, IssueCode::AudioCodec, figures, Kind::Audio);
    };
    match code {
        IssueCode::AudioCodec => {
            codec(code, "audio", audio.codec, wishes, |wishes| wishes.audio_codecs.as_deref())
        }
        _ => bitrate(code, "audio", audio.bitrate, wishes, slack, |wishes| wishes.audio_kbps_max),
    }
}

/// Of a track that does not come: its codec, which is bad for everyone.
fn unsupported(code: IssueCode, of_codec: IssueCode, figures: &Figures, kind: Kind) -> Verdict {
    let codec = foreign(figures, kind).filter(|_| code == of_codec);
    codec.map_or(Verdict::Unknown, |codec| Verdict::Bad(Issue::unsupported(codec)))
}

fn video(code: IssueCode, figures: &Figures, wishes: &[Wish], slack: Slack) -> Verdict {
    let Some(video) = &figures.video else {
        return unsupported(code, IssueCode::VideoCodec, figures, Kind::Video);
    };
    match code {
        IssueCode::VideoCodec => {
            codec(code, "video", video.codec, wishes, |wishes| wishes.video_codecs.as_deref())
        }
        IssueCode::VideoBitrate => {
            bitrate(code, "video", video.bitrate, wishes, slack, |wishes| wishes.video_kbps_max)
        }
        IssueCode::FrameRate => {
            let Some(rate) = video.frame_rate else { return Verdict::Unknown };
            let over = |wishes: &Wishes| {
                let max = wishes.frame_rate_max.filter(|max| rate > max * slack.rate)?;
                Some(format!("takes {max}"))
            };
            found(code, &format!("{rate:.0} pictures a second"), complaints(wishes, over))
        }
        IssueCode::BFrames => {
            let refuses =
                |wishes: &Wishes| (video.b_frames && !wishes.b_frames).then(|| "takes none".to_owned());
            found(code, "the video has B-frames", complaints(wishes, refuses))
        }
        _ => keyframes(code, video.keyframe_interval, wishes, slack),
    }
}

fn keyframes(code: IssueCode, interval: Option<f64>, wishes: &[Wish], slack: Slack) -> Verdict {
    let Some(interval) = interval else { return Verdict::Unknown };
    let over = |wishes: &Wishes| {
        let asks = wishes.keyframe_seconds?;
        let most = wishes.keyframe_seconds_max.unwrap_or(asks).max(asks);
        let text = if most > asks {
            format!("asks for {asks} s, {most} s at most")
        } else {
            format!("asks for {asks} s")
        };
        let why = wishes.keyframe_why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
        (interval > most + slack.secs).then(|| text + &why)
    };
    let what = format!("keyframe interval {interval:.1} s");
    let complaints = complaints(wishes, over);
    if complaints.platforms.is_empty() && interval > KEYFRAME_SECS_MAX + slack.secs {
        let text = format!("{what}: nobody can join in between; 2 s is usual");
        return general(code, true, &text);
    }
    found(code, &what, complaints)
}

fn codec<'a>(
    code: IssueCode,
    track: &str,
    codec: &str,
    wishes: &'a [Wish],
    taken: impl Fn(&'a Wishes) -> Option<&'a [String]>,
) -> Verdict {
    let refuses = |wishes: &'a Wishes| {
        let taken = taken(wishes).filter(|taken| !taken.iter().any(|taken| taken == codec))?;
        Some(format!("takes {}", taken.join(", ")))
    };
    found(code, &format!("{track} codec {codec}"), complaints(wishes, refuses))
}

fn bitrate(
    code: IssueCode,
    track: &str,
    bits: Option<u64>,
    wishes: &[Wish],
    slack: Slack,
    most: impl Fn(&Wishes) -> Option<u32>,
) -> Verdict {
    let Some(bits) = bits else { return Verdict::Unknown };
    let kbps = bits as f64 / 1e3;
    let over = |wishes: &Wishes| {
        let max = most(wishes).filter(|max| kbps > f64::from(*max) * slack.rate)?;
        Some(format!("takes {max} kbit/s"))
    };
    found(code, &format!("{track} bitrate {kbps:.0} kbit/s"), complaints(wishes, over))
}

/// Who does not take it, and what each wants.
#[derive(Default)]
struct Complaints {
    text: String,
    platforms: Vec<String>,
}

fn complaints<'a>(wishes: &'a [Wish], complains: impl Fn(&'a Wishes) -> Option<String>) -> Complaints {
    let mut all = Complaints::default();
    for (kind, wishes) in wishes {
        let Some(wants) = complains(wishes) else { continue };
        let between = if all.platforms.is_empty() { "" } else { "; " };
        // Writing to a String cannot fail.
        let _ = write!(all.text, "{between}{} {wants}", wishes.title);
        all.platforms.push(kind.clone());
    }
    all
}

/// Bad when anyone complains.
fn found(code: IssueCode, what: &str, complaints: Complaints) -> Verdict {
    if complaints.platforms.is_empty() {
        return Verdict::Good;
    }
    Verdict::Bad(issue(code, what, complaints.text, complaints.platforms))
}

fn issue(code: IssueCode, what: &str, wants: String, platforms: Vec<String>) -> Issue {
    let text = if wants.is_empty() { what.to_owned() } else { format!("{what}: {wants}") };
    Issue { code, text: text.chars().take(TEXT_CHARS_MAX).collect(), platforms }
}
