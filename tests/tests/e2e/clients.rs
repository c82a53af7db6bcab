//! Clients generated from the committed API document run through the life of a stream: they create it, add destinations, watch
//! and pay while ffmpeg publishes, stop it, read its history and delete it.

use std::path::Path;
use std::process::Command;

use satcast_tests::clients::{document, folder, last_line, npm, python, run};
use satcast_tests::process::guarded;
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use serde_json::{Value, json};

/// Packets that show that the destination got the stream.
const PACKETS: usize = 60;

#[test]
fn the_typescript_client_is_typed_and_lives_through_a_stream() {
    let work = tempfile::tempdir().expect("a folder for generated code");
    for file in ["flow.ts", "tsconfig.json", "package.json"] {
        std::fs::copy(folder().join(file), work.path().join(file)).expect("a file of the client");
    }
    std::os::unix::fs::symlink(folder().join("node_modules"), work.path().join("node_modules"))
        .expect("the installed packages");
    let types = work.path().join("api.d.ts");
    let mut generator = npm("openapi-typescript");
    // A field of a request that has a default may be left out.
    generator.arg(document()).arg("--output").arg(&types).args(["--default-non-nullable", "false"]);
    run("openapi-typescript", &mut generator);
    // It writes nothing when a type is wrong.
    run("tsc", npm("tsc").current_dir(work.path()).args(["--project", "."]));
    let mut node = guarded(Path::new("node"));
    node.arg(work.path().join("out/flow.js"));
    lives_through_a_stream("typescript", node, work.path());
}

#[test]
fn the_python_client_lives_through_a_stream() {
    let work = tempfile::tempdir().expect("a folder for generated code");
    let mut generator = python("openapi-generator-cli");
    generator.args(["generate", "--generator-name", "python", "--input-spec"]).arg(document());
    generator.arg("--output").arg(work.path().join("client"));
    generator.args(["--additional-properties", "packageName=satcast_client"]);
    run("openapi-generator", &mut generator);
    let mut flow = python("python");
    flow.arg(folder().join("flow.py")).env("PYTHONPATH", work.path().join("client"));
    lives_through_a_stream("python", flow, work.path());
}

/// Runs a flow against a separate service, and checks its effects from outside.
#[track_caller]
fn lives_through_a_stream(name: &str, mut flow: Command, work: &Path) {
    let (service, sink, source) = (Setup::default().start(), Sink::recording(), Source::shared());
    flow.env("BASE", service.base()).env("KEY", service.key()).env("SOURCE", source.path());
    flow.env("INGEST", ingest(&service)).env("RTMP", sink.url());
    let said = last_line(&format!("the {name} flow"), flow, &work.join("flow.log"));
    let said: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(said["stopped"], "Stop signal sent");
    assert_eq!(said["history"], json!(["rtmp", "self-hosted"]));
    assert_eq!(said["gone"], "not_found");
    assert_eq!(said["done"], json!(["webhook.deleted", "stream.deleted", "stream.stopped"]));
    let since = said["since"].as_array().expect("when each destination was live");
    assert!(since.iter().all(|time| time.as_i64() > Some(1_700_000_000_000)), "{said}");
    assert_eq!(since.len(), 2);
    sink.wait_for_media(PACKETS);
    assert_eq!(sink.names(), [name]);
    service.assert_not_logged(&[("the key", service.key())]);
}

/// Where encoders publish, without a stream key.
fn ingest(service: &Service) -> String {
    service.ingest_url("").trim_end_matches('/').to_owned()
}
