//! Streams and their destinations.

use serde_json::json;

use super::audit::record;
use super::engine::{self, Row, Tx};
use super::lock::Lock;
use super::{Store, db};
use crate::{
    Actor, Caps, Change, Delays, DestinationRecord, DestinationView, NewDestination, NewStream, Page, Result,
    StoreError, StreamLimits, StreamRecord, StreamView,
};
use satcast_core::ids::{AccountId, DestinationId, EndReason, StreamId, UnixMillis};
use satcast_core::networks::Networks;
use satcast_core::secret::{key_hash, new_playback_path, new_uid};

const COUNT_STREAMS: &str = "SELECT COUNT(*) FROM streams WHERE account_id = $1 AND deleted_ms IS NULL";
const INSERT_STREAM: &str = "INSERT INTO streams (uid, account_id, label, key_hash, key_sealed, created_ms,
    allowed_addresses) VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id";
/// A stream with its sealed key and the reason of its newest ended session.
macro_rules! select_view {
    ($rest:literal) => {
        concat!(
            "SELECT s.id, s.uid, s.account_id, s.label, s.key_sealed, s.max_sats, s.max_duration_minutes, ",
            "s.created_ms, s.allowed_addresses, (SELECT e.end_reason FROM sessions e WHERE e.stream_id = s.id AND e.ended_ms IS NOT NULL ",
            "ORDER BY e.started_ms DESC, e.id DESC LIMIT 1) AS last_end_reason FROM streams s WHERE ",
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
            "SELECT id, account_id, label, max_sats, max_duration_minutes, created_ms, allowed_addresses FROM streams WHERE ",
            $condition,
            " AND deleted_ms IS NULL"
        )
    };
}
const SELECT_STREAM: &str = select_stream!("id = $1");
const SELECT_STREAM_BY_KEY: &str = select_stream!("key_hash = $1");
const OWNED_STREAM: &str = "SELECT id FROM streams WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL";
const DELETE_STREAM: &str = "UPDATE streams SET deleted_ms = $3
    WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL RETURNING label";
const DELETE_DESTINATIONS: &str =
    "UPDATE destinations SET deleted_ms = $2 WHERE stream_id = $1 AND deleted_ms IS NULL";
const COUNT_DESTINATIONS: &str =
    "SELECT COUNT(*) FROM destinations WHERE stream_id = $1 AND deleted_ms IS NULL";
const INSERT_DESTINATION: &str = "INSERT INTO destinations (uid, stream_id, kind, platform, config_sealed,
    created_ms, playback_path, start_delay_secs, stop_delay_secs) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING id";
const SELECT_DESTINATIONS: &str = "SELECT id, uid, stream_id, kind, platform, enabled, config_sealed,
    playback_path, start_delay_secs, stop_delay_secs FROM destinations WHERE stream_id = $1 AND deleted_ms IS NULL AND id < $2 ORDER BY id DESC LIMIT $3";
const DELETE_DESTINATION: &str =
    "UPDATE destinations SET deleted_ms = $3 WHERE id = $1 AND deleted_ms IS NULL
    AND stream_id IN (SELECT s.id FROM streams s WHERE s.account_id = $2 AND s.deleted_ms IS NULL)
    AND ($4 IS NULL OR stream_id = $4) RETURNING stream_id, kind, platform";

impl Store {
    /// Makes a stream with its destinations, all or nothing.
    ///
    /// # Errors
    /// [`StoreError::CapReached`].
    pub async fn create_stream(
        &self,
        actor: &Actor,
        stream: NewStream,
    ) -> Result<(StreamId, Vec<DestinationId>)> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let failed = db("make the stream");
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
            .bind(page.before.unwrap_or(i64::MAX))
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

    /// A stream that is not deleted, whoever owns it.
    pub async fn stream(&self, stream: StreamId) -> Result<Option<StreamRecord>> {
        let row = engine::query(SELECT_STREAM).bind(stream.0).fetch_optional(&self.0.readers).await;
        row.and_then(|row| row.as_ref().map(stream_record).transpose()).map_err(db("read the stream"))
    }

    /// The stream whose stream key has that SHA-256, unless deleted.
    pub async fn stream_by_key_hash(&self, hash: &[u8; 32]) -> Result<Option<StreamRecord>> {
        let row = engine::query(SELECT_STREAM_BY_KEY).bind(&hash[..]).fetch_optional(&self.0.readers).await;
        row.and_then(|row| row.as_ref().map(stream_record).transpose()).map_err(db("look up the stream key"))
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
        let change = Change::new("stream.deleted", "stream", stream.0, json!({"label": label}));
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }

    /// The destinations of a stream that are not deleted, newest first, disabled ones too. One whose stored
    /// configuration cannot be read is logged and left out: the others must go live without it.
    pub async fn destinations_of(&self, stream: StreamId) -> Result<Vec<DestinationRecord>> {
        let views = self.read_destinations(stream, Page::ALL).await?;
        Ok(views.into_iter().filter_map(readable).collect())
    }

    /// One page of the destinations of a stream of the account, newest first, unreadable ones too; `None` when the
    /// stream is not the account's.
    pub async fn destinations_page(
        &self,
        account: AccountId,
        stream: StreamId,
        page: Page,
    ) -> Result<Option<Vec<DestinationView>>> {
        let owned =
            engine::query(OWNED_STREAM).bind(stream.0).bind(account.0).fetch_optional(&self.0.readers).await;
        match owned.map_err(db("read the stream"))? {
            Some(_) => self.read_destinations(stream, page).await.map(Some),
            None => Ok(None),
        }
    }

    /// Adds a destination to a stream of the account.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::CapReached`].
    pub async fn add_destination(
        &self,
        actor: &Actor,
        stream: StreamId,
        destination: NewDestination,
        caps: Caps,
    ) -> Result<DestinationId> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let owned =
            engine::query(OWNED_STREAM).bind(stream.0).bind(actor.account.0).fetch_optional(&mut tx).await;
        if owned.map_err(db("read the stream"))?.is_none() {
            return Err(StoreError::NotFound("stream"));
        }
        let id = self.insert_destination(&mut tx, stream, &destination, caps, actor.now).await?;
        let detail =
            json!({"streamId": stream.0, "type": destination.kind, "platform": destination.platform});
        let change = Change::new("destination.added", "destination", id.0, detail);
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await?;
        Ok(id)
    }

    /// Marks a destination of the account deleted, of `stream` when given; answers whose it was.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn delete_destination(
        &self,
        actor: &Actor,
        stream: Option<StreamId>,
        destination: DestinationId,
    ) -> Result<StreamId> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let deleted: Option<(i64, String, String)> = engine::query_as(DELETE_DESTINATION)
            .bind(destination.0)
            .bind(actor.account.0)
            .bind(actor.now.0)
            .bind(stream.map(|id| id.0))
            .fetch_optional(&mut tx)
            .await
            .map_err(db("delete the destination"))?;
        let (stream, kind, platform) = deleted.ok_or(StoreError::NotFound("destination"))?;
        let detail = json!({"streamId": stream, "type": kind, "platform": platform});
        let change = Change::new("destination.deleted", "destination", destination.0, detail);
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await?;
        Ok(StreamId(stream))
    }
}

impl Store {
    async fn insert_destination(
        &self,
        tx: &mut Tx,
        stream: StreamId,
        destination: &NewDestination,
        caps: Caps,
        now: UnixMillis,
    ) -> Result<DestinationId> {
        let failed = db("make the destination");
        let count: i64 = engine::query_scalar(COUNT_DESTINATIONS)
            .bind(stream.0)
            .fetch_one(&mut *tx)
            .await
            .map_err(&failed)?;
        if count >= caps.destinations_per_stream {
            return Err(StoreError::CapReached {
                what: "destinations per stream",
                limit: caps.destinations_per_stream,
            });
        }
        let uid = new_uid();
        let config = destination.config.to_string();
        let id = engine::query_scalar(INSERT_DESTINATION)
            .bind(&uid)
            .bind(stream.0)
            .bind(&destination.kind)
            .bind(&destination.platform)
            .bind(self.0.vault.seal(&uid, config.as_bytes()))
            .bind(now.0)
            .bind(destination.has_playback.then(new_playback_path))
            .bind(i64::from(destination.delays.start_secs))
            .bind(i64::from(destination.delays.stop_secs))
            .fetch_one(&mut *tx)
            .await
            .map_err(&failed)?;
        Ok(DestinationId(id))
    }

    async fn read_destinations(&self, stream: StreamId, page: Page) -> Result<Vec<DestinationView>> {
        let rows = engine::query(SELECT_DESTINATIONS)
            .bind(stream.0)
            .bind(page.before.unwrap_or(i64::MAX))
            .bind(page.limit)
            .fetch_all(&self.0.readers)
            .await
            .map_err(db("read the destinations"))?;
        rows.iter().map(|row| self.destination_view(row)).collect()
    }

    fn destination_view(&self, row: &Row) -> Result<DestinationView> {
        let failed = db("read the destination");
        let uid: String = row.try_get("uid").map_err(&failed)?;
        let sealed: Vec<u8> = row.try_get("config_sealed").map_err(&failed)?;
        let config = self.0.vault.open(&uid, &sealed).ok();
        // A check of the column keeps them in their range.
        let secs =
            |name| row.try_get::<i64>(name).map(|secs| u32::try_from(secs).unwrap_or(0)).map_err(&failed);
        let delays = Delays { start_secs: secs("start_delay_secs")?, stop_secs: secs("stop_delay_secs")? };
        Ok(DestinationView {
            id: DestinationId(row.try_get("id").map_err(&failed)?),
            stream_id: StreamId(row.try_get("stream_id").map_err(&failed)?),
            kind: row.try_get("kind").map_err(&failed)?,
            platform: row.try_get("platform").map_err(&failed)?,
            enabled: row.try_get::<i64>("enabled").map_err(&failed)? != 0,
            delays,
            config: config.and_then(|config| serde_json::from_slice(config.expose()).ok()),
            playback_path: row.try_get("playback_path").map_err(&failed)?,
        })
    }

    fn stream_view(&self, row: &Row) -> Result<StreamView> {
        let failed = db("read the stream");
        let uid: String = row.try_get("uid").map_err(&failed)?;
        let sealed: Vec<u8> = row.try_get("key_sealed").map_err(&failed)?;
        let reason: Option<String> = row.try_get("last_end_reason").map_err(&failed)?;
        let unreadable = StoreError::Unreadable { what: "sessions.end_reason" };
        Ok(StreamView {
            stream: stream_record(row).map_err(&failed)?,
            stream_key: self.0.vault.open_text(&uid, &sealed)?,
            last_end_reason: match reason {
                Some(name) => Some(EndReason::parse(&name).ok_or(unreadable)?),
                None => None,
            },
        })
    }
}

/// The destination, unless its configuration cannot be read; then a line in the log says which one it is.
fn readable(view: DestinationView) -> Option<DestinationRecord> {
    let Some(config) = view.config else {
        tracing::error!(
            stream_id = view.stream_id.0,
            destination_id = view.id.0,
            "the stored configuration of a destination cannot be read; it is left out until it is deleted and made anew"
        );
        return None;
    };
    Some(DestinationRecord {
        id: view.id,
        stream_id: view.stream_id,
        kind: view.kind,
        platform: view.platform,
        enabled: view.enabled,
        delays: view.delays,
        config,
        playback_path: view.playback_path,
    })
}

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
        // A list that cannot be read lets nobody in.
        allowed: Networks::from_text(&allowed).map_err(|error| sqlx::Error::Decode(error.into()))?,
    })
}
