//! Copies a SQLite file into an empty database of a PostgreSQL server, in one transaction of the server: it has everything,
//! or nothing.
//!
//! Tables, columns, types and references come from the catalogs, so that a migration needs no change here. Rows are read
//! one by one and sent in the binary form of COPY. Counts, the ledger and the key are compared before the commit.

use std::collections::BTreeSet;
use std::path::Path;

use futures_util::TryStreamExt as _;
use sqlx::postgres::{PgConnection, PgCopyIn, PgPool};
use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteRow};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use crate::address::Server;
use crate::engine::{Tx, postgres, sqlite, without_nul};
use crate::error::{Result, StoreError, db};
use crate::key_check;
use crate::ledger::check::{LedgerReport, check_in};
use satcast_core::secret::Vault;

/// Rows are collected up to this size, then sent.
const BATCH_BYTES: usize = 256 * 1_024;
/// Tables that have rows in a new database. The copy replaces these rows.
pub(crate) const SEEDED: [&str; 2] = ["key_check", "ledger_accounts"];
/// The migrations' own table: each database has that of its engine.
const MIGRATIONS: &str = "_sqlx_migrations";

/// Begin of the binary form of COPY: signature, flags, length of the extension.
const COPY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Its end: a row with -1 columns.
const COPY_TRAILER: [u8; 2] = (-1_i16).to_be_bytes();
/// Length of a NULL.
const COPY_NULL: [u8; 4] = (-1_i32).to_be_bytes();

/// Copies of large tables and checks of large ledgers take longer than a statement of the service may.
const NO_LIMITS: &str = "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";

const FILE_COLUMNS: &str = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c
    WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'";
const SERVER_COLUMNS: &str =
    "SELECT CAST(c.relname AS TEXT), CAST(a.attname AS TEXT), format_type(a.atttypid, NULL), a.attidentity IN ('a', 'd')
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY c.relname, a.attnum";
const SERVER_REFERENCES: &str =
    "SELECT CAST(c.relname AS TEXT), CAST(f.relname AS TEXT) FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
    JOIN pg_class f ON f.oid = k.confrelid JOIN pg_namespace n ON n.oid = k.connamespace
    WHERE n.nspname = current_schema() AND k.contype = 'f'";
/// Ids of deleted rows are not used again: keys may still name them.
const GREATEST_ID: &str = "SELECT MAX(COALESCE((SELECT seq FROM sqlite_sequence WHERE name = $1), 0),
    COALESCE((SELECT MAX({column}) FROM {table}), 0))";
const SET_SEQUENCE: &str = "SELECT setval(CAST(pg_get_serial_sequence($1, $2) AS regclass), $3)";

/// A finished copy.
#[derive(Debug)]
pub struct Copied {
    /// In the order in which they were copied.
    pub tables: Vec<CopiedTable>,
    /// The same for both databases, and without faults.
    pub ledger: LedgerReport,
}

/// A copied table and its rows.
#[derive(Debug, PartialEq, Eq)]
pub struct CopiedTable {
    pub name: String,
    /// Rows in the file.
    pub read: i64,
    /// Rows on the server.
    pub written: i64,
}

/// A table of the server.
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
}

pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Whether a sequence gives its values.
    is_identity: bool,
}

/// The types that columns have.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Integer,
    Text,
    Bytes,
}

/// Copies the file, whose schema is that of this release, to the server and migrates the schema there. Nothing may write to
/// either of them; the file is not changed. `vault` has the key of the file's secrets, which stay encrypted with it.
///
/// # Errors
/// Nothing was copied then. [`StoreError::NotEmpty`], [`StoreError::NotCopied`], [`StoreError::CopyFailed`],
/// [`StoreError::CopyDiffers`], [`StoreError::FaultyLedger`]; the key is another one, or a database cannot be opened.
pub async fn copy(file: &Path, server: &Server, vault: &Vault) -> Result<Copied> {
    refuse_others(server).await?;
    let source = sqlite::open_to_look(file).await?;
    let copied = match postgres::migrate(server).await {
        Ok(()) => {
            let target = postgres::single(server);
            let copied = copy_all(&source, &target, server, vault).await;
            target.close().await;
            copied
        }
        Err(error) => Err(error),
    };
    source.close().await;
    copied
}

/// Refuses a database with tables of another program, before the schema is made in it.
async fn refuse_others(server: &Server) -> Result<()> {
    let mut connection = postgres::connect(server).await?;
    let columns = server_columns(&mut connection).await?;
    // The connection has done its work; errors of its close do not matter.
    let _ = connection.close().await;
    if columns.iter().any(|(table, ..)| table == MIGRATIONS) {
        return Ok(());
    }
    match columns.into_iter().next() {
        Some((table, ..)) => Err(StoreError::NotEmpty { server: server.to_string(), table }),
        None => Ok(()),
    }
}

async fn copy_all(source: &SqlitePool, target: &PgPool, server: &Server, vault: &Vault) -> Result<Copied> {
    let mut from = source.begin().await.map_err(db("begin to read"))?;
    let mut to = postgres::begin(target).await?;
    let tables = tables(&mut from, &mut to).await?;
    let names: Vec<String> = tables.iter().map(|table| quoted(&table.name)).collect();
    let lock = format!("{NO_LIMITS}; LOCK TABLE {} IN EXCLUSIVE MODE", names.join(", "));
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut *to).await.map_err(db("lock the tables"))?;
    for table in &tables {
        make_empty(&mut to, server, table).await?;
    }
    let mut copied = Vec::with_capacity(tables.len());
    for table in &tables {
        let failed = |source| StoreError::CopyFailed { table: table.name.clone(), source };
        let count = copy_table(&mut from, &mut to, table).await.map_err(failed)?;
        if count.read != count.written {
            return Err(StoreError::CopyDiffers { what: format!("the rows of the table {}", table.name) });
        }
        copied.push(count);
    }
    // The check reads large joins, for which the server would have no statistics.
    let analyze = format!("ANALYZE {}", names.join(", "));
    sqlx::raw_sql(AssertSqlSafe(analyze)).execute(&mut *to).await.map_err(db("analyze the tables"))?;
    let (mut from, mut to) = (Tx::Sqlite(from), Tx::Postgres(to));
    key_check::check(&mut to, vault).await?;
    let ledger = check_in(&mut from).await?;
    if !ledger.faults.is_empty() {
        return Err(StoreError::FaultyLedger(ledger.faults.len()));
    }
    if check_in(&mut to).await? != ledger {
        return Err(StoreError::CopyDiffers { what: "the sums of the ledger".to_owned() });
    }
    to.commit().await?;
    Ok(Copied { tables: copied, ledger })
}

/// The tables of the server, each after those that it references. The file has the same.
pub(crate) async fn tables(from: &mut SqliteConnection, to: &mut PgConnection) -> Result<Vec<Table>> {
    let failed = db("read the schema");
    let in_file: Vec<(String, String)> =
        sqlx::query_as(FILE_COLUMNS).fetch_all(from).await.map_err(&failed)?;
    let columns = server_columns(to).await?;
    let references: Vec<(String, String)> =
        sqlx::query_as(SERVER_REFERENCES).fetch_all(to).await.map_err(&failed)?;
    let is_ours = |table: &str| table != MIGRATIONS;
    let in_file: BTreeSet<(String, String)> =
        in_file.into_iter().filter(|(table, _)| is_ours(table)).collect();
    let on_server: BTreeSet<(String, String)> = columns
        .iter()
        .filter(|(table, ..)| is_ours(table))
        .map(|(table, column, ..)| (table.clone(), column.clone()))
        .collect();
    if let Some((table, column)) = in_file.symmetric_difference(&on_server).next() {
        return Err(StoreError::NotCopied {
            what: format!("{table}.{column}"),
            why: "is in one of the two databases only",
        });
    }
    let mut tables: Vec<Table> = Vec::new();
    for (table, name, kind, is_identity) in columns.into_iter().filter(|(table, ..)| is_ours(table)) {
        let Some(kind) = Kind::of(&kind) else {
            return Err(StoreError::NotCopied {
                what: format!("{table}.{name}"),
                why: "has a type that cannot be copied",
            });
        };
        let column = Column { name, kind, is_identity };
        match tables.last_mut().filter(|last| last.name == table) {
            Some(last) => last.columns.push(column),
            None => tables.push(Table { name: table, columns: vec![column] }),
        }
    }
    in_order(tables, &references)
}

/// Table, column, type, and whether it is an identity column.
async fn server_columns(to: &mut PgConnection) -> Result<Vec<(String, String, String, bool)>> {
    sqlx::query_as(SERVER_COLUMNS).fetch_all(to).await.map_err(db("read the schema"))
}

/// Sorts tables by their references, which are pairs of a table and the one that it references.
fn in_order(mut left: Vec<Table>, references: &[(String, String)]) -> Result<Vec<Table>> {
    let mut sorted: Vec<Table> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let is_ready = |table: &Table| {
            let mut own = references.iter().filter(|(from, to)| *from == table.name && from != to);
            own.all(|(_, to)| sorted.iter().any(|done| done.name == *to))
        };
        let (ready, later): (Vec<Table>, Vec<Table>) = left.into_iter().partition(is_ready);
        if ready.is_empty() {
            let what = later.into_iter().map(|table| table.name).collect::<Vec<_>>().join(", ");
            return Err(StoreError::NotCopied { what, why: "reference each other in a circle" });
        }
        sorted.extend(ready);
        left = later;
    }
    Ok(sorted)
}

/// Removes the rows of a new database, and refuses any other.
async fn make_empty(to: &mut PgConnection, server: &Server, table: &Table) -> Result<()> {
    let failed = db("look for rows");
    let name = quoted(&table.name);
    if SEEDED.contains(&table.name.as_str()) {
        let delete = AssertSqlSafe(format!("DELETE FROM {name}"));
        return sqlx::query(delete).execute(to).await.map(drop).map_err(failed);
    }
    let ask = AssertSqlSafe(format!("SELECT EXISTS (SELECT 1 FROM {name})"));
    let has_rows: bool = sqlx::query_scalar(ask).fetch_one(to).await.map_err(failed)?;
    if has_rows {
        return Err(StoreError::NotEmpty { server: server.to_string(), table: table.name.clone() });
    }
    Ok(())
}

async fn copy_table(
    from: &mut SqliteConnection,
    to: &mut PgConnection,
    table: &Table,
) -> sqlx::Result<CopiedTable> {
    let name = quoted(&table.name);
    let columns: Vec<String> = table.columns.iter().map(|column| quoted(&column.name)).collect();
    let columns = columns.join(", ");
    let read = format!("SELECT {columns} FROM {name}");
    let mut copy =
        to.copy_in_raw(&format!("COPY {name} ({columns}) FROM STDIN WITH (FORMAT binary)")).await?;
    if let Err(error) = send(from, &mut copy, table, read).await {
        // The first error counts.
        let _ = copy.abort("the rows cannot be read").await;
        return Err(error);
    }
    copy.finish().await?;
    for column in table.columns.iter().filter(|column| column.is_identity) {
        continue_sequence(from, to, &table.name, &column.name).await?;
    }
    let count = format!("SELECT COUNT(*) FROM {name}");
    let read = sqlx::query_scalar(AssertSqlSafe(count.clone())).fetch_one(from).await?;
    let written = sqlx::query_scalar(AssertSqlSafe(count)).fetch_one(to).await?;
    Ok(CopiedTable { name: table.name.clone(), read, written })
}

/// Sends the rows of a table in batches, so that memory is bounded.
async fn send(
    from: &mut SqliteConnection,
    copy: &mut PgCopyIn<&mut PgConnection>,
    table: &Table,
    read: String,
) -> sqlx::Result<()> {
    let mut batch = COPY_HEADER.to_vec();
    let mut rows = sqlx::query(AssertSqlSafe(read)).fetch(from);
    while let Some(row) = rows.try_next().await? {
        encode(&row, &table.columns, &mut batch)?;
        if batch.len() >= BATCH_BYTES {
            copy.send(&batch[..]).await?;
            batch.clear();
        }
    }
    batch.extend_from_slice(&COPY_TRAILER);
    copy.send(&batch[..]).await.map(drop)
}

/// Appends a row in the binary form of COPY: the number of columns, then length and bytes of each value. The only place
/// where values of SQLite become values of PostgreSQL.
fn encode(row: &SqliteRow, columns: &[Column], batch: &mut Vec<u8>) -> sqlx::Result<()> {
    let count = i16::try_from(columns.len()).map_err(|error| sqlx::Error::Encode(error.into()))?;
    batch.extend_from_slice(&count.to_be_bytes());
    for (index, column) in columns.iter().enumerate() {
        match column.kind {
            Kind::Integer => append(batch, row.try_get::<Option<i64>, _>(index)?.map(i64::to_be_bytes))?,
            Kind::Text => append(batch, row.try_get::<Option<&str>, _>(index)?.map(without_nul))?,
            Kind::Bytes => append(batch, row.try_get::<Option<&[u8]>, _>(index)?)?,
        }
    }
    Ok(())
}

fn append(batch: &mut Vec<u8>, value: Option<impl AsRef<[u8]>>) -> sqlx::Result<()> {
    let Some(value) = value else {
        batch.extend_from_slice(&COPY_NULL);
        return Ok(());
    };
    let value = value.as_ref();
    let length = i32::try_from(value.len()).map_err(|error| sqlx::Error::Encode(error.into()))?;
    batch.extend_from_slice(&length.to_be_bytes());
    batch.extend_from_slice(value);
    Ok(())
}

/// Lets the sequence of an identity column go on where the file's ids end.
async fn continue_sequence(
    from: &mut SqliteConnection,
    to: &mut PgConnection,
    table: &str,
    column: &str,
) -> sqlx::Result<()> {
    let greatest = GREATEST_ID.replace("{column}", &quoted(column)).replace("{table}", &quoted(table));
    let greatest: i64 = sqlx::query_scalar(AssertSqlSafe(greatest)).bind(table).fetch_one(from).await?;
    if greatest > 0 {
        let set = sqlx::query(SET_SEQUENCE).bind(quoted(table)).bind(column).bind(greatest);
        set.execute(to).await?;
    }
    Ok(())
}

/// A name in the syntax of both engines.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Kind {
    /// By the server's name of the type.
    fn of(name: &str) -> Option<Self> {
        match name {
            "bigint" => Some(Self::Integer),
            "text" => Some(Self::Text),
            "bytea" => Some(Self::Bytes),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(tables: &[&str], references: &[(&str, &str)]) -> Result<Vec<String>> {
        let tables = tables.iter().map(|name| Table { name: (*name).to_owned(), columns: vec![] }).collect();
        let references: Vec<(String, String)> =
            references.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
        Ok(in_order(tables, &references)?.into_iter().map(|table| table.name).collect())
    }

    #[test]
    fn a_table_comes_after_those_that_it_references() {
        let references = [("a", "b"), ("b", "c"), ("a", "c"), ("c", "c")];
        assert_eq!(sorted(&["a", "b", "c", "d"], &references).unwrap(), ["c", "d", "b", "a"]);
        let circle = sorted(&["a", "b", "c"], &[("a", "b"), ("b", "a")]).unwrap_err();
        assert!(matches!(&circle, StoreError::NotCopied { what, .. } if what == "a, b"), "{circle}");
    }

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
