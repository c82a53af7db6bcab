//! Reports about recordings: which drivers may make them.

use super::recoveries::running_report;
use super::*;
use crate::{AccountChange, ArchiveReport, ArchiveState, RECORDINGS_OF_RANGE_MAX, Recorded};

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

#[tokio::test]
async fn recordings_of_a_session_are_watched_together_until_they_or_their_account_go() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (stream_id, destinations) = rig.stream(account, 2).await.unwrap();
    let mut ids = Vec::new();
    let sessions = [new_session_id(), new_session_id()];
    for (session, at) in sessions.iter().zip([0, 100_000]) {
        let started_at = UnixMillis(NOW.0 + at);
        let new = NewSession { id: session.clone(), stream_id, started_at, terms: Terms::default() };
        rig.store.begin_session(new).await.unwrap();
        for (number, destination, later) in [(1, 0, 9), (2, 0, 3), (3, 1, 5)] {
            let report = ArchiveReport {
                file_name: format!("{at}-{number}.mp4"),
                started_at: UnixMillis(NOW.0 + at + later),
                ..running_report(destinations[destination], session.clone())
            };
            let Recorded::Taken(id) = rig.store.record_archive(report, &|_| true, NOW).await.unwrap() else {
                panic!("it is new")
            };
            ids.push(id);
        }
        rig.store.end_session(session, started_at, EndReason::Stopped).await.unwrap();
    }
    let together = |id| {
        let store = &rig.store;
        async move {
            let found = store.archives_together(id).await.unwrap();
            assert!(found.iter().all(|one| (one.account, one.stream) == (account, stream_id)));
            found.into_iter().map(|one| (one.record.id, one.record.public)).collect::<Vec<_>>()
        }
    };
    assert_eq!(together(ids[0]).await, [(ids[1], false), (ids[0], false)], "in the order of their start");
    assert_eq!(together(ids[1]).await, together(ids[0]).await);
    assert_eq!(together(ids[5]).await, [(ids[5], false)]);
    assert_eq!(together(-1).await, []);
    rig.store.set_archive_public(&by(account), ids[1], true).await.unwrap();
    assert_eq!(together(ids[0]).await, [(ids[1], true), (ids[0], false)]);
    assert!(rig.store.archive(account, ids[1]).await.unwrap().unwrap().public);
    let stranger = rig.account("other", 0).await.unwrap();
    let refused = rig.store.set_archive_public(&by(stranger), ids[0], true).await;
    assert!(matches!(refused, Err(StoreError::NotFound(_))));
    rig.store.delete_archive(&by(account), ids[1], false).await.unwrap();
    assert_eq!(together(ids[0]).await, [(ids[0], false)]);
    assert_eq!(together(ids[1]).await, []);
    let refused = rig.store.set_archive_public(&by(account), ids[1], false).await;
    assert!(matches!(refused, Err(StoreError::NotFound(_))));
    let kept = async |id| rig.store.archive(account, id).await.unwrap().unwrap().stream;
    assert_eq!(kept(ids[0]).await, Some(stream_id));
    rig.store.delete_stream(&by(account), stream_id).await.unwrap();
    assert_eq!(kept(ids[0]).await, None, "its stream is gone, and it stays");
    let change = AccountChange { disabled: Some(true), ..AccountChange::default() };
    rig.store.change_account(&by(account), change).await.unwrap();
    assert_eq!(together(ids[0]).await, []);
}

#[tokio::test]
async fn the_recordings_of_a_range_are_those_of_the_stream_that_can_be_read() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (stream_id, destinations) = rig.stream(account, 1).await.unwrap();
    let session = new_session_id();
    let new = NewSession { id: session.clone(), stream_id, started_at: NOW, terms: Terms::default() };
    rig.store.begin_session(new).await.unwrap();
    let mut ids = Vec::new();
    for number in 0..4 {
        let state = if number == 2 { ArchiveState::Failed } else { ArchiveState::Uploading };
        let report = ArchiveReport {
            file_name: format!("{number}.mp4"),
            started_at: UnixMillis(NOW.0 + number * 10_000),
            duration_ms: 10_000,
            state,
            error: (state == ArchiveState::Failed).then(|| "it broke".into()),
            ..running_report(destinations[0], session.clone())
        };
        let Recorded::Taken(id) = rig.store.record_archive(report, &|_| true, NOW).await.unwrap() else {
            panic!("it is new")
        };
        ids.push(id);
    }
    let between = |account, stream, from: i64, to: i64| {
        let range = (NOW.0 + from, NOW.0 + to);
        let store = &rig.store;
        async move {
            let found = store.recordings_between(account, stream, range).await.unwrap();
            found.into_iter().map(|record| record.id).collect::<Vec<_>>()
        }
    };
    assert_eq!(between(account, stream_id, 0, 40_000).await, [ids[0], ids[1], ids[3]]);
    assert_eq!(between(account, stream_id, 9_999, 10_001).await, [ids[0], ids[1]]);
    assert_eq!(between(account, stream_id, 10_000, 20_000).await, [ids[1]]);
    assert!(between(account, stream_id, -9_000, 0).await.is_empty());
    assert_eq!(between(account, stream_id, i64::MIN / 2, i64::MAX / 2).await.len(), 3);
    let stranger = rig.account("other", 0).await.unwrap();
    let (other, _) = rig.stream(account, 1).await.unwrap();
    assert!(between(stranger, stream_id, 0, 40_000).await.is_empty());
    assert!(between(account, other, 0, 40_000).await.is_empty());
    rig.store.delete_archive(&by(account), ids[0], false).await.unwrap();
    assert_eq!(between(account, stream_id, 0, 20_000).await, [ids[1]]);
    for number in 0..=RECORDINGS_OF_RANGE_MAX {
        let file_name = format!("many-{number}.mp4");
        let report = ArchiveReport { file_name, ..running_report(destinations[0], session.clone()) };
        let taken = rig.store.record_archive(report, &|_| true, NOW).await.unwrap();
        assert!(matches!(taken, Recorded::Taken(_)));
    }
    let all = between(account, stream_id, i64::MIN / 2, i64::MAX / 2).await;
    assert_eq!(all.len() as i64, RECORDINGS_OF_RANGE_MAX);
}
