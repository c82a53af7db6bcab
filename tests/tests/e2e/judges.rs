//! Tests of the playback checks: output of ffmpeg passes, and every fault they look for is found.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

use satcast_tests::hls::Chunk;
use satcast_tests::nginx::Nginx;
use satcast_tests::player::{Engine, Player, assert_moves, assert_valid_playlists};
use satcast_tests::playlist::Segment;
use satcast_tests::probe::{assert_decodes, assert_plays, assert_segments, records};
use satcast_tests::record::{CARRIED_MILLIS, assert_carried};
use satcast_tests::source::{Recipe, Source};
use serde_json::json;
use tempfile::TempDir;

/// Length of the packaged source in seconds.
const SECONDS: &str = "10";

/// HLS of ffmpeg in a folder, served by nginx.
struct Packaged {
    folder: TempDir,
    nginx: Nginx,
    chunks: Vec<Chunk>,
}

/// Packages `source` with ffmpeg's HLS muxer and these flags.
fn package(source: &Source, flags: &str) -> Packaged {
    let folder = tempfile::tempdir().expect("a folder for HLS");
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-nostdin", "-v", "error", "-i"]).arg(source.path()).args(["-t", SECONDS, "-c", "copy"]);
    ffmpeg.args(["-f", "hls", "-hls_time", "2", "-hls_list_size", "0", "-hls_segment_type", "fmp4"]);
    ffmpeg.args(["-hls_flags", flags, "-master_pl_name", "index.m3u8", "media.m3u8"]);
    let status = ffmpeg.current_dir(folder.path()).status().expect("ffmpeg");
    assert!(status.success(), "ffmpeg ended with {status}");
    let text = std::fs::read_to_string(folder.path().join("media.m3u8")).expect("a playlist");
    let mut chunks = Vec::new();
    let init = std::fs::read(folder.path().join("init.mp4")).expect("an initialization segment");
    let mut lines = text.lines();
    while let Some(line) = lines.find(|line| line.starts_with("#EXTINF:")) {
        let seconds = line.trim_start_matches("#EXTINF:").trim_end_matches(',');
        let name = lines.next().expect("a name behind EXTINF");
        let entry = Segment {
            sequence: chunks.len() as u64,
            name: name.to_owned(),
            duration: seconds.parse().expect("a duration"),
            date_ms: 0,
            discontinuity: false,
            init: "init.mp4".to_owned(),
        };
        let bytes = std::fs::read(folder.path().join(name)).expect("a segment");
        chunks.push(Chunk { entry, init: init.clone(), bytes });
    }
    assert!(chunks.len() > 3, "{text}");
    Packaged { nginx: Nginx::serving(folder.path()), folder, chunks }
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).expect("a playlist")
}

#[track_caller]
fn finds(fault: &str, judge: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(judge)).is_err(), "not found: {fault}");
}

#[test]
fn good_segments_pass_and_each_fault_is_found() {
    let source = Source::shared();
    let packaged = package(&source, "independent_segments");
    assert_segments(&packaged.chunks);
    assert_decodes(&packaged.chunks);
    assert_carried("the reader", source.records(), &records(&packaged.chunks), CARRIED_MILLIS);

    let changed = |change: &dyn Fn(&mut Vec<Chunk>)| {
        let mut chunks = packaged.chunks.clone();
        change(&mut chunks);
        chunks
    };
    finds("a wrong EXTINF", || {
        assert_segments(&changed(&|chunks| chunks[1].entry.duration += 0.05));
    });
    finds("EXTINF that drifts", || {
        assert_segments(&changed(&|chunks| chunks.iter_mut().for_each(|chunk| chunk.entry.duration += 0.02)));
    });
    finds("a lost segment", || {
        assert_segments(&changed(&|chunks| {
            chunks.remove(1);
            chunks[1].entry.sequence = 1;
        }));
    });
    let broken = changed(&|chunks| {
        let middle = chunks[1].bytes.len() / 2;
        chunks[1].bytes[middle..middle + 64].fill(0xff);
    });
    finds("broken frames", || assert_decodes(&broken));
    finds("frames that were never sent", || {
        assert_carried("the reader", source.records(), &records(&broken), CARRIED_MILLIS);
    });
    let long = Source::of(Recipe::LONG_GROUPS);
    let by_time = package(&long, "split_by_time");
    finds("segments without a keyframe", || {
        assert_segments(&by_time.chunks);
    });
}

#[test]
fn players_play_valid_streams_and_report_faults() {
    let mut player = Player::launch(Engine::HlsJs);
    let packaged = package(&Source::of(Recipe::SMALL), "independent_segments");
    let folder = packaged.folder.path();
    let (index, media) = (read(folder, "index.m3u8"), read(folder, "media.m3u8"));
    let read_by_parser = assert_valid_playlists(&[&index, &media]);
    assert_eq!(read_by_parser[1]["segments"].as_u64(), Some(packaged.chunks.len() as u64));
    finds("a playlist without a target", || {
        assert_valid_playlists(&[&media.replace("#EXT-X-TARGETDURATION", "#X")]);
    });
    let url = format!("http://{}/index.m3u8", packaged.nginx.address());
    let frames = assert_plays(&url, 5);
    assert!((120..=130).contains(&frames), "{frames} frames in 5 s of 25 a second");

    player.open(&url);
    let state = player.step("wait 1");
    assert_moves(&state);
    assert_eq!(state["fatal"], json!([]), "{state}");
    finds("an address without a stream", || {
        player.open(&url.replace("index", "nothing"));
    });
    finds("that the player met a fatal error", || player.finish());
}
