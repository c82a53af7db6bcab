//! Webhooks and the log of their deliveries.

pub(crate) mod events;
pub(crate) mod outbox;
mod prune;

use std::collections::HashMap;

use serde_json::json;

use crate::audit::{Actor, Change, record};
use crate::engine::{self, Row, Tx};
use crate::error::{Result, StoreError, db};
use crate::store::{Lock, Page, Store};
use satcast_core::ids::{AccountId, DeliveryId, StreamId, UnixMillis, WebhookId};
use satcast_core::secret::{Redacted, Vault, new_uid};

/// How long the previous secret still signs after a new one was made. Receivers change their secret in this time.
pub(crate) const OLD_SECRET_KEPT_MS: i64 = 24 * 60 * 60 * 1_000;

/// Events that a webhook can subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    StreamStarted,
    StreamEnded,
    /// A recording was uploaded.
    RecordingReady,
    /// The owner tests a webhook.
    TestPing,
    /// A destination forwards.
    DestinationConnected,
    /// A destination stopped forwarding.
    DestinationFailed,
    /// A destination forwards again.
    DestinationRecovered,
    /// A session used most of a hard limit.
    LimitWarning,
    /// A session ended at a hard limit.
    LimitReached,
    /// The account's balance is nearly used up.
    BalanceLow,
    /// The health of the encoder's stream changed.
    StreamHealth,
    /// Another encoder of a stream took over.
    StreamFailover,
    /// A recording could not be uploaded.
    RecordingFailed,
    /// A recording will be deleted by a rule of its destination.
    RecordingExpiring,
    /// A clip is in its store.
    ClipReady,
    /// A clip could not be made or uploaded.
    ClipFailed,
}

impl EventType {
    /// Every type, in the order of declaration.
    pub const ALL: [EventType; 16] = [
        EventType::StreamStarted,
        EventType::StreamEnded,
        EventType::RecordingReady,
        EventType::TestPing,
        EventType::DestinationConnected,
        EventType::DestinationFailed,
        EventType::DestinationRecovered,
        EventType::LimitWarning,
        EventType::LimitReached,
        EventType::BalanceLow,
        EventType::StreamHealth,
        EventType::StreamFailover,
        EventType::RecordingFailed,
        EventType::RecordingExpiring,
        EventType::ClipReady,
        EventType::ClipFailed,
    ];

    /// The name in the API, in the body and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::StreamStarted => "stream.started",
            EventType::StreamEnded => "stream.ended",
            EventType::RecordingReady => "recording.ready",
            EventType::TestPing => "test.ping",
            EventType::DestinationConnected => "destination.connected",
            EventType::DestinationFailed => "destination.failed",
            EventType::DestinationRecovered => "destination.recovered",
            EventType::LimitWarning => "limit.warning",
            EventType::LimitReached => "limit.reached",
            EventType::BalanceLow => "balance.low",
            EventType::StreamHealth => "stream.health",
            EventType::StreamFailover => "stream.failover",
            EventType::RecordingFailed => "recording.failed",
            EventType::RecordingExpiring => "recording.expiring",
            EventType::ClipReady => "clip.ready",
            EventType::ClipFailed => "clip.failed",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str() == name)
    }
}

/// State of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// Waiting for an attempt, or being sent.
    Pending,
    /// The receiver accepted it.
    Delivered,
    /// Every attempt failed.
    Failed,
    /// The webhook was disabled before the delivery was sent, or had too many pending deliveries.
    Cancelled,
}

impl DeliveryState {
    pub const ALL: [DeliveryState; 4] =
        [DeliveryState::Pending, DeliveryState::Delivered, DeliveryState::Failed, DeliveryState::Cancelled];

    pub fn as_str(self) -> &'static str {
        match self {
            DeliveryState::Pending => "pending",
            DeliveryState::Delivered => "delivered",
            DeliveryState::Failed => "failed",
            DeliveryState::Cancelled => "cancelled",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// A webhook to be created; the url and the secret are checked already.
#[derive(Clone, Debug)]
pub struct NewWebhook {
    /// Only events of this stream; `None` for all.
    pub stream_id: Option<StreamId>,
    pub url: Redacted<String>,
    /// The host of the url in its normalized spelling.
    pub host: String,
    /// The events it subscribes to.
    pub events: Vec<EventType>,
    /// The signing secret; `None` leaves deliveries unsigned.
    pub secret: Option<Redacted<String>>,
    /// Most webhooks of the account.
    pub cap: i64,
}

/// The newest attempt to deliver to a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastDelivery {
    pub at: UnixMillis,
    /// HTTP status; `None` without an answer.
    pub status: Option<u16>,
    /// Whether the receiver accepted it.
    pub ok: bool,
}

/// A webhook as its owner sees it.
#[derive(Clone, Debug)]
pub struct WebhookView {
    pub id: WebhookId,
    /// Path and query may hold a secret.
    pub url: Redacted<String>,
    /// The events it subscribes to.
    pub events: Vec<EventType>,
    /// Only events of this stream; `None` for all.
    pub stream_id: Option<StreamId>,
    /// Whether deliveries are signed.
    pub has_secret: bool,
    /// Whether it receives events.
    pub enabled: bool,
    /// Why the service disabled it.
    pub disabled_reason: Option<String>,
    pub created_at: UnixMillis,
    pub last_delivery: Option<LastDelivery>,
}

/// One attempt of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptView {
    pub at: UnixMillis,
    /// Duration in milliseconds.
    pub duration_ms: i64,
    /// HTTP status; `None` without an answer.
    pub status: Option<u16>,
    /// Whether the receiver accepted it.
    pub ok: bool,
    /// The beginning of the answer's body.
    pub answer: String,
    /// What failed, as a text for people.
    pub error: Option<String>,
}

/// A delivery with its attempts.
#[derive(Clone, Debug)]
pub struct DeliveryView {
    pub id: DeliveryId,
    /// The id that the receiver sees.
    pub event_id: String,
    pub event: EventType,
    pub state: DeliveryState,
    pub created_at: UnixMillis,
    /// When the next attempt is due; `None` if there is none.
    pub due_at: Option<UnixMillis>,
    /// The exact body that is signed and sent.
    pub body: String,
    /// Attempts, oldest first.
    pub attempts: Vec<AttemptView>,
}

const COUNT: &str = "SELECT COUNT(*) FROM webhooks WHERE account_id = $1 AND deleted_ms IS NULL";
const OWNED_STREAM: &str = "SELECT id FROM streams WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL";
const INSERT: &str =
    "INSERT INTO webhooks (uid, account_id, stream_id, url_sealed, host, events, secret_sealed,
    created_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id";
const SELECT: &str = "SELECT id, uid, stream_id, url_sealed, events, secret_sealed IS NOT NULL AS has_secret,
    enabled, disabled_reason, last_ms, last_status, last_ok, created_ms
    FROM webhooks WHERE account_id = $1 AND id < $2 AND deleted_ms IS NULL ORDER BY id DESC LIMIT $3";
const OLDEST: &str = "SELECT uid, url_sealed FROM webhooks ORDER BY id LIMIT 1";
const OWNED: &str = "SELECT uid FROM webhooks WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL";
const DELETE: &str =
    "UPDATE webhooks SET deleted_ms = $2, enabled = 0, disabled_reason = NULL, secret_sealed = NULL,
    old_secret_sealed = NULL, old_secret_until_ms = NULL WHERE id = $1";
const ENABLE: &str = "UPDATE webhooks SET enabled = 1, disabled_reason = NULL, failing_since_ms = NULL,
    failures = 0 WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL RETURNING id";
const ROTATE: &str = "UPDATE webhooks SET old_secret_sealed = secret_sealed,
    old_secret_until_ms = CASE WHEN secret_sealed IS NULL THEN NULL ELSE $3 END, secret_sealed = $2
    WHERE id = $1 RETURNING old_secret_until_ms";
const DELIVERIES: &str = "SELECT d.id, e.uid, e.type, e.body, d.state, d.due_ms, d.created_ms
    FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id
    WHERE d.webhook_id = $1 AND d.id < $2 AND ($3 IS NULL OR d.state = $3) ORDER BY d.id DESC LIMIT $4";
const ATTEMPTS: &str = "SELECT a.delivery_id, a.at_ms, a.duration_ms, a.status, a.ok, a.answer, a.error
    FROM webhook_attempts a JOIN webhook_deliveries d ON d.id = a.delivery_id
    WHERE d.webhook_id = $1 AND d.id >= $2 AND d.id <= $3 AND ($4 IS NULL OR d.state = $4) ORDER BY a.id";
pub(crate) const CANCEL: &str =
    "UPDATE webhook_deliveries SET state = 'cancelled', claim = NULL, claimed_until_ms = NULL
    WHERE webhook_id = $1 AND state = 'pending'";

/// Binds an encrypted url to its row and its column.
pub(crate) fn url_binding(uid: &str) -> String {
    format!("{uid}:url")
}

/// The same for secrets. A replaced secret keeps this binding when it moves to the column for the old one.
pub(crate) fn secret_binding(uid: &str) -> String {
    format!("{uid}:secret")
}

/// As for stream keys, but an account may have webhooks without a stream.
pub(crate) async fn check_key(tx: &mut Tx, vault: &Vault) -> Result<()> {
    let oldest = engine::query_as::<(String, Vec<u8>)>(OLDEST).fetch_optional(tx).await;
    match oldest.map_err(db("check the key"))? {
        Some((uid, sealed)) => Ok(vault.open(&url_binding(&uid), &sealed).map(drop)?),
        None => Ok(()),
    }
}

/// Webhooks of accounts. Everything of another account is [`StoreError::NotFound`].
impl Store {
    /// Makes a webhook.
    ///
    /// # Errors
    /// [`StoreError::CapReached`]; [`StoreError::NotFound`] for a stream of another
    /// account.
    pub async fn create_webhook(&self, actor: &Actor, webhook: NewWebhook) -> Result<WebhookId> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let failed = db("create the webhook");
        let count = engine::query_scalar(COUNT).bind(actor.account.0);
        let count: i64 = count.fetch_one(&mut tx).await.map_err(&failed)?;
        if count >= webhook.cap {
            return Err(StoreError::CapReached { what: "webhooks per account", limit: webhook.cap });
        }
        if let Some(stream) = webhook.stream_id {
            let owned = engine::query(OWNED_STREAM).bind(stream.0).bind(actor.account.0);
            let owned = owned.fetch_optional(&mut tx).await.map_err(&failed)?;
            owned.ok_or(StoreError::NotFound("stream"))?;
        }
        let uid = new_uid();
        let secret = webhook.secret.as_ref();
        let sealed =
            secret.map(|secret| self.0.vault.seal(&secret_binding(&uid), secret.expose().as_bytes()));
        let events: Vec<&str> = webhook.events.iter().map(|event| event.as_str()).collect();
        let id = engine::query_scalar(INSERT)
            .bind(&uid)
            .bind(actor.account.0)
            .bind(webhook.stream_id.map(|stream| stream.0))
            .bind(self.0.vault.seal(&url_binding(&uid), webhook.url.expose().as_bytes()))
            .bind(&webhook.host)
            .bind(events.join(","))
            .bind(sealed)
            .bind(actor.now.0)
            .fetch_one(&mut tx)
            .await
            .map(WebhookId)
            .map_err(&failed)?;
        let detail = json!({
            "host": webhook.host, "events": events, "streamKeyId": webhook.stream_id.map(|stream| stream.0),
            "signed": secret.is_some()
        });
        let noted = record(&mut tx, actor, Change::new("webhook.created", "webhook", id.0, detail)).await?;
        self.commit_noted(tx, noted).await?;
        Ok(id)
    }

    /// The account's webhooks, newest first.
    pub async fn webhooks_of(&self, account: AccountId, page: Page) -> Result<Vec<WebhookView>> {
        let rows = engine::query(SELECT)
            .bind(account.0)
            .bind(page.end())
            .bind(page.limit)
            .fetch_all(&self.0.readers)
            .await
            .map_err(db("read the webhooks"))?;
        rows.iter().map(|row| self.webhook_view(row)).collect()
    }

    /// Deletes a webhook. It is hidden and sends nothing from now on; its log is deleted later.
    pub async fn delete_webhook(&self, actor: &Actor, webhook: WebhookId) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let failed = db("delete the webhook");
        let owned = engine::query(OWNED).bind(webhook.0).bind(actor.account.0);
        let owned = owned.fetch_optional(&mut tx).await.map_err(&failed)?;
        owned.ok_or(StoreError::NotFound("webhook"))?;
        engine::query(CANCEL).bind(webhook.0).execute(&mut tx).await.map_err(&failed)?;
        let delete = engine::query(DELETE).bind(webhook.0).bind(actor.now.0);
        delete.execute(&mut tx).await.map_err(&failed)?;
        let change = Change::new("webhook.deleted", "webhook", webhook.0, json!({}));
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }

    /// Enables a webhook.
    pub async fn enable_webhook(&self, actor: &Actor, webhook: WebhookId) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let enabled = engine::query(ENABLE).bind(webhook.0).bind(actor.account.0);
        let enabled = enabled.fetch_optional(&mut tx).await.map_err(db("enable the webhook"))?;
        enabled.ok_or(StoreError::NotFound("webhook"))?;
        let change = Change::new("webhook.enabled", "webhook", webhook.0, json!({}));
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }

    /// Replaces the secret of a webhook; returns until when the previous secret, if any, signs too.
    pub async fn rotate_webhook_secret(
        &self,
        actor: &Actor,
        webhook: WebhookId,
        secret: &Redacted<String>,
    ) -> Result<Option<UnixMillis>> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let failed = db("replace the webhook's secret");
        let uid = engine::query_scalar(OWNED).bind(webhook.0).bind(actor.account.0);
        let uid: Option<String> = uid.fetch_optional(&mut tx).await.map_err(&failed)?;
        let uid = uid.ok_or(StoreError::NotFound("webhook"))?;
        let rotate = engine::query_scalar(ROTATE)
            .bind(webhook.0)
            .bind(self.0.vault.seal(&secret_binding(&uid), secret.expose().as_bytes()))
            .bind(actor.now.0.saturating_add(OLD_SECRET_KEPT_MS));
        let until: Option<i64> = rotate.fetch_one(&mut tx).await.map_err(&failed)?;
        let change = Change::new("webhook.secret_rotated", "webhook", webhook.0, json!({}));
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await?;
        Ok(until.map(UnixMillis))
    }

    /// The deliveries of a webhook, newest first, optionally of one state.
    pub async fn deliveries_of(
        &self,
        account: AccountId,
        webhook: WebhookId,
        state: Option<DeliveryState>,
        page: Page,
    ) -> Result<Vec<DeliveryView>> {
        let failed = db("read the deliveries");
        let owned =
            engine::query(OWNED).bind(webhook.0).bind(account.0).fetch_optional(&self.0.readers).await;
        owned.map_err(&failed)?.ok_or(StoreError::NotFound("webhook"))?;
        let state = state.map(DeliveryState::as_str);
        let rows = engine::query(DELIVERIES)
            .bind(webhook.0)
            .bind(page.end())
            .bind(state)
            .bind(page.limit)
            .fetch_all(&self.0.readers)
            .await
            .map_err(&failed)?;
        let mut views: Vec<DeliveryView> = rows.iter().map(delivery_view).collect::<Result<_>>()?;
        let (Some(newest), Some(oldest)) = (views.first(), views.last()) else { return Ok(views) };
        let rows = engine::query(ATTEMPTS)
            .bind(webhook.0)
            .bind(oldest.id.0)
            .bind(newest.id.0)
            .bind(state)
            .fetch_all(&self.0.readers)
            .await
            .map_err(&failed)?;
        let mut attempts: HashMap<i64, Vec<AttemptView>> = HashMap::new();
        for row in &rows {
            let delivery = row.try_get("delivery_id").map_err(&failed)?;
            attempts.entry(delivery).or_default().push(attempt_view(row)?);
        }
        for view in &mut views {
            view.attempts = attempts.remove(&view.id.0).unwrap_or_default();
        }
        Ok(views)
    }

    fn webhook_view(&self, row: &Row) -> Result<WebhookView> {
        let failed = db("read the webhooks");
        let uid: String = row.try_get("uid").map_err(&failed)?;
        let url: Vec<u8> = row.try_get("url_sealed").map_err(&failed)?;
        let events: String = row.try_get("events").map_err(&failed)?;
        let unreadable = || StoreError::Unreadable { what: "webhooks.events" };
        let last_at: Option<i64> = row.try_get("last_ms").map_err(&failed)?;
        let (last_status, last_ok) = (status(row, "last_status")?, row.try_get::<Option<i64>>("last_ok"));
        let last_ok = last_ok.map_err(&failed)? == Some(1);
        Ok(WebhookView {
            id: WebhookId(row.try_get("id").map_err(&failed)?),
            url: self.0.vault.open_text(&url_binding(&uid), &url)?,
            events: events
                .split(',')
                .map(|name| EventType::parse(name).ok_or_else(unreadable))
                .collect::<Result<_>>()?,
            stream_id: row.try_get::<Option<i64>>("stream_id").map_err(&failed)?.map(StreamId),
            has_secret: row.try_get("has_secret").map_err(&failed)?,
            enabled: row.try_get::<i64>("enabled").map_err(&failed)? != 0,
            disabled_reason: row.try_get("disabled_reason").map_err(&failed)?,
            created_at: UnixMillis(row.try_get("created_ms").map_err(&failed)?),
            last_delivery: last_at.map(|at| LastDelivery {
                at: UnixMillis(at),
                status: last_status,
                ok: last_ok,
            }),
        })
    }
}

fn delivery_view(row: &Row) -> Result<DeliveryView> {
    let failed = db("read the deliveries");
    let event: String = row.try_get("type").map_err(&failed)?;
    let state: String = row.try_get("state").map_err(&failed)?;
    let state = DeliveryState::parse(&state);
    let state = state.ok_or(StoreError::Unreadable { what: "webhook_deliveries.state" })?;
    let due: i64 = row.try_get("due_ms").map_err(&failed)?;
    let body: Vec<u8> = row.try_get("body").map_err(&failed)?;
    Ok(DeliveryView {
        id: DeliveryId(row.try_get("id").map_err(&failed)?),
        event_id: row.try_get("uid").map_err(&failed)?,
        event: EventType::parse(&event).ok_or(StoreError::Unreadable { what: "webhook_events.type" })?,
        state,
        created_at: UnixMillis(row.try_get("created_ms").map_err(&failed)?),
        due_at: (state == DeliveryState::Pending).then_some(UnixMillis(due)),
        body: String::from_utf8(body).map_err(|_| StoreError::Unreadable { what: "webhook_events.body" })?,
        attempts: Vec::new(),
    })
}

fn attempt_view(row: &Row) -> Result<AttemptView> {
    let failed = db("read the attempts");
    Ok(AttemptView {
        at: UnixMillis(row.try_get("at_ms").map_err(&failed)?),
        duration_ms: row.try_get("duration_ms").map_err(&failed)?,
        status: status(row, "status")?,
        ok: row.try_get::<i64>("ok").map_err(&failed)? != 0,
        answer: row.try_get("answer").map_err(&failed)?,
        error: row.try_get("error").map_err(&failed)?,
    })
}

/// An HTTP status that may be absent.
fn status(row: &Row, column: &'static str) -> Result<Option<u16>> {
    let status: Option<i64> = row.try_get(column).map_err(db("read a status"))?;
    let unreadable = |_| StoreError::Unreadable { what: "webhook_attempts.status" };
    status.map(u16::try_from).transpose().map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_and_state_survives_its_name() {
        for event in EventType::ALL {
            assert_eq!(EventType::parse(event.as_str()), Some(event));
        }
        for state in DeliveryState::ALL {
            assert_eq!(DeliveryState::parse(state.as_str()), Some(state));
        }
        assert_eq!((EventType::parse("stream.paused"), DeliveryState::parse("")), (None, None));
    }
}
