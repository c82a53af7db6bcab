//! Drivers that are enabled, disabled and replaced while the service runs, over the API and by SIGHUP.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use satcast_tests::api::Api;
use satcast_tests::author::lay;
use satcast_tests::encoder::Publish;
use satcast_tests::record::assert_complete;
use satcast_tests::said;
use satcast_tests::service::{Service, Setup, binary};
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::wait;
use serde_json::{Value, json};

/// Account of an operator.
pub(crate) const OPERATOR: &str = "operator";
/// Ten seconds of media.
const CARRIED_PACKETS: usize = 770;

#[test]
fn operators_change_drivers_while_streams_continue() {
    let folder = drivers(&["rtmp"]);
    let (source, sink) = (Source::shared(), Sink::recording());
    let mut service = Setup::default()
        .set("SATCAST_DRIVERS__DIR", folder.path().to_str().expect("a path in UTF-8"))
        .set("SATCAST_DRIVERS__ENABLED", "[\"rtmp\"]")
        .set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2")
        .start();
    let (api, operator) = (service.api(), operator(&service));
    let stream = api.create_stream("changes");
    let id = api.add_destination(&stream, &sink.url(), "copy");
    let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&stream.key));
    api.wait_for_destination(&stream, id, "live");

    change(&api, "rtmp", "disable").assert_error(403, Some("not_operator"));
    change(&operator, "panic", "enable").assert_error(404, None);
    // A driver that was added after the start.
    add_test_driver(folder.path());
    let enabled = change(&operator, "panic", "enable").ok();
    assert_eq!((&enabled["state"], &enabled["isolation"]), (&json!("loaded"), &json!("process")));
    assert_eq!(types(&api), ["answers", "panic", "rtmp"], "the served document knows it");
    let path = format!("/api/streams/{}/destinations", stream.id);
    let config = json!({ "type": "panic", "config": { "place": "nowhere", "token": "abcdef" } });
    let hosted = api.post(&path, &config).ok()["id"].as_i64().expect("an id");
    api.wait_for_destination(&stream, hosted, "live");

    // The file of a running driver is overwritten with an invalid one: the old driver continues, also after a request to replace it.
    std::fs::write(folder.path().join("panic.so"), "this is no library").expect("the file can be written");
    change(&operator, "panic", "replace").assert_error(422, Some("driver_refused"));
    assert_eq!(state(&operator, "panic"), "loaded");
    assert!(error(&operator, "panic").contains(said::KEEPS_RUNNING), "{}", error(&operator, "panic"));
    assert_eq!(api.destination(&stream, hosted)["state"], "live");
    add_test_driver(folder.path());
    assert_eq!(change(&operator, "panic", "replace").ok()["error"], Value::Null);

    // Nothing new is opened. Open destinations continue to their end.
    assert_eq!(change(&operator, "rtmp", "disable").status, 200);
    assert_eq!(change(&operator, "panic", "disable").status, 200);
    assert_eq!(types(&api), Vec::<String>::new());
    let refused = json!({ "type": "rtmp", "config": { "url": sink.url(), "key": "x" } });
    api.post(&path, &refused).assert_error(422, None);
    // A destination that starts without its driver goes live when the driver is enabled again.
    for enabled in [false, true] {
        let _ = api.patch(&format!("{path}/{hosted}"), &json!({ "enabled": enabled })).ok();
    }
    api.wait_for_destination(&stream, hosted, "retrying");
    assert_eq!(change(&operator, "panic", "enable").ok()["state"], "loaded");
    api.wait_for_destination(&stream, hosted, "live");
    assert_eq!(change(&operator, "panic", "disable").status, 200);
    // A driver that still runs on threads of the service keeps that isolation.
    assert_eq!(change(&operator, "rtmp", "enable").ok()["state"], "loaded");
    assert_eq!(types(&api), ["rtmp"]);
    assert_eq!(change(&operator, "rtmp", "disable").status, 200);
    let log = operator.get("/api/audit?action=driver.disabled").ok();
    assert_eq!(log.as_array().map(Vec::len), Some(4), "{log}");
    sink.wait_for_media(CARRIED_PACKETS);
    let sent = encoder.end();
    sink.wait_until_left();
    assert_complete("the sink", &sent, &sink.records());
    wait::until("the process of the disabled driver to end", || {
        if children(&service) == 0 { Ok(()) } else { Err("it is there".into()) }
    });
    service.assert_running();
}

#[test]
fn a_reload_takes_the_drivers_of_the_configuration() {
    let folder = drivers(&["rtmp", "hls"]);
    let service = Setup::default()
        .set("SATCAST_DRIVERS__DIR", folder.path().to_str().expect("a path in UTF-8"))
        .start();
    let file = service.folder().join("satcast.toml");
    let write = |enabled: &str, more: &str| {
        std::fs::write(&file, format!("[drivers]\nenabled = {enabled}\n{more}")).expect("a configuration");
    };
    let (api, operator) = (service.api(), operator(&service));
    assert_eq!(types(&api), ["rtmp", "self-hosted"]);
    let reload = || hang_up(&service);
    add_test_driver(folder.path());
    write("[\"rtmp\", \"hls\", \"panic\"]", "[driver.rtmp]\nisolation = \"process\"\n");
    reload();
    wait::until("the types of three drivers", || match types(&api) {
        types if types == ["answers", "panic", "rtmp", "self-hosted"] => Ok(()),
        types => Err(format!("{types:?}")),
    });
    wait::until("rtmp in a process", || {
        if children(&service) == 2 { Ok(()) } else { Err(format!("{} children", children(&service))) }
    });
    // A world-writable folder is refused; running drivers continue.
    let everybody = |mode| {
        std::fs::set_permissions(folder.path(), Permissions::from_mode(mode)).expect("other permissions");
    };
    everybody(0o777);
    reload();
    service.wait_for_log("the driver that is kept", |line| line.contains(said::NOT_CHECKED));
    assert_eq!(types(&api), ["answers", "panic", "rtmp", "self-hosted"]);
    let refused = change(&operator, "rtmp", "replace");
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(refused.body["error"].as_str().is_some_and(|error| error.contains("folder")), "{}", refused.body);
    everybody(0o755);
    write("[\"rtmp\"", "");
    reload();
    service.wait_for_log("the refusal", |line| line.contains("ERROR") && line.contains(said::RELOAD_REFUSED));
    write("[\"rtmp\"]", "");
    reload();
    wait::until("the types of one driver", || match types(&api) {
        types if types == ["rtmp"] => Ok(()),
        types => Err(format!("{types:?}")),
    });
    wait::until("the states", || {
        let states = ["rtmp", "hls", "panic"].map(|id| state(&operator, id));
        if states == ["loaded", "disabled", "disabled"] { Ok(()) } else { Err(format!("{states:?}")) }
    });
}

#[test]
fn changed_settings_are_taken_while_destinations_are_open() {
    let folder = drivers(&["platform"]);
    let (source, first, second) = (Source::shared(), Sink::recording(), Sink::recording());
    let mut service = Setup::default()
        .set("SATCAST_DRIVERS__DIR", folder.path().to_str().expect("a path in UTF-8"))
        .set("SATCAST_DRIVERS__ENABLED", "[\"platform\"]")
        .set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2")
        .start();
    let (api, operator) = (service.api(), operator(&service));
    let file = service.folder().join("satcast.toml");
    let reload = |made: &[&str]| {
        let entry = |name: &&str| format!("[driver.platform.types.{name}]\nserver = \"{}\"\n", second.url());
        std::fs::write(&file, made.iter().map(entry).collect::<String>()).expect("a configuration");
        hang_up(&service);
        wait::until("the types of the configuration", || {
            let types = types(&api);
            let is_made = |name: &str| types.iter().any(|known| known == name);
            let there: Vec<_> = ["fone", "ftwo"].into_iter().filter(|name| is_made(name)).collect();
            if there == made { Ok(()) } else { Err(format!("{there:?}")) }
        });
        assert_eq!(state(&operator, "platform"), "loaded");
    };
    // No destination is open: the old driver ends, and the new one serves.
    reload(&["fone"]);
    reload(&[]);
    let stream = api.create_stream("settings");
    let path = format!("/api/streams/{}/destinations", stream.id);
    let add = |body: &Value| api.post(&path, body).ok()["id"].as_i64().expect("an id");
    let kept =
        json!({ "type": "twitch", "config": { "key": "live_right_key_012345", "server": first.url() } });
    let kept = add(&kept);
    let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&stream.key));
    api.wait_for_destination(&stream, kept, "live");
    reload(&["fone"]);
    let new = add(&json!({ "type": "fone", "config": { "key": "live_other_key_012345" } }));
    api.wait_for_destination(&stream, new, "live");
    assert_eq!(second.names(), ["live_other_key_012345"]);
    reload(&["fone", "ftwo"]);
    let images = images(&service);
    assert!(images >= 3, "{images}: two serve open destinations, one serves new destinations");
    // The same settings and the same library: nothing to do.
    assert_eq!(change(&operator, "platform", "replace").status, 200);
    // The earlier configuration returns: its driver is still loaded and is used again.
    reload(&["fone"]);
    assert_eq!(self::images(&service), images);
    first.wait_for_media(CARRIED_PACKETS);
    let sent = encoder.end();
    first.wait_until_left();
    assert_complete("the sink of before", &sent, &first.records());
    assert_eq!((first.publishes(), second.publishes()), (1, 1), "a destination had to reconnect");
    service.assert_running();
}

pub(crate) fn change(api: &Api, driver: &str, action: &str) -> satcast_tests::api::Answer {
    api.post("/api/drivers", &json!({ "driver": driver, "action": action }))
}

pub(crate) fn operator(service: &Service) -> Api {
    service.run(&["account", "create", OPERATOR, "--operator"]);
    service.api_of(OPERATOR)
}

pub(crate) fn hang_up(service: &Service) {
    let pid = Pid::from_raw(i32::try_from(service.process().id()).expect("a process id"));
    kill(pid, Signal::SIGHUP).expect("a signal to the service");
}

/// Images of drivers that the service has in its memory.
fn images(service: &Service) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", service.process().id())).expect("its maps");
    let files = maps.lines().filter_map(|line| line.split_whitespace().last());
    files
        .filter(|file| file.ends_with(".so") && file.contains("driver-images"))
        .collect::<BTreeSet<_>>()
        .len()
}

pub(crate) fn state(api: &Api, id: &str) -> String {
    shown(api, id)["state"].as_str().unwrap_or("absent").to_owned()
}

/// The error that the API shows for a driver.
fn error(api: &Api, id: &str) -> String {
    shown(api, id)["error"].as_str().unwrap_or_default().to_owned()
}

fn shown(api: &Api, id: &str) -> Value {
    let list = api.get("/api/drivers").ok();
    let driver = list.as_array().into_iter().flatten().find(|driver| driver["id"] == id).cloned();
    driver.unwrap_or_default()
}

/// The destination types of the served document.
fn types(api: &Api) -> Vec<String> {
    let document: Value = api.get("/openapi.json").ok();
    let mapping = &document["components"]["schemas"]["NewDestination"]["discriminator"]["mapping"];
    mapping.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
}

fn built() -> std::path::PathBuf {
    binary().parent().expect("the folder of the binary").to_owned()
}

fn drivers(ids: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder for drivers");
    for file in ids.iter().map(|id| format!("{id}.so")).chain(["manifest.json".into()]) {
        lay(&built().join("drivers").join(&file), &folder.path().join(file));
    }
    folder
}

/// Overwritten in place, as a careless operator would.
fn add_test_driver(folder: &Path) {
    lay(&built().join("libsatcast_test_driver.so"), &folder.join("panic.so"));
}

fn children(service: &Service) -> usize {
    let parent = service.process().id().to_string();
    let pids = std::fs::read_dir("/proc").expect("the list of processes");
    let is_child = |pid: &str| {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let stat = read("stat");
        let of_parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        of_parent == Some(parent.as_str()) && read("cmdline").contains("driver-runner")
    };
    pids.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter(|pid| is_child(pid)).count()
}
