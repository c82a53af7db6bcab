//! Charges for minutes and single charges. Each is one transaction: it reads the session, writes the transfers, then
//! updates balance, session and destination. If it is dropped between any two steps, nothing remains.

pub(crate) mod overage;

use std::collections::HashMap;

use serde_json::json;

use crate::engine::{self, Tx};
use crate::error::{Result, StoreError, db};
use crate::ledger::{AMOUNT_MSAT_MAX, balance};
use crate::store::{Lock, Page, Store};
use crate::webhooks::EventType;
use crate::webhooks::events::{NewEvent, emit};
use satcast_core::ids::{AccountId, DestinationId, EndReason, Msat, SessionId, StreamId, UnixMillis};

/// A destination that pays for a slot of a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Number of the slot. A slot of a session's minute is charged once.
    pub slot: u32,
    /// The destination that takes the slot.
    pub destination: DestinationId,
}

/// Slots of one minute, charged together or not at all.
#[derive(Clone, Debug)]
pub struct MinuteCharge {
    pub session: SessionId,
    /// Number of the minute in the session, from 0.
    pub minute: u64,
    /// At least one.
    pub slots: Vec<Slot>,
    /// Price of each slot, above zero.
    pub price: Msat,
    /// Limit of the session's total cost.
    pub budget: Option<Msat>,
    pub now: UnixMillis,
}

/// Totals after a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Charged to the session so far.
    pub charged: Msat,
    /// The account's balance.
    pub balance: Msat,
}

/// Result of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charged {
    /// It is posted, now or by an earlier try.
    Posted(Totals),
    /// The charge would exceed the session's limit; nothing was posted.
    OverBudget(Totals),
    /// The balance is too small; nothing was posted.
    Insufficient(Totals),
    /// The session does not exist, does not belong to this node any more, or was ended as interrupted by another start
    /// of the service; nothing was posted.
    NotOurs,
}

/// A charge for one thing.
#[derive(Clone, Debug)]
pub struct SingleCharge {
    /// The account that pays.
    pub account: AccountId,
    /// Millisats, above zero.
    pub amount: Msat,
    /// Purpose; one lower-case word.
    pub kind: &'static str,
    /// Unique for ever: charging the same name again changes nothing.
    pub idem: String,
    /// The destination that the charge is about.
    pub destination: Option<DestinationId>,
    pub now: UnixMillis,
}

/// A line of an account's statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementEntry {
    pub id: i64,
    /// When it was posted.
    pub at: UnixMillis,
    pub kind: String,
    /// Above zero if the account received it, below if it paid.
    pub amount: Msat,
    pub session: Option<SessionId>,
    /// The stream of the session or of the destination.
    pub stream: Option<StreamId>,
    pub destination: Option<DestinationId>,
    /// The session's minute, from 0.
    pub minute: Option<i64>,
    /// The clock hour of the bytes.
    pub hour: Option<UnixMillis>,
    /// The recording whose retry was paid or refunded.
    pub file_name: Option<String>,
}

/// Kind of a charge for minutes.
pub(crate) const KIND_MINUTE: &str = "minute";
/// Kind of a refund.
pub(crate) const KIND_REFUND: &str = "refund";

const SESSION: &str = "SELECT s.account_id, e.charged_msat, e.end_reason FROM sessions e
    JOIN streams s ON s.id = e.stream_id WHERE e.id = $1";
const POST: &str = "INSERT INTO transfers
    (debit_id, credit_id, amount_msat, kind, idem, session_id, destination_id, minute, hour_ms, created_ms)
    SELECT customer.id, house.id, $3, $4, $5, $6, $7, $8, $9, $10 FROM ledger_accounts house, ledger_accounts customer
    WHERE house.name = $1 AND customer.account_id = $2
    ON CONFLICT (idem) DO NOTHING RETURNING id";
const TAKE: &str = "UPDATE ledger_accounts SET balance_msat = balance_msat - $2
    WHERE account_id = $1 AND balance_msat >= $2 RETURNING balance_msat";
const ADD_TO_SESSION: &str =
    "UPDATE sessions SET charged_msat = charged_msat + $2 WHERE id = $1 RETURNING charged_msat";
/// The row may be missing: destinations do not wait for the database, so their start is recorded later.
const ADD_TO_DESTINATION: &str = "INSERT INTO session_destinations
    (session_id, destination_id, account_id, stream_id, platform, started_ms, ended_ms, cost_msat)
    SELECT e.id, d.id, s.account_id, s.id, d.platform, $4, e.ended_ms, $3
    FROM sessions e, destinations d JOIN streams s ON s.id = d.stream_id WHERE e.id = $1 AND d.id = $2
    ON CONFLICT (session_id, destination_id) DO UPDATE SET cost_msat = session_destinations.cost_msat + excluded.cost_msat";
const FIND: &str = "SELECT debit_id, credit_id, amount_msat, session_id, destination_id, minute, hour_ms
    FROM transfers WHERE idem = $1";
const REVERSE: &str = "INSERT INTO transfers
    (debit_id, credit_id, amount_msat, kind, idem, session_id, destination_id, minute, hour_ms, created_ms)
    SELECT credit_id, debit_id, amount_msat, $2, $3, session_id, destination_id, minute, hour_ms, $4
    FROM transfers WHERE idem = $1 ON CONFLICT (idem) DO NOTHING RETURNING id";
const TAKE_FROM_DESTINATION: &str = "UPDATE session_destinations SET cost_msat = cost_msat - $3
    WHERE session_id = $1 AND destination_id = $2";
const GIVE: &str = "UPDATE ledger_accounts SET balance_msat = balance_msat + $2
    WHERE id = $1 AND balance_msat IS NOT NULL";
/// Credit that arrived while the session was ending counts too. If it is too little, the charges are refused anyway.
const STARVED: &str = "SELECT COUNT(*) FROM sessions e JOIN streams s ON s.id = e.stream_id
    JOIN ledger_accounts l ON l.account_id = s.account_id
    WHERE e.id = (SELECT n.id FROM sessions n WHERE n.stream_id = $1 ORDER BY n.started_ms DESC, n.id DESC LIMIT 1)
    AND e.end_reason = $2
    AND NOT EXISTS (SELECT 1 FROM transfers t WHERE t.credit_id = l.id AND t.created_ms >= e.ended_ms - 10000)";
/// Two lists that an index has in order. A single condition would sort every transfer of the account.
const STATEMENT: &str = "SELECT own.*, COALESCE(e.stream_id, d.stream_id) FROM (
    SELECT * FROM (SELECT t.id, t.created_ms, t.kind, t.amount_msat, t.session_id,
    t.destination_id, t.minute, t.hour_ms, t.idem FROM transfers t
    WHERE t.credit_id = (SELECT l.id FROM ledger_accounts l WHERE l.account_id = $1) AND t.id < $2
    ORDER BY t.id DESC LIMIT $3) AS got
    UNION ALL SELECT * FROM (SELECT t.id, t.created_ms, t.kind, -t.amount_msat, t.session_id,
    t.destination_id, t.minute, t.hour_ms, t.idem FROM transfers t
    WHERE t.debit_id = (SELECT l.id FROM ledger_accounts l WHERE l.account_id = $1) AND t.id < $2
    ORDER BY t.id DESC LIMIT $3) AS paid
    ORDER BY 1 DESC LIMIT $3) AS own
    LEFT JOIN sessions e ON e.id = own.session_id LEFT JOIN destinations d ON d.id = own.destination_id
    ORDER BY own.id DESC";
/// Recordings of an account, deleted ones included, from one id to another.
const RECORDING_NAMES: &str =
    "SELECT id, file_name FROM archives WHERE account_id = $1 AND id BETWEEN $2 AND $3 ORDER BY id";

/// One transfer from a customer to a house account.
pub(crate) struct Posting<'a> {
    pub(crate) account: AccountId,
    pub(crate) house: &'static str,
    pub(crate) amount: Msat,
    pub(crate) kind: &'static str,
    pub(crate) idem: String,
    pub(crate) session: Option<&'a SessionId>,
    pub(crate) destination: Option<DestinationId>,
    pub(crate) minute: Option<i64>,
    pub(crate) hour: Option<UnixMillis>,
    pub(crate) now: UnixMillis,
}

/// Writes the transfer; `false` if a transfer of that name exists.
pub(crate) async fn post(tx: &mut Tx, posting: &Posting<'_>) -> Result<bool> {
    let inserted = engine::query(POST)
        .bind(posting.house)
        .bind(posting.account.0)
        .bind(posting.amount.0)
        .bind(posting.kind)
        .bind(&posting.idem)
        .bind(posting.session.map(SessionId::as_str))
        .bind(posting.destination.map(|id| id.0))
        .bind(posting.minute)
        .bind(posting.hour.map(|hour| hour.0))
        .bind(posting.now.0);
    inserted.fetch_optional(&mut *tx).await.map(|row| row.is_some()).map_err(db("post the charge"))
}

/// Adds a charge to its session; returns the session's new total.
pub(crate) async fn add_to_session(tx: &mut Tx, session: &SessionId, amount: Msat) -> Result<Msat> {
    let add = engine::query_scalar(ADD_TO_SESSION).bind(session.as_str()).bind(amount.0);
    add.fetch_one(&mut *tx).await.map(Msat).map_err(db("add to the session's charges"))
}

/// Adds a charge to the cost of its destination in the session.
pub(crate) async fn add_to_destination(
    tx: &mut Tx,
    session: &SessionId,
    destination: DestinationId,
    amount: Msat,
    now: UnixMillis,
) -> Result<()> {
    let add = engine::query(ADD_TO_DESTINATION)
        .bind(session.as_str())
        .bind(destination.0)
        .bind(amount.0)
        .bind(now.0);
    add.execute(&mut *tx).await.map(drop).map_err(db("add to the destination's charges"))
}

/// Takes an amount from a balance; `None` if the balance is smaller. If the balance falls below `low`, the owner is
/// notified in the same transaction, so a crash cannot lose or repeat the notice.
pub(crate) async fn take(
    tx: &mut Tx,
    account: AccountId,
    amount: Msat,
    low: Msat,
    now: UnixMillis,
) -> Result<Option<Msat>> {
    let taken = engine::query_scalar(TAKE).bind(account.0).bind(amount.0).fetch_optional(&mut *tx).await;
    let taken: Option<i64> = taken.map_err(db("take from the balance"))?;
    let Some(left) = taken.map(Msat) else { return Ok(None) };
    if left < low && left.0.saturating_add(amount.0) >= low.0 {
        let (event, data) = (EventType::BalanceLow, json!({"balance": left.to_sats_floor().0}));
        tracing::warn!(event = event.as_str(), %account, balance_msat = left.0, "the balance is nearly used up");
        emit(tx, NewEvent { account, stream: None, event, data, at: now, now }).await?;
    }
    Ok(Some(left))
}

/// Refunds the charge of that name with a transfer of its own; `false` if it was refunded before.
pub(crate) async fn reverse(tx: &mut Tx, idem: &str, now: UnixMillis) -> Result<bool> {
    let failed = db("refund a charge");
    let row = engine::query(FIND).bind(idem).fetch_optional(&mut *tx).await.map_err(&failed)?;
    let row = row.ok_or(StoreError::NotFound("charge"))?;
    let reverse = engine::query(REVERSE).bind(idem).bind(KIND_REFUND).bind(format!("refund:{idem}"));
    let reversed = reverse.bind(now.0).fetch_optional(&mut *tx).await.map_err(&failed)?;
    if reversed.is_none() {
        return Ok(false);
    }
    let payer: i64 = row.try_get("debit_id").map_err(&failed)?;
    let amount: i64 = row.try_get("amount_msat").map_err(&failed)?;
    let given = engine::query(GIVE).bind(payer).bind(amount).execute(&mut *tx).await.map_err(&failed)?;
    if given == 0 {
        return Err(StoreError::NotFound("charge of an account"));
    }
    let session: Option<String> = row.try_get("session_id").map_err(&failed)?;
    let destination: Option<i64> = row.try_get("destination_id").map_err(&failed)?;
    if let Some(session) = session.map(SessionId) {
        add_to_session(tx, &session, Msat(-amount)).await?;
        let less = engine::query(TAKE_FROM_DESTINATION).bind(session.as_str()).bind(destination).bind(amount);
        less.execute(&mut *tx).await.map_err(&failed)?;
    }
    Ok(true)
}

impl Store {
    /// Charges slots of a minute. A repeat posts nothing twice, whatever the result of the first try was.
    ///
    /// # Errors
    /// The database failed: whether the charge is posted is unknown until it is tried again.
    pub async fn charge_minute(&self, charge: &MinuteCharge) -> Result<Charged> {
        let mut tx = match self.begin_owning(&charge.session).await {
            Err(StoreError::OwnershipLost) => return Ok(Charged::NotOurs),
            begun => begun?,
        };
        let row = engine::query_as(SESSION).bind(charge.session.as_str()).fetch_optional(&mut tx).await;
        let row: Option<(i64, i64, Option<String>)> = row.map_err(db("read the session"))?;
        let Some((account, before, end_reason)) = row else { return Ok(Charged::NotOurs) };
        // A service that closes interrupted sessions has taken over this database.
        if end_reason.as_deref() == Some(EndReason::Interrupted.as_str()) {
            return Ok(Charged::NotOurs);
        }
        let account = AccountId(account);
        let mut due = 0_i64;
        for slot in &charge.slots {
            let posting = Posting {
                account,
                house: "revenue",
                amount: charge.price,
                kind: KIND_MINUTE,
                idem: format!("minute:{}:{}:{}", charge.session, charge.minute, slot.slot),
                session: Some(&charge.session),
                destination: Some(slot.destination),
                minute: i64::try_from(charge.minute).ok(),
                hour: None,
                now: charge.now,
            };
            if post(&mut tx, &posting).await? {
                due = due.saturating_add(charge.price.0);
                add_to_destination(&mut tx, &charge.session, slot.destination, charge.price, charge.now)
                    .await?;
            }
        }
        let mut totals = Totals { charged: Msat(before), balance: balance(&mut tx, account).await? };
        if due == 0 {
            return Ok(Charged::Posted(totals));
        }
        // Dropping the transaction rolls back the transfers.
        if charge.budget.is_some_and(|budget| before.saturating_add(due) > budget.0) {
            return Ok(Charged::OverBudget(totals));
        }
        let Some(left) = take(&mut tx, account, Msat(due), self.0.low_balance, charge.now).await? else {
            return Ok(Charged::Insufficient(totals));
        };
        totals.balance = left;
        totals.charged = add_to_session(&mut tx, &charge.session, Msat(due)).await?;
        tx.commit().await?;
        Ok(Charged::Posted(totals))
    }

    /// Posts a single charge. A repeat posts nothing.
    ///
    /// # Errors
    /// [`StoreError::Amount`]; [`StoreError::NotFound`] for an unknown account.
    pub async fn charge_once(&self, charge: &SingleCharge) -> Result<Charged> {
        if !(1..=AMOUNT_MSAT_MAX).contains(&charge.amount.0) {
            return Err(StoreError::Amount(charge.amount.to_sats_floor().0));
        }
        let mut tx = self.begin_holding(Lock::Account(charge.account)).await?;
        let mut totals = Totals { charged: Msat(0), balance: balance(&mut tx, charge.account).await? };
        let posting = Posting {
            account: charge.account,
            house: "revenue",
            amount: charge.amount,
            kind: charge.kind,
            idem: charge.idem.clone(),
            session: None,
            destination: charge.destination,
            minute: None,
            hour: None,
            now: charge.now,
        };
        if !post(&mut tx, &posting).await? {
            return Ok(Charged::Posted(totals));
        }
        let Some(left) = take(&mut tx, charge.account, charge.amount, self.0.low_balance, charge.now).await?
        else {
            return Ok(Charged::Insufficient(totals));
        };
        totals.balance = left;
        tx.commit().await?;
        Ok(Charged::Posted(totals))
    }

    /// Refunds the charge of that name with a transfer of its own; `false` if it was refunded before.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is no charge of that name.
    pub async fn refund(&self, idem: &str, now: UnixMillis) -> Result<bool> {
        let mut tx = self.begin_holding(Lock::Charge(idem)).await?;
        if !reverse(&mut tx, idem, now).await? {
            return Ok(false);
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Whether the stream's last session ended for insufficient funds and the account has received no credit since.
    pub async fn is_starved(&self, stream: StreamId) -> Result<bool> {
        let ask = engine::query_scalar(STARVED).bind(stream.0).bind(EndReason::InsufficientFunds.as_str());
        let count: i64 =
            ask.fetch_one(&self.0.readers).await.map_err(db("read the end of the last session"))?;
        Ok(count > 0)
    }

    /// The account's entries, newest first.
    pub async fn statement(&self, account: AccountId, page: Page) -> Result<Vec<StatementEntry>> {
        let failed = db("read the ledger");
        let before = page.end();
        let rows = engine::query_as(STATEMENT).bind(account.0).bind(before).bind(page.limit);
        let rows: Vec<EntryRow> = rows.fetch_all(&self.0.readers).await.map_err(&failed)?;
        let recordings: Vec<i64> = rows.iter().filter_map(|row| recovered(&row.8)).collect();
        let mut names = HashMap::new();
        if let (Some(first), Some(last)) = (recordings.iter().min(), recordings.iter().max()) {
            let named = engine::query_as(RECORDING_NAMES).bind(account.0).bind(*first).bind(*last);
            let named: Vec<(i64, String)> = named.fetch_all(&self.0.readers).await.map_err(&failed)?;
            names.extend(named);
        }
        Ok(rows.into_iter().map(|row| entry(row, &names)).collect())
    }
}

/// Id, time, kind, amount, session, destination, minute, hour, name of the transfer, stream.
type EntryRow =
    (i64, i64, String, i64, Option<String>, Option<i64>, Option<i64>, Option<i64>, String, Option<i64>);

/// The recording whose retry was paid or refunded by the transfer of this name.
fn recovered(idem: &str) -> Option<i64> {
    let name = idem.strip_prefix("refund:").unwrap_or(idem);
    name.strip_prefix("recovery:")?.split_once(':')?.0.parse().ok()
}

fn entry(row: EntryRow, names: &HashMap<i64, String>) -> StatementEntry {
    let (id, at, kind, amount, session, destination, minute, hour, idem, stream) = row;
    StatementEntry {
        file_name: recovered(&idem).and_then(|recording| names.get(&recording).cloned()),
        id,
        at: UnixMillis(at),
        kind,
        amount: Msat(amount),
        session: session.map(SessionId),
        stream: stream.map(StreamId),
        destination: destination.map(DestinationId),
        minute,
        hour: hour.map(UnixMillis),
    }
}
