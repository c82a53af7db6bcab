//! The two schemas are equivalent.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::Row as _;
use sqlx::postgres::PgPool;
use sqlx::sqlite::SqlitePool;

use super::*;

/// One table in a form that is independent of the engine.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// Name, type, whether it may be null, whether it has a default.
    pub(super) columns: BTreeSet<(String, &'static str, bool, bool)>,
    pub(super) primary_key: Vec<String>,
    /// Columns that are unique together, without a name of their own.
    pub(super) unique: BTreeSet<Vec<String>>,
    /// Name, columns, whether it is unique, whether it is partial.
    pub(super) indexes: BTreeSet<(String, Vec<String>, bool, bool)>,
    /// Column, other table.
    pub(super) references: BTreeSet<(String, String)>,
    /// Number of checks.
    pub(super) checks: usize,
    pub(super) triggers: BTreeSet<String>,
}

pub(super) type Schema = BTreeMap<String, Table>;

async fn text(pool: &SqlitePool, sql: &str, table: &str) -> Vec<sqlx::sqlite::SqliteRow> {
    sqlx::query(AssertSqlSafe(sql.to_owned())).bind(table.to_owned()).fetch_all(pool).await.unwrap()
}

pub(super) async fn of_sqlite(pool: &SqlitePool) -> Schema {
    let mut schema = Schema::new();
    let tables = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
        AND name <> '_sqlx_migrations'";
    for row in sqlx::query(tables).fetch_all(pool).await.unwrap() {
        let (name, sql): (String, String) = (row.get("name"), row.get("sql"));
        let mut table = Table { checks: sql.matches("CHECK (").count(), ..Table::default() };
        let mut primary_key = BTreeMap::new();
        for row in text(pool, "SELECT * FROM pragma_table_info($1)", &name).await {
            let (column, kind): (String, String) = (row.get("name"), row.get("type"));
            let kind = match kind.as_str() {
                "INTEGER" => "integer",
                "TEXT" => "text",
                "BLOB" => "bytes",
                other => panic!("{name}.{column} is {other}"),
            };
            let (place, required): (i64, i64) = (row.get("pk"), row.get("notnull"));
            if place > 0 {
                primary_key.insert(place, column.clone());
            }
            let default: Option<String> = row.get("dflt_value");
            table.columns.insert((column, kind, required == 0 && place == 0, default.is_some()));
        }
        table.primary_key = primary_key.into_values().collect();
        for row in text(pool, "SELECT * FROM pragma_index_list($1)", &name).await {
            let (index, origin): (String, String) = (row.get("name"), row.get("origin"));
            let (unique, partial): (i64, i64) = (row.get("unique"), row.get("partial"));
            let columns = text(pool, "SELECT name FROM pragma_index_info($1) ORDER BY seqno", &index).await;
            let columns: Vec<String> = columns.iter().map(|row| row.get("name")).collect();
            match origin.as_str() {
                "c" => drop(table.indexes.insert((index, columns, unique != 0, partial != 0))),
                "u" => drop(table.unique.insert(columns)),
                _ => {}
            }
        }
        for row in text(pool, "SELECT * FROM pragma_foreign_key_list($1)", &name).await {
            table.references.insert((row.get("from"), row.get("table")));
        }
        let triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = $1";
        table.triggers = text(pool, triggers, &name).await.iter().map(|row| row.get("name")).collect();
        schema.insert(name, table);
    }
    schema
}

async fn rows(pool: &PgPool, sql: &'static str) -> Vec<sqlx::postgres::PgRow> {
    sqlx::query(sql).fetch_all(pool).await.unwrap()
}

const PG_COLUMNS: &str = "SELECT table_name::text AS tab, column_name::text AS name, data_type::text AS kind,
    is_nullable = 'YES' AS nullable, column_default IS NOT NULL AS has_default FROM information_schema.columns
    WHERE table_schema = 'public' AND table_name <> '_sqlx_migrations'";
const PG_CONSTRAINTS: &str = "SELECT c.conrelid::regclass::text AS tab, c.contype::text AS kind, c.confrelid::regclass::text AS other,
    (SELECT array_agg(a.attname::text ORDER BY k.place) FROM unnest(c.conkey) WITH ORDINALITY k (number, place)
        JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number) AS columns
    FROM pg_constraint c WHERE c.connamespace = 'public'::regnamespace AND c.conrelid::regclass::text <> '_sqlx_migrations'";
const PG_INDEXES: &str = "SELECT i.indrelid::regclass::text AS tab, i.indexrelid::regclass::text AS name,
    i.indisunique AS is_unique, i.indpred IS NOT NULL AS partial,
    (SELECT array_agg(a.attname::text ORDER BY k.place) FROM unnest(i.indkey) WITH ORDINALITY k (number, place)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number) AS columns
    FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid WHERE t.relnamespace = 'public'::regnamespace
    AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = i.indexrelid AND c.contype IN ('p', 'u'))";
const PG_TRIGGERS: &str =
    "SELECT tgrelid::regclass::text AS tab, tgname::text AS name FROM pg_trigger WHERE NOT tgisinternal";

pub(super) async fn of_postgres(pool: &PgPool) -> Schema {
    let mut schema = Schema::new();
    for row in rows(pool, PG_COLUMNS).await {
        let kind = match row.get::<String, _>("kind").as_str() {
            "bigint" => "integer",
            "text" => "text",
            "bytea" => "bytes",
            other => panic!("a column is {other}"),
        };
        let column = (row.get("name"), kind, row.get("nullable"), row.get("has_default"));
        schema.entry(row.get("tab")).or_default().columns.insert(column);
    }
    for row in rows(pool, PG_CONSTRAINTS).await {
        let table: &mut Table = schema.entry(row.get("tab")).or_default();
        let columns: Option<Vec<String>> = row.get("columns");
        let columns = columns.unwrap_or_default();
        match row.get::<String, _>("kind").as_str() {
            "p" => table.primary_key = columns,
            "u" => drop(table.unique.insert(columns)),
            "f" => drop(table.references.insert((columns[0].clone(), row.get("other")))),
            "c" => table.checks += 1,
            other => panic!("a constraint is {other}"),
        }
    }
    for row in rows(pool, PG_INDEXES).await {
        let index = (row.get("name"), row.get("columns"), row.get("is_unique"), row.get("partial"));
        schema.entry(row.get("tab")).or_default().indexes.insert(index);
    }
    for row in rows(pool, PG_TRIGGERS).await {
        schema.entry(row.get("tab")).or_default().triggers.insert(row.get("name"));
    }
    schema.remove("_sqlx_migrations");
    schema
}

#[tokio::test]
async fn both_engines_have_the_same_tables() {
    if testing::server().is_none() {
        return;
    }
    let rig = Rig::new().await;
    let folder = tempfile::tempdir().unwrap();
    let store = open_file(&folder.path().join("t.db"), Durability::Normal, 7).await.unwrap();
    let (Pool::Sqlite(sqlite), Pool::Postgres(postgres)) = (&store.0.writer, &rig.store.0.writer) else {
        panic!("one of each")
    };
    let (sqlite, postgres) = (of_sqlite(sqlite).await, of_postgres(postgres).await);
    assert_eq!(sqlite.keys().collect::<Vec<_>>(), postgres.keys().collect::<Vec<_>>());
    assert!(sqlite.len() > 15);
    for (name, table) in &sqlite {
        assert_eq!(table, &postgres[name], "{name}");
    }
}
