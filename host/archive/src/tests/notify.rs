//! Notifications of a driver about destinations.

use serde_json::json;

use super::*;
use satcast_core::ids::DestinationId;
use satcast_money::billing::testing::CAPS;
use satcast_store::{DestinationChange, NewDestination};

/// A destination of the keeper's type with a recording.
async fn kept(rig: &Rig) -> DestinationId {
    let new = NewDestination {
        kind: "kept".into(),
        platform: "kept".into(),
        config: json!({}),
        has_playback: false,
        delays: Default::default(),
    };
    let added = rig.billed.store.add_destination(&rig.owner(), rig.billed.stream, new, CAPS).await.unwrap();
    let name = format!("kept-{}.mp4", added.0);
    let recording = rig.recording(&name, RecordingState::Uploading);
    rig.deliver(Recording { destination_id: added.0, ..recording }).await;
    added
}

async fn configure(rig: &Rig, destination: DestinationId, config: serde_json::Value) {
    let change = DestinationChange {
        enabled: None,
        config: Some(config),
        start_delay_secs: None,
        stop_delay_secs: None,
    };
    let (store, stream) = (&rig.billed.store, rig.billed.stream);
    store.change_destination(&rig.owner(), stream, destination, change).await.unwrap();
}

#[tokio::test]
async fn a_driver_is_notified_of_the_configuration_of_its_destinations() {
    let rig = Rig::new(0).await;
    let (one, other) = (kept(&rig).await, kept(&rig).await);
    configure(&rig, one, json!({"secret": "new"})).await;
    rig.archive.destination_changed(one).await;
    assert_eq!(testing::configurations_of(one.0), [Some(json!({"secret": "new"}))]);
    // A start sends all of them, and nothing more.
    rig.archive.notify_all().await;
    assert_eq!(testing::configurations_of(one.0).len(), 2);
    assert_eq!(testing::configurations_of(other.0), [Some(json!({}))]);
    assert!(!rig.archive.take_unnotified());
    let (store, owner) = (&rig.billed.store, rig.owner());
    store.delete_destination(&owner, Some(rig.billed.stream), other).await.unwrap();
    rig.archive.destination_changed(other).await;
    assert_eq!(testing::configurations_of(other.0).last(), Some(&None));
    // A failed notification is repeated by the task that lists.
    testing::refuse_notifications(one.0, true);
    configure(&rig, one, json!({"secret": "newer"})).await;
    rig.archive.destination_changed(one).await;
    assert_eq!(testing::configurations_of(one.0).len(), 2);
    testing::refuse_notifications(one.0, false);
    assert!(rig.archive.take_unnotified());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(rig.archive.clone().keep(async { drop(stopped.await) }));
    for _ in 0..2_000 {
        if testing::configurations_of(one.0).len() == 3 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    stop.send(()).unwrap();
    task.await.unwrap();
    assert_eq!(testing::configurations_of(one.0).last(), Some(&Some(json!({"secret": "newer"}))));
    // Drivers without recordings are not notified, and nothing is missing.
    rig.archive.destination_changed(rig.billed.destinations[0]).await;
    rig.archive.destination_changed(DestinationId(999_999)).await;
    assert!(!rig.archive.take_unnotified());
}
