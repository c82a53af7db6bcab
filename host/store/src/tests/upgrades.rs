//! A newer schema refuses no statement of the last release, and a release opens a database that has only more than its
//! own schema.

use super::parity::{Schema, Table, of_postgres, of_sqlite};
use super::*;
use crate::engine::migrations::{NEWEST, migrator_to};

/// The newest step of the last release, 0.1.0: that of commit 508b8a81.
const RELEASED: i64 = 16;

/// Tables of the last release that may have rows of new tables: that release deletes nothing from them.
const NEVER_DELETED: [&str; 1] = ["sessions"];

/// The ways in which a newer schema can refuse a statement of an older release.
fn faults(old: &Schema, new: &Schema) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, before) in old {
        let Some(after) = new.get(name) else {
            faults.push(format!("{name} is gone"));
            continue;
        };
        let mut fault = |what: &str| faults.push(format!("{name}: {what}"));
        let known: Vec<_> = before.columns.iter().map(|column| &column.0).collect();
        let (kept, added): (Vec<_>, Vec<_>) =
            after.columns.iter().partition(|column| known.contains(&&column.0));
        if !kept.into_iter().eq(&before.columns) {
            fault("a column is gone or another one");
        }
        if added.iter().any(|(_, _, nullable, has_default)| !nullable && !has_default) {
            fault("an older release cannot fill a new column");
        }
        let unique =
            |table: &Table| -> Vec<_> { table.indexes.iter().filter(|index| index.2).cloned().collect() };
        let keys_differ = after.primary_key != before.primary_key || after.unique != before.unique;
        if keys_differ || unique(after) != unique(before) {
            fault("other rows are unique");
        }
        let references = after.references.iter().filter(|(column, _)| known.contains(&column));
        if !references.eq(&before.references) {
            fault("an old column has another reference");
        }
        if after.triggers != before.triggers || after.checks > before.checks + added.len() {
            fault("a trigger or check is another one");
        }
    }
    for (name, table) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
        let held = |other: &String| old.contains_key(other) && !NEVER_DELETED.contains(&other.as_str());
        if table.references.iter().any(|(_, other)| held(other)) {
            faults.push(format!("{name} keeps an older release from deleting"));
        }
    }
    faults
}

async fn schema(pool: &Pool) -> Schema {
    match pool {
        Pool::Sqlite(pool) => of_sqlite(pool).await,
        Pool::Postgres(pool) => of_postgres(pool).await,
    }
}

/// Migrates as the release did whose newest step has that number.
async fn migrate(pool: &Pool, newest: i64) {
    match pool {
        Pool::Sqlite(pool) => migrator_to(newest, |step| step.sqlite).run(pool).await.unwrap(),
        Pool::Postgres(pool) => migrator_to(newest, |step| step.postgres).run(pool).await.unwrap(),
    }
}

/// An empty database on the engine of the run.
async fn empty(rig: &Rig) -> Pool {
    match &rig.store.0.writer {
        Pool::Sqlite(_) => {
            let one = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1);
            Pool::Sqlite(one.connect("sqlite::memory:").await.unwrap())
        }
        Pool::Postgres(pool) => {
            script(&rig.store.0.writer, "DROP SCHEMA public CASCADE; CREATE SCHEMA public").await.unwrap();
            Pool::Postgres(pool.clone())
        }
    }
}

#[tokio::test]
async fn the_schema_refuses_no_statement_of_the_last_release() {
    let rig = Rig::new().await;
    let now = schema(&rig.store.0.writer).await;
    let pool = empty(&rig).await;
    migrate(&pool, RELEASED).await;
    let released = schema(&pool).await;
    assert!(released.len() > 15 && now.len() > released.len());
    assert_eq!(faults(&released, &now), Vec::<String>::new());
    migrate(&pool, NEWEST).await;
    assert_eq!(schema(&pool).await, now, "an upgrade gives what a new database has");
    migrate(&pool, RELEASED).await;
    assert_eq!(schema(&pool).await, now, "the last release changes nothing when it starts again");
}

#[tokio::test]
async fn changes_that_the_last_release_would_not_survive_are_found() {
    let rig = Rig::new().await;
    let pool = &rig.store.0.writer;
    let before = schema(pool).await;
    let harmless =
        "ALTER TABLE streams ADD COLUMN harmless TEXT; CREATE INDEX harmless ON streams (harmless)";
    script(pool, harmless).await.unwrap();
    let mut now = schema(pool).await;
    assert_eq!(faults(&before, &now), Vec::<String>::new());
    for change in [
        "DROP TABLE idempotency",
        "ALTER TABLE node_commands RENAME COLUMN node TO owner",
        "ALTER TABLE nodes DROP COLUMN advertise",
        "CREATE UNIQUE INDEX one_value ON key_check (value)",
        "CREATE TABLE notes (id BIGINT PRIMARY KEY, stream BIGINT REFERENCES streams (id))",
    ] {
        let sql = match pool {
            Pool::Sqlite(_) => change.replace("BIGINT", "INTEGER"),
            Pool::Postgres(_) => change.to_owned(),
        };
        script(pool, &sql).await.unwrap();
        let after = schema(pool).await;
        assert!(!faults(&now, &after).is_empty(), "{change}");
        now = after;
    }
}

async fn add_step(rig: &Rig, number: i64) {
    let step = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
        VALUES ($1, 'later', TRUE, $2, 0)";
    engine::query(step).bind(number).bind(vec![0_u8]).execute(&rig.store.0.writer).await.unwrap();
}

#[tokio::test]
async fn a_database_of_a_newer_release_is_used_within_a_major_version() {
    let rig = Rig::new().await;
    rig.account("me", 5_000).await.unwrap();
    add_step(&rig, NEWEST + 1).await;
    add_step(&rig, 999).await;
    rig.store.close().await;
    let store = open_at(&rig.path, 7).await;
    assert_eq!(store.count_accounts().await.unwrap(), 1);
    let database = testing::inspector(&rig.path).await;
    assert_eq!(database.schema_version().await.unwrap(), (999, NEWEST));
    assert!(crate::Inspector::accepts(999) && !crate::Inspector::accepts(1000));
    database.close().await;
}

#[tokio::test]
async fn a_database_of_the_next_major_version_is_refused() {
    let rig = Rig::new().await;
    add_step(&rig, 1000).await;
    rig.store.close().await;
    let error = try_open(&rig.path, 7).await.unwrap_err();
    assert!(matches!(error, StoreError::Migration(_)), "{error}");
}
