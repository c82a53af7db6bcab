//! Playback at a node whose viewers get the content of the node with the encoder.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use satcast_tests::api::{Api, Stream};
use satcast_tests::hls::Viewer;
use satcast_tests::hosted::Hosted;
use satcast_tests::http::{Http, split_url};
use satcast_tests::probe;
use satcast_tests::s3::Store;
use satcast_tests::wait::{self, seconds, until_api};
use serde_json::{Value, json};

use super::archive::{archives, end};
use super::archive_watched::{fetched, text};
use super::events::Follower;
use super::nodes::{DATABASE, Nodes};

/// Viewers that ask for the same segments.
const VIEWERS: usize = 20;
/// How long counted bytes may be on their way to the database.
const STORED_AFTER_SECONDS: u64 = 15;
/// Time until a revoked key is seen by viewers; each node asks the database every second.
const SEEN_AFTER_SECONDS: u64 = 5;
/// The last line of a playlist that has ended.
const END: &str = "#EXT-X-ENDLIST";
/// How often a sign is given that a node follows another, and at most how often.
const FOLLOWED_EVERY: Duration = Duration::from_millis(300);
const FOLLOWED_TRIES_MAX: usize = 50;

/// A stream with its encoder at `a`, its address there and that at `b`.
fn addresses(nodes: &Nodes, hosted: &Hosted) -> (String, String) {
    let at_a = hosted.ready();
    let at_b = at_a.replace(&nodes.a.base(), &nodes.b.base());
    assert_ne!(at_a, at_b);
    (at_a, at_b)
}

/// A key that may read the metrics.
fn watcher(nodes: &Nodes) -> String {
    nodes.a.run(&["account", "create", "watcher", "--operator"]);
    let key = nodes.a.run(&["key", "create", "--account", "watcher", "--type", "permanent"]);
    key.trim().to_owned()
}

/// Answers that `a` has given to other nodes.
fn given(nodes: &Nodes, key: &str) -> u64 {
    let (address, _) = split_url(&nodes.a.base());
    let text = Http::new(address).get("/metrics", &[("x-api-key", key)]).text();
    let line = text.lines().find(|line| line.contains("route=\"/node/hls/\",class=\"2xx\""));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Bytes that are stored as sent to viewers.
fn metered(nodes: &Nodes, hosted: &Hosted) -> u64 {
    let sum = "SELECT coalesce(sum(bytes), 0) FROM bandwidth WHERE destination_id = ";
    let sum = nodes.server.ask(DATABASE, &format!("{sum}{}", hosted.destination));
    sum.trim().parse().expect("the metered bytes")
}

#[test]
fn viewers_at_another_node_get_the_same_and_each_segment_is_fetched_once() {
    let mut nodes = Nodes::start();
    let hosted = Hosted::new(&nodes.a, "relayed");
    let mut encoder = nodes.publish(&nodes.a, &hosted.stream);
    let (url_a, url_b) = addresses(&nodes, &hosted);
    let (mut at_a, mut at_b) = (Viewer::of(&url_a), Viewer::of(&url_b));
    let media = at_b.media_when("four segments", |media| media.segments.len() >= 4);
    for (own, relayed) in at_a.chunks(&media.segments).iter().zip(at_b.chunks(&media.segments)) {
        assert_eq!((&own.init, &own.bytes), (&relayed.init, &relayed.bytes), "{}", own.entry.name);
    }

    let new = |sequence: u64| move |one: &&satcast_tests::playlist::Segment| one.sequence > sequence;
    let known = media.newest().sequence;
    let fresh = at_a.media_when("two more", |media| media.segments.iter().filter(new(known)).count() >= 2);
    let names: Vec<String> = fresh.segments.iter().filter(new(known)).map(|one| one.name.clone()).collect();
    let paths: Vec<String> = names.iter().map(|name| at_b.path(name)).collect();
    let watcher = watcher(&nodes);
    let before = given(&nodes, &watcher);
    let crowd: u64 = crowd(&nodes, &paths);
    assert_eq!(given(&nodes, &watcher) - before, paths.len() as u64, "one request for each segment");

    let received = at_a.http.body_bytes() + at_b.http.body_bytes() + crowd;
    let stored =
        wait::within("the metered bytes", seconds(STORED_AFTER_SECONDS), || match metered(&nodes, &hosted) {
            bytes if bytes >= received => Ok(bytes),
            bytes => Err(format!("{bytes} of {received} bytes")),
        });
    assert_eq!(stored, received, "at both nodes together");

    everything_else_is_there(&nodes, &hosted, &mut at_a, &url_b);
    assert!(probe::assert_plays(&url_b, 4) > 0);
    a_revoked_key_ends_at_both(&nodes, &hosted, &url_b);
    a_lost_node_is_an_error(&mut nodes, &mut at_b);
    encoder.cut();
}

/// Twenty viewers at `b` fetch all paths at the same time; gives the bytes that they received.
fn crowd(nodes: &Nodes, paths: &[String]) -> u64 {
    let (address, _) = split_url(&nodes.b.base());
    let viewer = || {
        let mut http = Http::new(address);
        paths.iter().for_each(|path| http.get(path, &[]).assert_status(200));
        http.body_bytes()
    };
    std::thread::scope(|scope| {
        let viewers: Vec<_> = (0..VIEWERS).map(|_| scope.spawn(viewer)).collect();
        viewers.into_iter().map(|viewer| viewer.join().expect("a viewer")).sum()
    })
}

/// The preview, the poster, the player page and the count of viewers.
fn everything_else_is_there(nodes: &Nodes, hosted: &Hosted, at_a: &mut Viewer, url_b: &str) {
    let preview = hosted.preview_url(at_a).replace(&nodes.a.base(), &nodes.b.base());
    let mut viewer = Viewer::of(&preview);
    let media = viewer.media();
    assert!(!viewer.load(&media.newest().name).body.is_empty());

    let (address, index) = split_url(url_b);
    let mut http = Http::new(address);
    http.get(&index.replace("index.m3u8", "poster.mp4"), &[]).assert_status(200);
    let page = index.replace("/hls/", "/watch/").replace("/index.m3u8", "");
    http.get(&page, &[]).assert_status(200);
    let counts = page.replace('?', "/viewers?");
    let (address_a, _) = split_url(&nodes.a.base());
    wait::until("the viewers of both nodes at each", || {
        // Each node has a player, which says so to the other with its next playlist.
        let (at_b, at_a) = (&mut Viewer::of(url_b), &mut *at_a);
        let _ = (at_a.media(), at_b.media());
        let count = |http: &mut Http| serde_json::from_str::<Value>(&http.get(&counts, &[]).text()).ok();
        let both = (count(&mut Http::new(address_a)), count(&mut http));
        let counted = |one: &Option<Value>| one.as_ref().and_then(|one| one["viewers"].as_u64()).unwrap_or(0);
        if counted(&both.0) >= 2 && counted(&both.1) >= 2 { Ok(()) } else { Err(format!("{both:?}")) }
    });
}

/// Another key of the destination is revoked at `a`, and `b` refuses its viewers.
fn a_revoked_key_ends_at_both(nodes: &Nodes, hosted: &Hosted, url_b: &str) {
    let second = Hosted::key(&nodes.a, hosted.destination);
    let mut viewer = Viewer::of(&url_b.replace(&hosted.key, &second));
    let _ = viewer.media();
    let playlist = viewer.playlist();
    let keys = nodes.api_a.get("/api/keys").ok();
    let of_it = |key: &&Value| key["destinationId"] == hosted.destination;
    let newest =
        keys.as_array().into_iter().flatten().filter(of_it).filter_map(|key| key["id"].as_i64()).max();
    let _ = nodes.api_a.delete(&format!("/api/keys/{}", newest.expect("the second key"))).ok();
    wait::within("the revoked key to be refused at b", seconds(SEEN_AFTER_SECONDS), || {
        match viewer.http.get(&playlist, &[]).status {
            401 => Ok(()),
            status => Err(status.to_string()),
        }
    });
}

/// While the lease of a lost node lasts its viewers elsewhere may try again; then the stream is offline.
fn a_lost_node_is_an_error(nodes: &mut Nodes, at_b: &mut Viewer) {
    let playlist = at_b.playlist();
    at_b.http.get(&playlist, &[]).assert_status(200);
    // Shorter than its lease.
    nodes.a.process().freeze();
    std::thread::sleep(seconds(1));
    let paused = at_b.http.get(&playlist, &[]).status;
    nodes.a.process().thaw();
    assert_eq!(paused, 503, "a node that is paused");
    wait::until("the node that goes on", || match at_b.http.get(&playlist, &[]).status {
        200 => Ok(()),
        status => Err(status.to_string()),
    });
    nodes.a.kill();
    let mut wait_for = |status: u16, code: &str| {
        wait::within(&format!("{status} {code}"), seconds(60), || {
            let reply = at_b.http.get(&playlist, &[]);
            let body: Value = serde_json::from_str(&reply.text()).unwrap_or_default();
            let is_it = reply.status == status && body["code"] == code;
            if is_it { Ok(()) } else { Err(format!("{} {body}", reply.status)) }
        });
    };
    wait_for(503, "node_silent");
    wait_for(404, "offline");
}

/// The stream in the list of `b`.
fn listed(nodes: &Nodes, stream: &Stream) -> Value {
    let list = nodes.api_b.get("/api/streams").ok();
    let found = list.as_array().into_iter().flatten().find(|one| one["id"] == stream.id).cloned();
    found.expect("the stream in the list")
}

/// Waits until `b` follows the events of `a`: earlier ones are not told.
fn follows(nodes: &Nodes, follower: &mut Follower) {
    let seen = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..FOLLOWED_TRIES_MAX {
                if seen.load(Ordering::Relaxed) {
                    return;
                }
                let _ = nodes.api_a.create_stream(&format!("a sign {number}"));
                std::thread::sleep(FOLLOWED_EVERY);
            }
        });
        let _ = follower.until("stream.created");
        seen.store(true, Ordering::Relaxed);
    });
}

#[test]
fn live_state_and_events_are_the_same_at_every_node() {
    let mut nodes = Nodes::start();
    let hosted = Hosted::new(&nodes.a, "shown");
    let stream = &hosted.stream;
    let mut follower = Follower::new(&nodes.b, nodes.a.key(), None);
    follows(&nodes, &mut follower);
    let mut encoder = nodes.publish(&nodes.a, stream);
    assert_eq!(follower.until("stream.started")["streamId"], stream.id);
    let _ = hosted.ready();

    let detail = nodes.api_b.wait_for_stream(stream, "live");
    assert_eq!(detail["destinations"][0]["state"], "live", "{detail}");
    assert_eq!(detail["playback"][0]["hlsReady"], true, "{detail}");
    assert!(detail["health"]["video"]["codec"].is_string(), "{detail}");
    let destinations = nodes.api_b.get(&format!("/api/streams/{}/destinations", stream.id)).ok();
    assert_eq!(destinations[0]["state"], "live", "{destinations}");
    let list = listed(&nodes, stream);
    assert_eq!((&list["state"], &list["startedAt"]), (&json!("live"), &detail["startedAt"]), "{list}");
    let cost = nodes.api_b.get("/api/public/streams/active/cost").ok();
    assert_eq!(
        (&cost["hasActiveStream"], &cost["streams"][0]["streamKeyId"]),
        (&json!(true), &json!(stream.id))
    );
    let page = Api::new(&nodes.b.base(), None);
    let status = || page.get(&format!("/api/public/stream/status?apiKey={}", hosted.key)).ok();
    let at_b = status();
    assert_eq!((&at_b["isLive"], &at_b["hlsReady"]), (&json!(true), &json!(true)), "{at_b}");

    nodes.a.kill();
    encoder.cut();
    let _ = nodes.api_b.wait_for_stream(stream, "reconnecting");
    let at_b = status();
    assert_eq!((&at_b["isLive"], &at_b["hlsReady"]), (&json!(true), &json!(false)), "{at_b}");
    assert_eq!(listed(&nodes, stream)["state"], "reconnecting");
    assert_eq!(nodes.api_b.get("/api/public/streams/active/cost").ok()["hasActiveStream"], true);
    nodes.wait_for_end(stream, "interrupted");
    assert_eq!(nodes.api_b.stream(stream)["state"], "idle");
    assert_eq!(status()["isLive"], false);
}

#[test]
fn parts_reach_viewers_at_another_node() {
    let nodes = Nodes::start();
    let hosted = Hosted::with(&nodes.a, "near and relayed", &json!({ "lowLatency": true }));
    let mut encoder = nodes.publish(&nodes.a, &hosted.stream);
    let (url_a, url_b) = addresses(&nodes, &hosted);
    let (mut at_a, mut at_b) = (Viewer::of(&url_a), Viewer::of(&url_b));
    let _ = at_b.media();
    let (mut before, _, _) = at_b.version("").expect("nothing is waited for");
    for _ in 0..12 {
        let query = format!("_HLS_msn={}&_HLS_part={}", before.next(), before.next_part());
        let Some((version, _, _)) = at_b.version(&query) else { continue };
        version.assert_follows(&before);
        before = version;
    }
    let newest = &before.parts[before.parts.len() - 2..];
    for (own, relayed) in at_a.parts(newest).iter().zip(at_b.parts(newest)) {
        assert_eq!(own.bytes, relayed.bytes, "{}", own.entry.name);
    }
    // The announced part does not exist yet: the node waits for it at the other.
    let hint = before.hint.clone().expect("an announced part");
    let (own, relayed) = (at_a.path(&hint), at_b.path(&hint));
    let relayed = at_b.http.get(&relayed, &[]);
    relayed.assert_status(200);
    assert_eq!(at_a.http.get(&own, &[]).body, relayed.body);
    encoder.cut();
}

/// The number of the newest segment in a playlist that has not ended: a player that reads an end stops for good.
#[track_caller]
fn newest(text: &str) -> Option<u64> {
    assert!(!text.contains(END), "{text}");
    text.lines().rev().find_map(|line| line.strip_suffix(".m4s")?.parse().ok())
}

#[test]
fn viewers_go_on_when_a_session_moves() {
    let nodes = Nodes::start();
    let hosted = Hosted::new(&nodes.a, "moves");
    let mut encoder = nodes.publish(&nodes.a, &hosted.stream);
    let (url_a, _) = addresses(&nodes, &hosted);
    let mut at_a = Viewer::of(&url_a);
    let _ = at_a.media();
    let playlist = at_a.playlist();
    let _ = nodes.b.run(&["node", "drain", "a"]);
    let before = wait::until("the end of the encoder", || {
        let newest = newest(&at_a.http.get(&playlist, &[]).text());
        if encoder.running() { Err("it runs".to_owned()) } else { Ok(newest) }
    });
    assert!(before.is_some(), "the playlist stays");
    let _ = nodes.api_b.wait_for_stream(&hosted.stream, "reconnecting");
    let mut encoder = nodes.publish(&nodes.b, &hosted.stream);
    wait::until("new segments through the node that gave the session up", || {
        let text = at_a.http.get(&playlist, &[]).text();
        if newest(&text) > before { Ok(()) } else { Err(text) }
    });
    encoder.cut();
}

#[test]
fn a_stream_that_ends_is_offline_at_every_node() {
    let nodes = Nodes::start();
    let hosted = Hosted::new(&nodes.a, "ends");
    let mut encoder = nodes.publish(&nodes.a, &hosted.stream);
    let (_, url_b) = addresses(&nodes, &hosted);
    let mut at_b = Viewer::of(&url_b);
    let media = at_b.media();
    let _ = nodes.api_b.post(&format!("/api/streams/{}/stop", hosted.stream.id), &json!({})).ok();
    let (address, index) = split_url(&url_b);
    let mut http = Http::new(address);
    wait::until("the end at b", || match http.get(&index, &[]).status {
        404 => Ok(()),
        status => Err(status.to_string()),
    });
    // Players go on with what they know.
    let playlist = at_b.playlist();
    // The copy of before is used for a second.
    wait::until("the last playlist", || {
        let text = at_b.http.get(&playlist, &[]).text();
        if text.contains(END) { Ok(()) } else { Err(text) }
    });
    let _ = at_b.load(&media.newest().name);
    encoder.cut();
    let alone = Api::new(&nodes.b.base(), None).try_get("/node/hls/1/1/-/hosted/entry").expect("an answer");
    assert_eq!(
        (alone.status, &alone.body["code"]),
        (404, &json!("not_found")),
        "without the secret of the nodes"
    );
}

/// What a viewer gets at an address.
fn bytes_of(url: &str) -> Vec<u8> {
    let answer = reqwest::blocking::get(url).expect("an answer");
    assert_eq!(answer.status(), 200, "{url}");
    answer.bytes().expect("bytes").to_vec()
}

fn address(shown: &Value, field: &str) -> String {
    shown[field].as_str().unwrap_or_else(|| panic!("no {field}: {shown}")).to_owned()
}

/// The recording and the clip once both are in the store.
fn stored(nodes: &Nodes, clip: &Value) -> (Value, Value) {
    until_api("a recording and a clip in the store", || {
        // The node without the files lists them too.
        let (all, clip) =
            (archives(&nodes.api_b), nodes.api_b.get(&format!("/api/clips/{}", clip["id"])).ok());
        match all.as_slice() {
            [one] if one["state"] == "ready" && clip["state"] == "ready" => Ok((one.clone(), clip)),
            _ => Err(json!([all, clip]).to_string()),
        }
    })
}

/// The node without the file of a recording that is over names the other one, which makes the clip.
fn a_clip_of_a_recording_is_made_where_its_file_is(nodes: &Nodes, path: &str, recording: &Value) {
    let from = recording["startedAt"].as_i64().expect("a start");
    let wanted = json!({ "from": from + 1_000, "to": from + 4_000 });
    nodes.api_b.post(path, &wanted).assert_error(409, Some("clip_elsewhere"));
    // Nobody has media of that time.
    let behind = json!({ "from": from + 4_000_000, "to": from + 4_001_000 });
    nodes.api_b.post(path, &behind).assert_error(409, Some("clip_no_media"));
    let made = nodes.api_a.post(path, &wanted).ok();
    let _ = stored(nodes, &made);
}

#[test]
fn recordings_and_clips_are_watched_at_every_node() {
    let (mut nodes, store) = (Nodes::start(), Store::start());
    let hosted = Hosted::new(&nodes.a, "recorded");
    let path = format!("/api/streams/{}", hosted.stream.id);
    let archive = json!({ "type": "cloud-archive", "config": store.config() });
    let _ = nodes.api_a.post(&format!("{path}/destinations"), &archive).ok();
    let mut encoder = nodes.publish(&nodes.a, &hosted.stream);
    let _ = hosted.status_when("a window", |status| {
        status["dvr"]["windowSeconds"].as_i64().is_some_and(|window| window >= 8)
    });
    let newest = json!({ "lastSeconds": 5 });
    let clip = nodes.api_a.post(&format!("{path}/clips"), &newest).ok();
    let refused = nodes.api_b.post(&format!("{path}/clips"), &newest);
    refused.assert_error(409, Some("clip_elsewhere"));
    // While it is recorded.
    let running = &archives(&nodes.api_b)[0];
    let growing = text(&address(running, "playbackUrl"));
    assert!(growing.contains("#EXT-X-PLAYLIST-TYPE:EVENT\n") && growing.contains("#EXTINF"), "{growing}");
    let mut received = growing.len();
    encoder.cut();
    end(&nodes.api_a, &hosted.stream);

    let (ready, clip) = stored(&nodes, &clip);
    let at_b = address(&ready, "playbackUrl");
    assert!(at_b.starts_with(&nodes.b.base()), "{at_b}");
    let at = |url: &str, node: &str| url.replace(&nodes.b.base(), node);
    let mut both = Vec::new();
    for node in [nodes.a.base(), nodes.b.base()] {
        // What the store says of a session is used for a second.
        let playlist = until_api("the whole playlist", || {
            let playlist = text(&at(&at_b, &node));
            received += playlist.len();
            if playlist.contains(END) { Ok(playlist) } else { Err(playlist) }
        });
        let mut all = fetched(&at(&at_b, &node), &playlist);
        all.push(bytes_of(&at(&address(&ready, "posterUrl"), &node)));
        all.push(bytes_of(&at(&address(&clip, "playbackUrl"), &node)));
        received += all.iter().map(Vec::len).sum::<usize>();
        both.push((playlist, all));
    }
    assert_eq!(both[0].0, both[1].0);
    assert!(both[0].1 == both[1].1, "a file is another one at the other node");
    wait::within("the metered bytes", seconds(STORED_AFTER_SECONDS), || {
        let stored = nodes.server.ask(DATABASE, "SELECT coalesce(sum(bytes), 0) FROM bandwidth");
        if stored.trim() == received.to_string() { Ok(()) } else { Err(format!("{stored} of {received}")) }
    });

    a_clip_of_a_recording_is_made_where_its_file_is(&nodes, &format!("{path}/clips"), &ready);

    // No path of the nodes opens anything without their secret, and a lost node is an error.
    let (address_b, media) = split_url(&at_b);
    let mut http = Http::new(address_b);
    let id = &ready["id"];
    for path in [format!("/node/vod/{id}/bytes/0/100"), format!("/node/vod/{id}/signed")] {
        http.get(&path, &[("satcast-node", "forged")]).assert_status(404);
    }
    http.get(&media.replace("token=", "token=x"), &[]).assert_status(401);
    nodes.a.kill();
    let (_, file) = split_url(&address(&clip, "playbackUrl"));
    wait::until("the lost node", || match http.get(&file, &[]) {
        reply if reply.status == 503 => Ok(()),
        reply => Err(reply.status.to_string()),
    });
}
