//! Enhanced RTMP to other servers: complete where the server announces it, and an error that names the codec where it does not.

use satcast_tests::caller::{Call, Outcome};
use satcast_tests::coded::{Coded, Coding};
use satcast_tests::nginx::Nginx;
use satcast_tests::probe::hashes_of_file;
use satcast_tests::record::Track;
use satcast_tests::said;
use satcast_tests::service::Setup;
use satcast_tests::sink::Sink;
use satcast_tests::wait::until_api;
use serde_json::json;

#[test]
fn codecs_that_a_server_does_not_take_are_named_and_the_others_get_everything() {
    let coded = Coded::of(Coding::HEVC_OPUS);
    let (nginx, sink, platform) = (Nginx::recording(), Sink::recording(), Sink::recording());
    let service = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "1").start();
    let api = service.api();
    let stream = api.create_stream("enhanced");
    let to_nginx = api.add_destination(&stream, &nginx.url(), "copy");
    let to_sink = api.add_destination(&stream, &sink.url(), "copy");
    let body = json!({ "type": "twitch", "config": { "key": "some-secret-key", "server": platform.url() } });
    let to_twitch = api.post(&format!("/api/streams/{}/destinations", stream.id), &body).ok()["id"].as_i64();
    let (mut call, outcome) = Call::publish(service.rtmp_address(), "live", &stream.key);
    assert_eq!(outcome, Outcome::Publishing);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            coded.publish(&mut call);
            drop(call);
        });
        api.wait_for_destination(&stream, to_sink, "live");
        for (id, starts) in
            [(to_nginx, "destination 127.0.0.1:"), (to_twitch.expect("an id"), "destination Twitch ")]
        {
            let shown = api.wait_for_destination(&stream, id, "failed");
            let error = shown["error"].as_str().unwrap_or_default();
            assert!(error.starts_with(starts) && error.contains(said::CODEC_NOT_TAKEN), "{shown}");
            assert!(shown["nextRetryAt"].is_null(), "only a change helps: {shown}");
        }
        for code in ["video_codec", "audio_codec"] {
            until_api(code, || {
                let issues = api.stream(&stream)["health"]["issues"].clone();
                let issue = issues.as_array().into_iter().flatten().find(|issue| issue["code"] == code);
                let is_there = issue.is_some_and(|issue| issue["platforms"] == json!(["twitch", "rtmp"]));
                if is_there { Ok(()) } else { Err(issues.to_string()) }
            });
        }
        sending.join().expect("the stream was sent");
    });
    api.wait_for_stream(&stream, "idle");
    sink.wait_until_left();
    for track in [Track::Video, Track::Audio] {
        let sent = hashes_of_file(coded.path(), track).len();
        let got = sink.records().iter().filter(|record| record.track == track && !record.config).count();
        // Audio before the first frame is left out.
        assert!(got == sent || track == Track::Audio && got + 1 == sent, "{got} of {sent} of {track:?}");
    }
    assert!(platform.records().is_empty(), "packets of a refused codec were sent");
}
