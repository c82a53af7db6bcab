use satcast_media::Codec;

use super::*;
use crate::health::{AudioHealth, VideoHealth};

fn figures() -> Figures {
    let video = VideoHealth {
        codec: "h264",
        size: Some((1280, 720)),
        frame_rate: Some(30.0),
        bitrate: Some(3_000_000),
        keyframe_interval: Some(2.0),
        b_frames: false,
    };
    let audio =
        AudioHealth { codec: "aac", sample_rate: Some(48_000), channels: Some(2), bitrate: Some(128_000) };
    Figures { video: Some(video), audio: Some(audio), is_settled: true, ..Figures::default() }
}

fn with_video(change: impl FnOnce(&mut VideoHealth)) -> Figures {
    let mut figures = figures();
    change(figures.video.as_mut().unwrap());
    figures
}

fn requirements() -> Vec<PlatformRequirements> {
    let codecs = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let twitch = Requirements {
        title: "Twitch".into(),
        video_codecs: codecs(&["h264"]),
        audio_codecs: codecs(&["aac"]),
        video_kbps_max: Some(6_000),
        audio_kbps_max: Some(320),
        keyframe_seconds: Some(2.0),
        ..Requirements::default()
    };
    let youtube = Requirements {
        title: "YouTube".into(),
        video_codecs: codecs(&["h264", "hevc"]),
        keyframe_seconds: Some(2.0),
        keyframe_seconds_max: Some(4.0),
        needs_audio: true,
        frame_rate_max: Some(60.0),
        b_frames: false,
        ..Requirements::default()
    };
    vec![("twitch".into(), Arc::new(twitch)), ("youtube".into(), Arc::new(youtube))]
}

fn bad(
    figures: &Figures,
    requirements: &[PlatformRequirements],
    is_shown: bool,
) -> Vec<(IssueCode, String, Vec<String>)> {
    let verdicts = judge(figures, requirements, |_| is_shown);
    let bad = verdicts.into_iter().filter_map(|(_, verdict)| match verdict {
        Verdict::Bad(issue) => Some((issue.code, issue.text, issue.platforms)),
        _ => None,
    });
    bad.collect()
}

#[track_caller]
fn assert_bad(figures: &Figures, code: IssueCode, text: &str, platforms: &[&str]) {
    let platforms: Vec<String> = platforms.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(bad(figures, &requirements(), false), [(code, text.to_owned(), platforms)]);
}

#[test]
fn media_that_all_platforms_accept_has_no_issue() {
    assert_eq!(bad(&figures(), &requirements(), false), []);
    assert_eq!(bad(&figures(), &[], false), []);
}

#[test]
fn every_issue_names_the_measurement_and_the_requirements() {
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
    assert_bad(&smooth, IssueCode::FrameRate, "120 frames per second: YouTube takes 60", &["youtube"]);
    let reordered = with_video(|video| video.b_frames = true);
    assert_bad(&reordered, IssueCode::BFrames, "the video has B-frames: YouTube takes none", &["youtube"]);
    let mut opus = figures();
    opus.audio.as_mut().unwrap().codec = "opus";
    assert_bad(&opus, IssueCode::AudioCodec, "audio codec opus: Twitch takes aac", &["twitch"]);
    opus.audio = None;
    assert_bad(&opus, IssueCode::AudioMissing, "no audio arrives: YouTube needs it", &["youtube"]);
    let blind = Figures { video: None, ..figures() };
    let text = "no video arrives: Twitch needs it; YouTube needs it";
    assert_bad(&blind, IssueCode::VideoMissing, text, &["twitch", "youtube"]);
    let jumped = Figures { jumped_lately: true, ..figures() };
    let text = "the encoder's timestamps jumped; viewers see a break each time";
    assert_bad(&jumped, IssueCode::TimestampJumps, text, &[]);
}

#[test]
fn servers_of_one_type_that_refuse_a_codec_are_named_once() {
    let server = Arc::new(Requirements::of_codecs("RTMP server", &[Codec::H264, Codec::Hevc, Codec::Aac]));
    let mut opus = figures();
    opus.audio.as_mut().unwrap().codec = "opus";
    let issue =
        (IssueCode::AudioCodec, "audio codec opus: RTMP server takes aac".into(), vec!["rtmp".into()]);
    let two = [("rtmp".to_owned(), server.clone()), ("rtmp".to_owned(), server)];
    assert_eq!(bad(&opus, &two, false), [issue]);
    // A track that does not arrive is no issue of theirs.
    let missing = (IssueCode::VideoMissing, "no video arrives".into(), Vec::new());
    assert_eq!(bad(&Figures { video: None, ..figures() }, &two, false), [missing]);
}

#[test]
fn an_unsupported_codec_is_named_with_its_replacement() {
    let mp3 = ForeignCodec::of(Kind::Audio, b"\x2fabc").unwrap();
    let vp9 = ForeignCodec::of(Kind::Video, b"\x91vp09abc").unwrap();
    let mute = Figures { audio: None, foreign: vec![mp3], ..figures() };
    let text = "audio codec MP3 is not supported; set AAC in the encoder (ffmpeg: -c:a aac)";
    assert_bad(&mute, IssueCode::AudioCodec, text, &[]);
    let blind = Figures { video: None, foreign: vec![vp9], ..figures() };
    let text = "video codec VP9 is not supported; set H.264 in the encoder (ffmpeg: -c:v libx264)";
    assert_bad(&blind, IssueCode::VideoCodec, text, &[]);
    // With a supported track of the same kind there is no issue.
    assert_eq!(bad(&Figures { foreign: vec![mp3, vp9], ..figures() }, &requirements(), false), []);
}

#[test]
fn a_long_keyframe_interval_explains_its_effect() {
    let why = Some("viewers are behind".to_owned());
    let hosted = Requirements {
        title: "Hosted".into(),
        keyframe_why: why,
        keyframe_seconds: Some(2.0),
        ..Requirements::default()
    };
    let figures = with_video(|video| video.keyframe_interval = Some(8.3));
    let text = "keyframe interval 8.3 s: Hosted asks for 2 s (viewers are behind)".to_owned();
    let expected = (IssueCode::KeyframeInterval, text, vec!["hosted".to_owned()]);
    assert_eq!(bad(&figures, &[("hosted".into(), Arc::new(hosted))], false), [expected]);
}

#[test]
fn some_issues_need_no_platform() {
    let interval = |secs| with_video(|video| video.keyframe_interval = Some(secs));
    assert_eq!(bad(&interval(KEYFRAME_SECS_MAX), &[], false), []);
    let text =
        "keyframe interval 12.0 s: viewers cannot join between keyframes; set 2 s in the encoder".to_owned();
    assert_eq!(bad(&interval(12.0), &[], false), [(IssueCode::KeyframeInterval, text, vec![])]);
    let mute = Figures { audio: None, ..figures() };
    assert_eq!(bad(&mute, &[], false), [(IssueCode::AudioMissing, "no audio arrives".to_owned(), vec![])]);
    let silent = Figures { is_silent: true, video: None, audio: None, ..figures() };
    let only: Vec<_> = bad(&silent, &requirements(), false).into_iter().map(|(code, ..)| code).collect();
    assert_eq!(only, [IssueCode::NothingArrives]);
}

#[test]
fn a_shown_issue_clears_only_well_below_the_limit() {
    for (bits, fresh, shown) in [(6_100_000, 0, 0), (6_500_000, 0, 1), (6_700_000, 1, 1)] {
        let figures = with_video(|video| video.bitrate = Some(bits));
        let counts = [false, true].map(|is_shown| bad(&figures, &requirements(), is_shown).len());
        assert_eq!(counts, [fresh, shown], "{bits}");
    }
    let figures = with_video(|video| video.keyframe_interval = Some(2.1));
    assert_eq!([false, true].map(|is_shown| bad(&figures, &requirements(), is_shown).len()), [0, 1]);
}

#[test]
fn missing_measurements_give_unknown_verdicts() {
    let none = Figures::default();
    let unknown = judge(&none, &requirements(), |_| false)
        .into_iter()
        .filter(|(_, verdict)| *verdict == Verdict::Unknown);
    assert_eq!(unknown.count(), IssueCode::ALL.len() - 2, "all except silence and jumps");
}

#[test]
fn texts_are_cut() {
    let long =
        Requirements { title: "x".repeat(900), keyframe_seconds: Some(2.0), ..Requirements::default() };
    let figures = with_video(|video| video.keyframe_interval = Some(9.0));
    let all = bad(&figures, &[("long".into(), Arc::new(long))], false);
    assert_eq!(all[0].1.chars().count(), TEXT_CHARS_MAX);
}
