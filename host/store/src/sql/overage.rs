//! Playback above the allowance: one pass over an account's clock hour is one transaction. What a pass has seen of the
//! bytes, what it charged and what it waived change together, so that a crash repeats nothing and loses nothing.

use super::charges::{self, Posting};
use super::engine::{self, Pool, Tx};
use super::{commit, db};
use crate::{
    Decide, HourDecision, HourFacts, HourOutcome, HourTerms, OveragePart, Result, Served, ServingSession,
    StoreError, TimeRange, Totals,
};
use satcast_core::ids::{AccountId, DestinationId, HOUR_MS, Msat, SessionId, UnixMillis};

/// The kind of a charge for playback.
pub(super) const KIND_OVERAGE: &str = "overage";
/// The kind of an entry for what is never taken; between two house accounts.
pub(super) const KIND_WAIVED: &str = "waived";

const UNBILLED: &str = "SELECT DISTINCT account_id, hour_ms FROM bandwidth
    WHERE billed_bytes < bytes AND ($1 IS NULL OR account_id = $1) ORDER BY hour_ms, account_id LIMIT $2";
const OPEN: &str = "INSERT INTO overage_hours (account_id, hour_ms, price_msat_per_gb, limit_bytes)
    VALUES ($1, $2, $3, $4) ON CONFLICT (account_id, hour_ms) DO NOTHING";
const HOUR: &str =
    "SELECT price_msat_per_gb, limit_bytes, charged_msat, waived_msat, passes FROM overage_hours
    WHERE account_id = $1 AND hour_ms = $2";
const BYTES: &str = "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM bandwidth
    WHERE account_id = $1 AND hour_ms = $2";
/// Each destination's bytes since the last pass, with its newest session.
const SERVED: &str = "SELECT b.destination_id, b.bytes - b.billed_bytes, e.id, e.charged_msat,
    e.ended_ms IS NULL, s.max_sats FROM bandwidth b
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
/// Destination, bytes, session, what that was charged, whether it runs, its stream's limit in sats.
type ServedRow = (i64, i64, Option<String>, Option<i64>, Option<bool>, Option<i64>);

pub(super) async fn unbilled(
    readers: &Pool,
    account: Option<AccountId>,
    limit: i64,
) -> Result<Vec<(AccountId, UnixMillis)>> {
    let rows = engine::query_as(UNBILLED).bind(account.map(|id| id.0)).bind(limit).fetch_all(readers).await;
    let rows: Vec<(i64, i64)> = rows.map_err(db("find bytes that are not charged"))?;
    Ok(rows.into_iter().map(|(account, hour)| (AccountId(account), UnixMillis(hour))).collect())
}

pub(super) async fn charges(readers: &Pool, account: AccountId, range: TimeRange) -> Result<Msat> {
    let from = range.from.map_or(i64::MIN, |time| time.0);
    // The hour that `from` lies in overlaps the range as well.
    let from = from.saturating_sub(from.rem_euclid(HOUR_MS));
    let to = range.to.map_or(i64::MAX, |time| time.0);
    let sum = engine::query_scalar(CHARGES).bind(account.0).bind(from).bind(to).fetch_one(readers).await;
    sum.map(Msat).map_err(db("sum the charges for playback"))
}

/// One pass at the time `now`; nothing happened unless it returns. A balance that it takes below `low` is told.
pub(super) async fn bill(
    mut tx: Tx,
    account: AccountId,
    hour: UnixMillis,
    terms: HourTerms,
    (now, low): (UnixMillis, Msat),
    decide: Decide<'_>,
) -> Result<HourOutcome> {
    let (facts, pass) = read(&mut tx, account, hour, terms).await?;
    if facts.served.is_empty() {
        return Ok(HourOutcome::default());
    }
    let decision = decide(&facts);
    let totals = write(&mut tx, account, hour, pass, &decision, (now, low)).await?;
    let failed = db("note the bytes that were seen");
    // In the order in which bytes are added, so that the two cannot wait for each other.
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
    commit(tx).await?;
    Ok(HourOutcome { decision, totals })
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
    let bytes = engine::query_scalar(BYTES).bind(account.0).bind(hour.0).fetch_one(&mut *tx).await;
    let bytes: i64 = bytes.map_err(&failed)?;
    let rows = engine::query_as(SERVED).bind(account.0).bind(hour.0).fetch_all(&mut *tx).await;
    let rows: Vec<ServedRow> = rows.map_err(&failed)?;
    let mut served = Vec::with_capacity(rows.len());
    for (destination, bytes, session, charged, running, max_sats) in rows {
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
        bytes: u64::try_from(bytes).map_err(unreadable)?,
        charged: Msat(charged),
        waived: Msat(waived),
        balance: charges::balance(tx, account).await?,
        served,
    };
    Ok((facts, passes))
}

/// Posts what was decided; gives the new totals of the sessions in it.
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
            // The decision was made in this transaction, from this balance, and a pass has its number once.
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
            waive.execute(&mut *tx).await.map_err(db("waive"))?;
        }
    }
    Ok(totals)
}
