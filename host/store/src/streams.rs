//! Streams. Everything of another account is [`StoreError::NotFound`].

use serde_json::{Value, json};

use crate::audit::{Actor, Change, record};
use crate::commands::{CommandTarget, NodeCommand};
use crate::destinations::NewDestination;
use crate::engine::{self, Row, Tx};
use crate::error::{Result, StoreError, db};
use crate::slates;
use crate::store::{Caps, Lock, Page, Store};
use satcast_core::ids::{AccountId, DestinationId, EndReason, StreamId, UnixMillis};
use satcast_core::networks::Networks;
use satcast_core::secret::{Redacted, key_hash, new_uid};

/// Hard limits of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamLimits {
    /// Most sats that a session may cost.
    pub max_sats: Option<i64>,
    /// Most minutes that a session may last.
    pub max_duration_minutes: Option<i64>,
}

#[derive(Clone, Debug)]
pub struct StreamRecord {
    /// In the API this is the stream key id.
    pub id: StreamId,
    /// The account that owns it.
    pub account_id: AccountId,
    pub label: String,
    pub created_at: UnixMillis,
    /// Its hard limits.
    pub limits: StreamLimits,
    /// Networks from which its stream key may be used.
    pub allowed: Networks,
    /// Whether an operator disabled the account.
    pub account_disabled: bool,
    /// Hash of its stream key, which changes when the key is replaced.
    pub key_hash: Vec<u8>,
    /// Passphrase of callers by SRT; `None`: they send in clear.
    pub srt_passphrase: Option<Redacted<String>>,
}

/// A stream with data for its owner only.
#[derive(Clone, Debug)]
pub struct StreamView {
    pub stream: StreamRecord,
    /// The stream key in clear.
    pub stream_key: Redacted<String>,
    /// Reason of the end of its newest ended session.
    pub last_end_reason: Option<EndReason>,
}

/// A stream to be created.
#[derive(Clone, Debug)]
pub struct NewStream {
    pub label: String,
    pub stream_key: Redacted<String>,
    /// Passphrase of callers by SRT.
    pub srt_passphrase: Option<Redacted<String>>,
    /// Its destinations, in the order given.
    pub destinations: Vec<NewDestination>,
    /// Networks from which its stream key may be used.
    pub allowed: Networks,
    /// Caps in force.
    pub caps: Caps,
}

/// A change of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitChange {
    #[default]
    Keep,
    Remove,
    /// The new value.
    Set(i64),
}

/// A change of a stream's limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitsChange {
    /// Most sats that a session may cost.
    pub max_sats: LimitChange,
    /// Most minutes that a session may last.
    pub max_duration_minutes: LimitChange,
}

/// A change of a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamChange {
    /// `None` leaves it.
    pub label: Option<String>,
    /// Networks from which its stream key may be used; `None` leaves them.
    pub allowed: Option<Networks>,
    /// Passphrase of callers by SRT, or none; `None` leaves it.
    pub srt_passphrase: Option<Option<Redacted<String>>>,
}

const COUNT_STREAMS: &str = "SELECT COUNT(*) FROM streams WHERE account_id = $1 AND deleted_ms IS NULL";
const INSERT_STREAM: &str = "INSERT INTO streams (uid, account_id, label, key_hash, key_sealed, created_ms,
    allowed_addresses, srt_passphrase_sealed) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id";

/// A stream with its encrypted key and the reason of its newest ended session.
macro_rules! select_view {
    ($rest:literal) => {
        concat!(
            "SELECT s.id, s.uid, s.account_id, s.label, s.key_sealed, s.key_hash, s.max_sats, s.max_duration_minutes, ",
            "s.created_ms, s.allowed_addresses, s.srt_passphrase_sealed, (SELECT e.end_reason FROM sessions e WHERE e.stream_id = s.id AND e.ended_ms IS NOT NULL ",
            "ORDER BY e.started_ms DESC, e.id DESC LIMIT 1) AS last_end_reason, a.disabled_ms ",
            "FROM streams s JOIN accounts a ON a.id = s.account_id WHERE ",
            $rest
        )
    };
}

const SELECT_VIEWS: &str =
    select_view!("s.account_id = $1 AND s.deleted_ms IS NULL AND s.id < $2 ORDER BY s.id DESC LIMIT $3");
const SELECT_VIEW: &str = select_view!("s.account_id = $1 AND s.id = $2 AND s.deleted_ms IS NULL");
macro_rules! select_stream {
    ($condition:literal) => {
        concat!(
            "SELECT s.id, s.uid, s.account_id, s.label, s.key_hash, s.max_sats, s.max_duration_minutes, s.created_ms, ",
            "s.allowed_addresses, s.srt_passphrase_sealed, a.disabled_ms FROM streams s JOIN accounts a ON a.id = s.account_id WHERE s.",
            $condition,
            " AND s.deleted_ms IS NULL"
        )
    };
}
const SELECT_STREAM: &str = select_stream!("id = $1");
const SELECT_STREAM_BY_KEY: &str = select_stream!("key_hash = $1");
const STREAM_BEFORE: &str =
    "SELECT uid, label, max_sats, max_duration_minutes, allowed_addresses FROM streams
    WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL";
const CHANGE_LIMITS: &str = "UPDATE streams SET max_sats = CASE WHEN $3 THEN $4 ELSE max_sats END,
    max_duration_minutes = CASE WHEN $5 THEN $6 ELSE max_duration_minutes END
    WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL RETURNING max_sats, max_duration_minutes";
const CHANGE_STREAM: &str = "UPDATE streams SET label = COALESCE($3, label),
    allowed_addresses = COALESCE($4, allowed_addresses),
    srt_passphrase_sealed = CASE WHEN $5 THEN $6 ELSE srt_passphrase_sealed END
    WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL";
const STREAM_UID: &str = "SELECT uid FROM streams WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL";
const REPLACE_STREAM_KEY: &str = "UPDATE streams SET key_hash = $2, key_sealed = $3 WHERE id = $1";
const DELETE_STREAM: &str = "UPDATE streams SET deleted_ms = $3
    WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL RETURNING label";
const DELETE_DESTINATIONS: &str =
    "UPDATE destinations SET deleted_ms = $2 WHERE stream_id = $1 AND deleted_ms IS NULL";

impl Store {
    /// Creates a stream with its destinations, all or nothing.
    ///
    /// # Errors
    /// [`StoreError::CapReached`].
    pub async fn create_stream(
        &self,
        actor: &Actor,
        stream: NewStream,
    ) -> Result<(StreamId, Vec<DestinationId>)> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let failed = db("create the stream");
        let count: i64 = engine::query_scalar(COUNT_STREAMS)
            .bind(actor.account.0)
            .fetch_one(&mut tx)
            .await
            .map_err(&failed)?;
        if count >= stream.caps.streams_per_account {
            return Err(StoreError::CapReached {
                what: "streams per account",
                limit: stream.caps.streams_per_account,
            });
        }
        let uid = new_uid();
        let key = stream.stream_key.expose();
        let id = engine::query_scalar(INSERT_STREAM)
            .bind(&uid)
            .bind(actor.account.0)
            .bind(&stream.label)
            .bind(&key_hash(key)[..])
            .bind(self.0.vault.seal(&uid, key.as_bytes()))
            .bind(actor.now.0)
            .bind(stream.allowed.to_text())
            .bind(stream.srt_passphrase.as_ref().map(|passphrase| self.sealed_passphrase(&uid, passphrase)))
            .fetch_one(&mut tx)
            .await
            .map(StreamId)
            .map_err(&failed)?;
        let mut destinations = Vec::with_capacity(stream.destinations.len());
        for destination in &stream.destinations {
            destinations
                .push(self.insert_destination(&mut tx, id, destination, stream.caps, actor.now).await?);
        }
        let ids: Vec<i64> = destinations.iter().map(|id| id.0).collect();
        let detail = json!({"label": stream.label, "destinationIds": ids});
        let noted = record(&mut tx, actor, Change::new("stream.created", "stream", id.0, detail)).await?;
        self.commit_noted(tx, noted).await?;
        Ok((id, destinations))
    }

    /// The account's streams, newest first.
    pub async fn streams_of(&self, account: AccountId, page: Page) -> Result<Vec<StreamView>> {
        let rows = engine::query(SELECT_VIEWS)
            .bind(account.0)
            .bind(page.end())
            .bind(page.limit)
            .fetch_all(&self.0.readers)
            .await
            .map_err(db("read the streams"))?;
        rows.iter().map(|row| self.stream_view(row)).collect()
    }

    /// One stream of the account with its stream key.
    pub async fn stream_of(&self, account: AccountId, stream: StreamId) -> Result<Option<StreamView>> {
        let row =
            engine::query(SELECT_VIEW).bind(account.0).bind(stream.0).fetch_optional(&self.0.readers).await;
        row.map_err(db("read the stream"))?.map(|row| self.stream_view(&row)).transpose()
    }

    /// A stream that is not deleted, of any account.
    pub async fn stream(&self, stream: StreamId) -> Result<Option<StreamRecord>> {
        let row = engine::query(SELECT_STREAM).bind(stream.0).fetch_optional(&self.0.readers).await;
        row.map_err(db("read the stream"))?.map(|row| self.stream_record(&row)).transpose()
    }

    /// The stream whose stream key has that SHA-256, unless deleted.
    pub async fn stream_by_key_hash(&self, hash: &[u8; 32]) -> Result<Option<StreamRecord>> {
        let row = engine::query(SELECT_STREAM_BY_KEY).bind(&hash[..]).fetch_optional(&self.0.readers).await;
        row.map_err(db("look up the stream key"))?.map(|row| self.stream_record(&row)).transpose()
    }

    /// Changes the hard limits of a stream; returns the new ones.
    pub async fn change_limits(
        &self,
        actor: &Actor,
        stream: StreamId,
        change: LimitsChange,
    ) -> Result<StreamLimits> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let before = stream_before(&mut tx, actor, stream).await?.limits;
        let (change_sats, sats) = parts(change.max_sats);
        let (change_minutes, minutes) = parts(change.max_duration_minutes);
        let failed = db("change the limits");
        let row = engine::query(CHANGE_LIMITS)
            .bind(stream.0)
            .bind(actor.account.0)
            .bind(change_sats)
            .bind(sats)
            .bind(change_minutes)
            .bind(minutes)
            .fetch_optional(&mut tx)
            .await
            .map_err(&failed)?
            .ok_or(StoreError::NotFound("stream"))?;
        let limits = StreamLimits {
            max_sats: row.try_get("max_sats").map_err(&failed)?,
            max_duration_minutes: row.try_get("max_duration_minutes").map_err(&failed)?,
        };
        let detail = json!({"before": shown(before), "after": shown(limits)});
        let change = Change::new("stream.limits_changed", "stream", stream.0, detail);
        let noted = record(&mut tx, actor, change).await?;
        self.command_in(&mut tx, CommandTarget::Stream(stream), NodeCommand::Reload, actor.now).await?;
        self.commit_noted(tx, noted).await?;
        Ok(limits)
    }

    /// Changes a stream.
    pub async fn change_stream(&self, actor: &Actor, stream: StreamId, change: StreamChange) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let known = stream_before(&mut tx, actor, stream).await?;
        let (mut before, mut after) = (json!({}), json!({}));
        if let Some(label) = &change.label {
            (before["label"], after["label"]) = (json!(known.label), json!(label));
        }
        let allowed = change.allowed.map(|allowed| allowed.to_text());
        if let Some(allowed) = &allowed {
            (before["allowedAddresses"], after["allowedAddresses"]) = (json!(known.allowed), json!(allowed));
        }
        let sealed = change
            .srt_passphrase
            .map(|passphrase| passphrase.map(|passphrase| self.sealed_passphrase(&known.uid, &passphrase)));
        if let Some(sealed) = &sealed {
            after["srtPassphrase"] = json!(if sealed.is_some() { "set" } else { "removed" });
        }
        let action = if allowed.is_none() && sealed.is_none() { "stream.renamed" } else { "stream.changed" };
        let change = engine::query(CHANGE_STREAM).bind(stream.0).bind(actor.account.0).bind(change.label);
        if allowed.is_some() {
            self.command_in(&mut tx, CommandTarget::Stream(stream), NodeCommand::Reload, actor.now).await?;
        }
        let change = change.bind(allowed).bind(sealed.is_some()).bind(sealed.flatten());
        change.execute(&mut tx).await.map_err(db("change the stream"))?;
        let change = Change::new(action, "stream", stream.0, json!({"before": before, "after": after}));
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }

    /// Replaces the stream key; the old one is unknown from then on.
    pub async fn replace_stream_key(
        &self,
        actor: &Actor,
        stream: StreamId,
        key: &Redacted<String>,
    ) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let failed = db("replace the stream key");
        let uid: Option<String> = engine::query_scalar(STREAM_UID)
            .bind(stream.0)
            .bind(actor.account.0)
            .fetch_optional(&mut tx)
            .await
            .map_err(&failed)?;
        let uid = uid.ok_or(StoreError::NotFound("stream"))?;
        let replace = engine::query(REPLACE_STREAM_KEY)
            .bind(stream.0)
            .bind(key_hash(key.expose()).to_vec())
            .bind(self.0.vault.seal(&uid, key.expose().as_bytes()));
        replace.execute(&mut tx).await.map_err(&failed)?;
        let stop = NodeCommand::Stop(EndReason::KeyRevoked);
        self.command_in(&mut tx, CommandTarget::Stream(stream), stop, actor.now).await?;
        let change = Change::new("stream.key_replaced", "stream", stream.0, json!({}));
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }

    /// Marks a stream and its destinations deleted.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn delete_stream(&self, actor: &Actor, stream: StreamId) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let failed = db("delete the stream");
        let deleted =
            engine::query_scalar(DELETE_STREAM).bind(stream.0).bind(actor.account.0).bind(actor.now.0);
        let label: Option<String> = deleted.fetch_optional(&mut tx).await.map_err(&failed)?;
        let label = label.ok_or(StoreError::NotFound("stream"))?;
        let rest = engine::query(DELETE_DESTINATIONS).bind(stream.0).bind(actor.now.0);
        rest.execute(&mut tx).await.map_err(&failed)?;
        slates::delete_in(&mut tx, stream).await?;
        let stop = NodeCommand::Stop(EndReason::KeyRevoked);
        self.command_in(&mut tx, CommandTarget::Stream(stream), stop, actor.now).await?;
        let change = Change::new("stream.deleted", "stream", stream.0, json!({"label": label}));
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }

    fn stream_view(&self, row: &Row) -> Result<StreamView> {
        let failed = db("read the stream");
        let uid: String = row.try_get("uid").map_err(&failed)?;
        let sealed: Vec<u8> = row.try_get("key_sealed").map_err(&failed)?;
        let reason: Option<String> = row.try_get("last_end_reason").map_err(&failed)?;
        let unreadable = StoreError::Unreadable { what: "sessions.end_reason" };
        Ok(StreamView {
            stream: self.stream_record(row)?,
            stream_key: self.0.vault.open_text(&uid, &sealed)?,
            last_end_reason: match reason {
                Some(name) => Some(EndReason::parse(&name).ok_or(unreadable)?),
                None => None,
            },
        })
    }

    fn stream_record(&self, row: &Row) -> Result<StreamRecord> {
        let failed = db("read the stream");
        let mut stream = stream_record(row).map_err(&failed)?;
        let sealed: Option<Vec<u8>> = row.try_get("srt_passphrase_sealed").map_err(&failed)?;
        if let Some(sealed) = sealed {
            let uid: String = row.try_get("uid").map_err(&failed)?;
            stream.srt_passphrase = Some(self.0.vault.open_text(&passphrase_place(&uid), &sealed)?);
        }
        Ok(stream)
    }

    fn sealed_passphrase(&self, uid: &str, passphrase: &Redacted<String>) -> Vec<u8> {
        self.0.vault.seal(&passphrase_place(uid), passphrase.expose().as_bytes())
    }
}

/// What a sealed passphrase is bound to: not the place of the stream key in the same row.
fn passphrase_place(uid: &str) -> String {
    format!("{uid}/srt")
}

/// The stored data of a stream of the actor's account.
struct StreamBefore {
    uid: String,
    label: String,
    limits: StreamLimits,
    allowed: String,
}

async fn stream_before(tx: &mut Tx, actor: &Actor, stream: StreamId) -> Result<StreamBefore> {
    let row = engine::query_as(STREAM_BEFORE).bind(stream.0).bind(actor.account.0);
    type Stored = (String, String, Option<i64>, Option<i64>, String);
    let row: Option<Stored> = row.fetch_optional(&mut *tx).await.map_err(db("read the stream"))?;
    let (uid, label, max_sats, max_duration_minutes, allowed) = row.ok_or(StoreError::NotFound("stream"))?;
    Ok(StreamBefore { uid, label, limits: StreamLimits { max_sats, max_duration_minutes }, allowed })
}

/// Limits as the audit log shows them.
fn shown(limits: StreamLimits) -> Value {
    json!({"maxSats": limits.max_sats, "maxDurationMinutes": limits.max_duration_minutes})
}

/// Whether the column changes, and its new value.
fn parts(change: LimitChange) -> (bool, Option<i64>) {
    match change {
        LimitChange::Keep => (false, None),
        LimitChange::Remove => (true, None),
        LimitChange::Set(value) => (true, Some(value)),
    }
}

/// A stream without its passphrase.
fn stream_record(row: &Row) -> sqlx::Result<StreamRecord> {
    let allowed: String = row.try_get("allowed_addresses")?;
    Ok(StreamRecord {
        id: StreamId(row.try_get("id")?),
        account_id: AccountId(row.try_get("account_id")?),
        label: row.try_get("label")?,
        created_at: UnixMillis(row.try_get("created_ms")?),
        limits: StreamLimits {
            max_sats: row.try_get("max_sats")?,
            max_duration_minutes: row.try_get("max_duration_minutes")?,
        },
        // An unreadable list allows no network.
        allowed: Networks::from_text(&allowed).map_err(|error| sqlx::Error::Decode(error.into()))?,
        account_disabled: row.try_get::<Option<i64>>("disabled_ms")?.is_some(),
        key_hash: row.try_get("key_hash")?,
        srt_passphrase: None,
    })
}
