//! For tests of all crates: databases on either engine, and direct writes that bypass the store.
//!
//! A test names a file in its own folder. The tests run twice: on SQLite files, and with the address of a PostgreSQL
//! server in the environment. On a server each file stands for a database.

#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection as _};
use tokio::sync::Mutex;

use crate::address::Address;
use crate::engine::{migrations, sqlite};
use crate::idempotency::ROWS_PER_ACCOUNT_MAX;
use crate::open::{Inspector, OpenOptions, open};
use satcast_core::config::Durability;
use satcast_core::ids::{AccountId, Msat, SessionId, StreamId, UnixMillis, WebhookId};
use satcast_core::secret::{Redacted, Vault};

/// The address of a PostgreSQL server on which the user may create databases: `postgres://USER@HOST:PORT/postgres`.
const SERVER: &str = "SATCAST_TEST_POSTGRES";
/// The database with the schema that is copied for each test.
const TEMPLATE: &str = "satcast_template";
/// Prevents two processes from creating the template at the same time.
const TEMPLATE_LOCK: i64 = 7_238_104;

/// PostgreSQL's code for a database that does not exist.
const UNKNOWN_DATABASE: &str = "3D000";

/// Databases that this process has created.
static MADE: Mutex<Option<HashSet<String>>> = Mutex::const_new(None);

/// The server to test on; `None` for SQLite.
pub fn server() -> Option<String> {
    std::env::var(SERVER).ok()
}

/// The address of the database that stands for `file`: the first call creates it with the schema and without rows.
pub async fn url(file: &Path) -> Redacted<String> {
    match server() {
        None => {
            lay(file).await;
            Redacted::new(format!("sqlite:{}", file.display()))
        }
        Some(server) => Redacted::new(database(&server, file).await),
    }
}

/// Opens the database that stands for `file` for inspection.
pub async fn inspector(file: &Path) -> Inspector {
    Inspector::open(&Address::parse(url(file).await.expose()).unwrap()).await.unwrap()
}

/// Copies an empty database with the schema to `file`, unless this process has done so or it exists: the steps of the schema cost more
/// than most tests.
async fn lay(file: &Path) {
    let mut made = MADE.lock().await;
    if made.get_or_insert_default().insert(file.display().to_string()) && !file.exists() {
        std::fs::copy(template().await, file).unwrap();
    }
}

/// The file that is copied: the first test of this schema and user makes it.
async fn template() -> PathBuf {
    let mut hasher = DefaultHasher::new();
    migrations::hash(&mut hasher);
    let user = std::fs::metadata("/proc/self").unwrap().uid();
    let file = std::env::temp_dir().join(format!("satcast-template-{user}-{:016x}.db", hasher.finish()));
    if !file.exists() {
        let draft = file.with_extension(std::process::id().to_string());
        let (writer, readers) = sqlite::open(&draft, Durability::Normal).await.unwrap();
        readers.close().await;
        writer.close().await;
        std::fs::rename(&draft, &file).unwrap();
        std::fs::remove_file(format!("{}-migrate", draft.display())).unwrap();
    }
    file
}

/// Creates the database that stands for `file`, unless this process has done so, and returns its address.
async fn database(server: &str, file: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    file.hash(&mut hasher);
    let name = format!("t{}_{:016x}", std::process::id(), hasher.finish());
    let (before, _) = server.rsplit_once('/').unwrap();
    let url = format!("{before}/{name}");
    let mut made = MADE.lock().await;
    if made.get_or_insert_default().insert(name.clone()) {
        let mut admin = PgConnection::connect(server).await.unwrap();
        drop_left_over(&mut admin).await;
        // By its files: this costs the server half as much as by its log.
        let copy = format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY");
        if let Err(error) = run(&mut admin, &copy).await {
            let unknown = error
                .as_database_error()
                .is_some_and(|error| error.code().as_deref() == Some(UNKNOWN_DATABASE));
            assert!(unknown, "{error}");
            make_template(&mut admin, before).await;
            run(&mut admin, &copy).await.unwrap();
        }
        admin.close().await.unwrap();
    }
    url
}

/// Creates the template. It gets its final name only when it is complete and has no connections.
async fn make_template(admin: &mut PgConnection, server: &str) {
    sqlx::query("SELECT pg_advisory_lock($1)").bind(TEMPLATE_LOCK).execute(&mut *admin).await.unwrap();
    let known = sqlx::query("SELECT 1 FROM pg_database WHERE datname = $1").bind(TEMPLATE);
    if known.fetch_optional(&mut *admin).await.unwrap().is_none() {
        let draft = format!("{TEMPLATE}_draft");
        run(admin, &format!("DROP DATABASE IF EXISTS {draft} WITH (FORCE)")).await.unwrap();
        run(admin, &format!("CREATE DATABASE {draft} ENCODING 'UTF8' TEMPLATE template0")).await.unwrap();
        let url = Redacted::new(format!("{server}/{draft}"));
        let options = OpenOptions {
            url,
            durability: Durability::Normal,
            vault: Vault::new(&[7; 32]),
            low_balance: Msat(0),
        };
        open(options).await.unwrap().close().await;
        // Its connections end a moment after they were closed here.
        let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = $1";
        sqlx::query(end).bind(&draft).execute(&mut *admin).await.unwrap();
        run(admin, &format!("ALTER DATABASE {draft} RENAME TO {TEMPLATE}")).await.unwrap();
    }
    sqlx::query("SELECT pg_advisory_unlock($1)").bind(TEMPLATE_LOCK).execute(&mut *admin).await.unwrap();
}

/// Drops databases of processes that have ended.
async fn drop_left_over(admin: &mut PgConnection) {
    let all = sqlx::query_scalar("SELECT CAST(datname AS TEXT) FROM pg_database WHERE datname ~ '^t[0-9]+_'");
    let all: Vec<String> = all.fetch_all(&mut *admin).await.unwrap();
    let process = |name: &str| name[1..].split('_').next().unwrap_or_default().to_owned();
    for name in all.into_iter().filter(|name| !Path::new("/proc").join(process(name)).exists()) {
        // Another test may be dropping it.
        let _ = run(admin, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    }
}

async fn run(connection: &mut PgConnection, sql: &str) -> sqlx::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await.map(drop)
}

/// A connection that bypasses the store.
pub enum Intruder {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Intruder {
    /// Opens the database that stands for `file`.
    pub async fn open(file: &Path) -> Self {
        match Address::parse(url(file).await.expose()).unwrap() {
            Address::File(file) => {
                let options = SqliteConnectOptions::new().filename(file);
                Self::Sqlite(SqliteConnection::connect_with(&options).await.unwrap())
            }
            Address::Server(_) => {
                let options = PgConnectOptions::from_str(url(file).await.expose()).unwrap();
                Self::Postgres(PgConnection::connect_with(&options).await.unwrap())
            }
        }
    }

    /// Damages the configuration of a destination.
    pub async fn damage_destination(&mut self, id: i64) {
        let byte = self.byte();
        self.run(&format!("UPDATE destinations SET config_sealed = {byte} WHERE id = {id}")).await;
    }

    /// Enables or disables a destination.
    pub async fn enable_destination(&mut self, id: i64, enabled: bool) {
        let enabled = i64::from(enabled);
        self.run(&format!("UPDATE destinations SET enabled = {enabled} WHERE id = {id}")).await;
    }

    /// Revokes every public key.
    pub async fn revoke_public_keys(&mut self) {
        self.run("UPDATE api_keys SET revoked_ms = 1 WHERE kind = 'public'").await;
    }

    /// Gives an account operator rights.
    pub async fn promote(&mut self, account: satcast_core::ids::AccountId) {
        self.run(&format!("UPDATE accounts SET operator = 1 WHERE id = {}", account.0)).await;
    }

    /// Disables a webhook as the service would.
    pub async fn disable_webhook(&mut self, id: i64, reason: &str) {
        self.run(&format!("UPDATE webhooks SET enabled = 0, disabled_reason = '{reason}' WHERE id = {id}"))
            .await;
    }

    /// Sets every webhook to a failed last attempt.
    pub async fn fail_webhooks(&mut self) {
        self.run("UPDATE webhooks SET failures = 1, failing_since_ms = 0").await;
    }

    /// Revokes every permanent key.
    pub async fn revoke_permanent_keys(&mut self) {
        self.run("UPDATE api_keys SET revoked_ms = 1 WHERE kind = 'permanent'").await;
    }

    /// Deletes every stream.
    pub async fn forget_streams(&mut self) {
        self.run("DELETE FROM streams").await;
    }

    /// Damages the url of a webhook.
    pub async fn damage_webhook(&mut self, id: i64) {
        let byte = self.byte();
        self.run(&format!("UPDATE webhooks SET url_sealed = {byte} WHERE id = {id}")).await;
    }

    /// Renames the table of bandwidth away, or back.
    pub async fn hide_bandwidth(&mut self, hide: bool) {
        let (from, to) = if hide { ("bandwidth", "hidden") } else { ("hidden", "bandwidth") };
        self.run(&format!("ALTER TABLE {from} RENAME TO {to}")).await;
    }

    /// Marks the stored bytes as the upgrade to a service with charges does.
    pub async fn upgrade_bandwidth(&mut self) {
        self.run("UPDATE bandwidth SET billed_bytes = bytes").await;
    }

    /// The bodies of all events for webhooks, oldest first.
    pub async fn event_bodies(&mut self) -> Vec<Vec<u8>> {
        const ALL: &str = "SELECT body FROM webhook_events ORDER BY id";
        let bodies = match self {
            Self::Sqlite(connection) => sqlx::query_scalar(ALL).fetch_all(connection).await,
            Self::Postgres(connection) => sqlx::query_scalar(ALL).fetch_all(connection).await,
        };
        bodies.unwrap()
    }

    /// Renames the table of transfers away, or back.
    pub async fn hide_transfers(&mut self, hide: bool) {
        let (from, to) = if hide { ("transfers", "hidden") } else { ("hidden", "transfers") };
        self.run(&format!("ALTER TABLE {from} RENAME TO {to}")).await;
    }

    /// Renames the table of sessions away, or back.
    pub async fn hide_sessions(&mut self, hide: bool) {
        let (from, to) = if hide { ("sessions", "hidden_sessions") } else { ("hidden_sessions", "sessions") };
        self.run(&format!("ALTER TABLE {from} RENAME TO {to}")).await;
    }

    /// Renames a table away, or back.
    pub async fn hide(&mut self, table: &str, hide: bool) {
        let hidden = format!("hidden_{table}");
        let (from, to) = if hide { (table, &*hidden) } else { (&*hidden, table) };
        self.run(&format!("ALTER TABLE {from} RENAME TO {to}")).await;
    }

    /// Moves the clock of the database past the end of a node's lease.
    pub async fn end_lease(&mut self, node: &str) {
        self.run(&format!("UPDATE nodes SET lease_until_ms = 1 WHERE name = '{node}'")).await;
    }

    /// Limits the cost of a session of the stream.
    pub async fn limit_sats(&mut self, stream: StreamId, max_sats: Option<i64>) {
        let max_sats = max_sats.map_or("NULL".to_owned(), |sats| sats.to_string());
        self.run(&format!("UPDATE streams SET max_sats = {max_sats} WHERE id = {stream}")).await;
    }

    /// Leaves requests with an idempotency key as a process that died would.
    pub async fn lose_answers(&mut self) {
        self.run("UPDATE idempotency SET status = NULL, answer_sealed = NULL").await;
    }

    /// Stores as many requests of an account as the limit allows.
    pub async fn fill_requests(&mut self, account: AccountId, now: UnixMillis) {
        let (rows, now, byte) = (ROWS_PER_ACCOUNT_MAX, now.0, self.byte());
        let hash = match self {
            Self::Sqlite(_) => "CAST('r' || i AS BLOB)",
            Self::Postgres(_) => "convert_to('r' || i, 'UTF8')",
        };
        self.run(&format!(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
            INSERT INTO idempotency (uid, account_id, request_hash, body_hash, created_ms)
            SELECT 'u' || i, {account}, {hash}, {byte}, {now} FROM n"
        ))
        .await;
    }

    /// Adds so many copies of each pending delivery.
    pub async fn repeat_deliveries(&mut self, times: i64) {
        self.run(&format!(
            "INSERT INTO webhook_deliveries (event_id, webhook_id, state, due_ms, created_ms)
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {times})
            SELECT event_id, webhook_id, state, due_ms, created_ms FROM webhook_deliveries, n
            WHERE state = 'pending'"
        ))
        .await;
    }

    /// Blocks all other writers until [`Intruder::let_write`].
    pub async fn keep_from_writing(&mut self) {
        match self {
            Self::Sqlite(_) => self.run("BEGIN IMMEDIATE").await,
            Self::Postgres(_) => {
                self.run("BEGIN; LOCK TABLE accounts, sessions, ledger_accounts, bandwidth IN EXCLUSIVE MODE")
                    .await
            }
        }
    }

    /// Ends the block of [`Intruder::keep_from_writing`].
    pub async fn let_write(&mut self) {
        self.run("COMMIT").await;
    }

    /// Sets the bytes that viewers of its stream had received when a session began.
    pub async fn bytes_before(&mut self, session: &SessionId) -> u64 {
        let ask = "SELECT bytes_before FROM sessions WHERE id = $1";
        let bytes: i64 = match self {
            Self::Sqlite(connection) => {
                sqlx::query_scalar(ask).bind(session.as_str()).fetch_one(connection).await.unwrap()
            }
            Self::Postgres(connection) => {
                sqlx::query_scalar(ask).bind(session.as_str()).fetch_one(connection).await.unwrap()
            }
        };
        u64::try_from(bytes).unwrap()
    }

    /// Number of stored deliveries of a webhook.
    pub async fn deliveries_of(&mut self, webhook: WebhookId) -> i64 {
        let count = "SELECT COUNT(*) FROM webhook_deliveries WHERE webhook_id = $1";
        match self {
            Self::Sqlite(connection) => {
                sqlx::query_scalar(count).bind(webhook.0).fetch_one(connection).await.unwrap()
            }
            Self::Postgres(connection) => {
                sqlx::query_scalar(count).bind(webhook.0).fetch_one(connection).await.unwrap()
            }
        }
    }

    /// One byte in the syntax of the engine.
    fn byte(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "x'01'",
            Self::Postgres(_) => r"'\x01'",
        }
    }

    async fn run(&mut self, sql: &str) {
        match self {
            Self::Sqlite(connection) => {
                sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await.map(drop).unwrap();
            }
            Self::Postgres(connection) => run(connection, sql).await.unwrap(),
        }
    }
}
