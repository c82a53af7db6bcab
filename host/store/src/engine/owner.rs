//! Who owns a database on a server: one running service, as long as it lives.
//!
//! The proof is a lock of the server on a connection that does nothing else. The server lets go of it when that connection
//! ends, however it ends. So the connection is looked at all the time; when it was lost it is made and the lock taken
//! again, and if somebody else has it by then, this service is over: what it still charges is refused, since the sessions were
//! ended as interrupted, and it shuts down in order.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Executor as _};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::postgres;
use crate::address::Server;
use crate::error::{Result, StoreError, db};

/// The name of the lock: "satc", "ast." in ASCII. It has a space of its own beside the locks of accounts, which have one number.
const NAME: (i32, i32) = (0x7361_7463, 0x6173_742e);
/// How often the connection is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long the server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a start waits for the lock: the server needs a moment to see that a killed process is gone.
const START_WAIT: Duration = Duration::from_secs(3);
/// Wait between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// The server is to notice within half a minute when our machine is gone.
const KEEPALIVES: &str =
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 4";
const TAKE: &str = "SELECT pg_try_advisory_lock($1, $2)";
const BACKEND: &str = "SELECT CAST(pg_backend_pid() AS BIGINT)";
/// The server's process that has the lock.
const HOLDER: &str = "SELECT CAST(pid AS BIGINT) FROM pg_locks WHERE locktype = 'advisory' AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND CAST(CAST(classid AS BIGINT) AS INTEGER) = $1 AND CAST(CAST(objid AS BIGINT) AS INTEGER) = $2 AND objsubid = 2";
const END: &str = "SELECT pg_terminate_backend(CAST($1 AS INTEGER))";

/// The right to run on a database; given back when dropped.
#[derive(Debug)]
pub struct Owner {
    lost: CancellationToken,
    task: JoinHandle<()>,
}

/// The lock and the connection it lives on.
struct Held {
    connection: PgConnection,
    /// Its process on the server.
    backend: i64,
}

impl Owner {
    /// Takes the database of a server.
    ///
    /// # Errors
    /// [`StoreError::Owned`] when another service runs on it, [`StoreError::Unreachable`].
    pub async fn take(server: &Server) -> Result<Self> {
        let deadline = Instant::now() + START_WAIT;
        let held = loop {
            match take(server).await? {
                Ok(held) => break held,
                Err(_) if Instant::now() < deadline => sleep(PAUSE).await,
                Err(_) => return Err(StoreError::Owned(server.to_string())),
            }
        };
        let lost = CancellationToken::new();
        let task = tokio::spawn(keep(server.clone(), held, lost.clone()));
        Ok(Self { lost, task })
    }

    /// Resolves when another service has the database.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        self.lost.clone().cancelled_owned()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The lock, or the process on the server that has it, if it can be seen.
async fn take(server: &Server) -> Result<std::result::Result<Held, Option<i64>>> {
    let failed = db("take the database");
    let mut connection = postgres::connect(server).await?;
    let taking = async {
        connection.execute(KEEPALIVES).await?;
        let take = sqlx::query_scalar(TAKE).bind(NAME.0).bind(NAME.1);
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

/// Looks after the lock until somebody else has it.
async fn keep(server: Server, mut held: Held, lost: CancellationToken) {
    loop {
        sleep(LOOK_EVERY).await;
        if let Ok(Ok(())) = timeout(ANSWER_TIMEOUT, held.connection.ping()).await {
            continue;
        }
        tracing::warn!(%server, "the connection that holds the database is lost; the database is taken again");
        match take_again(&server, held.backend).await {
            Some(again) => held = again,
            None => {
                lost.cancel();
                return;
            }
        }
    }
}

/// The lock on a new connection; `None` when another service has it. While the server is away there is nothing to lose.
async fn take_again(server: &Server, backend: i64) -> Option<Held> {
    loop {
        match take(server).await {
            Ok(Ok(held)) => {
                tracing::info!(%server, "the database is held again");
                return Some(held);
            }
            // Our own old connection, which the server does not know to be gone.
            Ok(Err(Some(holder))) if holder == backend => end(server, backend).await,
            // It was let go in between.
            Ok(Err(None)) => {}
            Ok(Err(Some(_))) => return None,
            Err(error) => tracing::debug!(%error, "the database cannot be taken yet"),
        }
        sleep(PAUSE).await;
    }
}

async fn end(server: &Server, backend: i64) {
    let Ok(mut connection) = postgres::connect(server).await else { return };
    let ended = sqlx::query(END).bind(backend).execute(&mut connection);
    if let Ok(Err(error)) = timeout(ANSWER_TIMEOUT, ended).await {
        tracing::warn!(%error, "our own lost connection cannot be ended");
    }
}
