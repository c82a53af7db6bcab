//! Drivers in C that attack their host, all at once, beside a healthy stream: as isolated drivers, and those that a process survives
//! also on its threads.

use std::path::Path;

use satcast_tests::said;
use satcast_tests::scene::{Scene, compile};
use satcast_tests::service::Setup;
use satcast_tests::wait;
use serde_json::json;

use crate::changes::{change, operator, state};

/// An attack of a driver, and the log text about the end of its process, if it must end.
const ISOLATED: &[(&str, Option<&str>)] = &[
    ("fault", Some(said::SIGNAL_FAULT)),
    ("throw", Some(said::SIGNAL_ABORT)),
    ("linger", Some(said::SIGNAL_ABORT)),
    ("hangopen", Some(said::CALL_HANGS)),
    ("threads", None),
];
/// The attacks that a host survives on its own threads, too.
const ANYWHERE: &[&str] = &[
    "keeper", "hoarder", "late", "early", "never", "nonsense", "slow", "waker", "double", "hangstop", "stuck",
];
/// Throws over the boundary, from a function of the table.
const THROWS: &str = "extern \"C\" void throw_it() { throw 7; }\n";

#[test]
fn no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it() {
    let names: Vec<&str> = ISOLATED.iter().map(|(name, _)| *name).chain(ANYWHERE.iter().copied()).collect();
    let mut scene = scene(&names, "process");
    let ids: Vec<i64> = names.iter().map(|name| scene.add_of(name, &json!({}))).collect();
    let mut encoder = scene.publish();
    for (name, end) in ISOLATED {
        let Some(words) = end else {
            begins(&scene, name);
            continue;
        };
        let process = format!("{}{name} ", said::DRIVER_PROCESS);
        scene.service.wait_for_log(name, |line| {
            line.contains("ERROR") && line.contains(&process) && line.contains(words)
        });
    }
    ANYWHERE.iter().for_each(|name| begins(&scene, name));
    let id = ids[names.iter().position(|name| *name == "threads").expect("one of them")];
    scene.api.wait_for_destination(&scene.stream, id, "live");
    scene.finish(&mut encoder);
    // They do not return when their destination ends.
    for name in ["stuck", "hangstop"] {
        let process = format!("{}{name} ", said::DRIVER_PROCESS);
        scene.service.wait_for_log(name, |line| line.contains(&process) && line.contains(said::CALL_HANGS));
    }
    assert!(scene.service.stop().success());
    wait::until("all of their processes to end", || {
        let named = |name: &str| std::fs::read_to_string(format!("/proc/{name}/cmdline")).unwrap_or_default();
        let of_ours = |name: &String| {
            let named = named(name);
            named.contains("driver-runner") && named.contains("linger")
        };
        let pids = std::fs::read_dir("/proc").expect("the list of processes");
        let left =
            pids.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter(of_ours).count();
        if left == 0 { Ok(()) } else { Err(format!("{left} processes")) }
    });
}

#[test]
fn attacks_on_threads_of_the_host_harm_no_other_stream() {
    let names: Vec<&str> = ANYWHERE.iter().copied().chain(["hangopen"]).collect();
    let mut scene = scene(&names, "thread");
    let ids: Vec<i64> = names.iter().map(|name| scene.add_of(name, &json!({}))).collect();
    let mut encoder = scene.publish();
    ANYWHERE.iter().for_each(|name| begins(&scene, name));
    let hangs = scene.api.wait_for_destination(&scene.stream, ids[ANYWHERE.len()], "retrying");
    assert!(hangs["error"].as_str().is_some_and(|error| error.contains(said::DOES_NOT_RETURN)), "{hangs}");
    let operator = operator(&scene.service);
    assert_eq!(state(&operator, "hangopen"), "failing");
    assert_eq!(change(&operator, "hangopen", "enable").ok()["state"], "loaded", "loaded again");
    scene.finish(&mut encoder);
    scene
        .service
        .wait_for_log("hangstop", |line| line.contains("hangstop") && line.contains(said::DOES_NOT_RETURN));
    assert!(scene.service.stop().success(), "a thread of a driver delayed the end of the service");
}

/// A service with these drivers.
fn scene(names: &[&str], isolation: &str) -> Scene {
    let folder = tempfile::tempdir().expect("a folder for drivers");
    let source = folder.path().join("hostile.c");
    std::fs::write(&source, include_str!("hostile_driver.c")).expect("the source of the drivers");
    let throws = folder.path().join("throws.cc");
    std::fs::write(&throws, THROWS).expect("a source in C++");
    for name in names {
        let (place, library) = (format!("-DPLACE=\"{name}\""), folder.path().join(format!("{name}.so")));
        if *name == "throw" {
            throwing(&source, &throws, &library, &place);
        } else {
            compile(&[&source], &library, &[&place]);
        }
    }
    // Without a control group the stacks of threads count in full, so the limit has space for them.
    let setup = match names.contains(&"threads") {
        true => Setup::default().set("SATCAST_DRIVER__THREADS__LIMITS__MEMORY_MB", "1024"),
        false => Setup::default(),
    };
    Scene::with(folder, names, isolation, setup)
}

/// C and C++ in one library: the compiler takes the language from the file name's ending.
fn throwing(source: &Path, throws: &Path, library: &Path, place: &str) {
    compile(&[source, throws], library, &[place, "-DTHROWS", "-lstdc++"]);
}

/// Waits for the driver's first packet, which starts the attack.
#[track_caller]
fn begins(scene: &Scene, name: &str) {
    scene.service.wait_for_log(name, |line| {
        line.contains(said::ATTACK_BEGINS) && line.contains(&format!("target=\"{name}\""))
    });
}
