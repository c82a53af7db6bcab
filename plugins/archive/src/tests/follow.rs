//! Destinations that get a new configuration while recordings of them wait.

use std::time::Duration;

use satcast_plugin_api::Class;
use satcast_plugin_api::driver::RecordingState;

use super::kit::{Kit, limits, until};
use super::media::{self, AVC, video_of};
use super::server::{Act, Ask, BUCKET, SECRET_KEY};
use crate::actions;
use crate::config::Own;
use crate::config::Target;
use crate::core::Said;
use crate::follow;
use crate::limits::Limits;
use crate::rules::Rules;
use crate::table::item::{AGAIN, STAYS};
use crate::upload::attempts::Pauses;

/// Three parts.
fn stream() -> Vec<satcast_media::Packet> {
    video_of(AVC, 0, 500, 50, 40_000)
}

/// A destination that fails once waits for an hour.
fn patient() -> Kit {
    let hour = (Duration::from_secs(3600), Duration::from_secs(3600));
    let pauses = Pauses { usual: hour, refused: hour, ..limits().pauses };
    Kit::with(Limits { pauses, ..limits() })
}

/// The destination's own store: a bucket of the same server.
fn own(kit: &Kit, bucket: &str, secret: &str) -> Own {
    let target = Target { bucket: bucket.into(), ..kit.own(secret).0 };
    let sealed = target.sealed(&*kit.host).unwrap();
    Some((target, sealed))
}

/// The same with an endpoint where no server answers.
fn mistyped(kit: &Kit) -> Own {
    let target = Target { endpoint: "http://127.0.0.1:9".into(), ..kit.own(SECRET_KEY).0 };
    let sealed = target.sealed(&*kit.host).unwrap();
    Some((target, sealed))
}

/// What the host says of the destination of all recordings here.
fn configured(kit: &Kit, own: Own) {
    kit.run(follow::opened(kit.core(), 7, Said { own, rules: Rules::default() }));
}

fn record(kit: &Kit, session: &str, own: Own) {
    let mut order = kit.order(session);
    order.own = own;
    kit.record_for(order, stream());
}

/// Waits until the only recording shows an error.
fn wrong(kit: &Kit) -> String {
    assert!(until(|| kit.only().error.is_some()), "{:?}", kit.only());
    kit.only().error.unwrap()
}

#[test]
fn a_refusal_is_reported_until_new_keys_fix_it() {
    let kit = patient();
    record(&kit, "s1", own(&kit, BUCKET, "not-the-secret"));
    let why = wrong(&kit);
    assert!(why.contains("secretKey") && why.ends_with(AGAIN), "{why}");
    let reported = kit.only();
    assert_eq!((reported.state, reported.error_class), (RecordingState::Uploading, Some(Class::Auth)));
    reported.check().unwrap();
    let is_reported = || kit.host.reports.lock().iter().any(|one| one.error.as_ref() == Some(&why));
    assert!(until(is_reported));
    // No stream goes live, and no pause is over.
    configured(&kit, own(&kit, BUCKET, SECRET_KEY));
    kit.until_all(RecordingState::Ready);
    let ready = kit.only();
    assert_eq!((ready.error, ready.error_class), (None, None));
    kit.assert_whole(&media::files(stream())[0]);
}

#[test]
fn an_error_is_cleared_by_progress() {
    let kit = Kit::new();
    kit.server.on(Ask::Part(2), 3, Act::Answer(503));
    let packets = stream();
    let mut recorder = kit.recorder(kit.order("s1"));
    kit.run(async {
        for packet in packets {
            recorder.push(packet);
            recorder.write().await.unwrap();
        }
    });
    let parts = || kit.only().uploaded_bytes >= 16 * 1024 * 1024;
    assert!(until(parts), "{:?}", kit.only());
    assert_eq!((kit.only().state, kit.only().error), (RecordingState::Recording, None));
    let mut reports = kit.host.reports.lock().clone();
    reports.retain(|one| one.error.is_some());
    assert!(
        !reports.is_empty() && reports.iter().all(|one| one.state == RecordingState::Recording),
        "{reports:?}"
    );
    kit.run(recorder.finish()).unwrap();
    kit.until_all(RecordingState::Ready);
}

#[test]
fn new_keys_are_for_addresses_deletions_and_retries_too() {
    let mut kit = patient();
    record(&kit, "s1", own(&kit, BUCKET, SECRET_KEY));
    kit.until_all(RecordingState::Ready);
    configured(&kit, own(&kit, BUCKET, "not-the-secret"));
    let name = kit.only().file_name;
    let sign = |kit: &Kit| actions::sign(kit.core(), &name, Duration::from_secs(60)).unwrap();
    let signature = |url: String| url.split_once("X-Amz-Signature=").unwrap().1.to_owned();
    let wrong = signature(sign(&kit));
    let refused = kit.answer(|core, answer| actions::delete(core, &name, true, answer)).unwrap_err();
    assert_eq!(refused.class, Class::Auth);
    configured(&kit, own(&kit, BUCKET, SECRET_KEY));
    assert_ne!(signature(sign(&kit)), wrong);
    // They are in the journal.
    kit.kill();
    kit.load();
    kit.answer(|core, answer| actions::delete(core, &name, true, answer)).unwrap();
    assert!(kit.server.objects().is_empty());
}

#[test]
fn a_recording_without_an_upload_moves_to_the_new_store() {
    let kit = patient();
    record(&kit, "s1", mistyped(&kit));
    wrong(&kit);
    configured(&kit, own(&kit, BUCKET, SECRET_KEY));
    kit.until_all(RecordingState::Ready);
    kit.assert_whole(&media::files(stream())[0]);
    // To the operator's store, too, and while it runs.
    let mut order = kit.order("s2");
    order.own = mistyped(&kit);
    let mut recorder = kit.recorder(order);
    kit.run(async {
        for packet in stream() {
            recorder.push(packet);
            recorder.write().await.unwrap();
        }
    });
    assert!(until(|| kit.of("s2")[0].error.is_some()));
    configured(&kit, None);
    assert!(until(|| kit.of("s2")[0].uploaded_bytes > 0), "{:?}", kit.of("s2"));
    kit.run(recorder.finish()).unwrap();
    kit.until_all(RecordingState::Ready);
    assert_eq!(kit.of("s2")[0].url, Some(format!("s3://{BUCKET}/pre/fix/{}", kit.of("s2")[0].file_name)));
}

/// An upload that the store opened just then is not lost, and none is left open.
#[test]
fn a_recording_whose_upload_is_being_opened_moves_and_leaves_nothing() {
    let kit = Kit::impatient();
    kit.server.add_bucket("another");
    kit.server.on(Ask::Open, 1, Act::DoAndHang);
    record(&kit, "s1", own(&kit, BUCKET, SECRET_KEY));
    assert!(until(|| !kit.server.leftovers().is_empty()));
    configured(&kit, own(&kit, "another", SECRET_KEY));
    kit.until_all(RecordingState::Ready);
    assert_eq!((kit.server.objects().len(), kit.server.objects_in("another").len()), (0, 1));
    assert!(kit.server.asked().contains(&Ask::List), "what is open at the old store is looked for");
}

#[test]
fn a_begun_upload_stays_and_its_error_says_what_to_do() {
    let kit = Kit::new();
    kit.server.add_bucket("another");
    kit.server.script(|_, ask| if ask == Ask::Part(1) { Act::Answer(403) } else { Act::Pass });
    record(&kit, "s1", own(&kit, BUCKET, SECRET_KEY));
    wrong(&kit);
    configured(&kit, own(&kit, "another", SECRET_KEY));
    let why = wrong(&kit);
    assert!(why.ends_with(STAYS), "{why}");
    kit.server.script(|_, _| Act::Pass);
    kit.until_all(RecordingState::Ready);
    assert_eq!((kit.server.objects().len(), kit.server.objects_in("another").len()), (1, 0));
    assert_eq!(kit.only().error, None);
}

/// The driver was replaced: the later instance hears of the keys, and the earlier one still has the recording.
#[test]
fn what_an_earlier_instance_has_follows_when_it_is_taken_over() {
    let mut kit = patient();
    record(&kit, "s1", own(&kit, BUCKET, "not-the-secret"));
    wrong(&kit);
    let earlier = kit.replace();
    configured(&kit, own(&kit, BUCKET, SECRET_KEY));
    earlier.end();
    kit.until_all(RecordingState::Ready);
    kit.assert_whole(&media::files(stream())[0]);
}
