//! Sessions that go well.

use satcast_plugin_api::driver::State;
use satcast_plugin_api::testkit::{Report, TestDestination, Testkit};
use satcast_plugin_api::{AssetBody, Audience};
use serde_json::json;

use super::media::{self, AUDIO, LARGER, VIDEO};
use super::{open, openings, unix_ms, until};

fn is_file(report: &Report, name: &str) -> bool {
    matches!(report.assets[name].asset.body, AssetBody::File { .. })
}

fn stop(destination: &TestDestination) {
    destination.stop();
    destination.wait_for_end().unwrap();
    assert_eq!(destination.leased_packets(), 0);
}

/// Twenty seconds, to the end; returns the last number.
pub(crate) fn video_and_audio(kit: &Testkit) -> u64 {
    let before_ms = unix_ms();
    let destination = open(kit, &json!({}));
    let bytes = media::push(&destination, media::encode(&format!("{VIDEO} {AUDIO}"), 20));
    assert!(destination.wait_for_state(State::Live));
    // The newest segment is still open; of the nine others all but one are in files.
    assert!(kit.wait_until(&destination, |report| media::numbers(report).len() == 9));
    assert!(kit.wait_until(&destination, |report| {
        media::numbers(report).iter().filter(|number| is_file(report, &format!("{number}.m4s"))).count() == 8
    }));
    stop(&destination);
    assert_eq!(destination.counter("bytes_sent"), bytes);
    let folder = tempfile::tempdir().unwrap();
    let last = destination.report(|report| {
        media::fetch(report, folder.path());
        checks_facts(report, before_ms);
        assert_eq!(media::discontinuities(report, "media.m3u8"), (0, 0));
        *media::numbers(report).last().unwrap()
    });
    assert_eq!(media::decoded(folder.path(), "index.m3u8", "v"), 600);
    assert_eq!(media::decoded(folder.path(), "preview.m3u8", "v"), 600);
    assert!((935..=940).contains(&media::decoded(folder.path(), "index.m3u8", "a")));
    assert!(openings() > 0, "files stay as long as the host has their segments");
    kit.forget_assets(&destination);
    assert!(until(|| openings() == 0), "and go with them");
    last
}

fn checks_facts(report: &Report, before_ms: i64) {
    let playback = report.playback.as_ref().unwrap();
    assert_eq!((playback.entry.as_str(), playback.preview.as_deref()), ("index.m3u8", Some("preview.m3u8")));
    assert_eq!((playback.window_ms / 100, playback.window_max_ms), (200, 3_600_000));
    assert_eq!((playback.fresh_ms, playback.ended), (6000, true));
    assert!((before_ms..=unix_ms()).contains(&playback.first_ms));
    let numbers = media::numbers(report);
    assert_eq!(numbers.len(), 10);
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");
    for list in ["media.m3u8", "preview-media.m3u8"] {
        assert!(media::text(report, list).ends_with("#EXT-X-ENDLIST\n"), "{list}");
    }
    let index = media::text(report, "index.m3u8");
    assert!(index.contains(",RESOLUTION=160x120,FRAME-RATE=30.000,"), "{index}");
    let init = format!("i{}-0.mp4", numbers[0]);
    assert!(media::text(report, "media.m3u8").contains(&init), "{init}");
    let age = |name: &str| (report.assets[name].asset.max_age_secs, report.assets[name].asset.audience);
    assert_eq!(age("index.m3u8"), (1, Audience::Hosted));
    assert_eq!(age("media.m3u8"), (1, Audience::Hosted));
    assert_eq!(age("preview-media.m3u8"), (1, Audience::Preview));
    assert_eq!(age(&init), (3600, Audience::Both));
    assert_eq!(report.assets[&init].asset.content_type, "video/mp4");
    assert_eq!(report.events, []);
}

/// The encoder disconnects and returns with another size, its times from 0; returns the last number.
pub(crate) fn a_reconnect_with_another_size(kit: &Testkit) -> u64 {
    let destination = open(kit, &json!({}));
    media::push(&destination, media::encode(&format!("{VIDEO} {AUDIO}"), 9));
    let mut second = media::encode(&format!("{LARGER} {AUDIO}"), 8);
    second[0].discontinuity = true;
    media::push(&destination, second);
    assert!(kit.wait_until(&destination, |report| media::numbers(report).len() == 8));
    stop(&destination);
    let (last, text) = destination
        .report(|report| (*media::numbers(report).last().unwrap(), media::text(report, "media.m3u8")));
    // Four whole segments and a partial one before the reconnect, four after it.
    let first = last - 8;
    // The kit has one session, so this opening follows another.
    let (_, text) = text.split_once("#EXT-X-DISCONTINUITY\n").unwrap();
    let (before, after) = text.split_once("#EXT-X-DISCONTINUITY\n").unwrap();
    assert_eq!((before.matches(".m4s\n").count(), after.matches(".m4s\n").count()), (5, 4), "{text}");
    assert!(
        after.starts_with(&format!("#EXT-X-MAP:URI=\"i{first}-1.mp4\"\n#EXT-X-PROGRAM-DATE-TIME:")),
        "{text}"
    );
    assert!(destination.report(|report| media::text(report, "index.m3u8")).contains("RESOLUTION=240x136"));
    let folder = tempfile::tempdir().unwrap();
    destination.report(|report| media::fetch(report, folder.path()));
    for (init, segment, size) in [(0, first, "160,120"), (1, first + 5, "240,136")] {
        let init = std::fs::read(folder.path().join(format!("i{first}-{init}.mp4"))).unwrap();
        let segment = std::fs::read(folder.path().join(format!("{segment}.m4s"))).unwrap();
        std::fs::write(folder.path().join("whole.mp4"), [init, segment].concat()).unwrap();
        let shown = "-select_streams v -show_entries stream=width,height -of csv=p=0 whole.mp4";
        assert_eq!(media::run("ffprobe", shown, folder.path()).trim(), size);
        media::run("ffmpeg", "-i whole.mp4 -f null -", folder.path());
    }
    kit.forget_assets(&destination);
    last
}

pub(crate) fn audio_alone(kit: &Testkit) {
    let destination = open(kit, &json!({}));
    media::push(&destination, media::encode(AUDIO, 9));
    assert!(destination.wait_for_state(State::Live));
    stop(&destination);
    let folder = tempfile::tempdir().unwrap();
    destination.report(|report| {
        let name = &media::listed(report, "media.m3u8")[0];
        assert_eq!(report.assets[name].asset.content_type, "audio/mp4");
        assert!(!media::text(report, "index.m3u8").contains("RESOLUTION"));
        media::fetch(report, folder.path());
        // Follows the two of the previous opening, the second of which was the change of size; ffmpeg accepts all of
        // it.
        for list in ["media.m3u8", "preview-media.m3u8"] {
            assert_eq!(media::discontinuities(report, list), (2, 1), "{list}");
        }
    });
    assert!((421..=424).contains(&media::decoded(folder.path(), "index.m3u8", "a")));
    kit.forget_assets(&destination);
}

/// The defaults of x264: a keyframe after 250 frames, and at scene changes.
pub(crate) fn keyframes_where_the_encoder_likes(kit: &Testkit) {
    let destination = open(kit, &json!({}));
    let keys = "-bf 2 -g 9999 -force_key_frames 0,2,4,5.5,13.8,22.2";
    media::push(&destination, media::encode_with(&format!("{VIDEO} {AUDIO}"), 25, keys));
    assert!(kit.wait_until(&destination, |report| media::numbers(report).len() == 5));
    stop(&destination);
    let folder = tempfile::tempdir().unwrap();
    destination.report(|report| {
        media::fetch(report, folder.path());
        let text = media::text(report, "media.m3u8");
        assert!(text.contains("#EXT-X-TARGETDURATION:10\n#EXT-X-MEDIA-SEQUENCE:"), "{text}");
        assert!(text.contains("#EXT-X-INDEPENDENT-SEGMENTS\n"), "{text}");
        assert_eq!(report.playback.as_ref().unwrap().fresh_ms, 30_000);
        assert_eq!(report.events, []);
        let numbers = media::numbers(report);
        assert_eq!(numbers.len(), 6, "{text}");
        let init = std::fs::read(folder.path().join(format!("i{}-0.mp4", numbers[0]))).unwrap();
        for number in numbers {
            let segment = std::fs::read(folder.path().join(format!("{number}.m4s"))).unwrap();
            std::fs::write(folder.path().join("whole.mp4"), [&init[..], &segment].concat()).unwrap();
            let first =
                "-select_streams v -show_entries packet=flags -of csv=p=0 -read_intervals %+#1 whole.mp4";
            let flags = media::run("ffprobe", first, folder.path());
            assert!(flags.starts_with('K'), "segment {number} starts with {flags}");
        }
    });
    assert_eq!(media::decoded(folder.path(), "index.m3u8", "v"), 750);
    kit.forget_assets(&destination);
}

pub(crate) fn a_short_window(kit: &Testkit) {
    let destination = open(kit, &json!({ "dvrSeconds": 10 }));
    media::push(&destination, media::encode(&format!("{VIDEO} {AUDIO}"), 30));
    assert!(kit.wait_until(&destination, |report| {
        report.playback.as_ref().is_some_and(|playback| playback.preview.is_some())
            && media::numbers(report).len() == 5
            && report.assets.keys().filter(|name| name.ends_with(".m4s") && !name.starts_with('p')).count()
                == 14
    }));
    destination.report(|report| {
        let playback = report.playback.as_ref().unwrap();
        assert_eq!((playback.window_ms / 100, playback.window_max_ms), (100, 10_000));
    });
    stop(&destination);
    kit.forget_assets(&destination);
}

/// Nothing but parts needs other segments.
pub(crate) fn a_change_of_settings(kit: &Testkit) {
    let destination = open(kit, &json!({}));
    media::push(&destination, media::encode(&format!("{VIDEO} {AUDIO}"), 30));
    assert!(kit.wait_until(&destination, |report| media::numbers(report).len() == 14));
    let before = destination.report(media::numbers);
    assert!(destination.reconfigure(&json!({ "allowedOrigins": ["https://example.org"] })).unwrap());
    assert!(destination.reconfigure(&json!({ "dvrSeconds": 10 })).unwrap());
    assert!(kit.wait_until(&destination, |report| media::numbers(report).len() == 5));
    assert!(!destination.reconfigure(&json!({ "dvrSeconds": 10, "lowLatency": true })).unwrap());
    destination.report(|report| {
        assert_eq!(media::numbers(report), before[9..]);
        assert_eq!(media::discontinuities(report, "media.m3u8").1, 0);
    });
    stop(&destination);
    kit.forget_assets(&destination);
}

pub(crate) fn no_rewind(kit: &Testkit) {
    assert!(until(|| openings() == 0));
    let destination = open(kit, &json!({ "dvrSeconds": 0 }));
    media::push(&destination, media::encode(&format!("{VIDEO} {AUDIO}"), 30));
    assert!(kit.wait_until(&destination, |report| {
        report.assets.keys().filter(|name| name.ends_with(".m4s") && !name.starts_with('p')).count() == 14
    }));
    assert_eq!(openings(), 0, "nothing is written");
    destination.report(|report| {
        assert_eq!(media::numbers(report).len(), 3, "three targets of 2 s");
        assert_eq!(report.playback.as_ref().unwrap().window_max_ms, 0);
        assert!(report.assets.keys().all(|name| !is_file(report, name)));
    });
    stop(&destination);
    kit.forget_assets(&destination);
}

/// A session that is on air when the service ends.
pub(crate) fn what_is_open_goes_with_the_driver(kit: &Testkit) {
    let destination = open(kit, &json!({}));
    media::push(&destination, media::encode(&format!("{VIDEO} {AUDIO}"), 20));
    assert!(kit.wait_until(&destination, |report| media::numbers(report).len() == 9));
    stop(&destination);
    assert!(openings() > 0);
}
