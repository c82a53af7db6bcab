//! The ledger's postings. A posting is one row with a debit and a credit side. Only customers' balances are stored
//! beside it, and they change in the same transaction.

pub(crate) mod check;

use serde_json::json;
use sqlx::error::ErrorKind;

use crate::audit::{Actor, Change, Noted, record};
use crate::engine::{self, Target, Tx};
use crate::error::{Result, StoreError, db};
use crate::store::{Lock, Store};
use satcast_core::ids::{AccountId, Msat, Sats, UnixMillis};

/// Purpose of a transfer; the house account on its other side follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    /// Credit given to a new account, from the promotion account.
    Promotion,
    /// Credit the operator sold, from the prepaid account.
    Prepaid,
    /// Credit bought with a Lightning invoice, from the lightning account.
    TopUp,
    /// Credit bought by the connected wallet, from the lightning account.
    Refill,
}

impl TransferKind {
    pub fn as_str(self) -> &'static str {
        match self {
            TransferKind::Promotion => "promotion",
            TransferKind::Prepaid => "prepaid",
            TransferKind::TopUp => "topup",
            TransferKind::Refill => "refill",
        }
    }
}

/// One posting between a house account and a customer's account.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) account_id: AccountId,
    pub(crate) kind: TransferKind,
    /// Millisats, above zero.
    pub(crate) amount: Msat,
    /// Unique for ever: posting the same name again changes nothing.
    pub(crate) idem: String,
    pub(crate) now: UnixMillis,
}

/// The largest amount of a posting, and of a balance: all bitcoin that will ever exist, in millisats.
pub(crate) const AMOUNT_MSAT_MAX: i64 = 2_100_000_000_000_000_000;
/// The house account for payments that the receiving wallet got.
pub(crate) const HOUSE_LIGHTNING: &str = "lightning";
const OPEN_CUSTOMER: &str = "INSERT INTO ledger_accounts (name, account_id, balance_msat) VALUES ($1, $2, 0)";
const INSERT: &str = "INSERT INTO transfers (debit_id, credit_id, amount_msat, kind, idem, created_ms)
    SELECT house.id, customer.id, $3, $4, $5, $6 FROM ledger_accounts house, ledger_accounts customer
    WHERE house.name = $1 AND customer.account_id = $2
    ON CONFLICT (idem) DO NOTHING RETURNING id";
const POSTED: &str = "SELECT id FROM transfers WHERE idem = $1";
const ADD_TO_BALANCE: &str =
    "UPDATE ledger_accounts SET balance_msat = balance_msat + $2 WHERE account_id = $1";
const BALANCE: &str = "SELECT balance_msat FROM ledger_accounts WHERE account_id = $1";

pub(crate) async fn open_customer(tx: &mut Tx, account: AccountId) -> Result<()> {
    let insert = engine::query(OPEN_CUSTOMER).bind(format!("customer:{account}")).bind(account.0);
    insert.execute(&mut *tx).await.map(|_| ()).map_err(db("open the ledger account"))
}

/// Posts a transfer inside a transaction; `false` if its `idem` was posted before.
pub(crate) async fn post(tx: &mut Tx, transfer: &Transfer) -> Result<bool> {
    let amount = transfer.amount.0;
    if !(1..=AMOUNT_MSAT_MAX).contains(&amount) {
        return Err(StoreError::Amount(transfer.amount.to_sats_floor().0));
    }
    let house = match transfer.kind {
        TransferKind::Promotion => "promotion",
        TransferKind::Prepaid => "prepaid",
        TransferKind::TopUp | TransferKind::Refill => HOUSE_LIGHTNING,
    };
    let failed = db("post to the ledger");
    let inserted = engine::query(INSERT)
        .bind(house)
        .bind(transfer.account_id.0)
        .bind(amount)
        .bind(transfer.kind.as_str())
        .bind(&transfer.idem)
        .bind(transfer.now.0)
        .fetch_optional(&mut *tx)
        .await
        .map_err(&failed)?;
    if inserted.is_none() {
        let before =
            engine::query(POSTED).bind(&transfer.idem).fetch_optional(&mut *tx).await.map_err(&failed)?;
        return if before.is_some() { Ok(false) } else { Err(StoreError::NotFound("account")) };
    }
    match engine::query(ADD_TO_BALANCE).bind(transfer.account_id.0).bind(amount).execute(&mut *tx).await {
        Ok(_) => Ok(true),
        Err(sqlx::Error::Database(error)) if error.kind() == ErrorKind::CheckViolation => {
            Err(StoreError::Amount(transfer.amount.to_sats_floor().0))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Adds prepaid credit inside a transaction; `None` if `idem` was posted before.
pub(crate) async fn credit(tx: &mut Tx, actor: &Actor, sats: Sats, idem: String) -> Result<Option<Noted>> {
    let amount = sats.to_msat().ok_or(StoreError::Amount(sats.0))?;
    let (account_id, now) = (actor.account, actor.now);
    let transfer = Transfer { account_id, kind: TransferKind::Prepaid, amount, idem, now };
    if !post(tx, &transfer).await? {
        return Ok(None);
    }
    let change = Change::new("account.credited", "account", account_id.0, json!({"sats": sats.0}));
    record(tx, actor, change).await.map(Some)
}

/// The account's balance.
pub(crate) async fn balance<'a>(on: impl Into<Target<'a>>, account: AccountId) -> Result<Msat> {
    let balance = engine::query_scalar(BALANCE).bind(account.0).fetch_optional(on).await;
    balance.map_err(db("read the balance"))?.map(Msat).ok_or(StoreError::NotFound("account"))
}

impl Store {
    /// Adds prepaid credit to an account under a name that makes repeats harmless.
    ///
    /// # Errors
    /// [`StoreError::Amount`], [`StoreError::NotFound`].
    pub async fn credit(&self, actor: &Actor, sats: Sats, idem: String) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let noted = credit(&mut tx, actor, sats, idem).await?;
        self.commit_all(tx, noted.into_iter().collect()).await
    }

    /// The account's balance.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn balance(&self, account: AccountId) -> Result<Msat> {
        balance(&self.0.readers, account).await
    }
}
