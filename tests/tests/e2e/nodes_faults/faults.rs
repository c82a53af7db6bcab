//! Faults of nodes: what they do, when they begin and when they end.

use std::time::{Duration, Instant};

use satcast_tests::network::Host;
use satcast_tests::soak;
use satcast_tests::wait::seconds;

use super::cluster::{Cluster, LEASE_SECS, LOOK, NODES, Node};

/// A fault begins at a random moment of this time.
const WITHIN_MS: u64 = 2_000;
/// An encoder gives a paused node up after this time, when the seed says so.
const PATIENCE: Duration = seconds(3);
/// Error of a wrong clock.
const HOUR_SECS: i64 = 3_600;
/// Time in which a node notices that its clock was turned.
const TURNED: Duration = seconds(2);
/// Short, so that a run has many sessions.
pub(super) const WINDOW_SECS: u64 = 3;
/// An encoder that is away for this time comes back to another session.
const AWAY: Duration = seconds(WINDOW_SECS + 1);

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
pub(super) struct Plan {
    fault: Fault,
    /// The stream whose node it hits.
    stream: usize,
    after: Duration,
    lasts: Duration,
    /// Whether encoders give a paused node up, or sessions end and others begin under a wrong clock.
    moves: bool,
}

impl Plan {
    pub(super) fn next(random: &mut u64) -> Self {
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

/// A plan at its node.
pub(super) struct Running {
    plan: Plan,
    pub(super) node: usize,
    is_on: bool,
    is_over: bool,
    /// Its encoders have left it.
    is_left: bool,
}

impl Running {
    /// The plans at their nodes: each at another one, and no fault twice.
    pub(super) fn of(cluster: &Cluster, first: Plan, second: Option<Plan>) -> Vec<Self> {
        let new = |plan, node| Self { plan, node, is_on: false, is_over: false, is_left: false };
        let node = cluster.node_of(first.stream);
        let second = second.filter(|second| second.fault != first.fault);
        let second = second.map(|plan| new(plan, (node + 1 + plan.stream % (NODES - 1)) % NODES));
        [new(first, node)].into_iter().chain(second).collect()
    }

    /// Begins and ends what is due at this time of the run.
    fn step(&mut self, cluster: &mut Cluster, now: Duration) {
        let Plan { fault, after, lasts, moves, .. } = self.plan;
        if !self.is_on && !self.is_over && now >= after {
            self.is_on = true;
            set(cluster, fault, self.node, true);
        }
        let is_turned = matches!(fault, Fault::Ahead | Fault::Behind) && now >= after + TURNED;
        if self.is_on && moves && is_turned && !self.is_left {
            self.is_left = true;
            cluster.leave(self.node, AWAY);
        }
        if self.is_on && now >= after + lasts {
            (self.is_on, self.is_over) = (false, true);
            set(cluster, fault, self.node, false);
        }
    }

    fn is_given_up(&self, now: Duration) -> bool {
        let Plan { fault, after, moves, .. } = self.plan;
        self.is_on && fault == Fault::Paused && moves && now >= after + PATIENCE
    }
}

/// Runs faults from their beginning to their end.
pub(super) fn run(cluster: &mut Cluster, faults: &mut [Running]) {
    let began = Instant::now();
    while faults.iter().any(|fault| !fault.is_over) {
        let now = began.elapsed();
        faults.iter_mut().for_each(|fault| fault.step(cluster, now));
        let given_up: Vec<usize> =
            faults.iter().filter(|fault| fault.is_given_up(now)).map(|fault| fault.node).collect();
        cluster.tend_for(LOOK, &given_up);
    }
}

/// Begins a fault of a node, or ends it.
fn set(cluster: &mut Cluster, fault: Fault, node: usize, on: bool) {
    let cut = |from: &Host, to: &Host| if on { from.lose(to) } else { from.mend(to) };
    let hosts: Vec<Host> = cluster.nodes.iter().map(|node| node.host.clone()).collect();
    let database = cluster.database.clone();
    let Node { service, clock, .. } = &mut cluster.nodes[node];
    match fault {
        Fault::Killed if on => service.kill(),
        Fault::Killed => service.start(),
        Fault::Paused if on => service.process().freeze(),
        Fault::Paused => service.process().thaw(),
        Fault::Mute => cut(&hosts[node], &database),
        Fault::Deaf => cut(&database, &hosts[node]),
        Fault::Alone => {
            for (_, other) in hosts.iter().enumerate().filter(|(number, _)| *number != node) {
                cut(&hosts[node], other);
                cut(other, &hosts[node]);
            }
        }
        Fault::Ahead | Fault::Behind if !on => clock.turn(0),
        Fault::Ahead => clock.turn(HOUR_SECS),
        Fault::Behind => clock.turn(-HOUR_SECS),
    }
}
