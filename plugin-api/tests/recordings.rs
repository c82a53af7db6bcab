//! Recordings that outlive their sessions, and host functions without a destination, over the real C table.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use std::io::Read as _;
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use satcast_plugin_api::driver::{
    About, Answer, BytesAnswer, Config, Ctx, Destination, Driver, DriverInfo, DynDestination, Fragment, Host,
    IndexAnswer, Media, Recording, RecordingIndex, RecordingState, Recordings,
};
use satcast_plugin_api::recording::{
    FinishedFile, INDEX_FRAGMENTS_MAX, READ_RANGE_BYTES_MAX, SEAL_BYTES_MAX,
};
use satcast_plugin_api::testkit::{HostCall, Testkit};
use satcast_plugin_api::{Class, DestType, Error, driver_entry};
use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Cfg {
    #[serde(default)]
    secret: String,
}

struct Keeper {
    host: Host,
    journal: Mutex<Vec<Recording>>,
    kept_answer: Mutex<Option<Answer>>,
}

struct Out;

impl Driver for Keeper {
    const INFO: DriverInfo = DriverInfo { id: "keeper", version: "1.0.0", title: "Keeper" };

    fn types() -> Vec<DestType> {
        vec![DestType::of::<Cfg>("keeper")]
    }

    fn load(host: &Host) -> Result<Self, Error> {
        let journal = Mutex::new(vec![recording("a.mp4"), recording("b.mp4")]);
        Ok(Keeper { host: host.clone(), journal, kept_answer: Mutex::default() })
    }

    fn open(&self, _: Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        Ok(Arc::new(Out))
    }

    fn recordings(&self) -> Option<&dyn Recordings> {
        Some(self)
    }
}

impl Destination for Out {
    async fn run(self: Arc<Self>, ctx: Ctx, mut media: Media) -> Result<(), Error> {
        ctx.event("about", &json!(ctx.about()));
        while media.recv_batch(&mut Vec::new()).await {}
        Ok(())
    }
}

fn recording(file_name: &str) -> Recording {
    Recording {
        file_name: file_name.into(),
        destination_id: 3,
        session_id: "s".into(),
        state: RecordingState::Uploading,
        size_bytes: 10,
        uploaded_bytes: 5,
        duration_ms: 1000,
        error: None,
        error_class: None,
        url: None,
        started_at_ms: 1,
        changed_at_ms: 2,
        attempt: 0,
        attempt_opened: false,
        has_copy: true,
        gone: false,
        expires_at_ms: None,
        asks_notice: false,
        audio_only: false,
    }
}

impl Recordings for Keeper {
    fn configured(&self, destination_id: i64, config: Option<Config<'_>>) -> Result<(), Error> {
        assert!(destination_id != 99, "configured panics");
        let parsed = config.map(|config| Ok((config.type_name().to_owned(), config.parse::<Cfg>()?)));
        let parsed: Option<(String, Cfg)> = parsed.transpose()?;
        // For the test to read.
        let session_id = format!("configured {destination_id} {parsed:?}");
        self.host.recording(&Recording { session_id, ..recording("configured.mp4") })
    }

    fn announced(&self, file_name: &str, expires_at_ms: i64) -> Result<(), Error> {
        assert!(file_name != "panic", "announced panics");
        let mut journal = self.journal.lock();
        let found = journal.iter_mut().find(|recording| recording.file_name == file_name);
        let found = found.ok_or_else(|| Error::config("no such recording"))?;
        found.expires_at_ms = Some(expires_at_ms);
        Ok(())
    }

    fn list(&self) -> Result<Vec<Recording>, Error> {
        Ok(self.journal.lock().clone())
    }

    fn read(&self, file_name: &str, offset: u64, bytes: u32, answer: BytesAnswer) {
        match file_name {
            "panic" => panic!("read panics"),
            "drop" => drop(answer),
            "short" => answer.give(Ok(Bytes::from(vec![1; bytes as usize - 1]))),
            "long" => answer.give(Ok(Bytes::from(vec![1; bytes as usize + 1]))),
            "refuse" => answer.give(Err(Error::remote("the store said 503"))),
            _ => {
                tokio::spawn(async move {
                    answer.give(Ok(Bytes::from(vec![offset as u8; bytes as usize])));
                });
            }
        }
    }

    fn index(&self, file_name: &str, first: u64, most: u32, answer: IndexAnswer) {
        let fragment = |number: u64| Fragment {
            offset: 7 + 10 * number,
            bytes: 10,
            start_us: 5 * number,
            duration_us: 5,
            is_keyframe: number == 0,
        };
        match file_name {
            "panic" => panic!("index panics"),
            "drop" => drop(answer),
            "gap" => {
                let fragments = vec![fragment(0), fragment(2)];
                answer.give(Ok(RecordingIndex { fragments, bytes: 37, ..RecordingIndex::default() }));
            }
            _ => {
                let fragments = (first..3).map(fragment).take(most as usize).collect();
                let index = RecordingIndex {
                    init_bytes: 7,
                    bytes: 37,
                    count: 3,
                    is_complete: true,
                    first,
                    fragments,
                };
                answer.give(Ok(index));
            }
        }
    }

    fn keep(&self, file: FinishedFile, config: Config<'_>, answer: Answer) {
        match file.file_name.as_str() {
            "panic.mp4" => panic!("keep panics"),
            "drop.mp4" => drop(answer),
            name => {
                let kept = config.parse::<Cfg>().map(|_| {
                    let uploading = Recording {
                        destination_id: file.about.destination_id,
                        session_id: file.path.clone(),
                        started_at_ms: file.started_at_ms,
                        duration_ms: file.duration_ms,
                        audio_only: file.audio_only,
                        ..recording(name)
                    };
                    self.journal.lock().push(uploading);
                });
                answer.give(kept);
            }
        }
    }

    fn retry(&self, file_name: &str, answer: Answer) {
        match file_name {
            "panic" => panic!("retry panics"),
            "drop" => drop(answer),
            "never" => *self.kept_answer.lock() = Some(answer),
            "refuse" => answer.give(Err(Error::remote("the store said 503"))),
            _ => {
                let host = self.host.clone();
                let again = Recording { attempt: 1, attempt_opened: true, ..recording(file_name) };
                tokio::spawn(async move { answer.give(host.recording(&again)) });
            }
        }
    }

    fn delete(&self, file_name: &str, remote: bool, answer: Answer) {
        let host = self.host.clone();
        if let Some(port) = file_name.strip_prefix("port-").and_then(|port| port.parse().ok()) {
            tokio::spawn(async move {
                let connected = host.connect("127.0.0.1", port, Duration::from_secs(5)).await;
                answer.give(connected.map(drop));
            });
            return;
        }
        if remote {
            self.journal.lock().retain(|recording| recording.file_name != file_name);
        }
        answer.give(Ok(()));
    }

    fn sign(&self, file_name: &str, valid: Duration) -> Result<String, Error> {
        match file_name {
            "panic" => panic!("sign panics"),
            "long" => Ok("u".repeat(1024 * 1024)),
            "" => Err(Error::config("no such recording")),
            _ => {
                let sealed = self.host.seal(file_name)?;
                assert!(!sealed.contains(file_name), "{sealed}");
                Ok(format!("https://{}?{}", self.host.unseal(&sealed)?, valid.as_secs()))
            }
        }
    }
}

driver_entry!(entry, Keeper);

// One driver has one slot in a process, so this is one test; each step is a function.
#[test]
fn recordings_over_the_table() {
    let kit = Testkit::start(entry).unwrap();
    passes_facts_about_the_opening(&kit);
    lists(&kit);
    answers(&kit);
    keeps(&kit);
    signs(&kit);
    reads(&kit);
    connects_without_a_destination(&kit);
    reports_are_checked(&kit);
    passes_configurations(&kit);
    confirms_notices(&kit);
    kit.shut_down();
}

fn passes_facts_about_the_opening(kit: &Testkit) {
    let about = About {
        destination_id: 7,
        session_id: "ses".into(),
        stream_key_id: 2,
        label: "Friday \"talk\"".into(),
        session_started_ms: 1_790_000_000_000,
        account_id: 5,
        via: vec!["0123456789abcdef".into()],
    };
    let dest = kit.open_for(&about, "keeper", &json!({})).unwrap();
    dest.stop();
    dest.wait_for_end().unwrap();
    dest.report(|report| {
        assert_eq!(serde_json::from_str::<About>(&report.events[0].1).unwrap(), about);
    });
}

fn lists(kit: &Testkit) {
    assert_eq!(kit.recordings().unwrap(), [recording("a.mp4"), recording("b.mp4")]);
    kit.delete_recording("a.mp4", false).unwrap();
    assert_eq!(kit.recordings().unwrap().len(), 2, "without the flag this driver keeps it");
    kit.delete_recording("a.mp4", true).unwrap();
    assert_eq!(kit.recordings().unwrap(), [recording("b.mp4")]);
}

fn answers(kit: &Testkit) {
    kit.retry_recording("b.mp4").unwrap();
    let reported = kit.wait_for_recording(|recording| recording.attempt == 1).unwrap();
    assert!(reported.attempt_opened);
    assert_eq!(kit.reported_recordings(), [reported]);
    let refused = kit.retry_recording("refuse").unwrap_err();
    assert_eq!((refused.class, refused.message.as_str()), (Class::Remote, "the store said 503"));
    for lost in ["drop", "panic"] {
        assert_eq!(kit.retry_recording(lost), Err(dropped_answer()), "{lost}");
    }
    kit.fail(HostCall::Recording, Error::internal("the mirror is full"));
    assert_eq!(kit.retry_recording("b.mp4").unwrap_err().message, "the mirror is full");
    kit.heal(HostCall::Recording);
}

fn keeps(kit: &Testkit) {
    let about = About { destination_id: 7, ..About::default() };
    let file = |file_name: &str, path: &str| FinishedFile {
        file_name: file_name.into(),
        path: path.into(),
        about: about.clone(),
        started_at_ms: 11,
        duration_ms: 12,
        audio_only: true,
    };
    kit.keep_file("keeper", &json!({}), &file("clips/c.mp4", "clips/1.mp4")).unwrap();
    let kept = kit.recordings().unwrap().pop().unwrap();
    assert_eq!((kept.file_name.as_str(), kept.session_id.as_str()), ("clips/c.mp4", "clips/1.mp4"));
    assert_eq!((kept.destination_id, kept.started_at_ms, kept.duration_ms), (7, 11, 12));
    assert!(kept.audio_only);
    let refused =
        |config: Value, file: &FinishedFile| kit.keep_file("keeper", &config, file).unwrap_err().class;
    assert_eq!(refused(json!({ "other": 1 }), &file("d.mp4", "d.mp4")), Class::Config);
    // Neither leaves the folder of the driver.
    assert_eq!(refused(json!({}), &file("../d.mp4", "d.mp4")), Class::Internal);
    assert_eq!(refused(json!({}), &file("d.mp4", "../d.mp4")), Class::Internal);
    for lost in ["drop.mp4", "panic.mp4"] {
        assert_eq!(
            kit.keep_file("keeper", &json!({}), &file(lost, "d.mp4")),
            Err(dropped_answer()),
            "{lost}"
        );
    }
    kit.delete_recording("clips/c.mp4", true).unwrap();
}

fn signs(kit: &Testkit) {
    let hour = Duration::from_secs(3600);
    assert_eq!(kit.sign_recording("b.mp4", hour).unwrap(), "https://b.mp4?3600");
    assert_eq!(kit.sign_recording("", hour).unwrap_err().message, "no such recording");
    assert_eq!(kit.sign_recording("panic", hour).unwrap_err().class, Class::Panic);
    let refused = kit.sign_recording("long", hour).unwrap_err();
    assert!(refused.class == Class::Internal && refused.message.contains("https://"), "{refused}");
    let most = "x".repeat(SEAL_BYTES_MAX + 1);
    let refused = kit.sign_recording(&most, hour).unwrap_err();
    assert!(refused.message.contains(&SEAL_BYTES_MAX.to_string()), "too long to seal: {refused}");
    for call in [HostCall::Seal, HostCall::Unseal] {
        kit.fail(call, Error::internal("no key"));
        assert_eq!(kit.sign_recording("b.mp4", hour).unwrap_err().message, "no key");
        kit.heal(call);
    }
}

fn reads(kit: &Testkit) {
    let most = READ_RANGE_BYTES_MAX;
    assert_eq!(kit.read_recording("b.mp4", 7, 3).unwrap(), [7; 3][..]);
    assert_eq!(kit.read_recording("b.mp4", 9, most).unwrap().len(), most as usize);
    let refused = kit.read_recording("refuse", 0, 1).unwrap_err();
    assert_eq!((refused.class, refused.message.as_str()), (Class::Remote, "the store said 503"));
    for len in [0, most + 1] {
        assert_eq!(kit.read_recording("b.mp4", 0, len).unwrap_err().class, Class::Internal, "{len} bytes");
    }
    for wrong in ["short", "long", "drop", "panic"] {
        assert_eq!(kit.read_recording(wrong, 0, 8).unwrap_err().class, Class::Internal, "{wrong}");
    }
    let index = kit.index_recording("b.mp4", 1, 1).unwrap();
    assert_eq!((index.first, index.count, index.fragments[0].offset), (1, 3, 17));
    assert!(kit.index_recording("b.mp4", 3, 1).unwrap().fragments.is_empty());
    for most in [0, INDEX_FRAGMENTS_MAX + 1] {
        assert_eq!(kit.index_recording("b.mp4", 0, most).unwrap_err().class, Class::Internal, "{most}");
    }
    for wrong in ["gap", "drop", "panic"] {
        assert_eq!(kit.index_recording(wrong, 0, 8).unwrap_err().class, Class::Internal, "{wrong}");
    }
}

fn connects_without_a_destination(kit: &Testkit) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    kit.delete_recording(&format!("port-{port}"), false).unwrap();
    let read = listener.accept().unwrap().0.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(read, 0, "the connection was opened and closed");
    drop(listener);
    let refused = kit.delete_recording(&format!("port-{port}"), false).unwrap_err();
    assert_eq!(refused.class, Class::Network);
}

fn reports_are_checked(kit: &Testkit) {
    let before = kit.reported_recordings().len();
    let rule = recording("../up").check();
    assert!(rule.is_err());
    assert_eq!(kit.retry_recording("../up"), rule);
    assert_eq!(kit.reported_recordings().len(), before);
}

fn passes_configurations(kit: &Testkit) {
    let last = || kit.reported_recordings().pop().unwrap().session_id;
    kit.configure_recordings(7, "keeper", Some(&json!({ "secret": "new" }))).unwrap();
    assert_eq!(last(), r#"configured 7 Some(("keeper", Cfg { secret: "new" }))"#);
    kit.configure_recordings(8, "keeper", None).unwrap();
    assert_eq!(last(), "configured 8 None", "the destination was deleted");
    let refused = kit.configure_recordings(7, "keeper", Some(&json!({ "other": 1 }))).unwrap_err();
    assert_eq!(refused.class, Class::Config);
    assert_eq!(kit.configure_recordings(99, "keeper", None).unwrap_err().class, Class::Panic);
}

fn confirms_notices(kit: &Testkit) {
    kit.announce_expiry("b.mp4", 77).unwrap();
    assert_eq!(kit.recordings().unwrap()[0].expires_at_ms, Some(77));
    assert_eq!(kit.announce_expiry("other", 77).unwrap_err().class, Class::Config);
    assert_eq!(kit.announce_expiry("panic", 77).unwrap_err().class, Class::Panic);
}

/// The outcome of an answer that a driver drops.
fn dropped_answer() -> Error {
    let (sender, given) = mpsc::channel();
    drop(Answer::calling(move |outcome| sender.send(outcome).unwrap()));
    given.recv().unwrap().unwrap_err()
}

#[test]
fn dropped_answer_text() {
    assert_eq!(dropped_answer(), Error::internal("the driver dropped a request without an answer"));
}

#[test]
fn an_answer_is_sent_exactly_once() {
    let (sender, given) = mpsc::channel();
    let answer = |sender: &mpsc::Sender<Result<(), Error>>| {
        let sender = sender.clone();
        Answer::calling(move |outcome| sender.send(outcome).unwrap())
    };
    answer(&sender).give(Ok(()));
    drop(answer(&sender));
    drop(sender);
    let outcomes: Vec<_> = given.iter().collect();
    assert_eq!(outcomes.len(), 2);
    assert_eq!(outcomes[0], Ok(()));
    assert_eq!(outcomes[1].as_ref().unwrap_err().class, Class::Internal);
}
