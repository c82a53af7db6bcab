//! The store on real databases.

mod accounts;
mod archives;
mod audit;
mod charges;
mod clips;
mod commands;
mod copy;
mod files;
mod key_check;
mod ledger;
mod nodes;
mod parity;
mod playback;
mod races;
mod recoveries;
mod removal;
mod server;
mod slates;
mod upgrades;
mod wallets;

use std::path::{Path, PathBuf};

use serde_json::json;
use sqlx::AssertSqlSafe;
use tempfile::TempDir;

use crate::engine::{self, Pool};
use crate::error::Result;
use crate::open::{OpenOptions, open};
use crate::store::Store;
use crate::{
    Actor, Caps, NewAccount, NewDestination, NewKey, NewSession, NewStream, Origin, Page, Scopes, StoreError,
    Terms, testing,
};
use satcast_core::config::Durability;
use satcast_core::ids::{AccountId, DestinationId, EndReason, Msat, SessionId, StreamId, UnixMillis};
use satcast_core::secret::{KeyKind, Redacted, Vault, key_hash, new_api_key, new_session_id, new_stream_key};

const CAPS: Caps = Caps { destinations_per_stream: 3, streams_per_account: 3, keys_per_account: 2 };
const ALL: Page = Page::ALL;
const NOW: UnixMillis = UnixMillis(1_000);

struct Rig {
    store: Store,
    path: PathBuf,
    _folder: TempDir,
}

async fn open_url(url: &str, durability: Durability, key: u8) -> Result<Store> {
    let (url, vault) = (Redacted::new(url.to_owned()), Vault::new(&[key; 32]));
    open(OpenOptions { url, durability, vault, low_balance: Msat(0) }).await
}

/// Opens the database that stands for a file.
async fn try_open(path: &Path, key: u8) -> Result<Store> {
    open_url(testing::url(path).await.expose(), Durability::Full, key).await
}

/// The file itself, whichever engine the other tests use.
pub(crate) async fn open_file(path: &Path, durability: Durability, key: u8) -> Result<Store> {
    open_url(&format!("sqlite:{}", path.display()), durability, key).await
}

async fn open_at(path: &Path, key: u8) -> Store {
    try_open(path, key).await.unwrap()
}

/// Runs statements that may differ between the engines.
async fn script(pool: &Pool, sql: &str) -> sqlx::Result<()> {
    let sql = AssertSqlSafe(sql.to_owned());
    match pool {
        Pool::Sqlite(pool) => sqlx::raw_sql(sql).execute(pool).await.map(drop),
        Pool::Postgres(pool) => sqlx::raw_sql(sql).execute(pool).await.map(drop),
    }
}

impl Rig {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.db");
        Self { store: open_at(&path, 7).await, path, _folder: folder }
    }

    async fn account(&self, name: &str, credit: i64) -> Result<AccountId> {
        let account = NewAccount {
            name: name.into(),
            password_hash: None,
            operator: true,
            initial_credit: Msat(credit),
        };
        self.store.create_account(&Origin::command(NOW), account).await
    }

    async fn stream(&self, account: AccountId, targets: usize) -> Result<(StreamId, Vec<DestinationId>)> {
        let stream = NewStream {
            srt_passphrase: None,
            allowed: Default::default(),
            label: "test".into(),
            stream_key: new_stream_key(),
            destinations: vec![target(); targets],
            caps: CAPS,
        };
        self.store.create_stream(&by(account), stream).await
    }
}

/// The operator, who changes something of the account.
fn by(account: AccountId) -> Actor {
    Actor::command(account, NOW)
}

fn target() -> NewDestination {
    NewDestination {
        kind: "rtmp".into(),
        platform: "rtmp".into(),
        config: json!({"url": "rtmp://a/b", "key": "s3cret"}),
        has_playback: false,
        delays: Default::default(),
    }
}

#[tokio::test]
async fn account_names_are_unique_and_bring_their_credit() {
    let rig = Rig::new().await;
    let id = rig.account("me", 10_000_000).await.unwrap();
    assert!(matches!(rig.account("me", 5).await, Err(StoreError::NameTaken(name)) if name == "me"));
    let found = rig.store.account_by_name("me").await.unwrap().unwrap();
    assert_eq!((found.id, found.operator, found.created_at), (id, true, NOW));
    assert_eq!(rig.store.balance(id).await.unwrap(), Msat(10_000_000));
    assert_eq!(rig.store.count_accounts().await.unwrap(), 1);
    assert!(rig.store.account_by_name("you").await.unwrap().is_none());
}

#[tokio::test]
async fn a_sealed_value_moved_to_another_row_does_not_open() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (stream, ids) = rig.stream(account, 2).await.unwrap();
    let moved =
        "UPDATE destinations SET config_sealed = (SELECT config_sealed FROM destinations WHERE id = $1)";
    engine::query(moved).bind(ids[0].0).execute(&rig.store.0.writer).await.unwrap();
    let left = rig.store.destinations_of(stream).await.unwrap();
    assert_eq!(left.iter().map(|record| record.id).collect::<Vec<_>>(), [ids[0]], "the others are not lost");
    let views = rig.store.destinations_page(account, stream, ALL).await.unwrap().unwrap();
    let readable: Vec<_> = views.iter().map(|view| (view.id, view.config.is_some())).collect();
    assert_eq!(readable, [(ids[1], false), (ids[0], true)], "the owner sees both");
}

#[tokio::test]
async fn keys_are_found_by_hash_until_revoked_and_capped() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (_, _, hosted) = rig.hosted(account).await;
    let stranger = rig.account("stranger", 0).await.unwrap();
    let key = |kind, destination_id| NewKey {
        login: None,
        kind,
        key: new_api_key(kind),
        scopes: Scopes::ALL,
        destination_id,
        label: "k".into(),
        caps: CAPS,
    };
    let public = key(KeyKind::Public, Some(hosted));
    let id = rig.store.create_key(&by(account), public.clone()).await.unwrap();
    let hash = key_hash(public.key.expose());
    let found = rig.store.key_by_hash(&hash).await.unwrap().unwrap();
    assert_eq!((found.id, found.account_id, found.destination_id), (id, account, Some(hosted)));
    let text = public.key.expose();
    assert_eq!((found.prefix.as_str(), found.last4.as_str()), (&text[..7], &text[text.len() - 4..]));
    let foreign = rig.store.create_key(&by(stranger), key(KeyKind::Public, Some(hosted))).await;
    assert!(matches!(foreign, Err(StoreError::NotFound("destination"))));
    rig.store.create_key(&by(account), key(KeyKind::Permanent, None)).await.unwrap();
    let third = rig.store.create_key(&by(account), key(KeyKind::Permanent, None)).await;
    assert!(matches!(third, Err(StoreError::CapReached { limit: 2, .. })));
    rig.store.touch_keys(&[(id, UnixMillis(100_000)), (99.into(), UnixMillis(1))]).await.unwrap();
    rig.store.touch_keys(&[(id, UnixMillis(99_999))]).await.unwrap();
    let used = rig.store.key_by_hash(&hash).await.unwrap().unwrap().last_used_at;
    assert_eq!(used, Some(UnixMillis(100_000)), "a late note changes nothing");
    engine::query("UPDATE api_keys SET revoked_ms = 1").execute(&rig.store.0.writer).await.unwrap();
    assert!(rig.store.key_by_hash(&hash).await.unwrap().is_none());
}

#[tokio::test]
async fn a_stream_with_too_many_destinations_is_not_made_at_all() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    assert!(matches!(rig.stream(account, 4).await, Err(StoreError::CapReached { limit: 3, .. })));
    assert!(rig.store.streams_of(account, ALL).await.unwrap().is_empty());
    for _ in 0..3 {
        rig.stream(account, 0).await.unwrap();
    }
    assert!(matches!(rig.stream(account, 0).await, Err(StoreError::CapReached { limit: 3, .. })));
}

#[tokio::test]
async fn deleted_streams_and_destinations_are_kept_but_no_longer_found() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (stream, ids) = rig.stream(account, 3).await.unwrap();
    let owner = by(account);
    let delete = |stream, id| rig.store.delete_destination(&owner, stream, id);
    assert_eq!(delete(None, ids[0]).await.unwrap(), stream);
    assert!(matches!(delete(Some(StreamId(99)), ids[1]).await, Err(StoreError::NotFound("destination"))));
    assert_eq!(delete(Some(stream), ids[1]).await.unwrap(), stream);
    let left: Vec<_> =
        rig.store.destinations_of(stream).await.unwrap().iter().map(|record| record.id).collect();
    assert_eq!(left, [ids[2]]);
    rig.store.delete_stream(&owner, stream).await.unwrap();
    assert!(rig.store.stream(stream).await.unwrap().is_none());
    assert!(rig.store.destinations_of(stream).await.unwrap().is_empty());
    assert!(matches!(rig.store.delete_stream(&owner, stream).await, Err(StoreError::NotFound("stream"))));
    let kept: i64 = engine::query_scalar("SELECT COUNT(*) FROM destinations")
        .fetch_one(&rig.store.0.readers)
        .await
        .unwrap();
    assert_eq!(kept, 3);
}

#[tokio::test]
async fn sessions_end_once_and_interrupted_ones_at_their_last_heartbeat() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (stream, _) = rig.stream(account, 0).await.unwrap();
    let begin = |started: i64| {
        let session = NewSession {
            id: new_session_id(),
            stream_id: stream,
            started_at: UnixMillis(started),
            terms: Terms::default(),
        };
        let id: SessionId = session.id.clone();
        async {
            rig.store.begin_session(session).await.unwrap();
            id
        }
    };
    let first = begin(10).await;
    rig.store.end_session(&first, UnixMillis(20), EndReason::Stopped).await.unwrap();
    rig.store.end_session(&first, UnixMillis(30), EndReason::Error).await.unwrap();
    rig.store.heartbeat_sessions(std::slice::from_ref(&first), UnixMillis(40)).await.unwrap();
    let ended = rig.store.last_session(stream).await.unwrap().unwrap();
    assert_eq!((ended.ended_at, ended.end_reason), (Some(UnixMillis(20)), Some(EndReason::Stopped)));
    assert_eq!(ended.heartbeat_at, UnixMillis(10), "an ended session has no heartbeat");
    let second = begin(50).await;
    rig.store.heartbeat_sessions(std::slice::from_ref(&second), UnixMillis(60)).await.unwrap();
    rig.store.heartbeat_sessions(std::slice::from_ref(&second), UnixMillis(55)).await.unwrap();
    let interrupted = rig.store.close_interrupted_sessions(UnixMillis(999)).await.unwrap();
    assert_eq!(interrupted, std::slice::from_ref(&second));
    assert!(rig.store.close_interrupted_sessions(UnixMillis(999)).await.unwrap().is_empty());
    let last = rig.store.last_session(stream).await.unwrap().unwrap();
    assert_eq!(
        (last.id, last.ended_at, last.end_reason),
        (second, Some(UnixMillis(60)), Some(EndReason::Interrupted))
    );
    let view = rig.store.stream_of(account, stream).await.unwrap().unwrap();
    assert_eq!(view.last_end_reason, Some(EndReason::Interrupted));
}

#[tokio::test]
async fn processes_that_open_a_new_database_together_all_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let opened = futures_util::future::join_all((0..6).map(|_| open_at(&path, 7))).await;
    for store in opened {
        assert_eq!(store.count_accounts().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn passwords_and_pages_come_back_as_stored() {
    let rig = Rig::new().await;
    let hash = Redacted::new("$argon2id$x".to_owned());
    let account = NewAccount {
        name: "me".into(),
        password_hash: Some(hash.clone()),
        operator: false,
        initial_credit: Msat(0),
    };
    let account = rig.store.create_account(&Origin::command(NOW), account).await.unwrap();
    assert_eq!(rig.store.account_by_name("me").await.unwrap().unwrap().password_hash, Some(hash));
    let (stream, ids) = rig.stream(account, 3).await.unwrap();
    let page = Page { before: Some(ids[2].0), limit: 1 };
    let records = rig.store.destinations_page(account, stream, page).await.unwrap().unwrap();
    assert_eq!(records.iter().map(|record| record.id).collect::<Vec<_>>(), [ids[1]]);
    assert!(rig.store.destinations_page(AccountId(99), stream, ALL).await.unwrap().is_none());
}
