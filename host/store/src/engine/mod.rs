//! The two engines. A statement is written once, in SQL that SQLite and PostgreSQL both understand, and runs on the
//! concrete pool of either.
//!
//! Code for one engine is in [`sqlite`] and [`postgres`]. SQLite has one writer, so nothing changes between a read and
//! a write of one transaction. On PostgreSQL transactions run in parallel: one that decides from what it read takes a
//! [`Lock`](crate::store::Lock) first, usually that of its account.
//!
//! The few statements that must differ are a [`Sql`] with two texts. Integers are BIGINT and decoded as such, so a sum
//! needs `CAST(... AS BIGINT)`: PostgreSQL's sums are NUMERIC.

pub(crate) mod migrations;
pub(crate) mod owner;
pub(crate) mod postgres;
pub(crate) mod sqlite;
pub(crate) mod timing;

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use sqlx::postgres::{PgArguments, PgPool, PgRow, Postgres};
use sqlx::sqlite::{Sqlite, SqliteArguments, SqlitePool, SqliteRow};
use sqlx::{Decode, FromRow, Row as _, Transaction, Type};

use crate::error::{Result, db};
use timing::STATEMENTS;

/// How long a caller waits for a free connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Replaces the character NUL, which a PostgreSQL text cannot contain.
const NUL_STAND_IN: &str = "\u{FFFD}";

/// A text as PostgreSQL can store it.
pub(crate) fn without_nul(text: &str) -> String {
    text.replace('\0', NUL_STAND_IN)
}

/// Connections of one engine.
#[derive(Clone, Debug)]
pub(crate) enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Pool {
    /// A read-only transaction that sees one moment of the database.
    pub(crate) async fn begin_snapshot(&self) -> sqlx::Result<Tx> {
        Ok(match self {
            Self::Sqlite(pool) => Tx::Sqlite(pool.begin().await?),
            Self::Postgres(pool) => {
                Tx::Postgres(pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?)
            }
        })
    }

    /// Connections that are open, and how many of them are idle.
    pub(crate) fn counts(&self) -> (u32, usize) {
        match self {
            Self::Sqlite(pool) => (pool.size(), pool.num_idle()),
            Self::Postgres(pool) => (pool.size(), pool.num_idle()),
        }
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

/// A transaction on one engine; it is rolled back when dropped without a commit.
pub(crate) enum Tx {
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(Transaction<'static, Postgres>),
}

impl Tx {
    pub(crate) async fn commit(self) -> Result<()> {
        let committed = match self {
            Self::Sqlite(tx) => tx.commit().await,
            Self::Postgres(tx) => tx.commit().await,
        };
        committed.map_err(db("commit"))
    }
}

/// Executor of a statement.
pub(crate) enum Target<'a> {
    SqlitePool(&'a SqlitePool),
    PostgresPool(&'a PgPool),
    Sqlite(&'a mut Transaction<'static, Sqlite>),
    Postgres(&'a mut Transaction<'static, Postgres>),
}

impl<'a> From<&'a Pool> for Target<'a> {
    fn from(pool: &'a Pool) -> Self {
        match pool {
            Pool::Sqlite(pool) => Self::SqlitePool(pool),
            Pool::Postgres(pool) => Self::PostgresPool(pool),
        }
    }
}

impl<'a> From<&'a mut Tx> for Target<'a> {
    fn from(tx: &'a mut Tx) -> Self {
        match tx {
            Tx::Sqlite(tx) => Self::Sqlite(tx),
            Tx::Postgres(tx) => Self::Postgres(tx),
        }
    }
}

/// The text of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sql {
    pub(crate) sqlite: &'static str,
    pub(crate) postgres: &'static str,
}

impl From<&'static str> for Sql {
    fn from(text: &'static str) -> Self {
        Self { sqlite: text, postgres: text }
    }
}

/// A statement with the database's clock, in milliseconds, between its parts.
macro_rules! timed {
    ($first:literal $(, $rest:literal)+) => {
        $crate::engine::Sql {
            sqlite: concat!($first $(, "(unixepoch() * 1000)", $rest)+),
            postgres: concat!(
                $first $(, "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)", $rest)+
            ),
        }
    };
}
pub(crate) use timed;

/// One parameter. A NULL has a type too, because PostgreSQL needs it.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Bool(bool),
    Integer(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

/// `From` for parameter types, with the conversion into the variant.
macro_rules! values {
    ($($variant:ident: $($from:ty => $into:expr),+;)+) => {$($(
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                let into: fn($from) -> _ = $into;
                Self::$variant(into(value))
            }
        }
    )+)+};
}
values! {
    Bool: bool => |value| value;
    Integer: i64 => Some, &i64 => |value| Some(*value), Option<i64> => |value| value;
    Text: String => Some, &String => |value| Some(value.clone()), &str => |value| Some(value.to_owned()),
        Option<String> => |value| value, &Option<String> => Clone::clone,
        Option<&str> => |value| value.map(str::to_owned), Option<&String> => |value| value.cloned();
    Bytes: Vec<u8> => Some, &Vec<u8> => |value| Some(value.clone()), &[u8] => |value| Some(value.to_vec()),
        Option<Vec<u8>> => |value| value;
}

/// A row of one engine.
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// Types that a column can be decoded to.
pub(crate) trait Column:
    for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres>
{
}

impl<T> Column for T where
    T: for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres>
{
}

/// Types that a whole row can be decoded to: a tuple of its columns.
pub(crate) trait Record: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> {}

impl<T> Record for T where T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> {}

impl Row {
    pub(crate) fn try_get<T: Column>(&self, name: &str) -> sqlx::Result<T> {
        match self {
            Self::Sqlite(row) => row.try_get(name),
            Self::Postgres(row) => row.try_get(name),
        }
    }

    fn record<T: Record>(&self) -> sqlx::Result<T> {
        match self {
            Self::Sqlite(row) => T::from_row(row),
            Self::Postgres(row) => T::from_row(row),
        }
    }
}

/// A statement with its parameters.
#[must_use = "it does nothing until it is run"]
pub(crate) struct Query {
    sql: Sql,
    values: Vec<Value>,
}

/// A statement whose columns are read by name.
pub(crate) fn query(sql: impl Into<Sql>) -> Query {
    Query { sql: sql.into(), values: Vec::new() }
}

/// A statement whose rows are decoded to tuples.
pub(crate) fn query_as<T: Record>(sql: impl Into<Sql>) -> QueryAs<T> {
    QueryAs { query: query(sql), read: Row::record }
}

/// A statement whose rows have one column.
pub(crate) fn query_scalar<T: Column>(sql: impl Into<Sql>) -> QueryAs<T> {
    QueryAs { query: query(sql), read: |row| row.record().map(|(value,)| value) }
}

/// Runs a method of sqlx on either engine, and converts its result.
macro_rules! run {
    ($query:expr, $target:expr, $method:ident, $sqlite:expr, $postgres:expr) => {
        match $target.into() {
            Target::SqlitePool(pool) => STATEMENTS.of($query.for_sqlite().$method(pool)).await.map($sqlite),
            Target::Sqlite(tx) => STATEMENTS.of($query.for_sqlite().$method(&mut **tx)).await.map($sqlite),
            Target::PostgresPool(pool) => {
                STATEMENTS.of($query.for_postgres().$method(pool)).await.map($postgres)
            }
            Target::Postgres(tx) => {
                STATEMENTS.of($query.for_postgres().$method(&mut **tx)).await.map($postgres)
            }
        }
    };
}

impl Query {
    /// Binds the next parameter.
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Returns the number of changed rows.
    pub(crate) async fn execute<'a>(self, on: impl Into<Target<'a>>) -> sqlx::Result<u64> {
        run!(self, on, execute, |done| done.rows_affected(), |done| done.rows_affected())
    }

    pub(crate) async fn fetch_one<'a>(self, on: impl Into<Target<'a>>) -> sqlx::Result<Row> {
        run!(self, on, fetch_one, Row::Sqlite, Row::Postgres)
    }

    pub(crate) async fn fetch_optional<'a>(self, on: impl Into<Target<'a>>) -> sqlx::Result<Option<Row>> {
        run!(self, on, fetch_optional, |row| row.map(Row::Sqlite), |row| row.map(Row::Postgres))
    }

    pub(crate) async fn fetch_all<'a>(self, on: impl Into<Target<'a>>) -> sqlx::Result<Vec<Row>> {
        run!(self, on, fetch_all, |rows| rows.into_iter().map(Row::Sqlite).collect(), |rows| rows
            .into_iter()
            .map(Row::Postgres)
            .collect())
    }

    fn for_sqlite(self) -> sqlx::query::Query<'static, Sqlite, SqliteArguments> {
        self.values.into_iter().fold(sqlx::query(self.sql.sqlite), |query, value| match value {
            Value::Bool(value) => query.bind(value),
            Value::Integer(value) => query.bind(value),
            Value::Text(value) => query.bind(value),
            Value::Bytes(value) => query.bind(value),
        })
    }

    fn for_postgres(self) -> sqlx::query::Query<'static, Postgres, PgArguments> {
        self.values.into_iter().fold(sqlx::query(self.sql.postgres), |query, value| match value {
            Value::Bool(value) => query.bind(value),
            Value::Integer(value) => query.bind(value),
            Value::Text(value) => query.bind(value.as_deref().map(without_nul)),
            Value::Bytes(value) => query.bind(value),
        })
    }
}

/// A statement whose rows are decoded to `T`.
#[must_use = "it does nothing until it is run"]
pub(crate) struct QueryAs<T> {
    query: Query,
    read: fn(&Row) -> sqlx::Result<T>,
}

impl<T> QueryAs<T> {
    /// Binds the next parameter.
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.query = self.query.bind(value);
        self
    }

    pub(crate) async fn fetch_one<'a>(self, on: impl Into<Target<'a>>) -> sqlx::Result<T> {
        (self.read)(&self.query.fetch_one(on).await?)
    }

    pub(crate) async fn fetch_optional<'a>(self, on: impl Into<Target<'a>>) -> sqlx::Result<Option<T>> {
        self.query.fetch_optional(on).await?.as_ref().map(self.read).transpose()
    }

    pub(crate) async fn fetch_all<'a>(self, on: impl Into<Target<'a>>) -> sqlx::Result<Vec<T>> {
        self.query.fetch_all(on).await?.iter().map(self.read).collect()
    }

    /// The rows one by one, for results that are too large for memory.
    pub(crate) fn fetch(self, tx: &mut Tx) -> BoxStream<'_, sqlx::Result<T>>
    where
        T: 'static,
    {
        let read = self.read;
        match tx {
            Tx::Sqlite(tx) => {
                let rows = self.query.for_sqlite().fetch(&mut **tx);
                rows.map(move |row| read(&Row::Sqlite(row?))).boxed()
            }
            Tx::Postgres(tx) => {
                let rows = self.query.for_postgres().fetch(&mut **tx);
                rows.map(move |row| read(&Row::Postgres(row?))).boxed()
            }
        }
    }
}
