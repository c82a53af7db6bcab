//! Recordings that people watch: while they are made, from the local copies and from the store, in ffmpeg and in a browser.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use reqwest::Url;
use reqwest::blocking::Client;
use satcast_tests::api::Api;
use satcast_tests::encoder::Publish;
use satcast_tests::player::{Engine, Player, assert_moves, assert_valid_playlists};
use satcast_tests::probe::{hashes_of_file, hashes_without_sets};
use satcast_tests::record::Track;
use satcast_tests::s3::Store;
use satcast_tests::said;
use satcast_tests::service::Service;
use satcast_tests::soak;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{seconds, until_api, within_api};
use serde_json::{Value, json};

use crate::archive::{archived, archives, end, seconds_of, service};

/// Where the viewer seeks to, in the first recording and in the second one, in seconds.
const SEEKS: [f64; 3] = [12.0, 45.0, 3.0];
/// How far from it the browser may show a frame.
const SEEK_SECONDS: f64 = 5.0;
/// Seconds of media before and after the restart of the encoder; the long form has ten minutes. No multiple of the source, so that the
/// restart shows in the packets.
const HALF_SECONDS: u64 = 12;
const LONG_HALF_SECONDS: u64 = 306;
/// Frames a second of the source, and how many may be missing at the end of what an encoder sends.
const RATE: u64 = 25;
const MISSING_MAX: u64 = 10;
/// Frames of a fragment: ffmpeg leaves out the first one of each further file, because the times of a file begin at 0.
const FRAGMENT_FRAMES: usize = 30;
/// How often the viewer of a recording that grows looks.
const LOOK: Duration = Duration::from_secs(2);
/// A user who owns nothing: VLC refuses to run as root.
const NOBODY: u32 = 65_534;

pub(crate) fn text(url: &str) -> String {
    let answer = Client::new().get(url).send().expect("an answer");
    assert_eq!(answer.status(), 200, "{url}");
    answer.text().expect("a playlist")
}

/// The address at which the owner watches a recording.
fn address(archive: &Value) -> String {
    archive["playbackUrl"].as_str().unwrap_or_else(|| panic!("nothing to play: {archive}")).to_owned()
}

/// What a viewer fetches, with the initialization segment of each recording before its segments.
pub(crate) fn fetched(url: &str, playlist: &str) -> Vec<Vec<u8>> {
    let (client, base) = (Client::new(), Url::parse(url).expect("an address"));
    let bytes = |uri: &str, range: &str| {
        let (len, first) = range.split_once('@').expect("a range");
        let (len, first): (u64, u64) = (len.parse().expect("a length"), first.parse().expect("an offset"));
        let asked = client.get(base.join(uri).expect("an address"));
        let asked = asked.header("Range", format!("bytes={first}-{}", first + len - 1));
        let answer = asked.send().expect("an answer");
        assert_eq!(answer.status(), 206, "{range}");
        let bytes = answer.bytes().expect("bytes").to_vec();
        assert_eq!(bytes.len() as u64, len);
        bytes
    };
    let (mut files, mut range): (Vec<Vec<u8>>, _) = (Vec::new(), "");
    for line in playlist.lines() {
        if let Some(map) = line.strip_prefix("#EXT-X-MAP:URI=\"") {
            let (uri, rest) = map.split_once("\",BYTERANGE=\"").expect("a range of the map");
            files.push(bytes(uri, rest.trim_end_matches('"')));
        } else if let Some(rest) = line.strip_prefix("#EXT-X-BYTERANGE:") {
            range = rest;
        } else if !line.starts_with('#') {
            files.last_mut().expect("a map").extend(bytes(line, range));
        }
    }
    files
}

fn hashes(file: &[u8], track: Track) -> Vec<String> {
    of_file(file, |path| hashes_of_file(path, track))
}

fn of_file(file: &[u8], hashes: impl Fn(&Path) -> Vec<String>) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file.mp4");
    fs::write(&path, file).expect("a file");
    hashes(&path)
}

/// The packets of the video that ffmpeg reads from the whole playlist.
fn hashes_of_playlist(url: &str) -> Vec<String> {
    let entries =
        ["-select_streams", "v:0", "-show_entries", "packet=data_hash", "-show_data_hash", "sha256"];
    let mut ffprobe = Command::new("ffprobe");
    let output =
        ffprobe.args(["-v", "error"]).args(entries).args(["-of", "json"]).arg(url).output().expect("ffprobe");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packets = read["packets"].as_array().expect("packets");
    packets.iter().map(|packet| packet["data_hash"].as_str().expect("a hash").to_owned()).collect()
}

/// The frames that ffmpeg decodes from the whole playlist, without an error.
fn frames_decoded(url: &str) -> usize {
    // The times of the second file are those of another rate.
    let exact =
        ["-map", "0:v:0", "-fps_mode", "passthrough", "-enc_time_base", "1:90000", "-f", "framecrc", "-"];
    let mut ffmpeg = Command::new("ffmpeg");
    let output = ffmpeg.args(["-v", "error", "-i", url]).args(exact).output().expect("ffmpeg");
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).lines().filter(|line| !line.starts_with('#')).count()
}

/// Plays the whole playlist in hls.js, with jumps into both recordings.
fn watch_and_seek(url: &str) {
    let (mut player, _) = Player::start(Engine::HlsJs, url);
    assert_moves(&player.step("wait 2"));
    for wanted in SEEKS {
        let here = player.step("state")["position"].as_f64().expect("a position");
        player.step(&format!("back {}", here - wanted));
        let state = player.step("wait 2");
        assert_moves(&state);
        let shown = state["position"].as_f64().expect("a position");
        assert!((shown - wanted).abs() < SEEK_SECONDS, "{shown} instead of {wanted}: {state}");
    }
    player.finish();
}

/// Both recordings of the session, oldest first, once they have this state.
fn both(api: &Api, state: &str) -> Vec<Value> {
    until_api(&format!("two recordings that are {state}"), || {
        let mut all = archives(api);
        all.reverse();
        let is_so = all.len() == 2 && all.iter().all(|archive| archive["state"] == state);
        if is_so { Ok(all) } else { Err(json!(all).to_string()) }
    })
}

fn assert_same_media(url: &str, sources: &[&Source]) {
    let playlist = text(url);
    assert!(
        playlist.contains("#EXT-X-PLAYLIST-TYPE:VOD\n") && playlist.ends_with("#EXT-X-ENDLIST\n"),
        "{playlist}"
    );
    assert_eq!(playlist.matches("#EXT-X-DISCONTINUITY\n").count(), sources.len() - 1, "{playlist}");
    assert_valid_playlists(&[&playlist]);
    let files = fetched(url, &playlist);
    assert_eq!(files.len(), sources.len());
    for (file, source) in files.iter().zip(sources) {
        assert_eq!(of_file(file, hashes_without_sets), hashes_of_file(source.path(), Track::Video));
        let (heard, sent) = (hashes(file, Track::Audio), hashes_of_file(source.path(), Track::Audio));
        assert!(
            sent.windows(heard.len()).any(|run| run == heard) && heard.len() + 5 > sent.len(),
            "{} of {}",
            heard.len(),
            sent.len()
        );
    }
}

fn files_in(service: &Service, folder: &str) -> usize {
    fs::read_dir(service.folder().join("data/drivers/archive").join(folder)).map_or(0, Iterator::count)
}

#[test]
fn a_session_with_an_encoder_restart_is_watched_while_it_is_made_and_after() {
    let (small, screen, store) = (Source::of(Recipe::SMALL), Source::of(Recipe::SCREEN), Store::start());
    let service = service();
    let api = service.api();
    store.vanish();
    let (stream, _) = archived(&api, "watched", &store);
    let ingest = service.ingest_url(&stream.key);
    Publish::of(&small).faster(4).to(&ingest).finish(seconds(60));

    // While it is being recorded.
    let running = until_api("most of the recording", || match archives(&api).as_slice() {
        [one] if one["state"] == "recording" && seconds_of(one) >= 15.0 => Ok(one.clone()),
        others => Err(json!(others).to_string()),
    });
    let playlist = text(&address(&running));
    assert!(playlist.contains("#EXT-X-PLAYLIST-TYPE:EVENT\n") && !playlist.contains("ENDLIST"), "{playlist}");
    let seen = hashes(&fetched(&address(&running), &playlist)[0], Track::Video);
    let sent = hashes_of_file(small.path(), Track::Video);
    assert!(sent.starts_with(&seen) && seen.len() > sent.len() / 2, "{} of {}", seen.len(), sent.len());

    // The encoder returns with other settings, so another file begins.
    Publish::of(&screen).faster(4).to(&ingest).finish(seconds(60));
    end(&api, &stream);
    let local = both(&api, "uploading");
    assert_eq!(local[0]["sessionId"], local[1]["sessionId"]);
    for archive in &local {
        assert_same_media(&address(archive), &[&small, &screen]);
    }
    // The keyframes of the second file carry their parameter sets.
    let url = address(&local[0]);
    let files = fetched(&url, &text(&url));
    let all: Vec<String> = files.iter().flat_map(|file| hashes(file, Track::Video)).collect();
    assert_eq!(hashes_of_playlist(&url), all);
    let left_out = all.len() - frames_decoded(&url);
    assert!(left_out <= FRAGMENT_FRAMES, "{left_out} of {} frames", all.len());
    watch_and_seek(&url);

    // From the store, by signed requests, with the kept index and with one that is made again.
    store.recover();
    let ready = both(&api, "ready");
    until_api("the end of the local copies", || match files_in(&service, "spool") {
        0 => Ok(()),
        left => Err(left.to_string()),
    });
    assert_eq!(files_in(&service, "index"), 2);
    assert_same_media(&address(&ready[0]), &[&small, &screen]);
    assert_eq!(hashes_of_playlist(&address(&ready[1])), all);
    watch_and_seek(&address(&ready[0]));
    let _ = api.delete(&format!("/api/archives/{}?remote=true", ready[0]["id"])).ok();
    assert_eq!(files_in(&service, "index"), 1);
    until_api("the other one alone", || {
        let playlist = text(&address(&ready[1]));
        if playlist.contains("#EXT-X-DISCONTINUITY") { Err(playlist) } else { Ok(()) }
    });
}

#[test]
fn recordings_of_an_earlier_version_get_their_index_once() {
    let (small, store) = (Source::of(Recipe::SMALL), Store::start());
    let mut service = service();
    let (stream, _) = archived(&service.api(), "earlier", &store);
    Publish::of(&small).faster(4).to(&service.ingest_url(&stream.key)).finish(seconds(60));
    end(&service.api(), &stream);
    let ready = crate::archive::wait_for(&service.api(), "ready");
    let _ = service.stop();
    // What the earlier version did not keep.
    let index = service.folder().join("data/drivers/archive/index");
    let of = |folder: &Path| {
        fs::read_dir(folder).expect("a folder").next().expect("an index").expect("a file").path()
    };
    let before = fs::read(of(&index)).expect("an index");
    fs::remove_dir_all(&index).expect("no index");
    service.start();
    let api = service.api();
    let again = until_api("the recording", || {
        let shown = api.get(&format!("/api/archives/{}", ready["id"])).ok();
        if shown["playbackUrl"].is_string() { Ok(shown) } else { Err(shown.to_string()) }
    });
    assert_same_media(&address(&again), &[&small]);
    assert_eq!(fs::read(of(&index)).expect("an index"), before);
}

/// The segments of a playlist, one a line.
fn segments(playlist: &str) -> &str {
    playlist.split_once("#EXT-X-MAP").map_or("", |(_, rest)| rest)
}

/// Watches a recording that grows until `is_over`: the playlist only gets longer, and its newest segment can be fetched. Gives the
/// number of versions that it saw.
fn watch_while_it_grows(url: &str, is_over: &AtomicBool) -> usize {
    let (mut before, mut versions) = (String::new(), 0);
    while !is_over.load(Ordering::SeqCst) {
        let playlist = text(url);
        assert!(segments(&playlist).starts_with(segments(&before).trim_end()), "{before}\n{playlist}");
        if playlist != before {
            versions += 1;
            let range =
                playlist.lines().rfind(|line| line.starts_with("#EXT-X-BYTERANGE:")).expect("a range");
            let (len, first) =
                range.trim_start_matches("#EXT-X-BYTERANGE:").split_once('@').expect("a range");
            let (len, first): (u64, u64) =
                (len.parse().expect("a length"), first.parse().expect("an offset"));
            let uri = playlist.lines().last().expect("a segment");
            let asked =
                Client::new().get(Url::parse(url).expect("an address").join(uri).expect("an address"));
            let asked = asked.header("Range", format!("bytes={first}-{}", first + len - 1));
            let bytes = asked.send().expect("an answer").bytes().expect("bytes");
            assert_eq!(bytes.len() as u64, len, "{range}");
        }
        before = playlist;
        std::thread::sleep(LOOK);
    }
    versions
}

/// The lengths of the runs of a repeated source, of which each begins at its start.
fn runs(all: &[String], source: &[String]) -> Vec<u64> {
    let mut runs = vec![0_u64];
    for (at, hash) in all.iter().enumerate() {
        let run = *runs.last().expect("a run");
        if *hash != source[run as usize % source.len()] {
            assert_eq!(*hash, source[0], "packet {at} is not the next one");
            runs.push(0);
        }
        *runs.last_mut().expect("a run") += 1;
    }
    runs
}

/// VLC plays a playlist for `seconds` without an error: to its end, or as long as `options` say. A machine without VLC is not asked.
fn vlc_plays(url: &str, options: &[&str], seconds: u64) {
    if Command::new("cvlc").arg("--version").output().is_err() {
        println!("there is no VLC");
        return;
    }
    let (home, limit) = (tempfile::tempdir().expect("a folder"), (seconds * 2 + 30).to_string());
    let mut vlc = Command::new("timeout");
    vlc.args([&limit, "cvlc", "--intf", "dummy", "--vout", "dummy", "--aout", "dummy"]);
    vlc.args(["--no-video-title-show", "--ignore-config"]).args(options).args([url, "vlc://quit"]);
    vlc.env("HOME", home.path()).env("XDG_RUNTIME_DIR", home.path()).current_dir("/");
    if geteuid().is_root() {
        vlc.uid(NOBODY);
    }
    let began = Instant::now();
    let output = vlc.output().expect("VLC");
    let said = String::from_utf8_lossy(&output.stderr);
    // It looks for a desktop, which is not there; a busy machine lets it wait longer.
    let is_harmless = |line: &str| line.contains("interface") || line.contains(said::VLC_LATE);
    let is_error = |line: &str| line.contains(" error: ") && !is_harmless(line);
    assert!(output.status.success() && !said.lines().any(is_error), "{said}");
    assert!(began.elapsed() >= Duration::from_secs(seconds), "it ended early: {said}");
}

#[test]
fn soak_a_recording_with_an_encoder_restart_is_watched_to_its_end() {
    let half = if soak::rounds(1) > 1 { LONG_HALF_SECONDS } else { HALF_SECONDS };
    let (small, store) = (Source::of(Recipe::SMALL), Store::start());
    let service = service();
    let api = service.api();
    let (stream, _) = archived(&api, "long", &store);
    // Everything is watched from the local copies first.
    store.vanish();
    let publish = || {
        let mut encoder = Publish::of(&small).endless().seconds(half).to(&service.ingest_url(&stream.key));
        encoder.finish(seconds(half * 2 + 60));
    };
    let is_over = &AtomicBool::new(false);
    let url = std::thread::scope(|scope| {
        let encoders = scope.spawn(|| {
            publish();
            publish();
        });
        let running = until_api("the first segment", || match archives(&api).as_slice() {
            [one] if one["state"] == "recording" && seconds_of(one) >= 6.0 => Ok(one.clone()),
            others => Err(json!(others).to_string()),
        });
        let url = address(&running);
        let (seen, played) = (url.clone(), url.clone());
        let viewer = scope.spawn(move || watch_while_it_grows(&seen, is_over));
        let vlc = scope.spawn(move || vlc_plays(&played, &["--run-time", "6"], 6));
        encoders.join().expect("both encoders");
        is_over.store(true, Ordering::SeqCst);
        assert!(viewer.join().expect("the viewer") >= 3);
        vlc.join().expect("VLC plays what grows");
        url
    });
    end(&api, &stream);
    let playlist = until_api("the whole playlist", || match text(&url) {
        whole if whole.ends_with("#EXT-X-ENDLIST\n") => Ok(whole),
        growing => Err(growing),
    });
    assert_valid_playlists(&[&playlist]);
    let runs = runs(&hashes_of_playlist(&url), &hashes_of_file(small.path(), Track::Video));
    let least = half * RATE - MISSING_MAX;
    assert!(runs.len() == 2 && runs.iter().all(|run| *run >= least), "{runs:?} of {least}");
    vlc_plays(&url, &[], half * 2 - 2);
    store.recover();
    within_api("the end of the local copies", seconds(330), || match files_in(&service, "spool") {
        0 => Ok(()),
        left => Err(left.to_string()),
    });
    vlc_plays(&url, &[], half * 2 - 2);
}
