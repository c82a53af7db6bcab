//! Accounts.

use serde_json::json;
use sqlx::error::ErrorKind;

use crate::audit::{self, Change, Origin, record};
use crate::engine::{self, Row, Tx};
use crate::error::{Result, StoreError, db};
use crate::ledger::{self, Transfer, TransferKind};
use crate::store::Store;
use satcast_core::ids::{AccountId, Msat, UnixMillis};
use satcast_core::secret::Redacted;

#[derive(Clone, Debug)]
pub struct AccountRecord {
    pub id: AccountId,
    pub name: String,
    /// Whether the account has operator rights.
    pub operator: bool,
    /// Argon2id hash in PHC form; `None` without a password.
    pub password_hash: Option<Redacted<String>>,
    pub created_at: UnixMillis,
}

#[derive(Clone, Debug)]
pub struct NewAccount {
    pub name: String,
    /// Argon2id hash in PHC form.
    pub password_hash: Option<Redacted<String>>,
    /// Whether the account has operator rights.
    pub operator: bool,
    /// Credit posted as a promotion; zero posts nothing.
    pub initial_credit: Msat,
}

const INSERT_ACCOUNT: &str = "INSERT INTO accounts (name, password_hash, operator, created_ms)
    VALUES ($1, $2, $3, $4) RETURNING id";
const SELECT_ACCOUNT: &str =
    "SELECT id, name, password_hash, operator, created_ms FROM accounts WHERE name = $1";

impl Store {
    /// Creates an account and posts its initial credit, if any, in the same transaction.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`].
    pub async fn create_account(&self, origin: &Origin, account: NewAccount) -> Result<AccountId> {
        let mut tx = self.begin().await?;
        let (id, noted) = insert_account(&mut tx, origin, account).await?;
        self.commit_noted(tx, noted).await?;
        Ok(id)
    }

    pub async fn account_by_name(&self, name: &str) -> Result<Option<AccountRecord>> {
        let row = engine::query(SELECT_ACCOUNT).bind(name).fetch_optional(&self.0.readers).await;
        row.and_then(|row| row.map(account_record).transpose()).map_err(db("read the account"))
    }

    pub async fn count_accounts(&self) -> Result<i64> {
        let count = engine::query_scalar("SELECT COUNT(*) FROM accounts").fetch_one(&self.0.readers);
        count.await.map_err(db("count the accounts"))
    }
}

/// Creates an account with its initial credit and its first audit entry inside a transaction.
pub(crate) async fn insert_account(
    tx: &mut Tx,
    origin: &Origin,
    account: NewAccount,
) -> Result<(AccountId, audit::Noted)> {
    let inserted = engine::query_scalar(INSERT_ACCOUNT)
        .bind(&account.name)
        .bind(account.password_hash.as_ref().map(Redacted::expose))
        .bind(i64::from(account.operator))
        .bind(origin.now.0)
        .fetch_one(&mut *tx)
        .await;
    let id = match inserted {
        Ok(id) => AccountId(id),
        Err(sqlx::Error::Database(error)) if error.kind() == ErrorKind::UniqueViolation => {
            return Err(StoreError::NameTaken(account.name));
        }
        Err(error) => return Err(db("create the account")(error)),
    };
    ledger::open_customer(tx, id).await?;
    if account.initial_credit.0 != 0 {
        let credit = Transfer {
            account_id: id,
            kind: TransferKind::Promotion,
            amount: account.initial_credit,
            idem: format!("promotion:{id}"),
            now: origin.now,
        };
        ledger::post(tx, &credit).await?;
    }
    let detail = json!({
        "name": account.name, "operator": account.operator,
        "initialSats": account.initial_credit.to_sats_floor().0
    });
    let change = Change::new("account.created", "account", id.0, detail);
    Ok((id, record(tx, &origin.acting_for(id), change).await?))
}

pub(crate) fn account_record(row: Row) -> sqlx::Result<AccountRecord> {
    Ok(AccountRecord {
        id: AccountId(row.try_get("id")?),
        name: row.try_get("name")?,
        operator: row.try_get::<i64>("operator")? != 0,
        password_hash: row.try_get::<Option<String>>("password_hash")?.map(Redacted::new),
        created_at: UnixMillis(row.try_get("created_ms")?),
    })
}
