//! Destinations of streams.

use serde_json::{Value, json};

use crate::audit::{Actor, Change, record};
use crate::commands::{CommandTarget, NodeCommand};
use crate::engine::{self, Row, Tx};
use crate::error::{Result, StoreError, db};
use crate::store::{Caps, Lock, Page, Store};
use satcast_core::ids::{AccountId, DestinationId, StreamId, UnixMillis};
use satcast_core::secret::{new_playback_path, new_uid};

/// Longest delay of a destination, in seconds.
pub const DELAY_SECS_MAX: u32 = 300;

/// Delay between a change of the desired state and its effect, in seconds from 0 to [`DELAY_SECS_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Delay of the start, after the session began or the destination was added or enabled.
    pub start_secs: u32,
    /// Delay of the stop, after the destination was disabled.
    pub stop_secs: u32,
}

#[derive(Clone, PartialEq)]
pub struct DestinationRecord {
    pub id: DestinationId,
    pub stream_id: StreamId,
    /// Its type, which names a driver: `rtmp`, `self-hosted`, ...
    pub kind: String,
    pub platform: String,
    /// Whether it takes part in sessions.
    pub enabled: bool,
    pub delays: Delays,
    /// The driver's configuration in clear, secrets included.
    pub config: Value,
    /// The part of the playback URL that identifies it; `None` for types without playback.
    pub playback_path: Option<String>,
}

impl std::fmt::Debug for DestinationRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `config` holds secrets.
        f.debug_struct("DestinationRecord")
            .field("id", &self.id)
            .field("stream_id", &self.stream_id)
            .field("kind", &self.kind)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

/// A destination as its owner sees it in a list, including one whose stored configuration is damaged.
#[derive(Clone, PartialEq)]
pub struct DestinationView {
    pub id: DestinationId,
    pub stream_id: StreamId,
    /// Its type, which names a driver: `rtmp`, `self-hosted`, ...
    pub kind: String,
    pub platform: String,
    /// Whether it takes part in sessions.
    pub enabled: bool,
    pub delays: Delays,
    /// The driver's configuration in clear, secrets included; `None` if it cannot be read.
    pub config: Option<Value>,
    /// The part of the playback URL that identifies it; `None` for types without playback.
    pub playback_path: Option<String>,
}

impl std::fmt::Debug for DestinationView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `config` holds secrets.
        f.debug_struct("DestinationView").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A destination to be created; the driver has accepted its configuration.
#[derive(Clone)]
pub struct NewDestination {
    pub kind: String,
    pub platform: String,
    /// The driver's configuration in clear.
    pub config: Value,
    /// Whether viewers can play it: then it gets a playback path.
    pub has_playback: bool,
    pub delays: Delays,
}

impl std::fmt::Debug for NewDestination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `config` holds secrets.
        f.debug_struct("NewDestination").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A change of a destination.
#[derive(Clone, Default)]
pub struct DestinationChange {
    /// Whether it takes part in sessions; `None` leaves it.
    pub enabled: Option<bool>,
    /// A new configuration that the driver has accepted; `None` leaves it.
    pub config: Option<Value>,
    /// The new delay of the start in seconds; `None` leaves it.
    pub start_delay_secs: Option<u32>,
    /// The new delay of the stop in seconds; `None` leaves it.
    pub stop_delay_secs: Option<u32>,
}

impl std::fmt::Debug for DestinationChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `config` holds secrets.
        f.debug_struct("DestinationChange").field("enabled", &self.enabled).finish_non_exhaustive()
    }
}

const OWNED_STREAM: &str = "SELECT id FROM streams WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL";
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
const DESTINATION_BEFORE: &str = "SELECT d.uid, d.enabled, d.start_delay_secs, d.stop_delay_secs FROM destinations d JOIN streams s ON s.id = d.stream_id
    WHERE d.id = $1 AND d.stream_id = $2 AND s.account_id = $3 AND d.deleted_ms IS NULL AND s.deleted_ms IS NULL";
const ENABLE_DESTINATION: &str = "UPDATE destinations SET enabled = $2 WHERE id = $1";
const DELAY_DESTINATION: &str = "UPDATE destinations SET start_delay_secs = COALESCE($2, start_delay_secs),
    stop_delay_secs = COALESCE($3, stop_delay_secs) WHERE id = $1";
const CONFIGURE_DESTINATION: &str = "UPDATE destinations SET config_sealed = $2 WHERE id = $1";

impl Store {
    /// The destinations of a stream that are not deleted, newest first, disabled ones included. A destination whose
    /// stored configuration cannot be read is logged and left out, so that the others can go live.
    pub async fn destinations_of(&self, stream: StreamId) -> Result<Vec<DestinationRecord>> {
        let views = self.read_destinations(stream, Page::ALL).await?;
        Ok(views.into_iter().filter_map(readable).collect())
    }

    /// One page of the destinations of a stream of the account, newest first, unreadable ones included; `None` if the
    /// stream does not belong to the account.
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

    /// One destination of a stream of the account.
    pub async fn destination_of(
        &self,
        account: AccountId,
        stream: StreamId,
        destination: DestinationId,
    ) -> Result<Option<DestinationView>> {
        let page = Page { before: Some(destination.0.saturating_add(1)), limit: 1 };
        let found = self.destinations_page(account, stream, page).await?;
        Ok(found.into_iter().flatten().find(|view| view.id == destination))
    }

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
        self.command_in(&mut tx, CommandTarget::Stream(stream), NodeCommand::Reload, actor.now).await?;
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await?;
        Ok(id)
    }

    pub async fn change_destination(
        &self,
        actor: &Actor,
        stream: StreamId,
        destination: DestinationId,
        change: DestinationChange,
    ) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let known = destination_before(&mut tx, actor, stream, destination).await?;
        let mut detail = json!({"streamId": stream.0, "configChanged": change.config.is_some()});
        let failed = db("change the destination");
        if let Some(enabled) = change.enabled {
            let set = engine::query(ENABLE_DESTINATION).bind(destination.0).bind(i64::from(enabled));
            set.execute(&mut tx).await.map_err(&failed)?;
            detail["before"]["enabled"] = json!(known.enabled);
            detail["after"]["enabled"] = json!(enabled);
        }
        let delays = [
            ("startDelaySeconds", change.start_delay_secs, known.delays[0]),
            ("stopDelaySeconds", change.stop_delay_secs, known.delays[1]),
        ];
        if delays.iter().any(|(_, secs, _)| secs.is_some()) {
            let [start, stop] = delays.map(|(_, secs, _)| secs.map(i64::from));
            let set = engine::query(DELAY_DESTINATION).bind(destination.0).bind(start).bind(stop);
            set.execute(&mut tx).await.map_err(&failed)?;
        }
        for (name, secs, known) in delays {
            if let Some(secs) = secs {
                detail["before"][name] = json!(known);
                detail["after"][name] = json!(secs);
            }
        }
        if let Some(config) = change.config {
            let sealed = self.0.vault.seal(&known.uid, config.to_string().as_bytes());
            let set = engine::query(CONFIGURE_DESTINATION).bind(destination.0).bind(sealed);
            set.execute(&mut tx).await.map_err(&failed)?;
        }
        let change = Change::new("destination.changed", "destination", destination.0, detail);
        self.command_in(&mut tx, CommandTarget::Stream(stream), NodeCommand::Reload, actor.now).await?;
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }

    /// Marks a destination of the account as deleted, of `stream` if given; returns its stream.
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
        self.command_in(&mut tx, CommandTarget::Stream(StreamId(stream)), NodeCommand::Reload, actor.now)
            .await?;
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await?;
        Ok(StreamId(stream))
    }

    pub(crate) async fn insert_destination(
        &self,
        tx: &mut Tx,
        stream: StreamId,
        destination: &NewDestination,
        caps: Caps,
        now: UnixMillis,
    ) -> Result<DestinationId> {
        let failed = db("create the destination");
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
            .bind(page.end())
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
        // A check of the column guarantees the range.
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
}

/// The current state of a destination of the actor's account.
struct DestinationBefore {
    uid: String,
    enabled: bool,
    /// Seconds before its start and before its stop.
    delays: [i64; 2],
}

async fn destination_before(
    tx: &mut Tx,
    actor: &Actor,
    stream: StreamId,
    destination: DestinationId,
) -> Result<DestinationBefore> {
    let row = engine::query_as(DESTINATION_BEFORE).bind(destination.0).bind(stream.0).bind(actor.account.0);
    let row: Option<(String, i64, i64, i64)> =
        row.fetch_optional(&mut *tx).await.map_err(db("read the destination"))?;
    let (uid, enabled, start, stop) = row.ok_or(StoreError::NotFound("destination"))?;
    Ok(DestinationBefore { uid, enabled: enabled != 0, delays: [start, stop] })
}

/// The destination, unless its configuration cannot be read; then the log names it.
fn readable(view: DestinationView) -> Option<DestinationRecord> {
    let Some(config) = view.config else {
        tracing::error!(
            stream_id = view.stream_id.0,
            destination_id = view.id.0,
            "the stored configuration of a destination cannot be read; sessions skip the destination until it is deleted and created again"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_configs_are_not_printed() {
        let new = NewDestination {
            kind: "rtmp".into(),
            platform: "rtmp".into(),
            config: serde_json::json!({"key": "hunter2"}),
            has_playback: false,
            delays: Delays::default(),
        };
        assert!(!format!("{new:?}").contains("hunter2"));
    }
}
