//! `isolation = "process"`: nobody sees a difference while all is well, and what ends the child ends nothing else.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use satcast_tests::api::{Api, Stream};
use satcast_tests::encoder::{Encoder, Publish};
use satcast_tests::hosted::{Hosted, window_files};
use satcast_tests::probe::records;
use satcast_tests::record::{CARRIED_MILLIS, assert_carried, assert_complete};
use satcast_tests::service::{Service, Setup, binary};
use satcast_tests::sink::Sink;
use satcast_tests::source::{SOURCE_SECONDS, Source};
use satcast_tests::wait::{self, seconds};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The driver is killed after this silence; see `SILENCE_MS` of the host.
const SILENCE_LIMIT: Duration = Duration::from_secs(25);

#[test]
fn an_isolated_driver_gets_every_packet_unchanged() {
    let (source, sink, second) = (Source::shared(), Sink::recording(), Sink::recording());
    let service = Setup::default()
        .set("SATCAST_DRIVER__RTMP__ISOLATION", "process")
        .set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2")
        .start();
    assert_eq!(children(&service).len(), 1, "one process for all destinations of a driver");
    let api = service.api();
    let stream = api.create_stream("isolated");
    let id = api.add_destination(&stream, &sink.url(), "copy");
    api.add_destination(&stream, &second.url(), "copy");
    let mut encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
    let shown = api.wait_for_destination(&stream, id, "live", seconds(20));
    assert_eq!(shown["droppedPackets"], 0, "{shown}");
    encoder.finish(seconds(2 * SOURCE_SECONDS));
    sink.wait_until_left(seconds(20));
    second.wait_until_left(seconds(20));
    let shown = api.destination(&stream, id);
    assert!(shown["bytesSent"].as_u64() > Some(1_000_000), "{shown}");
    assert_complete("the first sink", source.records(), &sink.records());
    assert_complete("the second sink", source.records(), &second.records());
    assert_eq!(children(&service).len(), 1);
}

#[test]
fn viewers_get_what_an_isolated_driver_publishes() {
    let source = Source::shared();
    let service = Setup::default().set("SATCAST_DRIVER__HLS__ISOLATION", "process").start();
    let hosted = Hosted::new(&service, "isolated");
    let _encoder = Publish::of(&source).to(&service.ingest_url(&hosted.stream.key));
    let mut viewer = hosted.viewer(seconds(20));
    let media = viewer.media_when("nine segments", seconds(30), |media| media.segments.len() >= 9);
    let pieces = viewer.pieces(&media.segments);
    assert_carried("a viewer", source.records(), &records(&pieces), CARRIED_MILLIS);
    // Segments are written to the data folder of the driver by its process.
    assert!(!window_files(&service).is_empty());
    assert_eq!(children(&service).len(), 1);
}

#[test]
fn a_fault_or_an_abort_ends_the_child_and_nothing_else() {
    ends_nothing_else([("once-abort", "signal 6"), ("once-fault", "signal 8")]);
}

#[test]
fn an_exit_or_a_full_stack_ends_the_child_and_nothing_else() {
    ends_nothing_else([("once-exit", "exit code 7"), ("once-overflow", "signal")]);
}

#[test]
fn a_panic_in_a_panic_ends_the_child_and_nothing_else() {
    ends_nothing_else([("once-double", "signal 6")]);
}

/// Each crashes the driver once; then all of its destinations come back.
fn ends_nothing_else<const N: usize>(crashes: [(&str, &str); N]) {
    let mut scene = Scene::new(Setup::default());
    let bystander = scene.add("nowhere");
    let mut encoder = scene.publish();
    for (place, words) in crashes {
        let id = scene.add(place);
        scene.service.wait_for_log(place, seconds(20), |line| {
            line.contains("ERROR") && line.contains("the process of driver panic") && line.contains(words)
        });
        for id in [id, bystander] {
            let shown = scene.api.wait_for_destination(&scene.stream, id, "live", seconds(20));
            assert_eq!(shown["error"], Value::Null, "{shown}");
        }
    }
    scene.finish(&mut encoder);
}

#[test]
fn a_driver_that_crashes_again_and_again_is_left_alone() {
    let mut scene = Scene::new(Setup::default());
    // Several, so that one of them soon comes after each restart.
    let ids: Vec<i64> = (0..6).map(|_| scene.add("abort")).collect();
    let mut encoder = scene.publish();
    scene.service.wait_for_log("the quarantine", seconds(40), |line| {
        line.contains("ERROR") && line.contains("left alone")
    });
    assert!(children(&scene.service).is_empty(), "nothing is started any more");
    for id in ids {
        assert_ne!(scene.api.destination(&scene.stream, id)["state"], "live");
    }
    scene.finish(&mut encoder);
}

#[test]
fn a_child_that_does_not_return_or_live_is_replaced() {
    let mut scene = Scene::new(Setup::default());
    let before = children(&scene.service);
    let path = format!("/api/streams/{}/destinations", scene.stream.id);
    let refused = scene.api.post(&path, &destination("hang-validate"));
    assert!(refused.status >= 400, "{}", refused.body);
    scene
        .service
        .wait_for_log("the call that hangs", seconds(10), |line| line.contains("did not return from a call"));
    let after = wait::until("another child", seconds(10), || match children(&scene.service) {
        new if new.len() == 1 && new != before => Ok(new),
        other => Err(format!("{other:?}")),
    });
    let id = wait::until("the new child to answer", seconds(10), || {
        let answer = scene.api.post(&path, &destination("once-freeze"));
        answer.body["id"].as_i64().ok_or_else(|| answer.body.to_string())
    });
    let mut encoder = scene.publish();
    scene.service.wait_for_log("the silence", SILENCE_LIMIT, |line| line.contains("no sign of life"));
    scene.api.wait_for_destination(&scene.stream, id, "live", seconds(20));
    assert_ne!(children(&scene.service), after);
    scene.finish(&mut encoder);
}

#[test]
fn what_floods_leaks_or_never_reads_hurts_itself_alone() {
    let mut scene = Scene::new(Setup::default());
    let ids = ["flood", "leak", "never-read", "ignore-stop", "nowhere"].map(|place| scene.add(place));
    let mut encoder = scene.publish();
    for id in ids {
        scene.api.wait_for_destination(&scene.stream, id, "live", seconds(30));
    }
    let before = scene.service.process().resident_kib();
    scene.finish(&mut encoder);
    let grown = scene.service.process().resident_kib().saturating_sub(before);
    assert!(grown < 200 * 1024, "{grown} KiB");
    let lines = scene.service.log().lines().filter(|line| line.contains("a flood")).count();
    assert!((1..=1200).contains(&lines), "{lines} lines of a flood of 20000");
}

/// Written in C, each in a process of its own: how it attacks, and what is said of its end, if it has to end.
const ATTACKS: &[(&str, Option<&str>)] = &[
    ("fault", Some("signal 11")),
    ("write", Some("signal 11")),
    ("garbage", Some("sent what is no message")),
    ("nojson", Some("sent what is no message")),
    ("nested", Some("sent what is no message")),
    ("huge", Some("sent more than a message holds")),
    ("thief", Some("let go of media it does not hold")),
    ("twice", Some("spoke of its start")),
    ("linger", Some("signal 6")),
    ("other", None),
    ("keeper", None),
    ("late", None),
    ("stuck", Some("did not return from a call")),
];

#[test]
fn no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it() {
    let folder = tempfile::tempdir().expect("a folder for drivers");
    let source = folder.path().join("hostile.c");
    std::fs::write(&source, include_str!("hostile_driver.c")).expect("the source of the drivers");
    for (place, _) in ATTACKS {
        let library = folder.path().join(format!("{place}.so"));
        let flags = ["-O1", "-shared", "-fPIC", "-pthread", "-o"];
        let place = format!("-DPLACE=\"{place}\"");
        let output = Command::new("cc").args(flags).arg(library).arg(place).arg(&source).output();
        let output = output.expect("a C compiler (cargo xtask setup installs it)");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let names: Vec<&str> = ATTACKS.iter().map(|(place, _)| *place).collect();
    let mut scene = Scene::with(folder, &names, Setup::default());
    let path = format!("/api/streams/{}/destinations", scene.stream.id);
    let add = |name: &&str| {
        let body = json!({ "type": name, "config": {} });
        scene.api.post(&path, &body).ok()["id"].as_i64().expect("an id")
    };
    let ids: Vec<i64> = names.iter().map(add).collect();
    let mut encoder = scene.publish();
    for ((place, end), id) in ATTACKS.iter().zip(ids) {
        match end {
            Some(words) if *place != "stuck" => {
                drop(scene.service.wait_for_log(place, seconds(20), |line| {
                    let named = format!("the process of driver {place} ");
                    line.contains("ERROR") && line.contains(&named) && line.contains(words)
                }))
            }
            _ => drop(scene.api.wait_for_destination(&scene.stream, id, "live", seconds(20))),
        }
    }
    scene.finish(&mut encoder);
    // It does not return from the end of its destination.
    scene.service.wait_for_log("stuck", seconds(20), |line| {
        line.contains("the process of driver stuck") && line.contains("did not return from a call")
    });
    scene.service.stop();
    wait::until("all that they started to go", seconds(10), || {
        let named = |name: &str| std::fs::read_to_string(format!("/proc/{name}/cmdline")).unwrap_or_default();
        let of_ours = |name: &String| named(name).contains("driver-runner") && named(name).contains("linger");
        let pids = std::fs::read_dir("/proc").expect("the list of processes");
        let left =
            pids.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter(of_ours).count();
        if left == 0 { Ok(()) } else { Err(format!("{left} processes")) }
    });
}

#[test]
fn a_child_over_its_memory_dies_alone() {
    let setup = Setup::default().set("SATCAST_DRIVER__PANIC__LIMITS__MEMORY_MB", "1024");
    let mut scene = Scene::new(setup);
    let id = scene.add("once-memory");
    let mut encoder = scene.publish();
    scene.service.wait_for_log("its end", seconds(40), |line| {
        line.contains("the process of driver panic") && line.contains("signal 6")
    });
    scene.api.wait_for_destination(&scene.stream, id, "live", seconds(20));
    scene.finish(&mut encoder);
}

#[test]
fn no_child_outlives_its_host() {
    let mut scene = Scene::new(Setup::default());
    scene.add("nowhere");
    let _encoder = scene.publish();
    let killed = children(&scene.service);
    assert_eq!(killed.len(), 1);
    scene.service.kill();
    wait_until_gone(&killed);

    scene.service.start();
    let stopped = children(&scene.service);
    assert_eq!(stopped.len(), 1);
    scene.service.stop();
    wait_until_gone(&stopped);
}

#[test]
fn a_child_has_nothing_of_its_hosts_but_what_it_is_given() {
    let scene = Scene::new(Setup::default().set("SATCAST_SECRET_KEY", &"ab".repeat(32)));
    let children = children(&scene.service);
    let [child] = children[..] else { panic!("one child, not {children:?}") };
    let of = |name: &str| std::fs::read(format!("/proc/{child}/{name}")).expect("a file of the child");
    assert_eq!(of("environ"), b"", "its environment");
    let status = String::from_utf8(of("status")).expect("text");
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect("a line").trim();
    assert_eq!(line("NoNewPrivs:"), "1");
    let stat = String::from_utf8(of("stat")).expect("text");
    let group = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(2)).expect("a group");
    assert_eq!(group, child.to_string(), "a process group of its own");
    let limits = String::from_utf8(of("limits")).expect("text");
    let limit = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).expect("a limit");
        line.split_whitespace().next().expect("a value").to_owned()
    };
    assert_eq!(limit("Max core file size"), "0");
    assert_eq!(limit("Max open files"), "8192");
    assert_eq!(limit("Max address space"), (4096_u64 * 1024 * 1024).to_string());
    let open: Vec<PathBuf> = std::fs::read_dir(format!("/proc/{child}/fd"))
        .expect("its files")
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .collect();
    let database = open.iter().find(|path| path.to_string_lossy().contains("satcast.db"));
    assert_eq!(database, None, "{open:?}");
}

/// A stream with an rtmp destination on threads of the service, and the hostile driver in a process.
struct Scene {
    service: Service,
    api: Api,
    source: Source,
    sink: Sink,
    stream: Stream,
    _drivers: TempDir,
}

impl Scene {
    fn new(setup: Setup) -> Self {
        let folder = tempfile::tempdir().expect("a folder for drivers");
        let built = binary().parent().expect("the folder of the binary").to_owned();
        std::fs::copy(built.join("libsatcast_test_driver.so"), folder.path().join("panic.so"))
            .expect("the test driver");
        Self::with(folder, &["panic"], setup)
    }

    /// The drivers `names` of `folder`, beside rtmp.
    fn with(folder: TempDir, names: &[&str], setup: Setup) -> Self {
        let built = binary().parent().expect("the folder of the binary").to_owned();
        for file in ["rtmp.so", "manifest.json"] {
            std::fs::copy(built.join("drivers").join(file), folder.path().join(file)).expect("a built file");
        }
        let enabled: Vec<&str> = names.iter().copied().chain(["rtmp"]).collect();
        let service = setup
            .set("SATCAST_DRIVERS__DIR", folder.path().to_str().expect("a path in UTF-8"))
            .set("SATCAST_DRIVERS__ENABLED", &json!(enabled).to_string())
            .set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2")
            .start();
        let (api, source, sink) = (service.api(), Source::shared(), Sink::recording());
        let stream = api.create_stream("isolation");
        api.add_destination(&stream, &sink.url(), "copy");
        Self { service, api, source, sink, stream, _drivers: folder }
    }

    #[track_caller]
    fn add(&self, place: &str) -> i64 {
        let path = format!("/api/streams/{}/destinations", self.stream.id);
        self.api.post(&path, &destination(place)).ok()["id"].as_i64().expect("an id")
    }

    fn publish(&self) -> Encoder {
        let encoder = Publish::of(&self.source).to(&self.service.ingest_url(&self.stream.key));
        self.sink.wait_for_media(1, seconds(20));
        encoder
    }

    /// The healthy destination got everything, whatever happened beside it.
    #[track_caller]
    fn finish(&mut self, encoder: &mut Encoder) {
        encoder.finish(seconds(2 * SOURCE_SECONDS));
        self.sink.wait_until_left(seconds(20));
        assert_complete("the healthy sink", self.source.records(), &self.sink.records());
        assert_eq!(self.sink.publishes(), 1);
        self.service.assert_running();
        self.service.assert_not_logged(&[("the driver's token", "very-secret-token")]);
    }
}

fn destination(place: &str) -> Value {
    json!({ "type": "panic", "config": { "place": place, "token": "very-secret-token" } })
}

/// The driver processes of a service.
pub(crate) fn children(service: &Service) -> Vec<i32> {
    let parent = service.process().id().to_string();
    let mut found: Vec<i32> = std::fs::read_dir("/proc")
        .expect("the list of processes")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let read =
                |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let stat = read("stat");
            let of_parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
            of_parent == Some(parent.as_str()) && read("cmdline").contains("driver-runner")
        })
        .collect();
    found.sort_unstable();
    found
}

fn wait_until_gone(pids: &[i32]) {
    wait::until("the children to go", seconds(10), || {
        let left: Vec<_> =
            pids.iter().filter(|pid| kill(Pid::from_raw(**pid), None::<Signal>).is_ok()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}
