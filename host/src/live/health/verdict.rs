//! From figures and wishes to issues.

use std::fmt::Write as _;
use std::sync::Arc;

use super::{Figures, Issue, IssueCode};
use crate::drivers::Wishes;

/// Keyframes that are further apart are bad for everyone: nobody can join in between.
pub(in crate::live) const KEYFRAME_SECS_MAX: f64 = 10.0;
/// Longest text of an issue, in characters.
pub(in crate::live) const TEXT_CHARS_MAX: usize = 500;

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
pub(in crate::live) enum Verdict {
    /// It is an issue.
    Bad(Issue),
    /// It is none.
    Good,
    /// Too little has come to say it.
    Unknown,
}

/// What is to be said of each code.
pub(in crate::live) type Verdicts = [(IssueCode, Verdict); IssueCode::ALL.len()];

/// Wishes of a destination type.
pub(in crate::live) type Wish = (String, Arc<Wishes>);

/// Judges everything, in the order of [`IssueCode::ALL`]; `is_shown` says what is an issue already.
pub(in crate::live) fn judge(
    figures: &Figures,
    wishes: &[Wish],
    is_shown: impl Fn(IssueCode) -> bool,
) -> Verdicts {
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
    let (comes, what) = match code {
        IssueCode::VideoMissing => (figures.video.is_some(), "no picture comes"),
        _ => (figures.audio.is_some(), "no sound comes"),
    };
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

fn audio(code: IssueCode, figures: &Figures, wishes: &[Wish], slack: Slack) -> Verdict {
    let Some(audio) = &figures.audio else { return Verdict::Unknown };
    match code {
        IssueCode::AudioCodec => {
            codec(code, "audio", audio.codec, wishes, |wishes| wishes.audio_codecs.as_deref())
        }
        _ => bitrate(code, "audio", audio.bitrate, wishes, slack, |wishes| wishes.audio_kbps_max),
    }
}

fn video(code: IssueCode, figures: &Figures, wishes: &[Wish], slack: Slack) -> Verdict {
    let Some(video) = &figures.video else { return Verdict::Unknown };
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
        (interval > most + slack.secs).then_some(text)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::health::{AudioHealth, VideoHealth};

    fn figures() -> Figures {
        let video = VideoHealth {
            codec: "h264",
            size: Some((1280, 720)),
            frame_rate: Some(30.0),
            bitrate: Some(3_000_000),
            keyframe_interval: Some(2.0),
            b_frames: false,
        };
        let audio = AudioHealth {
            codec: "aac",
            sample_rate: Some(48_000),
            channels: Some(2),
            bitrate: Some(128_000),
        };
        Figures { video: Some(video), audio: Some(audio), is_settled: true, ..Figures::default() }
    }

    fn with_video(change: impl FnOnce(&mut VideoHealth)) -> Figures {
        let mut figures = figures();
        change(figures.video.as_mut().unwrap());
        figures
    }

    fn wishes() -> Vec<Wish> {
        let codecs = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let twitch = Wishes {
            title: "Twitch".into(),
            video_codecs: codecs(&["h264"]),
            audio_codecs: codecs(&["aac"]),
            video_kbps_max: Some(6_000),
            audio_kbps_max: Some(320),
            keyframe_seconds: Some(2.0),
            ..Wishes::default()
        };
        let youtube = Wishes {
            title: "YouTube".into(),
            video_codecs: codecs(&["h264", "hevc"]),
            keyframe_seconds: Some(2.0),
            keyframe_seconds_max: Some(4.0),
            needs_audio: true,
            frame_rate_max: Some(60.0),
            b_frames: false,
            ..Wishes::default()
        };
        vec![("twitch".into(), Arc::new(twitch)), ("youtube".into(), Arc::new(youtube))]
    }

    fn bad(figures: &Figures, wishes: &[Wish], is_shown: bool) -> Vec<(IssueCode, String, Vec<String>)> {
        let verdicts = judge(figures, wishes, |_| is_shown);
        let bad = verdicts.into_iter().filter_map(|(_, verdict)| match verdict {
            Verdict::Bad(issue) => Some((issue.code, issue.text, issue.platforms)),
            _ => None,
        });
        bad.collect()
    }

    #[track_caller]
    fn assert_bad(figures: &Figures, code: IssueCode, text: &str, platforms: &[&str]) {
        let platforms: Vec<String> = platforms.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(bad(figures, &wishes(), false), [(code, text.to_owned(), platforms)]);
    }

    #[test]
    fn what_everyone_takes_is_no_issue() {
        assert_eq!(bad(&figures(), &wishes(), false), []);
        assert_eq!(bad(&figures(), &[], false), []);
    }

    #[test]
    fn every_issue_names_the_figure_who_it_breaks_and_what_they_want() {
        let interval = |secs| with_video(|video| video.keyframe_interval = Some(secs));
        let text = "keyframe interval 3.0 s: Twitch asks for 2 s";
        assert_bad(&interval(3.0), IssueCode::KeyframeInterval, text, &["twitch"]);
        let text = "keyframe interval 5.0 s: Twitch asks for 2 s; YouTube asks for 2 s, 4 s at most";
        assert_bad(&interval(5.0), IssueCode::KeyframeInterval, text, &["twitch", "youtube"]);
        let codec = |codec| with_video(|video| video.codec = codec);
        assert_bad(&codec("hevc"), IssueCode::VideoCodec, "video codec hevc: Twitch takes h264", &["twitch"]);
        let text = "video codec av1: Twitch takes h264; YouTube takes h264, hevc";
        assert_bad(&codec("av1"), IssueCode::VideoCodec, text, &["twitch", "youtube"]);
        let fast = with_video(|video| video.bitrate = Some(7_000_000));
        let text = "video bitrate 7000 kbit/s: Twitch takes 6000 kbit/s";
        assert_bad(&fast, IssueCode::VideoBitrate, text, &["twitch"]);
        let mut loud = figures();
        loud.audio.as_mut().unwrap().bitrate = Some(400_000);
        let text = "audio bitrate 400 kbit/s: Twitch takes 320 kbit/s";
        assert_bad(&loud, IssueCode::AudioBitrate, text, &["twitch"]);
        let smooth = with_video(|video| video.frame_rate = Some(120.0));
        assert_bad(&smooth, IssueCode::FrameRate, "120 pictures a second: YouTube takes 60", &["youtube"]);
        let reordered = with_video(|video| video.b_frames = true);
        assert_bad(
            &reordered,
            IssueCode::BFrames,
            "the video has B-frames: YouTube takes none",
            &["youtube"],
        );
        let mut opus = figures();
        opus.audio.as_mut().unwrap().codec = "opus";
        assert_bad(&opus, IssueCode::AudioCodec, "audio codec opus: Twitch takes aac", &["twitch"]);
        opus.audio = None;
        assert_bad(&opus, IssueCode::AudioMissing, "no sound comes: YouTube needs it", &["youtube"]);
        let blind = Figures { video: None, ..figures() };
        let text = "no picture comes: Twitch needs it; YouTube needs it";
        assert_bad(&blind, IssueCode::VideoMissing, text, &["twitch", "youtube"]);
        let jumped = Figures { jumped_lately: true, ..figures() };
        let text = "the encoder's timestamps jumped; viewers see a break each time";
        assert_bad(&jumped, IssueCode::TimestampJumps, text, &[]);
    }

    #[test]
    fn some_things_are_bad_without_any_platform() {
        let interval = |secs| with_video(|video| video.keyframe_interval = Some(secs));
        assert_eq!(bad(&interval(KEYFRAME_SECS_MAX), &[], false), []);
        let text = "keyframe interval 12.0 s: nobody can join in between; 2 s is usual".to_owned();
        assert_eq!(bad(&interval(12.0), &[], false), [(IssueCode::KeyframeInterval, text, vec![])]);
        let mute = Figures { audio: None, ..figures() };
        assert_eq!(bad(&mute, &[], false), [(IssueCode::AudioMissing, "no sound comes".to_owned(), vec![])]);
        let silent = Figures { is_silent: true, video: None, audio: None, ..figures() };
        let only: Vec<_> = bad(&silent, &wishes(), false).into_iter().map(|(code, ..)| code).collect();
        assert_eq!(only, [IssueCode::NothingArrives]);
    }

    #[test]
    fn what_is_shown_goes_only_when_it_is_well_below() {
        for (bits, fresh, shown) in [(6_100_000, 0, 0), (6_500_000, 0, 1), (6_700_000, 1, 1)] {
            let figures = with_video(|video| video.bitrate = Some(bits));
            let counts = [false, true].map(|is_shown| bad(&figures, &wishes(), is_shown).len());
            assert_eq!(counts, [fresh, shown], "{bits}");
        }
        let figures = with_video(|video| video.keyframe_interval = Some(2.1));
        assert_eq!([false, true].map(|is_shown| bad(&figures, &wishes(), is_shown).len()), [0, 1]);
    }

    #[test]
    fn what_is_not_known_is_neither_good_nor_bad() {
        let none = Figures::default();
        let unknown = judge(&none, &wishes(), |_| false)
            .into_iter()
            .filter(|(_, verdict)| *verdict == Verdict::Unknown);
        assert_eq!(unknown.count(), IssueCode::ALL.len() - 2, "all but silence and jumps");
    }

    #[test]
    fn texts_are_cut() {
        let long = Wishes { title: "x".repeat(900), keyframe_seconds: Some(2.0), ..Wishes::default() };
        let figures = with_video(|video| video.keyframe_interval = Some(9.0));
        let all = bad(&figures, &[("long".into(), Arc::new(long))], false);
        assert_eq!(all[0].1.chars().count(), TEXT_CHARS_MAX);
    }
}
