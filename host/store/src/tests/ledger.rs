//! The ledger: transfers are posted once, in range, immutable, and checked.

use super::*;
use crate::ledger::check::check;
use crate::ledger::{Transfer, TransferKind, post};
use crate::store::Lock;
use satcast_core::ids::Sats;

#[tokio::test]
async fn postings_are_made_once_and_only_in_range() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let transfer = |idem: &str, amount: i64| Transfer {
        account_id: account,
        kind: TransferKind::Prepaid,
        amount: Msat(amount),
        idem: idem.into(),
        now: NOW,
    };
    let posting = async |transfer| {
        let mut tx = rig.store.begin_holding(Lock::Account(account)).await?;
        let posted = post(&mut tx, &transfer).await?;
        tx.commit().await.map(|()| posted)
    };
    assert!(posting(transfer("a", 1_500)).await.unwrap());
    assert!(!posting(transfer("a", 1_500)).await.unwrap(), "a repeat posts nothing");
    assert_eq!(rig.store.balance(account).await.unwrap(), Msat(1_500));
    for amount in [0, -1, i64::MIN, i64::MAX] {
        assert!(matches!(posting(transfer("b", amount)).await, Err(StoreError::Amount(_))), "{amount}");
    }
    let all_sats = Sats(2_100_000_000_000_000);
    let over = rig.store.credit(&by(account), all_sats, "c".into()).await;
    assert!(matches!(over, Err(StoreError::Amount(_))), "no balance above all sats there are");
    assert!(matches!(
        rig.store.credit(&by(account), Sats(i64::MAX), "d".into()).await,
        Err(StoreError::Amount(_))
    ));
    let nobody = rig.store.credit(&by(AccountId(99)), Sats(1), "e".into()).await;
    assert!(matches!(nobody, Err(StoreError::NotFound("account"))));
    assert_eq!(rig.store.balance(account).await.unwrap(), Msat(1_500), "refused postings leave nothing");
    let report = check(&rig.store.0.readers).await.unwrap();
    assert_eq!((report.transfers, report.moved_msat, report.balances), (1, 1_500, 1));
    assert!(report.faults.is_empty());
}

#[tokio::test]
async fn racing_postings_of_one_name_post_once() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let owner = by(account);
    let tries = (0..40).map(|index| rig.store.credit(&owner, Sats(1), format!("slot{}", index % 10)));
    for outcome in futures_util::future::join_all(tries).await {
        outcome.unwrap();
    }
    assert_eq!(rig.store.balance(account).await.unwrap(), Msat(10_000));
}

#[tokio::test]
async fn transfers_cannot_be_changed_or_deleted() {
    let rig = Rig::new().await;
    rig.account("me", 5_000).await.unwrap();
    for sql in ["UPDATE transfers SET amount_msat = 1", "DELETE FROM transfers"] {
        let error = script(&rig.store.0.writer, sql).await.unwrap_err().to_string();
        assert!(error.contains("post a correction"), "{error}");
    }
    let below = engine::query("UPDATE ledger_accounts SET balance_msat = -1 WHERE account_id IS NOT NULL");
    assert!(below.execute(&rig.store.0.writer).await.is_err(), "a customer's balance is never below zero");
}

/// The check's faults after `sql` was run directly on the database.
async fn faults_after(rig: &Rig, sql: &'static str) -> Vec<String> {
    script(&rig.store.0.writer, sql).await.unwrap();
    let report = check(&rig.store.0.readers).await.unwrap();
    report.faults.iter().map(ToString::to_string).collect()
}

/// Removes the protection of the ledger's tables.
async fn allow_everything(rig: &Rig) {
    let sql = match rig.store.0.writer {
        Pool::Sqlite(_) => {
            "DROP TRIGGER transfers_are_never_changed; PRAGMA ignore_check_constraints = ON;
            PRAGMA foreign_keys = OFF;"
        }
        Pool::Postgres(_) => {
            "DROP TRIGGER transfers_are_never_changed ON transfers;
            ALTER TABLE transfers DROP CONSTRAINT transfers_amount_msat_check, DROP CONSTRAINT transfers_check,
                DROP CONSTRAINT transfers_debit_id_fkey, DROP CONSTRAINT transfers_credit_id_fkey;"
        }
    };
    script(&rig.store.0.writer, sql).await.unwrap();
}

#[tokio::test]
async fn the_check_says_where_the_ledger_was_tampered_with() {
    let rig = Rig::new().await;
    rig.account("me", 5_000).await.unwrap();
    rig.account("you", 7_000).await.unwrap();
    assert_eq!(faults_after(&rig, "").await, [""; 0]);
    let balance = "UPDATE ledger_accounts SET balance_msat = 9000 WHERE name = 'customer:2'";
    assert_eq!(
        faults_after(&rig, balance).await,
        [
            "balance of customer:2: expected 7000 msat, found 9000 msat",
            "sum over all accounts: expected 0 msat, found 2000 msat",
        ]
    );
    allow_everything(&rig).await;
    let amount = "UPDATE transfers SET amount_msat = -9000 WHERE id = 2;";
    assert_eq!(
        faults_after(&rig, amount).await,
        [
            "transfer 2 moves -9000 msat",
            "balance of customer:2: expected -9000 msat, found 9000 msat",
            "sum over all accounts: expected 0 msat, found 18000 msat",
            "the trigger transfers_are_never_changed is missing",
        ]
    );
    let sides = "UPDATE transfers SET amount_msat = 9000, debit_id = 99 WHERE id = 2;
        UPDATE transfers SET debit_id = credit_id WHERE id = 1;";
    assert_eq!(
        faults_after(&rig, sides).await[..3],
        [
            "transfer 1 has the same account on both sides",
            "transfer 2 debits the ledger account 99, which does not exist",
            "balance of customer:1: expected 0 msat, found 5000 msat",
        ]
    );
    let orphan = "DELETE FROM ledger_accounts WHERE name = 'customer:2'";
    let orphans = faults_after(&rig, orphan).await;
    assert!(orphans.contains(&"account you has no ledger account".to_owned()), "{orphans:?}");
}

#[tokio::test]
async fn the_check_survives_amounts_no_sum_can_hold() {
    let rig = Rig::new().await;
    rig.account("me", 5_000).await.unwrap();
    allow_everything(&rig).await;
    let huge = "INSERT INTO transfers (debit_id, credit_id, amount_msat, kind, idem, created_ms)
        VALUES (1, 8, 9223372036854775807, 'x', 'x', 0), (1, 8, 9223372036854775807, 'x', 'y', 0);";
    let faults = faults_after(&rig, huge).await;
    assert!(faults.contains(&format!("transfer 2 moves {} msat", i64::MAX)), "{faults:?}");
    assert!(faults.iter().any(|fault| fault.contains("customer:1:")), "{faults:?}");
}

#[tokio::test]
async fn a_second_process_writes_at_the_same_time_and_everything_survives() {
    let rig = Rig::new().await;
    let other = open_at(&rig.path, 7).await;
    let account = rig.account("me", 0).await.unwrap();
    let owner = by(account);
    let here = (0..20).map(|index| rig.store.credit(&owner, Sats(1), format!("here{index}")));
    let there = (0..20).map(|index| other.credit(&owner, Sats(1), format!("there{index}")));
    let (here, there) =
        tokio::join!(futures_util::future::join_all(here), futures_util::future::join_all(there));
    assert!(here.into_iter().chain(there).all(|outcome| outcome.is_ok()));
    drop(rig.store);
    assert_eq!(other.balance(account).await.unwrap(), Msat(40_000));
}
