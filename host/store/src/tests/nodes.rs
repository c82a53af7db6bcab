//! Several nodes on one PostgreSQL: leases, sessions and their owners. Each store is a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::recoveries::running_report;
use super::*;
use crate::ledger::check::check;
use crate::testing::{Intruder, inspector};
use crate::{
    ArchiveReport, Bandwidth, Charged, CommandTarget, Commanded, EventType, Handover, HourDecision,
    HourFacts, HourTerms, MinuteCharge, NewNode, NewWebhook, NodeCommand, NodeState, OpenSession,
    OveragePart, Recorded, Slot, Standing,
};

pub(super) const LEASE: Duration = Duration::from_secs(600);
const PRICE: Msat = Msat(2_000);
/// After every heartbeat.
pub(super) const LATER: UnixMillis = UnixMillis(90_000);

/// Two stores on one database, with a stream; `None` if the tests run on SQLite.
pub(super) struct Nodes {
    pub(super) a: Rig,
    pub(super) b: Store,
    pub(super) intruder: Intruder,
    pub(super) account: AccountId,
    pub(super) stream: StreamId,
    pub(super) destinations: Vec<DestinationId>,
    /// Start of the next session: no two begin at the same time.
    next_start: AtomicI64,
}

impl Nodes {
    pub(super) async fn new() -> Option<Self> {
        testing::server()?;
        let a = Rig::new().await;
        let b = open_at(&a.path, 7).await;
        let account = a.account("me", 1_000_000).await.unwrap();
        let (stream, destinations) = a.stream(account, 2).await.unwrap();
        a.store.take_node(&node("a", "first")).await.unwrap();
        b.take_node(&node("b", "second")).await.unwrap();
        let intruder = Intruder::open(&a.path).await;
        let next_start = AtomicI64::new(NOW.0);
        Some(Self { a, b, intruder, account, stream, destinations, next_start })
    }

    pub(super) async fn begin(&self, store: &Store) -> Result<SessionId> {
        let id = new_session_id();
        let terms = Terms { price: PRICE, free: 0 };
        let started_at = UnixMillis(self.next_start.fetch_add(1, Ordering::Relaxed));
        let new = NewSession { id: id.clone(), stream_id: self.stream, started_at, terms };
        store.begin_session(new).await.map(|()| id)
    }

    /// Subscribes a webhook to these events.
    pub(super) async fn announce(&self, events: Vec<EventType>) {
        let webhook = NewWebhook {
            stream_id: None,
            url: Redacted::new("https://a.example/hook".to_owned()),
            host: "a.example".into(),
            events,
            secret: None,
            cap: 5,
        };
        self.b.create_webhook(&by(self.account), webhook).await.unwrap();
    }

    fn charge(&self, session: &SessionId, minute: u64) -> MinuteCharge {
        let slots = vec![Slot { slot: 0, destination: self.destinations[0] }];
        MinuteCharge { session: session.clone(), minute, slots, price: PRICE, budget: None, now: NOW }
    }

    pub(super) async fn assert_consistent(&self, sats: i64) {
        assert_eq!(check(&self.b.0.readers).await.unwrap().faults, []);
        let left = Msat(1_000_000 - sats * 1_000);
        assert_eq!(self.b.balance(self.account).await.unwrap(), left);
    }
}

pub(super) fn node(name: &str, holder: &str) -> NewNode {
    NewNode {
        name: name.into(),
        holder: holder.into(),
        advertise: format!("http://{name}:8080"),
        version: "1.2.3",
        lease: LEASE,
        started_at: NOW,
    }
}

#[tokio::test]
async fn a_name_belongs_to_one_data_folder_until_its_lease_is_over() {
    let Some(mut nodes) = Nodes::new().await else { return };
    let other = open_at(&nodes.a.path, 7).await;
    let taken = other.take_node(&node("a", "third")).await.unwrap_err();
    assert!(matches!(&taken, StoreError::NodeTaken(name) if name == "a"), "{taken}");
    assert!(nodes.a.store.renew_node(LEASE).await.unwrap().is_some());
    // A new process on the same data folder.
    other.take_node(&node("a", "first")).await.unwrap();
    assert!(nodes.a.store.renew_node(LEASE).await.unwrap().is_none(), "the epoch is over");
    assert!(other.renew_node(LEASE).await.unwrap().is_some());
    nodes.intruder.end_lease("a").await;
    assert!(other.renew_node(LEASE).await.unwrap().is_none(), "a lease that is over is never renewed");
    nodes.a.store.take_node(&node("a", "third")).await.unwrap();
    assert!(nodes.a.store.renew_node(LEASE).await.unwrap().is_some());
}

#[tokio::test]
async fn of_two_processes_with_copies_of_a_data_folder_the_newer_has_the_name() {
    let Some(mut nodes) = Nodes::new().await else { return };
    let newer = open_at(&nodes.a.path, 7).await;
    newer.take_node(&NewNode { started_at: LATER, ..node("a", "first") }).await.unwrap();
    assert!(nodes.a.store.renew_node(LEASE).await.unwrap().is_none());
    let taken = nodes.a.store.take_node(&node("a", "first")).await.unwrap_err();
    assert!(matches!(&taken, StoreError::NodeTaken(name) if name == "a"), "{taken}");
    assert!(newer.renew_node(LEASE).await.unwrap().is_some(), "the older process took nothing");
    nodes.intruder.end_lease("a").await;
    nodes.a.store.take_node(&node("a", "first")).await.unwrap();
    assert!(nodes.a.store.renew_node(LEASE).await.unwrap().is_some());
}

#[tokio::test]
async fn the_owner_of_a_session_is_another_living_node() {
    let Some(mut nodes) = Nodes::new().await else { return };
    let open = async |store: &Store| store.open_session(nodes.stream).await.unwrap();
    assert_eq!(open(&nodes.b).await, None, "no session");
    let id = nodes.begin(&nodes.a.store).await.unwrap();
    let owner = Some(("a".to_owned(), "http://a:8080".to_owned()));
    assert_eq!(open(&nodes.b).await, Some(OpenSession { id: id.clone(), owner, former: None }));
    let without_owner = |id: &SessionId| Some(OpenSession { id: id.clone(), owner: None, former: None });
    assert_eq!(open(&nodes.a.store).await, without_owner(&id), "it is its own");
    nodes.a.store.end_session(&id, LATER, EndReason::Stopped).await.unwrap();
    assert_eq!(open(&nodes.b).await, None, "the session has ended");
    let id = nodes.begin(&nodes.a.store).await.unwrap();
    assert!(open(&nodes.b).await.unwrap().owner.is_some());
    nodes.intruder.end_lease("a").await;
    assert_eq!(nodes.b.open_session(nodes.stream).await.unwrap(), without_owner(&id), "its node is lost");
}

#[tokio::test]
async fn the_other_nodes_are_those_with_a_lease() {
    let Some(nodes) = Nodes::new().await else { return };
    let others = async |store: &Store| store.other_nodes().await.unwrap();
    assert_eq!(others(&nodes.b).await, [("a".to_owned(), "http://a:8080".to_owned())]);
    assert_eq!(others(&nodes.a.store).await.len(), 1);
    nodes.b.release_node().await.unwrap();
    assert_eq!(others(&nodes.a.store).await, []);
}

/// A millisat for every byte that earlier passes have not charged.
fn decide(facts: &HourFacts) -> HourDecision {
    let due = facts.bytes as i64 - facts.charged.0;
    let served = facts.served.first().filter(|_| due > 0);
    let part = served.map(|served| OveragePart {
        session: served.session.as_ref().map(|session| session.id.clone()),
        destination: served.destination,
        charge: Msat(due),
        waive: Msat(0),
    });
    HourDecision { parts: part.into_iter().collect(), ..HourDecision::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn playback_at_two_nodes_adds_up_and_is_charged_once() {
    const ROUNDS: u64 = 25;
    const BYTES: u64 = 1_000;
    let Some(nodes) = Nodes::new().await else { return };
    let _ = nodes.begin(&nodes.a.store).await.unwrap();
    let (account, destination, hour) = (nodes.account, nodes.destinations[0], NOW.hour_start());
    let serve = |store: &Store| {
        let store = store.clone();
        async move {
            let sent = Bandwidth { account, destination, hour_start: hour, bytes: BYTES };
            let terms = HourTerms { price_per_gb: Msat(1), limit_bytes: 0 };
            for _ in 0..ROUNDS {
                store.add_bandwidth(&[sent]).await.unwrap();
                store.bill_hour(account, hour, terms, NOW, &decide).await.unwrap();
            }
        }
    };
    let (at_a, at_b) = (tokio::spawn(serve(&nodes.a.store)), tokio::spawn(serve(&nodes.b)));
    at_a.await.unwrap();
    at_b.await.unwrap();
    let sent = 2 * ROUNDS * BYTES;
    assert_eq!(nodes.b.bandwidth_of_hour(account, hour).await.unwrap(), sent);
    nodes.assert_consistent(sent as i64 / 1_000).await;
    assert!(nodes.b.unbilled_hours(Some(account), 10).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sessions_of_a_lost_node_are_settled_and_announced_once() {
    let Some(mut nodes) = Nodes::new().await else { return };
    nodes.announce(vec![EventType::StreamEnded]).await;
    let session = nodes.begin(&nodes.a.store).await.unwrap();
    let beat = UnixMillis(NOW.0 + 5_000);
    nodes.a.store.heartbeat_sessions(std::slice::from_ref(&session), beat).await.unwrap();
    assert!(matches!(
        nodes.a.store.charge_minute(&nodes.charge(&session, 0)).await.unwrap(),
        Charged::Posted(_)
    ));
    let not_ours = nodes.b.charge_minute(&nodes.charge(&session, 1)).await.unwrap();
    assert_eq!(not_ours, Charged::NotOurs, "only the owner charges");
    assert!(nodes.b.close_interrupted_sessions(LATER).await.unwrap().is_empty(), "its owner lives");

    nodes.intruder.end_lease("a").await;
    let late = nodes.a.store.charge_minute(&nodes.charge(&session, 1)).await.unwrap();
    assert_eq!(late, Charged::NotOurs, "not settled yet, but the lease is over");
    let c = Arc::new(open_at(&nodes.a.path, 7).await);
    c.take_node(&node("c", "third")).await.unwrap();
    let (b, session_id) = (Arc::new(nodes.b.clone()), session.clone());
    let settling = (0..8).map(|turn| {
        let store = if turn % 2 == 0 { b.clone() } else { c.clone() };
        tokio::spawn(async move { store.close_interrupted_sessions(LATER).await.unwrap() })
    });
    let settled = futures_util::future::join_all(settling).await;
    let settled: Vec<SessionId> = settled.into_iter().flat_map(|done| done.unwrap()).collect();
    assert_eq!(settled, [session_id], "once by one of them");
    assert_eq!(nodes.intruder.event_bodies().await.len(), 1, "announced once");
    let last = nodes.b.last_session(nodes.stream).await.unwrap().unwrap();
    assert_eq!((last.ended_at, last.end_reason), (Some(beat), Some(EndReason::Interrupted)));

    // The node comes back: nothing of the old epoch is its own any more.
    let lost = nodes.a.store.end_session(&session, LATER, EndReason::Stopped).await;
    assert!(matches!(lost, Err(StoreError::OwnershipLost)));
    nodes.a.store.take_node(&node("a", "first")).await.unwrap();
    let late = nodes.a.store.charge_minute(&nodes.charge(&session, 1)).await.unwrap();
    assert_eq!(late, Charged::NotOurs);
    let lost = nodes.a.store.begin_forwarding(&session, &nodes.destinations, LATER).await;
    assert!(matches!(lost, Err(StoreError::OwnershipLost)));
    nodes.assert_consistent(2).await;
}

#[tokio::test]
async fn a_node_that_starts_again_settles_what_it_left() {
    let Some(nodes) = Nodes::new().await else { return };
    let left = nodes.begin(&nodes.a.store).await.unwrap();
    let again = open_at(&nodes.a.path, 7).await;
    again.take_node(&node("a", "first")).await.unwrap();
    assert_eq!(again.close_interrupted_sessions(LATER).await.unwrap(), [left]);
    let new = nodes.begin(&again).await.unwrap();
    assert!(again.close_interrupted_sessions(LATER).await.unwrap().is_empty());
    assert!(nodes.b.close_interrupted_sessions(LATER).await.unwrap().is_empty());
    again.end_session(&new, LATER, EndReason::Stopped).await.unwrap();
    let last = nodes.b.last_session(nodes.stream).await.unwrap().unwrap();
    assert_eq!(last.end_reason, Some(EndReason::Stopped));
}

#[tokio::test]
async fn a_stream_is_live_at_one_node() {
    let Some(mut nodes) = Nodes::new().await else { return };
    let session = nodes.begin(&nodes.a.store).await.unwrap();
    assert!(nodes.b.is_live_elsewhere(nodes.stream).await.unwrap());
    assert!(!nodes.a.store.is_live_elsewhere(nodes.stream).await.unwrap());
    assert!(matches!(nodes.begin(&nodes.b).await, Err(StoreError::LiveElsewhere)));
    nodes.intruder.end_lease("a").await;
    assert!(!nodes.b.is_live_elsewhere(nodes.stream).await.unwrap());
    assert!(matches!(nodes.begin(&nodes.a.store).await, Err(StoreError::OwnershipLost)));
    // Webhooks hear of the end of the lost session first.
    nodes.announce(vec![EventType::StreamStarted, EventType::StreamEnded]).await;
    let next = nodes.begin(&nodes.b).await.unwrap();
    let events = nodes.intruder.event_bodies().await.into_iter().map(|body| {
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        (text(&body["type"]), text(&body["data"]["sessionId"]))
    });
    let ended = ("stream.ended".to_owned(), session.to_string());
    let started = ("stream.started".to_owned(), next.to_string());
    assert_eq!(events.collect::<Vec<_>>(), [ended, started]);
    assert!(nodes.b.close_interrupted_sessions(LATER).await.unwrap().is_empty(), "it is settled already");
    nodes.b.end_session(&next, LATER, EndReason::Stopped).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_nodes_that_begin_a_stream_at_the_same_time_one_succeeds() {
    let Some(nodes) = Nodes::new().await else { return };
    for _ in 0..10 {
        let (one, other) = tokio::join!(nodes.begin(&nodes.a.store), nodes.begin(&nodes.b));
        let (store, session) = match (one, other) {
            (Ok(session), Err(StoreError::LiveElsewhere)) => (&nodes.a.store, session),
            (Err(StoreError::LiveElsewhere), Ok(session)) => (&nodes.b, session),
            both => panic!("{both:?}"),
        };
        store.end_session(&session, LATER, EndReason::Stopped).await.unwrap();
    }
}

#[tokio::test]
async fn a_service_that_has_the_database_alone_ends_every_lease() {
    let Some(nodes) = Nodes::new().await else { return };
    let session = nodes.begin(&nodes.a.store).await.unwrap();
    let alone = open_at(&nodes.a.path, 7).await;
    assert_eq!(alone.close_interrupted_sessions(LATER).await.unwrap(), [session]);
    assert!(nodes.a.store.renew_node(LEASE).await.unwrap().is_none());
}

#[tokio::test]
async fn nodes_are_listed_and_drained() {
    let Some(mut nodes) = Nodes::new().await else { return };
    let _session = nodes.begin(&nodes.a.store).await.unwrap();
    assert!(matches!(nodes.b.drain_node("nobody", LEASE).await, Err(StoreError::NotFound(_))));
    assert!(matches!(nodes.b.undrain_node("nobody").await, Err(StoreError::NotFound(_))));
    nodes.b.drain_node("a", LEASE).await.unwrap();
    let standing = async || nodes.a.store.renew_node(LEASE).await.unwrap();
    assert_eq!(standing().await, Some(Standing { draining: true, moves: false }));
    nodes.b.undrain_node("a").await.unwrap();
    assert_eq!(standing().await, Some(Standing { draining: false, moves: false }));
    nodes.b.drain_node("a", Duration::ZERO).await.unwrap();
    assert_eq!(standing().await, Some(Standing { draining: true, moves: true }));
    let file = nodes.a.path.clone();
    let list = async || {
        let database = inspector(&file).await;
        let list = database.nodes().await.unwrap();
        database.close().await;
        list
    };
    let seen = list().await;
    let states: Vec<_> = seen.iter().map(|node| (node.name.as_str(), node.state, node.sessions)).collect();
    assert_eq!(states, [("a", NodeState::Draining, 1), ("b", NodeState::Live, 0)]);
    assert!(seen[0].lease_left <= LEASE && seen[0].lease_left > LEASE / 2);
    assert_eq!((seen[0].advertise.as_str(), seen[0].version.as_str()), ("http://a:8080", "1.2.3"));
    nodes.b.release_node().await.unwrap();
    nodes.intruder.end_lease("a").await;
    let states: Vec<_> = list().await.iter().map(|node| node.state).collect();
    assert_eq!(states, [NodeState::Lost, NodeState::Stopped]);
    // The same process stays drained, the next one does not.
    nodes.a.store.take_node(&node("a", "first")).await.unwrap();
    assert_eq!(list().await[0].state, NodeState::Draining);
    let next = NewNode { started_at: LATER, ..node("a", "first") };
    nodes.a.store.take_node(&next).await.unwrap();
    assert_eq!(list().await[0].state, NodeState::Live);
}

/// A report about a recording of an account, from a service that is alone so far.
async fn recording(rig: &Rig) -> (AccountId, ArchiveReport) {
    let account = rig.account("me", 0).await.unwrap();
    let (stream_id, destinations) = rig.stream(account, 1).await.unwrap();
    let session = new_session_id();
    let new = NewSession { id: session.clone(), stream_id, started_at: NOW, terms: Terms::default() };
    rig.store.begin_session(new).await.unwrap();
    (account, running_report(destinations[0], session))
}

async fn record(store: &Store, report: &ArchiveReport, file_name: &str) {
    let report = ArchiveReport { file_name: file_name.into(), ..report.clone() };
    let recorded = store.record_archive(report, &|_| true, NOW).await.unwrap();
    assert!(matches!(recorded, Recorded::Taken(_)), "{recorded:?}");
}

/// The names of the recordings whose files the store takes for its own.
async fn names(store: &Store) -> Vec<String> {
    let known = store.known_archives("archive").await.unwrap();
    known.into_iter().map(|known| known.file_name).collect()
}

#[tokio::test]
async fn recordings_belong_to_the_data_folder_that_has_them() {
    if testing::server().is_none() {
        return;
    }
    let rig = Rig::new().await;
    let (account, report) = recording(&rig).await;
    record(&rig.store, &report, "a.mp4").await;
    // The first node has the data folder of the service that was alone.
    rig.store.take_node(&node("a", "first")).await.unwrap();
    let b = open_at(&rig.path, 7).await;
    b.take_node(&node("b", "second")).await.unwrap();
    record(&b, &report, "b.mp4").await;
    assert_eq!(names(&rig.store).await, ["a.mp4"]);
    assert_eq!(names(&b).await, ["b.mp4"]);
    let shown = b.archives_of(account, ALL).await.unwrap();
    let here: Vec<_> =
        shown.iter().map(|archive| (archive.holder.as_str(), b.has_file_of(archive))).collect();
    assert_eq!(here, [("second", true), ("first", false)], "every node shows all of them");

    // Another name on the same data folder.
    rig.store.release_node().await.unwrap();
    let renamed = open_at(&rig.path, 7).await;
    let new = NewNode { started_at: LATER, ..node("c", "first") };
    renamed.take_node(&new).await.unwrap();
    assert_eq!(names(&renamed).await, ["a.mp4"]);
    assert_eq!(b.node_on("first").await.unwrap(), Some(("c".to_owned(), true)));
    assert_eq!(b.node_on("third").await.unwrap(), None);
    let there = Some(("c".to_owned(), "http://c:8080".to_owned()));
    assert_eq!(b.node_with("first").await.unwrap(), there);
    for folder in ["second", "third"] {
        assert_eq!(b.node_with(folder).await.unwrap(), None, "{folder}");
    }

    // A service that is alone after them has all of them, and its own go to the first node after it.
    let alone = open_at(&rig.path, 7).await;
    alone.close_interrupted_sessions(LATER).await.unwrap();
    assert_eq!(names(&alone).await, ["a.mp4", "b.mp4"]);
    assert!(shown.iter().all(|archive| alone.has_file_of(archive)));
    record(&alone, &report, "d.mp4").await;
    renamed.take_node(&new).await.unwrap();
    b.take_node(&node("b", "second")).await.unwrap();
    assert_eq!(names(&renamed).await, ["a.mp4", "d.mp4"]);
    assert_eq!(names(&b).await, ["b.mp4"]);
}

pub(super) const HANDOVER: Handover = Handover {
    last_media_at: UnixMillis(NOW.0 + 7_000),
    lasted: Duration::from_secs(90),
    position: Duration::from_secs(89),
    window: Duration::from_secs(60),
};

#[tokio::test]
async fn a_session_that_is_given_up_goes_on_at_one_other_node() {
    let Some(mut nodes) = Nodes::new().await else { return };
    nodes.announce(vec![EventType::StreamStarted, EventType::StreamEnded]).await;
    let session = nodes.begin(&nodes.a.store).await.unwrap();
    let charged = nodes.a.store.charge_minute(&nodes.charge(&session, 0)).await.unwrap();
    assert!(matches!(charged, Charged::Posted(_)));
    let not_ours = nodes.b.give_up_session(&session, HANDOVER).await;
    assert!(matches!(not_ours, Err(StoreError::OwnershipLost)));
    assert_eq!(nodes.b.returning(nodes.stream).await.unwrap(), None, "its owner has it");
    let (target, stop) = (CommandTarget::Session(&session), NodeCommand::Stop(EndReason::MaxSats));
    let given = nodes.b.stop_elsewhere(target, EndReason::MaxSats, LATER).await.unwrap().given;
    let asked = nodes.b.ask_for_session(nodes.stream).await.unwrap();
    let commands: Vec<_> = nodes.a.store.commands().await.unwrap().iter().map(|one| one.command).collect();
    assert_eq!(commands, [stop, NodeCommand::GiveUp]);
    nodes.a.store.give_up_session(&session, HANDOVER).await.unwrap();
    nodes.a.store.command_done(asked[0]).await.unwrap();

    let open = async |store: &Store| store.open_session(nodes.stream).await.unwrap().unwrap();
    let a = || Some(("a".to_owned(), "http://a:8080".to_owned()));
    assert_eq!(open(&nodes.b).await, OpenSession { id: session.clone(), owner: None, former: a() });
    let late = nodes.a.store.charge_minute(&nodes.charge(&session, 1)).await.unwrap();
    assert_eq!(late, Charged::NotOurs);
    assert!(!nodes.b.is_live_elsewhere(nodes.stream).await.unwrap());
    assert!(nodes.b.close_interrupted_sessions(LATER).await.unwrap().is_empty(), "it waits");
    let returning = nodes.b.returning(nodes.stream).await.unwrap().unwrap();
    assert_eq!((&returning.session, returning.charged), (&session, PRICE));
    assert_eq!(returning.terms, Terms { price: PRICE, free: 0 });
    assert!(returning.lasted >= HANDOVER.lasted && returning.lasted < HANDOVER.lasted * 2);
    assert!(returning.position > HANDOVER.position && returning.position < returning.lasted);
    assert!(nodes.b.take_over_session(&returning).await.unwrap());
    assert!(!nodes.a.store.take_over_session(&returning).await.unwrap(), "the other one was first");
    assert!(nodes.a.store.is_live_elsewhere(nodes.stream).await.unwrap());
    let (here, there) = (open(&nodes.a.store).await, open(&nodes.b).await);
    assert_eq!((here.owner.is_some(), here.former), (true, None), "the node before is this one");
    assert_eq!((there.owner, there.former), (None, a()));
    // The command is for the new owner.
    nodes.a.store.command_done(given[0]).await.unwrap();
    let moved = nodes.b.commands().await.unwrap();
    assert_eq!(moved.iter().map(|one| (one.id, one.command)).collect::<Vec<_>>(), [(given[0], stop)]);
    // The slot that the node before has charged costs nothing again.
    for minute in [0, 1] {
        let charged = nodes.b.charge_minute(&nodes.charge(&session, minute)).await.unwrap();
        assert!(matches!(charged, Charged::Posted(_)), "{charged:?}");
    }
    nodes.assert_consistent(4).await;

    // Back to the first node, and an earlier reading is worth nothing.
    nodes.b.give_up_session(&session, HANDOVER).await.unwrap();
    assert!(!nodes.a.store.take_over_session(&returning).await.unwrap(), "of another handover");
    let returning = nodes.a.store.returning(nodes.stream).await.unwrap().unwrap();
    nodes.intruder.end_lease("a").await;
    assert!(!nodes.a.store.take_over_session(&returning).await.unwrap(), "without a lease");
    assert!(nodes.b.take_over_session(&returning).await.unwrap());
    nodes.b.end_session(&session, LATER, EndReason::Stopped).await.unwrap();
    assert_eq!(nodes.intruder.event_bodies().await.len(), 2, "one start and one end");
    nodes.assert_consistent(4).await;
}

#[tokio::test]
async fn a_session_that_nobody_takes_over_ends_once() {
    let Some(mut nodes) = Nodes::new().await else { return };
    nodes.announce(vec![EventType::StreamEnded]).await;
    let last = async || nodes.b.last_session(nodes.stream).await.unwrap().unwrap();
    // Its window is over.
    let session = nodes.begin(&nodes.a.store).await.unwrap();
    let over = Handover { window: Duration::ZERO, ..HANDOVER };
    nodes.a.store.give_up_session(&session, over).await.unwrap();
    assert_eq!(nodes.b.returning(nodes.stream).await.unwrap(), None);
    assert_eq!(nodes.b.close_interrupted_sessions(LATER).await.unwrap(), [session]);
    assert!(nodes.a.store.close_interrupted_sessions(LATER).await.unwrap().is_empty());
    assert_eq!(last().await.end_reason, Some(EndReason::Unpublished));
    assert_eq!(last().await.ended_at, Some(HANDOVER.last_media_at));
    // It is stopped meanwhile.
    let session = nodes.begin(&nodes.a.store).await.unwrap();
    let target = CommandTarget::Account(nodes.account);
    let stop = async || nodes.b.stop_elsewhere(target, EndReason::Stopped, LATER).await.unwrap();
    assert_eq!((stop().await.given.len(), stop().await.ended), (1, false), "its owner stops it");
    nodes.a.store.give_up_session(&session, HANDOVER).await.unwrap();
    let returning = nodes.b.returning(nodes.stream).await.unwrap().unwrap();
    assert_eq!(stop().await, Commanded { given: vec![], ended: true });
    assert!(!stop().await.is_any());
    assert_eq!(last().await.end_reason, Some(EndReason::Stopped));
    assert!(!nodes.b.take_over_session(&returning).await.unwrap());
    // Its next owner is lost.
    let session = nodes.begin(&nodes.a.store).await.unwrap();
    nodes.a.store.give_up_session(&session, HANDOVER).await.unwrap();
    let returning = nodes.b.returning(nodes.stream).await.unwrap().unwrap();
    assert!(nodes.b.take_over_session(&returning).await.unwrap());
    nodes.intruder.end_lease("b").await;
    assert_eq!(nodes.a.store.close_interrupted_sessions(LATER).await.unwrap(), [session]);
    assert_eq!(last().await.end_reason, Some(EndReason::Interrupted));
    // A new session begins, or the server goes back to one service.
    let session = nodes.begin(&nodes.a.store).await.unwrap();
    nodes.a.store.give_up_session(&session, HANDOVER).await.unwrap();
    let next = nodes.begin(&nodes.a.store).await.unwrap();
    nodes.a.store.give_up_session(&next, HANDOVER).await.unwrap();
    let alone = open_at(&nodes.a.path, 7).await;
    assert_eq!(alone.close_interrupted_sessions(LATER).await.unwrap(), [next]);
    assert_eq!(nodes.intruder.event_bodies().await.len(), 5, "each end once");
}
