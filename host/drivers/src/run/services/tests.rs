//! Limits, redaction and threads of what a driver asks for.

use satcast_plugin_api::Class;

use std::sync::atomic::Ordering;

use super::*;
use satcast_net::outbound::Crowd;

#[derive(Default)]
struct Counting {
    events: AtomicU64,
}

impl Observer for Counting {
    fn state(&self, _: State, _: Option<Error>) {}
    fn stopped(&self, _: Result<(), Error>) {}
    fn event(&self, _: &str, _: serde_json::Value) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }
}

fn opened(secret: &str) -> Opened {
    Opened {
        destination: DestinationId(1),
        observer: Arc::new(Counting::default()),
        counters: Arc::default(),
        assets: Arc::default(),
        redactor: RwLock::new(Arc::new(Redactor::new([secret.to_string()]))),
        log_limit: LogLimit::per_second(LOG_LINES_PER_SEC_MAX),
        event_limit: LogLimit::per_second(EVENTS_PER_SEC_MAX),
        account: 1,
    }
}

fn services() -> DriverServices {
    with_pump().0
}

/// And what keeps its pump thread, without which a driver has ended.
pub(in crate::run) fn with_pump() -> (DriverServices, Arc<Pump>) {
    with_guard(Guard::new(&[]).unwrap())
}

fn with_guard(guard: Guard) -> (DriverServices, Arc<Pump>) {
    let pump = Arc::new(Pump::start("t").unwrap());
    let services = DriverServices::new(
        "t",
        std::env::temp_dir(),
        guard,
        tokio::runtime::Handle::current(),
        Clock::system(),
        OperatorSettings { json: r#"{"token":"operators"}"#.into(), secrets: vec!["operators".into()] },
        &pump,
        RecordingParts::default(),
    );
    (services, pump)
}

#[tokio::test]
async fn connection_outcomes_reach_the_driver_on_its_pump_thread() {
    let (services, _pump) = with_pump();
    services.insert(7, opened("secret"));
    let (tell, told) = tokio::sync::oneshot::channel();
    let done = move |outcome: Result<OwnedFd, Error>| {
        let thread = std::thread::current().name().map(str::to_owned);
        let _ = tell.send((thread, outcome.map(drop).map_err(|error| error.class)));
    };
    services.connect(7, "127.0.0.1".into(), 9, Duration::from_secs(1), Box::new(done));
    let (thread, outcome) = told.await.unwrap();
    assert_eq!((thread.as_deref(), outcome), (Some("p:t"), Err(Class::Config)));
}

#[tokio::test]
async fn a_driver_connects_for_itself_past_the_same_guard() {
    let (services, pump) = with_pump();
    for (dest, said) in [(0, Class::Config), (99, Class::Internal)] {
        let (tell, told) = tokio::sync::oneshot::channel();
        let done = move |outcome: Result<OwnedFd, Error>| {
            let _ = tell.send(outcome.map(drop).map_err(|error| error.class));
        };
        services.connect(dest, "127.0.0.1".into(), 9, Duration::from_secs(1), Box::new(done));
        assert_eq!(told.await.unwrap(), Err(said), "{dest}");
    }
    // What a driver's table keeps for late calls does not keep its thread.
    assert_eq!(Arc::strong_count(&pump), 1);
    drop(pump);
    let (tell, told) = std::sync::mpsc::channel();
    let done = move |outcome: Result<OwnedFd, Error>| tell.send(outcome.map(drop)).unwrap();
    services.connect(0, "127.0.0.1".into(), 9, Duration::from_secs(1), Box::new(done));
    let refused = told.recv().unwrap().unwrap_err();
    assert_eq!((refused.class, refused.message.as_str()), (Class::Internal, ENDED));
}

#[tokio::test]
async fn names_of_one_account_that_hang_keep_no_other_from_connecting() {
    let local = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = local.local_addr().unwrap().port();
    let resolver = Arc::new(|name: String| -> futures_util::future::BoxFuture<'static, _> {
        Box::pin(async move {
            if name.starts_with("slow") {
                std::future::pending::<()>().await;
            }
            Ok(vec![std::net::IpAddr::from([127, 0, 0, 1])])
        })
    });
    let (services, _pump) = with_guard(Guard::new(&["127.0.0.1".into()]).unwrap().resolving(resolver));
    services.insert(1, opened("secret"));
    services.insert(2, Opened { account: 2, ..opened("secret") });
    let connect = |dest, host: String, limit| {
        let (tell, told) = tokio::sync::oneshot::channel();
        let done = move |outcome: Result<OwnedFd, Error>| {
            let _ = tell.send(outcome.map(drop));
        };
        services.connect(dest, host, port, limit, Box::new(done));
        told
    };
    let limit = Duration::from_secs(1);
    let slow: Vec<_> = (0..200).map(|number| connect(1, format!("slow{number}.example"), limit)).collect();
    // That they ask is seen by a place that is missing.
    let own = connect(1, "own.example".into(), limit / 2).await.unwrap().unwrap_err();
    assert!(own.class == Class::Network && own.message.contains(&Crowd::Own.to_string()), "{own}");
    for dest in [2, DRIVER_ITSELF] {
        assert_eq!(connect(dest, "good.example".into(), limit).await.unwrap(), Ok(()), "{dest}");
    }
    for slow in slow {
        assert_eq!(slow.await.unwrap().unwrap_err().class, Class::Network);
    }
}

#[tokio::test]
async fn a_driver_waits_for_so_many_connections_and_no_more() {
    let (services, _pump) = with_pump();
    let connect = || {
        let (tell, told) = std::sync::mpsc::channel();
        let done = move |outcome: Result<OwnedFd, Error>| tell.send(outcome.map(drop)).unwrap();
        services.connect(0, "127.0.0.1".into(), 9, Duration::from_secs(1), Box::new(done));
        async move {
            loop {
                match told.try_recv() {
                    Ok(outcome) => return outcome.unwrap_err(),
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        }
    };
    let mut places: Vec<_> = std::iter::from_fn(|| Connecting::begin(&services.connecting)).collect();
    assert_eq!(places.len(), CONNECTS_MAX as usize);
    let refused = connect().await.message;
    assert!(refused.contains(&format!("{CONNECTS_MAX} connections")), "{refused}");
    places.pop();
    for _ in 0..3 {
        assert_eq!(connect().await.class, Class::Config, "asked, and refused by the guard");
        // Given back on the pump thread, after the driver had its answer.
        while services.connecting.load(Ordering::Acquire) >= CONNECTS_MAX {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    drop(places);
    assert_eq!(services.connecting.load(Ordering::Acquire), 0);
}

#[tokio::test]
async fn a_recording_is_passed_on_without_secrets() {
    let services = services();
    let mut recording: Recording = serde_json::from_value(serde_json::json!({
        "fileName": "a.mp4", "destinationId": 1, "sessionId": "s", "state": "failed", "sizeBytes": 1,
        "uploadedBytes": 0, "durationMs": 1, "error": "operators is no key", "errorClass": "auth",
        "url": null, "startedAtMs": 1, "changedAtMs": 1, "attempt": 0, "attemptOpened": false
    }))
    .unwrap();
    Services::recording(&services, recording.clone()).unwrap();
    recording.error = Some("*** is no key".into());
    assert_eq!(services.recordings.reports.take().reports, [("t".to_owned(), recording)]);
    assert!(Services::seal(&services, "x").is_err(), "without a key nothing is encrypted");
}

#[tokio::test]
async fn lines_without_a_destination_lose_the_secrets_of_all() {
    let services = services();
    services.insert(1, opened("first-secret"));
    services.insert(2, opened("second-secret"));
    services.remove(1);
    let text = "first-secret second-secret operators third";
    assert_eq!(services.clean(None, text), "*** *** *** third");
    services.insert(
        3,
        Opened { redactor: RwLock::new(services.redactor(vec!["third-secret".into()])), ..opened("") },
    );
    services.hide_more(3, vec!["later-secret".into()]);
    let text = "third-secret later-secret operators";
    assert_eq!(services.clean(services.find(3).as_deref(), text), "*** *** ***");
    assert_eq!(Services::settings(&services), r#"{"token":"operators"}"#);
    let long = format!("{}second-secret", "x".repeat(LOG_TEXT_BYTES_MAX - 4));
    assert!(!services.clean(services.find(2).as_deref(), &long).contains("seco"), "cleaned before it is cut");
}

#[test]
fn counters_are_shared_and_limited() {
    let counters = Counters::default();
    counters.get("bytes_sent").unwrap().fetch_add(7, Ordering::Relaxed);
    assert_eq!(counters.value("bytes_sent"), 7);
    for n in 1..COUNTERS_MAX {
        assert!(counters.get(&format!("c{n}")).is_some());
    }
    assert!(counters.get("one too many").is_none());
    assert!(counters.get("bytes_sent").is_some());
    assert_eq!(counters.value("unknown"), 0);
}

#[test]
fn text_is_cut_and_made_printable() {
    assert_eq!(printable("a\x1b[31m\nb"), "a [31m b");
    let shown = shown(&Redactor::new(["secret".to_owned()]), &format!("a\x1b\nsecret{}", "b".repeat(2_000)));
    assert!(shown.starts_with("a  ***bb") && shown.len() == ERROR_TEXT_BYTES_MAX, "{shown}");
    assert_eq!(printable(&"ä".repeat(LOG_TEXT_BYTES_MAX)).len(), LOG_TEXT_BYTES_MAX);
}

#[tokio::test]
async fn a_flood_of_events_is_cut() {
    let mut services = services();
    services.clock = Clock::manual(satcast_core::ids::UnixMillis(0));
    let observer = Arc::new(Counting::default());
    services.insert(1, Opened { observer: observer.clone(), ..opened("secret") });
    let told = || observer.events.load(Ordering::Relaxed);
    for _ in 0..2 * EVENTS_PER_SEC_MAX {
        services.event(1, "e", "{}");
    }
    assert_eq!(told(), u64::from(EVENTS_PER_SEC_MAX));
    services.clock.advance(Duration::from_secs(1));
    services.event(1, "e", &format!("\"{}\"", "x".repeat(EVENT_BYTES_MAX)));
    services.event(1, "e", "{");
    services.event(1, "e", "{}");
    assert_eq!(told(), u64::from(EVENTS_PER_SEC_MAX) + 1);
    // Of all its destinations together.
    for dest in 2..100 {
        services.insert(dest, Opened { observer: observer.clone(), ..opened("secret") });
    }
    services.clock.advance(Duration::from_secs(1));
    let before = told();
    (0..1_000).for_each(|n| services.event(n % 100, "e", "{}"));
    assert_eq!(told() - before, u64::from(DRIVER_EVENTS_PER_SEC_MAX));
}

#[tokio::test]
async fn a_flood_of_reports_is_cut_and_a_list_is_left_to_find_the_rest() {
    let mut services = services();
    services.clock = Clock::manual(satcast_core::ids::UnixMillis(0));
    let recording = Recording {
        file_name: "a.mp4".into(),
        destination_id: 1,
        session_id: "s".into(),
        state: satcast_plugin_api::recording::RecordingState::Recording,
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
    };
    for _ in 0..REPORTS_PER_SEC_MAX {
        assert!(services.report_limit.admit(services.clock.monotonic()).is_some());
    }
    services.recording(recording.clone()).unwrap();
    assert!(services.recordings.reports.take().reports.is_empty());
    services.clock.advance(Duration::from_secs(1));
    services.recording(recording.clone()).unwrap();
    let told = services.recordings.reports.take();
    assert_eq!(told.reports, [("t".to_owned(), recording)], "another second");
}

#[tokio::test]
async fn a_driver_says_so_much_through_all_its_destinations_and_no_more() {
    let mut services = services();
    services.clock = Clock::manual(satcast_core::ids::UnixMillis(0));
    (1..=100).for_each(|dest| services.insert(dest, opened("secret")));
    let admitted = |bytes: usize| {
        services.clock.advance(Duration::from_secs(1));
        let lines = (0..20_000_u64).filter(|n| {
            let opened = services.find(n % 101);
            services.may_write(opened.as_deref(), bytes)
        });
        lines.count()
    };
    assert_eq!(
        admitted(0),
        DRIVER_LOG_LINES_PER_SEC_MAX as usize,
        "an output without a destination included"
    );
    let large = admitted(LOG_TEXT_BYTES_MAX);
    assert_eq!(large, DRIVER_LOG_BYTES_PER_SEC_MAX / (LOG_TEXT_BYTES_MAX + 128));
}

#[tokio::test]
async fn counters_have_plain_names_and_few_in_all() {
    let services = services();
    (1..=100).for_each(|dest| services.insert(dest, opened("secret")));
    let long = "x".repeat(counters::COUNTER_NAME_BYTES_MAX + 1);
    for bad in ["", "A", "a b", "a\"b", "\u{e4}", &long] {
        assert!(services.metric(1, bad).is_none(), "{bad:?}");
    }
    let given =
        (0..1_000_u64).filter(|n| services.metric(n % 100 + 1, &format!("c-{n}.x_1")).is_some()).count();
    assert_eq!(given, COUNTERS_MAX - 1, "of all destinations together");
    assert!(services.metric(99, "bytes_sent").is_some() && services.metric(100, "c-1.x_1").is_some());
    let counters = Counters::default();
    counters.get("bytes_sent").unwrap().fetch_add(1, Ordering::Relaxed);
    counters.get("frames").unwrap().fetch_add(2, Ordering::Relaxed);
    assert_eq!(counters.own(), [("frames".to_owned(), 2)]);
}

#[tokio::test]
async fn panics_of_one_account_take_the_driver_from_nobody_else() {
    let services = services();
    let panic = Error::new(Class::Panic, "the driver panicked");
    for _ in 0..3 {
        services.note(1, &Error::network("no panic"));
        services.note(1, &panic);
    }
    assert!(services.may_ask(1).is_ok() && services.may_open(2).is_ok());
    let refused = services.may_open(1).unwrap_err();
    assert!(refused.retry_after.is_some() && services.may_open(2).is_ok(), "{refused:?}");
    services.forgive();
    assert!(services.may_open(1).is_ok());
    for account in [1, 2, 1, 2, 3, 4, 5] {
        services.note(account, &panic);
    }
    assert!((1..6).all(|account| services.may_open(account).is_ok()), "nobody panicked it too often");
    for account in [1, 2, 3, 3, 3] {
        services.note(account, &panic);
    }
    assert!(services.may_ask(9).is_err() && services.may_open(9).is_err());
}

#[test]
fn an_ended_driver_text() {
    assert_eq!(ENDED, "this driver has ended");
}
