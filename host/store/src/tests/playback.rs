//! Playback: paths, keys of viewers, bandwidth.

use super::*;
use crate::Bandwidth;
use satcast_core::ids::{HOUR_MS, JSON_INTEGER_MAX, KeyId};
use satcast_core::secret::new_playback_path;

const HOUR: UnixMillis = UnixMillis(500_000 * HOUR_MS);

fn hosted() -> NewDestination {
    NewDestination {
        kind: "self-hosted".into(),
        platform: "self-hosted".into(),
        config: json!({"dvrSeconds": 60}),
        has_playback: true,
        delays: Default::default(),
    }
}

impl Rig {
    /// A stream with a destination of another type and a self-hosted one: stream, other, self-hosted.
    pub(super) async fn hosted(&self, account: AccountId) -> (StreamId, DestinationId, DestinationId) {
        let (stream, ids) = self.stream(account, 1).await.unwrap();
        let hosted = self.store.add_destination(&by(account), stream, hosted(), CAPS).await.unwrap();
        (stream, ids[0], hosted)
    }

    async fn public_key(&self, account: AccountId, destination: DestinationId) -> Result<(KeyId, [u8; 32])> {
        let key = new_api_key(KeyKind::Public);
        let hash = key_hash(key.expose());
        let new = NewKey {
            login: None,
            kind: KeyKind::Public,
            key,
            scopes: Scopes::NONE,
            destination_id: Some(destination),
            label: String::new(),
            caps: CAPS,
        };
        Ok((self.store.create_key(&by(account), new).await?, hash))
    }

    async fn path_of(&self, stream: StreamId, destination: DestinationId) -> Option<String> {
        let records = self.store.destinations_of(stream).await.unwrap();
        records.into_iter().find(|record| record.id == destination).unwrap().playback_path
    }

    pub(super) async fn run(&self, sql: &'static str) {
        script(&self.store.0.writer, sql).await.unwrap();
    }
}

#[tokio::test]
async fn only_types_with_playback_get_a_path_of_their_own() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let stream = NewStream {
        srt_passphrase: None,
        allowed: Default::default(),
        label: "test".into(),
        stream_key: new_stream_key(),
        destinations: vec![target(), hosted()],
        caps: CAPS,
    };
    let (stream, ids) = rig.store.create_stream(&by(account), stream).await.unwrap();
    let later = rig.store.add_destination(&by(account), stream, hosted(), CAPS).await.unwrap();
    assert_eq!(rig.path_of(stream, ids[0]).await, None);
    let (first, second) =
        (rig.path_of(stream, ids[1]).await.unwrap(), rig.path_of(stream, later).await.unwrap());
    assert!(first.len() == 22 && first.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{first}");
    assert_ne!(first, second);
    let views = rig.store.destinations_page(account, stream, ALL).await.unwrap().unwrap();
    let paths: Vec<_> = views.into_iter().map(|view| view.playback_path).collect();
    assert_eq!(paths, [Some(second), Some(first), None]);
    let twice = "UPDATE destinations SET playback_path = 'same' WHERE playback_path IS NOT NULL";
    assert!(engine::query(twice).execute(&rig.store.0.writer).await.is_err(), "a path belongs to one");
}

#[tokio::test]
async fn public_keys_belong_to_destinations_with_playback() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (_, other, hosted) = rig.hosted(account).await;
    let refused = rig.public_key(account, other).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("destination {other} has no playback; public keys belong to destinations with playback")
    );
    rig.public_key(account, hosted).await.unwrap();
}

#[tokio::test]
async fn a_destination_is_found_by_key_hash_key_and_path() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (stream, _, hosted_id) = rig.hosted(account).await;
    let (key, hash) = rig.public_key(account, hosted_id).await.unwrap();
    let path = rig.path_of(stream, hosted_id).await.unwrap();
    let (found, record) = rig.store.playback_by_key_hash(&hash).await.unwrap().unwrap();
    assert_eq!(found, key);
    assert_eq!((record.destination_id, record.stream_id, record.account_id), (hosted_id, stream, account));
    assert_eq!((record.label.as_str(), record.enabled, &record.config), ("test", true, &hosted().config));
    assert_eq!(record.playback_path, path);
    assert!(!format!("{record:?}").contains("dvrSeconds"), "configurations are not printed");
    assert_eq!(rig.store.playback_by_key(key).await.unwrap().as_ref(), Some(&record));
    assert_eq!(rig.store.playback_by_path(&path).await.unwrap(), Some(record));
    rig.run("UPDATE destinations SET enabled = 0").await;
    assert!(!rig.store.playback_by_key(key).await.unwrap().unwrap().enabled);
    assert!(rig.store.playback_by_path(&new_playback_path()).await.unwrap().is_none());
    assert!(rig.store.playback_by_path("").await.unwrap().is_none());
}

#[tokio::test]
async fn revoked_permanent_and_deleted_are_not_found() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (stream, _, hosted) = rig.hosted(account).await;
    let (key, hash) = rig.public_key(account, hosted).await.unwrap();
    let path = rig.path_of(stream, hosted).await.unwrap();
    let found = async || {
        let by_hash = rig.store.playback_by_key_hash(&hash).await.unwrap().is_some();
        let by_key = rig.store.playback_by_key(key).await.unwrap().is_some();
        (by_hash, by_key, rig.store.playback_by_path(&path).await.unwrap().is_some())
    };
    assert_eq!(found().await, (true, true, true));
    rig.run("UPDATE api_keys SET revoked_ms = 1").await;
    assert_eq!(found().await, (false, false, true));
    rig.run(
        "UPDATE api_keys SET revoked_ms = NULL, kind = 'permanent', destination_id = NULL, key_sealed = NULL",
    )
    .await;
    assert_eq!(found().await, (false, false, true));
    let (key, hash) = rig.public_key(account, hosted).await.unwrap();
    rig.run("UPDATE streams SET deleted_ms = 1").await;
    assert!(rig.store.playback_by_key(key).await.unwrap().is_none(), "its stream is deleted");
    assert!(rig.store.playback_by_path(&path).await.unwrap().is_none());
    rig.run("UPDATE streams SET deleted_ms = NULL").await;
    rig.store.delete_destination(&by(account), Some(stream), hosted).await.unwrap();
    assert!(rig.store.playback_by_key_hash(&hash).await.unwrap().is_none());
    assert!(rig.store.playback_by_path(&path).await.unwrap().is_none());
}

#[tokio::test]
async fn a_damaged_configuration_is_an_error_and_not_another_answer() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (_, _, hosted) = rig.hosted(account).await;
    let (key, _) = rig.public_key(account, hosted).await.unwrap();
    let damage = engine::query("UPDATE destinations SET config_sealed = $1").bind(vec![1_u8]);
    damage.execute(&rig.store.0.writer).await.unwrap();
    assert!(matches!(rig.store.playback_by_key(key).await, Err(StoreError::Vault(_))));
}

#[tokio::test]
async fn bandwidth_adds_up_by_account_and_hour_and_outlives_its_destination() {
    let rig = Rig::new().await;
    let (account, other) = (rig.account("me", 0).await.unwrap(), rig.account("you", 0).await.unwrap());
    let (stream, second, hosted) = rig.hosted(account).await;
    let (_, _, foreign) = rig.hosted(other).await;
    let sent = |account, destination, hour: i64, bytes| Bandwidth {
        account,
        destination,
        hour_start: UnixMillis(HOUR.0 + hour * HOUR_MS),
        bytes,
    };
    let of_hour = async |account, hour: i64| {
        rig.store.bandwidth_of_hour(account, UnixMillis(HOUR.0 + hour * HOUR_MS)).await.unwrap()
    };
    assert_eq!(of_hour(account, 0).await, 0);
    rig.store.add_bandwidth(&[]).await.unwrap();
    let first = [sent(account, hosted, 0, 10), sent(account, second, 0, 200), sent(other, foreign, 0, 7)];
    rig.store.add_bandwidth(&first).await.unwrap();
    rig.store.add_bandwidth(&[sent(account, hosted, 0, 5), sent(account, hosted, 1, 3_000)]).await.unwrap();
    rig.store.delete_destination(&by(account), None, hosted).await.unwrap();
    rig.store.delete_stream(&by(account), stream).await.unwrap();
    rig.store.add_bandwidth(&[sent(account, hosted, 1, 1)]).await.unwrap();
    assert_eq!((of_hour(account, 0).await, of_hour(account, 1).await), (215, 3_001));
    assert_eq!((of_hour(other, 0).await, of_hour(account, 2).await), (7, 0));
}

#[tokio::test]
async fn bandwidth_never_overflows_and_is_added_whole_or_not_at_all() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (_, other, hosted) = rig.hosted(account).await;
    let most = JSON_INTEGER_MAX.unsigned_abs();
    let sent = |destination, bytes| Bandwidth { account, destination, hour_start: HOUR, bytes };
    rig.store.add_bandwidth(&[sent(hosted, most - 1)]).await.unwrap();
    let of_hour = async || rig.store.bandwidth_of_hour(account, HOUR).await.unwrap();
    assert_eq!(of_hour().await, most - 1);
    rig.store.add_bandwidth(&[sent(hosted, 1)]).await.unwrap();
    assert_eq!(of_hour().await, most);
    rig.store.add_bandwidth(&[sent(hosted, u64::MAX), sent(other, u64::MAX)]).await.unwrap();
    assert_eq!(of_hour().await, 2 * most);
    let unaligned = Bandwidth { hour_start: UnixMillis(HOUR.0 + 1), ..sent(other, 1) };
    let unknown = sent(DestinationId(999), 1);
    for bad in [unaligned, unknown] {
        let later = UnixMillis(HOUR.0 + HOUR_MS);
        let good = Bandwidth { hour_start: later, ..sent(hosted, 1) };
        assert!(matches!(rig.store.add_bandwidth(&[good, bad]).await, Err(StoreError::Database { .. })));
        assert_eq!(rig.store.bandwidth_of_hour(account, later).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_database_from_before_playback_keeps_its_destinations() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (stream, ids) = rig.stream(account, 1).await.unwrap();
    // Back to the previous schema: SQLite drops a column only when no index uses it.
    rig.run("DROP TABLE bandwidth").await;
    rig.run("DROP INDEX destinations_by_playback_path").await;
    rig.run("ALTER TABLE destinations DROP COLUMN playback_path").await;
    rig.run("DELETE FROM _sqlx_migrations WHERE version = 3").await;
    rig.store.close().await;
    let store = open_at(&rig.path, 7).await;
    let found = store.destinations_of(stream).await.unwrap();
    assert_eq!((found.len(), found[0].id, &found[0].playback_path), (1, ids[0], &None));
    assert_eq!(store.bandwidth_of_hour(account, HOUR).await.unwrap(), 0);
}
