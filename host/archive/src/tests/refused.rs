//! Reports and listed recordings of a driver that are rejected.

use super::*;
use satcast_money::billing::testing::CAPS;
use satcast_store::{NewDestination, RecoveryBegun};

/// Not a valid name of a recording.
const BAD: &str = "../bad.mp4";

#[tokio::test]
async fn a_bad_name_hides_no_other_recording_and_loses_none() {
    let rig = Rig::new(1_000).await;
    let failed = rig.known("failed.mp4", RecordingState::Failed).await;
    let begun =
        rig.billed.store.begin_recovery(&rig.owner(), failed.id, 0, satcast_core::ids::Msat(1_000)).await;
    assert!(matches!(begun, Ok(RecoveryBegun::Begun(_))), "{begun:?}");
    for name in ["a.mp4", "b.mp4"] {
        rig.known(name, RecordingState::Uploading).await;
    }
    testing::finish("a.mp4");
    for name in ["b.mp4", "failed.mp4"] {
        testing::lose(name);
    }
    rig.recording("c.mp4", RecordingState::Recording);
    rig.recording(BAD, RecordingState::Recording);
    rig.archive.compare_all().await;
    assert_eq!(rig.state("a.mp4").await, ArchiveState::Ready, "the others are listed as before");
    assert_eq!(rig.state("c.mp4").await, ArchiveState::Recording);
    assert_eq!(rig.state("b.mp4").await, ArchiveState::Uploading, "it may be the one that was refused");
    assert!(rig.record("failed.mp4").await.recovering, "and so may this one");
    rig.archive.check_copy(&failed).await.unwrap();
    testing::lose(BAD);
    rig.archive.compare_all().await;
    assert_eq!(rig.state("b.mp4").await, ArchiveState::Failed);
    assert!(!rig.record("failed.mp4").await.recovering);
    assert!(matches!(rig.archive.check_copy(&failed).await, Err(RecoveryError::Lost)));
}

#[tokio::test]
async fn a_driver_reports_only_destinations_of_its_types() {
    let rig = Rig::new(0).await;
    let new = NewDestination {
        kind: "foreign".into(),
        platform: "foreign".into(),
        config: serde_json::json!({}),
        has_playback: false,
        delays: Default::default(),
    };
    let added = rig.billed.store.add_destination(&rig.owner(), rig.billed.stream, new, CAPS).await.unwrap();
    let foreign =
        Recording { destination_id: added.0, ..rig.recording("foreign/x.mp4", RecordingState::Uploading) };
    put(foreign.clone());
    rig.deliver(foreign.clone()).await;
    rig.archive.compare_all().await;
    rig.deliver(testing::finish("foreign/x.mp4")).await;
    rig.archive.compare_all().await;
    assert!(rig.billed.store.archives_of(rig.billed.account, Page::ALL).await.unwrap().is_empty());
    // The name is free for its real driver; afterwards this driver cannot use it.
    rig.reported_by("archive", foreign).await;
    rig.deliver(testing::finish("foreign/x.mp4")).await;
    rig.archive.compare_all().await;
    let shown = rig.record("foreign/x.mp4").await.report;
    assert_eq!((shown.driver.as_str(), shown.state), ("archive", ArchiveState::Uploading));
}

#[tokio::test]
async fn only_the_driver_that_serves_a_type_may_report_it() {
    for (driver, kind, may) in [
        ("keeper", "kept", true),
        ("keeper", "script", true),
        ("keeper", "foreign", false),
        ("other", "kept", false),
        // The driver is not loaded, and no other serves the type: it finishes its recordings.
        ("other", "foreign", true),
    ] {
        assert_eq!(drivers().may_report(driver, kind), may, "{driver} {kind}");
    }
}
