//! Playback: finds the destination of a viewer's key or path, and stores the sent bytes.

use serde_json::Value;

use crate::engine::{self, Row};
use crate::error::{Result, StoreError, db};
use crate::store::{Store, again};
use satcast_core::ids::{AccountId, DestinationId, JSON_INTEGER_MAX, KeyId, StreamId, UnixMillis};

/// A destination that viewers can play; neither it nor its stream is deleted, and its account is not disabled.
#[derive(Clone, PartialEq)]
pub struct PlaybackRecord {
    pub destination_id: DestinationId,
    pub stream_id: StreamId,
    pub kind: String,
    /// The account that owns it.
    pub account_id: AccountId,
    /// The stream's label.
    pub label: String,
    /// The part of the playback URL that identifies the destination: 22 random base62 characters.
    pub playback_path: String,
    /// Whether it takes part in sessions; viewers of a disabled one are refused.
    pub enabled: bool,
    /// The driver's configuration in clear, secrets included.
    pub config: Value,
}

impl std::fmt::Debug for PlaybackRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `config` may hold secrets.
        f.debug_struct("PlaybackRecord")
            .field("destination_id", &self.destination_id)
            .field("stream_id", &self.stream_id)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

/// Bytes sent to the viewers of a destination, to be added to the stored ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// The account that owns the destination.
    pub account: AccountId,
    /// The destination, deleted or not.
    pub destination: DestinationId,
    /// The UTC clock hour in which the bytes were sent; see [`UnixMillis::hour_start`].
    pub hour_start: UnixMillis,
    /// Number of bytes. A destination's hour counts up to 2^53 - 1; bytes above that are not counted.
    pub bytes: u64,
}

/// Most bytes of one destination and hour: far above any real network, so that the sum of an account fits too.
const BYTES_MAX: i64 = JSON_INTEGER_MAX;

/// The columns and tables of a destination with playback; a condition that finds it follows.
macro_rules! select_playback {
    ($columns_and_tables:literal, $condition:literal) => {
        concat!(
            "SELECT d.id, d.uid, d.stream_id, d.kind, s.account_id, s.label, d.playback_path, d.enabled, d.config_sealed",
            $columns_and_tables,
            " JOIN streams s ON s.id = d.stream_id JOIN accounts a ON a.id = s.account_id ",
            "WHERE d.playback_path IS NOT NULL AND d.deleted_ms IS NULL AND s.deleted_ms IS NULL ",
            "AND a.disabled_ms IS NULL AND ",
            $condition
        )
    };
}

const SELECT_BY_KEY_HASH: &str = select_playback!(
    ", k.id AS key_id FROM api_keys k JOIN destinations d ON d.id = k.destination_id",
    "k.hash = $1 AND k.kind = 'public' AND k.revoked_ms IS NULL"
);
const SELECT_BY_KEY: &str = select_playback!(
    " FROM api_keys k JOIN destinations d ON d.id = k.destination_id",
    "k.id = $1 AND k.kind = 'public' AND k.revoked_ms IS NULL"
);
const SELECT_BY_PATH: &str = select_playback!(" FROM destinations d", "d.playback_path = $1");
/// Adds up to the maximum of a row: one sum that overflows must not prevent the storing of all others.
const ADD_BANDWIDTH: &str =
    "INSERT INTO bandwidth (destination_id, hour_ms, account_id, bytes) VALUES ($1, $2, $3, $4)
    ON CONFLICT (destination_id, hour_ms) DO UPDATE SET bytes =
    CASE WHEN bandwidth.bytes > $5 - excluded.bytes THEN $5 ELSE bandwidth.bytes + excluded.bytes END";
const SUM_BANDWIDTH: &str =
    "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM bandwidth WHERE account_id = $1 AND hour_ms = $2";

/// Reads and writes for playback.
///
/// # Errors
/// Reading a destination whose stored configuration is damaged is a [`StoreError::Vault`].
impl Store {
    /// The public key with that SHA-256, unless revoked, and its destination.
    pub async fn playback_by_key_hash(&self, hash: &[u8; 32]) -> Result<Option<(KeyId, PlaybackRecord)>> {
        let failed = db("look up the public key");
        let row = engine::query(SELECT_BY_KEY_HASH).bind(&hash[..]).fetch_optional(&self.0.readers).await;
        let Some(row) = row.map_err(&failed)? else { return Ok(None) };
        let key = KeyId(row.try_get("key_id").map_err(&failed)?);
        Ok(Some((key, self.playback_record(&row)?)))
    }

    /// The destination of a public key, unless revoked.
    pub async fn playback_by_key(&self, key: KeyId) -> Result<Option<PlaybackRecord>> {
        let row = engine::query(SELECT_BY_KEY).bind(key.0).fetch_optional(&self.0.readers).await;
        let row = row.map_err(db("read the destination of the public key"))?;
        row.map(|row| self.playback_record(&row)).transpose()
    }

    pub async fn playback_by_path(&self, path: &str) -> Result<Option<PlaybackRecord>> {
        let row = engine::query(SELECT_BY_PATH).bind(path).fetch_optional(&self.0.readers).await;
        let row = row.map_err(db("look up the playback path"))?;
        row.map(|row| self.playback_record(&row)).transpose()
    }

    /// Adds bytes to the stored ones: all of them or, on an error, none.
    pub async fn add_bandwidth(&self, sent: &[Bandwidth]) -> Result<()> {
        if sent.is_empty() {
            return Ok(());
        }
        let mut sent = sent.to_vec();
        sent.sort_unstable_by_key(|row| (row.destination.0, row.hour_start));
        again(|| self.try_add(&sent)).await
    }

    /// Stored bytes of all destinations of an account in the UTC clock hour that begins at `hour_start`, deleted
    /// destinations included.
    pub async fn bandwidth_of_hour(&self, account: AccountId, hour_start: UnixMillis) -> Result<u64> {
        let sum = engine::query_scalar(SUM_BANDWIDTH).bind(account.0).bind(hour_start.0);
        let sum: i64 = sum.fetch_one(&self.0.readers).await.map_err(db("read the bandwidth"))?;
        u64::try_from(sum).map_err(|_| StoreError::Unreadable { what: "bandwidth.bytes" })
    }

    async fn try_add(&self, sent: &[Bandwidth]) -> Result<()> {
        let mut tx = self.begin().await?;
        for row in sent {
            let add = engine::query(ADD_BANDWIDTH)
                .bind(row.destination.0)
                .bind(row.hour_start.0)
                .bind(row.account.0)
                .bind(i64::try_from(row.bytes).unwrap_or(BYTES_MAX).min(BYTES_MAX))
                .bind(BYTES_MAX);
            add.execute(&mut tx).await.map_err(db("add to the bandwidth"))?;
        }
        let committed = tx.commit().await;
        self.has_changed();
        committed
    }

    fn playback_record(&self, row: &Row) -> Result<PlaybackRecord> {
        let failed = db("read the destination");
        let uid: String = row.try_get("uid").map_err(&failed)?;
        let sealed: Vec<u8> = row.try_get("config_sealed").map_err(&failed)?;
        let config = self.0.vault.open(&uid, &sealed)?;
        let unreadable = |_| StoreError::Unreadable { what: "destinations.config_sealed" };
        Ok(PlaybackRecord {
            destination_id: DestinationId(row.try_get("id").map_err(&failed)?),
            stream_id: StreamId(row.try_get("stream_id").map_err(&failed)?),
            kind: row.try_get("kind").map_err(&failed)?,
            account_id: AccountId(row.try_get("account_id").map_err(&failed)?),
            label: row.try_get("label").map_err(&failed)?,
            playback_path: row.try_get("playback_path").map_err(&failed)?,
            enabled: row.try_get::<i64>("enabled").map_err(&failed)? != 0,
            config: serde_json::from_slice(config.expose()).map_err(unreadable)?,
        })
    }
}
