//! Three nodes on one PostgreSQL, each on a host of its own, under faults that a printed seed chooses, with paid streams, viewers and
//! webhooks: nothing is charged twice, little is forwarded unpaid, and each session ends once and is announced once. And a rolling
//! restart of all of them behind nginx.

mod accounts;
mod cluster;
mod player;

use std::time::{Duration, Instant};

use satcast_tests::api::Api;
use satcast_tests::network::Network;
use satcast_tests::soak;
use satcast_tests::wait::{seconds, until};

use cluster::{Cluster, LEASE_SECS, NODES};
use player::{Player, Watched};

/// Faults of a normal run; `cargo xtask soak` has hundreds.
const ROUNDS: u64 = 3;
/// A fault begins at a random moment of this time.
const WITHIN_MS: u64 = 2_000;
/// An encoder gives a paused node up after this time, when the seed says so.
const PATIENCE: Duration = seconds(3);
/// Error of a wrong clock.
const HOUR_SECS: i64 = 3_600;
/// Reconnect windows: a short one makes many sessions, and the default keeps one for the whole run.
const SHORT_WINDOW_SECS: u64 = 3;
const WINDOW_SECS: u64 = 30;
/// Time in which a node notices that its clock was turned.
const TURNED: Duration = seconds(2);
/// An encoder that is away for this time comes back to another session.
const AWAY: Duration = seconds(SHORT_WINDOW_SECS + 1);
/// Time in which players get what the next node publishes: two segments and a look at the playlist.
const CAUGHT_UP: Duration = seconds(10);

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// `kill -9`, and a start after less or more than a lease.
    Killed,
    /// Stopped for longer than its lease, and continued.
    Paused,
    /// Cannot send to the database.
    Mute,
    /// Does not hear from the database, which hears everything.
    Deaf,
    /// Cannot reach the other nodes, and they cannot reach it.
    Alone,
    /// Its wall clock is an hour ahead.
    Ahead,
    /// Its wall clock is an hour behind.
    Behind,
}

const FAULTS: [Fault; 7] =
    [Fault::Killed, Fault::Paused, Fault::Mute, Fault::Deaf, Fault::Alone, Fault::Ahead, Fault::Behind];

/// A fault, as the seed has it.
#[derive(Clone, Copy, Debug)]
struct Plan {
    fault: Fault,
    /// The stream whose node it hits.
    stream: usize,
    after: Duration,
    lasts: Duration,
    /// Whether encoders give a paused node up, or a session ends and another one begins under a wrong clock.
    moves: bool,
}

impl Plan {
    fn next(random: &mut u64) -> Self {
        let mut below = |limit: u64| soak::next(random) % limit;
        let fault = FAULTS[usize::try_from(below(FAULTS.len() as u64)).unwrap_or_default()];
        let stream = usize::try_from(below(NODES as u64)).unwrap_or_default();
        let after = Duration::from_millis(below(WITHIN_MS));
        let lasts = match fault {
            Fault::Killed => Duration::from_millis(below(1_000 * (LEASE_SECS + 3))),
            Fault::Paused => seconds(LEASE_SECS + 1 + below(3)),
            Fault::Mute | Fault::Deaf => seconds(2 + below(LEASE_SECS + 2)),
            Fault::Alone => seconds(2 + below(6)),
            Fault::Ahead | Fault::Behind => TURNED + AWAY + seconds(3 + below(4)),
        };
        Self { fault, stream, after, lasts, moves: below(2) == 0 }
    }
}

#[test]
fn soak_three_nodes_lose_and_repeat_nothing_under_faults() {
    if !Network::is_possible() {
        println!("left out: without root there are no networks of a test's own");
        return;
    }
    let mut random = soak::seed();
    let mut cluster = Cluster::start(SHORT_WINDOW_SECS);
    cluster.wait_until_live();
    for round in 0..soak::rounds(ROUNDS) {
        let plan = Plan::next(&mut random);
        let answers = disturb(&mut cluster, plan);
        let sum = accounts::check(&mut cluster);
        println!("round {round}: {plan:?}: {answers}; {sum}");
        assert!(answers.good > 0 && answers.bad.is_empty(), "the other nodes gave errors: {:?}", answers.bad);
    }
    cluster.end();
    println!("{}", accounts::check(&mut cluster));
    accounts::check_ends(&cluster);
}

/// One fault and the time until all streams are live again. Returns the answers of the other nodes.
fn disturb(cluster: &mut Cluster, plan: Plan) -> cluster::Answers {
    cluster.tend_for(plan.after, None);
    let node = cluster.node_of(plan.stream);
    let watcher = cluster.watch_all_but(node);
    during(cluster, plan, node);
    cluster.wait_until_live();
    watcher.stop()
}

fn during(cluster: &mut Cluster, plan: Plan, node: usize) {
    let Plan { fault, stream, lasts, moves, .. } = plan;
    match fault {
        Fault::Killed => {
            cluster.nodes[node].service.kill();
            cluster.tend_for(lasts, None);
            cluster.nodes[node].service.start();
        }
        Fault::Paused => {
            cluster.nodes[node].service.process().freeze();
            cluster.tend_for(lasts.min(PATIENCE), None);
            cluster.tend_for(lasts.saturating_sub(PATIENCE), moves.then_some(node));
            cluster.nodes[node].service.process().thaw();
        }
        Fault::Mute => {
            let (host, database) = (cluster.nodes[node].host.clone(), cluster.database.clone());
            host.lose(&database);
            cluster.tend_for(lasts, None);
            host.mend(&database);
        }
        Fault::Deaf => {
            let (host, database) = (cluster.nodes[node].host.clone(), cluster.database.clone());
            database.lose(&host);
            cluster.tend_for(lasts, None);
            database.mend(&host);
        }
        Fault::Alone => {
            let hosts: Vec<_> = cluster.nodes.iter().map(|node| node.host.clone()).collect();
            let others = || hosts.iter().enumerate().filter(|(number, _)| *number != node);
            others().for_each(|(_, other)| {
                hosts[node].lose(other);
                other.lose(&hosts[node]);
            });
            cluster.tend_for(lasts, None);
            others().for_each(|(_, other)| {
                hosts[node].mend(other);
                other.mend(&hosts[node]);
            });
        }
        Fault::Ahead | Fault::Behind => {
            let error = if fault == Fault::Ahead { HOUR_SECS } else { -HOUR_SECS };
            cluster.nodes[node].clock.turn(error);
            cluster.tend_for(TURNED, None);
            if moves {
                cluster.leave(stream, AWAY);
            }
            cluster.tend_for(lasts.saturating_sub(TURNED), None);
            cluster.nodes[node].clock.turn(0);
        }
    }
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
    until("the streams to be ready for viewers", seconds(30), || {
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
        cluster.tend_for(CAUGHT_UP, None);
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
