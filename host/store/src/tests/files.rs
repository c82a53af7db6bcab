//! SQLite only: files, their permissions, copies of them.

use sqlx::sqlite::SqlitePool;

use super::*;
use crate::engine::migrations;
use crate::{Address, Inspector};
use satcast_core::secret::VaultError;

async fn inspect(path: &Path) -> Result<Inspector> {
    Inspector::open(&Address::File(path.to_owned())).await
}

pub(super) async fn rig() -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    Rig { store: open_file(&path, Durability::Full, 7).await.unwrap(), path, _folder: folder }
}

fn sqlite(pool: &Pool) -> &SqlitePool {
    let Pool::Sqlite(pool) = pool else { panic!("a file") };
    pool
}

#[tokio::test]
async fn secrets_are_encrypted_in_files_and_need_the_key() {
    let rig = rig().await;
    let account = rig.account("me", 0).await.unwrap();
    let key = new_stream_key();
    let stream = NewStream {
        srt_passphrase: None,
        allowed: Default::default(),
        label: "test".into(),
        stream_key: key.clone(),
        destinations: vec![target()],
        caps: CAPS,
    };
    let (stream, _) = rig.store.create_stream(&by(account), stream).await.unwrap();
    assert_eq!(rig.store.stream_of(account, stream).await.unwrap().unwrap().stream_key, key);
    assert_eq!(rig.store.destinations_of(stream).await.unwrap()[0].config, target().config);
    rig.store.close().await;
    for entry in std::fs::read_dir(rig.path.parent().unwrap()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        for secret in [key.expose().as_str(), "s3cret"] {
            assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
        }
    }
    let other = open_file(&rig.path, Durability::Full, 8).await.unwrap_err();
    assert!(matches!(other, StoreError::Vault(VaultError::OtherKey)), "{other}");
}

#[tokio::test]
async fn a_backup_is_whole_private_and_never_overwrites() {
    use std::os::unix::fs::PermissionsExt as _;
    let rig = rig().await;
    let account = rig.account("me", 5_000).await.unwrap();
    let target = rig.path.with_file_name("copy.db");
    let database = inspect(&rig.path).await.unwrap();
    database.backup(&target).await.unwrap();
    assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(database.backup(&target).await, Err(StoreError::File { .. })));
    rig.account("late", 1).await.unwrap();
    let copy = open_file(&target, Durability::Full, 7).await.unwrap();
    assert_eq!(copy.balance(account).await.unwrap(), Msat(5_000));
    assert_eq!(copy.count_accounts().await.unwrap(), 1);
}

#[tokio::test]
async fn durability_and_journal_are_as_configured() {
    let rig = rig().await;
    let journal: String =
        sqlx::query_scalar("PRAGMA journal_mode").fetch_one(sqlite(&rig.store.0.writer)).await.unwrap();
    let synchronous: i64 =
        sqlx::query_scalar("PRAGMA synchronous").fetch_one(sqlite(&rig.store.0.writer)).await.unwrap();
    assert_eq!((journal.as_str(), synchronous), ("wal", 2));
    let write = engine::query("INSERT INTO accounts (name, created_ms) VALUES ('x', 0)")
        .execute(&rig.store.0.readers);
    assert!(write.await.is_err(), "readers cannot write");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&rig.path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let normal = open_file(&rig.path, Durability::Normal, 7).await.unwrap();
    let synchronous: i64 =
        sqlx::query_scalar("PRAGMA synchronous").fetch_one(sqlite(&normal.0.writer)).await.unwrap();
    assert_eq!(synchronous, 1);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    std::fs::write(&path, "x".repeat(10_000)).unwrap();
    assert!(open_file(&path, Durability::Full, 7).await.is_err());
    let nowhere = folder.path().join("missing/t.db");
    let error = open_file(&nowhere, Durability::Full, 7).await.unwrap_err();
    assert!(error.to_string().contains("missing/t.db-migrate"), "{error}");
}

#[tokio::test]
async fn inspecting_a_database_does_not_change_it() {
    let rig = rig().await;
    let account = rig.account("me", 5_000).await.unwrap();
    let database = inspect(&rig.path).await.unwrap();
    let newest = migrations::NEWEST;
    assert_eq!(database.schema_version().await.unwrap(), (newest, newest));
    let checked = async |key| database.check_key(&Vault::new(&[key; 32])).await;
    assert!(database.needs_key().await.unwrap());
    engine::query("DROP TABLE key_check").execute(&rig.store.0.writer).await.unwrap();
    assert!(!database.needs_key().await.unwrap(), "an older schema without secrets");
    checked(8).await.unwrap();
    rig.stream(account, 0).await.unwrap();
    assert!(database.needs_key().await.unwrap(), "beside a running service");
    checked(7).await.unwrap();
    let other = checked(8).await.unwrap_err();
    assert!(matches!(other, StoreError::Vault(VaultError::OtherKey)), "{other}");
    engine::query("DELETE FROM _sqlx_migrations").execute(&rig.store.0.writer).await.unwrap();
    assert_eq!(database.schema_version().await.unwrap(), (0, newest), "an old schema stays old");
    assert_eq!(database.check_ledger().await.unwrap().transfers, 1);
    database.close().await;
    rig.store.close().await;
    let before = std::fs::read(&rig.path).unwrap();
    let database = inspect(&rig.path).await.unwrap();
    assert_eq!(database.schema_version().await.unwrap(), (0, newest));
    database.check_ledger().await.unwrap();
    database.close().await;
    assert!(std::fs::read(&rig.path).unwrap() == before);
    let missing = rig.path.with_file_name("missing.db");
    assert!(inspect(&missing).await.is_err() && !missing.exists());
}
