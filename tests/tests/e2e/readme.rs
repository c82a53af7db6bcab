//! The README's lines, run as they stand: only paths, ports and the placeholders are replaced.

use std::path::Path;

use satcast_tests::api::stream_of;
use satcast_tests::process::Process;
use satcast_tests::service::{Setup, binary};
use satcast_tests::source::Source;
use satcast_tests::wait::seconds;
use serde_json::Value;

#[test]
fn the_first_stream_works_as_in_the_readme() {
    let mut service = Setup::default().stopped();
    service.start();
    let lines = block_with("account create")
        .replace("target/debug/satcast", binary().to_str().expect("a path in UTF-8"))
        .replace("http://127.0.0.1:8080", &service.base());
    let output = service.shell(&lines).output().expect("a shell");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the lines ended with {}: {errors}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let answer = text.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    let stream = stream_of(&answer.unwrap_or_else(|| panic!("the last line is not JSON: {text}")));

    let line = block_with("ffmpeg -re")
        .replace("video.mp4", Source::shared().path().to_str().expect("a path in UTF-8"))
        .replace("rtmp://127.0.0.1:1935/live/STREAM_KEY", &service.ingest_url(&stream.key));
    let log = service.folder().join("encoder.log");
    let _encoder =
        Process::start("the README's encoder", service.shell(&format!("exec {}", line.trim())), &log);
    let key = service.run(&["key", "create", "--account", "me", "--type", "permanent"]);
    let api = satcast_tests::api::Api::new(&service.base(), Some(key.trim()));
    let live = api.wait_for_stream(&stream, "live", seconds(20));
    assert_eq!(live["destinations"].as_array().map(Vec::len), Some(1), "{live}");

    let lines = block_with("dvrSeconds")
        .replace("target/debug/satcast", binary().to_str().expect("a path in UTF-8"))
        .replace("http://127.0.0.1:8080", &service.base());
    let output = service.shell(&format!("KEY={}\n{lines}", key.trim())).output().expect("a shell");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the lines ended with {}: {errors}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    // Neither answer ends with a line end.
    let status = text.rfind("{\"bandwidth").and_then(|at| serde_json::from_str::<Value>(&text[at..]).ok());
    let status = status.unwrap_or_else(|| panic!("the last answer is no status: {text}"));
    assert_eq!(status["isLive"], true, "{status}");
    assert!(status["hlsUrl"].as_str().is_some_and(|url| url.starts_with(&service.base())), "{status}");
}

/// The README's one block of shell lines that holds `text`.
fn block_with(text: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(path).expect("README.md");
    let blocks = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let found: Vec<&str> = blocks.filter(|block| block.contains(text)).collect();
    assert_eq!(found.len(), 1, "the README has {} shell blocks with \"{text}\"", found.len());
    found[0].to_owned()
}
