//! A store that fails in every way: each ends in one whole object, or in `failed` with the local copy.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::kit::{DOWN, Kit, is_nowhere, limits, until};
use super::media::{self, AVC, video_of};
use super::server::{Act, Ask, BUCKET, SECRET_KEY};
use satcast_plugin_api::Class;
use satcast_plugin_api::driver::RecordingState;

use crate::core::Said;
use crate::limits::{Limits, RESTARTS_MAX};
use crate::rules::Rules;
use crate::upload::fault::Fault;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Three parts.
fn stream() -> Vec<satcast_media::Packet> {
    video_of(AVC, 0, 500, 50, 40_000)
}

/// Records while the store behaves as `prepare` says; the object must be whole in the end.
fn survives(what: &str, prepare: impl FnOnce(&Kit)) {
    let kit = Kit::new();
    prepare(&kit);
    uploads(what, &kit);
    assert!(until(|| kit.server.leftovers().is_empty()), "{what}: {:?}", kit.server.leftovers());
}

fn uploads(what: &str, kit: &Kit) {
    let packets = stream();
    let expected = media::files(packets.clone());
    kit.record("s1", packets);
    kit.until_all(RecordingState::Ready);
    println!("{what}: {:?}", kit.server.asked());
    kit.assert_whole(&expected[0]);
}

#[test]
fn failed_requests_are_tried_again() {
    for status in [500, 503, 429, 403] {
        for ask in [Ask::Find, Ask::Open, Ask::Part(2), Ask::Complete] {
            survives(&format!("{status} to {ask:?}"), |kit| kit.server.on(ask, 2, Act::Answer(status)));
        }
    }
}

#[test]
fn broken_connections_are_reopened() {
    for ask in [Ask::Open, Ask::Part(1), Ask::Part(3), Ask::Complete] {
        for act in [Act::Cut(0), Act::Cut(3_000_000), Act::LoseAnswer] {
            survives(&format!("{act:?} of {ask:?}"), |kit| kit.server.on(ask, 1, act));
        }
    }
}

#[test]
fn a_store_without_conditional_requests_is_asked_without_the_condition() {
    survives("501 to complete", |kit| kit.server.on(Ask::Complete, 1, Act::Answer(501)));
}

#[test]
fn a_store_that_hangs_is_left_and_a_slow_one_is_waited_for() {
    // On a busy machine this driver may also leave a request that opens an upload: the store then keeps an empty one.
    let kit = Kit::impatient();
    kit.server.on(Ask::Part(1), 1, Act::Hang);
    uploads("a part without an answer", &kit);
    survives("a slow store", |kit| kit.server.script(|_, _| Act::Slow(100)));
}

#[test]
fn a_store_that_does_not_answer_shows_at_once_and_is_waited_for() {
    let kit = Kit::with(Limits { silent_after: Duration::from_millis(50), ..limits() });
    kit.server.on(Ask::Open, 1, Act::Slow(2_000));
    kit.record("s1", stream());
    let silent = || kit.reported().iter().find_map(|reported| reported.error_class);
    assert!(until(|| silent() == Some(Class::Network)));
    kit.until_all(RecordingState::Ready);
    assert_eq!(kit.server.asked().iter().filter(|ask| **ask == Ask::Open).count(), 1);
    assert_eq!(kit.only().error, None);
}

#[test]
fn bytes_corrupted_in_transit_are_rejected() {
    survives("a changed part", |kit| kit.server.on(Ask::Part(2), 1, Act::Corrupt));
}

#[test]
fn names_that_are_too_long_are_not_kept() {
    for ask in [Ask::Open, Ask::Part(1)] {
        survives(&format!("a long name for {ask:?}"), |kit| kit.server.on(ask, 1, Act::LongName));
    }
}

#[test]
fn a_store_that_keeps_losing_parts_is_given_up() {
    let kit = Kit::new();
    kit.server.script(|_, ask| if ask == Ask::Complete { Act::Answer(404) } else { Act::Pass });
    kit.record("s1", video_of(AVC, 0, 100, 50, 1000));
    kit.until_all(RecordingState::Failed);
    let opens = kit.server.asked().into_iter().filter(|ask| *ask == Ask::Open).count();
    assert_eq!(opens, RESTARTS_MAX as usize + 1);
    assert_eq!(kit.files("spool").len(), 1);
    assert!(until(|| kit.server.leftovers().is_empty()), "{:?}", kit.server.leftovers());
}

#[test]
fn little_memory_and_one_request_at_a_time_are_enough() {
    let kit = Kit::with(Limits { requests_at_once: 1, parts_mib: 8, ..limits() });
    (0..3).for_each(|round| kit.record(&format!("s{round}"), stream()));
    kit.until_all(RecordingState::Ready);
    assert_eq!(kit.server.objects().len(), 3);
}

#[test]
fn lost_parts_are_sent_again() {
    let kit = Kit::impatient();
    let packets = stream();
    let expected = media::files(packets.clone());
    kit.server.script(|_, ask| if ask == Ask::Complete { Act::Hang } else { Act::Pass });
    kit.record("s1", packets);
    assert!(until(|| kit.server.asked().contains(&Ask::Complete)));
    assert!(kit.server.lose_parts() > 0);
    kit.server.script(|_, _| Act::Pass);
    kit.until_all(RecordingState::Ready);
    kit.assert_whole(&expected[0]);
}

#[test]
fn a_store_that_is_down_the_whole_time_and_comes_back() {
    let kit = Kit::new();
    kit.host.is_down.store(true, Ordering::SeqCst);
    let packets = stream();
    let expected = media::files(packets.clone());
    kit.record("s1", packets);
    let recording = kit.only();
    assert_eq!((recording.state, recording.uploaded_bytes), (RecordingState::Uploading, 0));
    assert_eq!(kit.files("spool").len(), 1);
    kit.host.is_down.store(false, Ordering::SeqCst);
    kit.until_all(RecordingState::Ready);
    kit.assert_whole(&expected[0]);
}

#[test]
fn a_store_that_is_down_in_the_middle() {
    let kit = Kit::new();
    let packets = stream();
    let expected = media::files(packets.clone());
    let mut recorder = kit.recorder(kit.order("s1"));
    kit.run(async {
        for (at, packet) in packets.into_iter().enumerate() {
            recorder.push(packet);
            recorder.write().await.unwrap();
            if at == 250 {
                kit.host.is_down.store(true, Ordering::SeqCst);
            }
        }
        recorder.finish().await.unwrap();
    });
    kit.server.script(|_, _| Act::Cut(0));
    kit.host.is_down.store(false, Ordering::SeqCst);
    assert!(until(|| kit.server.asked().len() > 3));
    kit.server.script(|_, _| Act::Pass);
    kit.until_all(RecordingState::Ready);
    kit.assert_whole(&expected[0]);
}

/// Fails, is found failed after a day with the local copy, and nothing is left at the store.
fn fails(kit: &Kit, class: Class) -> String {
    kit.until_failing();
    kit.host.ahead_ms.store(DAY_MS + 1000, Ordering::SeqCst);
    kit.until_all(RecordingState::Failed);
    let recording = kit.only();
    assert_eq!(recording.error_class, Some(class), "{recording:?}");
    assert_eq!(kit.files("spool").len(), 1);
    recording.error.unwrap()
}

#[test]
fn a_store_that_stays_down_fails_after_a_day() {
    let kit = Kit::new();
    kit.host.is_down.store(true, Ordering::SeqCst);
    let packets = stream();
    let expected = media::files(packets.clone());
    kit.record("s1", packets);
    assert_eq!(fails(&kit, Class::Network), DOWN);
    let spooled = std::fs::read(kit.folder.path().join("spool").join(&kit.files("spool")[0])).unwrap();
    assert!(spooled == expected[0]);
}

#[test]
fn a_wrong_secret_fails_after_a_day_and_new_keys_fix_it() {
    let kit = Kit::new();
    let (wrong, sealed) = kit.own("not-the-secret");
    let mut order = kit.order("s1");
    order.own = Some((wrong, sealed));
    let packets = stream();
    let expected = media::files(packets.clone());
    kit.record_for(order.clone(), packets.clone());
    let error = fails(&kit, Class::Auth);
    assert!(error.contains("SignatureDoesNotMatch") && error.contains("secretKey"), "{error}");
    assert!(!error.contains("not-the-secret"));
    assert!(is_nowhere(kit.folder.path(), "not-the-secret"), "the journal has it encrypted");
    // The owner gives the right one; a recording that waits takes it.
    order.about.session_id = "s2".into();
    kit.record_for(order, packets);
    let (right, sealed) = kit.own(SECRET_KEY);
    let said = Said { own: Some((right, sealed)), rules: Rules::default() };
    kit.run(crate::follow::opened(kit.core(), 7, said));
    assert!(until(|| kit.server.objects().len() == 1), "{:?}", kit.recordings());
    assert!(kit.server.objects()[0].1 == expected[0]);
}

#[test]
fn a_missing_bucket_is_reported() {
    let kit = Kit::new();
    kit.server.script(|_, _| Act::NoBucket);
    kit.record("s1", stream());
    let error = fails(&kit, Class::Config);
    for code in [BUCKET, &kit.server.address.to_string(), "NoSuchBucket"] {
        assert!(error.contains(code), "{error}");
    }
}

#[test]
fn an_object_of_the_same_name_is_never_overwritten() {
    let kit = Kit::new();
    // Nothing is opened before the other object is there.
    kit.host.is_down.store(true, Ordering::SeqCst);
    let packets = stream();
    let expected = media::files(packets.clone());
    let mut recorder = kit.recorder(kit.order("s1"));
    let key = kit.run(async {
        let mut key = None;
        for packet in packets {
            recorder.push(packet);
            recorder.write().await.unwrap();
            if key.is_none() && recorder.spooled() > 0 {
                let name = format!("pre/fix/{}", kit.only().file_name);
                kit.server.place(&name, b"earlier");
                kit.host.is_down.store(false, Ordering::SeqCst);
                key = Some(name);
            }
        }
        key.unwrap()
    });
    // Nothing is given up while it is recorded.
    let finds = || kit.server.asked().iter().filter(|ask| **ask == Ask::Find).count();
    assert!(until(|| finds() >= 3));
    assert_eq!(kit.only().state, RecordingState::Recording);
    kit.run(recorder.finish()).unwrap();
    kit.until_all(RecordingState::Failed);
    assert_eq!(kit.only().error, Some(Fault::taken(&key).to_string()));
    assert_eq!(kit.server.objects(), [(key.clone(), b"earlier".to_vec())]);
    assert_eq!(kit.files("spool").len(), 1);
    kit.server.remove(&key);
    let name = kit.only().file_name;
    kit.answer(|core, answer| crate::actions::retry(core, &name, answer)).unwrap();
    kit.until_all(RecordingState::Ready);
    kit.assert_whole(&expected[0]);
}

/// An object of the same size is not ours for that: the copy here stays.
#[test]
fn an_object_of_somebody_else_is_never_taken_for_ours() {
    let kit = Kit::new();
    kit.server.script(|_, ask| if ask == Ask::Complete { Act::Slow(300) } else { Act::Pass });
    kit.record("s1", stream());
    assert!(until(|| kit.server.asked().contains(&Ask::Complete)));
    let recording = kit.only();
    let other = vec![b'x'; usize::try_from(recording.size_bytes).unwrap()];
    kit.server.place(&format!("pre/fix/{}", recording.file_name), &other);
    kit.until_all(RecordingState::Failed);
    assert_eq!(kit.files("spool").len(), 1);
    // A new look-up does not take it for ours either.
    let name = recording.file_name;
    let refused = kit.answer(|core, answer| crate::actions::retry(core, &name, answer)).unwrap_err();
    assert_eq!(refused, Fault::taken(&format!("pre/fix/{name}")).error);
    assert!(kit.server.objects()[0].1 == other);
}

/// It comes between the look and the end.
#[test]
fn an_object_created_meanwhile_is_not_overwritten() {
    let kit = Kit::new();
    kit.server.script(|_, ask| if ask == Ask::Complete { Act::Slow(300) } else { Act::Pass });
    kit.record("s1", stream());
    assert!(until(|| kit.server.asked().contains(&Ask::Complete)));
    let key = format!("pre/fix/{}", kit.only().file_name);
    kit.server.place(&key, b"earlier");
    kit.until_all(RecordingState::Failed);
    assert_eq!(kit.only().error, Some(Fault::taken(&key).to_string()));
    assert_eq!(kit.server.objects(), [(key, b"earlier".to_vec())]);
    assert_eq!(kit.files("spool").len(), 1);
}
