//! Changes to streams, destinations and keys that exist.

use serde_json::{Value, json};

use super::audit::record;
use super::engine::{self, Row, Tx};
use super::lock::Lock;
use super::{Store, db};
use crate::{
    Actor, Change, DestinationChange, DestinationView, KeyView, LimitChange, LimitsChange, NewKey, Page,
    Result, Scopes, StoreError, StreamChange, StreamLimits,
};
use satcast_core::ids::{AccountId, DestinationId, KeyId, LoginId, StreamId, UnixMillis};
use satcast_core::secret::{KeyKind, Redacted, key_hash};

const STREAM_BEFORE: &str = "SELECT label, max_sats, max_duration_minutes, allowed_addresses FROM streams
    WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL";
const CHANGE_LIMITS: &str = "UPDATE streams SET max_sats = CASE WHEN $3 THEN $4 ELSE max_sats END,
    max_duration_minutes = CASE WHEN $5 THEN $6 ELSE max_duration_minutes END
    WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL RETURNING max_sats, max_duration_minutes";
const CHANGE_STREAM: &str = "UPDATE streams SET label = COALESCE($3, label),
    allowed_addresses = COALESCE($4, allowed_addresses) WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL";
const STREAM_UID: &str = "SELECT uid FROM streams WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL";
const REPLACE_STREAM_KEY: &str = "UPDATE streams SET key_hash = $2, key_sealed = $3 WHERE id = $1";
const DESTINATION_BEFORE: &str = "SELECT d.uid, d.enabled, d.start_delay_secs, d.stop_delay_secs FROM destinations d JOIN streams s ON s.id = d.stream_id
    WHERE d.id = $1 AND d.stream_id = $2 AND s.account_id = $3 AND d.deleted_ms IS NULL AND s.deleted_ms IS NULL";
const ENABLE_DESTINATION: &str = "UPDATE destinations SET enabled = $2 WHERE id = $1";
const DELAY_DESTINATION: &str = "UPDATE destinations SET start_delay_secs = COALESCE($2, start_delay_secs),
    stop_delay_secs = COALESCE($3, stop_delay_secs) WHERE id = $1";
const CONFIGURE_DESTINATION: &str = "UPDATE destinations SET config_sealed = $2 WHERE id = $1";
const SELECT_KEYS: &str = "SELECT k.id, k.uid, k.kind, k.key_sealed, k.prefix, k.last4, k.scopes,
    k.destination_id, k.label, k.created_ms, k.last_used_ms, k.login_id
    FROM api_keys k LEFT JOIN destinations d ON d.id = k.destination_id LEFT JOIN logins l ON l.id = k.login_id
    WHERE k.account_id = $1 AND k.revoked_ms IS NULL AND d.deleted_ms IS NULL AND k.id < $2
    AND (k.login_id IS NULL OR l.id IS NOT NULL)
    ORDER BY k.id DESC LIMIT $3";
const REVOKE_KEY: &str = "UPDATE api_keys SET revoked_ms = $3
    WHERE id = $1 AND account_id = $2 AND revoked_ms IS NULL RETURNING kind, label";

/// Changes by the owner of what is changed. Everything of another account is [`StoreError::NotFound`].
impl Store {
    /// Changes the hard limits of a stream; answers those in force then.
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
        let action = if allowed.is_none() { "stream.renamed" } else { "stream.changed" };
        let change = engine::query(CHANGE_STREAM).bind(stream.0).bind(actor.account.0).bind(change.label);
        change.bind(allowed).execute(&mut tx).await.map_err(db("change the stream"))?;
        let change = Change::new(action, "stream", stream.0, json!({"before": before, "after": after}));
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }

    /// Gives a stream another stream key; the old one is unknown from then on.
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
        let change = Change::new("stream.key_replaced", "stream", stream.0, json!({}));
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
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

    /// Changes a destination.
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
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }

    /// The account's keys that are not revoked, newest first.
    pub async fn keys_of(&self, account: AccountId, page: Page) -> Result<Vec<KeyView>> {
        let rows = engine::query(SELECT_KEYS)
            .bind(account.0)
            .bind(page.before.unwrap_or(i64::MAX))
            .bind(page.limit)
            .fetch_all(&self.0.readers)
            .await
            .map_err(db("read the keys"))?;
        rows.iter().map(|row| self.key_view(row)).collect()
    }

    /// One of the account's keys that is not revoked.
    pub async fn key_of(&self, account: AccountId, key: KeyId) -> Result<Option<KeyView>> {
        let page = Page { before: Some(key.0.saturating_add(1)), limit: 1 };
        let found = self.keys_of(account, page).await?;
        Ok(found.into_iter().find(|view| view.id == key))
    }

    /// Revokes a key for ever and stores another in its place, all or nothing.
    pub async fn replace_key(&self, actor: &Actor, key: KeyId, new: NewKey) -> Result<KeyId> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let (kind, label) = revoke(&mut tx, actor, key).await?;
        let id = self.insert_key(&mut tx, actor, &new).await?;
        let detail = json!({"type": kind, "label": label, "replaces": key.0});
        let noted = record(&mut tx, actor, Change::new("key.replaced", "key", id.0, detail)).await?;
        self.commit_noted(tx, noted).await?;
        Ok(id)
    }

    /// Revokes a key for ever.
    pub async fn revoke_key(&self, actor: &Actor, key: KeyId) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let (kind, label) = revoke(&mut tx, actor, key).await?;
        let change = Change::new("key.revoked", "key", key.0, json!({"type": kind, "label": label}));
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }
}

/// Revokes a key; answers its kind and label.
async fn revoke(tx: &mut Tx, actor: &Actor, key: KeyId) -> Result<(String, String)> {
    let revoked = engine::query_as(REVOKE_KEY).bind(key.0).bind(actor.account.0).bind(actor.now.0);
    let revoked = revoked.fetch_optional(&mut *tx).await.map_err(db("revoke the key"))?;
    revoked.ok_or(StoreError::NotFound("key"))
}

/// A stream of the actor's account as it is.
struct StreamBefore {
    label: String,
    limits: StreamLimits,
    allowed: String,
}

async fn stream_before(tx: &mut Tx, actor: &Actor, stream: StreamId) -> Result<StreamBefore> {
    let row = engine::query_as(STREAM_BEFORE).bind(stream.0).bind(actor.account.0);
    let row: Option<(String, Option<i64>, Option<i64>, String)> =
        row.fetch_optional(&mut *tx).await.map_err(db("read the stream"))?;
    let (label, max_sats, max_duration_minutes, allowed) = row.ok_or(StoreError::NotFound("stream"))?;
    Ok(StreamBefore { label, limits: StreamLimits { max_sats, max_duration_minutes }, allowed })
}

/// Limits as the audit log shows them.
fn shown(limits: StreamLimits) -> Value {
    json!({"maxSats": limits.max_sats, "maxDurationMinutes": limits.max_duration_minutes})
}

/// Whether the column changes, and to what.
fn parts(change: LimitChange) -> (bool, Option<i64>) {
    match change {
        LimitChange::Keep => (false, None),
        LimitChange::Remove => (true, None),
        LimitChange::Set(value) => (true, Some(value)),
    }
}

/// A destination of the actor's account as it is.
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

impl Store {
    fn key_view(&self, row: &Row) -> Result<KeyView> {
        let failed = db("read the keys");
        let kind: String = row.try_get("kind").map_err(&failed)?;
        let scopes: String = row.try_get("scopes").map_err(&failed)?;
        let uid: String = row.try_get("uid").map_err(&failed)?;
        let sealed: Option<Vec<u8>> = row.try_get("key_sealed").map_err(&failed)?;
        Ok(KeyView {
            id: KeyId(row.try_get("id").map_err(&failed)?),
            kind: KeyKind::parse(&kind).ok_or(StoreError::Unreadable { what: "api_keys.kind" })?,
            key: sealed.map(|sealed| self.0.vault.open_text(&uid, &sealed)).transpose()?,
            prefix: row.try_get("prefix").map_err(&failed)?,
            last4: row.try_get("last4").map_err(&failed)?,
            scopes: Scopes::parse(&scopes).ok_or(StoreError::Unreadable { what: "api_keys.scopes" })?,
            destination_id: row.try_get::<Option<i64>>("destination_id").map_err(&failed)?.map(DestinationId),
            login: row.try_get::<Option<i64>>("login_id").map_err(&failed)?.map(LoginId),
            label: row.try_get("label").map_err(&failed)?,
            created_at: UnixMillis(row.try_get("created_ms").map_err(&failed)?),
            last_used_at: row.try_get::<Option<i64>>("last_used_ms").map_err(&failed)?.map(UnixMillis),
        })
    }
}
