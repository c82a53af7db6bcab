//! Destination types of streaming platforms: their description, publishing, the wait after a refusal, and their name in the history.

use std::io::{Read as _, Write as _};

use satcast_tests::encoder::Publish;
use satcast_tests::record::assert_complete;
use satcast_tests::service::Setup;
use satcast_tests::sink::{Behaviour, Sink};
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait;
use serde_json::json;

const RIGHT_KEY: &str = "live_right_key_012345?bandwidthtest=true&x=1";
const WRONG_KEY: &str = "live_wrong_key_012345";
/// Five seconds of media.
const CARRIED_PACKETS: usize = 385;

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
    let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&stream.key));
    let shown = api.wait_for_destination(&stream, twitch, "live");
    assert_eq!(shown["platform"], "twitch", "{shown}");
    assert!(!shown.to_string().contains("right_key"), "{shown}");
    let started = api.wait_for_stream(&stream, "live")["startedAt"].as_i64().expect("a start");
    let shown = api.wait_for_destination(&stream, youtube, "retrying");
    assert!(shown["error"].as_str().is_some_and(|error| error.contains("Publish.Denied")), "{shown}");
    // A refused login is retried after a minute. Half a minute allows for the time that has passed already.
    assert!(shown["nextRetryAt"].as_i64() > Some(started + 30_000), "{shown}");

    sink.wait_for_media(CARRIED_PACKETS);
    let sent = encoder.end();
    api.wait_for_stream(&stream, "idle");
    sink.wait_until_left();
    assert_complete("the platform", &sent, &sink.records());
    assert_eq!(sink.names(), ["live_right_key_012345"], "the query is part of the name");
    assert_eq!(denying.attempts(), 1);
    let history = wait::until_api("both in the history", || {
        let history = api.get("/api/stream-history").ok().to_string();
        let both =
            ["twitch", "youtube"].iter().all(|name| history.contains(&format!("\"platform\":\"{name}\"")));
        if both { Ok(history) } else { Err(history) }
    });
    assert!(!history.contains("_key_"), "{history}");
    service.assert_not_logged(&[("a key", "right_key"), ("a key", "wrong_key")]);
}

#[test]
fn an_operators_servers_are_used_and_the_backup_while_the_first_is_away() {
    let source = Source::shared();
    let sink = Sink::recording();
    // Nothing listens there.
    let service = Setup::default()
        .set("SATCAST_DRIVER__PLATFORM__TYPES__TROVO__SERVER", "rtmp://127.0.0.1:1/app")
        .set("SATCAST_DRIVER__PLATFORM__TYPES__TROVO__BACKUP", &sink.url())
        .start();
    let api = service.api();
    let stream = api.create_stream("backup");
    let body = json!({ "type": "trovo", "config": { "key": "live_right_key_012345" } });
    let added = api.post(&format!("/api/streams/{}/destinations", stream.id), &body).ok();
    let _encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
    api.wait_for_destination(&stream, added["id"].as_i64().expect("an id"), "live");
    sink.wait_for_media(60);
    assert_eq!(sink.names(), ["live_right_key_012345"]);
}

#[test]
fn an_operators_platform_is_a_type_like_the_others() {
    let source = Source::of(Recipe::LONG_GROUPS);
    let sink = Sink::recording();
    let service = Setup::default()
        .set("SATCAST_DRIVER__PLATFORM__TYPES__CHURCH-TV__TITLE", "Church TV")
        .set("SATCAST_DRIVER__PLATFORM__TYPES__CHURCH-TV__SERVER", &sink.url())
        .set("SATCAST_DRIVER__PLATFORM__TYPES__TWITCH__TITLE", "Our Twitch")
        .start();
    let api = service.api();
    let document = api.get("/openapi.json").ok();
    let schemas = &document["components"]["schemas"];
    let mapping = &schemas["NewDestination"]["discriminator"]["mapping"];
    assert_eq!(mapping["church-tv"], "#/components/schemas/NewDestinationChurchTv");
    let config = &schemas["DestinationConfigChurchTv"];
    assert_eq!(
        (&config["required"], &config["properties"]["server"]["default"]),
        (&json!(["key"]), &json!(sink.url()))
    );
    let listed = api.get("/api/drivers").ok().to_string();
    assert!(listed.contains("\"church-tv\"") && listed.contains("\"Our Twitch\""), "{listed}");

    let stream = api.create_stream("own");
    let body = json!({ "type": "church-tv", "config": { "key": "live_right_key_012345" } });
    let added = api.post(&format!("/api/streams/{}/destinations", stream.id), &body).ok();
    let _encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    let shown = api.wait_for_destination(&stream, added["id"].as_i64().expect("an id"), "live");
    assert_eq!(shown["platform"], "church-tv");
    assert_eq!(sink.names(), ["live_right_key_012345"]);
    let issues = wait::until_api("an issue", || {
        let issues = api.stream(&stream)["health"]["issues"].clone();
        if issues == json!([]) { Err(issues.to_string()) } else { Ok(issues) }
    });
    let text = issues[0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("Church TV"), "{issues}");
}

#[test]
fn a_platform_entry_that_cannot_be_used_is_refused_before_the_start() {
    let service = Setup::default()
        .set("SATCAST_DRIVER__PLATFORM__TYPES__CHURCH-TV__SERVER", "ftp://church.example/app")
        .stopped();
    let checked = service.command(&["check-config"]);
    assert_eq!(checked.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&checked.stderr).contains("church-tv"), "{checked:?}");
    let listed = service.command(&["drivers"]);
    assert_eq!(listed.status.code(), Some(1));
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let state = |driver: &str| {
        listed
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|row| row.first() == Some(&driver))
            .map(|row| row[1].to_owned())
    };
    assert_eq!(
        (state("platform").as_deref(), state("rtmp").as_deref()),
        (Some("refused"), Some("loaded")),
        "{listed}"
    );
}

#[test]
fn a_list_of_servers_names_where_to_publish() {
    let source = Source::shared();
    let sink = Sink::recording();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let list = format!("http://{}/ingests", listener.local_addr().expect("its address"));
    let body =
        json!({ "ingests": [{ "url_template": format!("{}/{{stream_key}}", sink.url()) }] }).to_string();
    let answer =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("a connection");
            let _request = socket.read(&mut [0; 4096]);
            let _written = socket.write_all(answer.as_bytes());
        }
    });
    let service = Setup::default().set("SATCAST_DRIVER__PLATFORM__TYPES__TWITCH__INGESTS", &list).start();
    let api = service.api();
    let stream = api.create_stream("near");
    let body = json!({ "type": "twitch", "config": { "key": "live_right_key_012345" } });
    let added = api.post(&format!("/api/streams/{}/destinations", stream.id), &body).ok();
    let _encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
    api.wait_for_destination(&stream, added["id"].as_i64().expect("an id"), "live");
    assert_eq!(sink.names(), ["live_right_key_012345"]);
    service.assert_not_logged(&[("a key", "right_key")]);
}
