//! What a child may answer about recordings, and what becomes of requests when it ends. The test is the child.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use satcast_plugin_api::driver_state::State;
use satcast_plugin_api::host::{Asset, Connected, LogLine, Playback, Services};
use satcast_plugin_api::recording::{RECORDINGS_MAX, RecordingState};

use super::*;
use crate::config::ProcessLimits;
use crate::drivers::control::Pump;
use crate::drivers::process::Spec;
use crate::drivers::process::channel::{Channel, MESSAGE_BYTES_MAX};
use crate::drivers::process::handed::{NOT_SEALED, NOTHING, refused};
use crate::drivers::process::message::{self, Message, ToHost};

/// Writes down what it is told of recordings.
#[derive(Default)]
pub(in super::super) struct Listener(Mutex<Vec<Recording>>);

impl Services for Listener {
    fn log(&self, _: LogLine) {}
    fn state(&self, _: u64, _: State, _: Option<Error>) {}
    fn event(&self, _: u64, _: &str, _: &str) {}
    fn metric(&self, _: u64, _: &str) -> Option<Arc<AtomicU64>> {
        None
    }
    fn stopped(&self, _: u64, _: Result<(), Error>) {}
    fn connect(&self, _: u64, _: String, _: u16, _: Duration, _: Connected) {}
    fn data_dir(&self) -> Result<std::path::PathBuf, Error> {
        Err(Error::internal("none"))
    }
    fn publish(&self, _: u64, _: Asset) -> Result<(), Error> {
        Ok(())
    }
    fn retract(&self, _: u64, _: &str) {}
    fn playback(&self, _: u64, _: Playback) -> Result<(), Error> {
        Ok(())
    }
    fn recording(&self, recording: Recording) -> Result<(), Error> {
        self.0.lock().push(recording);
        Ok(())
    }
}

fn recording(name: &str) -> Recording {
    Recording {
        file_name: name.into(),
        destination_id: 1,
        session_id: "s".into(),
        state: RecordingState::Uploading,
        size_bytes: 1,
        uploaded_bytes: 0,
        duration_ms: 1,
        error: None,
        error_class: None,
        url: None,
        started_at_ms: 1,
        changed_at_ms: 1,
        attempt: 0,
        attempt_opened: false,
        has_copy: true,
        gone: false,
    }
}

/// A session, the child's end of its socket, and who hears of recordings.
pub(in super::super) fn begin() -> (Arc<Session>, Channel, Arc<Listener>) {
    let nowhere = std::path::PathBuf::from("/nowhere");
    let spec =
        Spec { exe: nowhere.clone(), id: "t".into(), image: nowhere, limits: ProcessLimits::default() };
    let listener = Arc::new(Listener::default());
    let services: Arc<dyn Services> = listener.clone();
    let (session, theirs) =
        Session::begin(&spec, &services, &Arc::new(Pump::start("t").unwrap()), 3).unwrap();
    let child = Channel::new(theirs);
    // The first message.
    child.recv(&mut vec![0; MESSAGE_BYTES_MAX]).unwrap();
    (session, child, listener)
}

/// Answers the next call with `outcome` and `memory` beside it; gives the call.
fn answering(
    session: &Arc<Session>,
    child: Channel,
    outcome: Result<bool, Failure>,
    memory: Option<OwnedFd>,
) -> JoinHandle<(ToChild, Channel)> {
    let session = session.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let (len, _) = child.recv(&mut buffer).unwrap();
        let Ok(Message::Text(asked)) = message::read::<ToChild>(&buffer[..len]) else { panic!("no call") };
        let call = match *asked {
            ToChild::Recordings { call }
            | ToChild::Sign { call, .. }
            | ToChild::Retry { call, .. }
            | ToChild::Delete { call, .. }
            | ToChild::Probe { call, .. }
            | ToChild::Configured { call, .. } => call,
            ref other => panic!("{other:?}"),
        };
        let answer = message::text(&ToHost::Answer { call, outcome });
        let beside: Vec<_> = memory.iter().map(|memory| memory.as_fd()).collect();
        child.send(&answer, &beside).unwrap();
        // The supervisor's part.
        let (len, descriptors) = session.channel.recv(&mut buffer).unwrap();
        assert!(session.handle(&buffer[..len], descriptors).unwrap().is_none());
        (*asked, child)
    })
}

fn memory(list: &impl serde::Serialize) -> Option<OwnedFd> {
    Some(sealed_memory(&serde_json::to_vec(list).unwrap()).unwrap())
}

fn listed(memory: Option<OwnedFd>) -> Result<Listing, String> {
    let (session, child, _) = begin();
    let answered = answering(&session, child, Ok(true), memory);
    let listed = session.list_recordings().map_err(|error| error.message);
    answered.join().unwrap();
    listed
}

#[test]
fn lists_are_checked_before_they_are_believed() {
    let list = |recordings: Vec<Recording>| Listing { recordings, ..Listing::default() };
    let good = list(vec![recording("a.mp4"), recording("b/c.mp4")]);
    assert_eq!(listed(memory(&good)).unwrap(), good);
    assert_eq!(listed(None).unwrap_err(), refused(NOTHING).message);
    assert!(listed(memory(&"nonsense")).unwrap_err().starts_with(UNREADABLE));
    let outside = listed(memory(&list(vec![recording("../b.mp4"), recording("a.mp4")]))).unwrap();
    assert_eq!((outside.recordings, outside.refused_count), (vec![recording("a.mp4")], 1));
    assert!(outside.refused[0].to_string().contains("\"../b.mp4\""));
    let many = list((0..=RECORDINGS_MAX).map(|_| recording("a")).collect());
    assert_eq!(listed(memory(&many)).unwrap_err(), many.checked().unwrap_err().message);
    let pipe = std::io::pipe().unwrap().0;
    assert_eq!(listed(Some(pipe.into())).unwrap_err(), refused(NOT_SEALED).message);
}

#[test]
fn addresses_answer_the_names_that_were_asked_about() {
    let sign = |signed: &serde_json::Value| {
        let (session, child, _) = begin();
        let answered = answering(&session, child, Ok(true), memory(signed));
        let names = ["a".to_owned(), "b".to_owned()];
        let signed = session.sign_recordings(&names, Duration::from_secs(9));
        assert!(matches!(answered.join().unwrap().0, ToChild::Sign { valid_secs: 9, .. }));
        signed
    };
    let good = sign(&serde_json::json!(["https://a", null])).unwrap();
    assert_eq!(good, [Some("https://a".to_owned()), None]);
    let long = format!("https://{}", "x".repeat(SIGNED_BYTES_MAX));
    for bad in [
        serde_json::json!(["https://a"]),
        serde_json::json!([long, null]),
        serde_json::json!(["", null]),
        serde_json::json!(["javascript:alert(1)", null]),
    ] {
        assert!(sign(&bad).is_err(), "{}", bad.to_string().len());
    }
}

/// Asks for an upload; where its outcome goes.
fn retry(session: &Arc<Session>) -> std::sync::mpsc::Receiver<Result<(), Error>> {
    let (tell, told) = std::sync::mpsc::channel();
    let done: Done = Box::new(move |outcome| tell.send(outcome).unwrap());
    session.ask_about(done, |call, request| ToChild::Retry { call, request, file_name: "a".into() });
    told
}

#[test]
fn a_request_has_one_outcome_whatever_the_child_says_and_does() {
    let (session, child, _) = begin();
    let answered = answering(&session, child, Ok(true), None);
    let told = retry(&session);
    let (asked, child) = answered.join().unwrap();
    assert!(told.try_recv().is_err(), "not yet");
    let ToChild::Retry { request, .. } = asked else { panic!("{asked:?}") };
    session.done(request + 1, None);
    session.done(request, Some(Error::remote("no room").into()));
    session.done(request, None);
    assert_eq!(told.recv().unwrap().unwrap_err().message, "no room");
    assert!(told.recv().is_err(), "once");

    let answered = answering(&session, child, Err(Error::internal("it panicked").into()), None);
    assert_eq!(retry(&session).recv().unwrap().unwrap_err().message, "it panicked");
    let (_, child) = answered.join().unwrap();

    let answered = answering(&session, child, Ok(true), None);
    let told = retry(&session);
    drop(answered.join().unwrap());
    session.bury(&Error::internal("it crashed"));
    assert_eq!(told.recv().unwrap().unwrap_err().message, "it crashed");
    assert!(retry(&session).recv().unwrap().is_err(), "after its end");
    assert!(session.requests.lock().is_empty());
}

#[test]
fn requests_without_an_answer_are_bounded() {
    let (session, _child, _) = begin();
    for request in 0..REQUESTS_MAX as u64 {
        session.requests.lock().insert(u64::MAX - request, Box::new(|_| {}));
    }
    let error = retry(&session).recv().unwrap().unwrap_err();
    assert_eq!(error.message, too_slow(&session.id).message);
}

#[test]
fn faults_of_drivers_texts() {
    assert_eq!(
        too_slow("x").message,
        format!("driver x has {REQUESTS_MAX} requests about recordings without an answer; it is too slow")
    );
    assert_eq!(UNREADABLE, "the driver's recordings cannot be read");
}

#[test]
fn what_a_child_tells_of_recordings_is_checked() {
    let (session, _child, listener) = begin();
    session.handle(&message::text(&ToHost::Recording(recording("a.mp4"))), Vec::new()).unwrap();
    let outside = message::text(&ToHost::Recording(recording("/etc/passwd")));
    assert!(session.handle(&outside, Vec::new()).is_err());
    assert_eq!(*listener.0.lock(), [recording("a.mp4")]);
}

#[test]
fn a_child_hears_of_configurations_and_may_refuse_them() {
    let told = |outcome: Result<bool, Failure>, config: Option<&str>| {
        let (session, child, _) = begin();
        let answered = answering(&session, child, outcome, None);
        let told = session.configured(7, "archive", config);
        (told, answered.join().unwrap().0)
    };
    let (outcome, asked) = told(Ok(true), Some("{}"));
    outcome.unwrap();
    let ToChild::Configured { destination_id: 7, kind, config: Some(config), .. } = asked else {
        panic!("{asked:?}")
    };
    assert_eq!((kind.as_str(), config.as_str()), ("archive", "{}"));
    let (outcome, asked) = told(Err(Error::config("bucket: is missing").into()), None);
    assert_eq!(outcome.unwrap_err().message, "bucket: is missing");
    assert!(matches!(asked, ToChild::Configured { config: None, .. }));
}
