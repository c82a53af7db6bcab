//! Limits, redaction and threads of a driver's services.

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
        span: tracing::Span::none(),
    }
}

fn services() -> DriverServices {
    with_pump().0
}

/// Also returns its pump thread, without which a driver has ended.
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
async fn connection_results_reach_the_driver_on_its_pump_thread() {
    let (services, _pump) = with_pump();
    services.insert(7, opened("secret"));
    let (report, reported) = tokio::sync::oneshot::channel();
    let done = move |outcome: Result<OwnedFd, Error>| {
        let thread = std::thread::current().name().map(str::to_owned);
        let _ = report.send((thread, outcome.map(drop).map_err(|error| error.class)));
    };
    services.connect(7, "127.0.0.1".into(), 9, Duration::from_secs(1), Box::new(done));
    let (thread, outcome) = reported.await.unwrap();
    assert_eq!((thread.as_deref(), outcome), (Some("p:t"), Err(Class::Config)));
}

#[tokio::test]
async fn a_driver_connects_through_the_same_guard_without_a_destination() {
    let (services, pump) = with_pump();
    for (dest, said) in [(0, Class::Config), (99, Class::Internal)] {
        let (report, reported) = tokio::sync::oneshot::channel();
        let done = move |outcome: Result<OwnedFd, Error>| {
            let _ = report.send(outcome.map(drop).map_err(|error| error.class));
        };
        services.connect(dest, "127.0.0.1".into(), 9, Duration::from_secs(1), Box::new(done));
        assert_eq!(reported.await.unwrap(), Err(said), "{dest}");
        let (report, reported) = tokio::sync::oneshot::channel();
        let done = move |outcome: Result<OwnedFd, Error>| {
            let _ = report.send(outcome.map(drop).map_err(|error| error.class));
        };
        services.connect_udp(dest, "127.0.0.1".into(), 9, Duration::from_secs(1), Box::new(done));
        assert_eq!(reported.await.unwrap(), Err(said), "{dest} by UDP");
    }
    // The references of a driver's table for late calls do not keep its thread.
    assert_eq!(Arc::strong_count(&pump), 1);
    drop(pump);
    let (report, reported) = std::sync::mpsc::channel();
    let done = move |outcome: Result<OwnedFd, Error>| report.send(outcome.map(drop)).unwrap();
    services.connect(0, "127.0.0.1".into(), 9, Duration::from_secs(1), Box::new(done));
    let refused = reported.recv().unwrap().unwrap_err();
    assert_eq!((refused.class, refused.message.as_str()), (Class::Internal, ENDED));
}

#[tokio::test]
async fn hanging_names_of_one_account_do_not_block_other_accounts() {
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
        let (report, reported) = tokio::sync::oneshot::channel();
        let done = move |outcome: Result<OwnedFd, Error>| {
            let _ = report.send(outcome.map(drop));
        };
        services.connect(dest, host, port, limit, Box::new(done));
        reported
    };
    let limit = Duration::from_secs(1);
    let slow: Vec<_> = (0..200).map(|number| connect(1, format!("slow{number}.example"), limit)).collect();
    // A missing permit shows that they connect.
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
async fn waiting_connections_of_a_driver_are_limited() {
    let (services, _pump) = with_pump();
    let connect = || {
        let (report, reported) = std::sync::mpsc::channel();
        let done = move |outcome: Result<OwnedFd, Error>| report.send(outcome.map(drop)).unwrap();
        services.connect(0, "127.0.0.1".into(), 9, Duration::from_secs(1), Box::new(done));
        async move {
            loop {
                match reported.try_recv() {
                    Ok(outcome) => return outcome.unwrap_err(),
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        }
    };
    let mut permits: Vec<_> = std::iter::from_fn(|| Connecting::begin(&services.connecting)).collect();
    assert_eq!(permits.len(), CONNECTS_MAX as usize);
    let refused = connect().await.message;
    assert!(refused.contains(&format!("{CONNECTS_MAX} connections")), "{refused}");
    permits.pop();
    for _ in 0..3 {
        assert_eq!(connect().await.class, Class::Config, "refused by the guard");
        // Returned on the pump thread, after the driver got its answer.
        while services.connecting.load(Ordering::Acquire) >= CONNECTS_MAX {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    drop(permits);
    assert_eq!(services.connecting.load(Ordering::Acquire), 0);
}

#[tokio::test]
async fn recordings_are_passed_on_without_secrets() {
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
async fn lines_without_a_destination_are_cleaned_of_all_secrets() {
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
async fn events_are_limited() {
    let mut services = services();
    services.clock = Clock::manual(satcast_core::ids::UnixMillis(0));
    let observer = Arc::new(Counting::default());
    services.insert(1, Opened { observer: observer.clone(), ..opened("secret") });
    let reported = || observer.events.load(Ordering::Relaxed);
    for _ in 0..2 * EVENTS_PER_SEC_MAX {
        services.event(1, "e", "{}");
    }
    assert_eq!(reported(), u64::from(EVENTS_PER_SEC_MAX));
    services.clock.advance(Duration::from_secs(1));
    services.event(1, "e", &format!("\"{}\"", "x".repeat(EVENT_BYTES_MAX)));
    services.event(1, "e", "{");
    services.event(1, "e", "{}");
    assert_eq!(reported(), u64::from(EVENTS_PER_SEC_MAX) + 1);
    // Of all its destinations together.
    for dest in 2..100 {
        services.insert(dest, Opened { observer: observer.clone(), ..opened("secret") });
    }
    services.clock.advance(Duration::from_secs(1));
    let before = reported();
    (0..1_000).for_each(|n| services.event(n % 100, "e", "{}"));
    assert_eq!(reported() - before, u64::from(DRIVER_EVENTS_PER_SEC_MAX));
}

#[tokio::test]
async fn reports_are_limited_and_marked_incomplete() {
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
        expires_at_ms: None,
        asks_notice: false,
        audio_only: false,
    };
    for _ in 0..REPORTS_PER_SEC_MAX {
        assert!(services.report_limit.admit(services.clock.monotonic()).is_some());
    }
    services.recording(recording.clone()).unwrap();
    assert!(services.recordings.reports.take().reports.is_empty());
    services.clock.advance(Duration::from_secs(1));
    services.recording(recording.clone()).unwrap();
    let reported = services.recordings.reports.take();
    assert_eq!(reported.reports, [("t".to_owned(), recording)], "the next second");
}

#[tokio::test]
async fn log_lines_of_a_driver_are_limited_over_all_destinations() {
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
async fn counter_names_are_valid_and_limited() {
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
async fn panics_of_one_account_set_aside_only_that_account() {
    let services = services();
    let panic = Error::new(Class::Panic, "the driver panicked");
    for _ in 0..3 {
        services.note(1, &Error::network("no panic"));
        services.note(1, &panic);
    }
    assert!(services.may_ask(1).is_ok() && services.may_open(2).is_ok());
    let refused = services.may_open(1).unwrap_err();
    assert!(refused.retry_after.is_some() && services.may_open(2).is_ok(), "{refused:?}");
    services.clear_faults();
    assert!(services.may_open(1).is_ok());
    for account in [1, 2, 1, 2, 3, 4, 5] {
        services.note(account, &panic);
    }
    assert!((1..6).all(|account| services.may_open(account).is_ok()), "no account has too many panics");
    for account in [1, 2, 3, 3, 3] {
        services.note(account, &panic);
    }
    assert!(services.may_ask(9).is_err() && services.may_open(9).is_err());
}

#[test]
fn an_ended_driver_text() {
    assert_eq!(ENDED, "this driver has ended");
}
