//! Invoices of the receiving wallet. Each change of an invoice is one transaction, and its credit is part of it.

use serde_json::json;

use crate::audit::{Actor, By, Change, Noted, record};
use crate::engine::{self, Row, Tx};
use crate::error::{Result, StoreError, db};
use crate::ledger::{HOUSE_LIGHTNING, Transfer, TransferKind, balance, post};
use crate::store::{Lock, Store, again};
use crate::wallets::{RefillRules, WalletFault, cut, refilled};
use crate::webhooks::EventType;
use crate::webhooks::events::{NewEvent, emit};
use satcast_core::ids::{AccountId, Msat, UnixMillis};

/// Failed refills in a row after which the owner is notified.
pub const FAILURES_SHOWN: i64 = 3;

/// Purpose of an invoice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Top-up: a person pays it.
    TopUp,
    /// Refill: the connected wallet pays it.
    Refill,
}

impl Purpose {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TopUp => "topup",
            Self::Refill => "refill",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::TopUp, Self::Refill].into_iter().find(|purpose| purpose.as_str() == name)
    }
}

/// State of an invoice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The receiving wallet has not made it yet.
    Created,
    /// It can be paid.
    Open,
    /// The connected wallet was asked to pay it; the outcome is unknown.
    Paying,
    /// It was paid and credited.
    Settled,
    /// It was not paid in time.
    Expired,
    /// It was not made, or the connected wallet certainly did not pay it.
    Failed,
}

impl Stage {
    pub const ALL: [Self; 6] =
        [Self::Created, Self::Open, Self::Paying, Self::Settled, Self::Expired, Self::Failed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Open => "open",
            Self::Paying => "paying",
            Self::Settled => "settled",
            Self::Expired => "expired",
            Self::Failed => "failed",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.as_str() == name)
    }

    /// Whether the invoice has not ended.
    pub fn is_under_way(self) -> bool {
        matches!(self, Self::Created | Self::Open | Self::Paying)
    }
}

/// An invoice that the receiving wallet made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeInvoice {
    /// The BOLT11 text.
    pub bolt11: String,
    /// The payment hash, which identifies the invoice in every wallet.
    pub payment_hash: String,
    pub expires_at: UnixMillis,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvoiceRecord {
    pub id: i64,
    /// The account that it credits.
    pub account: AccountId,
    pub purpose: Purpose,
    pub stage: Stage,
    /// The amount to be paid.
    pub amount: Msat,
    /// Largest fee of the payment; zero for a top-up.
    pub fee_max: Msat,
    /// The invoice of the receiving wallet; `None` until it is made.
    pub made: Option<MadeInvoice>,
    /// The credited amount.
    pub credited: Option<Msat>,
    /// When its row was written.
    pub created_at: UnixMillis,
    pub settled_at: Option<UnixMillis>,
}

/// Facts for the decision about a refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefillFacts {
    /// The account's balance.
    pub balance: Msat,
    /// The owner's rules.
    pub rules: RefillRules,
    /// The next refill may not begin before this time.
    pub retry_at: UnixMillis,
    /// A refill has not ended, or its outcome is unknown.
    pub under_way: bool,
    /// Amount of the day's refills, without those that certainly failed.
    pub spent: Msat,
}

/// Reason why no refill begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRefill {
    /// No wallet is connected.
    NotConnected,
    /// The balance is not below the threshold.
    Enough,
    /// A refill is in progress.
    UnderWay,
    /// The last refill failed a short time ago.
    Paused,
    /// The day's cap is used up.
    Capped,
}

/// A refill that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefillPlan {
    /// The amount to buy.
    pub amount: Msat,
    /// Largest fee of its payment.
    pub fee_max: Msat,
}

/// Decides whether a refill begins; no I/O, no clock.
pub type DecideRefill<'a> =
    &'a (dyn Fn(&RefillFacts) -> std::result::Result<RefillPlan, NoRefill> + Send + Sync);

/// The failure of a refill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefillFault {
    pub fault: WalletFault,
    /// When the next refill may begin.
    pub retry_at: UnixMillis,
    /// Whether the connected wallet is at fault, so that the failure counts.
    pub counts: bool,
}

/// Name of the fault of a wallet whose payment cost more than the limit.
pub const FEE_TOO_HIGH: &str = "fee_too_high";

/// The end of an invoice that was not credited.
#[derive(Clone, Debug)]
pub struct Close {
    /// [`Stage::Expired`] or [`Stage::Failed`].
    pub stage: Stage,
    /// When the receiving wallet is asked once more, because it may have received the money after all.
    pub due_at: Option<UnixMillis>,
    /// Shown to the owner of the connection.
    pub fault: Option<RefillFault>,
    /// Only if the receiving wallet has made no invoice for this row meanwhile. A caller that does not know the invoice
    /// must never close it, because somebody may already be able to pay it.
    pub only_unmade: bool,
    pub now: UnixMillis,
}

/// The columns of an invoice.
macro_rules! columns {
    () => {
        "id, account_id, purpose, state, amount_msat, fee_max_msat, payment_hash, bolt11, expires_ms, credited_msat, \
         created_ms, settled_ms"
    };
}

/// Condition for invoices that have not ended.
macro_rules! under_way {
    () => {
        "state IN ('created', 'open', 'paying')"
    };
}

/// Locks the row of the connection, so that refills of one account are decided one after the other.
const TAKE: &str = "UPDATE wallet_connections SET retry_ms = retry_ms WHERE account_id = $1 AND id = $2
    RETURNING id, threshold_msat, amount_msat, daily_cap_msat, retry_ms";
const UNDER_WAY: &str = concat!(
    "SELECT COUNT(*) FROM wallet_invoices WHERE account_id = $1 AND purpose = 'refill' AND ",
    under_way!()
);
const OPEN_TOPUPS: &str = concat!(
    "SELECT COUNT(*) FROM wallet_invoices WHERE account_id = $1 AND purpose = 'topup' AND ",
    under_way!(),
    " AND (expires_ms IS NULL OR expires_ms > $2)"
);
const INSERT: &str = concat!(
    "INSERT INTO wallet_invoices (account_id, purpose, connection_id, state, amount_msat, fee_max_msat, due_ms, ",
    "created_ms) VALUES ($1, $2, $3, 'created', $4, $5, $6, $7) RETURNING ",
    columns!()
);
const MADE: &str = "UPDATE wallet_invoices SET payment_hash = $2, bolt11 = $3, expires_ms = $4, due_ms = $5,
    state = CASE WHEN purpose = 'refill' THEN 'paying' ELSE 'open' END
    WHERE id = $1 AND state = 'created' AND (connection_id IS NULL
    OR EXISTS (SELECT 1 FROM wallet_connections c WHERE c.id = connection_id)) RETURNING id";
const CLOSE: &str = concat!(
    "UPDATE wallet_invoices SET state = $2, due_ms = $3 WHERE id = $1 AND ",
    under_way!(),
    " AND ($4 = 0 OR payment_hash IS NULL) RETURNING account_id, connection_id"
);
const FAILED: &str =
    "UPDATE wallet_connections SET failures = failures + $5, retry_ms = $2, last_error_code = $3,
    last_error = $4 WHERE id = $1 RETURNING failures";
const SETTLE: &str = concat!(
    "UPDATE wallet_invoices SET state = 'settled', credited_msat = $2, settled_ms = $3, due_ms = NULL ",
    "WHERE id = $1 AND state <> 'settled' AND payment_hash IS NOT NULL RETURNING connection_id, ",
    columns!()
);
/// A pause because of fees continues: it concerns the fees of the wallet, not whether it pays.
const WENT_WELL: &str = "UPDATE wallet_connections SET failures = 0, last_refill_ms = $2,
    retry_ms = CASE WHEN last_error_code = $3 AND retry_ms > $2 THEN retry_ms ELSE 0 END,
    last_error = CASE WHEN last_error_code = $3 AND retry_ms > $2 THEN last_error END,
    last_error_code = CASE WHEN last_error_code = $3 AND retry_ms > $2 THEN last_error_code END WHERE id = $1";
const CLAIM: &str = concat!(
    "UPDATE wallet_invoices SET due_ms = $2 WHERE due_ms <= $1 AND id IN (SELECT id FROM wallet_invoices WHERE due_ms <= $1 ",
    "ORDER BY due_ms, id LIMIT $3) RETURNING ",
    columns!()
);
const ASK_AT: &str = "UPDATE wallet_invoices SET due_ms = $2 WHERE id = $1 AND state <> 'settled'";
const NEXT_DUE: &str = "SELECT MIN(due_ms) FROM wallet_invoices WHERE due_ms IS NOT NULL";
const ASK_ALL: &str =
    "UPDATE wallet_invoices SET due_ms = $1 WHERE state IN ('open', 'paying') AND due_ms > $1";
const TOPUP: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM wallet_invoices WHERE account_id = $1 AND id = $2 AND purpose = 'topup'"
);
/// Paid invoices whose transfer is missing or differs.
const UNPOSTED: &str = "SELECT i.id, i.credited_msat, t.amount_msat FROM wallet_invoices i
    LEFT JOIN transfers t ON t.idem = 'invoice:' || i.payment_hash AND t.kind = i.purpose
        AND t.debit_id = (SELECT h.id FROM ledger_accounts h WHERE h.name = $1)
        AND t.credit_id = (SELECT l.id FROM ledger_accounts l WHERE l.account_id = i.account_id)
    WHERE i.state = 'settled' AND (t.id IS NULL OR t.amount_msat <> i.credited_msat) ORDER BY i.id";
/// Transfers of the receiving wallet that belong to no paid invoice.
const UNEXPLAINED: &str = "SELECT t.id, t.amount_msat FROM transfers t
    WHERE t.debit_id = (SELECT h.id FROM ledger_accounts h WHERE h.name = $1) AND NOT EXISTS (
        SELECT 1 FROM wallet_invoices i WHERE 'invoice:' || i.payment_hash = t.idem AND i.state = 'settled')
    ORDER BY t.id";

/// Contradictions between invoices and transfers, as texts.
pub(crate) async fn faults(tx: &mut Tx) -> Result<Vec<String>> {
    let failed = db("check the invoices");
    let unposted: Vec<(i64, i64, Option<i64>)> =
        engine::query_as(UNPOSTED).bind(HOUSE_LIGHTNING).fetch_all(&mut *tx).await.map_err(&failed)?;
    let unexplained: Vec<(i64, i64)> =
        engine::query_as(UNEXPLAINED).bind(HOUSE_LIGHTNING).fetch_all(&mut *tx).await.map_err(&failed)?;
    let unposted = unposted.into_iter().map(|(id, credited, posted)| match posted {
        None => format!("invoice {id} was credited {credited} msat without a transfer"),
        Some(posted) => {
            format!("invoice {id} was credited {credited} msat, and its transfer moves {posted} msat")
        }
    });
    let unexplained = unexplained
        .into_iter()
        .map(|(id, amount)| format!("transfer {id} credits {amount} msat of an invoice that was not paid"));
    Ok(unposted.chain(unexplained).collect())
}

impl Store {
    /// Writes the row of a refill if `decide` allows one. The facts are those of the same transaction. `day` is the
    /// start of the day for the cap; at `due_at` a row without an invoice is given up.
    pub async fn begin_refill(
        &self,
        account: AccountId,
        wallet: i64,
        now: UnixMillis,
        day: UnixMillis,
        due_at: UnixMillis,
        decide: DecideRefill<'_>,
    ) -> Result<std::result::Result<InvoiceRecord, NoRefill>> {
        let failed = db("begin a refill");
        let mut tx = self.begin_holding(Lock::Account(account)).await?;
        let taken = engine::query_as(TAKE).bind(account.0).bind(wallet).fetch_optional(&mut tx).await;
        let taken: Option<(i64, i64, i64, i64, i64)> = taken.map_err(&failed)?;
        let Some((connection, threshold, amount, cap, retry)) = taken else {
            return Ok(Err(NoRefill::NotConnected));
        };
        let count = engine::query_scalar(UNDER_WAY).bind(account.0).fetch_one(&mut tx).await;
        let count: i64 = count.map_err(&failed)?;
        let facts = RefillFacts {
            balance: balance(&mut tx, account).await?,
            rules: RefillRules { threshold: Msat(threshold), amount: Msat(amount), daily_cap: Msat(cap) },
            retry_at: UnixMillis(retry),
            under_way: count > 0,
            spent: refilled(&mut tx, account, day).await?,
        };
        let plan = match decide(&facts) {
            Ok(plan) => plan,
            Err(why) => return Ok(Err(why)),
        };
        let row = engine::query(INSERT)
            .bind(account.0)
            .bind(Purpose::Refill.as_str())
            .bind(connection)
            .bind(plan.amount.0)
            .bind(plan.fee_max.0)
            .bind(due_at.0)
            .bind(now.0)
            .fetch_one(&mut tx)
            .await
            .map_err(&failed)?;
        let invoice = invoice(&row)?;
        tx.commit().await?;
        Ok(Ok(invoice))
    }

    /// Writes the row of a top-up; an account may have at most `cap` open ones.
    ///
    /// # Errors
    /// [`StoreError::CapReached`].
    pub async fn begin_topup(
        &self,
        actor: &Actor,
        amount: Msat,
        due_at: UnixMillis,
        cap: i64,
    ) -> Result<InvoiceRecord> {
        let failed = db("begin a top-up");
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let open = engine::query_scalar(OPEN_TOPUPS).bind(actor.account.0).bind(actor.now.0);
        let open: i64 = open.fetch_one(&mut tx).await.map_err(&failed)?;
        if open >= cap {
            return Err(StoreError::CapReached { what: "open top-ups per account", limit: cap });
        }
        let row = engine::query(INSERT)
            .bind(actor.account.0)
            .bind(Purpose::TopUp.as_str())
            .bind(None::<i64>)
            .bind(amount.0)
            .bind(0_i64)
            .bind(due_at.0)
            .bind(actor.now.0)
            .fetch_one(&mut tx)
            .await
            .map_err(&failed)?;
        let invoice = invoice(&row)?;
        let detail = json!({"sats": amount.to_sats_floor().0});
        let change = Change::new("wallet.topup_requested", "invoice", invoice.id, detail);
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await?;
        Ok(invoice)
    }

    /// Stores the invoice of the receiving wallet, for a refill as [`Stage::Paying`]. Returns `false` if the row was
    /// given up meanwhile: the invoice must not be shown or paid then.
    pub async fn invoice_made(&self, invoice: i64, made: &MadeInvoice, due_at: UnixMillis) -> Result<bool> {
        let mut tx = self.begin_holding(Lock::Invoice(invoice)).await?;
        let row = engine::query(MADE)
            .bind(invoice)
            .bind(&made.payment_hash)
            .bind(&made.bolt11)
            .bind(made.expires_at.0)
            .bind(due_at.0)
            .fetch_optional(&mut tx)
            .await
            .map_err(db("store the invoice"))?;
        tx.commit().await?;
        Ok(row.is_some())
    }

    /// Ends an open invoice without a credit; `false` if it has ended already.
    pub async fn close_invoice(&self, invoice: i64, close: &Close) -> Result<bool> {
        let mut tx = self.begin_holding(Lock::Invoice(invoice)).await?;
        let row = engine::query_as(CLOSE)
            .bind(invoice)
            .bind(close.stage.as_str())
            .bind(close.due_at.map(|at| at.0))
            .bind(i64::from(close.only_unmade))
            .fetch_optional(&mut tx)
            .await;
        let row: Option<(i64, Option<i64>)> = row.map_err(db("close the invoice"))?;
        let Some((account, connection)) = row else { return Ok(false) };
        let noted = match (&close.fault, connection) {
            (Some(fault), Some(connection)) => {
                failed_again(&mut tx, AccountId(account), connection, fault, close.now).await?
            }
            _ => None,
        };
        match noted {
            Some(noted) => {
                self.commit_noted(tx, noted).await?;
                self.wake_outbox();
            }
            None => tx.commit().await?,
        }
        Ok(true)
    }

    /// Credits an invoice; `false` if it was credited before.
    pub async fn settle_invoice(&self, invoice_id: i64, credit: Msat, now: UnixMillis) -> Result<bool> {
        let failed = db("credit the invoice");
        let mut tx = self.begin_holding(Lock::Invoice(invoice_id)).await?;
        let row = engine::query(SETTLE).bind(invoice_id).bind(credit.0).bind(now.0);
        let row = row.fetch_optional(&mut tx).await.map_err(&failed)?;
        let Some(row) = row else { return Ok(false) };
        let paid = invoice(&row)?;
        let connection: Option<i64> = row.try_get("connection_id").map_err(&failed)?;
        let hash = paid.made.as_ref().map(|made| made.payment_hash.as_str()).unwrap_or_default();
        let kind = match paid.purpose {
            Purpose::TopUp => TransferKind::TopUp,
            Purpose::Refill => TransferKind::Refill,
        };
        let idem = format!("invoice:{hash}");
        let transfer = Transfer { account_id: paid.account, kind, amount: credit, idem, now };
        // The name contains the id of the invoice, whose row was not settled: no transfer can have this name.
        if !post(&mut tx, &transfer).await? {
            return Err(StoreError::Unreadable { what: "transfers.idem of an invoice" });
        }
        if let Some(connection) = connection {
            let well = engine::query(WENT_WELL).bind(connection).bind(now.0).bind(FEE_TOO_HIGH);
            well.execute(&mut tx).await.map_err(&failed)?;
        }
        let actor = Actor { account: paid.account, by: By::Service, address: None, now };
        let detail = json!({
            "kind": kind.as_str(), "sats": credit.to_sats_floor().0, "amountMsat": credit.0,
            "balance": balance(&mut tx, paid.account).await?.to_sats_floor().0,
        });
        let noted =
            record(&mut tx, &actor, Change::new("wallet.credited", "invoice", paid.id, detail)).await?;
        self.commit_noted(tx, noted).await?;
        Ok(true)
    }

    /// Claims invoices that are due for a lookup at the receiving wallet, the longest due first; they are due again at
    /// `until`.
    pub async fn claim_invoices(
        &self,
        now: UnixMillis,
        until: UnixMillis,
        limit: i64,
    ) -> Result<Vec<InvoiceRecord>> {
        let claim = async || {
            let mut tx = self.begin_holding(Lock::Invoices).await?;
            let rows = engine::query(CLAIM).bind(now.0).bind(until.0).bind(limit).fetch_all(&mut tx).await;
            let rows = rows.map_err(db("read the due invoices"))?;
            tx.commit().await?;
            rows.iter().map(invoice).collect()
        };
        again(claim).await
    }

    /// Sets the time of the next lookup at the receiving wallet; `None` for never.
    pub async fn ask_invoice_at(&self, invoice: i64, due_at: Option<UnixMillis>) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Invoice(invoice)).await?;
        let ask = engine::query(ASK_AT).bind(invoice).bind(due_at.map(|at| at.0)).execute(&mut tx).await;
        ask.map_err(db("store the time of the next lookup"))?;
        tx.commit().await
    }

    /// When the next invoice is due.
    pub async fn next_invoice_due(&self) -> Result<Option<UnixMillis>> {
        let due: Option<i64> = engine::query_scalar(NEXT_DUE)
            .fetch_one(&self.0.readers)
            .await
            .map_err(db("read the due invoices"))?;
        Ok(due.map(UnixMillis))
    }

    /// Makes every open invoice due now; called once at start.
    pub async fn ask_all_invoices(&self, now: UnixMillis) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Invoices).await?;
        let ask = engine::query(ASK_ALL).bind(now.0).execute(&mut tx).await;
        ask.map_err(db("make invoices due"))?;
        tx.commit().await
    }

    pub async fn topup_of(&self, account: AccountId, id: i64) -> Result<Option<InvoiceRecord>> {
        let row = engine::query(TOPUP).bind(account.0).bind(id).fetch_optional(&self.0.readers).await;
        row.map_err(db("read a top-up"))?.as_ref().map(invoice).transpose()
    }
}

/// Records a failed refill of this connection. The owner is notified when the number of failures reaches its limit.
async fn failed_again(
    tx: &mut Tx,
    account: AccountId,
    connection: i64,
    failed: &RefillFault,
    now: UnixMillis,
) -> Result<Option<Noted>> {
    let fault = &failed.fault;
    let row = engine::query_scalar(FAILED)
        .bind(connection)
        .bind(failed.retry_at.0)
        .bind(&fault.code)
        .bind(cut(&fault.text))
        .bind(i64::from(failed.counts))
        .fetch_optional(&mut *tx)
        .await;
    let failures: Option<i64> = row.map_err(db("record a failed refill"))?;
    if !failed.counts || failures != Some(FAILURES_SHOWN) {
        return Ok(None);
    }
    let balance = balance(&mut *tx, account).await?.to_sats_floor().0;
    let (event, data) = (EventType::BalanceLow, json!({"balance": balance}));
    emit(tx, NewEvent { account, stream: None, event, data, at: now, now }).await?;
    let actor = Actor { account, by: By::Service, address: None, now };
    let detail = json!({"code": fault.code, "failures": FAILURES_SHOWN});
    record(tx, &actor, Change::new("wallet.failing", "wallet", connection, detail)).await.map(Some)
}

fn invoice(row: &Row) -> Result<InvoiceRecord> {
    let purpose: String = row.try_get("purpose").map_err(db("read an invoice"))?;
    let purpose =
        Purpose::parse(&purpose).ok_or(StoreError::Unreadable { what: "wallet_invoices.purpose" })?;
    let stage: String = row.try_get("state").map_err(db("read an invoice"))?;
    let stage = Stage::parse(&stage).ok_or(StoreError::Unreadable { what: "wallet_invoices.state" })?;
    read(row, purpose, stage).map_err(db("read an invoice"))
}

fn read(row: &Row, purpose: Purpose, stage: Stage) -> sqlx::Result<InvoiceRecord> {
    let (hash, bolt11): (Option<String>, Option<String>) =
        (row.try_get("payment_hash")?, row.try_get("bolt11")?);
    let expires: Option<i64> = row.try_get("expires_ms")?;
    let made = hash.zip(bolt11).zip(expires).map(|((payment_hash, bolt11), at)| MadeInvoice {
        bolt11,
        payment_hash,
        expires_at: UnixMillis(at),
    });
    Ok(InvoiceRecord {
        id: row.try_get("id")?,
        account: AccountId(row.try_get("account_id")?),
        purpose,
        stage,
        amount: Msat(row.try_get("amount_msat")?),
        fee_max: Msat(row.try_get("fee_max_msat")?),
        made,
        credited: row.try_get::<Option<i64>>("credited_msat")?.map(Msat),
        created_at: UnixMillis(row.try_get("created_ms")?),
        settled_at: row.try_get::<Option<i64>>("settled_ms")?.map(UnixMillis),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_and_purposes_survive_their_names() {
        for stage in Stage::ALL {
            assert_eq!(Stage::parse(stage.as_str()), Some(stage));
        }
        for purpose in [Purpose::TopUp, Purpose::Refill] {
            assert_eq!(Purpose::parse(purpose.as_str()), Some(purpose));
        }
        assert_eq!((Stage::parse("lost"), Purpose::parse("")), (None, None));
    }
}
