//! Code for PostgreSQL: connections to a server, with time-outs for everything that waits for it.

use std::time::Duration;

use sqlx::postgres::{PgConnection, PgListener, PgPool, PgPoolOptions, Postgres};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, Transaction};
use tokio::sync::Notify;

use super::migrations::{self, migrator};
use super::{ACQUIRE_TIMEOUT, Pool};
use crate::address::Server;
use crate::error::{Result, StoreError, db};
use satcast_core::config::Durability;

/// Connections for writes, and as many for reads: a writer that reads must not wait for other writers.
const CONNECTIONS_MAX: u32 = 8;
/// Longest time to open a connection, TLS and login included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection that was idle for longer is tested before it is used.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

/// Wait before a lost connection that listens is replaced. Nothing depends on notifications.
const LISTEN_PAUSE: Duration = Duration::from_secs(5);

/// Nobody else sees a transaction's changes before its end, and each statement sees earlier commits of others.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
/// Limits for statements, lock waits, and transactions of a process that stops or is cut off inside them. The server ends
/// such a transaction while others still wait for its lock, and before the shortest lease is over: otherwise a paused
/// node would have other nodes fail at its accounts. No transaction of the service waits for anything but the database.
const LIMITS: &str = "SET statement_timeout = '30s'; SET lock_timeout = '10s';
    SET idle_in_transaction_session_timeout = '5s'";
/// Commit durability on the server. A server that waits for its replicas keeps its setting.
const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', FALSE)
    WHERE current_setting('synchronous_commit') = 'off'";
const NOT_DURABLE: &str = "SET synchronous_commit = off";
const READ_ONLY: &str = "SET default_transaction_read_only = on";
const ENCODING: &str = "SELECT current_setting('server_encoding')";

/// Migrates the schema and opens the connections: those for writes, those for reads.
pub(crate) async fn open(server: &Server, durability: Durability) -> Result<(Pool, Pool)> {
    migrate(server).await?;
    let commits = match durability {
        Durability::Full => DURABLE,
        Durability::Normal => NOT_DURABLE,
    };
    let pool = |setting| Pool::Postgres(pool(server, CONNECTIONS_MAX, setting));
    Ok((pool(commits), pool(READ_ONLY)))
}

/// One connection for writes, to a database whose schema is migrated.
pub(crate) fn single(server: &Server) -> PgPool {
    pool(server, 1, DURABLE)
}

/// Migrates the schema.
pub(crate) async fn migrate(server: &Server) -> Result<()> {
    let mut connection = connect(server).await?;
    let encoding: String =
        sqlx::query_scalar(ENCODING).fetch_one(&mut connection).await.map_err(db("read the encoding"))?;
    if encoding != "UTF8" {
        return Err(StoreError::Encoding { server: server.to_string(), encoding });
    }
    // Other processes wait here until the schema is complete.
    migrator(|step| step.postgres).run(&mut connection).await?;
    let applied: i64 = sqlx::query_scalar(migrations::APPLIED)
        .fetch_one(&mut connection)
        .await
        .map_err(db("read the schema"))?;
    migrations::check(applied)?;
    // The connection has done its work; errors of its close do not matter.
    let _ = connection.close().await;
    Ok(())
}

/// Opens one connection to inspect an existing database.
pub(crate) async fn open_to_look(server: &Server) -> Result<Pool> {
    // The error of the first connection is clearer than that of a pool.
    let _ = connect(server).await?.close().await;
    Ok(Pool::Postgres(pool(server, 1, READ_ONLY)))
}

/// Opens a connection outside of any pool.
pub(crate) async fn connect(server: &Server) -> Result<PgConnection> {
    let failed = |source| StoreError::Unreachable { server: server.to_string(), source };
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, server.options().connect());
    let too_long = |_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
    connecting.await.map_err(too_long).and_then(|connected| connected).map_err(failed)
}

fn pool(server: &Server, connections: u32, setting: &'static str) -> PgPool {
    let options = PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .before_acquire(|connection, meta| {
            Box::pin(async move {
                // A restarted server leaves dead connections in the pool: the next one is tried instead.
                Ok(meta.idle_for < TRUSTED_IDLE || connection.ping().await.is_ok())
            })
        })
        .after_connect(move |connection, _| {
            Box::pin(async move {
                connection.execute(LIMITS).await?;
                connection.execute(setting).await.map(drop)
            })
        });
    options.connect_lazy_with(server.options().clone())
}

/// Begins a writing transaction.
///
/// A connection whose server went away within [`TRUSTED_IDLE`] is noticed here, before any write: another one replaces
/// it.
pub(crate) async fn begin(writer: &PgPool) -> Result<Transaction<'static, Postgres>> {
    let mut tries = CONNECTIONS_MAX;
    loop {
        match writer.begin_with(BEGIN).await {
            Err(error @ (sqlx::Error::Io(_) | sqlx::Error::Protocol(_))) if tries > 0 => {
                tracing::debug!(%error, "a connection to the database is given up");
                tries -= 1;
            }
            begun => return begun.map_err(db("begin a transaction")),
        }
    }
}

/// Notifies `heard` of each notification of the channel, with one connection of the pool. Never returns.
pub(crate) async fn listen(pool: &PgPool, channel: &str, heard: &Notify) {
    loop {
        let listening = async {
            let mut listener = PgListener::connect_with(pool).await?;
            listener.listen(channel).await?;
            loop {
                listener.recv().await?;
                heard.notify_one();
            }
        };
        let ended: sqlx::Result<()> = listening.await;
        tracing::debug!(error = ?ended.err(), "notifications of the database are lost for a moment");
        tokio::time::sleep(LISTEN_PAUSE).await;
    }
}
