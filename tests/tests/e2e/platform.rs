//! Destination types of streaming platforms: described, published to, rested after a refusal, and named in the history.

use satcast_tests::encoder::Publish;
use satcast_tests::record::assert_complete;
use satcast_tests::service::Setup;
use satcast_tests::sink::{Behaviour, Sink};
use satcast_tests::source::{SOURCE_SECONDS, Source};
use satcast_tests::wait::{self, seconds};
use serde_json::json;

const RIGHT_KEY: &str = "live_right_key_012345?bandwidthtest=true&x=1";
const WRONG_KEY: &str = "live_wrong_key_012345";

#[test]
fn a_platform_is_a_type_of_its_own() {
    let source = Source::shared();
    let sink = Sink::recording();
    let denying =
        Sink::start(Behaviour::Refuse { code: "NetStream.Publish.Denied", description: "no such key" });
    let service = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2").start();
    let api = service.api();
    let listed = api.get("/api/drivers").ok().to_string();
    let document = api.get("/openapi.json").ok().to_string();
    for name in
        ["twitch", "youtube", "kick", "facebook", "x", "tiktok", "linkedin", "trovo", "rumble", "mux", "ivs"]
    {
        let quoted = format!("\"{name}\"");
        assert!(listed.contains(&quoted) && document.contains(&quoted), "{name}");
    }
    assert!(listed.contains("\"videoKbpsMax\":6000"), "{listed}");

    let stream = api.create_stream("platforms");
    let path = format!("/api/streams/{}/destinations", stream.id);
    let add = |kind: &str, config| api.post(&path, &json!({ "type": kind, "config": config }));
    add("kick", json!({ "key": RIGHT_KEY })).assert_error(422, None);
    add("twitch", json!({ "key": RIGHT_KEY, "server": "rtmp://10.0.0.1/app" })).assert_error(422, None);
    let unused = add("youtube", json!({ "key": WRONG_KEY })).ok()["id"].as_i64().expect("an id");
    let shown = api.destination(&stream, unused);
    assert_eq!(shown["url"], "rtmps://a.rtmps.youtube.com:443/live2/liv...345", "{shown}");
    let _deleted = api.delete(&format!("{path}/{unused}")).ok();

    let twitch = add("twitch", json!({ "key": RIGHT_KEY, "server": sink.url() })).ok()["id"].as_i64();
    let youtube = add("youtube", json!({ "key": WRONG_KEY, "server": denying.url() })).ok()["id"].as_i64();
    let (twitch, youtube) = (twitch.expect("an id"), youtube.expect("an id"));
    let mut encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
    let shown = api.wait_for_destination(&stream, twitch, "live", seconds(20));
    assert_eq!(shown["platform"], "twitch", "{shown}");
    assert!(!shown.to_string().contains("right_key"), "{shown}");
    let started = api.wait_for_stream(&stream, "live", seconds(20))["startedAt"].as_i64().expect("a start");
    let shown = api.wait_for_destination(&stream, youtube, "retrying", seconds(20));
    assert!(shown["error"].as_str().is_some_and(|error| error.contains("Publish.Denied")), "{shown}");
    // A refused login rests for a minute; half of it leaves room for what passed.
    assert!(shown["nextRetryAt"].as_i64() > Some(started + 30_000), "{shown}");

    encoder.finish(seconds(2 * SOURCE_SECONDS));
    api.wait_for_stream(&stream, "idle", seconds(20));
    sink.wait_until_left(seconds(20));
    assert_complete("the platform", source.records(), &sink.records());
    assert_eq!(sink.names(), ["live_right_key_012345"], "the query is told apart");
    assert_eq!(denying.attempts(), 1);
    let history = wait::until_api("both in the history", seconds(20), || {
        let history = api.get("/api/stream-history").ok().to_string();
        let both =
            ["twitch", "youtube"].iter().all(|name| history.contains(&format!("\"platform\":\"{name}\"")));
        if both { Ok(history) } else { Err(history) }
    });
    assert!(!history.contains("_key_"), "{history}");
    service.assert_not_logged(&[("a key", "right_key"), ("a key", "wrong_key")]);
}
