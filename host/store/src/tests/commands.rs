//! Commands between nodes: each is committed with the change that it tells of, or neither is.

use std::sync::Arc;
use std::time::Duration;

use super::nodes::{HANDOVER, LATER, Nodes};
use super::*;
use crate::{
    AccountChange, Bandwidth, CommandTarget, DestinationChange, HourDecision, HourFacts, HourTerms,
    LimitChange, LimitsChange, NodeCommand, OveragePart, StreamChange,
};

/// Gives a command without another change.
async fn give(store: &Store, target: CommandTarget<'_>, command: NodeCommand) -> Vec<i64> {
    let mut tx = store.begin().await.unwrap();
    let commanded = store.command_in(&mut tx, target, command, LATER).await.unwrap();
    tx.commit().await.unwrap();
    commanded.given
}

/// A change at one node that concerns a live session at another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Limits,
    Addresses,
    Key,
    Deletion,
    NewDestination,
    Destination,
    DestinationDeletion,
    Account,
    Playback,
}

impl Cause {
    const ALL: [Self; 9] = [
        Self::Limits,
        Self::Addresses,
        Self::Key,
        Self::Deletion,
        Self::NewDestination,
        Self::Destination,
        Self::DestinationDeletion,
        Self::Account,
        Self::Playback,
    ];

    fn command(self) -> NodeCommand {
        match self {
            Self::Limits
            | Self::Addresses
            | Self::NewDestination
            | Self::Destination
            | Self::DestinationDeletion => NodeCommand::Reload,
            Self::Key | Self::Deletion => NodeCommand::Stop(EndReason::KeyRevoked),
            Self::Account => NodeCommand::Stop(EndReason::AccountDisabled),
            Self::Playback => NodeCommand::Stop(EndReason::MaxSats),
        }
    }

    /// Makes the change at node b.
    async fn make(self, nodes: &Nodes, session: &SessionId) -> Result<()> {
        let (b, owner, stream) = (&nodes.b, by(nodes.account), nodes.stream);
        let destination = nodes.destinations[0];
        match self {
            Self::Limits => {
                let change = LimitsChange { max_sats: LimitChange::Set(5), ..Default::default() };
                b.change_limits(&owner, stream, change).await.map(drop)
            }
            Self::Addresses => {
                let change =
                    StreamChange { allowed: Some(Default::default()), label: None, ..Default::default() };
                b.change_stream(&owner, stream, change).await
            }
            Self::Key => b.replace_stream_key(&owner, stream, &new_stream_key()).await,
            Self::Deletion => b.delete_stream(&owner, stream).await,
            Self::NewDestination => b.add_destination(&owner, stream, target(), CAPS).await.map(drop),
            Self::Destination => {
                let change = DestinationChange { enabled: Some(false), ..Default::default() };
                b.change_destination(&owner, stream, destination, change).await
            }
            Self::DestinationDeletion => b.delete_destination(&owner, None, destination).await.map(drop),
            Self::Account => {
                let change = AccountChange { disabled: Some(true), ..Default::default() };
                b.change_account(&owner, change).await.map(drop)
            }
            Self::Playback => {
                let decide = |facts: &HourFacts| decide(facts, session);
                let terms = HourTerms { price_per_gb: Msat(1), limit_bytes: 0 };
                b.bill_hour(nodes.account, NOW.hour_start(), terms, NOW, &decide).await.map(drop)
            }
        }
    }
}

/// Charges a millisat for each byte, and ends the session.
fn decide(facts: &HourFacts, session: &SessionId) -> HourDecision {
    let part = |destination| OveragePart {
        session: None,
        destination,
        charge: Msat(facts.bytes as i64),
        waive: Msat(0),
    };
    HourDecision {
        parts: facts.served.iter().map(|served| part(served.destination)).collect(),
        ends: vec![(session.clone(), EndReason::MaxSats)],
    }
}

/// Bytes of viewers at node b, which cost as many millisats.
const BYTES: u64 = 3_000;

#[tokio::test]
async fn a_change_and_its_command_are_committed_together() {
    for cause in Cause::ALL {
        let Some(mut nodes) = Nodes::new().await else { return };
        let session = nodes.begin(&nodes.a.store).await.unwrap();
        let (account, destination) = (nodes.account, nodes.destinations[0]);
        let sent = Bandwidth { account, destination, hour_start: NOW.hour_start(), bytes: BYTES };
        nodes.b.add_bandwidth(&[sent]).await.unwrap();
        // The first fails at the command, the second after it: neither leaves anything.
        let tables: &[&str] = match cause {
            Cause::Playback => &["node_commands"],
            _ => &["node_commands", "audit"],
        };
        for table in tables {
            nodes.intruder.hide(table, true).await;
            let failed = cause.make(&nodes, &session).await;
            nodes.intruder.hide(table, false).await;
            assert!(failed.is_err(), "{cause:?} without {table}");
            assert!(nodes.a.store.commands().await.unwrap().is_empty(), "{cause:?} without {table}");
            nodes.assert_consistent(0).await;
        }
        cause.make(&nodes, &session).await.unwrap();
        let given: Vec<_> = nodes
            .a
            .store
            .commands()
            .await
            .unwrap()
            .into_iter()
            .map(|one| (one.session, one.command))
            .collect();
        assert_eq!(given, [(session, cause.command())], "{cause:?}");
        nodes.assert_consistent(if cause == Cause::Playback { 3 } else { 0 }).await;
    }
}

#[tokio::test]
async fn a_change_ends_a_session_without_an_owner_in_its_own_transaction() {
    for cause in [Cause::Key, Cause::Deletion, Cause::Account] {
        let Some(mut nodes) = Nodes::new().await else { return };
        let session = nodes.begin(&nodes.a.store).await.unwrap();
        nodes.a.store.give_up_session(&session, HANDOVER).await.unwrap();
        let last = async || nodes.b.last_session(nodes.stream).await.unwrap().unwrap().end_reason;
        nodes.intruder.hide("audit", true).await;
        cause.make(&nodes, &session).await.unwrap_err();
        nodes.intruder.hide("audit", false).await;
        assert_eq!(last().await, None, "{cause:?}");
        cause.make(&nodes, &session).await.unwrap();
        let NodeCommand::Stop(reason) = cause.command() else { panic!("{cause:?}") };
        assert_eq!(last().await, Some(reason), "{cause:?}");
        assert!(nodes.a.store.commands().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_change_of_a_service_that_is_alone_gives_no_command() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (stream, _) = rig.stream(account, 0).await.unwrap();
    let target = CommandTarget::Stream(stream);
    let stop = NodeCommand::Stop(EndReason::Stopped);
    assert!(give(&rig.store, target, stop).await.is_empty());
    assert!(!rig.store.stop_elsewhere(target, EndReason::Stopped, LATER).await.unwrap().is_any());
    assert!(rig.store.commands_elsewhere(target).await.unwrap().is_empty());
    assert!(rig.store.ask_for_session(stream).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_reaches_the_node_that_has_the_session() {
    let Some(mut nodes) = Nodes::new().await else { return };
    let stream = CommandTarget::Stream(nodes.stream);
    assert!(give(&nodes.b, stream, NodeCommand::Reload).await.is_empty(), "no session");
    let session = nodes.begin(&nodes.a.store).await.unwrap();
    assert!(give(&nodes.a.store, stream, NodeCommand::Reload).await.is_empty(), "it has the session itself");
    let heard = Arc::new(tokio::sync::Notify::new());
    let listening = {
        let (store, heard) = (nodes.a.store.clone(), heard.clone());
        tokio::spawn(async move { store.watch_commands(&heard).await })
    };
    let given = give(&nodes.b, stream, NodeCommand::Reload).await;
    let stop = NodeCommand::Stop(EndReason::MaxSats);
    let also = give(&nodes.b, CommandTarget::Session(&session), stop).await;
    let whole = give(&nodes.b, CommandTarget::Account(nodes.account), stop).await;
    assert!(nodes.b.commands().await.unwrap().is_empty());
    let all = [&given[..], &also, &whole].concat();
    assert_eq!(nodes.b.commands_elsewhere(stream).await.unwrap(), all);
    assert!(nodes.a.store.commands_elsewhere(stream).await.unwrap().is_empty(), "they are its own");
    let taken = nodes.a.store.commands().await.unwrap();
    let commands: Vec<_> = taken.iter().map(|given| (&given.session, given.stream, given.command)).collect();
    assert_eq!(commands, [NodeCommand::Reload, stop, stop].map(|command| (&session, nodes.stream, command)));
    for (command, given) in taken.iter().zip([given, also, whole]) {
        assert_eq!(given, [command.id]);
        assert!(nodes.b.is_waiting(command.id).await.unwrap());
        nodes.a.store.command_done(command.id).await.unwrap();
        assert!(!nodes.b.is_waiting(command.id).await.unwrap());
    }
    // It listens at some time from now on; until then every command is given again.
    let notified = async {
        while tokio::time::timeout(Duration::from_millis(50), heard.notified()).await.is_err() {
            let _ = give(&nodes.b, stream, NodeCommand::Reload).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), notified).await.expect("a notification");
    listening.abort();
    let left = give(&nodes.b, stream, NodeCommand::Reload).await;
    nodes.intruder.end_lease("a").await;
    assert!(give(&nodes.b, stream, NodeCommand::Reload).await.is_empty(), "its owner is lost");
    assert_eq!(nodes.b.close_interrupted_sessions(LATER).await.unwrap(), [session]);
    assert!(!nodes.b.is_waiting(left[0]).await.unwrap(), "nobody can carry it out");
}
