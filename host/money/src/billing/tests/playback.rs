//! Playback above the allowance.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;

use crate::billing::Billing;
use crate::billing::overage::{GB_BYTES, cost, decide, split};
use crate::billing::testing::{Rig, START, Session, TRIES_MAX, chopped, stream};
use satcast_core::config::Config;
use satcast_core::ids::{DestinationId, EndReason, HOUR_MS, Msat, SessionId, UnixMillis};
use satcast_store::{Bandwidth, HourFacts, HourTerms, NewAccount, Origin, Served, ServingSession, TimeRange};
use satcast_usage::Held;

const TERMS: HourTerms = HourTerms { price_per_gb: Msat(5_000), limit_bytes: 10 * GB_BYTES };

impl Rig {
    /// Viewers of a destination received these bytes in the hour that is `hours` away.
    pub(super) async fn sent(&self, index: usize, bytes: u64, hours: i64) {
        let hour_start = UnixMillis(self.clock.now().hour_start().0 + hours * HOUR_MS);
        let (account, destination) = (self.account, self.destinations[index]);
        let sent = Bandwidth { account, destination, hour_start, bytes };
        self.store.add_bandwidth(&[sent]).await.unwrap();
    }

    async fn overage(&self) -> i64 {
        self.store.overage_charges(self.account, TimeRange::default()).await.unwrap().0
    }

    /// A session with the given destinations.
    pub(super) async fn serving(&self, indexes: &[usize], max_sats: Option<i64>) -> Session<'_> {
        // A pass reads the limit of the stream.
        self.intruder().await.limit_sats(self.stream, max_sats).await;
        let session = self.begin(max_sats).await;
        let destinations: Vec<_> = indexes.iter().map(|index| self.destinations[*index]).collect();
        self.store.begin_forwarding(&session.id, &destinations, self.clock.now()).await.unwrap();
        session
    }
}

#[test]
fn overage_of_1_234_567_890_bytes_at_5_is_6_172_msat_floored_once() {
    assert_eq!(cost(10 * GB_BYTES + 1_234_567_890, &TERMS), Msat(6_172));
    let over = |bytes| cost(10 * GB_BYTES + bytes, &TERMS);
    assert_eq!((over(0), over(199_999), over(200_000)), (Msat(0), Msat(0), Msat(1)));
    assert_eq!(cost(5 * GB_BYTES, &TERMS), Msat(0));
    let dear = HourTerms { price_per_gb: Msat(i64::MAX), limit_bytes: 0 };
    assert_eq!(cost(u64::MAX, &dear), Msat(i64::MAX), "never more than the ledger holds");
}

#[test]
fn attributed_pro_rata_by_bytes_the_rest_to_the_lowest_session_id() {
    assert_eq!(split(Msat(100), &[1, 1, 1]), [Msat(34), Msat(33), Msat(33)]);
    assert_eq!(split(Msat(7), &[0, 3, 4]), [Msat(0), Msat(3), Msat(4)]);
    assert_eq!(split(Msat(i64::MAX), &[u64::MAX, u64::MAX]).iter().map(|part| part.0).sum::<i64>(), i64::MAX);
    assert_eq!(split(Msat(5), &[]), []);
    let served = |id: &str, destination: i64, bytes| Served {
        session: Some(ServingSession {
            id: SessionId(id.into()),
            charged: Msat(0),
            budget: None,
            running: true,
        }),
        destination: DestinationId(destination),
        bytes,
    };
    let facts = HourFacts {
        terms: HourTerms { price_per_gb: Msat(1_010_101_011), limit_bytes: 0 },
        bytes: 99,
        charged: Msat(0),
        waived: Msat(0),
        balance: Msat(1_000),
        served: vec![served("b", 4, 50), served("a", 3, 25), served("a", 2, 24)],
    };
    let parts: Vec<_> = decide(&facts).parts.iter().map(|part| (part.destination.0, part.charge.0)).collect();
    assert_eq!(
        parts,
        [(2, 25), (3, 25), (4, 50)],
        "99 millisats are shared out, the 100th goes to session a"
    );
}

#[tokio::test]
async fn overage_example_1_234_567_890_bytes_over_balance_1000_shows_993() {
    let rig = Rig::new(1_000).await;
    let session = rig.serving(&[0], None).await;
    // In many steps, each with its own pass.
    rig.sent(0, 10 * GB_BYTES, 0).await;
    for _ in 0..10 {
        rig.sent(0, 123_456_789, 0).await;
        rig.billing.bill_playback().await;
    }
    assert_eq!((rig.overage().await, rig.balance().await), (6_172, 993_828));
    assert_eq!(session.msat().await, 6_172);
    rig.billing.bill_playback().await;
    assert_eq!(rig.overage().await, 6_172, "a pass without bytes charges nothing");
    session.finish().await;
    assert_eq!(rig.history(&session.id).await, [6]);
    rig.check().await;
}

#[tokio::test]
async fn overage_is_per_clock_hour_the_allowance_resets_and_the_rest_is_dropped() {
    let rig = Rig::new(1_000).await;
    let _session = rig.serving(&[0], None).await;
    rig.sent(0, 10 * GB_BYTES + 199_999, -1).await;
    rig.sent(0, 10 * GB_BYTES + 199_999, 0).await;
    rig.billing.bill_playback().await;
    assert_eq!(rig.overage().await, 0, "0.999 msat each");
    rig.sent(0, 1, -1).await;
    rig.billing.bill_playback().await;
    assert_eq!(rig.overage().await, 1, "late bytes count for their own hour");
    let hour = |hours: i64| TimeRange {
        from: Some(UnixMillis(START.0 + hours * HOUR_MS)),
        to: Some(UnixMillis(START.0 + (hours + 1) * HOUR_MS)),
    };
    assert_eq!(rig.store.overage_charges(rig.account, hour(-1)).await.unwrap(), Msat(1));
    assert_eq!(rig.store.overage_charges(rig.account, hour(0)).await.unwrap(), Msat(0));
    rig.check().await;
}

#[tokio::test]
async fn overage_is_posted_at_each_utc_minute_and_at_session_end() {
    let rig = Rig::new(1_000).await;
    let session = rig.serving(&[0], None).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let passes = tokio::spawn(rig.billing.clone().keep_hours(async { drop(stopped.await) }));
    rig.sent(0, 11 * GB_BYTES, 0).await;
    // The rig's clock stands at 7.654 s.
    rig.clock.advance(Duration::from_millis(52_345));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(rig.overage().await, 0, "a millisecond is missing");
    for _ in 0..TRIES_MAX {
        rig.clock.advance(Duration::from_millis(1));
        if rig.overage().await > 0 {
            break;
        }
    }
    assert_eq!(rig.overage().await, 5_000);
    stop.send(()).unwrap();
    passes.await.unwrap();
    rig.sent(0, GB_BYTES, 0).await;
    session.finish().await;
    assert_eq!(session.msat().await, 10_000);
    rig.sent(0, GB_BYTES, 0).await;
    rig.billing.bill_playback().await;
    assert_eq!(session.msat().await, 15_000, "tail bytes go to the ended session");
    rig.check().await;
}

#[tokio::test]
async fn overage_counts_towards_max_sats_charged_up_to_it_the_rest_waived_and_the_session_ends() {
    let rig = Rig::new(1_000).await;
    let session = rig.serving(&[0], Some(6)).await;
    rig.sent(0, 11 * GB_BYTES, 0).await;
    rig.billing.bill_playback().await;
    assert_eq!((session.msat().await, session.end()), (5_000, None));
    session.on(0).await;
    session.on(1).await;
    assert_eq!(session.held(1), Some(Held::Budget), "2 sats more would be 7");
    rig.sent(0, GB_BYTES, 0).await;
    rig.billing.bill_playback().await;
    assert_eq!((session.msat().await, session.end()), (6_000, Some(EndReason::MaxSats)));
    session.finish().await;
    rig.sent(0, GB_BYTES, 0).await;
    rig.billing.bill_playback().await;
    assert_eq!(
        session.msat().await,
        11_000,
        "bytes after the end have no limit, and waived amounts are never charged"
    );
    assert_eq!(rig.balance().await, 989_000);
    rig.check().await;
}

#[tokio::test]
async fn overage_beyond_the_balance_is_charged_to_0_the_rest_waived_and_the_session_ends() {
    let rig = Rig::new(3).await;
    let session = rig.serving(&[0], None).await;
    rig.sent(0, 11 * GB_BYTES, 0).await;
    rig.billing.bill_playback().await;
    assert_eq!((session.msat().await, rig.balance().await), (3_000, 0));
    assert_eq!(session.end(), Some(EndReason::InsufficientFunds));
    rig.credit(100).await;
    rig.billing.bill_playback().await;
    session.finish().await;
    assert_eq!(rig.balance().await, 100_000, "waived amounts are never charged later");
    rig.check().await;
}

#[tokio::test]
async fn price_and_allowance_are_those_of_the_hours_first_pass_and_off_charges_nothing_later() {
    let rig = Rig::new(1_000).await;
    let _session = rig.serving(&[0], None).await;
    let dear = Config { pricing: rig.config.pricing.clone(), ..rig.config.clone() };
    let with = |sats: i64, mode| {
        let mut config = dear.clone();
        (config.pricing.bandwidth_overage_sats_per_gb, config.billing.mode) = (sats, mode);
        Billing::new(rig.store.clone(), rig.clock.clone(), &config)
    };
    rig.sent(0, 1, 0).await;
    rig.billing.bill_playback().await;
    rig.sent(0, 12 * GB_BYTES, 0).await;
    with(500, satcast_core::config::BillingMode::Credit).bill_playback().await;
    assert_eq!(rig.overage().await, 10_000);
    rig.sent(0, 12 * GB_BYTES, 1).await;
    with(5, satcast_core::config::BillingMode::Off).bill_playback().await;
    rig.billing.bill_playback().await;
    assert_eq!(rig.overage().await, 10_000, "sent while nothing was charged");
    rig.check().await;
}

#[tokio::test]
async fn more_hours_than_are_read_at_one_time_are_charged_in_one_pass() {
    let rig = Rig::new(10_000).await;
    let _session = rig.serving(&[0], None).await;
    let hours = crate::billing::HOURS_MAX + 3;
    for hour in 0..hours {
        rig.sent(0, 11 * GB_BYTES, -hour).await;
    }
    rig.billing.bill_playback().await;
    assert_eq!(rig.overage().await, hours * 5_000);
    assert_eq!(rig.balance().await, 10_000_000 - hours * 5_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn passes_cut_off_between_any_two_steps_lose_nothing_and_repeat_nothing() {
    let rig = Rig::new(10_000).await;
    let session = rig.serving(&[0, 1], None).await;
    rig.sent(0, 10 * GB_BYTES, 0).await;
    let mut cut = 0;
    for step in 0..60_u64 {
        rig.sent(usize::from(step % 3 == 0), 123_456_789, 0).await;
        cut += u32::from(chopped(rig.billing.inner.pass(None, 2), 1 + step % 30).await.is_none());
    }
    assert!(cut > 0, "no pass was interrupted");
    rig.billing.bill_playback().await;
    let all = cost(10 * GB_BYTES + 60 * 123_456_789, &TERMS).0;
    assert_eq!((rig.overage().await, session.msat().await), (all, all));
    assert_eq!(rig.balance().await, 10_000_000 - all);
    rig.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_without_waiters_continues_and_reports_its_charges() {
    let rig = Rig::new(1_000).await;
    let session = rig.serving(&[0], Some(6)).await;
    rig.sent(0, 12 * GB_BYTES, 0).await;
    let mut intruder = rig.intruder().await;
    intruder.keep_from_writing().await;
    assert_eq!(rig.billing.bill_playback().now_or_never(), None, "the pass was not interrupted");
    intruder.let_write().await;
    for _ in 0..TRIES_MAX {
        if session.end().is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!((session.end(), session.msat().await), (Some(EndReason::MaxSats), 6_000));
    rig.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ending_session_does_not_wait_for_the_pass_over_all_accounts() {
    let rig = Rig::new(1_000).await;
    let session = rig.serving(&[0], None).await;
    let now = rig.clock.now().hour_start().0;
    let hours = crate::billing::HOURS_MAX - 1;
    let mut others = Vec::new();
    for name in ["b", "c", "d", "e"] {
        let (name, password_hash, initial_credit) = (name.into(), None, Msat(2_000_000));
        let new = NewAccount { name, password_hash, operator: false, initial_credit };
        let account = rig.store.create_account(&Origin::command(START), new).await.unwrap();
        let destination = stream(&rig.store, account, "live", 1).await.1[0];
        let sent = |hour| {
            let hour_start = UnixMillis(now - hour * HOUR_MS);
            Bandwidth { account, destination, hour_start, bytes: 11 * GB_BYTES }
        };
        rig.store.add_bandwidth(&(0..hours).map(sent).collect::<Vec<_>>()).await.unwrap();
        others.push(account);
    }
    let all = hours * 5_000 * others.len() as i64;
    let charged = async || {
        let mut charged = 0;
        for other in &others {
            charged += rig.store.overage_charges(*other, TimeRange::default()).await.unwrap().0;
        }
        charged
    };
    let billing = rig.billing.clone();
    let pass = tokio::spawn(async move { billing.bill_playback().await });
    for _ in 0..TRIES_MAX {
        if charged().await > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    rig.sent(0, 11 * GB_BYTES, 0).await;
    session.finish().await;
    assert_eq!(session.msat().await, 5_000);
    let meanwhile = charged().await;
    assert!(meanwhile > 0 && meanwhile < all, "{meanwhile}: the pass was not under way");
    pass.await.unwrap();
    assert_eq!(charged().await, all);
    rig.check().await;
}

#[tokio::test]
async fn bytes_from_before_the_service_charged_use_the_allowance_up_and_cost_nothing() {
    let rig = Rig::new(1_000).await;
    let session = rig.serving(&[0, 1], None).await;
    rig.sent(0, 20 * GB_BYTES, 0).await;
    rig.sent(0, 8 * GB_BYTES, -1).await;
    rig.intruder().await.upgrade_bandwidth().await;
    rig.sent(0, 1, 0).await;
    rig.billing.bill_playback().await;
    assert_eq!((rig.overage().await, session.msat().await), (0, 0), "one byte is below a millisat");
    rig.sent(1, 1_234_567_889, 0).await;
    rig.sent(1, 3 * GB_BYTES, -1).await;
    rig.billing.bill_playback().await;
    rig.billing.bill_playback().await;
    assert_eq!((rig.overage().await, session.msat().await), (6_172 + 5_000, 11_172));
    assert_eq!(rig.balance().await, 1_000_000 - 11_172);
    rig.check().await;
}

#[tokio::test]
async fn a_session_that_ends_where_nothing_is_charged_has_its_last_bytes_too() {
    let rig = Rig::with(100, "[billing]\nmode = \"off\"", "live", 1).await;
    let (store, account, destination) = (rig.store.clone(), rig.account, rig.destinations[0]);
    let hour_start = rig.clock.now().hour_start();
    let counted = Arc::new(AtomicU64::new(0));
    let waiting = counted.clone();
    rig.billing.set_before_pass(Arc::new(move || {
        let (store, bytes) = (store.clone(), waiting.swap(0, Ordering::Relaxed));
        let sent = Bandwidth { account, destination, hour_start, bytes };
        Box::pin(async move { store.add_bandwidth(&[sent]).await.unwrap() })
    }));
    let session = rig.serving(&[0], None).await;
    counted.store(12 * GB_BYTES, Ordering::Relaxed);
    session.finish().await;
    assert_eq!(rig.store.bandwidth_of_hour(rig.account, hour_start).await.unwrap(), 12 * GB_BYTES);
    assert_eq!(
        rig.store.unbilled_hours(None, 10).await.unwrap(),
        [],
        "counted, so that they are never charged"
    );
    assert_eq!((rig.overage().await, rig.balance().await), (0, 100_000));
}
