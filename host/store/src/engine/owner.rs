//! Ownership of a database on a server: one running service that is alone, or any number of nodes, as long as they live.
//!
//! The proof is a server lock on a connection that does nothing else. The server releases the lock when the connection
//! ends for any reason. So the connection is checked all the time; if it is lost, it is opened and the lock is taken
//! again. If another service has the lock by then, this service must stop: its charges are refused, because its
//! sessions were ended as interrupted, and it shuts down in order.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Executor as _};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::postgres;
use crate::address::Server;
use crate::error::{Result, StoreError, db};

/// The name of the lock: "satc", "ast." in ASCII. It has two numbers, so it cannot collide with the locks of accounts,
/// which have one.
const NAME: (i32, i32) = (0x7361_7463, 0x6173_742e);
/// How often the connection is checked.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Longest wait for an answer of the server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a start waits for the lock: the server needs a moment to notice that a killed process is gone.
const START_WAIT: Duration = Duration::from_secs(3);
/// Wait between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// The server should notice within half a minute that this machine is gone.
const KEEPALIVES: &str =
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 4";
const TAKE: &str = "SELECT pg_try_advisory_lock($1, $2)";
const TAKE_SHARED: &str = "SELECT pg_try_advisory_lock_shared($1, $2)";
const BACKEND: &str = "SELECT CAST(pg_backend_pid() AS BIGINT)";
/// The server process that holds the lock.
const HOLDER: &str = "SELECT CAST(pid AS BIGINT) FROM pg_locks WHERE locktype = 'advisory' AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND CAST(CAST(classid AS BIGINT) AS INTEGER) = $1 AND CAST(CAST(objid AS BIGINT) AS INTEGER) = $2 AND objsubid = 2";
const END: &str = "SELECT pg_terminate_backend(CAST($1 AS INTEGER))";

/// The right to run on a database; released when dropped.
#[derive(Debug)]
pub struct Owner {
    lost: CancellationToken,
    task: JoinHandle<()>,
}

/// Who else may have the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody.
    Alone,
    /// Other nodes.
    Nodes,
}

/// The lock and its connection.
struct Held {
    connection: PgConnection,
    /// Its process id on the server.
    backend: i64,
}

impl Owner {
    /// Takes ownership of a server's database, for this service alone or beside other nodes.
    ///
    /// # Errors
    /// [`StoreError::Owned`] if another service runs on it, [`StoreError::Unreachable`].
    pub async fn take(server: &Server, sharing: Sharing) -> Result<Self> {
        let deadline = Instant::now() + START_WAIT;
        let held = loop {
            match take(server, sharing).await? {
                Ok(held) => break held,
                Err(_) if Instant::now() < deadline => sleep(PAUSE).await,
                Err(_) => return Err(StoreError::Owned(server.to_string())),
            }
        };
        let lost = CancellationToken::new();
        let task = tokio::spawn(keep(server.clone(), sharing, held, lost.clone()));
        Ok(Self { lost, task })
    }

    /// Resolves when another service owns the database.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        self.lost.clone().cancelled_owned()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The lock, or the process on the server that holds it, if that is visible.
async fn take(server: &Server, sharing: Sharing) -> Result<std::result::Result<Held, Option<i64>>> {
    let failed = db("take the database");
    let mut connection = postgres::connect(server).await?;
    let taking = async {
        connection.execute(KEEPALIVES).await?;
        let take = match sharing {
            Sharing::Alone => TAKE,
            Sharing::Nodes => TAKE_SHARED,
        };
        let take = sqlx::query_scalar(take).bind(NAME.0).bind(NAME.1);
        if take.fetch_one(&mut connection).await? {
            return sqlx::query_scalar(BACKEND).fetch_one(&mut connection).await.map(Ok);
        }
        let holder = sqlx::query_scalar(HOLDER).bind(NAME.0).bind(NAME.1);
        holder.fetch_optional(&mut connection).await.map(Err)
    };
    let taken: std::result::Result<i64, Option<i64>> = match timeout(ANSWER_TIMEOUT, taking).await {
        Ok(taken) => taken.map_err(failed)?,
        Err(_) => return Err(failed(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))),
    };
    Ok(taken.map(|backend| Held { connection, backend }))
}

/// Keeps the lock until another service has it.
async fn keep(server: Server, sharing: Sharing, mut held: Held, lost: CancellationToken) {
    loop {
        sleep(LOOK_EVERY).await;
        if let Ok(Ok(())) = timeout(ANSWER_TIMEOUT, held.connection.ping()).await {
            continue;
        }
        tracing::warn!(%server, "the connection that holds the database lock is lost; taking the lock again");
        match take_again(&server, sharing, held.backend).await {
            Some(again) => held = again,
            None => {
                lost.cancel();
                return;
            }
        }
    }
}

/// The lock on a new connection; `None` if another service has it. While the server is away, no other service can take
/// it.
async fn take_again(server: &Server, sharing: Sharing, backend: i64) -> Option<Held> {
    loop {
        match take(server, sharing).await {
            Ok(Ok(held)) => {
                tracing::info!(%server, "the database lock is held again");
                return Some(held);
            }
            // Our old connection: the server has not noticed that it is gone.
            Ok(Err(Some(holder))) if holder == backend => end(server, backend).await,
            // The lock was released in between.
            Ok(Err(None)) => {}
            Ok(Err(Some(_))) => return None,
            Err(error) => tracing::debug!(%error, "the database lock cannot be taken yet"),
        }
        sleep(PAUSE).await;
    }
}

async fn end(server: &Server, backend: i64) {
    let Ok(mut connection) = postgres::connect(server).await else { return };
    let ended = sqlx::query(END).bind(backend).execute(&mut connection);
    if let Ok(Err(error)) = timeout(ANSWER_TIMEOUT, ended).await {
        tracing::warn!(%error, "the service's own lost connection cannot be ended");
    }
}
