//! The check of the ledger. It recomputes every derived amount and checks every rule of the schema again, as if nothing
//! had enforced it. Sums are taken here and not in SQL, where a damaged amount would overflow them.

use std::collections::HashMap;
use std::fmt;

use futures_util::TryStreamExt as _;

use crate::archives::{clips, recoveries};
use crate::charges::overage::KIND_OVERAGE;
use crate::engine::{self, Pool, Sql, Tx};
use crate::error::{Result, db};
use crate::ledger::AMOUNT_MSAT_MAX;
use crate::wallets::invoices;

/// Result of the check of the ledger.
///
/// A report without faults proves that
/// - every transfer moves an allowed amount between two different accounts that exist;
/// - every customer has a ledger account whose stored balance is the sum of its transfers;
/// - stored balances and recomputed house accounts together are zero;
/// - the stored totals of sessions, of destinations in them, and of clock hours of playback are the sums of their
///   transfers;
/// - every paid invoice has its transfer, and every transfer of the receiving wallet its invoice;
/// - every paid retry of an upload has its charge, and its refund if its end requires one;
/// - every clip that was charged has its transfer, and every charge for a clip its clip;
/// - the triggers that prevent changes of transfers exist.
///
/// It cannot prove that the transfers are the original ones: anyone with write access to the file can change an amount
/// and the balance together, and only a comparison with a backup shows that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerReport {
    pub transfers: i64,
    /// Sum of all transfers in millisats.
    pub moved_msat: i64,
    /// Number of customers' balances that were recomputed.
    pub balances: i64,
    /// Number of sessions whose charges were recomputed.
    pub sessions: i64,
    /// All faults; empty for a consistent ledger.
    pub faults: Vec<LedgerFault>,
}

/// A fault of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerFault {
    /// Two amounts that must be equal differ.
    Amount {
        /// The compared amount, with names or ids.
        place: String,
        /// The amount according to the transfers, in millisats.
        expected_msat: i64,
        /// The stored amount, in millisats.
        found_msat: i64,
    },
    /// A broken rule and its place, as text.
    Rule(String),
}

impl fmt::Display for LedgerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Amount { place, expected_msat, found_msat } => {
                write!(f, "{place}: expected {expected_msat} msat, found {found_msat} msat")
            }
            Self::Rule(text) => f.write_str(text),
        }
    }
}

/// Most faults that are listed; more are not needed to see that a backup must be restored.
const FAULTS_MAX: usize = 1_000;

const ACCOUNTS: &str = "SELECT id, name, account_id IS NOT NULL AS customer, balance_msat, account_id FROM ledger_accounts ORDER BY id";
const TRANSFERS: &str =
    "SELECT id, debit_id, credit_id, amount_msat, session_id, destination_id, kind, hour_ms
    FROM transfers ORDER BY id";
const WITHOUT_LEDGER: &str = "SELECT a.name FROM accounts a
    WHERE NOT EXISTS (SELECT 1 FROM ledger_accounts l WHERE l.account_id = a.id) ORDER BY a.id";
const SESSIONS: &str = "SELECT id, charged_msat FROM sessions ORDER BY id";
const DESTINATIONS: &str = "SELECT session_id, destination_id, cost_msat FROM session_destinations ORDER BY session_id, destination_id";
const HOURS: &str =
    "SELECT account_id, hour_ms, charged_msat FROM overage_hours ORDER BY account_id, hour_ms";
const WAIVED_HOURS: &str = "SELECT account_id, hour_ms, waived_msat FROM overage_hours WHERE waived_msat <> 0 ORDER BY account_id, hour_ms";
/// Waived amounts belong to a destination and an hour; the stored bytes of these name the account.
const WAIVED: &str = "SELECT b.account_id, t.hour_ms, t.amount_msat FROM transfers t
    LEFT JOIN bandwidth b ON b.destination_id = t.destination_id AND b.hour_ms = t.hour_ms WHERE t.kind = 'waived'";
const PAID_BY_OTHERS: &str =
    "SELECT t.id, t.session_id FROM transfers t JOIN sessions e ON e.id = t.session_id
    JOIN streams s ON s.id = e.stream_id JOIN ledger_accounts l ON l.id = t.debit_id OR l.id = t.credit_id
    WHERE l.account_id IS NOT NULL AND l.account_id <> s.account_id ORDER BY t.id";
const TRIGGERS: Sql = Sql {
    sqlite: "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'transfers'",
    postgres: "SELECT CAST(tgname AS TEXT) FROM pg_trigger
        WHERE tgrelid = CAST('transfers' AS regclass) AND tgenabled IN ('O', 'A')",
};
/// Triggers that prevent changes of transfers; created by the first migration.
const TRIGGER_NAMES: [&str; 2] = ["transfers_are_never_changed", "transfers_are_never_deleted"];

/// Id, name, whether it is a customer's, stored balance, account.
type Account = (i64, String, bool, Option<i64>, Option<i64>);

/// Id, ledger account debited, ledger account credited, amount, session, destination, kind, clock hour.
type Transfer = (i64, i64, i64, i64, Option<String>, Option<i64>, String, Option<i64>);

/// Sums of the transfers.
#[derive(Default)]
struct Sums {
    accounts: HashMap<i64, i128>,
    /// The customers' ledger accounts.
    customers: HashMap<i64, i64>,
    /// Paid by customers, by session.
    sessions: HashMap<String, i128>,
    destinations: HashMap<(String, i64), i128>,
    /// For playback, by customer and clock hour.
    hours: HashMap<(i64, i64), i128>,
}

/// Recomputes the ledger; see [`LedgerReport`] for what that proves.
pub(crate) async fn check(pool: &Pool) -> Result<LedgerReport> {
    // One transaction: everything is of the same moment beside a running service.
    let mut tx = pool.begin_snapshot().await.map_err(db("check the ledger"))?;
    check_in(&mut tx).await
}

/// The same inside a transaction.
pub(crate) async fn check_in(tx: &mut Tx) -> Result<LedgerReport> {
    let failed = db("check the ledger");
    let accounts: Vec<Account> = engine::query_as(ACCOUNTS).fetch_all(&mut *tx).await.map_err(&failed)?;
    let mut report = LedgerReport::default();
    let mut sums = Sums {
        accounts: accounts.iter().map(|(id, ..)| (*id, 0)).collect(),
        customers: accounts.iter().filter_map(|(id, .., customer)| Some((*id, (*customer)?))).collect(),
        ..Sums::default()
    };
    add_transfers(tx, &mut report, &mut sums).await?;
    compare_balances(&accounts, &sums.accounts, &mut report);
    let orphans: Vec<String> =
        engine::query_scalar(WITHOUT_LEDGER).fetch_all(&mut *tx).await.map_err(&failed)?;
    for name in orphans {
        fault(&mut report, LedgerFault::Rule(format!("account {name} has no ledger account")));
    }
    compare_charges(tx, sums, &mut report).await?;
    compare_waived(tx, &mut report).await?;
    find_strangers(tx, &mut report).await?;
    for text in invoices::faults(tx).await? {
        fault(&mut report, LedgerFault::Rule(text));
    }
    for text in recoveries::faults(tx).await? {
        fault(&mut report, LedgerFault::Rule(text));
    }
    for text in clips::faults(tx).await? {
        fault(&mut report, LedgerFault::Rule(text));
    }
    let triggers: Vec<String> = engine::query_scalar(TRIGGERS).fetch_all(&mut *tx).await.map_err(&failed)?;
    for name in TRIGGER_NAMES.iter().filter(|name| !triggers.iter().any(|found| found == *name)) {
        fault(&mut report, LedgerFault::Rule(format!("the trigger {name} is missing")));
    }
    Ok(report)
}

/// Adds every transfer to both sides, and records transfers that break a rule.
async fn add_transfers(tx: &mut Tx, report: &mut LedgerReport, sums: &mut Sums) -> Result<()> {
    let mut moved: i128 = 0;
    let mut transfers = engine::query_as::<Transfer>(TRANSFERS).fetch(&mut *tx);
    while let Some(row) = transfers.try_next().await.map_err(db("check the ledger"))? {
        let (id, debit_id, credit_id, amount_msat, ..) = row;
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
            match sums.accounts.get_mut(&account) {
                Some(sum) => *sum += amount,
                None => {
                    let text =
                        format!("transfer {id} {side} the ledger account {account}, which does not exist");
                    fault(report, LedgerFault::Rule(text));
                }
            }
            if let Some(customer) = sums.customers.get(&account).copied() {
                sums.add_charge(customer, -amount, &row);
            }
        }
    }
    report.moved_msat = clamped(moved);
    Ok(())
}

impl Sums {
    /// Adds the amount that a customer paid, or below zero got back, to the totals of the transfer's session,
    /// destination and hour.
    fn add_charge(&mut self, customer: i64, paid: i128, (.., session, destination, kind, hour): &Transfer) {
        if let Some(session) = session {
            *self.sessions.entry(session.clone()).or_default() += paid;
            if let Some(destination) = destination {
                *self.destinations.entry((session.clone(), *destination)).or_default() += paid;
            }
        }
        if let Some(hour) = hour.filter(|_| kind == KIND_OVERAGE) {
            *self.hours.entry((customer, hour)).or_default() += paid;
        }
    }
}

/// Compares the stored totals of sessions, destinations and hours with their transfers.
async fn compare_charges(tx: &mut Tx, mut sums: Sums, report: &mut LedgerReport) -> Result<()> {
    let failed = db("check the charges");
    let mut compare = |place: String, expected: Option<i128>, found: i64| {
        let expected = expected.unwrap_or_default();
        if expected != i128::from(found) {
            fault(report, amount(place, expected, found.into()));
        }
    };
    let rows: Vec<(String, i64)> = engine::query_as(SESSIONS).fetch_all(&mut *tx).await.map_err(&failed)?;
    let sessions = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    for (session, charged) in rows {
        compare(format!("charges of session {session}"), sums.sessions.remove(&session), charged);
    }
    let rows: Vec<(String, i64, i64)> =
        engine::query_as(DESTINATIONS).fetch_all(&mut *tx).await.map_err(&failed)?;
    for (session, id, cost) in rows {
        let place = format!("cost of destination {id} in session {session}");
        compare(place, sums.destinations.remove(&(session, id)), cost);
    }
    let rows: Vec<(i64, i64, i64)> = engine::query_as(HOURS).fetch_all(&mut *tx).await.map_err(&failed)?;
    for (account, hour, charged) in rows {
        let place = format!("playback of account {account} in the hour {hour}");
        compare(place, sums.hours.remove(&(account, hour)), charged);
    }
    report.sessions = sessions;
    let mut left: Vec<String> = sums
        .sessions
        .keys()
        .map(|id| format!("charges name the session {id}, which does not exist"))
        .collect();
    let destinations = sums.destinations.keys();
    left.extend(destinations.map(|(session, id)| {
        format!("charges name the destination {id} of session {session}, which has no entry")
    }));
    let hours = sums.hours.keys();
    left.extend(hours.map(|(account, hour)| {
        format!("charges name the hour {hour} of account {account}, which has no row")
    }));
    left.sort();
    left.into_iter().for_each(|text| fault(report, LedgerFault::Rule(text)));
    Ok(())
}

/// Compares the waived amounts of hours, which are never charged later, with their transfers.
async fn compare_waived(tx: &mut Tx, report: &mut LedgerReport) -> Result<()> {
    let failed = db("check the waived amounts");
    let transfers: Vec<(Option<i64>, Option<i64>, i64)> =
        engine::query_as(WAIVED).fetch_all(&mut *tx).await.map_err(&failed)?;
    let mut sums: HashMap<(i64, i64), i128> = HashMap::new();
    for (account, hour, waived) in transfers {
        match account.zip(hour) {
            Some(place) => *sums.entry(place).or_default() += i128::from(waived),
            None => fault(
                report,
                LedgerFault::Rule(format!("{waived} msat were waived for bytes without an account")),
            ),
        }
    }
    let place = |account: i64, hour: i64| format!("waived playback of account {account} in the hour {hour}");
    let hours: Vec<(i64, i64, i64)> =
        engine::query_as(WAIVED_HOURS).fetch_all(&mut *tx).await.map_err(&failed)?;
    for (account, hour, waived) in hours {
        let expected = sums.remove(&(account, hour)).unwrap_or_default();
        if expected != i128::from(waived) {
            fault(report, amount(place(account, hour), expected, waived.into()));
        }
    }
    let mut left: Vec<((i64, i64), i128)> = sums.into_iter().collect();
    left.sort_unstable();
    left.into_iter().for_each(|((account, hour), sum)| fault(report, amount(place(account, hour), sum, 0)));
    Ok(())
}

/// Records charges of a session that were paid by an account other than the session's.
async fn find_strangers(tx: &mut Tx, report: &mut LedgerReport) -> Result<()> {
    let rows = engine::query_as(PAID_BY_OTHERS).fetch_all(&mut *tx).await;
    let rows: Vec<(i64, String)> = rows.map_err(db("check the payers"))?;
    for (id, session) in rows {
        let text = format!("transfer {id} is about session {session} of another account");
        fault(report, LedgerFault::Rule(text));
    }
    Ok(())
}

/// Compares each stored balance with its transfers, and the sum of all accounts with zero: the stored balances of
/// customers equal the recomputed amounts that the house accounts gave.
fn compare_balances(accounts: &[Account], sums: &HashMap<i64, i128>, report: &mut LedgerReport) {
    let mut together: i128 = 0;
    for (id, name, customer, balance_msat, _) in accounts {
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

/// The sum in displayable form; a sum beyond the range of amounts is wrong in any case.
fn clamped(sum: i128) -> i64 {
    i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX })
}
