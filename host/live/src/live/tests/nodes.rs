//! Nodes that drain, have no lease, or share a stream.

use super::*;
use satcast_store::NewNode;

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_node_takes_back_its_encoders_and_no_others() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    rig.live.admit(Admits::Returning);
    let refused = rig.publish().await.err().unwrap();
    assert_eq!((refused.code, refused.reason.as_str()), (codes::FAILED, codes::DRAINING));
    rig.live.admit(Admits::All);
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    rig.until_session(SessionState::Live).await;
    rig.live.admit(Admits::Returning);
    drop(publisher);
    rig.until_session(SessionState::Reconnecting).await;
    let publisher = rig.publish().await.unwrap();
    rig.until_session(SessionState::Live).await;
    rig.live.admit(Admits::Nobody);
    drop(publisher);
    let refused = rig.publish().await.err().unwrap();
    assert_eq!((refused.code, refused.reason.as_str()), (codes::FAILED, codes::NO_LEASE));
    rig.live.end_all(EndReason::Interrupted).await;
    assert_eq!(rig.last_reason().await, Some(EndReason::Interrupted));
}

async fn take(store: &Store, name: &str) {
    let node = NewNode {
        name: name.into(),
        holder: name.into(),
        advertise: String::new(),
        version: "1",
        lease: Duration::from_secs(600),
        started_at: UnixMillis(1),
    };
    store.take_node(&node).await.unwrap();
}

/// Another node on the database of the rig, which becomes a node as well.
pub(super) async fn with_other(rig: &Rig) -> Store {
    let url = satcast_store::testing::url(&rig._folder.path().join("t.db")).await;
    let (durability, vault) = (Durability::Normal, Vault::new(&[7; 32]));
    let other = satcast_store::open(OpenOptions { url, durability, vault, low_balance: 0.into() });
    let other = other.await.unwrap();
    take(&rig.store, "a").await;
    take(&other, "b").await;
    other
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_live_at_one_node_and_changed_from_every_node() {
    if satcast_store::testing::server().is_none() {
        return;
    }
    let rig = Rig::new(&["live"], Duration::from_secs(30)).await;
    let other = with_other(&rig).await;
    let settings = rig.live.inner.settings();
    let there = Live::new(other.clone(), drivers(), rig.clock.clone(), settings);
    let mut here_first = rig.publish().await.unwrap();
    let mut there_too = there.publish(rig.stream.clone()).await.unwrap();
    here_first.push(&mut group());
    rig.until_session(SessionState::Live).await;
    there_too.push(&mut group());
    assert_eq!(there_too.closed().await.code, codes::BAD_NAME, "both were admitted");
    drop(there_too);
    rig.until("the end of the session without a row", || there.find(rig.stream.id).is_none().then_some(()))
        .await;
    let commands = tokio::spawn(rig.live.clone().keep_commands());
    let sends = async {
        loop {
            here_first.push(&mut group());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let backup = there.publish_from(rig.stream.clone(), EncoderRole::Backup, Via::default(), None);
    let refused = tokio::select! {
        () = sends => None,
        refused = rig.clock.passing(Duration::from_millis(100), backup) => refused.err(),
    };
    let refused = refused.unwrap();
    assert_eq!(
        (refused.code, refused.reason),
        (codes::BAD_NAME, codes::busy_elsewhere("a")),
        "its encoder sends"
    );

    rig.until_state(0, DestState::Live).await;
    let change = satcast_store::DestinationChange { enabled: Some(false), ..Default::default() };
    let (stream, destination) = (rig.stream.id, rig.destinations[0]);
    other.change_destination(&rig.owner(), stream, destination, change).await.unwrap();
    there.destinations_changed(stream).await;
    rig.until("the destination to stop", || {
        rig.live.destination(stream, destination).is_none().then_some(())
    })
    .await;
    assert!(there.stop(stream, EndReason::Stopped).await);
    rig.until_idle().await;
    assert_eq!(here_first.closed().await.reason, codes::reason_text(EndReason::Stopped));
    assert_eq!(rig.last_reason().await, Some(EndReason::Stopped));
    assert!(!there.stop(stream, EndReason::Stopped).await, "no session at any node");
    commands.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_replaced_elsewhere_before_the_first_media_begins_no_stream() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    // As another node does it: nobody tells this one.
    rig.store.replace_stream_key(&rig.owner(), rig.stream.id, &new_stream_key()).await.unwrap();
    publisher.push(&mut group());
    assert_eq!(publisher.closed().await.reason, codes::reason_text(EndReason::KeyRevoked));
    rig.until_idle().await;
    assert_eq!(rig.last_reason().await, Some(EndReason::KeyRevoked));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_stop_does_not_end_the_next_session() {
    if satcast_store::testing::server().is_none() {
        return;
    }
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let other = with_other(&rig).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let first = rig.until_session(SessionState::Live).await;
    let target = CommandTarget::Stream(rig.stream.id);
    let given = other.stop_elsewhere(target, EndReason::Stopped, UnixMillis(2)).await.unwrap().given;
    assert_eq!(given.len(), 1);
    // It ends by itself before the command is read.
    assert!(rig.live.stop(rig.stream.id, EndReason::Shutdown).await);
    drop(publisher);
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let next = rig.until_session(SessionState::Live).await;
    assert_ne!(next.session_id, first.session_id);
    let commands = tokio::spawn(rig.live.clone().keep_commands());
    let done = async {
        while other.is_waiting(given[0]).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(WAIT_MAX, done).await.expect("the command to be done");
    assert_eq!(rig.until_session(SessionState::Live).await.session_id, next.session_id);
    commands.abort();
}

/// At the node that has it: once by the command of another node, once by a change there.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_of_a_session_that_is_just_given_up_ends_it() {
    if satcast_store::testing::server().is_none() {
        return;
    }
    for is_told in [true, false] {
        let rig = Rig::new(&[], Duration::from_secs(30)).await;
        let (other, target) = (with_other(&rig).await, CommandTarget::Stream(rig.stream.id));
        let mut publisher = rig.publish().await.unwrap();
        publisher.push(&mut group());
        rig.until_session(SessionState::Live).await;
        let session = rig.live.find(rig.stream.id).unwrap();
        let give_up = session.command(|done| Command::GiveUp { closed: codes::moves(), done });
        if is_told {
            other.stop_elsewhere(target, EndReason::Stopped, UnixMillis(2)).await.unwrap();
            let given = rig.store.commands().await.unwrap();
            // In this order, so that the session is given up before it reads the stop.
            let (is_given_up, followed) = tokio::join!(give_up, rig.live.follow_command(&given[0]));
            assert!(is_given_up);
            followed.unwrap();
            assert!(rig.store.commands().await.unwrap().is_empty());
        } else {
            let (is_given_up, ()) = tokio::join!(give_up, rig.live.revoked(target, EndReason::Stopped));
            assert!(is_given_up);
        }
        assert_eq!(rig.last_reason().await, Some(EndReason::Stopped), "{is_told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_at_the_node_that_its_encoder_comes_to() {
    if satcast_store::testing::server().is_none() {
        return;
    }
    let rig = Rig::new(&["live"], Duration::from_secs(30)).await;
    let (other, stream) = (with_other(&rig).await, rig.stream.id);
    let there = Live::new(other.clone(), drivers(), rig.clock.clone(), rig.live.inner.settings());
    let there_live = || there.session(stream).filter(|seen| seen.state == SessionState::Live);
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let first = rig.until_session(SessionState::Live).await;
    drop(publisher);
    rig.until_session(SessionState::Reconnecting).await;
    let refused = there.publish(rig.stream.clone()).await.err().unwrap();
    assert_eq!((refused.code, refused.reason.as_str()), (codes::DENIED, codes::NOT_GIVEN_UP));
    let commands = tokio::spawn(rig.live.clone().keep_commands());
    let mut moved = there.publish(rig.stream.clone()).await.unwrap();
    assert!(rig.live.find(stream).is_none());
    moved.push(&mut group());
    let next = rig.until("the session at the other node", there_live).await;
    assert_eq!(next, first, "the same session with the same start");
    let destination = rig.destinations[0];
    let is_live = || there.destination(stream, destination).filter(|seen| seen.state == DestState::Live);
    rig.until("the destination at the other node", is_live).await;

    // The other node stops: its encoder is asked to come back, and the session goes on.
    there.shut_down().await;
    assert_eq!(moved.closed().await, codes::moves());
    assert!(there.find(stream).is_none());
    assert_eq!(rig.last_reason().await, None);
    let mut back = rig.publish().await.unwrap();
    back.push(&mut group());
    assert_eq!(rig.until_session(SessionState::Live).await, first);

    // A stop reaches a session that no node has.
    rig.live.give_up_all().await;
    assert!(there.stop(stream, EndReason::Stopped).await);
    assert!(!there.stop(stream, EndReason::Stopped).await);
    assert_eq!(rig.last_reason().await, Some(EndReason::Stopped));
    let refused = there.publish(rig.stream.clone()).await.err().unwrap();
    assert_eq!(refused.code, codes::DENIED, "the cooldown");
    commands.abort();
    drop((back, moved));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoder_whose_session_was_taken_by_another_node_is_refused() {
    if satcast_store::testing::server().is_none() {
        return;
    }
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let (other, stream) = (with_other(&rig).await, rig.stream.id);
    let there = Live::new(other.clone(), drivers(), rig.clock.clone(), rig.live.inner.settings());
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    rig.until_session(SessionState::Live).await;
    rig.live.give_up_all().await;
    let (mut one, mut two) = (rig.publish().await.unwrap(), there.publish(rig.stream.clone()).await.unwrap());
    one.push(&mut group());
    rig.until_session(SessionState::Live).await;
    two.push(&mut group());
    assert_eq!(two.closed().await.reason, codes::TAKEN_OVER_ELSEWHERE);
    rig.until("the end of the other one", || there.find(stream).is_none().then_some(())).await;
    assert_eq!(rig.last_reason().await, None, "the session goes on");
}
