//! `isolation = "process"`: no visible difference in normal operation, and the end of the child ends nothing else.

use std::path::PathBuf;

use satcast_tests::api::Api;
use satcast_tests::author;
use satcast_tests::encoder::Publish;
use satcast_tests::hosted::{Hosted, window_files};
use satcast_tests::probe::records;
use satcast_tests::record::{CARRIED_MILLIS, assert_carried, assert_complete};
use satcast_tests::said;
use satcast_tests::scene::{HOSTILE, Scene, children, configuration, wait_until_gone};
use satcast_tests::service::Setup;
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::wait;
use serde_json::{Value, json};

/// Ten seconds of media.
const CARRIED_PACKETS: usize = 770;
/// Ten seconds of media beside the failing drivers.
const HARMED_PACKETS: usize = 770;

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
    let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&stream.key));
    let shown = api.wait_for_destination(&stream, id, "live");
    assert_eq!(shown["droppedPackets"], 0, "{shown}");
    for sink in [&sink, &second] {
        sink.wait_for_media(CARRIED_PACKETS);
    }
    let sent = encoder.end();
    sink.wait_until_left();
    second.wait_until_left();
    let shown = api.destination(&stream, id);
    assert!(shown["bytesSent"].as_u64() > Some(1_000_000), "{shown}");
    assert_complete("the first sink", &sent, &sink.records());
    assert_complete("the second sink", &sent, &second.records());
    assert_eq!(children(&service).len(), 1);
}

#[test]
fn viewers_get_the_assets_of_an_isolated_driver() {
    let source = Source::shared();
    let service = Setup::default().set("SATCAST_DRIVER__HLS__ISOLATION", "process").start();
    let hosted = Hosted::new(&service, "isolated");
    let _encoder = Publish::of(&source).faster(4).to(&service.ingest_url(&hosted.stream.key));
    let mut viewer = hosted.viewer();
    let media = viewer.media_when("nine segments", |media| media.segments.len() >= 9);
    let chunks = viewer.chunks(&media.segments);
    assert_carried("a viewer", source.records(), &records(&chunks), CARRIED_MILLIS);
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
    let mut scene = Scene::hostile("process", Setup::default());
    let bystander = scene.add("nowhere");
    let mut encoder = scene.publish();
    for (place, words) in crashes {
        let id = scene.add(place);
        scene.service.wait_for_log(place, |line| {
            line.contains("ERROR")
                && line.contains(&format!("{}panic", said::DRIVER_PROCESS))
                && line.contains(words)
        });
        for id in [id, bystander] {
            let shown = scene.api.wait_for_destination(&scene.stream, id, "live");
            assert_eq!(shown["error"], Value::Null, "{shown}");
        }
    }
    scene.finish(&mut encoder);
}

#[test]
fn an_account_that_crashes_a_driver_repeatedly_is_quarantined_and_others_continue() {
    let mut scene = Scene::hostile("process", Setup::default());
    scene.service.run(&["account", "create", "other"]);
    let key = scene.service.run(&["key", "create", "--account", "other", "--type", "permanent"]);
    let others = scene.api.with_key(Some(key.trim()));
    let beside = others.create_stream("beside");
    let bystander = author::add(&others, &beside, HOSTILE, &configuration("nowhere"));
    let mut beside_encoder = Publish::until_end(&scene.source).to(&scene.service.ingest_url(&beside.key));
    others.wait_for_destination(&beside, bystander, "live");
    // Several destinations, so that one of them reconnects soon after each restart.
    let ids: Vec<i64> = (0..6).map(|_| scene.add("abort")).collect();
    let mut encoder = scene.publish();
    scene.service.wait_for_log("the account that is set aside", |line| {
        line.contains("ERROR") && line.contains(said::CRASHED_THREE_TIMES)
    });
    others.wait_for_destination(&beside, bystander, "live");
    let path = format!("/api/streams/{}/destinations", scene.stream.id);
    let refused = scene.api.post(&path, &destination("nowhere"));
    assert_eq!(refused.status, 503, "a validation for the account that is set aside: {}", refused.body);
    assert!(refused.body["error"].as_str().is_some_and(|error| error.contains(said::FOR_ONE_ACCOUNT)));
    let set_aside = |api: &Api| {
        let list = api.get("/api/drivers").ok();
        let driver = list.as_array().into_iter().flatten().find(|driver| driver["id"] == HOSTILE).cloned();
        driver.expect("the driver is listed")["setAside"].clone()
    };
    let own = set_aside(&scene.api);
    assert!(own[0]["accountId"].is_i64() && own[0]["until"].is_null() && own[1].is_null(), "{own}");
    assert_eq!(set_aside(&others), json!([]), "another account is set aside");
    scene.finish(&mut encoder);
    for id in ids {
        assert_ne!(scene.api.destination(&scene.stream, id)["state"], "live");
    }
    let log = scene.service.log();
    let process = format!("{}panic", said::DRIVER_PROCESS);
    // The first crash, with both accounts in the process, counts for neither account.
    let crashes = log.lines().filter(|line| line.contains(&process) && line.contains(" account="));
    assert_eq!(crashes.filter(|line| line.contains("ERROR")).count(), 3, "other crashes were logged");
    assert!(!log.contains(said::FOR_EACH_ACCOUNT), "the driver is set aside for all accounts");
    let beside = format!("destination={bystander} ");
    let failures: Vec<&str> =
        log.lines().filter(|line| line.contains(said::RECONNECTS) && line.contains(&beside)).collect();
    let is_first = |line: &&str| line.contains(" attempt=1 ");
    assert!(!failures.is_empty() && failures.iter().all(is_first), "{failures:#?}");
    assert!(!log.contains("Some(") && !log.contains("fields=\"\""), "{log}");
    let _ = beside_encoder.end();
}

#[test]
fn a_child_that_does_not_return_or_live_is_replaced() {
    let mut scene = Scene::hostile("process", Setup::default());
    let before = children(&scene.service);
    let path = format!("/api/streams/{}/destinations", scene.stream.id);
    let refused = scene.api.post(&path, &destination("hang-validate"));
    assert!(refused.status >= 400, "{}", refused.body);
    scene.service.wait_for_log("the call that hangs", |line| line.contains(said::CALL_HANGS));
    let after = wait::until("another child", || match children(&scene.service) {
        new if new.len() == 1 && new != before => Ok(new),
        other => Err(format!("{other:?}")),
    });
    let id = wait::until("the new child to answer", || {
        let answer = scene.api.post(&path, &destination("once-freeze"));
        answer.body["id"].as_i64().ok_or_else(|| answer.body.to_string())
    });
    let mut encoder = scene.publish();
    scene.service.wait_for_log("the silence", |line| line.contains(said::SILENT));
    scene.api.wait_for_destination(&scene.stream, id, "live");
    assert_ne!(children(&scene.service), after);
    scene.finish(&mut encoder);
}

#[test]
fn a_destination_that_does_not_open_is_set_aside_with_the_reason() {
    let mut scene = Scene::hostile("process", Setup::default());
    let bystander = scene.add("nowhere");
    let id = scene.add("hang-open");
    let mut encoder = scene.publish();
    let failed = scene.api.wait_for_destination(&scene.stream, id, "failed");
    assert!(failed["error"].as_str().is_some_and(|error| error.contains(said::OPENING_HANGS)), "{failed}");
    scene.api.wait_for_destination(&scene.stream, bystander, "live");
    scene.finish(&mut encoder);
}

#[test]
fn a_driver_that_floods_leaks_or_never_reads_harms_only_itself() {
    hurts_itself_alone("process");
}

#[test]
fn a_driver_on_threads_that_floods_leaks_or_never_reads_harms_only_itself() {
    hurts_itself_alone("thread");
}

fn hurts_itself_alone(isolation: &str) {
    let mut scene = Scene::hostile(isolation, Setup::default());
    let ids = ["flood", "leak", "never-read", "ignore-stop", "nowhere"].map(|place| scene.add(place));
    let mut encoder = scene.publish();
    for id in ids {
        scene.api.wait_for_destination(&scene.stream, id, "live");
    }
    let before = scene.service.process().resident_kib();
    scene.continues(HARMED_PACKETS);
    scene.finish(&mut encoder);
    let grown = scene.service.process().resident_kib().saturating_sub(before);
    assert!(grown < 200 * 1024, "{grown} KiB");
    let lines = scene.service.log().lines().filter(|line| line.contains("a flood")).count();
    assert!((1..=1200).contains(&lines), "{lines} lines of a flood of 20000");
}

#[test]
fn a_child_over_its_memory_dies_alone() {
    let setup = Setup::default().set("SATCAST_DRIVER__PANIC__LIMITS__MEMORY_MB", "256");
    let mut scene = Scene::hostile("process", setup);
    let id = scene.add("once-memory");
    let mut encoder = scene.publish();
    scene.service.wait_for_log("its end", |line| {
        // Without a control group the system refuses more memory.
        let reason = line.contains(said::TOO_MUCH_MEMORY) || line.contains("signal 6");
        line.contains(&format!("{}panic", said::DRIVER_PROCESS)) && reason
    });
    scene.api.wait_for_destination(&scene.stream, id, "live");
    scene.finish(&mut encoder);
}

#[test]
fn a_child_over_its_processor_time_is_replaced_without_fault_of_an_account() {
    let setup = Setup::default().set("SATCAST_DRIVER__PANIC__LIMITS__CPU_SECS", "2");
    let mut scene = Scene::hostile("process", setup);
    let id = scene.add("once-spin");
    let mut encoder = scene.publish();
    scene.service.wait_for_log("its end", |line| {
        line.contains(&format!("{}panic", said::DRIVER_PROCESS)) && line.contains("cpu_secs")
    });
    scene.api.wait_for_destination(&scene.stream, id, "live");
    scene.finish(&mut encoder);
    let log = scene.service.log();
    let process = format!("{}panic", said::DRIVER_PROCESS);
    assert!(!log.lines().any(|line| line.contains(&process) && line.contains(" account=")), "{log}");
}

#[test]
fn no_child_outlives_its_host() {
    let mut scene = Scene::hostile("process", Setup::default());
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
fn a_child_inherits_only_what_its_host_passes() {
    let scene = Scene::hostile("process", Setup::default().set("SATCAST_SECRET_KEY", &"ab".repeat(32)));
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
    // The process has no such limit where a control group has it.
    let data = [(4096 * 1024 * 1024_u64).to_string(), "unlimited".to_owned()];
    assert!(data.contains(&limit("Max data size")), "{limits}");
    let open: Vec<PathBuf> = std::fs::read_dir(format!("/proc/{child}/fd"))
        .expect("its files")
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .collect();
    let database = open.iter().find(|path| path.to_string_lossy().contains("satcast.db"));
    assert_eq!(database, None, "{open:?}");
}

fn destination(place: &str) -> Value {
    json!({ "type": "panic", "config": configuration(place) })
}
