//! Events for webhooks, written in the transaction of the change that they report.

use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::engine::{self, Row, Tx};
use crate::error::{Result, db};
use crate::history::SESSION_CHARGES;
use crate::store::Store;
use crate::webhooks::{DeliveryState, EventType};
use satcast_core::ids::{AccountId, DestinationId, EndReason, Msat, SessionId, StreamId, UnixMillis};
use satcast_core::secret::new_event_id;

/// Most pending deliveries of one webhook. While so many are pending, new events are not sent to it.
pub const WAITING_PER_WEBHOOK_MAX: i64 = 1_000;
/// Longest error text in an event, in characters.
pub(crate) const EVENT_ERROR_CHARS_MAX: usize = 300;

/// A hard limit of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Cost of a session.
    MaxSats,
    /// Duration of a session.
    MaxDuration,
}

impl Limit {
    /// The name in the body of an event: the name of the stream's field.
    pub fn as_str(self) -> &'static str {
        match self {
            Limit::MaxSats => "maxSats",
            Limit::MaxDuration => "maxDurationMinutes",
        }
    }

    /// The limit that ended a session, or `None` if the session ended for another reason.
    pub fn reached(reason: EndReason) -> Option<Self> {
        match reason {
            EndReason::MaxSats => Some(Limit::MaxSats),
            EndReason::MaxDuration => Some(Limit::MaxDuration),
            _ => None,
        }
    }
}

/// A destination of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationNotice {
    pub id: DestinationId,
    pub platform: String,
}

/// A problem of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueNotice {
    pub code: &'static str,
    /// One sentence for people.
    pub text: String,
    /// Destination types that do not work because of it.
    pub platforms: Vec<String>,
}

/// How the health of a stream changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthNotice {
    /// Codes of new issues.
    pub appeared: Vec<&'static str>,
    /// Codes of issues that are gone.
    pub cleared: Vec<&'static str>,
    /// All current issues.
    pub issues: Vec<IssueNotice>,
}

/// Another encoder of a stream took over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverNotice {
    /// `primary` or `backup`.
    pub from: &'static str,
    /// The same of the encoder that is active now.
    pub to: &'static str,
    /// Code of the reason.
    pub reason: &'static str,
}

/// Something that happens in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// The session used most of a limit.
    LimitWarning(Limit),
    /// A destination forwards for the first time.
    Connected(DestinationNotice),
    /// A destination stopped forwarding, or could not start. The text gives the reason, without secrets.
    Failed(DestinationNotice, String),
    /// A destination forwards again.
    Recovered(DestinationNotice),
    /// The health of the encoder's stream changed.
    Health(HealthNotice),
    /// Another encoder took over.
    Failover(FailoverNotice),
}

impl NoticeKind {
    pub fn event(&self) -> EventType {
        match self {
            NoticeKind::LimitWarning(_) => EventType::LimitWarning,
            NoticeKind::Connected(_) => EventType::DestinationConnected,
            NoticeKind::Failed(..) => EventType::DestinationFailed,
            NoticeKind::Recovered(_) => EventType::DestinationRecovered,
            NoticeKind::Health(_) => EventType::StreamHealth,
            NoticeKind::Failover(_) => EventType::StreamFailover,
        }
    }
}

/// Something that happens in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub session: SessionId,
    pub what: NoticeKind,
    pub at: UnixMillis,
}

/// Most destinations in the event of a session's end: keeps the body below 20 kB, which receivers expect.
const EVENT_DESTINATIONS_MAX: i64 = 100;
const MS_PER_SEC: i64 = 1_000;
const SECS_PER_MINUTE: i64 = 60;
const BYTES_PER_GB: f64 = 1e9;

/// Enabled webhooks that subscribe to an event, and the number of pending deliveries of each.
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
/// All bytes sent to viewers of a stream.
const STREAM_BYTES: &str = "SELECT CAST(COALESCE(SUM(b.bytes), 0) AS BIGINT) FROM bandwidth b
    JOIN destinations d ON d.id = b.destination_id WHERE d.stream_id = $1";

/// Something that happened to an account or to one of its streams.
pub(crate) struct NewEvent {
    pub(crate) account: AccountId,
    /// The stream of the event. Webhooks for other streams do not receive it.
    pub(crate) stream: Option<StreamId>,
    pub(crate) event: EventType,
    /// The `data` of the body.
    pub(crate) data: Value,
    /// Time of the event, the `timestamp` of the body.
    pub(crate) at: UnixMillis,
    /// Time of the write: when the delivery is due.
    pub(crate) now: UnixMillis,
}

/// Writes an event and one delivery for each webhook that subscribes to it; writes nothing if there is none. Call
/// [`Store::wake_outbox`] after the commit, otherwise the delivery starts up to one poll interval later.
pub(crate) async fn emit(tx: &mut Tx, event: NewEvent) -> Result<()> {
    let failed = db("store the event");
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
                "too many deliveries are pending for a webhook; an event is not sent to it"
            );
            DeliveryState::Cancelled
        };
        let insert = engine::query(INSERT_DELIVERY).bind(id).bind(webhook).bind(state.as_str());
        insert.bind(event.now.0).execute(&mut *tx).await.map_err(&failed)?;
    }
    Ok(())
}

/// Writes an event without a delivery; returns its row, its id and its body.
pub(crate) async fn insert_event(tx: &mut Tx, event: &NewEvent) -> Result<(i64, String, Vec<u8>)> {
    let uid = new_event_id();
    let (name, at, data) = (event.event.as_str(), iso_8601(event.at), &event.data);
    // The fields are in an order that is easy to read.
    let body = format!(r#"{{"id":"{uid}","type":"{name}","timestamp":"{at}","data":{data}}}"#).into_bytes();
    let insert = engine::query_scalar(INSERT_EVENT).bind(&uid).bind(event.account.0).bind(name).bind(&body);
    let row = insert.bind(event.now.0).fetch_one(&mut *tx).await.map_err(db("store the event"))?;
    Ok((row, uid, body))
}

/// `2026-11-20T12:34:56.789Z`.
fn iso_8601(at: UnixMillis) -> String {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.0) * 1_000_000);
    // No real clock shows a time outside the calendar's range.
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

/// Bytes sent to viewers of the stream so far.
pub(crate) async fn stream_bytes(tx: &mut Tx, stream: StreamId) -> Result<i64> {
    let sum = engine::query_scalar(STREAM_BYTES).bind(stream.0).fetch_one(&mut *tx).await;
    sum.map_err(db("sum the bandwidth"))
}

pub(crate) async fn session_started(tx: &mut Tx, session: &SessionId, now: UnixMillis) -> Result<()> {
    emit_of_session(tx, session, EventType::StreamStarted, Value::Null, (now, now)).await
}

/// A session ended. Its row and the rows of its destinations have their end already.
pub(crate) async fn session_ended(tx: &mut Tx, session: &SessionId, now: UnixMillis) -> Result<()> {
    let failed = db("read the session");
    let Some(data) = EventSession::find(tx, session).await? else { return Ok(()) };
    let bytes = stream_bytes(tx, data.stream).await?.saturating_sub(data.bytes_before).max(0);
    let cost: i64 = engine::query_scalar(SESSION_CHARGES)
        .bind(session.as_str())
        .fetch_one(&mut *tx)
        .await
        .map_err(&failed)?;
    let rows = engine::query(DESTINATIONS).bind(session.as_str()).bind(EVENT_DESTINATIONS_MAX);
    let rows = rows.fetch_all(&mut *tx).await.map_err(&failed)?;
    let destinations: Vec<Value> =
        rows.iter().map(destination_data).collect::<sqlx::Result<_>>().map_err(&failed)?;
    let ended = data.ended.unwrap_or(data.started);
    let secs = ended.saturating_sub(data.started).max(0) / MS_PER_SEC;
    let more = json!({
        "endedAt": ended, "durationMinutes": secs / SECS_PER_MINUTE, "durationSeconds": secs % SECS_PER_MINUTE,
        "totalCostSats": Msat(cost).to_sats_floor().0, "bandwidthGB": bytes as f64 / BYTES_PER_GB,
        "endReason": data.end_reason, "destinations": destinations,
    });
    let times = (UnixMillis(ended), now);
    data.emit(tx, EventType::StreamEnded, more, times).await?;
    match data.end_reason.as_deref().and_then(EndReason::parse).and_then(Limit::reached) {
        Some(limit) => data.emit(tx, EventType::LimitReached, json!({"limit": limit.as_str()}), times).await,
        None => Ok(()),
    }
}

pub(crate) async fn session_notice(tx: &mut Tx, notice: &Notice) -> Result<()> {
    let about = |destination: &DestinationNotice| json!({"destinationId": destination.id.0, "platform": destination.platform});
    let more = match &notice.what {
        NoticeKind::LimitWarning(limit) => json!({"limit": limit.as_str()}),
        NoticeKind::Connected(destination) | NoticeKind::Recovered(destination) => about(destination),
        NoticeKind::Failed(destination, error) => {
            let mut more = about(destination);
            more["error"] = json!(error.chars().take(EVENT_ERROR_CHARS_MAX).collect::<String>());
            more
        }
        NoticeKind::Health(health) => {
            let issue = |issue: &IssueNotice| json!({"code": issue.code, "text": issue.text, "platforms": issue.platforms});
            let issues: Vec<Value> = health.issues.iter().map(issue).collect();
            json!({"appeared": health.appeared, "cleared": health.cleared, "issues": issues})
        }
        NoticeKind::Failover(failover) => {
            json!({"from": failover.from, "to": failover.to, "reason": failover.reason})
        }
    };
    let times = (notice.at, notice.at);
    emit_of_session(tx, &notice.session, notice.what.event(), more, times).await
}

/// Emits an event of a session. `more` is added to the fields that all session events have. Does nothing for an unknown
/// session.
pub(crate) async fn emit_of_session(
    tx: &mut Tx,
    session: &SessionId,
    event: EventType,
    more: Value,
    times: (UnixMillis, UnixMillis),
) -> Result<()> {
    match EventSession::find(tx, session).await? {
        Some(data) => data.emit(tx, event, more, times).await,
        None => Ok(()),
    }
}

/// The data of a session that its events need.
struct EventSession {
    id: SessionId,
    stream: StreamId,
    account: AccountId,
    label: String,
    started: i64,
    ended: Option<i64>,
    end_reason: Option<String>,
    bytes_before: i64,
}

impl EventSession {
    async fn find(tx: &mut Tx, session: &SessionId) -> Result<Option<Self>> {
        let row = engine::query(SESSION).bind(session.as_str()).fetch_optional(&mut *tx).await;
        let read = |row: Row| {
            Ok(Self {
                id: session.clone(),
                stream: StreamId(row.try_get("stream_id")?),
                account: AccountId(row.try_get("account_id")?),
                label: row.try_get("label")?,
                started: row.try_get("started_ms")?,
                ended: row.try_get("ended_ms")?,
                end_reason: row.try_get("end_reason")?,
                bytes_before: row.try_get("bytes_before")?,
            })
        };
        row.and_then(|row| row.map(read).transpose()).map_err(db("read the session"))
    }

    /// Emits an event that happened at the first time and is due at the second.
    async fn emit(
        &self,
        tx: &mut Tx,
        event: EventType,
        more: Value,
        (at, now): (UnixMillis, UnixMillis),
    ) -> Result<()> {
        let mut data = json!({
            "streamKeyId": self.stream.0, "label": self.label, "sessionId": self.id.as_str(),
            "startedAt": self.started,
        });
        if let (Value::Object(data), Value::Object(more)) = (&mut data, more) {
            data.extend(more);
        }
        emit(tx, NewEvent { account: self.account, stream: Some(self.stream), event, data, at, now }).await
    }
}

fn destination_data(row: &Row) -> sqlx::Result<Value> {
    let (id, platform): (i64, String) = (row.try_get("destination_id")?, row.try_get("platform")?);
    let (started, ended): (i64, Option<i64>) = (row.try_get("started_ms")?, row.try_get("ended_ms")?);
    let cost = Msat(row.try_get("cost_msat")?).to_sats_floor().0;
    Ok(json!({"destinationId": id, "platform": platform, "startedAt": started, "endedAt": ended,
              "totalCostSats": cost}))
}

impl Store {
    /// Reports that new deliveries may be due.
    pub(crate) fn wake_outbox(&self) {
        self.0.outbox.notify_one();
    }
}

/// Whether any webhook subscribes to an event of a session; the stream is checked later.
const WANTED: &str = "SELECT w.id FROM sessions e JOIN streams s ON s.id = e.stream_id
    JOIN webhooks w ON w.account_id = s.account_id
    WHERE e.id = $1 AND w.enabled = 1 AND ',' || w.events || ',' LIKE '%,' || $2 || ',%' LIMIT 1";

impl Store {
    /// Writes the event and its deliveries if a webhook subscribes to it. An unknown session changes nothing.
    pub async fn note(&self, notice: &Notice) -> Result<()> {
        let wanted = engine::query(WANTED).bind(notice.session.as_str()).bind(notice.what.event().as_str());
        let wanted = wanted.fetch_optional(&self.0.readers).await.map_err(db("read the webhooks"))?;
        // Usually there is no such webhook; this check needs no writer.
        if wanted.is_none() {
            return Ok(());
        }
        let mut tx = self.begin_owning(&notice.session).await?;
        session_notice(&mut tx, notice).await?;
        tx.commit().await?;
        self.wake_outbox();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::open_file;
    use satcast_core::config::Durability;

    #[test]
    fn times_are_written_as_iso_8601_in_utc() {
        assert_eq!(iso_8601(UnixMillis(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso_8601(UnixMillis(1_800_000_000_007)), "2027-01-15T08:00:00.007Z");
        assert_eq!(iso_8601(UnixMillis(i64::MAX)), "", "no calendar has it");
    }

    #[tokio::test]
    async fn pending_deliveries_are_counted_in_an_index() {
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
