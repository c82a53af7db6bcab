//! The drivers folder: files that are not drivers are refused with a reason; the service and valid drivers keep running.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use satcast_tests::said;
use satcast_tests::scene::{Scene, built, compile};
use satcast_tests::service::{Service, Setup};
use serde_json::json;

/// Bytes of a truncated library: its headers, but not everything that they map.
const CUT_BYTES: usize = 64 * 1024;
/// `e_machine` of an ELF header, and its value for a 64-bit ARM processor, and for one of Intel's.
const MACHINE_OFFSET: usize = 18;
const ARM: [u8; 2] = [183, 0];
const INTEL: [u8; 2] = [62, 0];

/// Far more than all matches take, and less than the client waits for a single missing answer.
const BUSY_MAX: Duration = Duration::from_secs(10);

#[test]
fn files_that_are_not_drivers_are_refused_and_named() {
    refusals("thread", &[said::UNWINDS]);
}

#[test]
fn files_that_are_not_drivers_are_refused_in_processes_too() {
    refusals("process", &[]);
}

fn refusals(isolation: &str, more: &[(&str, &str)]) {
    let folder = tempfile::tempdir().expect("a folder for drivers");
    let drivers = folder.path();
    let cases: Vec<(&str, &str)> = said::REFUSED_DRIVERS.iter().chain(more).copied().collect();
    cases.iter().for_each(|(case, _)| refused_driver(case, drivers));
    std::fs::set_permissions(drivers.join("world.so"), std::fs::Permissions::from_mode(0o666))
        .expect("a mode");
    files(drivers);
    let setup = Setup::default().set("SATCAST_DRIVER__PINNED__SHA256", &"0".repeat(64));
    let cases: Vec<(&str, &str)> = cases.iter().chain(said::REFUSED_FILES).copied().collect();
    let names: Vec<&str> = cases.iter().map(|(case, _)| *case).collect();
    let mut scene = Scene::with(folder, &names, isolation, setup);
    for (case, words) in &cases {
        refused(&scene.service, case, words);
    }
    let listed = scene.service.command(&["drivers"]);
    assert_eq!(listed.status.code(), Some(1), "some that are enabled are refused");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let loaded = listed.lines().filter(|line| line.split_whitespace().nth(1) == Some("loaded"));
    assert_eq!(loaded.count(), 1, "{listed}");
    let mut encoder = scene.publish();
    scene.finish(&mut encoder);
}

#[test]
fn a_pattern_that_needs_endless_backtracking_is_matched_at_once() {
    let folder = tempfile::tempdir().expect("a folder for drivers");
    refused_driver("evil", folder.path());
    let mut scene = Scene::with(folder, &["evil"], "thread", Setup::default());
    let path = format!("/api/streams/{}/destinations", scene.stream.id);
    let mut encoder = scene.publish();
    for _ in 0..5 {
        // A backtracking matcher would never finish; the client waits for ten seconds.
        let name = format!("{}!", "a".repeat(60_000));
        scene.api.post(&path, &json!({ "type": "evil", "config": { "name": name } })).assert_error(422, None);
    }
    let _ = scene.api.post(&path, &json!({ "type": "evil", "config": { "name": "a".repeat(60_000) } })).ok();
    scene.finish(&mut encoder);
    assert!(scene.service.process().cpu() < BUSY_MAX, "the service was busy for too long");
}

fn refused_driver(case: &str, folder: &Path) {
    let source = folder.join(format!("{case}.c"));
    std::fs::write(&source, include_str!("refused_driver.c")).expect("the source of the drivers");
    let (named, library) = (format!("-DCASE=\"{case}\""), folder.join(format!("{case}.so")));
    let flag = match case {
        // Functions of a library without an entry are not used.
        "noentry" => ["-DNO_ENTRY", "-Wno-unused-function"],
        "undefined" => ["-DUNDEFINED", "-Wno-unused-function"],
        _ => ["-Wno-unused-function", "-Wno-unused-function"],
    };
    compile(&[&source], &library, &[&named, flag[0], flag[1]]);
    std::fs::remove_file(source).expect("the source can go");
}

/// Files that never were drivers, or are not drivers any more.
fn files(folder: &Path) {
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.join(name), bytes).expect("a file");
        // Refused for its content, independent of the umask.
        std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o644))
            .expect("a file of ours");
    };
    let whole = std::fs::read(built().join("drivers/rtmp.so")).expect("the built rtmp driver");
    write("text.so", b"this is no library\n");
    write("empty.so", b"");
    write("cut.so", &whole[..CUT_BYTES]);
    let mut foreign = whole.clone();
    let machine = foreign[MACHINE_OFFSET..].first_chunk_mut::<2>().expect("a header");
    *machine = if *machine == ARM { INTEL } else { ARM };
    write("othercpu.so", &foreign);
    std::fs::create_dir(folder.join("folder.so")).expect("a folder");
    let made = Command::new("mkfifo").arg(folder.join("pipe.so")).status().expect("mkfifo of coreutils");
    assert!(made.success());
}

/// One line of the log names the driver, says that something is wrong, and holds `words`.
fn refused(service: &Service, name: &str, words: &str) {
    let named = [format!("{name}.so"), format!("driver={name}"), format!("driver=\"{name}\"")];
    let line = service.wait_for_log(&format!("the refusal of {name}"), |line| {
        named.iter().any(|name| line.contains(name)) && (line.contains("WARN") || line.contains("ERROR"))
    });
    assert!(line.contains(words), "\"{words}\" is not in: {line}");
}
