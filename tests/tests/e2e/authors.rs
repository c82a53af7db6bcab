//! The material for driver authors: examples, `satcast drivers new` and the guide. Each driver is built outside the workspace with the
//! published interface only, is loaded by the real service, and gets a stream.

use std::path::{Path, PathBuf};
use std::process::Command;

use satcast_tests::api::send;
use satcast_tests::author::{
    Receiver, add, assert_beginning, assert_beginning_of, c_compilers, clean, lay, make, recorder, root, run,
    service, without_build,
};
use satcast_tests::encoder::Publish;
use satcast_tests::hosted::{Hosted, STATUS};
use satcast_tests::ports::Port;
use satcast_tests::said;
use satcast_tests::service::{Setup, binary};
use satcast_tests::source::Source;
use satcast_tests::wait::{self, seconds};
use serde_json::json;

/// Seconds that are streamed through a driver.
const STREAMED_SECS: u64 = 6;
/// The ways in which drivers run.
const ISOLATIONS: [&str; 2] = ["thread", "process"];
/// Oldest `1.x` the driver contract compiles with.
const RUST_MINOR_MIN: u32 = 95;

#[test]
fn the_examples_carry_a_stream() {
    examples_carry("thread");
}

#[test]
fn the_examples_carry_a_stream_in_processes() {
    examples_carry("process");
}

fn examples_carry(isolation: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let c = copied(&root().join("plugins/examples/tcp-flv-c"), folder.path());
    let header = root().join("plugin-api/include");
    let said = run(clean("make", &c).arg("check").arg(format!("HEADER={}", header.display())));
    assert!(said.ends_with("ok\n"), "{said}");
    let (flv, recorder) = (c.join("tcp-flv.so"), recorder(None));
    let setup = Setup::default().set("SATCAST_DRIVER__RECORDER__FILE_MIB_MAX", "512");
    let (_drivers, mut service) =
        service(&[("tcp-flv", &flv, isolation), ("recorder", &recorder, isolation)], setup);
    let (api, source) = (service.api(), Source::shared());
    let stream = api.create_stream("examples");
    let receiver = Receiver::start(folder.path().join("got.flv"), seconds(60));
    let sent = add(&api, &stream, "tcp-flv", &json!({ "host": "127.0.0.1", "port": receiver.port }));
    let recorded = add(&api, &stream, "recording", &json!({ "name": "talk" }));
    let path = format!("/api/streams/{}/destinations", stream.id);
    let refused = json!({ "type": "recording", "config": { "name": "../up" } });
    api.post(&path, &refused).assert_error(422, None);

    let mut encoder = Publish::of(&source).seconds(STREAMED_SECS).to(&service.ingest_url(&stream.key));
    for id in [sent, recorded] {
        api.wait_for_destination(&stream, id, "live");
    }
    encoder.finish(seconds(60));
    let key = Hosted::key(&service, recorded);
    let status = || send(api.with_key(None).request("GET", STATUS).header("X-API-Key", &key)).ok();
    let ready = wait::until("a recording to play", || {
        let status = status();
        if status["hlsReady"] == true { Ok(status) } else { Err(status.to_string()) }
    });
    let seen = folder.path().join("seen.flv");
    std::fs::write(&seen, viewed(ready["hlsUrl"].as_str().expect("an address"))).expect("a file");
    assert_beginning_of(&source, &seen);

    // The driver accepts this change while it runs: there is no second file, and viewers get nothing more.
    let change = json!({ "config": { "name": "talk", "listed": false } });
    let _ =
        send(api.request("PATCH", &format!("{path}/{recorded}")).bearer_auth(service.key()).json(&change))
            .ok();
    service.wait_for_log("the change", |line| {
        line.contains(said::NEW_CONFIGURATION) && line.contains("taken=true")
    });
    assert!(service.stop().success());
    let file = service.folder().join("data/drivers/recorder/talk.flv");
    assert_beginning_of(&source, &receiver.file());
    assert_beginning_of(&source, &file);
    assert!(!file.with_file_name("talk-2.flv").exists(), "an accepted change does not reopen the file");
}

#[test]
fn settings_that_a_driver_does_not_take_are_refused_by_name() {
    let recorder = recorder(None);
    let drivers = tempfile::tempdir().expect("a folder for drivers");
    lay(&recorder, &drivers.path().join("recorder.so"));
    let service = Setup::default()
        .set("SATCAST_DRIVERS__DIR", drivers.path().to_str().expect("a path in UTF-8"))
        .set("SATCAST_DRIVERS__ENABLED", "[\"recorder\"]")
        .set("SATCAST_DRIVER__RECORDER__ISOLATION", "thread")
        .set("SATCAST_DRIVER__RECORDER__COLOUR", "red")
        .start();
    let why = "its setting colour in [driver.recorder] is refused";
    let listed = service.command(&["drivers"]);
    assert_eq!(listed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&listed.stdout).contains(why), "{listed:?}");
    let checked = service.command(&["check-config"]);
    assert_eq!(checked.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&checked.stderr).contains(&format!("driver recorder: {why}")),
        "{checked:?}"
    );
}

#[test]
fn a_new_driver_in_c_builds_passes_its_test_and_carries_a_stream() {
    for (number, compiler) in c_compilers().into_iter().enumerate() {
        let folder = tempfile::tempdir().expect("a folder");
        let id = format!("pulse-{number}");
        run(clean(binary().to_str().expect("a path in UTF-8"), folder.path())
            .args(["drivers", "new", &id, "--lang", "c"]));
        let made = folder.path().join(&id);
        make(&made, compiler);
        let again = Command::new(binary())
            .args(["drivers", "new", &id, "--lang", "c"])
            .current_dir(folder.path())
            .output()
            .expect("a start");
        assert!(!again.status.success(), "an existing folder was overwritten");
        for isolation in ISOLATIONS {
            carries(&id, &made.join(format!("{id}.so")), isolation);
        }
    }
}

#[test]
fn a_driver_of_another_rust_compiler_carries_a_stream() {
    let Some(compiler) = other_rustc() else {
        println!(
            "skipped: there is no other Rust compiler (Debian's rustc-web is one, a toolchain of rustup another)"
        );
        return;
    };
    let library = recorder(Some(&compiler));
    ISOLATIONS.iter().for_each(|isolation| recorder_carries(&library, isolation));
}

fn recorder_carries(library: &Path, isolation: &str) {
    let (_drivers, mut service) = service(&[("recorder", library, isolation)], Setup::default());
    let (api, source) = (service.api(), Source::shared());
    let stream = api.create_stream("other compiler");
    let id = add(&api, &stream, "recording", &json!({ "name": "other" }));
    let mut encoder = Publish::of(&source).seconds(STREAMED_SECS).to(&service.ingest_url(&stream.key));
    api.wait_for_destination(&stream, id, "live");
    encoder.finish(seconds(60));
    assert!(service.stop().success());
    assert_beginning_of(&source, &service.folder().join("data/drivers/recorder/other.flv"));
}

#[test]
fn libraries_export_their_entry_and_the_service_nothing_of_its_libraries() {
    let built = binary().parent().expect("the folder of the binary").to_owned();
    let folder = tempfile::tempdir().expect("a folder");
    let c = copied(&root().join("plugins/examples/tcp-flv-c"), folder.path());
    run(clean("make", &c).arg(format!("HEADER={}", root().join("plugin-api/include").display())));
    let libraries = [
        built.join("drivers/rtmp.so"),
        built.join("drivers/hls.so"),
        built.join("libsatcast_test_driver.so"),
        recorder(None),
        c.join("tcp-flv.so"),
    ];
    for library in libraries {
        assert_eq!(exported(&library), ["satcast_driver_entry"], "{}", library.display());
    }
    let symbols = exported(&binary());
    let bundled =
        |name: &&String| ["sqlite3", "ring_core", "satcast"].iter().any(|prefix| name.starts_with(prefix));
    assert_eq!(symbols.iter().find(bundled), None);
}

#[test]
fn the_guide_leads_from_nothing_to_a_running_driver() {
    let service = Setup::default().stopped();
    let receiver = Port::lease();
    let rtmp = service.ingest_url("");
    let lock = root().join("plugins/examples/recorder/Cargo.lock");
    let script = guide()
        .replace("http://127.0.0.1:8080", &service.base())
        .replace("rtmp://127.0.0.1:1935/live/", &rtmp)
        .replace("9000", &receiver.address().port().to_string())
        // The versions that were compiled for the examples.
        .replace("cd pulse\n", &format!("cd pulse\ncp {} Cargo.lock\n", lock.display()));
    std::os::unix::fs::symlink(root(), service.folder().join("satcast")).expect("the sources");
    let mut shell = service.shell(&script);
    let folder = binary().parent().expect("the folder of the binary").to_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    shell.env("PATH", format!("{}:{path}", folder.display()));
    let said = run(without_build(&mut shell));
    assert_eq!(said.lines().filter(|line| line.contains("loaded")).count(), 2, "{said}");
    let codecs: Vec<&str> = said.lines().rev().take(2).collect();
    assert_eq!(codecs, ["aac", "h264"], "{said}");
    assert_beginning(&service.folder().join("video.flv"), &service.folder().join("got.flv"));
}

/// The guide's shell lines, one block after the other.
fn guide() -> String {
    let text = std::fs::read_to_string(root().join("plugin-api/GUIDE.md")).expect("the guide");
    let blocks: Vec<&str> =
        text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 6, "{} blocks", blocks.len());
    blocks.concat()
}

/// Streams through a driver that sends FLV to a TCP address.
#[track_caller]
fn carries(id: &str, library: &Path, isolation: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let (_drivers, mut service) = service(&[(id, library, isolation)], Setup::default());
    let (api, source) = (service.api(), Source::shared());
    let receiver = Receiver::start(folder.path().join("got.flv"), seconds(60));
    let stream = api.create_stream(id);
    let destination = add(&api, &stream, id, &json!({ "host": "127.0.0.1", "port": receiver.port }));
    let mut encoder = Publish::of(&source).seconds(STREAMED_SECS).to(&service.ingest_url(&stream.key));
    api.wait_for_destination(&stream, destination, "live");
    encoder.finish(seconds(60));
    assert!(service.stop().success());
    assert_beginning_of(&source, &receiver.file());
}

/// The bytes that a viewer gets for the first address in the playlist at `url`.
fn viewed(url: &str) -> Vec<u8> {
    let get = |url: &str| {
        let answer = reqwest::blocking::get(url).expect("an answer");
        assert_eq!(answer.status(), 200, "{url}");
        answer.bytes().expect("all of it").to_vec()
    };
    let playlist = String::from_utf8(get(url)).expect("a playlist in UTF-8");
    let segment = playlist.lines().find(|line| !line.starts_with('#')).expect("an address");
    let folder = url.split('?').next().and_then(|path| path.rsplit_once('/')).expect("a path").0;
    get(&format!("{folder}/{segment}"))
}

/// A copy of a folder of examples, so that a build leaves nothing in the sources.
fn copied(from: &Path, into: &Path) -> PathBuf {
    let to = into.join("copy");
    std::fs::create_dir_all(&to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("the example") {
        let entry = entry.expect("a file");
        let built = entry.path().extension().is_some_and(|ending| ending == "so");
        if entry.path().is_file() && !built && entry.file_name() != "test" {
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
        }
    }
    to
}

/// A Rust compiler that is new enough and not the one of this build: the system's, or one of rustup's other toolchains.
fn other_rustc() -> Option<PathBuf> {
    let ours = version(Path::new("rustc"))?;
    let home = std::env::var_os("RUSTUP_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".rustup")));
    let toolchains = home.and_then(|home| std::fs::read_dir(home.join("toolchains")).ok());
    let mut compilers: Vec<PathBuf> = toolchains
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin/rustc")))
        .collect();
    compilers.sort();
    compilers.insert(0, PathBuf::from("/usr/bin/rustc"));
    let fits = |compiler: &PathBuf| {
        let other = version(compiler).filter(|other| *other != ours)?;
        let minor: u32 = other.split('.').nth(1)?.parse().ok()?;
        (minor >= RUST_MINOR_MIN).then(|| println!("built by {other}, the service by {ours}"))
    };
    compilers.into_iter().find(|compiler| fits(compiler).is_some())
}

fn version(compiler: &Path) -> Option<String> {
    let output = Command::new(compiler).arg("--version").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split(' ').nth(1).map(str::to_owned)
}

/// Names of the dynamic symbols that a file defines.
fn exported(path: &Path) -> Vec<String> {
    let listing = run(Command::new("nm").args(["-D", "--defined-only"]).arg(path));
    listing.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}
