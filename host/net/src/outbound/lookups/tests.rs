use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::{JoinHandle, yield_now};

use super::*;

const LIMIT: Duration = Duration::from_secs(5);
const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(8, 8, 8, 8));

/// Look-ups of a resolver that answers names that begin with `good` at once, and no others.
fn lookups() -> Arc<Lookups> {
    Arc::new(Lookups::with_resolver(Arc::new(|name: String| -> BoxFuture<'static, _> {
        Box::pin(async move {
            if !name.starts_with("good") {
                std::future::pending::<()>().await;
            }
            Ok(vec![ADDRESS])
        })
    })))
}

type Asked = JoinHandle<Result<Vec<IpAddr>, Unknown>>;

/// Looks up `count` different names without an answer; returns when each runs or waits.
async fn ask_slow(lookups: &Arc<Lookups>, asker: Asker, count: u64) -> Vec<Asked> {
    let mut asked = Vec::new();
    for number in 0..count {
        let (lookups, asker) = (Arc::clone(lookups), asker.clone());
        asked.push(tokio::spawn(async move {
            lookups.find(&format!("slow{number}.example"), &asker, LIMIT).await
        }));
        yield_now().await;
    }
    asked
}

async fn assert_answered_at_once(lookups: &Lookups, asker: Asker) {
    let began = Instant::now();
    assert_eq!(lookups.find("good.example", &asker, LIMIT).await, Ok(vec![ADDRESS]));
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn silent_names_delay_no_other_name() {
    let lookups = lookups();
    let silent = 2 * (LOOKUPS_OF_ASKER_MAX + SLOW_LOOKUPS_OF_ASKER_MAX);
    let _silent = ask_slow(&lookups, Asker::Account(1), silent).await;
    assert_eq!(lookups.first.taken(), LOOKUPS_OF_ASKER_MAX);
    assert_answered_at_once(&lookups, Asker::Account(2)).await;
    assert_answered_at_once(&lookups, Asker::Service("host".into())).await;
    let of_account = lookups.find("good.example", &Asker::Account(1), LIMIT).await;
    assert_eq!(of_account, Ok(vec![ADDRESS]), "the name waited for more than first tries");
    assert_eq!(lookups.slow.taken(), SLOW_LOOKUPS_OF_ASKER_MAX);
    assert_answered_at_once(&lookups, Asker::Account(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_late_name_is_looked_up_once_and_again_when_it_had_to_wait() {
    let asked = Arc::new(AtomicU64::new(0));
    let counted = asked.clone();
    let lookups = Arc::new(Lookups::with_resolver(Arc::new(move |name: String| -> BoxFuture<'static, _> {
        let is_late = name.starts_with("late");
        counted.fetch_add(u64::from(is_late), Ordering::Relaxed);
        Box::pin(async move {
            tokio::time::sleep(if is_late { Duration::from_millis(1_500) } else { 2 * LIMIT }).await;
            Ok(vec![ADDRESS])
        })
    })));
    let account = Asker::Account(1);
    // The shortest wait of any caller: a wallet.
    let limit = Duration::from_secs(2);
    assert_eq!(lookups.find("late.example", &account, limit).await, Ok(vec![ADDRESS]));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!((lookups.first.taken(), lookups.slow.taken()), (0, 0));
    let _silent = ask_slow(&lookups, account.clone(), SLOW_LOOKUPS_OF_ASKER_MAX).await;
    tokio::time::sleep(LIMIT - limit).await;
    assert_eq!(lookups.find("late.example", &account, LIMIT).await, Ok(vec![ADDRESS]));
    assert_eq!(asked.load(Ordering::Relaxed), 3, "nothing runs without a permit");
}

#[tokio::test(start_paused = true)]
async fn a_name_with_a_slow_recursive_server_is_not_reported_as_silent() {
    let lookups = Lookups::with_resolver(Arc::new(|name: String| -> BoxFuture<'static, _> {
        Box::pin(async move {
            let wait = if name.starts_with("far") { Duration::from_millis(450) } else { 2 * LIMIT };
            tokio::time::sleep(wait).await;
            Ok(vec![ADDRESS])
        })
    }));
    let lookups = Arc::new(lookups);
    let _silent = ask_slow(&lookups, Asker::Account(1), SLOW_LOOKUPS_OF_ASKER_MAX).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let far = lookups.find("far.example", &Asker::Account(1), LIMIT / 2).await;
    assert_eq!(far, Ok(vec![ADDRESS]));
}

#[tokio::test(start_paused = true)]
async fn look_ups_without_a_permit_do_not_report_a_silent_name_server() {
    let lookups = lookups();
    let count = SLOW_LOOKUPS_OF_ASKER_MAX + 1;
    let asked = ask_slow(&lookups, Asker::Account(1), count).await;
    let crowd = ask_slow(&lookups, Asker::Service("archive".into()), count).await;
    let mut outcomes = Vec::new();
    for asked in asked.into_iter().chain(crowd) {
        outcomes.push(asked.await.unwrap().unwrap_err());
    }
    let (own, service) = outcomes.split_at(count as usize);
    let silent =
        |outcomes: &[Unknown]| outcomes.iter().filter(|one| **one == Unknown::Silent(LIMIT)).count() as u64;
    assert_eq!((silent(own), silent(service)), (SLOW_LOOKUPS_OF_ASKER_MAX, SLOW_LOOKUPS_OF_ASKER_MAX));
    assert!(own.contains(&Unknown::NoPermit(Crowd::Own)));
    assert!(
        service.contains(&Unknown::NoPermit(Crowd::All)),
        "the error names no look-ups of other accounts"
    );
}

#[tokio::test(start_paused = true)]
async fn look_ups_are_limited_and_a_cancelled_one_returns_its_permit() {
    let lookups = lookups();
    let mut asked = Vec::new();
    let half = LOOKUPS_AT_ONCE_MAX / 2;
    for account in 0..(LOOKUPS_AT_ONCE_MAX + 10) as i64 {
        asked.extend(ask_slow(&lookups, Asker::Account(account), 1).await);
    }
    assert_eq!(lookups.first.taken(), half);
    tokio::time::sleep(Duration::from_millis(FIRST_TRY_MS + 1)).await;
    assert_eq!((lookups.first.taken(), lookups.slow.taken()), (half, half));
    let late = lookups.find("good.example", &Asker::Account(-1), LIMIT / 100).await;
    assert_eq!(late, Err(Unknown::NoPermit(Crowd::All)));
    for asked in asked {
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled());
    }
    assert_eq!((lookups.first.taken(), lookups.slow.taken()), (0, 0));
    assert_answered_at_once(&lookups, Asker::Account(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_name_server_without_time_is_not_reported_as_silent() {
    let lookups = lookups();
    let asked = ask_slow(&lookups, Asker::Account(1), SLOW_LOOKUPS_OF_ASKER_MAX).await;
    tokio::time::sleep(LIMIT - Duration::from_secs(1)).await;
    let late = lookups.find("slow.late", &Asker::Account(1), Duration::from_secs(2)).await;
    // It had its full time: the first try, and a second one after the others had ended.
    assert!(matches!(late, Err(Unknown::Silent(_))), "{late:?}");
    let again = ask_slow(&lookups, Asker::Account(1), SLOW_LOOKUPS_OF_ASKER_MAX).await;
    tokio::time::sleep(Duration::from_millis(2 * FIRST_TRY_MS)).await;
    let late = lookups.find("slow.late", &Asker::Account(1), LIMIT / 2).await;
    assert!(matches!(late, Err(Unknown::NoPermit(_))), "{late:?}");
    drop((asked, again));
}

#[tokio::test]
async fn the_resolvers_error_is_passed_on() {
    let lookups = Lookups::with_resolver(Arc::new(|name: String| -> BoxFuture<'static, _> {
        let silent = name.starts_with("silent");
        let error = if silent { io::ErrorKind::TimedOut.into() } else { io::Error::other("no such name") };
        Box::pin(std::future::ready(Err(error)))
    }));
    let account = Asker::Account(1);
    let failed = lookups.find("a.example", &account, LIMIT).await;
    assert_eq!(failed, Err(Unknown::Failed("no such name".to_owned())));
    assert!(matches!(lookups.find("silent.example", &account, LIMIT).await, Err(Unknown::Silent(_))));
}
