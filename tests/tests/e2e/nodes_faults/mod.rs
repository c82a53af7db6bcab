//! Three nodes on one PostgreSQL, each on a host of its own, under faults that a printed seed chooses, with paid streams, viewers and
//! webhooks: nothing is charged twice, little is forwarded unpaid, and each session ends once and is announced once. And a rolling
//! restart of all of them behind nginx.

mod accounts;
mod cluster;
mod faults;
mod player;

use std::time::{Duration, Instant};

use satcast_tests::api::Api;
use satcast_tests::network::Network;
use satcast_tests::soak;
use satcast_tests::wait::{seconds, until};

use cluster::{Answers, Cluster, NODES};
use faults::{Plan, Running};
use player::{Player, Watched};

/// Faults of a normal run; `cargo xtask soak` has hundreds.
const ROUNDS: u64 = 3;
/// Every third round has a second fault at the same time.
const SECOND_EVERY: u64 = 3;
/// The default reconnect window, which keeps each session for the whole run.
const WINDOW_SECS: u64 = 30;
/// Time in which players get what the next node publishes: two segments and a look at the playlist.
const CAUGHT_UP: Duration = seconds(10);

#[test]
fn soak_three_nodes_lose_and_repeat_nothing_under_faults() {
    if !Network::is_possible() {
        println!("left out: without root there are no networks of a test's own");
        return;
    }
    let mut random = soak::seed();
    let mut cluster = Cluster::start(faults::WINDOW_SECS);
    cluster.wait_until_live();
    for round in 0..soak::rounds(ROUNDS) {
        let first = Plan::next(&mut random);
        let second = (round % SECOND_EVERY == SECOND_EVERY - 1).then(|| Plan::next(&mut random));
        let answers = disturb(&mut cluster, first, second);
        let sum = accounts::check(&mut cluster);
        println!("round {round}: {first:?}, {second:?}: {answers}; {sum}");
        assert!(answers.good > 0 && answers.bad.is_empty(), "the other nodes gave errors: {:?}", answers.bad);
    }
    cluster.end();
    println!("{}", accounts::check(&mut cluster));
    accounts::check_ends(&cluster);
}

/// One fault or two, and the time until all streams are live again. Returns the answers of the nodes without a fault.
fn disturb(cluster: &mut Cluster, first: Plan, second: Option<Plan>) -> Answers {
    let mut faults = Running::of(cluster, first, second);
    let watcher = cluster.watch_all_but(&faults.iter().map(|fault| fault.node).collect::<Vec<_>>());
    faults::run(cluster, &mut faults);
    cluster.wait_until_live();
    watcher.stop()
}

/// As operators are told to do it, and then once without a drain. No session ends, so all encoders are back within the reconnect window.
#[test]
fn a_rolling_restart_gives_no_error_and_ends_no_session() {
    if !Network::is_possible() {
        println!("left out: without root there are no networks of a test's own");
        return;
    }
    let mut cluster = Cluster::start(WINDOW_SECS);
    cluster.wait_until_live();
    let front = cluster.front();
    let api = Api::new(&format!("http://{}", front.address()), Some(cluster.nodes[0].service.key()));
    until("the streams to be ready for viewers", || {
        cluster.publishers.iter().try_for_each(|publisher| {
            let status = api.with_key(None).try_get(&publisher.playlist)?.status;
            if status == 200 { Ok(()) } else { Err(status.to_string()) }
        })
    });
    let players: Vec<Player> = cluster
        .publishers
        .iter()
        .map(|publisher| Player::start(front.address(), &publisher.playlist))
        .collect();
    let watcher = cluster.watch(vec![api]);
    for node in 0..NODES {
        let began = Instant::now();
        cluster.drain(node);
        cluster.wait_until_live();
        println!("node {node} has no streams, all are live after {:.1} s", began.elapsed().as_secs_f64());
        cluster.tend_for(CAUGHT_UP, &[]);
        let began = Instant::now();
        cluster.restart(node);
        cluster.wait_until_live();
        println!("node {node} restarted, all streams live after {:.1} s", began.elapsed().as_secs_f64());
    }
    let seen: Vec<Watched> = players.into_iter().map(Player::stop).collect();
    for (number, seen) in seen.iter().enumerate() {
        println!("viewer {number}: {seen}");
        assert!(seen.errors.is_empty(), "viewer {number} got errors: {:?}", seen.errors);
        assert!(seen.longest < seconds(WINDOW_SECS), "viewer {number} got nothing for {:?}", seen.longest);
    }
    cluster.restart(0);
    cluster.wait_until_live();
    let answers = watcher.stop();
    println!("in front: {answers}");
    assert!(answers.good > 0 && answers.bad.is_empty(), "nginx gave errors: {:?}", answers.bad);
    assert_eq!(cluster.ask("SELECT COUNT(*), COUNT(ended_ms) FROM sessions"), format!("{NODES}|0"));
    cluster.end();
    println!("{}", accounts::check(&mut cluster));
    accounts::check_ends(&cluster);
}
