//! A database has one key, from its first start on.

use super::*;
use satcast_core::secret::VaultError;

async fn forget(rig: &Rig) {
    engine::query("DELETE FROM key_check").execute(&rig.store.0.writer).await.unwrap();
}

fn is_other_key(opened: &Result<Store>) -> bool {
    matches!(opened, Err(StoreError::Vault(VaultError::OtherKey)))
}

#[tokio::test]
async fn another_key_is_refused_before_there_is_a_secret() {
    let rig = Rig::new().await;
    assert!(is_other_key(&try_open(&rig.path, 8).await));
    assert!(try_open(&rig.path, 7).await.is_ok());
}

#[tokio::test]
async fn a_database_of_an_older_release_gets_its_check_value_by_the_key_of_its_secrets() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    rig.stream(account, 0).await.unwrap();
    forget(&rig).await;
    assert!(is_other_key(&try_open(&rig.path, 8).await));
    assert!(try_open(&rig.path, 7).await.is_ok());
    let values: i64 =
        engine::query_scalar("SELECT COUNT(*) FROM key_check").fetch_one(&rig.store.0.readers).await.unwrap();
    assert_eq!(values, 1);
}

#[tokio::test]
async fn of_two_first_starts_with_two_keys_one_is_refused() {
    let rig = Rig::new().await;
    forget(&rig).await;
    let (seven, eight) = tokio::join!(try_open(&rig.path, 7), try_open(&rig.path, 8));
    assert!(seven.is_ok() != eight.is_ok(), "{seven:?} {eight:?}");
    assert!(is_other_key(&seven) || is_other_key(&eight));
}
