//! Nodes that die at a bad moment: what they had begun is carried out by others.

use satcast_tests::api::Api;
use satcast_tests::wait::{seconds, until, until_api};
use serde_json::json;

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
    let _ = nodes.api_a.wait_for_stream(&stream, "live", seconds(30));
    let _ = nodes.server.ask(DATABASE, SLOW_COMMANDS);
    let hash = format!("SELECT encode(key_hash, 'hex') FROM streams WHERE id = {}", stream.id);
    let before = nodes.server.ask(DATABASE, &hash);
    let path = format!("/api/streams/{}/rotate", stream.id);
    let request = Api::new(&nodes.b.base(), Some(nodes.a.key())).request("POST", &path).json(&json!({}));
    // It gets no answer.
    let caller = std::thread::spawn(move || drop(request.send()));
    until("the new key", seconds(30), || {
        let now = nodes.server.ask(DATABASE, &hash);
        if now == before { Err(now) } else { Ok(()) }
    });
    nodes.b.kill();
    caller.join().expect("the request ends");
    until_api("the end of the session", seconds(30), || {
        let detail = nodes.api_a.stream(&stream);
        if detail["lastEndReason"] == "key_revoked" { Ok(()) } else { Err(detail.to_string()) }
    });
    encoder.cut();
}
