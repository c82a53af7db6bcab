//! Reports about recordings: which drivers may make them.

use super::recoveries::running_report;
use super::*;
use crate::{ArchiveReport, Recorded};

#[tokio::test]
async fn a_report_counts_only_for_the_drivers_types_and_names() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (stream_id, destinations) = rig.stream(account, 2).await.unwrap();
    let session = new_session_id();
    let new = NewSession { id: session.clone(), stream_id, started_at: NOW, terms: Terms::default() };
    rig.store.begin_session(new).await.unwrap();
    let report = running_report(destinations[0], session);
    let kind = rig.store.destinations_of(stream_id).await.unwrap()[0].kind.clone();
    let tell = |report: &ArchiveReport, served: &str| {
        let (report, served, store) = (report.clone(), served.to_owned(), &rig.store);
        async move { store.record_archive(report, &|kind| kind == served, NOW).await.unwrap() }
    };
    assert_eq!(tell(&report, "else").await, Recorded::Foreign { kind: kind.clone() });
    assert!(rig.store.archives_of(account, ALL).await.unwrap().is_empty());
    let Recorded::Taken(id) = tell(&report, &kind).await else { panic!("it is its own") };
    // A driver may still report a recording that it started, but not for another destination.
    let later = ArchiveReport { changed_at: UnixMillis(NOW.0 + 1), ..report.clone() };
    assert_eq!(tell(&later, "else").await, Recorded::Taken(id));
    let elsewhere = ArchiveReport { destination_id: destinations[1], ..later.clone() };
    assert_eq!(tell(&elsewhere, "else").await, Recorded::Foreign { kind: kind.clone() });
    assert_eq!(tell(&report, &kind).await, Recorded::Late);
    let other = ArchiveReport { driver: "other".into(), ..later.clone() };
    assert_eq!(tell(&other, &kind).await, Recorded::NameTaken { driver: "archive".into() });
    rig.store.delete_archive(&by(account), id, false).await.unwrap();
    assert_eq!(tell(&later, &kind).await, Recorded::Late, "a deleted recording does not come back");
    assert_eq!(tell(&other, &kind).await, Recorded::NameTaken { driver: "archive".into() });
}
