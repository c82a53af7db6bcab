//! What the owner asks for: again, away, an address.

use std::sync::atomic::Ordering;
use std::time::Duration;

use satcast_plugin_api::Class;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::kit::{Kit, until};
use super::media::{self, AVC, video_of};
use super::server::{Act, Ask};
use crate::actions::{self, Refusal};
use crate::table::item::DELETED;
use crate::upload::fault::Fault;
use satcast_plugin_api::driver::RecordingState;

fn stream() -> Vec<satcast_media::Packet> {
    video_of(AVC, 0, 300, 50, 40_000)
}

/// A recording that has failed, as its store was down for a day.
fn failed() -> (Kit, String) {
    let kit = Kit::new();
    kit.host.is_down.store(true, Ordering::SeqCst);
    kit.record("s1", stream());
    kit.until_failing();
    kit.host.ahead_ms.store(25 * 3600 * 1000, Ordering::SeqCst);
    kit.until_all(RecordingState::Failed);
    let name = kit.only().file_name;
    (kit, name)
}

#[test]
fn a_failed_recording_is_uploaded_again() {
    let (kit, name) = failed();
    let refused = kit.answer(|core, answer| actions::retry(core, &name, answer)).unwrap_err();
    assert_eq!(refused.class, Class::Network);
    let recording = kit.only();
    assert_eq!(
        (recording.state, recording.attempt, recording.attempt_opened),
        (RecordingState::Failed, 1, false)
    );
    kit.host.is_down.store(false, Ordering::SeqCst);
    // Answered once the upload is open, not when it is done.
    kit.server.script(|_, ask| if ask == Ask::Part(1) { Act::Slow(300) } else { Act::Pass });
    kit.answer(|core, answer| actions::retry(core, &name, answer)).unwrap();
    let recording = kit.only();
    assert_eq!(
        (recording.state, recording.attempt, recording.attempt_opened),
        (RecordingState::Uploading, 2, true)
    );
    assert_eq!((recording.error, recording.error_class), (None, None));
    let twice = kit.answer(|core, answer| actions::retry(core, &name, answer)).unwrap_err();
    assert_eq!(twice, Refusal::Uploading.of(&name));
    kit.until_all(RecordingState::Ready);
    kit.assert_whole(&media::files(stream())[0]);
    let again = kit.answer(|core, answer| actions::retry(core, &name, answer)).unwrap_err();
    assert_eq!(again, Refusal::Uploaded.of(&name));
    let unknown = kit.answer(|core, answer| actions::retry(core, "no/such.mp4", answer)).unwrap_err();
    assert_eq!(unknown, Refusal::Unknown.of("no/such.mp4"));
}

#[test]
fn a_refusal_of_the_store_is_explained() {
    let (kit, name) = failed();
    kit.host.is_down.store(false, Ordering::SeqCst);
    kit.server.script(|_, _| Act::Answer(403));
    let refused = kit.answer(|core, answer| actions::retry(core, &name, answer)).unwrap_err();
    assert_eq!(refused.class, Class::Auth);
    assert_eq!(kit.only().error_class, Some(Class::Auth));
    assert_eq!(kit.files("spool").len(), 1);
}

#[test]
fn a_retry_that_a_crash_interrupts_before_it_opens_has_failed() {
    let (mut kit, name) = failed();
    kit.host.is_down.store(false, Ordering::SeqCst);
    kit.server.script(|_, _| Act::Hang);
    kit.run(async {
        actions::retry(kit.core(), &name, satcast_plugin_api::driver::Answer::calling(|_| {}));
    });
    assert!(until(|| !kit.server.asked().is_empty()));
    kit.kill();
    kit.load();
    let recording = kit.only();
    assert_eq!(
        (recording.state, recording.attempt, recording.attempt_opened),
        (RecordingState::Failed, 1, false)
    );
    assert_eq!(recording.error_class, Some(Class::Internal));
}

#[test]
fn a_deletion_removes_local_and_remote_data_as_requested() {
    let kit = Kit::new();
    kit.record("s1", stream());
    kit.record("s2", stream());
    kit.until_all(RecordingState::Ready);
    let names: Vec<String> = kit.recordings().into_iter().map(|recording| recording.file_name).collect();
    kit.server.on(Ask::Delete, 1, Act::Answer(500));
    let refused = kit.answer(|core, answer| actions::delete(core, &names[0], true, answer)).unwrap_err();
    assert_eq!(refused.class, Class::Remote);
    assert_eq!(kit.recordings().len(), 2, "it can be asked for again");
    kit.answer(|core, answer| actions::delete(core, &names[0], true, answer)).unwrap();
    assert_eq!(kit.server.objects().len(), 1);
    kit.answer(|core, answer| actions::delete(core, &names[1], false, answer)).unwrap();
    assert_eq!(kit.server.objects().len(), 1, "the object stays");
    assert!(
        kit.recordings().is_empty() && kit.reported().iter().all(|one| one.url.is_none()),
        "a note is left"
    );
    names
        .iter()
        .for_each(|name| kit.answer(|core, answer| actions::delete(core, name, false, answer)).unwrap());
    assert!(kit.reported().is_empty() && kit.files("journal").is_empty());
    kit.answer(|core, answer| actions::delete(core, &names[1], false, answer)).unwrap();
    let unknown = kit.answer(|core, answer| actions::delete(core, &names[1], true, answer)).unwrap_err();
    assert_eq!(unknown, Refusal::Unknown.of(&names[1]), "of its object nothing is known");
}

#[test]
fn deleting_a_recording_aborts_its_upload() {
    let mut kit = Kit::impatient();
    kit.server.script(|_, ask| if ask == Ask::Complete { Act::Hang } else { Act::Pass });
    kit.record("s1", stream());
    assert!(until(|| kit.server.asked().contains(&Ask::Complete)));
    assert!(!kit.server.leftovers().is_empty());
    // The store is down when it is deleted: that is ended later, even by the next process.
    kit.server.script(|_, _| Act::Cut(0));
    let name = kit.only().file_name;
    kit.answer(|core, answer| actions::delete(core, &name, false, answer)).unwrap();
    assert!(kit.recordings().is_empty() && kit.files("spool").is_empty());
    assert!(until(|| kit.files("journal").len() == 1), "{:?}", kit.files("journal"));
    kit.kill();
    kit.server.script(|_, _| Act::Pass);
    kit.load();
    assert!(until(|| kit.server.leftovers().is_empty()));
    assert!(kit.server.leftovers().is_empty(), "{:?}", kit.server.leftovers());
    assert!(kit.server.objects().is_empty());
}

/// Who asks for the object to go hears of it when it is gone; where the store cannot be asked, nothing is.
#[test]
fn an_upload_is_deleted_with_its_object_or_not_at_all() {
    let kit = Kit::impatient();
    kit.server.script(|_, ask| if ask == Ask::Complete { Act::Hang } else { Act::Pass });
    kit.record("s1", stream());
    assert!(until(|| kit.server.asked().contains(&Ask::Complete)));
    let name = kit.only().file_name;
    kit.server.script(|_, _| Act::Cut(0));
    let refused = kit.answer(|core, answer| actions::delete(core, &name, true, answer)).unwrap_err();
    assert_eq!(refused.class, Class::Network, "{refused:?}");
    assert_eq!((kit.only().state, kit.files("spool").len()), (RecordingState::Uploading, 1));
    // The store is slow: the answer waits for it.
    kit.server.script(|_, ask| match ask {
        Ask::Complete => Act::Hang,
        _ => Act::Slow(100),
    });
    kit.answer(|core, answer| actions::delete(core, &name, true, answer)).unwrap();
    assert!(kit.server.leftovers().is_empty() && kit.server.objects().is_empty());
    assert!(kit.recordings().is_empty() && kit.files("spool").is_empty());
}

#[test]
fn foreign_objects_of_the_same_name_are_not_deleted() {
    let kit = Kit::new();
    // An upload was opened, so that something of it may be there.
    kit.server.script(|_, ask| if matches!(ask, Ask::Part(_)) { Act::Answer(500) } else { Act::Pass });
    kit.record("s1", stream());
    kit.until_failing();
    kit.host.ahead_ms.store(25 * 3600 * 1000, Ordering::SeqCst);
    kit.until_all(RecordingState::Failed);
    let name = kit.only().file_name;
    kit.server.script(|_, _| Act::Pass);
    kit.server.place(&format!("pre/fix/{name}"), b"somebody else's");
    let refused = kit.answer(|core, answer| actions::retry(core, &name, answer)).unwrap_err();
    assert_eq!(refused, Fault::taken(&format!("pre/fix/{name}")).error);
    kit.answer(|core, answer| actions::delete(core, &name, true, answer)).unwrap();
    assert_eq!(kit.server.objects().len(), 1);
    assert!(kit.recordings().is_empty());
}

/// The store made the object, and its answer was lost for a day.
#[test]
fn an_object_whose_confirmation_was_lost_is_found_again() {
    let kit = Kit::new();
    let is_made = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = is_made.clone();
    kit.server.script(move |_, ask| match ask {
        _ if seen.load(Ordering::SeqCst) => Act::Cut(0),
        Ask::Complete => {
            seen.store(true, Ordering::SeqCst);
            Act::LoseAnswer
        }
        _ => Act::Pass,
    });
    kit.record("s1", stream());
    assert!(until(|| kit.server.objects().len() == 1));
    kit.until_failing();
    kit.host.ahead_ms.store(25 * 3600 * 1000, Ordering::SeqCst);
    kit.until_all(RecordingState::Failed);
    kit.server.script(|_, _| Act::Pass);
    let name = kit.only().file_name;
    kit.answer(|core, answer| actions::retry(core, &name, answer)).unwrap();
    let found = kit.only();
    assert_eq!((found.state, found.attempt, found.attempt_opened), (RecordingState::Ready, 1, false));
    assert!(!kit.server.asked().contains(&Ask::Open), "{:?}", kit.server.asked());
    kit.assert_whole(&media::files(stream())[0]);
}

/// The store made the object, and its answer was on the way when it was deleted.
#[test]
fn an_object_that_was_just_made_is_deleted_too() {
    let kit = Kit::impatient();
    kit.server.script(|_, ask| if ask == Ask::Complete { Act::DoAndHang } else { Act::Pass });
    kit.record("s1", stream());
    assert!(until(|| kit.server.objects().len() == 1));
    let name = kit.only().file_name;
    kit.answer(|core, answer| actions::delete(core, &name, true, answer)).unwrap();
    assert!(until(|| kit.server.objects().is_empty() && kit.recordings().is_empty()));
}

#[test]
fn running_recordings_are_not_deleted() {
    let kit = Kit::new();
    let mut recorder = kit.recorder(kit.order("s1"));
    kit.run(async {
        for packet in stream() {
            recorder.push(packet);
            recorder.write().await.unwrap();
        }
    });
    let name = kit.only().file_name;
    let refused = kit.answer(|core, answer| actions::delete(core, &name, true, answer)).unwrap_err();
    assert_eq!(refused, Refusal::DeletedWhileRecording.of(&name));
    assert!(actions::sign(kit.core(), &name, Duration::from_secs(60)).is_err());
    kit.run(recorder.finish()).unwrap();
    kit.until_all(RecordingState::Ready);
}

#[test]
fn a_signed_address_gives_the_object_without_a_login() {
    let kit = Kit::new();
    kit.record("s1", stream());
    kit.until_all(RecordingState::Ready);
    let url = actions::sign(kit.core(), &kit.only().file_name, Duration::from_secs(3600)).unwrap();
    assert!(url.contains("X-Amz-Expires=3600"), "{url}");
    let path = url.strip_prefix(&format!("http://{}", kit.server.address)).unwrap().to_owned();
    let fetched = kit.run(async {
        let mut socket = tokio::net::TcpStream::connect(kit.server.address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", kit.server.address);
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.unwrap();
        answer
    });
    let body = fetched.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    assert!(fetched.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&fetched[..body]));
    assert!(fetched[body..] == media::files(stream())[0]);
}

/// Requests the deletion of the only recording at the store, and kills the driver when `ask` hangs.
fn killed_while_it_deletes(kit: &mut Kit, ask: Ask, act: Act) {
    let name = kit.only().file_name;
    kit.server.script(move |_, asked| if asked == ask { act } else { Act::Pass });
    kit.run(async {
        actions::delete(kit.core(), &name, true, satcast_plugin_api::driver::Answer::calling(|_| {}));
    });
    assert!(until(|| kit.server.asked().contains(&ask)), "{:?}", kit.server.asked());
    assert!(kit.reported().iter().all(|one| !one.gone), "it is listed until the store has deleted it");
    kit.kill();
    kit.server.script(|_, _| Act::Pass);
    kit.load();
    assert!(kit.recordings().is_empty(), "it is reported as gone at once: {:?}", kit.reported());
    let is_gone = || kit.server.objects().is_empty() && kit.server.leftovers().is_empty();
    assert!(until(|| is_gone() && kit.files("spool").is_empty()), "{:?}", kit.server.leftovers());
    let reported = kit.reported().remove(0);
    assert_eq!((reported.gone, reported.error.as_deref(), reported.url), (true, Some(DELETED), None));
    assert!(
        !kit.host.reports.lock().iter().any(|one| one.gone),
        "the deletion is answered before it is reported"
    );
    // A note of it stays, without keys.
    kit.kill();
    kit.load();
    assert!(kit.reported()[0].gone && !kit.server.asked().contains(&Ask::Open));
    // A kill may have come before it was written so.
    let journal = kit.folder.path().join("journal");
    assert!(until(|| super::kit::is_nowhere(&journal, "\"operators\":\"")));
}

#[test]
fn a_deletion_continues_after_a_kill() {
    for act in [Act::Hang, Act::DoAndHang] {
        let mut kit = Kit::impatient();
        kit.record("s1", stream());
        kit.until_all(RecordingState::Ready);
        killed_while_it_deletes(&mut kit, Ask::Delete, act);
        let mut kit = Kit::impatient();
        kit.server.script(|_, ask| if ask == Ask::Complete { Act::Hang } else { Act::Pass });
        kit.record("s1", stream());
        assert!(until(|| kit.server.asked().contains(&Ask::Complete)));
        killed_while_it_deletes(&mut kit, Ask::Abort, act);
    }
}

#[test]
fn a_refused_deletion_is_not_resumed_at_the_next_start() {
    let mut kit = Kit::new();
    kit.record("s1", stream());
    kit.until_all(RecordingState::Ready);
    let name = kit.only().file_name;
    kit.server.on(Ask::Delete, 1, Act::Answer(403));
    let refused = kit.answer(|core, answer| actions::delete(core, &name, true, answer)).unwrap_err();
    assert_eq!(refused.class, Class::Auth);
    kit.kill();
    kit.load();
    assert_eq!((kit.only().state, kit.server.objects().len()), (RecordingState::Ready, 1));
}

#[test]
fn a_copy_removed_by_hand_is_reported_before_a_charge() {
    let (kit, name) = failed();
    assert!(kit.only().has_copy);
    let file = kit.files("spool").remove(0);
    std::fs::remove_file(kit.folder.path().join("spool").join(file)).unwrap();
    assert!(!kit.only().has_copy);
    let gone = kit.answer(|core, answer| actions::retry(core, &name, answer)).unwrap_err();
    assert_eq!(gone, Refusal::CopyGone.of(&name));
}
