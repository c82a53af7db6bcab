//! For tests of other modules: somebody else who writes to the database file.

use std::path::Path;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};

use super::sqlite::IDEMPOTENCY_ROWS_MAX;
use crate::ids::{AccountId, SessionId, StreamId, UnixMillis, WebhookId};

/// A connection that the store knows nothing of.
pub(crate) struct Intruder(SqliteConnection);

impl Intruder {
    /// Opens the file.
    pub(crate) async fn open(file: &Path) -> Self {
        let options = SqliteConnectOptions::new().filename(file);
        Self(SqliteConnection::connect_with(&options).await.unwrap())
    }

    /// Makes the configuration of a destination unreadable.
    pub(crate) async fn damage_destination(&mut self, id: i64) {
        self.run(&format!("UPDATE destinations SET config_sealed = x'01' WHERE id = {id}")).await;
    }

    /// Takes a destination out of sessions, or puts it back.
    pub(crate) async fn enable_destination(&mut self, id: i64, enabled: bool) {
        let enabled = i64::from(enabled);
        self.run(&format!("UPDATE destinations SET enabled = {enabled} WHERE id = {id}")).await;
    }

    /// Revokes every public key.
    pub(crate) async fn revoke_public_keys(&mut self) {
        self.run("UPDATE api_keys SET revoked_ms = 1 WHERE kind = 'public'").await;
    }

    /// Lets an account operate the service.
    pub(crate) async fn promote(&mut self, account: crate::ids::AccountId) {
        self.run(&format!("UPDATE accounts SET operator = 1 WHERE id = {}", account.0)).await;
    }

    /// Disables a webhook as the service would.
    pub(crate) async fn disable_webhook(&mut self, id: i64, reason: &str) {
        self.run(&format!("UPDATE webhooks SET enabled = 0, disabled_reason = '{reason}' WHERE id = {id}"))
            .await;
    }

    /// Revokes every permanent key.
    pub(crate) async fn revoke_permanent_keys(&mut self) {
        self.run("UPDATE api_keys SET revoked_ms = 1 WHERE kind = 'permanent'").await;
    }

    /// Takes every stream away.
    pub(crate) async fn forget_streams(&mut self) {
        self.run("DELETE FROM streams").await;
    }

    /// Makes the url of a webhook unreadable.
    pub(crate) async fn damage_webhook(&mut self, id: i64) {
        self.run(&format!("UPDATE webhooks SET url_sealed = x'01' WHERE id = {id}")).await;
    }

    /// Takes the table of bandwidth away, or brings it back.
    pub(crate) async fn hide_bandwidth(&mut self, hide: bool) {
        let (from, to) = if hide { ("bandwidth", "hidden") } else { ("hidden", "bandwidth") };
        self.run(&format!("ALTER TABLE {from} RENAME TO {to}")).await;
    }

    /// Leaves the bytes there are as the upgrade to a service that charges does.
    pub(crate) async fn upgrade_bandwidth(&mut self) {
        self.run("UPDATE bandwidth SET billed_bytes = bytes").await;
    }

    /// Takes the ledger's transfers away, or brings them back.
    pub(crate) async fn hide_transfers(&mut self, hide: bool) {
        let (from, to) = if hide { ("transfers", "hidden") } else { ("hidden", "transfers") };
        self.run(&format!("ALTER TABLE {from} RENAME TO {to}")).await;
    }

    /// Limits what a session of the stream may cost.
    pub(crate) async fn limit_sats(&mut self, stream: StreamId, max_sats: Option<i64>) {
        let max_sats = max_sats.map_or("NULL".to_owned(), |sats| sats.to_string());
        self.run(&format!("UPDATE streams SET max_sats = {max_sats} WHERE id = {stream}")).await;
    }

    /// Leaves requests with an idempotency key as a process that died over them would.
    pub(crate) async fn lose_answers(&mut self) {
        self.run("UPDATE idempotency SET status = NULL, answer_sealed = NULL").await;
    }

    /// Records as many requests of an account as are kept.
    pub(crate) async fn fill_requests(&mut self, account: AccountId, now: UnixMillis) {
        let (rows, now) = (IDEMPOTENCY_ROWS_MAX, now.0);
        self.run(&format!(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
            INSERT INTO idempotency (uid, account_id, request_hash, body_hash, created_ms)
            SELECT 'u' || i, {account}, CAST('r' || i AS BLOB), x'00', {now} FROM n"
        ))
        .await;
    }

    /// Keeps everybody else from writing until [`Intruder::let_write`].
    pub(crate) async fn keep_from_writing(&mut self) {
        self.run("BEGIN IMMEDIATE").await;
    }

    /// Ends what [`Intruder::keep_from_writing`] began.
    pub(crate) async fn let_write(&mut self) {
        self.run("COMMIT").await;
    }

    /// What the viewers of its stream had got when a session began.
    pub(crate) async fn bytes_before(&mut self, session: &SessionId) -> u64 {
        let ask =
            sqlx::query_scalar("SELECT bytes_before FROM sessions WHERE id = $1").bind(session.as_str());
        let bytes: i64 = ask.fetch_one(&mut self.0).await.unwrap();
        u64::try_from(bytes).unwrap()
    }

    /// Deliveries of a webhook that are stored.
    pub(crate) async fn deliveries_of(&mut self, webhook: WebhookId) -> i64 {
        let count = sqlx::query_scalar("SELECT COUNT(*) FROM webhook_deliveries WHERE webhook_id = $1");
        count.bind(webhook.0).fetch_one(&mut self.0).await.unwrap()
    }

    async fn run(&mut self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.0).await.unwrap();
    }
}
