//! Charges on the real database: once each, also with races and crashes.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use super::*;
use crate::ledger::check::check;
use crate::{Actor, Charged, MinuteCharge, Slot, Totals};

const PRICE: Msat = Msat(2_000);

/// Names the database for the child process of the test that kills it.
const CHILD_DATABASE: &str = "SATCAST_TEST_CHARGES_UNTIL_KILLED";
const CHILD: &str = "tests::charges::charges_until_killed";

struct Charging {
    rig: Rig,
    account: AccountId,
    stream: StreamId,
    session: SessionId,
    destinations: Vec<DestinationId>,
}

impl Charging {
    async fn new(credit: i64) -> Self {
        let rig = Rig::new().await;
        let account = rig.account("me", credit).await.unwrap();
        let (stream, destinations) = rig.stream(account, 2).await.unwrap();
        let session = new_session_id();
        let terms = Terms { price: PRICE, free: 1 };
        let new = NewSession { id: session.clone(), stream_id: stream, started_at: NOW, terms };
        rig.store.begin_session(new).await.unwrap();
        Self { rig, account, stream, session, destinations }
    }

    fn charge(&self, minute: u64, slots: &[u32]) -> MinuteCharge {
        let slot = |slot: &u32| Slot { slot: *slot, destination: self.destinations[*slot as usize % 2] };
        MinuteCharge {
            session: self.session.clone(),
            minute,
            slots: slots.iter().map(slot).collect(),
            price: PRICE,
            budget: None,
            now: NOW,
        }
    }

    async fn count(&self) -> i64 {
        let count = engine::query_scalar("SELECT COUNT(*) FROM transfers WHERE kind = 'minute'");
        count.fetch_one(&self.rig.store.0.readers).await.unwrap()
    }

    async fn assert_consistent(&self) {
        let report = check(&self.rig.store.0.readers).await.unwrap();
        assert_eq!(report.faults, []);
        assert_eq!(report.sessions, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_racing_chargers_over_forty_slots_post_exactly_forty() {
    let charging = Arc::new(Charging::new(1_000_000).await);
    let racers = (0..8_u64).map(|racer| {
        let charging = charging.clone();
        tokio::spawn(async move {
            for step in 0..40_u64 {
                // Each in another order.
                let at = (step * 7 + racer * 5) % 40;
                let charge = charging.charge(at / 4, &[u32::try_from(at % 4).unwrap()]);
                let charged = charging.rig.store.charge_minute(&charge).await.unwrap();
                assert!(matches!(charged, Charged::Posted(_)), "{charged:?}");
            }
        })
    });
    for racer in racers.collect::<Vec<_>>() {
        racer.await.unwrap();
    }
    assert_eq!(charging.count().await, 40);
    assert_eq!(charging.rig.store.balance(charging.account).await.unwrap(), Msat(1_000_000 - 80_000));
    assert_eq!(charging.rig.store.session_charges(&charging.session).await.unwrap(), Msat(80_000));
    charging.assert_consistent().await;
}

#[tokio::test]
async fn a_charge_is_all_its_slots_or_none_and_returns_the_balance() {
    let charging = Charging::new(5_000).await;
    let store = &charging.rig.store;
    let totals = |charged, balance| Totals { charged: Msat(charged), balance: Msat(balance) };
    let first = store.charge_minute(&charging.charge(0, &[1, 2])).await.unwrap();
    assert_eq!(first, Charged::Posted(totals(4_000, 1_000)));
    let again = store.charge_minute(&charging.charge(0, &[1, 2])).await.unwrap();
    assert_eq!(again, Charged::Posted(totals(4_000, 1_000)), "a repeat posts nothing");
    let second = store.charge_minute(&charging.charge(1, &[1])).await.unwrap();
    assert_eq!(second, Charged::Insufficient(totals(4_000, 1_000)));
    store
        .credit(&Actor::command(charging.account, NOW), satcast_core::ids::Sats(10), "c".into())
        .await
        .unwrap();
    let tight = MinuteCharge { budget: Some(Msat(7_999)), ..charging.charge(1, &[1, 2]) };
    assert_eq!(store.charge_minute(&tight).await.unwrap(), Charged::OverBudget(totals(4_000, 11_000)));
    let exact = MinuteCharge { budget: Some(Msat(8_000)), ..tight };
    assert_eq!(store.charge_minute(&exact).await.unwrap(), Charged::Posted(totals(8_000, 7_000)));
    assert_eq!(charging.count().await, 4);
    charging.assert_consistent().await;
    store.close_interrupted_sessions(UnixMillis(9)).await.unwrap();
    let late = store.charge_minute(&charging.charge(2, &[1])).await.unwrap();
    assert_eq!(late, Charged::NotOurs, "another service has taken over the sessions");
    let unknown = MinuteCharge { session: new_session_id(), ..charging.charge(2, &[1]) };
    assert_eq!(store.charge_minute(&unknown).await.unwrap(), Charged::NotOurs);
    charging.assert_consistent().await;
}

/// The ledger's faults after `sql` was run directly on the database.
async fn faults_after(charging: &Charging, sql: &'static str) -> Vec<String> {
    script(&charging.rig.store.0.writer, sql).await.unwrap();
    let report = check(&charging.rig.store.0.readers).await.unwrap();
    report.faults.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn the_check_finds_totals_that_are_not_their_entries() {
    let charging = Charging::new(50_000).await;
    charging.rig.store.charge_minute(&charging.charge(0, &[1, 2])).await.unwrap();
    let session = &charging.session;
    assert_eq!(faults_after(&charging, "").await, [""; 0]);
    assert_eq!(
        faults_after(&charging, "UPDATE sessions SET charged_msat = 3000").await,
        [format!("charges of session {session}: expected 4000 msat, found 3000 msat")]
    );
    let costs = "UPDATE sessions SET charged_msat = 4000;
        UPDATE session_destinations SET cost_msat = 0 WHERE destination_id = 2";
    assert_eq!(
        faults_after(&charging, costs).await,
        [format!("cost of destination 2 in session {session}: expected 2000 msat, found 0 msat")]
    );
    let rows = "DELETE FROM session_destinations WHERE destination_id = 2;
        INSERT INTO overage_hours (account_id, hour_ms, price_msat_per_gb, limit_bytes, charged_msat)
        VALUES (1, 3600000, 0, 0, 7)";
    assert_eq!(
        faults_after(&charging, rows).await,
        [
            "playback of account 1 in the hour 3600000: expected 0 msat, found 7 msat".to_owned(),
            format!("charges name the destination 2 of session {session}, which has no entry"),
        ]
    );
}

#[tokio::test]
async fn a_statement_has_every_entry_once_and_in_pages() {
    let charging = Charging::new(50_000).await;
    for minute in 0..5 {
        charging.rig.store.charge_minute(&charging.charge(minute, &[1])).await.unwrap();
    }
    let store = &charging.rig.store;
    let all = store.statement(charging.account, ALL).await.unwrap();
    assert_eq!(all.iter().map(|entry| entry.amount.0).sum::<i64>(), 40_000, "the balance is their sum");
    assert_eq!((all.len(), all[0].minute, all[5].minute), (6, Some(4), None));
    assert_eq!((all[0].stream, all[5].stream), (Some(charging.stream), None));
    let mut paged = Vec::new();
    for _ in 0..3 {
        let before = paged.last().map(|entry: &crate::StatementEntry| entry.id);
        paged.extend(store.statement(charging.account, Page { before, limit: 2 }).await.unwrap());
    }
    assert_eq!(paged, all);
    let other = charging.rig.account("you", 0).await.unwrap();
    assert_eq!(store.statement(other, ALL).await.unwrap(), []);
}

/// Not a test by itself: the child process that the next test kills.
#[tokio::test]
async fn charges_until_killed() {
    let Ok(database) = std::env::var(CHILD_DATABASE) else { return };
    let store = open_url(&database, Durability::Full, 7).await.unwrap();
    let session: String =
        engine::query_scalar("SELECT id FROM sessions").fetch_one(&store.0.readers).await.unwrap();
    for minute in 0..1_000_000_u64 {
        let slots = vec![Slot { slot: 1, destination: DestinationId(2) }];
        let session = SessionId(session.clone());
        let charge = MinuteCharge { session, minute, slots, price: PRICE, budget: None, now: NOW };
        store.charge_minute(&charge).await.unwrap();
        println!("\ncharged {minute}");
    }
}

#[tokio::test]
async fn a_process_killed_among_its_charges_leaves_whole_ones_and_a_replay_adds_only_what_is_missing() {
    let charging = Charging::new(1_000_000_000).await;
    let database = testing::url(&charging.rig.path).await;
    let mut known: u64 = 0;
    for round in 0..3_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", CHILD, "--nocapture"])
            .env(CHILD_DATABASE, database.expose())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Printed after the commit, so these charges must survive; killed at another point of the work each time.
        let printed = lines
            .map_while(std::result::Result::ok)
            .filter_map(|line| line.strip_prefix("charged ")?.parse().ok());
        let printed: u64 =
            printed.take_while(|minute: &u64| *minute < known + 20 + round * 7).last().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        charging.assert_consistent().await;
        let count = u64::try_from(charging.count().await).unwrap();
        assert!(count > printed, "{count} charges, {printed} were printed");
        known = count;
    }
    for minute in 0..known + 10 {
        charging.rig.store.charge_minute(&charging.charge(minute, &[1])).await.unwrap();
    }
    assert_eq!(charging.count().await, i64::try_from(known + 10).unwrap());
    charging.assert_consistent().await;
}

#[tokio::test]
async fn the_check_finds_charges_of_wrong_accounts_and_unexplained_waivers() {
    let charging = Charging::new(1_000_000).await;
    charging.rig.account("you", 5_000).await.unwrap();
    charging.assert_consistent().await;
    let forged =
        "INSERT INTO transfers (debit_id, credit_id, amount_msat, kind, idem, session_id, created_ms)
        SELECT l.id, r.id, 5, 'minute', 'x', e.id, 0 FROM ledger_accounts l, ledger_accounts r, sessions e
        WHERE l.name = 'customer:2' AND r.name = 'revenue';
        INSERT INTO transfers (debit_id, credit_id, amount_msat, kind, idem, hour_ms, created_ms)
        SELECT w.id, r.id, 9, 'waived', 'y', 0, 0 FROM ledger_accounts w, ledger_accounts r
        WHERE w.name = 'waived' AND r.name = 'revenue';
        INSERT INTO overage_hours (account_id, hour_ms, price_msat_per_gb, limit_bytes, waived_msat)
        VALUES (1, 0, 5000, 0, 7);";
    script(&charging.rig.store.0.writer, forged).await.unwrap();
    let report = check(&charging.rig.store.0.readers).await.unwrap();
    let faults: Vec<String> = report.faults.iter().map(ToString::to_string).collect();
    let session = charging.session.as_str();
    for expected in [
        format!("about session {session} of another account"),
        "9 msat were waived for bytes without an account".to_owned(),
        "waived playback of account 1 in the hour 0: expected 0 msat, found 7 msat".to_owned(),
    ] {
        assert!(faults.iter().any(|fault| fault.contains(&expected)), "{expected} is not in {faults:?}");
    }
}
