//! The outbox: pending deliveries, their claims, and their results.
//!
//! A claim is a lease: its holder alone sends the delivery until the lease ends. If the process dies, the lease runs
//! out and another process sends the delivery. So each delivery is sent at least once, usually exactly once.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::Notify;

use crate::audit::{Actor, Change, record};
use crate::engine::{self, Row, Tx};
use crate::error::{Result, StoreError, db};
use crate::store::{Lock, Store, again};
use crate::webhooks::events::{NewEvent, insert_event};
use crate::webhooks::{CANCEL, DeliveryState, EventType, secret_binding, url_binding};
use satcast_core::ids::{AccountId, DeliveryId, UnixMillis, WebhookId};
use satcast_core::secret::{Redacted, new_uid};

/// Automatic attempts of one delivery.
pub const DELIVERY_TRIES_MAX: i64 = 10;
/// Attempts of one delivery that are kept in the log.
pub const ATTEMPTS_KEPT_MAX: i64 = 20;

/// Most deliveries that may be in flight at the same time, so that a slow receiver does not delay others. This is not a
/// `Quota`: the query that claims deliveries decides, because the deliveries in flight are leases in the database,
/// those of dead processes included.
#[derive(Clone, Copy, Debug)]
pub struct SendingCaps {
    pub per_webhook: usize,
    pub per_host: usize,
    pub per_account: usize,
}

/// A delivery to be sent now.
#[derive(Clone, Debug)]
pub struct DeliveryJob {
    pub delivery: DeliveryId,
    pub webhook: WebhookId,
    /// The owner of the webhook.
    pub account: AccountId,
    /// Proof of the claim: only its holder may record the result.
    pub claim: String,
    /// The event's id, the same in every attempt.
    pub event_id: String,
    /// The exact body to send.
    pub body: Vec<u8>,
    pub url: Redacted<String>,
    /// Signing secrets: the newest first, then one that was replaced recently.
    pub secrets: Vec<Redacted<String>>,
    /// Scheduled attempts before this one.
    pub tries: u32,
    /// Whether this is the owner's test; a test does not count as a failure of the webhook.
    pub is_test: bool,
}

/// The effect of an attempt on the health of its webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// No effect.
    Unknown,
    /// The webhook works.
    Good,
    /// The webhook failed. It is disabled if it had at least `failures` failures since its last success, and the first
    /// of them was at or before `since`.
    Bad {
        /// The latest time of the first failure.
        since: UnixMillis,
        failures: i64,
        /// Shown to the owner.
        reason: String,
    },
    /// The receiver wants no more events: the webhook is disabled.
    Gone {
        /// Shown to the owner.
        reason: String,
    },
}

/// Result of an attempt.
#[derive(Clone, Debug)]
pub struct Settled {
    pub at: UnixMillis,
    /// Duration in milliseconds.
    pub duration_ms: i64,
    /// HTTP status; `None` without an answer.
    pub status: Option<u16>,
    /// The beginning of the answer's body.
    pub answer: String,
    /// What failed, as a text for the owner; `None` if the receiver accepted the delivery.
    pub error: Option<String>,
    /// Time of the next attempt; `None` if there is none.
    pub retry_at: Option<UnixMillis>,
    /// The effect on the health of the webhook.
    pub health: Health,
}

impl Settled {
    /// The new state of the delivery.
    pub fn state(&self) -> DeliveryState {
        match (&self.error, self.retry_at) {
            (None, _) => DeliveryState::Delivered,
            (Some(_), Some(_)) => DeliveryState::Pending,
            (Some(_), None) => DeliveryState::Failed,
        }
    }
}

/// The target of a delivery, for the caps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) webhook: i64,
    pub(crate) account: i64,
    pub(crate) host: String,
    /// Its last attempt failed.
    pub(crate) is_failing: bool,
}

/// Most deliveries in flight to webhooks whose last attempt failed: half of what one process sends. The other slots are
/// for webhooks that work.
pub(crate) const FAILING_MAX: usize = 32;

/// Chooses deliveries of `waiting` (the longest due first) that may be sent beside those in flight.
pub(crate) fn choose(
    waiting: Vec<(i64, Lane)>,
    sending: &[Lane],
    capacity: usize,
    caps: SendingCaps,
) -> Vec<i64> {
    let (mut webhooks, mut hosts, mut accounts) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut failing = sending.iter().filter(|lane| lane.is_failing).count();
    for lane in sending {
        *webhooks.entry(lane.webhook).or_insert(0_usize) += 1;
        *hosts.entry(lane.host.clone()).or_insert(0_usize) += 1;
        *accounts.entry(lane.account).or_insert(0_usize) += 1;
    }
    let mut chosen = Vec::new();
    for (id, lane) in waiting {
        let webhook = webhooks.entry(lane.webhook).or_insert(0);
        let host = hosts.entry(lane.host).or_insert(0);
        let account = accounts.entry(lane.account).or_insert(0);
        let fits = *webhook < caps.per_webhook && *host < caps.per_host && *account < caps.per_account;
        if fits && chosen.len() < capacity && (!lane.is_failing || failing < FAILING_MAX) {
            failing += usize::from(lane.is_failing);
            *webhook += 1;
            *host += 1;
            *account += 1;
            chosen.push(id);
        }
    }
    chosen
}

/// Deliveries considered for one claim.
const LOOKED_AT_MAX: i64 = 1_024;

/// Account and host for the caps. Webhooks whose last attempt failed are counted apart from those that work, so that
/// receivers that hang delay only each other.
macro_rules! lanes {
    () => {
        "CASE WHEN w.failures > 0 THEN -w.account_id ELSE w.account_id END AS account_id, \
         CASE WHEN w.failures > 0 THEN '!' || w.host ELSE w.host END AS host"
    };
}

const HAS_DUE: &str = "SELECT id FROM webhook_deliveries WHERE state = 'pending' AND due_ms <= $1
    AND (claim IS NULL OR claimed_until_ms <= $1) LIMIT 1";
/// Deliveries that may be sent beside those in flight: the longest due of each webhook, then of each host, then of each
/// account, up to the free capacity. So a single receiver or owner cannot fill the result with deliveries that may not
/// be sent.
///
/// `lanes` moves along the index from one webhook with pending deliveries to the next, `picked` from one delivery of a
/// webhook to the next. The cost depends on the number of webhooks with pending deliveries, not on the number of
/// deliveries. Each step is a subquery that finds one row, because both engines look that up in the index.
const WAITING: &str = concat!("WITH RECURSIVE sending AS (SELECT d.webhook_id, ", lanes!(), " FROM webhook_deliveries d
    JOIN webhooks w ON w.id = d.webhook_id WHERE d.claim IS NOT NULL AND d.claimed_until_ms > $1),
    lanes (webhook_id) AS (SELECT MIN(webhook_id) FROM webhook_deliveries WHERE state = 'pending'
        UNION ALL SELECT (SELECT MIN(n.webhook_id) FROM webhook_deliveries n
        WHERE n.state = 'pending' AND n.webhook_id > l.webhook_id) FROM lanes l WHERE l.webhook_id IS NOT NULL),
    picked (webhook_id, id, place) AS (SELECT l.webhook_id,
            (SELECT x.id FROM webhook_deliveries x WHERE x.webhook_id = l.webhook_id AND x.state = 'pending'
            AND x.due_ms <= $1 AND (x.claim IS NULL OR x.claimed_until_ms <= $1) ORDER BY x.due_ms, x.id LIMIT 1), 1
        FROM lanes l WHERE l.webhook_id IS NOT NULL
        UNION ALL SELECT p.webhook_id,
            (SELECT x.id FROM webhook_deliveries x WHERE x.webhook_id = p.webhook_id AND x.state = 'pending'
            AND (x.due_ms, x.id) > (c.due_ms, c.id) AND x.due_ms <= $1
            AND (x.claim IS NULL OR x.claimed_until_ms <= $1) ORDER BY x.due_ms, x.id LIMIT 1), p.place + 1
        FROM picked p JOIN webhook_deliveries c ON c.id = p.id WHERE p.place < $2),
    due AS (SELECT p.id, (SELECT d.due_ms FROM webhook_deliveries d WHERE d.id = p.id) AS due_ms, p.webhook_id,
        ", lanes!(), ", p.place FROM picked p JOIN webhooks w ON w.id = p.webhook_id WHERE p.id IS NOT NULL),
    of_webhook AS (SELECT o.id, o.due_ms, o.webhook_id, o.account_id, o.host,
        ROW_NUMBER() OVER (PARTITION BY o.host ORDER BY o.due_ms, o.id) AS place
        FROM due o LEFT JOIN (SELECT webhook_id, COUNT(*) AS n FROM sending GROUP BY webhook_id) s
        ON s.webhook_id = o.webhook_id WHERE o.place <= $2 - COALESCE(s.n, 0)),
    of_host AS (SELECT o.id, o.due_ms, o.webhook_id, o.account_id, o.host,
        ROW_NUMBER() OVER (PARTITION BY o.account_id ORDER BY o.due_ms, o.id) AS place
        FROM of_webhook o LEFT JOIN (SELECT host, COUNT(*) AS n FROM sending GROUP BY host) s
        ON s.host = o.host WHERE o.place <= $3 - COALESCE(s.n, 0))
    SELECT o.id, o.webhook_id, o.account_id, o.host FROM of_host o
        LEFT JOIN (SELECT account_id, COUNT(*) AS n FROM sending GROUP BY account_id) s
        ON s.account_id = o.account_id WHERE o.place <= $4 - COALESCE(s.n, 0)
        ORDER BY o.account_id < 0, o.due_ms, o.id LIMIT $5");
const SENDING: &str = concat!(
    "SELECT d.id, d.webhook_id, ",
    lanes!(),
    " FROM webhook_deliveries d
    JOIN webhooks w ON w.id = d.webhook_id WHERE d.claim IS NOT NULL AND d.claimed_until_ms > $1"
);
const CLAIM: &str = "UPDATE webhook_deliveries SET claim = $2, claimed_until_ms = $3 WHERE id = $1
    AND state = 'pending' AND due_ms <= $4 AND (claim IS NULL OR claimed_until_ms <= $4) RETURNING id";
const RELEASE: &str =
    "UPDATE webhook_deliveries SET claim = NULL, claimed_until_ms = NULL WHERE claim IS NOT NULL";
const JOB: &str = "SELECT d.webhook_id, w.account_id, d.tries, e.uid AS event_id, e.type, e.body, w.uid, w.url_sealed,
    w.secret_sealed, CASE WHEN w.old_secret_until_ms > $2 THEN w.old_secret_sealed END AS old_secret_sealed
    FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id JOIN webhooks w ON w.id = d.webhook_id
    WHERE d.id = $1";
const GIVE_UP: &str = "UPDATE webhook_deliveries SET state = 'failed', claim = NULL, claimed_until_ms = NULL
    WHERE id = $1";
const FINISH: &str = "UPDATE webhook_deliveries SET state = $3, tries = tries + 1, due_ms = $4, claim = NULL,
    claimed_until_ms = NULL WHERE id = $1 AND claim = $2 RETURNING webhook_id";
const INSERT_ATTEMPT: &str =
    "INSERT INTO webhook_attempts (delivery_id, at_ms, duration_ms, status, ok, answer, error)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";
const FORGET_ATTEMPTS: &str = "DELETE FROM webhook_attempts WHERE delivery_id = $1 AND id <=
    (SELECT a.id FROM webhook_attempts a WHERE a.delivery_id = $1 ORDER BY a.id DESC LIMIT 1 OFFSET $2)";
const NOTE: &str = "UPDATE webhooks SET last_ms = $2, last_status = $3, last_ok = $4 WHERE id = $1";
const GOOD: &str = "UPDATE webhooks SET failing_since_ms = NULL, failures = 0 WHERE id = $1 AND failures > 0";
const BAD: &str =
    "UPDATE webhooks SET failing_since_ms = COALESCE(failing_since_ms, $2), failures = failures + 1
    WHERE id = $1 RETURNING failing_since_ms, failures";
const DISABLE: &str = "UPDATE webhooks SET enabled = 0, disabled_reason = $2 WHERE id = $1 AND enabled = 1";
const OWNED: &str = "SELECT enabled FROM webhooks WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL";
/// The last attempt of the schedule, claimed already.
const INSERT_TEST: &str =
    "INSERT INTO webhook_deliveries (event_id, webhook_id, state, tries, due_ms, claim, claimed_until_ms, created_ms)
    VALUES ($1, $2, 'pending', $3, $4, $5, $6, $4) RETURNING id";
const REDELIVER: &str = "UPDATE webhook_deliveries SET due_ms = $3,
    tries = CASE WHEN state = 'pending' THEN tries ELSE $4 END, state = 'pending'
    WHERE id = $1 AND webhook_id = $2 RETURNING id";
/// Number of attempts after which only one is left.
const TRIES_BUT_ONE: i64 = DELIVERY_TRIES_MAX - 1;

impl Store {
    /// Notified when there may be new deliveries. Events of other processes do not notify it, so callers must also
    /// poll.
    pub fn outbox_changed(&self) -> Arc<Notify> {
        Arc::clone(&self.0.outbox)
    }

    /// Whether a delivery is due that nobody has claimed.
    pub async fn has_due_delivery(&self, now: UnixMillis) -> Result<bool> {
        let due = engine::query(HAS_DUE).bind(now.0).fetch_optional(&self.0.readers).await;
        Ok(due.map_err(db("read the due deliveries"))?.is_some())
    }

    /// Claims due deliveries, at most `capacity`, until `until`. An unreadable delivery is logged and given up.
    pub async fn claim_deliveries(
        &self,
        now: UnixMillis,
        until: UnixMillis,
        capacity: usize,
        caps: SendingCaps,
    ) -> Result<Vec<DeliveryJob>> {
        let waiting = self.waiting(now, caps).await?;
        // If nothing is due, this check needs no writer.
        if capacity == 0 || waiting.is_empty() {
            return Ok(Vec::new());
        }
        again(|| self.try_claim(waiting.clone(), now, until, capacity, caps)).await
    }

    /// Releases the claims of an earlier process and returns their number. Called once at start, by a service that uses
    /// the database alone; claims of a node end with their time.
    pub async fn release_deliveries(&self) -> Result<u64> {
        let mut tx = self.begin().await?;
        let released = engine::query(RELEASE).execute(&mut tx).await.map_err(db("release the deliveries"))?;
        tx.commit().await?;
        Ok(released)
    }

    /// Records results of attempts, all or nothing. Returns `false` for a job that the caller no longer holds; nothing
    /// changes for it.
    pub async fn finish_deliveries(&self, done: &[(DeliveryJob, Settled)]) -> Result<Vec<bool>> {
        again(|| self.try_finish(done)).await
    }

    /// Creates a `test.ping` for a webhook of the account, claimed by the caller until `until`. It has one attempt.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn begin_test(
        &self,
        account: AccountId,
        webhook: WebhookId,
        now: UnixMillis,
        until: UnixMillis,
    ) -> Result<DeliveryJob> {
        let mut tx = self.begin_holding(Lock::Account(account)).await?;
        let failed = db("create the test delivery");
        owned(&mut tx, account, webhook).await?;
        let (event, data) = (EventType::TestPing, json!({"webhookId": webhook.0}));
        let event = NewEvent { account, stream: None, event, data, at: now, now };
        let (event, ..) = insert_event(&mut tx, &event).await?;
        let claim = new_uid();
        let id: i64 = engine::query_scalar(INSERT_TEST)
            .bind(event)
            .bind(webhook.0)
            .bind(TRIES_BUT_ONE)
            .bind(now.0)
            .bind(&claim)
            .bind(until.0)
            .fetch_one(&mut tx)
            .await
            .map_err(&failed)?;
        let row = engine::query(JOB).bind(id).bind(now.0).fetch_one(&mut tx).await.map_err(&failed)?;
        let job = self.job(&row, DeliveryId(id), &claim)?;
        tx.commit().await?;
        Ok(job)
    }

    /// Makes a delivery due now: a pending one is tried earlier, any other once more.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::WebhookDisabled`].
    pub async fn redeliver(&self, actor: &Actor, webhook: WebhookId, delivery: DeliveryId) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let enabled = owned(&mut tx, actor.account, webhook).await?;
        let again =
            engine::query(REDELIVER).bind(delivery.0).bind(webhook.0).bind(actor.now.0).bind(TRIES_BUT_ONE);
        let again = again.fetch_optional(&mut tx).await.map_err(db("repeat the delivery"))?;
        again.ok_or(StoreError::NotFound("delivery"))?;
        if !enabled {
            return Err(StoreError::WebhookDisabled);
        }
        let detail = json!({"deliveryId": delivery.0});
        let noted =
            record(&mut tx, actor, Change::new("webhook.redelivered", "webhook", webhook.0, detail)).await?;
        self.commit_noted(tx, noted).await?;
        self.wake_outbox();
        Ok(())
    }
}

/// Records one attempt; `false` if the caller no longer holds the job.
async fn finish(tx: &mut Tx, job: &DeliveryJob, settled: &Settled) -> Result<bool> {
    let failed = db("record the delivery");
    let finish = engine::query_scalar(FINISH)
        .bind(job.delivery.0)
        .bind(&job.claim)
        .bind(settled.state().as_str())
        .bind(settled.retry_at.unwrap_or(settled.at).0);
    let webhook: Option<i64> = finish.fetch_optional(&mut *tx).await.map_err(&failed)?;
    let Some(webhook) = webhook else { return Ok(false) };
    let (status, ok) = (settled.status.map(i64::from), i64::from(settled.error.is_none()));
    let attempt = engine::query(INSERT_ATTEMPT)
        .bind(job.delivery.0)
        .bind(settled.at.0)
        .bind(settled.duration_ms)
        .bind(status)
        .bind(ok)
        .bind(&settled.answer)
        .bind(settled.error.as_deref());
    attempt.execute(&mut *tx).await.map_err(&failed)?;
    let forget = engine::query(FORGET_ATTEMPTS).bind(job.delivery.0).bind(ATTEMPTS_KEPT_MAX);
    forget.execute(&mut *tx).await.map_err(&failed)?;
    let note = engine::query(NOTE).bind(webhook).bind(settled.at.0).bind(status).bind(ok);
    note.execute(&mut *tx).await.map_err(&failed)?;
    if let Some(reason) = judge(tx, webhook, settled).await? {
        let disable = engine::query(DISABLE).bind(webhook).bind(reason);
        disable.execute(&mut *tx).await.map_err(&failed)?;
        engine::query(CANCEL).bind(webhook).execute(&mut *tx).await.map_err(&failed)?;
    }
    Ok(true)
}

async fn owned(tx: &mut Tx, account: AccountId, webhook: WebhookId) -> Result<bool> {
    let failed = db("read the webhook");
    let row = engine::query(OWNED).bind(webhook.0).bind(account.0);
    let row = row.fetch_optional(&mut *tx).await.map_err(&failed)?.ok_or(StoreError::NotFound("webhook"))?;
    Ok(row.try_get::<i64>("enabled").map_err(&failed)? != 0)
}

/// Records the effect of an attempt on its webhook; returns the reason if the webhook is now disabled.
async fn judge(tx: &mut Tx, webhook: i64, settled: &Settled) -> Result<Option<String>> {
    let failed = db("store the webhook's health");
    match &settled.health {
        Health::Unknown => Ok(None),
        Health::Good => {
            engine::query(GOOD).bind(webhook).execute(&mut *tx).await.map_err(&failed)?;
            Ok(None)
        }
        Health::Bad { since, failures, reason } => {
            let bad = engine::query_as::<(i64, i64)>(BAD).bind(webhook).bind(settled.at.0);
            let (failing_since, count) = bad.fetch_one(&mut *tx).await.map_err(&failed)?;
            Ok((failing_since <= since.0 && count >= *failures).then(|| reason.clone()))
        }
        Health::Gone { reason } => Ok(Some(reason.clone())),
    }
}

/// A delivery and its target.
fn lane((id, webhook, account, host): (i64, i64, i64, String)) -> (i64, Lane) {
    (id, Lane { webhook, account, host, is_failing: account < 0 })
}

impl Store {
    async fn try_finish(&self, done: &[(DeliveryJob, Settled)]) -> Result<Vec<bool>> {
        let mut tx = self.begin_holding(Lock::Outbox).await?;
        let mut ours = Vec::with_capacity(done.len());
        for (job, settled) in done {
            ours.push(finish(&mut tx, job, settled).await?);
        }
        tx.commit().await?;
        Ok(ours)
    }

    /// Claims those of `waiting` that nobody else has claimed.
    async fn try_claim(
        &self,
        waiting: Vec<(i64, Lane)>,
        now: UnixMillis,
        until: UnixMillis,
        capacity: usize,
        caps: SendingCaps,
    ) -> Result<Vec<DeliveryJob>> {
        let mut tx = self.begin_holding(Lock::Outbox).await?;
        let failed = db("claim deliveries");
        // Other processes may have claimed some since: the caps include theirs.
        let sending = engine::query_as::<(i64, i64, i64, String)>(SENDING).bind(now.0);
        let sending = sending.fetch_all(&mut tx).await.map_err(&failed)?;
        let sending: HashMap<i64, Lane> = sending.into_iter().map(lane).collect();
        let waiting = waiting.into_iter().filter(|(id, _)| !sending.contains_key(id)).collect();
        let sending: Vec<Lane> = sending.into_values().collect();
        let claim = new_uid();
        let mut jobs = Vec::new();
        for id in choose(waiting, &sending, capacity, caps) {
            let taken = engine::query(CLAIM).bind(id).bind(&claim).bind(until.0).bind(now.0);
            if taken.fetch_optional(&mut tx).await.map_err(&failed)?.is_none() {
                continue;
            }
            let row = engine::query(JOB).bind(id).bind(now.0).fetch_one(&mut tx).await.map_err(&failed)?;
            match self.job(&row, DeliveryId(id), &claim) {
                Ok(job) => jobs.push(job),
                Err(error) => {
                    tracing::error!(%error, delivery_id = id, "a delivery cannot be read and is given up");
                    engine::query(GIVE_UP).bind(id).execute(&mut tx).await.map_err(&failed)?;
                }
            }
        }
        tx.commit().await?;
        Ok(jobs)
    }

    /// Deliveries that may be sent now, the longest due first.
    async fn waiting(&self, now: UnixMillis, caps: SendingCaps) -> Result<Vec<(i64, Lane)>> {
        let cap = |cap: usize| i64::try_from(cap).unwrap_or(i64::MAX);
        let waiting = engine::query_as::<(i64, i64, i64, String)>(WAITING)
            .bind(now.0)
            .bind(cap(caps.per_webhook))
            .bind(cap(caps.per_host))
            .bind(cap(caps.per_account))
            .bind(LOOKED_AT_MAX)
            .fetch_all(&self.0.readers)
            .await
            .map_err(db("read the due deliveries"))?;
        Ok(waiting.into_iter().map(lane).collect())
    }

    fn job(&self, row: &Row, delivery: DeliveryId, claim: &str) -> Result<DeliveryJob> {
        let failed = db("read the delivery");
        let uid: String = row.try_get("uid").map_err(&failed)?;
        let url: Vec<u8> = row.try_get("url_sealed").map_err(&failed)?;
        let event: String = row.try_get("type").map_err(&failed)?;
        let mut secrets = Vec::new();
        for column in ["secret_sealed", "old_secret_sealed"] {
            if let Some(sealed) = row.try_get::<Option<Vec<u8>>>(column).map_err(&failed)? {
                secrets.push(self.0.vault.open_text(&secret_binding(&uid), &sealed)?);
            }
        }
        let tries: i64 = row.try_get("tries").map_err(&failed)?;
        let unreadable = |_| StoreError::Unreadable { what: "webhook_deliveries.tries" };
        Ok(DeliveryJob {
            delivery,
            webhook: WebhookId(row.try_get("webhook_id").map_err(&failed)?),
            account: AccountId(row.try_get("account_id").map_err(&failed)?),
            claim: claim.to_owned(),
            event_id: row.try_get("event_id").map_err(&failed)?,
            body: row.try_get("body").map_err(&failed)?,
            url: self.0.vault.open_text(&url_binding(&uid), &url)?,
            secrets,
            tries: u32::try_from(tries).map_err(unreadable)?,
            is_test: EventType::parse(&event) == Some(EventType::TestPing),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: SendingCaps = SendingCaps { per_webhook: 2, per_host: 3, per_account: 4 };

    fn lane(webhook: i64, host: &str, account: i64) -> Lane {
        Lane { webhook, account, host: host.to_owned(), is_failing: account < 0 }
    }

    fn waiting(lanes: &[Lane]) -> Vec<(i64, Lane)> {
        lanes.iter().cloned().enumerate().map(|(index, lane)| (index as i64, lane)).collect()
    }

    #[test]
    fn one_webhook_host_or_account_does_not_take_all_slots() {
        let slow = lane(1, "slow", 1);
        let lanes = [slow.clone(), slow.clone(), slow.clone(), lane(2, "slow", 1), lane(3, "slow", 2)];
        assert_eq!(choose(waiting(&lanes), &[], 9, CAPS), [0, 1, 3], "two of a webhook, three of a host");
        let lanes = [lane(4, "a", 1), lane(5, "b", 1), lane(6, "c", 1), lane(7, "d", 2)];
        let sending = [slow.clone(), slow.clone()];
        assert_eq!(choose(waiting(&lanes), &sending, 9, CAPS), [0, 1, 3], "four of an account");
        assert_eq!(choose(waiting(&[slow.clone(), lane(8, "slow", 3)]), &sending, 9, CAPS), [1]);
    }

    #[test]
    fn failing_webhooks_leave_slots_for_working_ones() {
        let failing = (1..=60).map(|id| lane(id, &id.to_string(), -id));
        let lanes: Vec<Lane> = failing.chain([lane(99, "works", 99)]).collect();
        let chosen = choose(waiting(&lanes), &[], 64, CAPS);
        assert_eq!((chosen.len(), chosen.last()), (FAILING_MAX + 1, Some(&60)));
        assert_eq!(choose(waiting(&lanes), &lanes[..40], 24, CAPS), [60], "beside those in flight too");
    }

    #[test]
    fn choices_are_limited_to_the_free_capacity() {
        let lanes: Vec<Lane> = (0..9).map(|id| lane(id, &id.to_string(), id)).collect();
        assert_eq!(choose(waiting(&lanes), &[], 2, CAPS), [0, 1], "the longest due first");
        assert!(choose(waiting(&lanes), &[], 0, CAPS).is_empty());
    }
}
