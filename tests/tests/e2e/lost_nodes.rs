//! Nodes that die at a bad moment, or for good: what they had begun is carried out or settled by others.

use satcast_tests::s3::Store;
use satcast_tests::wait::{until, until_api};
use serde_json::{Value, json};

use super::archive::{archived, archives};
use super::nodes::{DATABASE, Nodes};

/// Writing a command takes this long: a node that wrote it after the change would be dead by then.
const SLOW_COMMANDS: &str = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN PERFORM pg_sleep(3); RETURN NEW; END $$;
    CREATE TRIGGER slow BEFORE INSERT ON node_commands FOR EACH ROW EXECUTE FUNCTION slow()";

#[test]
fn a_node_that_dies_after_a_change_has_told_the_owner_of_the_session() {
    let mut nodes = Nodes::start();
    let stream = nodes.api_a.create_stream("far");
    let mut encoder = nodes.publish(&nodes.a, &stream);
    let _ = nodes.api_a.wait_for_stream(&stream, "live");
    let _ = nodes.server.ask(DATABASE, SLOW_COMMANDS);
    let hash = format!("SELECT encode(key_hash, 'hex') FROM streams WHERE id = {}", stream.id);
    let before = nodes.server.ask(DATABASE, &hash);
    let path = format!("/api/streams/{}/rotate", stream.id);
    let request = nodes.api_b.request("POST", &path).bearer_auth(nodes.a.key()).json(&json!({}));
    // It gets no answer.
    let caller = std::thread::spawn(move || drop(request.send()));
    until("the new key", || {
        let now = nodes.server.ask(DATABASE, &hash);
        if now == before { Err(now) } else { Ok(()) }
    });
    nodes.b.kill();
    caller.join().expect("the request ends");
    until_api("the end of the session", || {
        let detail = nodes.api_a.stream(&stream);
        if detail["lastEndReason"] == "key_revoked" { Ok(()) } else { Err(detail.to_string()) }
    });
    encoder.cut();
}

#[test]
fn a_node_that_never_comes_back_is_removed_and_its_recordings_fail_once() {
    let mut nodes = Nodes::start();
    let store = Store::start();
    let (stream, _) = archived(&nodes.api_a, "recorded", &store);
    nodes.announce(&["recording.ready", "recording.failed"]);
    let mut encoder = nodes.publish(&nodes.a, &stream);
    let state = || match archives(&nodes.api_b).as_slice() {
        [one] => one["state"].as_str().unwrap_or_default().to_owned(),
        others => json!(others).to_string(),
    };
    until_api("the recording", || match state() {
        state if state == "recording" => Ok(()),
        state => Err(state),
    });
    nodes.a.kill();
    encoder.cut();
    let remove = |node: &str| nodes.b.command(&["node", "remove", node]);
    assert_eq!(remove("a").status.code(), Some(1), "its lease runs");
    nodes.wait_for_end(&stream, "interrupted");
    nodes.assert_listed("a", "lost");
    let name = archives(&nodes.api_b)[0]["fileName"].clone();
    let recover = || nodes.api_b.post("/api/archives/recover-pay", &json!({ "fileName": name }));
    recover().assert_error(409, Some("archive_not_failed"));

    let removed = remove("a");
    assert!(removed.status.success(), "{removed:?}");
    assert_eq!(state(), "failed");
    assert!(!nodes.b.run(&["node", "list"]).contains("a\tlost"));
    until_api("the event", || match nodes.told("recording.failed").len() {
        0 => Err("none".to_owned()),
        _ => Ok(()),
    });
    recover().assert_error(409, Some("archive_no_copy"));

    // It comes back after all, and uploads what it has.
    nodes.a.start();
    nodes.assert_listed("a", "live");
    until("the object", || if store.keys().is_empty() { Err("no object".to_owned()) } else { Ok(()) });
    let path = format!("/api/archives/{}", archives(&nodes.api_b)[0]["id"]);
    assert_eq!(state(), "failed");
    let told: Vec<Value> =
        ["recording.failed", "recording.ready"].iter().flat_map(|event| nodes.told(event)).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    let _ = nodes.api_b.delete(&path).ok();
    assert!(archives(&nodes.api_a).is_empty());
    let _ = nodes.b.run(&["ledger", "check"]);
}
