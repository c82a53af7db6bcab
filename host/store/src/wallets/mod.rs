//! Connected wallets, and the invoices that buy credit: top-ups that a person pays, and refills that a connected wallet
//! pays.
//!
//! A row is written before a wallet is asked, and every step is one transaction. Credit, end of the invoice and audit
//! entry are one transaction too, so that an invoice is credited once, whatever is repeated.

pub(crate) mod invoices;

use serde_json::json;

use crate::audit::{Actor, Change, record};
use crate::engine::{self, Row, Target};
use crate::error::{Result, db};
use crate::store::{Lock, Store};
use satcast_core::ids::{AccountId, Msat, UnixMillis};
use satcast_core::secret::{Redacted, new_uid};

/// Longest error text that is stored, in characters.
pub(crate) const WALLET_ERROR_CHARS_MAX: usize = 300;

/// Rules for refills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefillRules {
    /// A balance below this is refilled.
    pub threshold: Msat,
    /// Amount of one refill, above zero.
    pub amount: Msat,
    /// Most that refills of one UTC day may buy, without fees.
    pub daily_cap: Msat,
}

/// A wallet to be connected.
#[derive(Clone, Debug)]
pub struct NewWallet {
    /// The wallet's protocol, as the client names it.
    pub kind: &'static str,
    /// The wallet's address; may be a secret itself.
    pub url: Redacted<String>,
    /// May be empty.
    pub secret: Redacted<String>,
    pub rules: RefillRules,
}

#[derive(Clone, Debug)]
pub struct WalletRecord {
    pub id: i64,
    pub account: AccountId,
    /// The wallet's protocol.
    pub kind: String,
    /// The wallet's address.
    pub url: Redacted<String>,
    pub secret: Redacted<String>,
    pub rules: RefillRules,
    /// Failed refills since the last successful one.
    pub failures: i64,
    /// The next refill may not begin before this time.
    pub retry_at: UnixMillis,
    /// The last fault, until a refill succeeds.
    pub last_error: Option<WalletFault>,
    /// When a refill was last credited.
    pub last_refill_at: Option<UnixMillis>,
    /// When a wallet was first connected.
    pub created_at: UnixMillis,
}

/// Reason of a failed refill, for the owner of the wallet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalletFault {
    /// A code for programs.
    pub code: String,
    /// A sentence for people, without secrets. A long one is cut.
    pub text: String,
}

/// A new connection gets a row of its own: open refills of the previous wallet must not be paid from the new one, and
/// must not change its state.
const CONNECT: &str =
    "INSERT INTO wallet_connections (uid, account_id, kind, url_sealed, secret_sealed, threshold_msat,
    amount_msat, daily_cap_msat, created_ms, changed_ms, last_refill_ms)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING id";
const REPLACE: &str =
    "DELETE FROM wallet_connections WHERE account_id = $1 RETURNING created_ms, last_refill_ms";
const DISCONNECT: &str = "DELETE FROM wallet_connections WHERE account_id = $1 RETURNING id";
const SELECT: &str =
    "SELECT id, uid, account_id, kind, url_sealed, secret_sealed, threshold_msat, amount_msat,
    daily_cap_msat, failures, retry_ms, last_error_code, last_error, last_refill_ms, created_ms
    FROM wallet_connections WHERE account_id = $1";
/// A refill that began the day before and was paid on this day counts on both days; the condition on the second time
/// keeps the index short.
const REFILLED: &str = "SELECT CAST(COALESCE(SUM(amount_msat), 0) AS BIGINT) FROM wallet_invoices
    WHERE account_id = $1 AND purpose = 'refill' AND created_ms >= $3 AND state <> 'failed'
    AND (created_ms >= $2 OR settled_ms >= $2)";
const BELOW: &str = "SELECT c.id, c.account_id FROM wallet_connections c
    JOIN ledger_accounts l ON l.account_id = c.account_id JOIN accounts a ON a.id = c.account_id
    WHERE c.id > $2 AND c.retry_ms <= $1 AND l.balance_msat < c.threshold_msat AND a.disabled_ms IS NULL
    ORDER BY c.id LIMIT $3";
const NOTE: &str = "UPDATE wallet_connections SET last_error_code = $2, last_error = $3,
    retry_ms = CASE WHEN retry_ms < $4 THEN $4 ELSE retry_ms END WHERE id = $1";
/// No invoice is settled this long after it was created.
const SETTLED_WITHIN_MS: i64 = 32 * 24 * 3_600_000;

/// Binds an encrypted address to its row and its column.
fn url_binding(uid: &str) -> String {
    format!("{uid}:url")
}

/// The same for the secret.
fn secret_binding(uid: &str) -> String {
    format!("{uid}:secret")
}

/// The error text as it is stored.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(WALLET_ERROR_CHARS_MAX).collect()
}

/// Amount that counts towards the cap of the day that began at `day`: all refills but those that certainly failed.
pub(crate) async fn refilled<'a>(
    on: impl Into<Target<'a>>,
    account: AccountId,
    day: UnixMillis,
) -> Result<Msat> {
    let sum = engine::query_scalar(REFILLED).bind(account.0).bind(day.0);
    let sum = sum.bind(day.0.saturating_sub(SETTLED_WITHIN_MS)).fetch_one(on).await;
    sum.map(Msat).map_err(db("sum the refills"))
}

impl Store {
    /// Connects a wallet and replaces the previous one.
    pub async fn connect_wallet(&self, actor: &Actor, wallet: NewWallet) -> Result<()> {
        let uid = new_uid();
        let seal = |place: String, text: &str| self.0.vault.seal(&place, text.as_bytes());
        let rules = wallet.rules;
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let before = engine::query_as(REPLACE).bind(actor.account.0).fetch_optional(&mut tx).await;
        let before: Option<(i64, Option<i64>)> = before.map_err(db("connect the wallet"))?;
        let (created, last_refill) = before.unwrap_or((actor.now.0, None));
        let id: i64 = engine::query_scalar(CONNECT)
            .bind(&uid)
            .bind(actor.account.0)
            .bind(wallet.kind)
            .bind(seal(url_binding(&uid), wallet.url.expose()))
            .bind(seal(secret_binding(&uid), wallet.secret.expose()))
            .bind(rules.threshold.0)
            .bind(rules.amount.0)
            .bind(rules.daily_cap.0)
            .bind(created)
            .bind(actor.now.0)
            .bind(last_refill)
            .fetch_one(&mut tx)
            .await
            .map_err(db("connect the wallet"))?;
        let detail = json!({
            "type": wallet.kind, "thresholdSats": rules.threshold.to_sats_floor().0,
            "amountSats": rules.amount.to_sats_floor().0, "dailyCapSats": rules.daily_cap.to_sats_floor().0,
        });
        let noted = record(&mut tx, actor, Change::new("wallet.connected", "wallet", id, detail)).await?;
        self.commit_noted(tx, noted).await
    }

    /// Disconnects the wallet; `false` if there was none.
    pub async fn disconnect_wallet(&self, actor: &Actor) -> Result<bool> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let gone = engine::query_scalar(DISCONNECT).bind(actor.account.0).fetch_optional(&mut tx).await;
        let gone: Option<i64> = gone.map_err(db("disconnect the wallet"))?;
        let Some(id) = gone else { return Ok(false) };
        let change = Change::new("wallet.disconnected", "wallet", id, json!({}));
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await?;
        Ok(true)
    }

    /// The connected wallet of an account.
    pub async fn wallet_of(&self, account: AccountId) -> Result<Option<WalletRecord>> {
        let row = engine::query(SELECT).bind(account.0).fetch_optional(&self.0.readers).await;
        row.map_err(db("read the wallet"))?.map(|row| self.wallet_record(&row)).transpose()
    }

    /// Amount that counts towards the cap of the day that began at `day`.
    pub async fn refilled_since(&self, account: AccountId, day: UnixMillis) -> Result<Msat> {
        refilled(&self.0.readers, account, day).await
    }

    /// At most `limit` connections after the id `after` whose accounts are below their threshold and may be refilled,
    /// with their accounts.
    pub async fn wallets_below(
        &self,
        now: UnixMillis,
        after: i64,
        limit: i64,
    ) -> Result<Vec<(i64, AccountId)>> {
        let rows =
            engine::query_as(BELOW).bind(now.0).bind(after).bind(limit).fetch_all(&self.0.readers).await;
        let rows: Vec<(i64, i64)> = rows.map_err(db("read the accounts to refill"))?;
        Ok(rows.into_iter().map(|(id, account)| (id, AccountId(account))).collect())
    }

    /// Stores the fault of a wallet that paid, or whose outcome is unknown; no refill begins before `paused_until`.
    pub async fn note_wallet_fault(
        &self,
        account: AccountId,
        connection: i64,
        fault: &WalletFault,
        paused_until: UnixMillis,
    ) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(account)).await?;
        let note = engine::query(NOTE)
            .bind(connection)
            .bind(&fault.code)
            .bind(cut(&fault.text))
            .bind(paused_until.0);
        note.execute(&mut tx).await.map_err(db("store the fault of the wallet"))?;
        tx.commit().await
    }

    fn wallet_record(&self, row: &Row) -> Result<WalletRecord> {
        let failed = db("read the wallet");
        let uid: String = row.try_get("uid").map_err(&failed)?;
        let url: Vec<u8> = row.try_get("url_sealed").map_err(&failed)?;
        let secret: Vec<u8> = row.try_get("secret_sealed").map_err(&failed)?;
        let number = |name: &str| row.try_get::<i64>(name).map_err(&failed);
        let text = |name: &str| row.try_get::<Option<String>>(name).map_err(&failed);
        let last_error = text("last_error_code")?.zip(text("last_error")?);
        let last_refill: Option<i64> = row.try_get("last_refill_ms").map_err(&failed)?;
        Ok(WalletRecord {
            id: number("id")?,
            account: AccountId(number("account_id")?),
            kind: row.try_get("kind").map_err(&failed)?,
            url: self.0.vault.open_text(&url_binding(&uid), &url)?,
            secret: self.0.vault.open_text(&secret_binding(&uid), &secret)?,
            rules: RefillRules {
                threshold: Msat(number("threshold_msat")?),
                amount: Msat(number("amount_msat")?),
                daily_cap: Msat(number("daily_cap_msat")?),
            },
            failures: number("failures")?,
            retry_at: UnixMillis(number("retry_ms")?),
            last_error: last_error.map(|(code, text)| WalletFault { code, text }),
            last_refill_at: last_refill.map(UnixMillis),
            created_at: UnixMillis(number("created_ms")?),
        })
    }
}
