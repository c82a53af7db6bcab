//! The check of the ledger: what can be recomputed is, and every rule the schema promises is looked at again, as
//! though nothing had ever enforced it. Sums are taken here and not in SQL, where a damaged amount overflows them.

use std::collections::HashMap;

use futures_util::TryStreamExt as _;
use sqlx::{Sqlite, SqlitePool, Transaction};

use super::db;
use super::ledger::AMOUNT_MSAT_MAX;
use crate::store::{LedgerFault, LedgerReport, Result};

/// Faults that are named one by one; of more the first ones are enough to know that a backup is needed.
const FAULTS_MAX: usize = 1_000;

const ACCOUNTS: &str =
    "SELECT id, name, account_id IS NOT NULL AS customer, balance_msat FROM ledger_accounts ORDER BY id";
const TRANSFERS: &str = "SELECT id, debit_id, credit_id, amount_msat FROM transfers ORDER BY id";
const WITHOUT_LEDGER: &str = "SELECT a.name FROM accounts a
    WHERE NOT EXISTS (SELECT 1 FROM ledger_accounts l WHERE l.account_id = a.id) ORDER BY a.id";
const TRIGGERS: &str = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'transfers'";
/// What keeps transfers from being changed; made by the first migration.
const TRIGGER_NAMES: [&str; 2] = ["transfers_are_never_changed", "transfers_are_never_deleted"];

/// Id, name, whether it is a customer's, stored balance.
type Account = (i64, String, bool, Option<i64>);
/// Id, ledger account debited, ledger account credited, amount.
type Transfer = (i64, i64, i64, i64);

/// Recomputes the ledger; see [`LedgerReport`] for what that proves.
pub(super) async fn check(pool: &SqlitePool) -> Result<LedgerReport> {
    let failed = db("check the ledger");
    // One transaction: everything is of the same moment beside a running service.
    let mut tx = pool.begin().await.map_err(&failed)?;
    let accounts: Vec<Account> = sqlx::query_as(ACCOUNTS).fetch_all(&mut *tx).await.map_err(&failed)?;
    let mut report = LedgerReport::default();
    let mut sums: HashMap<i64, i128> = accounts.iter().map(|(id, ..)| (*id, 0)).collect();
    add_transfers(&mut tx, &mut report, &mut sums).await?;
    compare_balances(&accounts, &sums, &mut report);
    let orphans: Vec<String> =
        sqlx::query_scalar(WITHOUT_LEDGER).fetch_all(&mut *tx).await.map_err(&failed)?;
    for name in orphans {
        fault(&mut report, LedgerFault::Rule(format!("account {name} has no ledger account")));
    }
    let triggers: Vec<String> = sqlx::query_scalar(TRIGGERS).fetch_all(&mut *tx).await.map_err(&failed)?;
    for name in TRIGGER_NAMES.iter().filter(|name| !triggers.iter().any(|found| found == *name)) {
        fault(&mut report, LedgerFault::Rule(format!("the trigger {name} is missing")));
    }
    Ok(report)
}

/// Adds every transfer to both its sides, and names those that break a rule.
async fn add_transfers(
    tx: &mut Transaction<'static, Sqlite>,
    report: &mut LedgerReport,
    sums: &mut HashMap<i64, i128>,
) -> Result<()> {
    let mut moved: i128 = 0;
    let mut transfers = sqlx::query_as::<_, Transfer>(TRANSFERS).fetch(&mut **tx);
    while let Some(row) = transfers.try_next().await.map_err(db("check the ledger"))? {
        let (id, debit_id, credit_id, amount_msat) = row;
        report.transfers += 1;
        moved += i128::from(amount_msat);
        if !(1..=AMOUNT_MSAT_MAX).contains(&amount_msat) {
            fault(report, LedgerFault::Rule(format!("transfer {id} moves {amount_msat} msat")));
        }
        if debit_id == credit_id {
            fault(report, LedgerFault::Rule(format!("transfer {id} has the same account on both sides")));
        }
        for (side, account, amount) in
            [("debits", debit_id, -i128::from(amount_msat)), ("credits", credit_id, i128::from(amount_msat))]
        {
            match sums.get_mut(&account) {
                Some(sum) => *sum += amount,
                None => {
                    let text =
                        format!("transfer {id} {side} the ledger account {account}, which does not exist");
                    fault(report, LedgerFault::Rule(text));
                }
            }
        }
    }
    report.moved_msat = clamped(moved);
    Ok(())
}

/// Compares each stored balance with its transfers, and all accounts together with zero: what customers have, as
/// stored, is what the house accounts gave, as recomputed.
fn compare_balances(accounts: &[Account], sums: &HashMap<i64, i128>, report: &mut LedgerReport) {
    let mut together: i128 = 0;
    for (id, name, customer, balance_msat) in accounts {
        let sum = sums.get(id).copied().unwrap_or_default();
        if !customer {
            together += sum;
            continue;
        }
        report.balances += 1;
        let stored = balance_msat.unwrap_or_default();
        together += i128::from(stored);
        if i128::from(stored) != sum {
            fault(report, amount(format!("balance of {name}"), sum, stored.into()));
        }
    }
    if together != 0 {
        fault(report, amount("sum over all accounts".to_owned(), 0, together));
    }
}

fn amount(place: String, expected: i128, found: i128) -> LedgerFault {
    LedgerFault::Amount { place, expected_msat: clamped(expected), found_msat: clamped(found) }
}

fn fault(report: &mut LedgerReport, fault: LedgerFault) {
    if report.faults.len() < FAULTS_MAX {
        report.faults.push(fault);
    }
}

/// The sum as it is shown; one beyond the range of amounts is wrong anyway.
fn clamped(sum: i128) -> i64 {
    i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX })
}
