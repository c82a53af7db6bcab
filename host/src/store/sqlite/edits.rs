//! Changes to streams, destinations and keys that exist.

use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, Sqlite, Transaction};

use super::{SqliteStore, commit, db};
use crate::ids::{AccountId, DestinationId, KeyId, StreamId, UnixMillis};
use crate::secret::{KeyKind, Redacted, key_hash};
use crate::store::{
    DestinationChange, DestinationView, Edits, KeyView, LimitChange, LimitsChange, Page, Result, Scopes,
    StoreError, StreamLimits,
};

const CHANGE_LIMITS: &str = "UPDATE streams SET max_sats = CASE WHEN $3 THEN $4 ELSE max_sats END,
    max_duration_minutes = CASE WHEN $5 THEN $6 ELSE max_duration_minutes END
    WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL RETURNING max_sats, max_duration_minutes";
const RENAME_STREAM: &str = "UPDATE streams SET label = $3
    WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL RETURNING id";
const STREAM_UID: &str = "SELECT uid FROM streams WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL";
const REPLACE_STREAM_KEY: &str = "UPDATE streams SET key_hash = $2, key_sealed = $3 WHERE id = $1";
const DESTINATION_UID: &str = "SELECT d.uid FROM destinations d JOIN streams s ON s.id = d.stream_id
    WHERE d.id = $1 AND d.stream_id = $2 AND s.account_id = $3 AND d.deleted_ms IS NULL AND s.deleted_ms IS NULL";
const ENABLE_DESTINATION: &str = "UPDATE destinations SET enabled = $2 WHERE id = $1";
const CONFIGURE_DESTINATION: &str = "UPDATE destinations SET config_sealed = $2 WHERE id = $1";
const SELECT_KEYS: &str = "SELECT k.id, k.uid, k.kind, k.key_sealed, k.prefix, k.last4, k.scopes,
    k.destination_id, k.label, k.created_ms, k.last_used_ms
    FROM api_keys k LEFT JOIN destinations d ON d.id = k.destination_id
    WHERE k.account_id = $1 AND k.revoked_ms IS NULL AND d.deleted_ms IS NULL AND k.id < $2
    ORDER BY k.id DESC LIMIT $3";
const REVOKE_KEY: &str = "UPDATE api_keys SET revoked_ms = $3
    WHERE id = $1 AND account_id = $2 AND revoked_ms IS NULL RETURNING id";

#[async_trait]
impl Edits for SqliteStore {
    async fn change_limits(
        &self,
        account: AccountId,
        stream: StreamId,
        change: LimitsChange,
    ) -> Result<StreamLimits> {
        let mut tx = self.begin().await?;
        let (change_sats, sats) = parts(change.max_sats);
        let (change_minutes, minutes) = parts(change.max_duration_minutes);
        let failed = db("change the limits");
        let row = sqlx::query(CHANGE_LIMITS)
            .bind(stream.0)
            .bind(account.0)
            .bind(change_sats)
            .bind(sats)
            .bind(change_minutes)
            .bind(minutes)
            .fetch_optional(&mut *tx)
            .await
            .map_err(&failed)?
            .ok_or(StoreError::NotFound("stream"))?;
        let limits = StreamLimits {
            max_sats: row.try_get("max_sats").map_err(&failed)?,
            max_duration_minutes: row.try_get("max_duration_minutes").map_err(&failed)?,
        };
        commit(tx).await?;
        Ok(limits)
    }

    async fn rename_stream(&self, account: AccountId, stream: StreamId, label: &str) -> Result<()> {
        let mut tx = self.begin().await?;
        let renamed = sqlx::query(RENAME_STREAM).bind(stream.0).bind(account.0).bind(label);
        let renamed = renamed.fetch_optional(&mut *tx).await.map_err(db("rename the stream"))?;
        renamed.ok_or(StoreError::NotFound("stream"))?;
        commit(tx).await
    }

    async fn replace_stream_key(
        &self,
        account: AccountId,
        stream: StreamId,
        key: &Redacted<String>,
    ) -> Result<()> {
        let mut tx = self.begin().await?;
        let failed = db("replace the stream key");
        let uid: Option<String> = sqlx::query_scalar(STREAM_UID)
            .bind(stream.0)
            .bind(account.0)
            .fetch_optional(&mut *tx)
            .await
            .map_err(&failed)?;
        let uid = uid.ok_or(StoreError::NotFound("stream"))?;
        let replace = sqlx::query(REPLACE_STREAM_KEY)
            .bind(stream.0)
            .bind(key_hash(key.expose()).to_vec())
            .bind(self.vault.seal(&uid, key.expose().as_bytes()));
        replace.execute(&mut *tx).await.map_err(&failed)?;
        commit(tx).await
    }

    async fn destination_of(
        &self,
        account: AccountId,
        stream: StreamId,
        destination: DestinationId,
    ) -> Result<Option<DestinationView>> {
        let page = Page { before: Some(destination.0.saturating_add(1)), limit: 1 };
        let found = crate::store::Streams::destinations_page(self, account, stream, page).await?;
        Ok(found.into_iter().flatten().find(|view| view.id == destination))
    }

    async fn change_destination(
        &self,
        account: AccountId,
        stream: StreamId,
        destination: DestinationId,
        change: DestinationChange,
    ) -> Result<()> {
        let mut tx = self.begin().await?;
        let uid = destination_uid(&mut tx, account, stream, destination).await?;
        let failed = db("change the destination");
        if let Some(enabled) = change.enabled {
            let set = sqlx::query(ENABLE_DESTINATION).bind(destination.0).bind(i64::from(enabled));
            set.execute(&mut *tx).await.map_err(&failed)?;
        }
        if let Some(config) = change.config {
            let sealed = self.vault.seal(&uid, config.to_string().as_bytes());
            let set = sqlx::query(CONFIGURE_DESTINATION).bind(destination.0).bind(sealed);
            set.execute(&mut *tx).await.map_err(&failed)?;
        }
        commit(tx).await
    }

    async fn keys_of(&self, account: AccountId, page: Page) -> Result<Vec<KeyView>> {
        let rows = sqlx::query(SELECT_KEYS)
            .bind(account.0)
            .bind(page.before.unwrap_or(i64::MAX))
            .bind(page.limit)
            .fetch_all(&self.readers)
            .await
            .map_err(db("read the keys"))?;
        rows.iter().map(|row| self.key_view(row)).collect()
    }

    async fn revoke_key(&self, account: AccountId, key: KeyId, now: UnixMillis) -> Result<()> {
        let mut tx = self.begin().await?;
        let revoked = sqlx::query(REVOKE_KEY).bind(key.0).bind(account.0).bind(now.0);
        let revoked = revoked.fetch_optional(&mut *tx).await.map_err(db("revoke the key"))?;
        revoked.ok_or(StoreError::NotFound("key"))?;
        commit(tx).await
    }
}

/// Whether the column changes, and to what.
fn parts(change: LimitChange) -> (bool, Option<i64>) {
    match change {
        LimitChange::Keep => (false, None),
        LimitChange::Remove => (true, None),
        LimitChange::Set(value) => (true, Some(value)),
    }
}

async fn destination_uid(
    tx: &mut Transaction<'static, Sqlite>,
    account: AccountId,
    stream: StreamId,
    destination: DestinationId,
) -> Result<String> {
    let uid = sqlx::query_scalar(DESTINATION_UID).bind(destination.0).bind(stream.0).bind(account.0);
    let uid: Option<String> = uid.fetch_optional(&mut **tx).await.map_err(db("read the destination"))?;
    uid.ok_or(StoreError::NotFound("destination"))
}

impl SqliteStore {
    fn key_view(&self, row: &SqliteRow) -> Result<KeyView> {
        let failed = db("read the keys");
        let kind: String = row.try_get("kind").map_err(&failed)?;
        let scopes: String = row.try_get("scopes").map_err(&failed)?;
        let uid: String = row.try_get("uid").map_err(&failed)?;
        let sealed: Option<Vec<u8>> = row.try_get("key_sealed").map_err(&failed)?;
        Ok(KeyView {
            id: KeyId(row.try_get("id").map_err(&failed)?),
            kind: KeyKind::parse(&kind).ok_or(StoreError::Unreadable { what: "api_keys.kind" })?,
            key: sealed.map(|sealed| self.vault.open_text(&uid, &sealed)).transpose()?,
            prefix: row.try_get("prefix").map_err(&failed)?,
            last4: row.try_get("last4").map_err(&failed)?,
            scopes: Scopes::parse(&scopes).ok_or(StoreError::Unreadable { what: "api_keys.scopes" })?,
            destination_id: row
                .try_get::<Option<i64>, _>("destination_id")
                .map_err(&failed)?
                .map(DestinationId),
            label: row.try_get("label").map_err(&failed)?,
            created_at: UnixMillis(row.try_get("created_ms").map_err(&failed)?),
            last_used_at: row.try_get::<Option<i64>, _>("last_used_ms").map_err(&failed)?.map(UnixMillis),
        })
    }
}
