use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::{JoinHandle, yield_now};

use super::*;

const LIMIT: Duration = Duration::from_secs(5);
const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(8, 8, 8, 8));

/// Answers names that begin with `good` at once, panics at those with `bad`, and lets others wait until it is told.
struct NameServer {
    asked: Mutex<Vec<String>>,
    running: AtomicUsize,
    running_max: AtomicUsize,
    answers: watch::Sender<bool>,
}

impl NameServer {
    fn start() -> (Arc<Self>, Arc<Lookups>) {
        let server = Arc::new(Self {
            asked: Mutex::default(),
            running: AtomicUsize::new(0),
            running_max: AtomicUsize::new(0),
            answers: watch::channel(false).0,
        });
        let asked = Arc::clone(&server);
        let resolver = Arc::new(move |name| -> BoxFuture<'static, _> {
            let server = Arc::clone(&asked);
            Box::pin(async move { server.answer(name).await })
        });
        (server, Arc::new(Lookups::with_resolver(resolver)))
    }

    async fn answer(&self, name: String) -> io::Result<Vec<IpAddr>> {
        assert!(!name.starts_with("bad"));
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.running_max.fetch_max(running, Ordering::SeqCst);
        let is_good = name.starts_with("good");
        self.asked.lock().unwrap().push(name);
        if !is_good {
            self.answers.subscribe().wait_for(|answers| *answers).await.unwrap();
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(vec![ADDRESS])
    }

    fn times_asked(&self, name: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| *asked == name).count()
    }
}

type Asked = JoinHandle<Result<Vec<IpAddr>, Unknown>>;

/// Asks, and returns when it runs or waits.
async fn ask(lookups: &Arc<Lookups>, asker: Asker, name: &str) -> Asked {
    let (lookups, name) = (Arc::clone(lookups), name.to_owned());
    let asked = tokio::spawn(async move { lookups.find(&name, &asker, LIMIT).await });
    yield_now().await;
    asked
}

/// Asks for `count` names of its own that are not answered.
async fn ask_slow(lookups: &Arc<Lookups>, asker: Asker, count: usize) -> Vec<Asked> {
    let mut asked = Vec::new();
    for number in 0..count {
        asked.push(ask(lookups, asker.clone(), &format!("slow{number}.{asker:?}")).await);
    }
    asked
}

async fn settled() {
    for _ in 0..1_000 {
        yield_now().await;
    }
}

async fn assert_answered_at_once(lookups: &Arc<Lookups>, asker: Asker) {
    let began = Instant::now();
    assert_eq!(lookups.find("good.example", &asker, LIMIT).await, Ok(vec![ADDRESS]));
    assert_eq!(began.elapsed(), Duration::ZERO);
}

fn running(lookups: &Lookups) -> usize {
    lookups.lock().running.len()
}

fn assert_empty(lookups: &Lookups) {
    let places = lookups.lock();
    assert!(places.running.is_empty() && places.held.is_empty() && places.waiting.is_empty(), "{places:?}");
}

#[tokio::test(start_paused = true)]
async fn an_account_with_names_that_hang_keeps_no_other_waiting() {
    let (server, lookups) = NameServer::start();
    for round in 0..3 {
        let asked = ask_slow(&lookups, Asker::Account(1), 200).await;
        assert_eq!(running(&lookups), LOOKUPS_OF_ACCOUNT_MAX);
        assert_answered_at_once(&lookups, Asker::Account(2)).await;
        assert_answered_at_once(&lookups, Asker::Service("host".into())).await;
        let began = Instant::now();
        let mut outcomes = Vec::new();
        for asked in asked {
            outcomes.push(asked.await.unwrap().unwrap_err());
        }
        assert_eq!(began.elapsed(), LIMIT);
        let (silent, crowded) = outcomes.split_at(LOOKUPS_OF_ACCOUNT_MAX);
        // Those of the first round run on, and are joined.
        assert!(silent.iter().all(|error| *error == Unknown::Silent(LIMIT * (round + 1))), "{silent:?}");
        assert!(crowded.iter().all(|error| *error == Unknown::NoPlace(Crowd::Own)), "{crowded:?}");
    }
    assert_eq!(server.times_asked("slow0.Account(1)"), 1);
    assert_eq!(lookups.lock().waiting.iter().filter(|waiting| !waiting.told.is_closed()).count(), 0);
    server.answers.send_replace(true);
    settled().await;
    assert_empty(&lookups);
}

#[tokio::test(start_paused = true)]
async fn many_accounts_with_names_that_hang_leave_places() {
    let (_server, lookups) = NameServer::start();
    // Twice as many as could fill all places if each had its part of all of them.
    let accounts = 2 * (LOOKUPS_AT_ONCE_MAX / LOOKUPS_OF_ACCOUNT_MAX) as i64;
    for account in 1..=accounts {
        ask_slow(&lookups, Asker::Account(account), 50).await;
    }
    assert!(running(&lookups) < LOOKUPS_AT_ONCE_MAX);
    assert_answered_at_once(&lookups, Asker::Account(0)).await;
}

#[tokio::test(start_paused = true)]
async fn a_part_of_the_service_has_its_part() {
    let (_server, lookups) = NameServer::start();
    ask_slow(&lookups, Asker::Service("archive".into()), 100).await;
    assert_eq!(running(&lookups), LOOKUPS_OF_SERVICE_MAX);
    let crowd = lookups.lock().crowd(&Asker::Service("archive".into()));
    assert_eq!(crowd, Crowd::All, "nobody is told of names of others");
    assert_answered_at_once(&lookups, Asker::Service("platform".into())).await;
}

#[tokio::test(start_paused = true)]
async fn no_more_run_than_there_are_places() {
    let (server, lookups) = NameServer::start();
    let mut asked = Vec::new();
    for account in 0..200 {
        asked.extend(ask_slow(&lookups, Asker::Account(account), 1).await);
    }
    assert_eq!(running(&lookups), LOOKUPS_AT_ONCE_MAX);
    for (number, asked) in asked.into_iter().enumerate() {
        let expected =
            if number < LOOKUPS_AT_ONCE_MAX { Unknown::Silent(LIMIT) } else { Unknown::NoPlace(Crowd::All) };
        assert_eq!(asked.await.unwrap(), Err(expected), "{number}");
    }
    let waits = ask(&lookups, Asker::Account(201), "good.example").await;
    assert_eq!(lookups.lock().waiting.len(), 1, "who has given up is forgotten");
    server.answers.send_replace(true);
    assert_eq!(waits.await.unwrap(), Ok(vec![ADDRESS]));
    settled().await;
    assert_eq!(server.running_max.load(Ordering::SeqCst), LOOKUPS_AT_ONCE_MAX);
    assert_empty(&lookups);
}

#[tokio::test(start_paused = true)]
async fn so_many_names_of_one_asker_wait_and_no_more() {
    let (server, lookups) = NameServer::start();
    let asked = ask_slow(&lookups, Asker::Account(1), LOOKUPS_OF_ACCOUNT_MAX + LOOKUPS_WAITING_MAX).await;
    assert_eq!(lookups.lock().waiting.len(), LOOKUPS_WAITING_MAX);
    let refused = ask(&lookups, Asker::Account(1), "further.example").await;
    assert!(refused.is_finished(), "at once");
    assert_eq!(refused.await.unwrap(), Err(Unknown::NoPlace(Crowd::Own)));
    let other = ask(&lookups, Asker::Account(2), "good.example").await;
    assert_eq!(other.await.unwrap(), Ok(vec![ADDRESS]));
    asked.into_iter().for_each(|asked| asked.abort());
    server.answers.send_replace(true);
    settled().await;
    assert_empty(&lookups);
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_a_name_that_is_looked_up_gets_the_same_answer() {
    let (server, lookups) = NameServer::start();
    let first = ask(&lookups, Asker::Account(1), "slow.example").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let second = ask(&lookups, Asker::Account(2), "slow.example").await;
    assert_eq!(first.await.unwrap(), Err(Unknown::Silent(LIMIT)));
    let third = ask(&lookups, Asker::Account(1), "slow.example").await;
    server.answers.send_replace(true);
    assert_eq!(second.await.unwrap(), Ok(vec![ADDRESS]));
    assert_eq!(third.await.unwrap(), Ok(vec![ADDRESS]));
    assert_eq!(server.times_asked("slow.example"), 1);
    assert_eq!(lookups.find("slow.example", &Asker::Account(2), LIMIT).await, Ok(vec![ADDRESS]));
    assert_eq!(server.times_asked("slow.example"), 2, "nothing is kept");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_place_joins_a_look_up_that_another_begins() {
    let (server, lookups) = NameServer::start();
    ask_slow(&lookups, Asker::Account(1), LOOKUPS_OF_ACCOUNT_MAX).await;
    let waits = ask(&lookups, Asker::Account(1), "good.example").await;
    assert!(!waits.is_finished());
    assert_answered_at_once(&lookups, Asker::Account(2)).await;
    assert_eq!(waits.await.unwrap(), Ok(vec![ADDRESS]));
    assert_eq!(server.times_asked("good.example"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_nobody_waits_for_gives_its_place_back() {
    let (server, lookups) = NameServer::start();
    let asked = ask_slow(&lookups, Asker::Account(1), LOOKUPS_OF_ACCOUNT_MAX + 1).await;
    for asked in asked {
        asked.abort();
    }
    settled().await;
    assert_eq!(running(&lookups), LOOKUPS_OF_ACCOUNT_MAX);
    server.answers.send_replace(true);
    settled().await;
    assert_empty(&lookups);
    assert_eq!(server.asked.lock().unwrap().len(), LOOKUPS_OF_ACCOUNT_MAX, "nor is what nobody wants begun");
}

#[tokio::test(start_paused = true)]
async fn a_free_place_goes_to_who_has_the_fewest() {
    let (server, lookups) = NameServer::start();
    // One short name among names that hang, everywhere.
    let (stuck, place) = oneshot::channel::<()>();
    let place = Mutex::new(Some(place));
    let inner = Arc::clone(&lookups.resolver);
    let resolver = Arc::new(move |name: String| -> BoxFuture<'static, _> {
        let place = if name == "ends" { place.lock().unwrap().take() } else { None };
        match place {
            Some(place) => Box::pin(async move { Ok(place.await.map_or(vec![], |()| vec![ADDRESS])) }),
            None => inner(name),
        }
    });
    let lookups = Arc::new(Lookups::with_resolver(resolver));
    let _ends = ask(&lookups, Asker::Account(0), "ends").await;
    for account in 1..LOOKUPS_AT_ONCE_MAX as i64 {
        ask_slow(&lookups, Asker::Account(account), 1).await;
    }
    let greedy = ask(&lookups, Asker::Account(1), "good.greedy").await;
    let newcomer = ask(&lookups, Asker::Account(99), "slow.newcomer").await;
    stuck.send(()).unwrap();
    settled().await;
    assert_eq!((server.times_asked("slow.newcomer"), server.times_asked("good.greedy")), (1, 0));
    assert_eq!(greedy.await.unwrap(), Err(Unknown::NoPlace(Crowd::All)));
    assert_eq!(newcomer.await.unwrap(), Err(Unknown::Silent(LIMIT)));
}

#[tokio::test(start_paused = true)]
async fn a_name_server_that_had_no_time_is_not_blamed() {
    let (_server, lookups) = NameServer::start();
    let late = ask(&lookups, Asker::Account(1), "slow.example").await;
    let short = LIMIT / 5;
    ask_slow(&lookups, Asker::Account(2), LOOKUPS_OF_ACCOUNT_MAX).await;
    let waits = ask(&lookups, Asker::Account(2), "slow.late").await;
    tokio::time::sleep(LIMIT - short).await;
    // Another begins what this one waits for.
    let begins = ask(&lookups, Asker::Account(3), "slow.late").await;
    assert_eq!(waits.await.unwrap(), Err(Unknown::NoPlace(Crowd::Own)));
    assert_eq!(late.await.unwrap(), Err(Unknown::Silent(LIMIT)));
    assert_eq!(begins.await.unwrap(), Err(Unknown::Silent(LIMIT)));
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_panics_gives_its_place_back() {
    let (_server, lookups) = NameServer::start();
    let error = lookups.find("bad.example", &Asker::Account(1), LIMIT).await.unwrap_err();
    assert!(matches!(error, Unknown::Failed(_)), "{error:?}");
    assert_empty(&lookups);
}
