//! Playback above the allowance. One pass over an account's clock hour is one transaction. The bytes that the pass has
//! counted, its charges and its waived amounts change together, so that a crash repeats and loses nothing.

use crate::charges::{self, Posting, Totals};
use crate::commands::{CommandTarget, NodeCommand};
use crate::engine::{self, Tx};
use crate::error::{Result, StoreError, db};
use crate::ledger::balance;
use crate::store::{Lock, Store, TimeRange};
use satcast_core::ids::{AccountId, DestinationId, EndReason, Msat, SessionId, UnixMillis};

/// Price of playback above the allowance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HourTerms {
    /// Millisats per GB (10^9 bytes), zero or more.
    pub price_per_gb: Msat,
    /// Bytes of an account and clock hour without charge.
    pub limit_bytes: u64,
}

/// An account's clock hour, read in the transaction that charges it.
#[derive(Clone, Debug)]
pub struct HourFacts {
    /// The price in force at the first pass over the hour.
    pub terms: HourTerms,
    /// Bytes of the hour.
    pub bytes: u64,
    /// Charged for the hour so far.
    pub charged: Msat,
    /// Waived of the hour so far.
    pub waived: Msat,
    /// The account's balance.
    pub balance: Msat,
    /// Bytes since the last pass, lowest session first.
    pub served: Vec<Served>,
}

/// Bytes of one destination since the last pass.
#[derive(Clone, Debug)]
pub struct Served {
    /// The session that the bytes belong to: the newest session of the destination.
    pub session: Option<ServingSession>,
    pub destination: DestinationId,
    pub bytes: u64,
}

/// The session that bytes belong to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServingSession {
    pub id: SessionId,
    /// Charged so far.
    pub charged: Msat,
    /// Limit of the total cost, while the session runs.
    pub budget: Option<Msat>,
    /// Whether it runs.
    pub running: bool,
}

/// The share of one destination's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OveragePart {
    pub session: Option<SessionId>,
    pub destination: DestinationId,
    /// Charged to the balance.
    pub charge: Msat,
    /// Never charged.
    pub waive: Msat,
}

/// Decision of a pass over an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HourDecision {
    /// At most one for each destination.
    pub parts: Vec<OveragePart>,
    /// Sessions that end because of it.
    pub ends: Vec<(SessionId, EndReason)>,
}

/// Result of a pass over an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HourOutcome {
    pub decision: HourDecision,
    /// New totals of the sessions in it.
    pub totals: Vec<(SessionId, Totals)>,
}

/// Decides about an hour; no I/O, no clock.
pub type Decide<'a> = &'a (dyn Fn(&HourFacts) -> HourDecision + Send + Sync);

/// Kind of a charge for playback.
pub(crate) const KIND_OVERAGE: &str = "overage";
/// Kind of a transfer for waived amounts; between two house accounts.
const KIND_WAIVED: &str = "waived";

const UNBILLED: &str = "SELECT DISTINCT account_id, hour_ms FROM bandwidth
    WHERE billed_bytes < bytes AND ($1 IS NULL OR account_id = $1) ORDER BY hour_ms, account_id LIMIT $2";
const OPEN: &str = "INSERT INTO overage_hours (account_id, hour_ms, price_msat_per_gb, limit_bytes)
    VALUES ($1, $2, $3, $4) ON CONFLICT (account_id, hour_ms) DO NOTHING";
const HOUR: &str =
    "SELECT price_msat_per_gb, limit_bytes, charged_msat, waived_msat, passes FROM overage_hours
    WHERE account_id = $1 AND hour_ms = $2";
/// Each destination's bytes since the last pass, with its newest session and all bytes of the hour. One statement, because bytes are added
/// between two: those would count as billed, but not in the sum that is charged.
const SERVED: &str = "SELECT b.destination_id, b.bytes - b.billed_bytes, e.id, e.charged_msat,
    e.ended_ms IS NULL, s.max_sats, (SELECT CAST(SUM(a.bytes) AS BIGINT) FROM bandwidth a
        WHERE a.account_id = b.account_id AND a.hour_ms = b.hour_ms) FROM bandwidth b
    LEFT JOIN sessions e ON e.id = (SELECT h.session_id FROM session_destinations h
        WHERE h.destination_id = b.destination_id ORDER BY h.started_ms DESC, h.id DESC LIMIT 1)
    LEFT JOIN streams s ON s.id = e.stream_id
    WHERE b.account_id = $1 AND b.hour_ms = $2 AND b.billed_bytes < b.bytes ORDER BY e.id IS NOT NULL, e.id, b.destination_id";
const SEEN: &str = "UPDATE bandwidth SET billed_bytes = billed_bytes + $3
    WHERE destination_id = $1 AND hour_ms = $2";
const CLOSE: &str =
    "UPDATE overage_hours SET charged_msat = charged_msat + $3, waived_msat = waived_msat + $4,
    passes = passes + 1 WHERE account_id = $1 AND hour_ms = $2";
const WAIVE: &str = "INSERT INTO transfers
    (debit_id, credit_id, amount_msat, kind, idem, session_id, destination_id, hour_ms, created_ms)
    SELECT waived.id, revenue.id, $1, $2, $3, $4, $5, $6, $7 FROM ledger_accounts waived, ledger_accounts revenue
    WHERE waived.name = 'waived' AND revenue.name = 'revenue'";
const CHARGES: &str = "SELECT CAST(COALESCE(SUM(charged_msat), 0) AS BIGINT) FROM overage_hours
    WHERE account_id = $1 AND hour_ms >= $2 AND hour_ms < $3";

/// Price, allowance, charged, waived, passes.
type Hour = (i64, i64, i64, i64, i64);

/// Destination, bytes, session, its charges, whether it runs, its stream's limit in sats, bytes of the hour.
type ServedRow = (i64, i64, Option<String>, Option<i64>, Option<bool>, Option<i64>, i64);

impl Store {
    /// Clock hours with bytes that no pass has counted, oldest first, at most `limit`; of one account or of all.
    pub async fn unbilled_hours(
        &self,
        account: Option<AccountId>,
        limit: i64,
    ) -> Result<Vec<(AccountId, UnixMillis)>> {
        let rows = engine::query_as(UNBILLED).bind(account.map(|id| id.0)).bind(limit);
        let rows = rows.fetch_all(&self.0.readers).await;
        let rows: Vec<(i64, i64)> = rows.map_err(db("find the uncounted bytes"))?;
        Ok(rows.into_iter().map(|(account, hour)| (AccountId(account), UnixMillis(hour))).collect())
    }

    /// Runs one pass over an hour. `terms` apply if it is the first pass.
    ///
    /// # Errors
    /// The database failed; nothing was posted, or the whole pass was.
    pub async fn bill_hour(
        &self,
        account: AccountId,
        hour: UnixMillis,
        terms: HourTerms,
        now: UnixMillis,
        decide: Decide<'_>,
    ) -> Result<HourOutcome> {
        let tx = self.begin_holding(Lock::Account(account)).await?;
        let billed = self.bill(tx, account, hour, terms, now, decide).await;
        // Also after an error: a commit whose answer was lost may have succeeded.
        if !billed.as_ref().is_ok_and(|outcome| outcome.decision.parts.is_empty()) {
            self.has_changed();
        }
        billed
    }

    /// Runs one pass at the time `now`; nothing is committed unless it returns. The owner is notified if the balance falls
    /// below the limit. Sessions at other nodes that end because of it get their command in the same transaction.
    async fn bill(
        &self,
        mut tx: Tx,
        account: AccountId,
        hour: UnixMillis,
        terms: HourTerms,
        now: UnixMillis,
        decide: Decide<'_>,
    ) -> Result<HourOutcome> {
        let (facts, pass) = read(&mut tx, account, hour, terms).await?;
        if facts.served.is_empty() {
            return Ok(HourOutcome::default());
        }
        let decision = decide(&facts);
        let totals = write(&mut tx, account, hour, pass, &decision, (now, self.0.low_balance)).await?;
        let failed = db("mark the counted bytes");
        // In the same order in which bytes are added, so that the two cannot deadlock.
        let mut served: Vec<&Served> = facts.served.iter().collect();
        served.sort_unstable_by_key(|served| served.destination.0);
        for served in served {
            let bytes = i64::try_from(served.bytes).unwrap_or(i64::MAX);
            let seen = engine::query(SEEN).bind(served.destination.0).bind(hour.0).bind(bytes);
            seen.execute(&mut tx).await.map_err(&failed)?;
        }
        let sum = |amount: fn(&OveragePart) -> Msat| {
            decision.parts.iter().fold(0_i64, |sum, part| sum.saturating_add(amount(part).0))
        };
        let close = engine::query(CLOSE)
            .bind(account.0)
            .bind(hour.0)
            .bind(sum(|part| part.charge))
            .bind(sum(|part| part.waive));
        close.execute(&mut tx).await.map_err(&failed)?;
        for (session, reason) in &decision.ends {
            let (target, stop) = (CommandTarget::Session(session), NodeCommand::Stop(*reason));
            self.command_in(&mut tx, target, stop, now).await?;
        }
        tx.commit().await?;
        Ok(HourOutcome { decision, totals })
    }

    /// Charges of the account for playback in the clock hours that overlap `range`.
    pub async fn overage_charges(&self, account: AccountId, range: TimeRange) -> Result<Msat> {
        let (from, to) = range.hours();
        let sum = engine::query_scalar(CHARGES).bind(account.0).bind(from).bind(to);
        sum.fetch_one(&self.0.readers).await.map(Msat).map_err(db("sum the charges for playback"))
    }
}

async fn read(
    tx: &mut Tx,
    account: AccountId,
    hour: UnixMillis,
    terms: HourTerms,
) -> Result<(HourFacts, i64)> {
    let failed = db("read the hour's playback");
    let unreadable = |_| StoreError::Unreadable { what: "bandwidth" };
    let limit = i64::try_from(terms.limit_bytes).unwrap_or(i64::MAX);
    let open = engine::query(OPEN).bind(account.0).bind(hour.0).bind(terms.price_per_gb.0).bind(limit);
    open.execute(&mut *tx).await.map_err(&failed)?;
    let row = engine::query_as(HOUR).bind(account.0).bind(hour.0).fetch_one(&mut *tx).await;
    let (price, limit, charged, waived, passes): Hour = row.map_err(&failed)?;
    let rows = engine::query_as(SERVED).bind(account.0).bind(hour.0).fetch_all(&mut *tx).await;
    let rows: Vec<ServedRow> = rows.map_err(&failed)?;
    let mut served = Vec::with_capacity(rows.len());
    let all_bytes = rows.first().map_or(0, |row| row.6);
    for (destination, bytes, session, charged, running, max_sats, _) in rows {
        let running = running.unwrap_or(false);
        let session = session.map(|id| ServingSession {
            id: SessionId(id),
            charged: Msat(charged.unwrap_or(0)),
            budget: max_sats.filter(|_| running).map(|sats| Msat(sats.saturating_mul(1_000))),
            running,
        });
        let bytes = u64::try_from(bytes).map_err(unreadable)?;
        served.push(Served { session, destination: DestinationId(destination), bytes });
    }
    let facts = HourFacts {
        terms: HourTerms {
            price_per_gb: Msat(price),
            limit_bytes: u64::try_from(limit).map_err(unreadable)?,
        },
        bytes: u64::try_from(all_bytes).map_err(unreadable)?,
        charged: Msat(charged),
        waived: Msat(waived),
        balance: balance(tx, account).await?,
        served,
    };
    Ok((facts, passes))
}

/// Posts the decision; returns the new totals of its sessions.
async fn write(
    tx: &mut Tx,
    account: AccountId,
    hour: UnixMillis,
    pass: i64,
    decision: &HourDecision,
    (now, low): (UnixMillis, Msat),
) -> Result<Vec<(SessionId, Totals)>> {
    let mut totals = Vec::new();
    for part in &decision.parts {
        let name = format!("{account}:{}:{pass}:{}", hour.0, part.destination);
        if part.charge.0 > 0 {
            let posting = Posting {
                account,
                house: "revenue",
                amount: part.charge,
                kind: KIND_OVERAGE,
                idem: format!("over:{name}"),
                session: part.session.as_ref(),
                destination: Some(part.destination),
                minute: None,
                hour: Some(hour),
                now,
            };
            let posted = charges::post(tx, &posting).await?;
            let left = charges::take(tx, account, part.charge, low, now).await?;
            // The decision was made in this transaction, from this balance, and a pass number is used once.
            let balance = left.filter(|_| posted).ok_or(StoreError::Unreadable { what: "overage_hours" })?;
            if let Some(session) = &part.session {
                let charged = charges::add_to_session(tx, session, part.charge).await?;
                charges::add_to_destination(tx, session, part.destination, part.charge, now).await?;
                totals.push((session.clone(), Totals { charged, balance }));
            }
        }
        if part.waive.0 > 0 {
            let waive = engine::query(WAIVE)
                .bind(part.waive.0)
                .bind(KIND_WAIVED)
                .bind(format!("waive:{name}"))
                .bind(part.session.as_ref().map(SessionId::as_str))
                .bind(part.destination.0)
                .bind(hour.0)
                .bind(now.0);
            waive.execute(&mut *tx).await.map_err(db("post the waived amount"))?;
        }
    }
    Ok(totals)
}
