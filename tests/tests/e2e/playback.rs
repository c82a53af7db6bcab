//! A stream over HLS as a viewer gets it: complete, right to the frame, with the headers that caches and browsers need.

use satcast_tests::encoder::Publish;
use satcast_tests::hls::{Chunk, Viewer};
use satcast_tests::hosted::{Hosted, window_files};
use satcast_tests::http::{Http, Reply, split_url};
use satcast_tests::player::assert_valid_playlists;
use satcast_tests::playlist;
use satcast_tests::probe::{self, assert_decodes, assert_plays, assert_segments, records};
use satcast_tests::record::{CARRIED_MILLIS, Track, assert_carried};
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{self, seconds};
use serde_json::{Value, json};

/// Greatest age of the end of the newest segment: the time of the segment in the making, and the way to the viewer.
const BEHIND_MILLIS: i64 = 4_000;
/// How far ahead of the clock its time may be on a busy machine.
const AHEAD_MILLIS: i64 = 10_000;

#[test]
fn a_viewer_gets_the_packets_of_the_encoder() {
    let source = Source::shared();
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "exact");
    let _encoder = Publish::of(&source).to(&service.ingest_url(&hosted.stream.key));
    let url = hosted.ready();
    let watching = std::thread::spawn({
        let url = url.clone();
        move || assert_plays(&url, 8)
    });
    let mut viewer = Viewer::of(&url);
    let media = viewer.media_when("nine segments", |media| media.segments.len() >= 9);
    let now = i64::try_from(now_millis()).expect("a clock before the year 292 million");
    let chunks = viewer.chunks(&media.segments);
    assert_segments(&chunks);
    assert_decodes(&chunks);
    assert_carried("a viewer", source.records(), &records(&chunks), CARRIED_MILLIS);
    assert!(media.segments.iter().all(|segment| (segment.duration - 2.0).abs() < 0.1), "{media:?}");
    let newest = media.newest();
    let end = newest.date_ms + (newest.duration * 1000.0) as i64;
    // An encoder that was delayed at its start sends faster afterwards, so its media is ahead of the clock.
    assert!(
        (-AHEAD_MILLIS..BEHIND_MILLIS).contains(&(now - end)),
        "the newest segment ended {} ms ago",
        now - end
    );
    assert_index_matches(&mut viewer, &chunks);
    preview_is_whole(&mut Viewer::of(&hosted.preview_url(&mut viewer)), &source);
    let frames = watching.join().expect("ffmpeg plays the stream");
    assert!((230..=250).contains(&frames), "ffmpeg decoded {frames} frames of 8 s");
}

fn now_millis() -> u128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("a clock after 1970").as_millis()
}

/// CODECS, RESOLUTION, FRAME-RATE and BANDWIDTH are those of the segments.
#[track_caller]
fn assert_index_matches(viewer: &mut Viewer, chunks: &[Chunk]) {
    let index = viewer.index();
    let attribute = |name: &str| index.attributes.get(name).map_or("", String::as_str);
    assert_eq!((attribute("RESOLUTION"), attribute("FRAME-RATE")), ("1280x720", "30.000"));
    let (video_codec, audio) = attribute("CODECS").split_once(',').expect("two codecs");
    assert!(video_codec.starts_with("avc1.") && video_codec.len() == "avc1.42c01f".len(), "{video_codec}");
    assert_eq!(audio, "mp4a.40.2");
    let rates = chunks.iter().map(|chunk| chunk.bytes.len() as f64 * 8.0 / chunk.entry.duration);
    let peak = rates.fold(0.0, f64::max);
    let said: f64 = attribute("BANDWIDTH").parse().expect("a number");
    assert!((peak..peak * 1.3).contains(&said), "BANDWIDTH is {said}, the peak {peak}");

    let path = viewer.path("media.m3u8");
    let text = viewer.http.get(&path, &[]).text();
    let read = assert_valid_playlists(&[&text]);
    assert_eq!(read[0]["sequence"].as_u64(), playlist::media(&text).ok().map(|media| media.sequence));
}

/// The preview: the same media in files of three segments, for a viewer with a token.
#[track_caller]
fn preview_is_whole(preview: &mut Viewer, source: &Source) {
    let media = preview.media();
    let chunks = preview.chunks(&media.segments);
    assert!(chunks.iter().all(|chunk| chunk.entry.duration > 5.5), "{media:?}");
    assert_segments(&chunks);
    assert_decodes(&chunks);
    assert_carried("a viewer of the preview", source.records(), &records(&chunks), CARRIED_MILLIS);
}

#[test]
fn answers_have_the_headers_for_caches_and_browsers() {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "headers");
    let _encoder =
        Publish::of(&Source::shared()).faster(4).endless().to(&service.ingest_url(&hosted.stream.key));
    let url = hosted.ready();
    let mut viewer = Viewer::of(&url);
    // Waits until the first segments are on disk, so that requests are answered from a file and from memory.
    let media = viewer.media_when("a long window", |media| media.segments.len() >= 12);
    let (_, index) = satcast_tests::http::split_url(&url);
    let playlist = viewer.path("media.m3u8");
    for path in [&index, &playlist] {
        playlists_are_packed_on_request(&mut viewer, path);
    }
    let init = viewer.path(&media.newest().init);
    for segment in [&media.segments[0], media.newest()] {
        let path = viewer.path(&segment.name);
        ranges_are_cut_out(&mut viewer, &path);
    }
    let whole = viewer.http.get(&init, &[]);
    assert_media(&whole);
    preflight_is_answered(&mut viewer, &playlist);
    errors_are_readable(&mut viewer, &init);
}

/// Expects that a page of any site may read the answer.
#[track_caller]
fn assert_open(reply: &Reply) {
    assert_eq!(reply.header("access-control-allow-origin"), Some("*"), "{:?}", reply.headers);
    assert_eq!(reply.header("timing-allow-origin"), Some("*"), "{:?}", reply.headers);
    assert_eq!(reply.header("access-control-allow-credentials"), None);
    let exposed = reply.header("access-control-expose-headers").unwrap_or_default().to_ascii_lowercase();
    for name in ["content-length", "content-range", "date", "age"] {
        assert!(exposed.split(", ").any(|known| known == name), "{name} is not exposed: {exposed}");
    }
}

#[track_caller]
fn playlists_are_packed_on_request(viewer: &mut Viewer, path: &str) {
    let plain = viewer.http.get(path, &[]);
    let packed = viewer.http.get(path, &[("accept-encoding", "gzip, identity;q=1, *;q=0")]);
    for reply in [&plain, &packed] {
        reply.assert_status(200);
        assert_open(reply);
        assert_eq!(reply.header("content-type"), Some("application/vnd.apple.mpegurl"));
        assert_eq!(reply.header("cache-control"), Some("max-age=1"));
        let vary = reply.header("vary").unwrap_or_default().to_ascii_lowercase();
        assert!(vary.contains("accept-encoding"), "Vary: {vary}");
        assert_eq!(reply.header("content-length"), Some(reply.body.len().to_string().as_str()));
    }
    // An index of some 300 bytes would not get shorter.
    let packs = (plain.body.len() > 1000).then_some("gzip");
    assert_eq!((plain.header("content-encoding"), packed.header("content-encoding")), (None, packs));
    assert!(packed.text().starts_with("#EXTM3U\n") && plain.text().starts_with("#EXTM3U\n"));
    let head = viewer.http.request("HEAD", path, &[]);
    head.assert_status(200);
    assert_eq!(head.header("content-type"), plain.header("content-type"));
}

#[track_caller]
fn assert_media(reply: &Reply) {
    reply.assert_status(200);
    assert_open(reply);
    assert_eq!(reply.header("content-type"), Some("video/mp4"));
    assert_eq!(reply.header("cache-control"), Some("max-age=3600, immutable"));
    assert_eq!(reply.header("accept-ranges"), Some("bytes"));
    assert_eq!((reply.header("vary"), reply.header("content-encoding")), (None, None));
}

#[track_caller]
fn ranges_are_cut_out(viewer: &mut Viewer, path: &str) {
    let whole = viewer.http.get(path, &[("accept-encoding", "gzip")]);
    assert_media(&whole);
    let size = whole.body.len();
    let head = viewer.http.request("HEAD", path, &[]);
    assert_media(&head);
    assert_eq!(head.header("content-length"), Some(size.to_string().as_str()));
    for (range, expected) in [
        ("bytes=0-", 0..size),
        ("bytes=100-199", 100..200),
        ("bytes=70000-140000", 70_000..140_001),
        ("bytes=-5", size - 5..size),
        ("bytes=5-99999999", 5..size),
    ] {
        let part = viewer.http.get(path, &[("range", range)]);
        part.assert_status(206);
        assert_open(&part);
        let said = format!("bytes {}-{}/{size}", expected.start, expected.end - 1);
        assert_eq!(part.header("content-range"), Some(said.as_str()), "{range}");
        assert!(part.body == whole.body[expected], "other bytes than those of {range}");
    }
    let beyond = viewer.http.get(path, &[("range", &format!("bytes={size}-"))]);
    beyond.assert_status(416);
    assert_open(&beyond);
    assert_eq!(beyond.header("content-range"), Some(format!("bytes */{size}").as_str()));
}

#[track_caller]
fn preflight_is_answered(viewer: &mut Viewer, path: &str) {
    let asked = [
        ("origin", "https://site.example"),
        ("access-control-request-method", "GET"),
        ("access-control-request-headers", "range"),
    ];
    let reply = viewer.http.request("OPTIONS", path, &asked);
    assert!(matches!(reply.status, 200 | 204), "{}", reply.status);
    assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
    assert_eq!(reply.header("access-control-max-age"), Some("86400"));
    let methods = reply.header("access-control-allow-methods").unwrap_or_default();
    for method in ["GET", "HEAD", "OPTIONS"] {
        assert!(methods.contains(method), "{method} is not in {methods}");
    }
    let headers = reply.header("access-control-allow-headers").unwrap_or_default().to_ascii_lowercase();
    assert!(headers.contains("range"), "{headers}");
}

#[track_caller]
fn errors_are_readable(viewer: &mut Viewer, init: &str) {
    let (folder, _) = init.rsplit_once('/').expect("a path");
    for (method, name, status) in [
        ("GET", "1.m4s", 404),
        ("GET", "..%2f..%2fsatcast.db", 404),
        ("GET", "media.m3u8.bak", 404),
        ("POST", "media.m3u8", 405),
        ("DELETE", "media.m3u8", 405),
    ] {
        let reply = viewer.http.request(method, &format!("{folder}/{name}"), &[]);
        assert_eq!(reply.status, status, "{method} {name}");
        assert_open(&reply);
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{method} {name}");
        assert_eq!(reply.header("allow").is_some(), status == 405, "{method} {name}");
    }
}

#[test]
fn after_a_kill_the_old_window_goes_and_numbers_rise() {
    let source = Source::shared();
    let mut service = Setup::default().start();
    let hosted = Hosted::new(&service, "killed");
    let mut encoder = Publish::of(&source).endless().to(&service.ingest_url(&hosted.stream.key));
    let url = hosted.ready();
    let before = Viewer::of(&url).media();
    let old = wait::until("segments on disk", || match window_files(&service) {
        files if files.is_empty() => Err("no file".into()),
        files => Ok(files),
    });
    service.kill();
    encoder.cut();

    service.start();
    let gone = std::time::Instant::now();
    wait::until("the old window to be gone", || match old.iter().filter(|path| path.exists()).count() {
        0 => Ok(()),
        left => Err(format!("{left} of {} files", old.len())),
    });
    println!("the old window of {} files was gone {:?} after the start", old.len(), gone.elapsed());
    let _encoder = Publish::of(&source).endless().to(&service.ingest_url(&hosted.stream.key));
    assert_eq!(hosted.ready(), url, "the address is permanent");
    let mut viewer = Viewer::of(&url);
    let after = viewer.media();
    assert!(
        after.sequence > before.newest().sequence,
        "{} after {}",
        after.sequence,
        before.newest().sequence
    );
    assert_decodes(&viewer.chunks(&after.segments));
    a_stop_and_a_start_do_the_same(&mut service, &hosted, &mut viewer);
}

/// A second session right after the first has higher numbers too, even if the first was short.
#[track_caller]
fn a_stop_and_a_start_do_the_same(service: &mut Service, hosted: &Hosted, viewer: &mut Viewer) {
    let last = viewer.media().newest().sequence;
    assert!(service.stop().success(), "the service stops");
    service.start();
    let _encoder = Publish::of(&Source::shared()).endless().to(&service.ingest_url(&hosted.stream.key));
    let first = hosted.viewer().media().sequence;
    assert!(first > last, "{first} after {last}");
}

#[test]
fn a_changed_setting_keeps_the_dvr_window() {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "changed");
    let _encoder = Publish::of(&Source::shared()).endless().to(&service.ingest_url(&hosted.stream.key));
    let mut viewer = hosted.viewer();
    let mut before = viewer.media_when("four segments", |media| media.segments.len() >= 4);
    let path = format!("/api/streams/{}/destinations/{}", hosted.stream.id, hosted.destination);
    for config in [json!({ "allowedOrigins": ["https://example.org"] }), json!({ "dvrSeconds": 600 })] {
        let _ = service.api().patch(&path, &json!({ "config": config })).ok();
        let newest = before.newest().name.clone();
        let after = viewer.media_when("another segment", |media| media.newest().name != newest);
        assert_eq!(after.segments[0].name, before.segments[0].name, "{config}");
        assert!(after.segments.iter().all(|segment| !segment.discontinuity), "{after:?}");
        before = after;
    }
}

/// A keyframe every five seconds: the first segment appears long before the second.
#[test]
fn players_are_admitted_with_the_first_segment() {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "let in");
    let page = hosted.page(&service).replace("/watch/", "/hls/");
    let index = format!("{page}/index.m3u8?apiKey={}", hosted.key);
    let (address, path) = split_url(&index);
    let mut http = Http::new(address);
    let code = |reply: &Reply| -> Value {
        let body: Value = serde_json::from_str(&reply.text()).expect("an error in JSON");
        body["code"].clone()
    };
    let offline = http.get(&path, &[]);
    assert_eq!((code(&offline), offline.header("retry-after")), (json!("offline"), None));
    let source = Source::of(Recipe::LONG_GROUPS);
    let _encoder = Publish::of(&source).endless().to(&service.ingest_url(&hosted.stream.key));
    let _ = service.api().wait_for_stream(&hosted.stream, "live");
    let mut refused = 0;
    wait::until("the index", || match http.get(&path, &[]) {
        reply if reply.status == 200 => Ok(()),
        reply => {
            assert_eq!((code(&reply), reply.header("retry-after")), (json!("starting"), Some("1")));
            refused += 1;
            Err(reply.text())
        }
    });
    assert!(refused > 0, "no request came before the first segment");
    let status = hosted.status();
    assert_eq!(status["hlsReady"], true, "{status}");
    // hls.js gets the first segment at once.
    let mut viewer = Viewer::of(&index);
    let first = viewer.media().segments;
    let _ = viewer.load(&first[0].name);
    assert_eq!((first.len(), viewer.media().target_seconds), (1, 5));
    // A media player gets it once enough exist to play without a pause: two segments of five seconds.
    let frames = assert_plays(&index, 12);
    assert!(frames > 0);
    assert!(viewer.media().segments.len() > 1);
}

/// Parts come long before the first segment.
#[test]
fn players_of_parts_are_admitted_with_the_first_part() {
    let service = Setup::default().start();
    let hosted = Hosted::with(&service, "let in early", &json!({ "lowLatency": true }));
    let source = Source::of(Recipe::LONG_GROUPS);
    let _encoder = Publish::of(&source).endless().to(&service.ingest_url(&hosted.stream.key));
    let url = hosted.ready();
    let mut viewer = Viewer::of(&url);
    assert!(viewer.index().attributes.contains_key("CODECS"));
    let (version, text, _) = viewer.version("").expect("nothing is waited for");
    assert!(version.segments.is_empty() && version.next_part() > 0, "{text}");
    let _ = assert_valid_playlists(&[&text]);
    assert_decodes(&viewer.parts(&version.parts));
    let state = service.api().stream(&hosted.stream)["destinations"][0]["state"].clone();
    assert_eq!(state, "connecting", "charges begin with the first whole segment");
    let first = viewer.media();
    assert_eq!((first.target_seconds, first.sequence), (5, version.next()));
    let frames = assert_plays(&url, 12);
    assert!(frames > 0);
}

#[test]
fn two_destinations_of_a_stream_begin_without_a_break() {
    let service = Setup::default().start();
    let one = Hosted::new(&service, "two of them");
    let other = one.beside(&service, &json!({ "dvrSeconds": 60 }));
    let _encoder = Publish::of(&Source::shared()).endless().to(&service.ingest_url(&one.stream.key));
    for hosted in [one, other] {
        let media = hosted.viewer().media();
        assert!(media.segments.iter().all(|segment| !segment.discontinuity), "{media:?}");
    }
}

#[test]
fn ready_stays_while_the_encoder_is_away_for_a_moment() {
    /// Longer than three target durations, after which a player takes a live stream for stale.
    const AWAY: u64 = 8;
    let service = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "12").start();
    let hosted = Hosted::new(&service, "a moment");
    let mut encoder = Publish::until_end(&Source::shared()).to(&service.ingest_url(&hosted.stream.key));
    let _ = hosted.ready();
    let _ = encoder.end();
    let api = service.api();
    let _ = api.wait_for_stream(&hosted.stream, "reconnecting");
    for _ in 0..AWAY {
        std::thread::sleep(seconds(1));
        let status = hosted.status();
        assert_eq!((&status["isLive"], &status["hlsReady"]), (&json!(true), &json!(true)), "{status}");
    }
    hosted.status_when("the end", |status| status["hlsReady"] == false);
}

/// The frames that ffmpeg decodes when the encoder returned with another resolution: it keeps the first initialization segment.
#[test]
fn a_reader_that_keeps_the_first_init_segment_decodes_after_a_change() {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "another resolution");
    let source = Source::joined(Recipe::SHARED, 8, Recipe::SMALL);
    let mut encoder = Publish::of(&source).seconds(14).to(&service.ingest_url(&hosted.stream.key));
    let url = hosted.ready();
    let mut viewer = Viewer::of(&url);
    let _ = viewer.index();
    encoder.finish(seconds(60));
    crate::archive::end(&service.api(), &hosted.stream);
    let ended = viewer.media_when("the end of the playlist", |media| media.ended);
    let path = viewer.path("media.m3u8");
    let address = format!("{}{path}", service.base());
    let mut command = std::process::Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-live_start_index", "0", "-i", &address, "-map", "0:v"]);
    command.args(["-fps_mode", "passthrough", "-f", "framehash", "-"]);
    let output = command.output().expect("ffmpeg starts");
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    let faults = complaints.lines().filter(|line| !line.contains("Found duplicated MOOV"));
    assert_eq!(faults.collect::<Vec<_>>(), Vec::<&str>::new());
    let shown = String::from_utf8_lossy(&output.stdout).lines().filter(|line| !line.starts_with('#')).count();
    let decoded: u32 = viewer.chunks(&ended.segments).iter().map(frames_of).sum();
    assert_eq!(shown as u32, decoded);
}

fn frames_of(chunk: &Chunk) -> u32 {
    let packets = probe::packets(chunk);
    u32::try_from(probe::of_track(&packets, Track::Video).len()).expect("a few")
}
