//! schemathesis makes valid and invalid requests from the committed document, and compares every answer with the document.

use std::collections::BTreeMap;

use satcast_tests::api::Api;
use satcast_tests::clients::{document, folder, python};
use satcast_tests::process::Process;
use satcast_tests::receiver::Receiver;
use satcast_tests::service::{Service, Setup};
use satcast_tests::soak;
use satcast_tests::wait::seconds;
use serde_json::{Value, json};

/// Requests of each kind for each operation in a normal run.
const EXAMPLES: u64 = 5;
/// Sequences of requests in a normal run, and in a long one.
const SEQUENCES: u64 = 12;
const SEQUENCES_LONG: u64 = 80;
/// Seed of a normal run.
const SEED: u64 = 1;
/// Permanent keys: each may write 60 times a minute.
const KEYS_BY_KEY: usize = 10;
const FIRST_KEYS: usize = 20;
/// Public keys: each may ask 60 times a minute.
const VIEWERS: usize = 40;
/// Operations that cannot succeed here, and why.
const NEVER: &[(&str, &str)] = &[
    ("deleteArchive", "no driver records, so that there is no recording"),
    ("recoverArchive", "the same"),
    ("getArchive", "the same"),
    ("changeArchive", "the same"),
    ("getRecordingPlaylist", "the same"),
    ("getRecordingPoster", "the same"),
    ("getRecordingMedia", "the same"),
    ("getPlaylist", "no stream is live"),
    ("getPoster", "the same"),
    ("getPlaybackFile", "the same"),
    ("createClip", "no stream is live, so that there is no clip"),
    ("getClip", "the same"),
    ("changeClip", "the same"),
    ("deleteClip", "the same"),
    ("getClipFile", "the same"),
    ("setSlate", "its files are random bytes and no MP4, so that there is no slate"),
    ("deleteSlate", "the same"),
    (
        "connectWallet",
        "the service has no wallet to receive with; the tests of wallets hold it against the document",
    ),
    ("createTopUp", "the same"),
    ("getTopUp", "the same"),
    ("publishByWhip", "the service has no port for WHIP"),
    ("endWhip", "the same"),
    ("changeDriver", "for operators, which this account is not"),
    ("listAccounts", "the same"),
    ("createAccount", "the same"),
    ("changeAccount", "the same"),
    (
        "followEvents",
        "its answer never ends, so that it is not asked; the test of events holds it against the document",
    ),
];
/// The account that is worked on.
const OWNER: &str = "owner";
/// The password in the document's examples.
const PASSWORD: &str = "correct horse battery";

/// Answers by operation and status.
type Counts = BTreeMap<String, BTreeMap<String, u64>>;

#[test]
fn soak_schemathesis_finds_no_answer_that_the_document_does_not_promise() {
    let examples = soak::rounds(EXAMPLES);
    let is_long = examples > EXAMPLES;
    let seed = if is_long { soak::seed() } else { SEED };
    let mut service = Setup::default()
        // Each request claims a network of its own, although all of them come from one machine.
        .set("SATCAST_HTTP__TRUSTED_PROXIES", "[\"127.0.0.0/8\"]")
        .set("SATCAST_LIMITS__KEYS_PER_ACCOUNT", "100000")
        .set("SATCAST_LIMITS__STREAMS_PER_ACCOUNT", "100000")
        .set("SATCAST_LIMITS__WEBHOOKS_PER_ACCOUNT", "100000")
        .set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]")
        .set("SATCAST_ACCOUNTS__OPEN_REGISTRATION", "true")
        .set("SATCAST_DATABASE__DURABILITY", "normal")
        .start();
    let work = tempfile::tempdir().expect("a folder for what schemathesis writes");
    let counts = work.path().join("counts.json");
    let mut command = python("schemathesis");
    command
        .current_dir(work.path())
        .env("PYTHONPATH", folder())
        .env("BASE", service.base())
        .env("COUNTS", &counts);
    // The account of the document's login example, and the account of the password change. Their sessions are not needed.
    for name in ["ann", "guest"] {
        let _ = account(&service, name);
    }
    command.env("ACCOUNT", OWNER).env("GUEST", "guest");
    // Replaces the addresses in the document's examples: no request of this test leaves the machine.
    let receiver = Receiver::start(None);
    command.env("RECEIVER", receiver.url());
    let (keys, last) = permanent_keys(&service);
    command.env("KEYS", keys.join(",")).env("LAST_KEY", last.to_string());
    command.env("VIEWERS", public_keys(&service).join(","));
    let sequences = if is_long { SEQUENCES_LONG } else { SEQUENCES };
    let config = std::fs::read_to_string(folder().join("schemathesis.toml")).expect("the configuration");
    let file = work.path().join("schemathesis.toml");
    let of_sequences = format!("[phases.stateful.generation]\nmax-examples = {sequences}\n");
    std::fs::write(&file, format!("{config}\n{of_sequences}")).expect("a configuration");
    command.arg("--config-file").arg(file);
    command.args(["run", "--no-color", "--continue-on-failure"]).args(["--url", &service.base()]);
    command.args(["--seed", &seed.to_string(), "--max-examples", &examples.to_string()]).arg(document());
    let mut process = Process::start("schemathesis", command, &work.path().join("schemathesis.log"));
    let limit = if is_long { seconds(3_600) } else { seconds(560) };
    let status = process.wait(limit);
    assert!(status.success(), "schemathesis with seed {seed} ended with {status}:\n{}", process.log());
    service.assert_running();

    let counts = std::fs::read_to_string(&counts).expect("the counts of the hooks");
    let counts: Counts = serde_json::from_str(&counts).expect("JSON of the hooks");
    println!("schemathesis, seed {seed}, {examples} examples:\n{}", table(&counts));
    assert_every_operation_succeeded(&counts);
}

/// A run in which everything is refused proves nothing.
#[track_caller]
fn assert_every_operation_succeeded(counts: &Counts) {
    let text = std::fs::read_to_string(document()).expect("the committed document");
    let committed: Value = serde_json::from_str(&text).expect("a JSON document");
    let paths = committed["paths"].as_object().into_iter().flatten();
    let operations = paths.flat_map(|(_, path)| path.as_object().into_iter().flatten());
    let ids: Vec<&str> = operations.filter_map(|(_, operation)| operation["operationId"].as_str()).collect();
    assert!(ids.len() >= 30, "{ids:?}");
    let succeeded = |id: &str| {
        counts.get(id).is_some_and(|statuses| statuses.keys().any(|status| status.starts_with('2')))
    };
    let cannot = |id: &str| NEVER.iter().any(|(known, _)| *known == id);
    let never: Vec<&&str> = ids.iter().filter(|id| !succeeded(id) && !cannot(id)).collect();
    assert!(never.is_empty(), "never succeeded: {never:?}\n{}", table(counts));
    let wrong: Vec<_> = NEVER.iter().filter(|(id, _)| succeeded(id) || !ids.contains(id)).collect();
    assert!(wrong.is_empty(), "no longer true: {wrong:?}\n{}", table(counts));
}

fn table(counts: &Counts) -> String {
    let line = |(id, statuses): (&String, &BTreeMap<String, u64>)| {
        let statuses: Vec<String> =
            statuses.iter().map(|(status, count)| format!("{status}: {count}")).collect();
        format!("  {id:<26} {}\n", statuses.join(", "))
    };
    counts.iter().map(line).collect()
}

/// An account made by itself; the API with its session.
#[track_caller]
fn account(service: &Service, name: &str) -> Api {
    let api = Api::new(&service.base(), None);
    let made = api.post("/api/auth/setup", &json!({ "name": name, "password": PASSWORD })).ok();
    api.with_key(made["token"].as_str())
}

/// More keys than one key may create in a minute, so some of them create the others. Also returns the highest id.
#[track_caller]
fn permanent_keys(service: &Service) -> (Vec<String>, i64) {
    let owner = account(service, OWNER);
    let new = json!({ "type": "permanent" });
    let make = |api: &Api| {
        let made = api.post("/api/keys", &new).ok();
        (made["key"].as_str().expect("a key").to_owned(), made["id"].as_i64().expect("an id"))
    };
    let first: Vec<Api> = (0..FIRST_KEYS).map(|_| owner.with_key(Some(&make(&owner).0))).collect();
    let made = first.iter().flat_map(|api| (0..KEYS_BY_KEY).map(|_| make(api)).collect::<Vec<_>>());
    let (keys, ids): (Vec<String>, Vec<i64>) = made.unzip();
    (keys, ids.into_iter().max().unwrap_or_default())
}

/// Of a destination that no request of the test can reach.
#[track_caller]
fn public_keys(service: &Service) -> Vec<String> {
    let owner = account(service, "viewer");
    let stream = owner.create_stream("viewed");
    let path = format!("/api/streams/{}/destinations", stream.id);
    let destination = owner.post(&path, &json!({ "type": "self-hosted", "config": {} })).ok()["id"].clone();
    let new = json!({ "type": "public", "destinationId": destination });
    let make = |_| owner.post("/api/keys", &new).ok()["key"].as_str().expect("a key").to_owned();
    (0..VIEWERS).map(make).collect()
}
