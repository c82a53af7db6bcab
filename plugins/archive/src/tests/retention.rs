//! Recordings leave the store by the rules of their destination: only after a notice, only confirmed ones, none that is
//! read.

use std::sync::atomic::Ordering;
use std::time::Duration;

use satcast_plugin_api::driver::{Recording, RecordingState};
use satcast_plugin_api::recording::EXPIRY_NOTICE_MS;

use super::kit::{Kit, limits, until};
use super::media::{AVC, video_of};
use super::server::{Act, Ask};
use crate::actions::{self, Refusal};
use crate::core::Said;
use crate::follow;
use crate::limits::{Limits, READ_LONGEST, READ_PAUSE, millis};
use crate::outside::Outside as _;
use crate::retention::keep;
use crate::rules::{Bounds, Rules};
use crate::upload::attempts::Pauses;

const HOUR_MS: i64 = 3600 * 1000;
const DAY_MS: i64 = 24 * HOUR_MS;

fn days(days: u32) -> Rules {
    Rules { days: Some(days), gigabytes: None }
}

/// Records a short session by these rules, and waits until the store has it.
fn recorded(kit: &Kit, session: &str, rules: Rules) -> Recording {
    let mut order = kit.order(session);
    order.rules = rules;
    kit.record_for(order, video_of(AVC, 0, 30, 25, 100));
    kit.until_all(RecordingState::Ready);
    of(kit, session)
}

fn of(kit: &Kit, session: &str) -> Recording {
    kit.of(session).remove(0)
}

fn pass(kit: &Kit, ms: i64) {
    kit.host.ahead_ms.fetch_add(ms, Ordering::SeqCst);
}

/// Waits until the driver asks for the notice of a recording; the host gives the soonest time.
fn told(kit: &Kit, session: &str) -> i64 {
    assert!(until(|| of(kit, session).asks_notice), "{:?}", of(kit, session));
    let recording = of(kit, session);
    let at_ms = recording.expires_at_ms.unwrap().max(kit.host.now_ms() + EXPIRY_NOTICE_MS);
    actions::announced(kit.core(), &recording.file_name, at_ms).unwrap();
    assert!(!of(kit, session).asks_notice);
    at_ms
}

/// A whole round; the driver makes others by itself.
fn round(kit: &Kit) {
    kit.run(keep(kit.core()));
}

#[test]
fn objects_are_deleted_after_their_days_and_the_host_hears_of_it() {
    let mut kit = Kit::new();
    let started_at_ms = recorded(&kit, "s1", days(30)).started_at_ms;
    recorded(&kit, "s2", Rules::default());
    assert!(until(|| of(&kit, "s1").expires_at_ms == Some(started_at_ms + 30 * DAY_MS)));
    assert_eq!(of(&kit, "s2").expires_at_ms, None);
    assert!(!of(&kit, "s1").asks_notice, "that is far away");
    pass(&kit, 28 * DAY_MS + 1000);
    assert_eq!(told(&kit, "s1"), started_at_ms + 30 * DAY_MS);
    pass(&kit, 2 * DAY_MS - HOUR_MS);
    round(&kit);
    assert_eq!(kit.server.objects().len(), 2);
    pass(&kit, HOUR_MS);
    assert!(until(|| kit.server.objects().len() == 1));
    assert!(kit.server.objects()[0].0.contains("-s2-"));
    assert!(until(|| kit.recordings().len() == 1));
    // The host hears of it, now and for some days by the list.
    let is_reported = |list: &[Recording]| {
        list.iter().any(|reported| reported.gone && reported.session_id == "s1" && reported.url.is_none())
    };
    assert!(
        until(|| is_reported(&kit.host.reports.lock()) && is_reported(&kit.reported())),
        "{:?}",
        kit.reported()
    );
    kit.kill();
    kit.load();
    assert!(is_reported(&kit.reported()));
    let name = kit.reported().into_iter().find(|reported| reported.gone).unwrap().file_name;
    let again = kit.answer(|core, answer| actions::retry(core, &name, answer)).unwrap_err();
    assert_eq!(again, Refusal::Expired.of(&name));
    assert!(actions::sign(kit.core(), &name, Duration::from_secs(60)).is_err());
    kit.answer(|core, answer| actions::delete(core, &name, true, answer)).unwrap();
    assert_eq!(kit.reported().len(), 1);
}

#[test]
fn nothing_is_deleted_without_a_notice_and_a_late_one_postpones() {
    let mut kit = Kit::new();
    recorded(&kit, "s1", days(1));
    pass(&kit, 100 * DAY_MS);
    round(&kit);
    assert_eq!(kit.server.objects().len(), 1, "the host was away, or told nobody");
    let at_ms = told(&kit, "s1");
    // The driver keeps no notice: the host gives it again after a restart.
    kit.kill();
    kit.load();
    pass(&kit, EXPIRY_NOTICE_MS + 60_000);
    round(&kit);
    assert!(of(&kit, "s1").asks_notice && kit.server.objects().len() == 1);
    actions::announced(kit.core(), &of(&kit, "s1").file_name, at_ms).unwrap();
    assert!(until(|| kit.server.objects().is_empty()));
    assert!(actions::announced(kit.core(), "other.mp4", 1).is_err());
}

/// Three of 600 MB, as their entries say, where one gigabyte is allowed.
#[test]
fn the_oldest_go_until_the_rest_fits() {
    let kit = Kit::new();
    let rules = Rules { days: None, gigabytes: Some(1) };
    for session in ["s1", "s2", "s3"] {
        let name = recorded(&kit, session, rules).file_name;
        let item = kit.core().table.find(&name).unwrap();
        kit.run(kit.core().table.change(&item, |data| data.entry.bytes = 600_000_000)).unwrap();
        pass(&kit, 1000);
    }
    for session in ["s1", "s2"] {
        let now_ms = kit.host.now_ms();
        let at_ms = told(&kit, session);
        assert!(at_ms >= now_ms + EXPIRY_NOTICE_MS);
    }
    assert_eq!(of(&kit, "s3").expires_at_ms, None);
    // One of them is deleted by its owner in the meantime: the other one fits then.
    let name = of(&kit, "s3").file_name;
    kit.answer(|core, answer| actions::delete(core, &name, true, answer)).unwrap();
    assert!(until(|| of(&kit, "s2").expires_at_ms.is_none()));
    let item = kit.core().table.find(&of(&kit, "s2").file_name).unwrap();
    assert_eq!(item.data().told_ms, None, "the next deletion needs a notice of its own");
    pass(&kit, EXPIRY_NOTICE_MS + 60_000);
    assert!(until(|| kit.server.objects().len() == 1));
    round(&kit);
    assert_eq!(kit.only().session_id, "s2");
}

#[test]
fn a_deletion_is_repeated_until_the_store_confirms_it() {
    let mut kit = Kit::new();
    recorded(&kit, "s1", days(1));
    pass(&kit, DAY_MS);
    let at_ms = told(&kit, "s1");
    kit.server.on(Ask::Delete, 3, Act::Answer(500));
    pass(&kit, DAY_MS + 60_000);
    assert!(until(|| kit.server.asked().contains(&Ask::Delete)));
    assert!(kit.recordings().iter().all(|recording| recording.state == RecordingState::Ready));
    assert!(until(|| kit.server.objects().is_empty()));
    assert!(until(|| kit.recordings().is_empty()));
    // The store does it, and the driver is killed before it knows.
    recorded(&kit, "s2", days(1));
    pass(&kit, DAY_MS);
    assert!(told(&kit, "s2") > at_ms);
    kit.server.on(Ask::Delete, 1, Act::DoAndHang);
    pass(&kit, DAY_MS + 60_000);
    assert!(until(|| kit.server.objects().is_empty()));
    kit.kill();
    kit.load();
    assert_eq!(of(&kit, "s2").state, RecordingState::Ready, "the journal does not know");
    actions::announced(kit.core(), &of(&kit, "s2").file_name, at_ms).unwrap();
    assert!(until(|| kit.recordings().is_empty()), "deleting a missing object is confirmed");
}

/// Two are due, and the store does not answer for the second one. A third is not in the store yet.
#[test]
fn a_kill_in_the_middle_of_a_round_keeps_what_the_store_has_not_confirmed() {
    // The days that pass here do not end the upload of the third one.
    let pauses = Pauses { give_up: Duration::from_secs(30 * 24 * 3600), ..limits().pauses };
    let mut kit = Kit::with(Limits { pauses, ..limits() });
    for session in ["s1", "s2"] {
        recorded(&kit, session, days(1));
        pass(&kit, 1000);
    }
    let mut deletions = 0;
    kit.server.script(move |_, ask| {
        deletions += u32::from(ask == Ask::Delete);
        match ask {
            Ask::Delete if deletions == 2 => Act::Hang,
            Ask::Part(_) => Act::Answer(503),
            _ => Act::Pass,
        }
    });
    let mut order = kit.order("s3");
    order.rules = days(1);
    kit.record_for(order, video_of(AVC, 0, 30, 25, 100));
    pass(&kit, DAY_MS);
    let at_ms = told(&kit, "s1").max(told(&kit, "s2"));
    pass(&kit, DAY_MS + 60_000);
    assert!(until(|| kit.server.asked().iter().filter(|ask| **ask == Ask::Delete).count() == 2));
    kit.kill();
    kit.load();
    round(&kit);
    let states = |kit: &Kit| {
        let mut states: Vec<_> =
            kit.recordings().into_iter().map(|one| (one.session_id, one.state)).collect();
        states.sort_by(|one, other| one.0.cmp(&other.0));
        states
    };
    let kept = [("s2".to_owned(), RecordingState::Ready), ("s3".to_owned(), RecordingState::Uploading)];
    assert_eq!(states(&kit), kept);
    assert_eq!(kit.server.objects().len(), 1, "the second one is at the store");
    assert_eq!(kit.files("spool").len(), 1, "the third one is on the disk");
    // Both go on.
    kit.server.script(|_, _| Act::Pass);
    actions::announced(kit.core(), &of(&kit, "s2").file_name, at_ms).unwrap();
    assert!(until(|| states(&kit) == [("s3".to_owned(), RecordingState::Ready)]), "{:?}", states(&kit));
    assert!(kit.server.objects()[0].0.contains("-s3-"));
}

#[test]
fn a_recording_that_the_store_keeps_does_not_keep_the_others() {
    let kit = Kit::with(Limits { keep_every: Duration::from_secs(600), ..limits() });
    for session in ["s1", "s2"] {
        recorded(&kit, session, days(1));
        pass(&kit, 1000);
    }
    pass(&kit, DAY_MS);
    round(&kit);
    for session in ["s1", "s2"] {
        told(&kit, session);
    }
    pass(&kit, DAY_MS + 60_000);
    // As for an object that is locked.
    kit.server.on(Ask::Delete, 1, Act::Answer(403));
    round(&kit);
    assert_eq!(kit.server.objects().len(), 1);
    assert_eq!(kit.only().session_id, "s1");
}

#[test]
fn a_recording_that_is_read_stays_for_a_day_at_most() {
    let kit = Kit::with(Limits { keep_every: Duration::from_secs(600), ..limits() });
    let name = recorded(&kit, "s1", days(1)).file_name;
    let item = kit.core().table.find(&name).unwrap();
    pass(&kit, 2 * DAY_MS);
    round(&kit);
    let at_ms = told(&kit, "s1");
    pass(&kit, at_ms - kit.host.now_ms() + 1);
    assert!(item.begin_read(kit.host.elapsed()));
    round(&kit);
    assert_eq!(kit.server.objects().len(), 1);
    pass(&kit, millis(READ_PAUSE) - 60_000);
    assert!(item.begin_read(kit.host.elapsed()));
    round(&kit);
    assert_eq!(kit.server.objects().len(), 1, "the pause begins again");
    pass(&kit, at_ms + millis(READ_LONGEST) - kit.host.now_ms());
    assert!(item.begin_read(kit.host.elapsed()));
    round(&kit);
    assert!(kit.server.objects().is_empty(), "nobody reads longer than the longest recording");
    recorded(&kit, "s2", days(1));
    let item = kit.core().table.find(&of(&kit, "s2").file_name).unwrap();
    assert!(item.begin_expiry(|_| true));
    assert!(!item.begin_read(kit.host.elapsed()), "it is being deleted");
    item.keep_after_all();
    assert!(item.begin_read(kit.host.elapsed()));
}

#[test]
fn more_days_reach_the_recordings_of_a_destination_and_fewer_do_not() {
    let kit = Kit::new();
    let started_at_ms = recorded(&kit, "s1", days(10)).started_at_ms;
    let configure = |rules: Rules| {
        kit.run(follow::opened(kit.core(), 7, Said { own: None, rules }));
    };
    let expires = |expected: Option<i64>| {
        assert!(until(|| of(&kit, "s1").expires_at_ms == expected), "{:?}", of(&kit, "s1"));
    };
    expires(Some(started_at_ms + 10 * DAY_MS));
    configure(days(5));
    round(&kit);
    expires(Some(started_at_ms + 10 * DAY_MS));
    configure(days(20));
    expires(Some(started_at_ms + 20 * DAY_MS));
    configure(Rules::default());
    expires(None);
    configure(days(1));
    round(&kit);
    expires(None);
}

#[test]
fn the_operators_rules_apply_in_the_operators_store_only() {
    let bounds = Bounds { usual: days(3), most: days(7) };
    let kit = Kit::with(Limits { bounds, ..limits() });
    for (session, rules, expected) in [("s1", Rules::default(), 3), ("s2", days(5), 5), ("s3", days(30), 7)] {
        let started_at_ms = recorded(&kit, session, rules).started_at_ms;
        let expected = Some(started_at_ms + expected * DAY_MS);
        assert!(until(|| of(&kit, session).expires_at_ms == expected), "{:?}", of(&kit, session));
    }
    let mut order = kit.order("s4");
    order.own = Some(kit.own(super::server::SECRET_KEY));
    kit.record_for(order, video_of(AVC, 0, 30, 25, 100));
    kit.until_all(RecordingState::Ready);
    round(&kit);
    assert_eq!(of(&kit, "s4").expires_at_ms, None);
}
