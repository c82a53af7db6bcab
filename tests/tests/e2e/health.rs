//! Health of a live stream: the measured input of ffmpeg, compared with the requirements of platforms.

use satcast_tests::caller::{Call, Outcome};
use satcast_tests::coded::{Coded, Coding};
use satcast_tests::encoder::Publish;
use satcast_tests::hosted::Hosted;
use satcast_tests::receiver::Receiver;
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{self, seconds};
use serde_json::{Value, json};

/// A service whose Twitch and YouTube are `sink`.
fn service(sink: &Sink) -> Service {
    Setup::default()
        .set("SATCAST_DRIVER__PLATFORM__TYPES__TWITCH__SERVER", &sink.url())
        .set("SATCAST_DRIVER__PLATFORM__TYPES__YOUTUBE__SERVER", &sink.url())
        .set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]")
        .set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2")
        .start()
}

/// The figure is within 5 % of the expected value.
#[track_caller]
fn assert_near(figure: &Value, expected: f64) {
    let value = figure.as_f64().unwrap_or_else(|| panic!("{figure}"));
    assert!((value - expected).abs() <= expected * 0.05, "{value} is not about {expected}");
}

/// The stream's health once it has the issue.
#[track_caller]
fn with_issue(service: &Service, stream: i64, code: &str) -> Value {
    wait::until_api(code, || {
        let health = service.api().get(&format!("/api/streams/{stream}")).ok()["health"].clone();
        let issues = health["issues"].as_array().cloned().unwrap_or_default();
        if issues.iter().any(|issue| issue["code"] == code) { Ok(health) } else { Err(health.to_string()) }
    })
}

#[test]
fn keyframes_too_far_apart_are_reported_with_the_affected_platforms() {
    let (sink, receiver) = (Sink::recording(), Receiver::start(None));
    let service = service(&sink);
    let api = service.api();
    let stream = api.create_stream("health");
    assert_eq!(api.stream(&stream)["health"], Value::Null);
    let hook = json!({ "url": receiver.url(), "events": ["stream.health"] });
    let _made = api.post("/api/webhooks", &hook).ok();
    for kind in ["twitch", "youtube"] {
        let body = json!({ "type": kind, "config": { "key": "live_right_key_012345" } });
        let _added = api.post(&format!("/api/streams/{}/destinations", stream.id), &body).ok();
    }
    let mut encoder =
        Publish::of(&Source::of(Recipe::LONG_GROUPS)).endless().to(&service.ingest_url(&stream.key));
    let health = with_issue(&service, stream.id, "keyframe_interval");
    // While the GOP is still open, Twitch may be the only affected platform.
    let event = receiver.wait_for(1)[0].json();
    assert_eq!(
        (&event["type"], &event["data"]["appeared"]),
        (&json!("stream.health"), &json!(["keyframe_interval"]))
    );
    let shown = wait::until_api("whole groups", || {
        let health = api.stream(&stream)["health"].clone();
        let issue = &health["issues"][0];
        let is_it =
            issue["code"] == "keyframe_interval" && issue["platforms"] == json!(["twitch", "youtube"]);
        // While a GOP is open, its length so far is shown.
        let is_whole = health["video"]["keyframeIntervalSeconds"] == 5.0;
        if is_it && is_whole && health["issues"][1].is_null() { Ok(health) } else { Err(health.to_string()) }
    });
    let video = &shown["video"];
    assert_eq!(
        (&video["codec"], &video["width"], &video["height"]),
        (&json!("h264"), &json!(640), &json!(360))
    );
    assert_eq!(
        (&video["bFrames"], &video["keyframeIntervalSeconds"]),
        (&json!(true), &json!(5.0)),
        "{health}"
    );
    assert_near(&video["frameRate"], 30.0);
    let audio = &shown["audio"];
    assert_eq!(
        (&audio["codec"], &audio["sampleRate"], &audio["channels"]),
        (&json!("aac"), &json!(48_000), &json!(1))
    );
    assert_near(&audio["bitrate"], 96_000.0);
    assert_eq!(shown["timestampJumps"], 0);

    // A good encoder replaces it: the issue disappears.
    let _ = encoder.stop();
    let _good = Publish::of(&Source::shared()).endless().to(&service.ingest_url(&stream.key));
    let cleared = receiver.wait_for(2)[1].json();
    assert_eq!(
        (&cleared["data"]["cleared"], &cleared["data"]["issues"]),
        (&json!(["keyframe_interval"]), &json!([]))
    );
    let health = api.stream(&stream)["health"].clone();
    assert_eq!(health["issues"], json!([]), "{health}");
    assert_near(&health["video"]["bitrate"], 3_000_000.0);
    let _stopped = api.post(&format!("/api/streams/{}/stop", stream.id), &json!({})).ok();
    assert_eq!(api.stream(&stream)["health"], Value::Null);
}

#[test]
fn a_stream_without_audio_or_video_reports_it() {
    let sink = Sink::recording();
    let service = service(&sink);
    let api = service.api();
    let cases =
        [(Recipe::VIDEO_ONLY, "audio", "audio_missing"), (Recipe::AUDIO_ONLY, "video", "video_missing")];
    let started = cases.map(|(recipe, missing, code)| {
        let stream = api.create_stream(missing);
        let body = json!({ "type": "youtube", "config": { "key": "live_right_key_012345" } });
        let _added = api.post(&format!("/api/streams/{}/destinations", stream.id), &body).ok();
        let encoder = Publish::of(&Source::of(recipe)).endless().to(&service.ingest_url(&stream.key));
        (stream, encoder, missing, code)
    });
    for (stream, _encoder, missing, code) in started {
        let health = with_issue(&service, stream.id, code);
        let issue = &health["issues"][0];
        assert_eq!((&issue["code"], &issue["platforms"]), (&json!(code), &json!(["youtube"])), "{health}");
        assert_eq!(health[missing], Value::Null, "{health}");
    }
}

/// ffmpeg's arguments for a source that it encodes itself.
fn encoded(codecs: &str) -> String {
    format!(
        "-f lavfi -i testsrc2=size=320x240:rate=25 -f lavfi -i sine=frequency=440:sample_rate=44100 {codecs} -t 60"
    )
}

#[test]
fn an_encoder_without_a_usable_track_is_refused_with_the_reason() {
    let service = Setup::default().start();
    let api = service.api();
    let stream = api.create_stream("sorenson");
    // ffmpeg's default codecs for FLV.
    let mut encoder = Publish::encoded(&encoded("")).to(&service.ingest_url(&stream.key));
    let status = encoder.wait(seconds(60));
    assert!(!status.success(), "{status}");
    let shown = api.stream(&stream);
    assert_eq!(shown["status"], "idle", "{shown}");
    let issues: Vec<&Value> = shown["health"]["issues"].as_array().expect("issues").iter().collect();
    let codes: Vec<&Value> = issues.iter().map(|issue| &issue["code"]).collect();
    assert_eq!(codes, [&json!("video_codec"), &json!("audio_codec")], "{shown}");
    for issue in issues {
        let text = issue["text"].as_str().expect("a text");
        assert!(encoder.log().contains(text), "{text}: {}", encoder.log());
        let whose = format!("account=1 stream={}", stream.id);
        service.wait_for_log(text, |line| line.contains(text) && line.contains(&whose));
    }
    // The next encoder has usable tracks and is shown.
    let mut encoder = Publish::until_end(&Source::of(Recipe::SMALL)).to(&service.ingest_url(&stream.key));
    let _ = api.wait_for_stream(&stream, "live");
    assert_eq!(api.stream(&stream)["health"]["issues"], json!([]));
    let _ = encoder.end();
}

#[test]
fn an_unsupported_track_is_reported_and_the_other_plays() {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "mute");
    let codecs = "-c:v libx264 -preset ultrafast -g 50 -pix_fmt yuv420p -c:a libmp3lame";
    let _encoder = Publish::encoded(&encoded(codecs)).to(&service.ingest_url(&hosted.stream.key));
    let health = with_issue(&service, hosted.stream.id, "audio_codec");
    assert_eq!((&health["audio"], &health["video"]["codec"]), (&Value::Null, &json!("h264")), "{health}");
    let mut viewer = hosted.viewer();
    assert!(!viewer.index().attributes["CODECS"].contains(','));
}

#[test]
fn a_long_keyframe_interval_is_named_for_self_hosted_playback_alone() {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "far apart");
    let _encoder =
        Publish::of(&Source::of(Recipe::LONG_GROUPS)).endless().to(&service.ingest_url(&hosted.stream.key));
    let health = with_issue(&service, hosted.stream.id, "keyframe_interval");
    assert_eq!(health["issues"][0]["platforms"], json!(["self-hosted"]), "{health}");
}

#[test]
fn announced_video_that_does_not_come_leaves_audio_that_plays() {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "audio alone");
    let (mut call, outcome) = Call::publish(service.rtmp_address(), "live", &hosted.stream.key);
    assert_eq!(outcome, Outcome::Publishing);
    let sending = std::thread::spawn(move || {
        let coded = Coded::of(Coding::HEVC_OPUS);
        coded.publish_audio(&mut call);
        coded.publish(&mut call);
    });
    let mut viewer = hosted.viewer();
    assert_eq!(viewer.index().attributes["CODECS"], "opus");
    // The video joins when it comes.
    viewer.media_when("a discontinuity", |media| media.segments.iter().any(|one| one.discontinuity));
    let codecs = viewer.index().attributes["CODECS"].clone();
    assert!(codecs.contains("hvc1") && codecs.contains("opus"), "{codecs}");
    sending.join().expect("an encoder");
}
