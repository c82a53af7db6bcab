//! A disk that is full for a while. In a process of its own, as the limit that stands in for the disk is the process's.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use satcast_core::config::Durability;
use satcast_core::ids::{Msat, UnixMillis};
use satcast_core::secret::{Redacted, Vault};
use satcast_store::{NewAccount, OpenOptions, Origin, Store};
use tokio::signal::unix::{SignalKind, signal};

/// `SIGXFSZ`, which ends a process that writes past the limit unless it is handled.
const SIGXFSZ: i32 = 25;
/// Remaining growth of the write-ahead log.
const FREE_BYTES: u64 = 16 * 1024;
/// Writes until the disk must be full.
const WRITES_MAX: u32 = 500;

async fn account(store: &Store, number: u32) -> bool {
    let account = NewAccount {
        name: format!("account {number}"),
        password_hash: None,
        operator: false,
        initial_credit: Msat(0),
    };
    store.create_account(&Origin::command(UnixMillis(1)), account).await.is_ok()
}

#[tokio::test]
async fn writes_continue_when_a_full_disk_has_free_space_again() {
    let _handled = signal(SignalKind::from_raw(SIGXFSZ)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.db");
    let url = Redacted::new(format!("sqlite:{}", file.display()));
    let vault = Vault::new(&[7; 32]);
    let store =
        satcast_store::open(OpenOptions { url, durability: Durability::Full, vault, low_balance: Msat(0) })
            .await
            .unwrap();
    assert!(account(&store, 0).await);

    let log_bytes = std::fs::metadata(folder.path().join("t.db-wal")).unwrap().len();
    let (_, hard) = rlimit::Resource::FSIZE.get().unwrap();
    rlimit::Resource::FSIZE.set(log_bytes + FREE_BYTES, hard).unwrap();
    let mut number = 1;
    while account(&store, number).await {
        number += 1;
        assert!(number < WRITES_MAX, "the limit has no effect");
    }
    // Closing the failed connection frees the space of its log, so that one more write may fit.
    let fits_again = account(&store, number).await;
    assert!(store.count_accounts().await.unwrap() >= 1, "reads still work");

    rlimit::Resource::FSIZE.set(hard, hard).unwrap();
    assert!(fits_again || account(&store, number).await, "there is free space again");
    assert_eq!(store.count_accounts().await.unwrap(), i64::from(number) + 1, "failed writes left nothing");
}
