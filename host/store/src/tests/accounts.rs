//! Changes of accounts by operators, and links of accounts.

use super::*;
use crate::{AccountChange, Begun, By, IdempotentRequest, NewLink, NewLogin};
use satcast_core::ids::Sats;

const LATER: UnixMillis = UnixMillis(9_999);

fn link(token: u8) -> NewLink {
    NewLink { token_hash: [token; 32], expires_at: LATER }
}

fn with_password(hash: &str) -> NewAccount {
    let password_hash = Some(Redacted::new(hash.to_owned()));
    NewAccount { name: "ignored".into(), password_hash, operator: true, initial_credit: Msat(0) }
}

fn visitor() -> Origin {
    Origin { by: By::Visitor, address: None, now: NOW }
}

impl Rig {
    async fn disable(&self, account: AccountId, disabled: bool) {
        let change = AccountChange { disabled: Some(disabled), ..AccountChange::default() };
        self.store.change_account(&by(account), change).await.unwrap();
    }
}

#[tokio::test]
async fn the_first_operator_ends_the_links_of_all_nodes_to_it() {
    let rig = Rig::new().await;
    let invite = async |token: u8, operator| {
        rig.store.create_invite(&visitor(), &[token; 32], operator, LATER).await.unwrap();
    };
    let is_known = async |token: u8| rig.store.link(&[token; 32], NOW).await.unwrap().is_some();
    let make = async |name: &str, operator| {
        let account = NewAccount { name: name.into(), operator, ..with_password("hash") };
        rig.store.create_account(&visitor(), account).await.unwrap();
    };
    for (token, operator) in [(1, true), (2, true), (3, false)] {
        invite(token, operator).await;
    }
    make("another", false).await;
    assert!(is_known(1).await, "there is no operator yet");
    make("first", true).await;
    assert_eq!([is_known(1).await, is_known(2).await, is_known(3).await], [false, false, true]);
    // Later ones for operators stay.
    invite(4, true).await;
    make("second", true).await;
    assert!(is_known(4).await);
}

#[tokio::test]
async fn a_change_is_all_or_nothing() {
    let rig = Rig::new().await;
    let account = rig.account("me", 5_000).await.unwrap();
    let change = |sats| AccountChange {
        credit: Some(Sats(sats)),
        disabled: Some(true),
        link: Some(link(1)),
        ..AccountChange::default()
    };
    let refused = rig.store.change_account(&by(account), change(i64::MAX)).await;
    assert!(matches!(refused, Err(StoreError::Amount(_))), "{refused:?}");
    assert_eq!(rig.store.account(account).await.unwrap().unwrap().disabled_at, None);
    assert_eq!(rig.store.link(&[1; 32], NOW).await.unwrap(), None);
    assert_eq!(rig.store.change_account(&by(account), change(7)).await.unwrap(), Msat(12_000));
    let all = rig.store.accounts(ALL).await.unwrap();
    assert_eq!((all[0].account.disabled_at, all[0].balance), (Some(NOW), Msat(12_000)));
    let unknown = rig.store.change_account(&by(AccountId(99)), AccountChange::default()).await;
    assert!(matches!(unknown, Err(StoreError::NotFound("account"))), "{unknown:?}");
}

#[tokio::test]
async fn credit_of_one_request_is_added_once() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let add = async |request: Option<&str>| {
        let request = request.map(str::to_owned);
        let change = AccountChange { credit: Some(Sats(5)), request, ..AccountChange::default() };
        rig.store.change_account(&by(account), change).await.unwrap()
    };
    assert_eq!(add(Some("a")).await, Msat(5_000));
    assert_eq!(add(Some("a")).await, Msat(5_000));
    assert_eq!(add(Some("b")).await, Msat(10_000));
    assert_eq!((add(None).await, add(None).await), (Msat(15_000), Msat(20_000)));
}

#[tokio::test]
async fn a_request_whose_process_died_keeps_its_name() {
    let rig = Rig::new().await;
    let account_id = rig.account("me", 0).await.unwrap();
    let begin = async |after: i64| {
        let now = UnixMillis(NOW.0 + after);
        let request = IdempotentRequest { account_id, request_hash: [1; 32], body_hash: [2; 32], now };
        rig.store.begin_request(request).await.unwrap()
    };
    let first = begin(0).await;
    assert!(matches!(&first, Begun::New(name) if !name.is_empty()), "{first:?}");
    assert_eq!(begin(59_999).await, Begun::InProgress);
    assert_eq!(begin(60_000).await, first);
    assert_eq!(begin(60_001).await, Begun::InProgress);
    let Begun::New(name) = &first else { unreachable!("it matched above") };
    rig.store.suspend_request(name).await.unwrap();
    assert_eq!(begin(60_001).await, first, "its outcome is unknown");
}

#[tokio::test]
async fn a_disabled_operator_disables_nobody() {
    let rig = Rig::new().await;
    let [one, two] = [rig.account("one", 0).await.unwrap(), rig.account("two", 0).await.unwrap()];
    let disable = async |operator, account| {
        let operator = Some(operator);
        let change = AccountChange { disabled: Some(true), operator, ..AccountChange::default() };
        rig.store.change_account(&by(account), change).await
    };
    disable(one, two).await.unwrap();
    let refused = disable(two, one).await;
    assert!(matches!(refused, Err(StoreError::AccountDisabled)), "{refused:?}");
    assert_eq!(rig.store.account(one).await.unwrap().unwrap().disabled_at, None);
}

#[tokio::test]
async fn a_new_password_ends_the_link() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let change = AccountChange { link: Some(link(1)), ..AccountChange::default() };
    rig.store.change_account(&by(account), change).await.unwrap();
    rig.store.change_password(&by(account), &Redacted::new("x".to_owned())).await.unwrap();
    assert_eq!(rig.store.link(&[1; 32], NOW).await.unwrap(), None);
}

#[tokio::test]
async fn the_link_of_an_account_sets_its_password_once_and_ends_its_sessions() {
    let rig = Rig::new().await;
    let origin = visitor();
    let new = NewAccount { name: "me".into(), password_hash: None, operator: false, initial_credit: Msat(0) };
    let account = rig.store.create_linked_account(&origin, new, &link(1)).await.unwrap();
    let login = NewLogin { token_hash: [9; 32], expires_at: LATER, verified: None };
    rig.store.begin_login(&origin, account, login).await.unwrap();
    let again = AccountChange { link: Some(link(2)), ..AccountChange::default() };
    rig.store.change_account(&by(account), again).await.unwrap();
    let old = rig.store.use_invite(&origin, &[1; 32], with_password("x")).await;
    assert!(matches!(old, Err(StoreError::NotFound("link"))), "{old:?}");
    let late = Origin { now: LATER, ..origin };
    assert!(rig.store.use_invite(&late, &[2; 32], with_password("x")).await.is_err());
    assert_eq!(rig.store.use_invite(&origin, &[2; 32], with_password("x")).await.unwrap(), account);
    assert!(rig.store.use_invite(&origin, &[2; 32], with_password("y")).await.is_err());
    let known = rig.store.account(account).await.unwrap().unwrap();
    assert_eq!((known.name.as_str(), known.operator), ("me", false), "only the password changes");
    assert_eq!(known.password_hash.unwrap().expose(), "x");
    assert!(rig.store.logins_of(account, NOW).await.unwrap().is_empty());
}

#[tokio::test]
async fn everything_of_a_disabled_account_is_marked_until_it_is_enabled() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (stream, _) = rig.stream(account, 1).await.unwrap();
    let key = new_api_key(KeyKind::Permanent);
    let new = NewKey {
        login: None,
        kind: KeyKind::Permanent,
        key: key.clone(),
        scopes: Scopes::ALL,
        destination_id: None,
        label: String::new(),
        caps: CAPS,
    };
    rig.store.create_key(&by(account), new).await.unwrap();
    let login = || NewLogin { token_hash: [9; 32], expires_at: LATER, verified: None };
    rig.store.begin_login(&visitor(), account, login()).await.unwrap();
    for disabled in [true, false] {
        rig.disable(account, disabled).await;
        let (stream, key) =
            (rig.store.stream(stream).await, rig.store.key_by_hash(&key_hash(key.expose())).await);
        let login = rig.store.login_by_hash(&[9; 32], NOW).await;
        let marks = [
            stream.unwrap().unwrap().account_disabled,
            key.unwrap().unwrap().account_disabled,
            login.unwrap().unwrap().account_disabled,
        ];
        assert_eq!(marks, [disabled; 3]);
    }
    let change = AccountChange { disabled: Some(true), link: Some(link(1)), ..AccountChange::default() };
    rig.store.change_account(&by(account), change).await.unwrap();
    let other = NewLogin { token_hash: [8; 32], ..login() };
    let refused = rig.store.begin_login(&visitor(), account, other).await;
    assert!(matches!(refused, Err(StoreError::AccountDisabled)), "{refused:?}");
    let refused = rig.store.use_invite(&visitor(), &[1; 32], with_password("x")).await;
    assert!(matches!(refused, Err(StoreError::AccountDisabled)), "{refused:?}");
    assert!(rig.store.link(&[1; 32], NOW).await.unwrap().is_some(), "the link stays");
}
