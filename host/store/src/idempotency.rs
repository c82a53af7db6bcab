//! Idempotent requests: a repeat gets the answer of the first one.

use crate::engine::{self, Sql};
use crate::error::{Result, StoreError, db};
use crate::store::{Lock, Store};
use satcast_core::ids::{AccountId, UnixMillis};
use satcast_core::secret::{Redacted, new_uid};

/// A request with an idempotency key.
#[derive(Clone, Copy, Debug)]
pub struct IdempotentRequest {
    /// The account that sends it.
    pub account_id: AccountId,
    /// SHA-256 over method, path and key.
    pub request_hash: [u8; 32],
    /// SHA-256 over key and body.
    pub body_hash: [u8; 32],
    pub now: UnixMillis,
}

/// State of a request with an idempotency key.
#[derive(Debug, PartialEq, Eq)]
pub enum Begun {
    /// It is new: run it, then call [`Store::finish_request`] or [`Store::release_request`] with this name. A repeat of a request
    /// whose process died has the name of the first one.
    New(String),
    /// It was completed with this answer.
    Done { status: u16, answer: Redacted<Vec<u8>> },
    /// It is in progress.
    InProgress,
    /// It was sent before with another body.
    OtherBody,
    /// The account has reached the number of stored requests.
    Full,
}

/// How long an answer is kept.
const KEPT_MS: i64 = 24 * 60 * 60 * 1_000;
/// A request without an answer for this long belonged to a process that died. Longer than any request runs.
const PENDING_MAX_MS: i64 = 60_000;
/// Stored requests of one account.
pub(crate) const ROWS_PER_ACCOUNT_MAX: i64 = 10_000;
/// Old rows deleted with each new request: more than one, so that the table shrinks, and few, so that no request pays
/// for a whole day.
const PRUNED_MAX: i64 = 100;

/// Rows that another request is deleting are skipped.
const PRUNE: Sql = Sql {
    sqlite: "DELETE FROM idempotency WHERE id IN
        (SELECT id FROM idempotency WHERE created_ms <= $1 ORDER BY created_ms LIMIT $2)",
    postgres: "DELETE FROM idempotency WHERE id IN (SELECT id FROM idempotency WHERE created_ms <= $1
        ORDER BY created_ms LIMIT $2 FOR UPDATE SKIP LOCKED)",
};
const FIND: &str = "SELECT uid, body_hash, status, answer_sealed, created_ms FROM idempotency
    WHERE account_id = $1 AND request_hash = $2";
const COUNT: &str = "SELECT COUNT(*) FROM idempotency WHERE account_id = $1 AND created_ms > $2";
/// Replaces a row that is too old to count.
const INSERT: &str =
    "INSERT INTO idempotency (uid, account_id, request_hash, body_hash, created_ms) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (account_id, request_hash) DO UPDATE SET uid = excluded.uid, body_hash = excluded.body_hash,
    status = NULL, answer_sealed = NULL, created_ms = excluded.created_ms";
const AGAIN: &str = "UPDATE idempotency SET created_ms = $2 WHERE uid = $1";
const FINISH: &str =
    "UPDATE idempotency SET status = $2, answer_sealed = $3 WHERE uid = $1 AND status IS NULL";
const SUSPEND: &str = "UPDATE idempotency SET created_ms = created_ms - $2 WHERE uid = $1 AND status IS NULL";
const RELEASE: &str = "DELETE FROM idempotency WHERE uid = $1 AND status IS NULL";

/// Uid, hash of the body, status, sealed answer, time.
type Row = (String, Vec<u8>, Option<i64>, Option<Vec<u8>>, i64);

impl Store {
    /// Looks a request up and, if it is new, records that it is in progress. A request that has been in progress for
    /// too long belonged to a process that died, and counts as new.
    pub async fn begin_request(&self, request: IdempotentRequest) -> Result<Begun> {
        let failed = db("look up the request");
        let IdempotentRequest { account_id, request_hash, body_hash, now } = request;
        let too_old = now.0.saturating_sub(KEPT_MS);
        let mut tx = self.begin_holding(Lock::Account(account_id)).await?;
        let prune = engine::query(PRUNE).bind(too_old).bind(PRUNED_MAX);
        prune.execute(&mut tx).await.map_err(&failed)?;
        let find = engine::query_as::<Row>(FIND).bind(account_id.0).bind(&request_hash[..]);
        let known = find.fetch_optional(&mut tx).await.map_err(&failed)?;
        let known = known.filter(|(.., created_ms)| *created_ms > too_old);
        if let Some(row) = known {
            let uid = row.0.clone();
            if let Some(begun) = self.known_request(row, request)? {
                return Ok(begun);
            }
            let again = engine::query(AGAIN).bind(&uid).bind(now.0);
            again.execute(&mut tx).await.map_err(&failed)?;
            tx.commit().await?;
            return Ok(Begun::New(uid));
        }
        let count = engine::query_scalar(COUNT).bind(account_id.0).bind(too_old);
        let count: i64 = count.fetch_one(&mut tx).await.map_err(&failed)?;
        if count >= ROWS_PER_ACCOUNT_MAX {
            return Ok(Begun::Full);
        }
        let uid = new_uid();
        let insert = engine::query(INSERT).bind(&uid).bind(account_id.0).bind(&request_hash[..]);
        insert.bind(&body_hash[..]).bind(now.0).execute(&mut tx).await.map_err(&failed)?;
        tx.commit().await?;
        Ok(Begun::New(uid))
    }

    /// Stores the encrypted answer of a request.
    pub async fn finish_request(&self, name: &str, status: u16, answer: &[u8]) -> Result<()> {
        let mut tx = self.begin().await?;
        let finish =
            engine::query(FINISH).bind(name).bind(i64::from(status)).bind(self.0.vault.seal(name, answer));
        finish.execute(&mut tx).await.map_err(db("record the answer"))?;
        tx.commit().await
    }

    /// Notes that the outcome of a request is unknown: the next try of it runs at once, under the same name.
    pub async fn suspend_request(&self, name: &str) -> Result<()> {
        let mut tx = self.begin().await?;
        let suspend = engine::query(SUSPEND).bind(name).bind(PENDING_MAX_MS);
        suspend.execute(&mut tx).await.map_err(db("suspend the request"))?;
        tx.commit().await
    }

    /// Removes a request that changed nothing.
    pub async fn release_request(&self, name: &str) -> Result<()> {
        let mut tx = self.begin().await?;
        engine::query(RELEASE).bind(name).execute(&mut tx).await.map_err(db("remove the request"))?;
        tx.commit().await
    }

    /// The state that a row gives for this request; `None` if the process of the first one died.
    fn known_request(&self, row: Row, request: IdempotentRequest) -> Result<Option<Begun>> {
        let (uid, body_hash, status, sealed, created_ms) = row;
        if body_hash != request.body_hash {
            return Ok(Some(Begun::OtherBody));
        }
        let (Some(status), Some(sealed)) = (status, sealed) else {
            let died = created_ms <= request.now.0.saturating_sub(PENDING_MAX_MS);
            return Ok((!died).then_some(Begun::InProgress));
        };
        let status = u16::try_from(status);
        let status = status.map_err(|_| StoreError::Unreadable { what: "idempotency.status" })?;
        Ok(Some(Begun::Done { status, answer: self.0.vault.open(&uid, &sealed)? }))
    }
}
