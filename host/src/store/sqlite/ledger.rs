//! The ledger's postings and its check. A posting is one row with a debit and a credit side; only customers'
//! balances are kept beside it, changed in the same transaction.

use async_trait::async_trait;
use sqlx::error::ErrorKind;
use sqlx::{Row as _, Sqlite, Transaction};

use super::{SqliteStore, commit, db};
use crate::ids::{AccountId, Msat, Sats, UnixMillis};
use crate::store::{Ledger, LedgerFault, LedgerReport, Result, StoreError, Transfer, TransferKind};

/// The largest amount of a posting, and of a balance: all sats there will ever be.
const AMOUNT_MSAT_MAX: i64 = 2_100_000_000_000_000_000;

const OPEN_CUSTOMER: &str = "INSERT INTO ledger_accounts (name, account_id, balance_msat) VALUES ($1, $2, 0)";
const INSERT: &str = "INSERT INTO transfers (debit_id, credit_id, amount_msat, kind, idem, created_ms)
    SELECT house.id, customer.id, $3, $4, $5, $6 FROM ledger_accounts house, ledger_accounts customer
    WHERE house.name = $1 AND customer.account_id = $2
    ON CONFLICT (idem) DO NOTHING RETURNING id";
const POSTED: &str = "SELECT id FROM transfers WHERE idem = $1";
const ADD_TO_BALANCE: &str =
    "UPDATE ledger_accounts SET balance_msat = balance_msat + $2 WHERE account_id = $1";
const BALANCE: &str = "SELECT balance_msat FROM ledger_accounts WHERE account_id = $1";
const TOTALS: &str = "SELECT
    (SELECT COUNT(*) FROM transfers) AS transfers,
    (SELECT CAST(COALESCE(SUM(t.amount_msat), 0) AS BIGINT) FROM transfers t
        JOIN ledger_accounts a ON a.id = t.debit_id) AS debits,
    (SELECT CAST(COALESCE(SUM(t.amount_msat), 0) AS BIGINT) FROM transfers t
        JOIN ledger_accounts a ON a.id = t.credit_id) AS credits";
const BALANCES: &str = "SELECT a.name, a.balance_msat AS found,
    (SELECT CAST(COALESCE(SUM(t.amount_msat), 0) AS BIGINT) FROM transfers t WHERE t.credit_id = a.id) -
    (SELECT CAST(COALESCE(SUM(t.amount_msat), 0) AS BIGINT) FROM transfers t WHERE t.debit_id = a.id) AS expected
    FROM ledger_accounts a WHERE a.account_id IS NOT NULL ORDER BY a.id";
const WITHOUT_LEDGER: &str = "SELECT a.name FROM accounts a
    WHERE NOT EXISTS (SELECT 1 FROM ledger_accounts l WHERE l.account_id = a.id) ORDER BY a.id";

/// Opens the ledger account of a new customer.
pub(super) async fn open_customer(tx: &mut Transaction<'static, Sqlite>, account: AccountId) -> Result<()> {
    let insert = sqlx::query(OPEN_CUSTOMER).bind(format!("customer:{account}")).bind(account.0);
    insert.execute(&mut **tx).await.map(|_| ()).map_err(db("open the ledger account"))
}

/// Posts a transfer inside a transaction; `false` when its `idem` was posted before.
pub(super) async fn post(tx: &mut Transaction<'static, Sqlite>, transfer: &Transfer) -> Result<bool> {
    let amount = transfer.amount.0;
    if !(1..=AMOUNT_MSAT_MAX).contains(&amount) {
        return Err(StoreError::Amount(transfer.amount.to_sats_floor().0));
    }
    let house = match transfer.kind {
        TransferKind::Promotion => "promotion",
        TransferKind::Prepaid => "prepaid",
    };
    let failed = db("post to the ledger");
    let inserted = sqlx::query(INSERT)
        .bind(house)
        .bind(transfer.account_id.0)
        .bind(amount)
        .bind(transfer.kind.as_str())
        .bind(&transfer.idem)
        .bind(transfer.now.0)
        .fetch_optional(&mut **tx)
        .await
        .map_err(&failed)?;
    if inserted.is_none() {
        let before =
            sqlx::query(POSTED).bind(&transfer.idem).fetch_optional(&mut **tx).await.map_err(&failed)?;
        return if before.is_some() { Ok(false) } else { Err(StoreError::NotFound("account")) };
    }
    match sqlx::query(ADD_TO_BALANCE).bind(transfer.account_id.0).bind(amount).execute(&mut **tx).await {
        Ok(_) => Ok(true),
        Err(sqlx::Error::Database(error)) if error.kind() == ErrorKind::CheckViolation => {
            Err(StoreError::Amount(transfer.amount.to_sats_floor().0))
        }
        Err(error) => Err(failed(error)),
    }
}

#[async_trait]
impl Ledger for SqliteStore {
    async fn post(&self, transfer: Transfer) -> Result<bool> {
        let mut tx = self.begin().await?;
        let posted = post(&mut tx, &transfer).await?;
        commit(tx).await?;
        Ok(posted)
    }

    async fn credit(&self, account: AccountId, amount: Sats, idem: String, now: UnixMillis) -> Result<()> {
        let amount = amount.to_msat().ok_or(StoreError::Amount(amount.0))?;
        let transfer = Transfer { account_id: account, kind: TransferKind::Prepaid, amount, idem, now };
        self.post(transfer).await.map(|_| ())
    }

    async fn balance(&self, account: AccountId) -> Result<Msat> {
        let balance = sqlx::query_scalar(BALANCE).bind(account.0).fetch_optional(&self.readers).await;
        balance.map_err(db("read the balance"))?.map(Msat).ok_or(StoreError::NotFound("account"))
    }

    async fn check_ledger(&self) -> Result<LedgerReport> {
        let failed = db("check the ledger");
        // One transaction: all sums are of the same moment beside a running service.
        let mut tx = self.readers.begin().await.map_err(&failed)?;
        let totals = sqlx::query(TOTALS).fetch_one(&mut *tx).await.map_err(&failed)?;
        let mut report = LedgerReport {
            transfers: totals.try_get("transfers").map_err(&failed)?,
            debits_msat: totals.try_get("debits").map_err(&failed)?,
            credits_msat: totals.try_get("credits").map_err(&failed)?,
            ..LedgerReport::default()
        };
        if report.debits_msat != report.credits_msat {
            report.faults.push(LedgerFault {
                place: "sum of all credits against sum of all debits".to_owned(),
                expected_msat: report.debits_msat,
                found_msat: report.credits_msat,
            });
        }
        for row in sqlx::query(BALANCES).fetch_all(&mut *tx).await.map_err(&failed)? {
            report.balances += 1;
            let expected_msat: i64 = row.try_get("expected").map_err(&failed)?;
            let found_msat: i64 = row.try_get("found").map_err(&failed)?;
            if expected_msat != found_msat {
                let name: String = row.try_get("name").map_err(&failed)?;
                report.faults.push(LedgerFault {
                    place: format!("balance of {name}"),
                    expected_msat,
                    found_msat,
                });
            }
        }
        let orphans: Vec<String> =
            sqlx::query_scalar(WITHOUT_LEDGER).fetch_all(&mut *tx).await.map_err(&failed)?;
        report.faults.extend(orphans.into_iter().map(|name| LedgerFault {
            place: format!("account {name} has no ledger account"),
            expected_msat: 0,
            found_msat: 0,
        }));
        Ok(report)
    }
}
