//! The committed API document: valid without warnings in third-party tools, and identical to the served one.

use std::path::Path;
use std::process::Command;

use satcast_tests::api::Api;
use satcast_tests::author::lay;
use satcast_tests::clients::{document, folder, npm, output, python, run};
use satcast_tests::service::{Setup, binary};
use serde_json::{Value, json};

#[test]
fn openapi_spec_validator_accepts_it() {
    let said = run("openapi-spec-validator", python("openapi-spec-validator").arg(document()));
    assert!(said.contains("OK"), "{said}");

    // The tool detects faults: it refuses an operation without answers.
    let broken = tempfile::tempdir().expect("a folder");
    let file = broken.path().join("openapi.json");
    let mut text = committed();
    text["paths"]["/api/streams"]["get"].as_object_mut().expect("an operation").remove("responses");
    std::fs::write(&file, text.to_string()).expect("a document");
    let output = output("openapi-spec-validator", python("openapi-spec-validator").arg(&file));
    assert!(!output.status.success(), "a document with an operation without answers was accepted");
}

#[test]
fn redocly_reports_no_problem() {
    let problems = lint(&document());
    assert_eq!(problems, Vec::<Value>::new());

    // The tool detects faults: it reports an example that does not match its schema.
    let broken = tempfile::tempdir().expect("a folder");
    let file = broken.path().join("openapi.json");
    let mut text = committed();
    text["paths"]["/api/wallet/balance"]["get"]["responses"]["200"]["content"]["application/json"]["example"] =
        json!({"balance": "much"});
    std::fs::write(&file, text.to_string()).expect("a document");
    let rules: Vec<_> = lint(&file).iter().map(|problem| problem["ruleId"].clone()).collect();
    assert!(rules.contains(&json!("no-invalid-media-type-examples")), "{rules:?}");
}

/// The rules are in `tests/clients/redocly.yaml`: warnings count as well.
fn lint(file: &Path) -> Vec<Value> {
    let mut command = npm("redocly");
    command.current_dir(folder()).args(["lint", "--format", "json", "--config", "redocly.yaml"]).arg(file);
    command.env("REDOCLY_TELEMETRY", "off").env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
    let output = output("redocly", &mut command);
    let said = String::from_utf8_lossy(&output.stdout);
    let from = said.find('{').unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&output.stderr)));
    // Text for people follows the report.
    let mut reports = serde_json::Deserializer::from_str(&said[from..]).into_iter::<Value>();
    let report = reports.next().expect("a report").expect("JSON of redocly");
    report["problems"].as_array().expect("a list of problems").clone()
}

/// With the bundled drivers the service serves the committed document; with another driver it differs.
#[test]
fn the_served_document_has_the_types_of_the_loaded_drivers() {
    let service = Setup::default().start();
    let served = Api::new(&service.base(), None).get("/openapi.json").ok();
    assert_eq!(served, committed());
    let known = types(&served);
    for name in ["rtmp", "self-hosted", "twitch", "youtube"] {
        assert!(known.iter().any(|known| known == name), "{name} in {known:?}");
    }
    drop(service);

    let drivers = tempfile::tempdir().expect("a folder for drivers");
    let built = binary().parent().expect("the folder of the binary").to_owned();
    for file in ["rtmp.so", "manifest.json"] {
        lay(&built.join("drivers").join(file), &drivers.path().join(file));
    }
    lay(&built.join("libsatcast_test_driver.so"), &drivers.path().join("panic.so"));
    let service = Setup::default()
        .set("SATCAST_DRIVERS__DIR", drivers.path().to_str().expect("a path in UTF-8"))
        .set("SATCAST_DRIVERS__ENABLED", "[\"rtmp\",\"panic\"]")
        .set("SATCAST_DRIVER__PANIC__ISOLATION", "thread")
        .start();
    let api = service.api();
    let served = api.get("/openapi.json").ok();
    assert_eq!(types(&served), ["answers", "panic", "rtmp"]);
    let config = &served["components"]["schemas"]["DestinationConfigPanic"];
    assert_eq!(config["properties"]["token"]["format"], "password", "{config}");
    assert_eq!(config["properties"]["token"]["writeOnly"], true, "{config}");
    let printed: Value = serde_json::from_str(&service.run(&["openapi"])).expect("a JSON document");
    assert_eq!(printed, served);
    let file = drivers.path().join("openapi.json");
    std::fs::write(&file, served.to_string()).expect("a document");
    run("openapi-spec-validator", python("openapi-spec-validator").arg(&file));
}

/// The destination types of a document.
fn types(document: &Value) -> Vec<String> {
    let mapping = &document["components"]["schemas"]["NewDestination"]["discriminator"]["mapping"];
    mapping.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
}

fn committed() -> Value {
    let text = std::fs::read_to_string(document()).expect("the committed document");
    serde_json::from_str(&text).expect("a JSON document")
}

#[test]
fn no_setting_of_the_machine_reaches_the_printed_document() {
    let mut command = Command::new(binary());
    command.arg("openapi").current_dir(std::env::temp_dir());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SATCAST_")) {
        command.env_remove(name);
    }
    let printed: Value = serde_json::from_str(&run("satcast", &mut command)).expect("a JSON document");
    assert_eq!(printed, committed());
}
