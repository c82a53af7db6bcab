//! Limits of requests hold over all nodes: a key or network has its number, whichever node they come to.

use satcast_tests::hosted::{Hosted, STATUS};
use satcast_tests::http::{Http, Reply, split_url};

use super::nodes::Nodes;

/// The documented number of requests in a minute.
const PER_MINUTE: usize = 60;
/// Keys, of which each node counts some.
const KEYS: usize = 4;
const COST: &str = "/api/public/streams/active/cost";
const CONFIG: &str = "/api/public/config";

/// Connections to both nodes.
fn both(nodes: &Nodes) -> [Http; 2] {
    [&nodes.a, &nodes.b].map(|node| Http::new(split_url(&node.base()).0))
}

/// Requests left in the window, as an answer says.
#[track_caller]
fn left(reply: &Reply) -> usize {
    let header = reply.header("ratelimit").expect("the header of the limit");
    let left = header.split(';').find_map(|part| part.strip_prefix("r=")?.parse().ok());
    left.unwrap_or_else(|| panic!("no number in {header}"))
}

/// Sends twice the number of the limit, to each node in turn, and expects that exactly that number is allowed.
#[track_caller]
fn assert_counted(nodes: &mut [Http], path: &str, key: &str) {
    for number in 0..2 * PER_MINUTE {
        let turn = number % nodes.len();
        let reply = nodes[turn].get(path, &[("x-api-key", key)]);
        let expected = if number < PER_MINUTE { 200 } else { 429 };
        reply.assert_status(expected);
        assert_eq!(left(&reply), PER_MINUTE.saturating_sub(number + 1), "request {number} of {path}");
        assert_eq!(reply.header("retry-after").is_some(), expected == 429);
    }
}

#[test]
fn a_key_has_its_number_of_requests_over_all_nodes() {
    let mut nodes = Nodes::start();
    let hosted = Hosted::new(&nodes.a, "counted");
    let keys: Vec<String> = (0..KEYS).map(|_| Hosted::key(&nodes.a, hosted.destination)).collect();
    let later: Vec<String> = (0..KEYS).map(|_| Hosted::key(&nodes.a, hosted.destination)).collect();
    let mut encoder = nodes.publish(&nodes.a, &hosted.stream);
    let mut viewer = hosted.viewer();
    let (_, preview) = split_url(&hosted.preview_url(&mut viewer));
    let mut clients = both(&nodes);
    for key in &keys {
        assert_counted(&mut clients, STATUS, key);
        assert_counted(&mut clients, COST, key);
    }
    assert_counted(&mut clients, &preview, "");
    let answers = (0..2 * PER_MINUTE).map(|number| clients[number % 2].get(CONFIG, &[]));
    let allowed = answers.filter(|reply| reply.header("retry-after").is_none()).count();
    // The start of the test has used a few.
    assert!((PER_MINUTE / 2..=PER_MINUTE).contains(&allowed), "{allowed} requests of a network");

    // A lost node leaves its counts to the others.
    nodes.a.kill();
    for key in &later {
        assert_counted(&mut clients[1..], STATUS, key);
    }
    encoder.cut();
}
