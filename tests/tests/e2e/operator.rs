//! The commands and the configuration, as an operator uses them.

use std::process::Output;

use satcast_tests::api::Api;
use satcast_tests::service::{ACCOUNT, Service, Setup};
use serde_json::json;

/// Exit codes: 2 for a wrong configuration, 1 for anything that goes wrong later.
const CONFIGURATION: i32 = 2;
const RUN_TIME: i32 = 1;

#[test]
fn a_wrong_configuration_is_one_sentence_with_the_fix() {
    for (variable, value, words) in [
        ("SATCAST_INGEST__RTMP_LISTN", "127.0.0.1:1", &["rtmp_listn", "rtmp_listen"][..]),
        ("SATCAST_HTTP__LISTEN", "not an address", &["http.listen"]),
        ("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "301", &["reconnect_window_secs", "300"]),
        ("SATCAST_PRICING__FREE_PLATFORMS", "-1", &["free_platforms"]),
        ("SATCAST_BILLING__MODE", "gold", &["billing.mode", "credit"]),
        ("SATCAST_OUTBOUND__ALLOW", "[\"300.0.0.0/8\"]", &["outbound.allow"]),
        ("SATCAST_DATABASE__URL", "mysql://localhost/x", &["database.url"]),
    ] {
        let service = Setup::default().set(variable, value).stopped();
        for command in ["run", "check-config"] {
            refuses(&service.command(&[command]), CONFIGURATION, words);
        }
        assert!(!service.folder().join("data").exists(), "a refused configuration left a data folder");
    }
}

#[test]
fn a_wrong_configuration_file_is_refused_with_its_name() {
    let service = Setup::default().stopped();
    let file = service.folder().join("satcast.toml");
    std::fs::write(&file, "[ingest]\nreconect_window_secs = 5\n").expect("a configuration file");
    refuses(&service.command(&["run"]), CONFIGURATION, &["satcast.toml", "reconnect_window_secs"]);
    std::fs::write(&file, "[ingest\n").expect("a configuration file");
    refuses(&service.command(&["run"]), CONFIGURATION, &["satcast.toml"]);
    std::fs::remove_file(&file).expect("the file can go");
    refuses(&service.command(&["run", "--config", "absent.toml"]), CONFIGURATION, &["absent.toml"]);
}

#[test]
fn the_printed_configuration_is_a_valid_file() {
    let service = Setup::default().stopped();
    let text = service.run(&["config"]);
    std::fs::write(service.folder().join("satcast.toml"), text).expect("a configuration file");
    let _ = service.run(&["check-config"]);
}

#[test]
fn the_link_of_the_first_start_makes_an_operator_and_stays_out_of_the_log() {
    let mut service = Setup::default().stopped();
    service.start();
    let file = service.folder().join("data/setup-link");
    let link = std::fs::read_to_string(&file).expect("the link of the first start");
    let place = format!("{}/setup#", service.base());
    let token = link.trim().strip_prefix(&place).unwrap_or_else(|| panic!("{link} is not below {place}"));
    let log = service.log();
    assert!(log.contains("setup-link") && !log.contains(token), "{log}");
    let visitor = Api::new(&service.base(), None);
    let body = json!({ "token": token, "name": "me", "password": "correct horse battery" });
    let made = visitor.post("/api/auth/setup", &body).ok();
    assert_eq!(made["operator"], true, "{made}");
    assert!(!file.exists(), "the link was used");
    visitor.post("/api/auth/setup", &body).assert_error(404, Some("not_found"));
    let _ = service.stop();
    service.start();
    assert!(!file.exists(), "there is an account");
}

#[test]
fn commands_work_beside_a_running_service() {
    let service = Setup::default().start();
    let created = service.run(&["account", "create", "second"]);
    assert!(created.trim().parse::<i64>().is_ok(), "account create prints the id: {created:?}");
    let _ = service.run(&["account", "credit", "second", "500"]);
    let key = service.run(&["key", "create", "--account", "second", "--type", "permanent"]);
    assert_eq!(key.lines().count(), 1, "standard output has more than the key");
    let key = key.trim();
    assert!(key.starts_with("sk_") && key.len() == "sk_".len() + 38, "the shape of a key");

    let api = Api::new(&service.base(), Some(key));
    assert_eq!(api.get("/api/streams").ok(), serde_json::json!([]));
    let _ = service.run(&["ledger", "check"]);
    let _ = service.run(&["check-config"]);
    assert!(service.run(&["drivers"]).contains("rtmp"));
    let document: serde_json::Value =
        serde_json::from_str(&service.run(&["openapi"])).expect("a JSON document");
    assert!(document["paths"]["/api/streams"].is_object());

    refuses(&service.command(&["account", "create", "second"]), RUN_TIME, &["second"]);
    refuses(&service.command(&["account", "credit", "nobody", "5"]), RUN_TIME, &["nobody"]);
    refuses(
        &service.command(&["key", "create", "--account", "nobody", "--type", "permanent"]),
        RUN_TIME,
        &["nobody"],
    );
    service.assert_not_logged(&[("an API key", key)]);
}

#[test]
fn a_data_folder_and_a_port_belong_to_one_service() {
    let service = Setup::default().start();
    refuses(&service.command(&["run"]), RUN_TIME, &["data"]);

    let other = Setup::default().set("SATCAST_HTTP__LISTEN", service.base().trim_start_matches("http://"));
    let other = other.stopped();
    let port = service.base().rsplit(':').next().map(str::to_owned).expect("a port");
    refuses(&other.command(&["run"]), RUN_TIME, &[&port, "[http] listen"]);
    assert_eq!(service.api().get("/api/streams").status, 200, "the first service runs on");
}

#[test]
fn the_first_start_says_how_to_begin() {
    let service = Setup::default().start();
    let log = service.log();
    for needed in [
        "data/setup-link",
        &format!("{}/docs", service.base()),
        &format!("rtmp://{}/live", service.rtmp_address()),
    ] {
        assert!(log.contains(needed), "the first start does not mention {needed}:\n{log}");
    }
    assert!(!log.contains('\u{1b}'), "colours in a file");
    service.assert_not_logged(&[("the API key", service.key())]);
    let mode = key_file_mode(&service);
    assert_eq!(mode & 0o077, 0, "others may read the key file: {mode:o}");
}

#[test]
fn an_unknown_command_is_explained() {
    let service = Setup::default().stopped();
    let output = service.command(&["acount", "create", ACCOUNT]);
    assert_eq!(output.status.code(), Some(CONFIGURATION));
    assert!(String::from_utf8_lossy(&output.stderr).contains("account"));
}

fn key_file_mode(service: &Service) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    let file = service.folder().join("data/secret.key");
    std::fs::metadata(file).expect("the key file").permissions().mode()
}

/// The command ended with `code` and one line on standard error that holds every one of `words`.
#[track_caller]
fn refuses(output: &Output, code: i32, words: &[&str]) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    let lines: Vec<&str> = errors.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(lines.len(), 1, "one sentence is due, there is: {errors}");
    for word in words {
        assert!(lines[0].contains(word), "\"{word}\" is not in: {}", lines[0]);
    }
    assert!(!errors.contains("panicked"), "{errors}");
}
