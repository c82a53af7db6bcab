//! Events: what happened, written in the transaction of its cause for the webhooks that want to know.

use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::engine::{self, Row, Tx};
use super::history::SESSION_CHARGES;
use super::{Store, db};
use crate::{
    ArchiveReport, ArchiveState, DeliveryState, EventType, Happening, Limit, Notice, Result,
    TOLD_ERROR_CHARS_MAX, ToldDestination, ToldIssue, WAITING_PER_WEBHOOK_MAX,
};
use satcast_core::ids::{AccountId, EndReason, Msat, SessionId, StreamId, UnixMillis};
use satcast_core::secret::new_event_id;

/// Destinations of a session that its end tells of: the body stays below 20 kB, as receivers expect.
const DESTINATIONS_TOLD_MAX: i64 = 100;
const MS_PER_SEC: i64 = 1_000;
const SECS_PER_MINUTE: i64 = 60;
const BYTES_PER_GB: f64 = 1e9;

/// Enabled webhooks that want an event, and how many deliveries wait for each.
const WANTING: &str = "SELECT w.id, (SELECT COUNT(*) FROM webhook_deliveries d
    WHERE d.webhook_id = w.id AND d.state = 'pending') AS waiting FROM webhooks w
    WHERE w.account_id = $1 AND w.enabled = 1 AND (w.stream_id IS NULL OR w.stream_id = $2)
    AND ',' || w.events || ',' LIKE '%,' || $3 || ',%' ORDER BY w.id";
const INSERT_EVENT: &str = "INSERT INTO webhook_events (uid, account_id, type, body, created_ms)
    VALUES ($1, $2, $3, $4, $5) RETURNING id";
const INSERT_DELIVERY: &str =
    "INSERT INTO webhook_deliveries (event_id, webhook_id, state, due_ms, created_ms)
    VALUES ($1, $2, $3, $4, $4)";
const SESSION: &str = "SELECT e.stream_id, e.started_ms, e.ended_ms, e.end_reason, e.bytes_before,
    s.account_id, s.label FROM sessions e JOIN streams s ON s.id = e.stream_id WHERE e.id = $1";
const DESTINATIONS: &str = "SELECT destination_id, platform, started_ms, ended_ms, cost_msat
    FROM session_destinations WHERE session_id = $1 ORDER BY id LIMIT $2";
/// Bytes that viewers of a stream ever got.
const STREAM_BYTES: &str = "SELECT CAST(COALESCE(SUM(b.bytes), 0) AS BIGINT) FROM bandwidth b
    JOIN destinations d ON d.id = b.destination_id WHERE d.stream_id = $1";

/// Something that happened to an account, or to one of its streams.
pub(super) struct NewEvent {
    pub(super) account: AccountId,
    /// The stream it is about; webhooks of other streams are not told.
    pub(super) stream: Option<StreamId>,
    pub(super) event: EventType,
    /// What receivers find under `data`.
    pub(super) data: Value,
    /// When it happened.
    pub(super) at: UnixMillis,
    /// When it is told.
    pub(super) now: UnixMillis,
}

/// Writes an event and one delivery for each webhook that wants it; nothing when none does. Call
/// [`Store::wake_outbox`] after the commit, or it is sent a moment later.
pub(super) async fn emit(tx: &mut Tx, event: NewEvent) -> Result<()> {
    let failed = db("note the event");
    let name = event.event.as_str();
    let wanting = engine::query_as::<(i64, i64)>(WANTING)
        .bind(event.account.0)
        .bind(event.stream.map(|stream| stream.0))
        .bind(name)
        .fetch_all(&mut *tx)
        .await
        .map_err(&failed)?;
    if wanting.is_empty() {
        return Ok(());
    }
    let id = insert_event(tx, &event).await?.0;
    for (webhook, waiting) in wanting {
        let state = if waiting < WAITING_PER_WEBHOOK_MAX {
            DeliveryState::Pending
        } else {
            tracing::warn!(
                webhook_id = webhook,
                event = name,
                "too many deliveries wait, an event is not sent"
            );
            DeliveryState::Cancelled
        };
        let insert = engine::query(INSERT_DELIVERY).bind(id).bind(webhook).bind(state.as_str());
        insert.bind(event.now.0).execute(&mut *tx).await.map_err(&failed)?;
    }
    Ok(())
}

/// Writes an event without any delivery; answers its row, its id and its body.
pub(super) async fn insert_event(tx: &mut Tx, event: &NewEvent) -> Result<(i64, String, Vec<u8>)> {
    let uid = new_event_id();
    let (name, at, data) = (event.event.as_str(), iso_8601(event.at), &event.data);
    // The order is for people.
    let body = format!(r#"{{"id":"{uid}","type":"{name}","timestamp":"{at}","data":{data}}}"#).into_bytes();
    let insert = engine::query_scalar(INSERT_EVENT).bind(&uid).bind(event.account.0).bind(name).bind(&body);
    let row = insert.bind(event.now.0).fetch_one(&mut *tx).await.map_err(db("note the event"))?;
    Ok((row, uid, body))
}

/// `2026-11-20T12:34:56.789Z`.
fn iso_8601(at: UnixMillis) -> String {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.0) * 1_000_000);
    // No time that a clock shows is outside the calendar.
    let Ok(at) = at else { return String::new() };
    let (date, time) = (at.date(), at.time());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.millisecond()
    )
}

/// Bytes that viewers of the stream got until now.
pub(super) async fn stream_bytes(tx: &mut Tx, stream: StreamId) -> Result<i64> {
    let sum = engine::query_scalar(STREAM_BYTES).bind(stream.0).fetch_one(&mut *tx).await;
    sum.map_err(db("sum the bandwidth"))
}

/// A session began.
pub(super) async fn session_started(tx: &mut Tx, session: &SessionId, now: UnixMillis) -> Result<()> {
    let Some(row) = session_row(tx, session).await? else { return Ok(()) };
    let (account, stream, data) = session_data(&row, session).map_err(db("read the session"))?;
    let (event, stream, data) = (EventType::StreamStarted, Some(stream), Value::Object(data));
    emit(tx, NewEvent { account, stream, event, data, at: now, now }).await
}

/// A session ended; its row and those of its destinations say so already.
pub(super) async fn session_ended(tx: &mut Tx, session: &SessionId, now: UnixMillis) -> Result<()> {
    let failed = db("read the session");
    let Some(row) = session_row(tx, session).await? else { return Ok(()) };
    let (account, stream, mut data) = session_data(&row, session).map_err(&failed)?;
    let started: i64 = row.try_get("started_ms").map_err(&failed)?;
    let ended: i64 = row.try_get::<Option<i64>>("ended_ms").map_err(&failed)?.unwrap_or(started);
    let reason: Option<String> = row.try_get("end_reason").map_err(&failed)?;
    let before: i64 = row.try_get("bytes_before").map_err(&failed)?;
    let bytes = stream_bytes(tx, stream).await?.saturating_sub(before).max(0);
    let cost: i64 = engine::query_scalar(SESSION_CHARGES)
        .bind(session.as_str())
        .fetch_one(&mut *tx)
        .await
        .map_err(&failed)?;
    let rows = engine::query(DESTINATIONS).bind(session.as_str()).bind(DESTINATIONS_TOLD_MAX);
    let rows = rows.fetch_all(&mut *tx).await.map_err(&failed)?;
    let destinations: Vec<Value> =
        rows.iter().map(destination_data).collect::<sqlx::Result<_>>().map_err(&failed)?;
    let secs = ended.saturating_sub(started).max(0) / MS_PER_SEC;
    let more = json!({
        "endedAt": ended, "durationMinutes": secs / SECS_PER_MINUTE, "durationSeconds": secs % SECS_PER_MINUTE,
        "totalCostSats": Msat(cost).to_sats_floor().0, "bandwidthGB": bytes as f64 / BYTES_PER_GB,
        "endReason": reason, "destinations": destinations,
    });
    if let Value::Object(more) = more {
        data.extend(more);
    }
    let limit = reason.as_deref().and_then(EndReason::parse).and_then(Limit::reached);
    let at = UnixMillis(ended);
    let (event, data) = (EventType::StreamEnded, Value::Object(data));
    emit(tx, NewEvent { account, stream: Some(stream), event, data, at, now }).await?;
    let Some(limit) = limit else { return Ok(()) };
    let (account, stream, mut data) = session_data(&row, session).map_err(&failed)?;
    data.insert("limit".to_owned(), json!(limit.as_str()));
    let (event, data) = (EventType::LimitReached, Value::Object(data));
    emit(tx, NewEvent { account, stream: Some(stream), event, data, at, now }).await
}

/// Something happens in a session.
pub(super) async fn session_notice(tx: &mut Tx, notice: &Notice) -> Result<()> {
    let session = &notice.session;
    let Some(row) = session_row(tx, session).await? else { return Ok(()) };
    let (account, stream, mut data) = session_data(&row, session).map_err(db("read the session"))?;
    let about = |told: &ToldDestination| json!({"destinationId": told.id.0, "platform": told.platform});
    let more = match &notice.what {
        Happening::LimitWarning(limit) => json!({"limit": limit.as_str()}),
        Happening::Connected(told) | Happening::Recovered(told) => about(told),
        Happening::Failed(told, error) => {
            let mut more = about(told);
            more["error"] = json!(error.chars().take(TOLD_ERROR_CHARS_MAX).collect::<String>());
            more
        }
        Happening::Health(told) => {
            let issue = |issue: &ToldIssue| json!({"code": issue.code, "text": issue.text, "platforms": issue.platforms});
            let issues: Vec<Value> = told.issues.iter().map(issue).collect();
            json!({"appeared": told.appeared, "cleared": told.cleared, "issues": issues})
        }
    };
    if let Value::Object(more) = more {
        data.extend(more);
    }
    let (event, stream, at) = (notice.what.event(), Some(stream), notice.at);
    emit(tx, NewEvent { account, stream, event, data: Value::Object(data), at, now: at }).await
}

/// A recording turned into what `report` says; only its ends are told.
pub(super) async fn recording(
    tx: &mut Tx,
    report: &ArchiveReport,
    at: UnixMillis,
    now: UnixMillis,
) -> Result<()> {
    let event = match report.state {
        ArchiveState::Ready => EventType::RecordingReady,
        ArchiveState::Failed => EventType::RecordingFailed,
        ArchiveState::Recording | ArchiveState::Uploading => return Ok(()),
    };
    let session = &report.session_id;
    let Some(row) = session_row(tx, session).await? else { return Ok(()) };
    let (account, stream, mut data) = session_data(&row, session).map_err(db("read the session"))?;
    data.insert("fileName".to_owned(), json!(report.file_name));
    data.insert("destinationId".to_owned(), json!(report.destination_id.0));
    if let Some(error) = &report.error {
        let error: String = error.chars().take(TOLD_ERROR_CHARS_MAX).collect();
        data.insert("error".to_owned(), json!(error));
    } else {
        data.insert("sizeBytes".to_owned(), json!(report.size_bytes));
        // Milliseconds of a recording are far below what a double holds exactly.
        data.insert("durationSeconds".to_owned(), json!(report.duration_ms as f64 / MS_PER_SEC as f64));
        data.insert("url".to_owned(), json!(report.url));
    }
    emit(tx, NewEvent { account, stream: Some(stream), event, data: Value::Object(data), at, now }).await
}

async fn session_row(tx: &mut Tx, session: &SessionId) -> Result<Option<Row>> {
    let row = engine::query(SESSION).bind(session.as_str()).fetch_optional(&mut *tx).await;
    row.map_err(db("read the session"))
}

/// Whose session it is, of which stream, and what every event about it tells.
fn session_data(row: &Row, session: &SessionId) -> sqlx::Result<(AccountId, StreamId, Map<String, Value>)> {
    let (account, stream): (i64, i64) = (row.try_get("account_id")?, row.try_get("stream_id")?);
    let (label, started): (String, i64) = (row.try_get("label")?, row.try_get("started_ms")?);
    let fields = [
        ("streamKeyId", json!(stream)),
        ("label", json!(label)),
        ("sessionId", json!(session.as_str())),
        ("startedAt", json!(started)),
    ];
    let data = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Ok((AccountId(account), StreamId(stream), data))
}

fn destination_data(row: &Row) -> sqlx::Result<Value> {
    let (id, platform): (i64, String) = (row.try_get("destination_id")?, row.try_get("platform")?);
    let (started, ended): (i64, Option<i64>) = (row.try_get("started_ms")?, row.try_get("ended_ms")?);
    let cost = Msat(row.try_get("cost_msat")?).to_sats_floor().0;
    Ok(json!({"destinationId": id, "platform": platform, "startedAt": started, "endedAt": ended,
              "totalCostSats": cost}))
}

impl Store {
    /// Says that there may be something new to send.
    pub(super) fn wake_outbox(&self) {
        self.0.outbox.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::open_file;
    use super::*;
    use satcast_core::config::Durability;

    #[test]
    fn times_are_written_as_iso_8601_in_utc() {
        assert_eq!(iso_8601(UnixMillis(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso_8601(UnixMillis(1_800_000_000_007)), "2027-01-15T08:00:00.007Z");
        assert_eq!(iso_8601(UnixMillis(i64::MAX)), "", "no calendar has it");
    }

    #[tokio::test]
    async fn what_waits_for_a_webhook_is_counted_in_an_index() {
        let folder = tempfile::tempdir().unwrap();
        let store = open_file(&folder.path().join("t.db"), Durability::Normal, 7).await.unwrap();
        let engine::Pool::Sqlite(readers) = &store.0.readers else { panic!("a file") };
        let plan = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {WANTING}"));
        let plan = sqlx::query(plan).bind(1).bind(1).bind("stream.started");
        let rows = plan.fetch_all(readers).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| sqlx::Row::try_get(row, "detail").unwrap()).collect();
        let counted = plan.iter().find(|step| step.contains(" d ")).unwrap();
        assert!(counted.contains("COVERING INDEX webhook_deliveries_pending"), "{plan:?}");
    }
}
