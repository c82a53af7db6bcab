//! The audit log: written with every change, only with the change, bounded, and immutable.

use futures_util::FutureExt as _;
use serde_json::Value;

use super::*;
use crate::audit::{AUDIT_DETAIL_BYTES_MAX, FAILED_LOGINS_PER_HOUR_MAX, UNKNOWN_LOGINS_PER_HOUR_MAX};
use crate::logins::LOGINS_PER_ACCOUNT_MAX;
use crate::{
    AuditEntry, AuditFilter, By, Change, DestinationChange, LimitChange, LimitsChange, NewLogin,
    StreamChange, TimeRange,
};
use satcast_core::feed::Seen;
use satcast_core::ids::{KeyId, LoginId, Sats};
use satcast_core::networks::Networks;

const SECRET: &str = "hunter2hunter2";

impl Rig {
    /// The entries of an account, the oldest first.
    async fn log(&self, account: AccountId) -> Vec<AuditEntry> {
        let filter = AuditFilter { account: Some(account), ..AuditFilter::default() };
        let mut entries = self.store.audit(filter, ALL).await.unwrap();
        entries.reverse();
        entries
    }

    async fn actions(&self, account: AccountId) -> Vec<String> {
        self.log(account).await.into_iter().map(|entry| entry.action).collect()
    }
}

fn key() -> NewKey {
    NewKey {
        login: None,
        kind: KeyKind::Permanent,
        key: new_api_key(KeyKind::Permanent),
        scopes: Scopes::ALL,
        destination_id: None,
        label: "mine".into(),
        caps: CAPS,
    }
}

/// Ids of created things.
struct Made {
    stream: i64,
    first: i64,
    added: i64,
    key: i64,
}

/// Every change an account can ask for, with secrets wherever one fits.
async fn change_everything(rig: &Rig, actor: &Actor) -> Made {
    let config = json!({"url": "rtmp://a/b", "key": SECRET});
    let target = NewDestination { config: config.clone(), ..target() };
    let stream = NewStream {
        srt_passphrase: None,
        allowed: Default::default(),
        label: "test".into(),
        stream_key: Redacted::new(format!("live_{SECRET}")),
        destinations: vec![target.clone()],
        caps: CAPS,
    };
    let (stream, ids) = rig.store.create_stream(actor, stream).await.unwrap();
    let added = rig.store.add_destination(actor, stream, target, CAPS).await.unwrap();
    let limits = LimitsChange { max_sats: LimitChange::Set(9), max_duration_minutes: LimitChange::Keep };
    rig.store.change_limits(actor, stream, limits).await.unwrap();
    let change = StreamChange { label: Some("other".into()), ..Default::default() };
    rig.store.change_stream(actor, stream, change).await.unwrap();
    let allowed = Some(Networks::parse(["203.0.113.7"]).unwrap());
    rig.store
        .change_stream(actor, stream, StreamChange { label: None, allowed, ..Default::default() })
        .await
        .unwrap();
    rig.store.replace_stream_key(actor, stream, &Redacted::new(format!("{SECRET}2"))).await.unwrap();
    let change = DestinationChange {
        enabled: Some(false),
        config: Some(config),
        start_delay_secs: Some(5),
        stop_delay_secs: None,
    };
    rig.store.change_destination(actor, stream, added, change).await.unwrap();
    rig.store.delete_destination(actor, Some(stream), added).await.unwrap();
    let made = rig.store.create_key(actor, key()).await.unwrap();
    rig.store.revoke_key(actor, made).await.unwrap();
    rig.store.credit(actor, Sats(70), "a".into()).await.unwrap();
    rig.store.credit(actor, Sats(70), "a".into()).await.unwrap();
    rig.store.change_password(actor, &Redacted::new(SECRET.to_owned())).await.unwrap();
    rig.store.record(actor, Change::new("stream.stopped", "stream", stream.0, json!({}))).await.unwrap();
    rig.store.delete_stream(actor, stream).await.unwrap();
    Made { stream: stream.0, first: ids[0].0, added: added.0, key: made.0 }
}

/// Action, kind and id of the target, and detail of each entry from here on.
fn entries_of(account: AccountId, made: &Made) -> Vec<(&'static str, &'static str, i64, Value)> {
    let Made { stream, first, added, key } = *made;
    let target = json!({"streamId": stream, "type": "rtmp", "platform": "rtmp"});
    let limits = |sats: Value| json!({"maxSats": sats, "maxDurationMinutes": null});
    let limits = json!({"before": limits(Value::Null), "after": limits(json!(9))});
    let labels = json!({"before": {"label": "test"}, "after": {"label": "other"}});
    let enabled = json!({"streamId": stream, "configChanged": true,
        "before": {"enabled": true, "startDelaySeconds": 0},
        "after": {"enabled": false, "startDelaySeconds": 5}});
    let allowed =
        json!({"before": {"allowedAddresses": ""}, "after": {"allowedAddresses": "203.0.113.7/32"}});
    let scopes = json!({"type": "permanent", "label": "mine", "scopes": "read,manage,webhooks",
        "destinationId": null});
    let of_account = |action, detail| (action, "account", account.0, detail);
    vec![
        of_account("account.created", json!({"name": "me", "operator": true, "initialSats": 0})),
        ("stream.created", "stream", stream, json!({"label": "test", "destinationIds": [first]})),
        ("destination.added", "destination", added, target.clone()),
        ("stream.limits_changed", "stream", stream, limits),
        ("stream.renamed", "stream", stream, labels),
        ("stream.changed", "stream", stream, allowed),
        ("stream.key_replaced", "stream", stream, json!({})),
        ("destination.changed", "destination", added, enabled),
        ("destination.deleted", "destination", added, target),
        ("key.created", "key", key, scopes),
        ("key.revoked", "key", key, json!({"type": "permanent", "label": "mine"})),
        of_account("account.credited", json!({"sats": 70})),
        of_account("account.password_changed", json!({"endedSessions": 0})),
        ("stream.stopped", "stream", stream, json!({})),
        ("stream.deleted", "stream", stream, json!({"label": "other"})),
    ]
}

#[tokio::test]
async fn every_change_has_its_entry_and_no_entry_has_a_secret() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let address = Some("192.0.2.7".parse().unwrap());
    let actor = Actor { by: By::Key(KeyId(5)), address, ..by(account) };
    let mut watch = rig.store.feed().watch(account, None).unwrap();
    let made = change_everything(&rig, &actor).await;
    let log = rig.log(account).await;
    let shown = |entry: &AuditEntry| {
        let (action, kind) = (entry.action.clone(), entry.target_kind.clone());
        (action, kind, entry.target_id.unwrap(), entry.detail.clone())
    };
    let expected = entries_of(account, &made);
    let owned = |(action, kind, id, detail): (&str, &str, i64, Value)| {
        (action.to_owned(), kind.to_owned(), id, detail)
    };
    assert_eq!(
        log.iter().map(shown).collect::<Vec<_>>(),
        expected.into_iter().map(owned).collect::<Vec<_>>()
    );
    assert_eq!((log[0].by, &log[0].address), (By::Command, &None));
    for entry in &log[1..] {
        assert_eq!((entry.by, entry.address.as_deref()), (actor.by, Some("192.0.2.7")), "{entry:?}");
        assert_eq!((entry.account_id, entry.at), (Some(account), NOW));
        let seen = watch.next().now_or_never().expect("each change is published");
        let Some(Seen::Event(event)) = seen else { panic!("{seen:?}") };
        assert_eq!((&event.name, &event.data["auditId"]), (&entry.action, &json!(entry.id)));
        assert!(!format!("{event:?}{entry:?}").contains(SECRET), "{event:?}");
    }
    assert!(watch.next().now_or_never().is_none(), "nothing is published twice");
}

#[tokio::test]
async fn logins_and_links_have_entries_too() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let origin = Origin { by: By::Visitor, address: None, now: NOW };
    let login =
        |token: u8| NewLogin { token_hash: [token; 32], expires_at: UnixMillis(9_999), verified: None };
    let stale = NewLogin { verified: Some(Redacted::new("$argon2id$old".to_owned())), ..login(255) };
    let refused = rig.store.begin_login(&origin, account, stale).await;
    assert!(
        matches!(refused, Err(StoreError::PasswordChanged)),
        "checked against a password that was changed"
    );
    let mut ids: Vec<LoginId> = Vec::new();
    for token in 0..=LOGINS_PER_ACCOUNT_MAX {
        ids.push(rig.store.begin_login(&origin, account, login(token as u8)).await.unwrap());
    }
    let last = ids[ids.len() - 1];
    let actor = Actor { by: By::Login(last), ..by(account) };
    rig.store.end_login(&actor, last).await.unwrap();
    let log = rig.log(account).await;
    let began = &log[log.len() - 2];
    assert_eq!(
        (began.action.as_str(), began.by, began.target_id),
        ("login.began", By::Login(last), Some(last.0))
    );
    assert_eq!(began.detail, json!({"endedSessions": 1}), "one session above the limit");
    assert_eq!(log[log.len() - 1].action, "login.ended");
    rig.store.create_invite(&by(account).origin(), &[1; 32], true, UnixMillis(9_999)).await.unwrap();
    let new =
        NewAccount { name: "you".into(), password_hash: None, operator: false, initial_credit: Msat(0) };
    let you = rig.store.use_invite(&origin, &[1; 32], new).await.unwrap();
    let made = rig.log(you).await;
    assert_eq!((made[0].action.as_str(), made[0].by), ("account.created", By::Visitor));
    assert_eq!(made[0].detail["operator"], true, "as the link says");
    let all = rig.store.audit(AuditFilter::default(), ALL).await.unwrap();
    let invite = all.iter().find(|entry| entry.action == "invite.created").unwrap();
    assert_eq!((invite.account_id, &invite.detail), (None, &json!({"operator": true, "expiresAt": 9_999})));
}

#[tokio::test]
async fn refused_and_rolled_back_changes_leave_no_entry() {
    let rig = Rig::new().await;
    let (account, stranger) = (rig.account("me", 0).await.unwrap(), rig.account("you", 0).await.unwrap());
    let (stream, ids) = rig.stream(account, 1).await.unwrap();
    let before = rig.actions(account).await;
    let mut watch = rig.store.feed().watch(account, None).unwrap();
    let thief = by(stranger);
    assert!(rig.store.delete_stream(&thief, stream).await.is_err());
    assert!(rig.store.change_stream(&thief, stream, StreamChange::default()).await.is_err());
    assert!(rig.store.change_limits(&thief, stream, LimitsChange::default()).await.is_err());
    assert!(rig.store.delete_destination(&thief, None, ids[0]).await.is_err());
    assert!(rig.stream(account, 4).await.is_err(), "too many destinations");
    assert!(rig.account("me", 0).await.is_err());
    rig.store.create_key(&by(account), key()).await.unwrap();
    // The change is written first; without its entry it must not be committed.
    let full = match rig.store.0.writer {
        Pool::Sqlite(_) => {
            "CREATE TRIGGER full_up BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full'); END"
        }
        Pool::Postgres(_) => "CREATE TRIGGER full_up BEFORE INSERT ON audit EXECUTE FUNCTION refuse('full')",
    };
    rig.run(full).await;
    assert!(rig.store.delete_stream(&by(account), stream).await.is_err());
    assert!(rig.store.stream(stream).await.unwrap().is_some(), "no change without its entry");
    rig.run(match rig.store.0.writer {
        Pool::Sqlite(_) => "DROP TRIGGER full_up",
        Pool::Postgres(_) => "DROP TRIGGER full_up ON audit",
    })
    .await;
    assert_eq!(rig.actions(account).await[before.len()..], ["key.created"]);
    let seen = watch.next().now_or_never().flatten();
    assert!(matches!(seen, Some(Seen::Event(event)) if event.name == "key.created"));
    assert!(watch.next().now_or_never().is_none(), "an uncommitted change is not published");
    assert_eq!(rig.actions(stranger).await, ["account.created"]);
}

/// The beginning of the error of the schema's triggers.
const KEPT: &str = "the audit log is never";

#[tokio::test]
async fn entries_cannot_be_changed_or_deleted() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    for sql in ["UPDATE audit SET action = 'x'", "DELETE FROM audit"] {
        let error = script(&rig.store.0.writer, sql).await.unwrap_err().to_string();
        assert!(error.contains(KEPT), "{error}");
    }
    assert_eq!(rig.actions(account).await, ["account.created"]);
}

#[tokio::test]
async fn failed_logins_are_recorded_up_to_a_number_within_an_hour() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let fail = async |account, now| {
        let origin = Origin { by: By::Visitor, address: None, now: UnixMillis(now) };
        rig.store.record_failed_login(&origin, account).await.unwrap()
    };
    for (account, max) in [(Some(account), FAILED_LOGINS_PER_HOUR_MAX), (None, UNKNOWN_LOGINS_PER_HOUR_MAX)] {
        for _ in 0..max {
            assert!(fail(account, 10).await);
        }
        assert!(!fail(account, 10).await);
        assert!(!fail(account, 3_600_009).await);
        assert!(fail(account, 3_600_010).await, "an hour later");
    }
    let filter = AuditFilter { action: Some("login.failed".into()), ..AuditFilter::default() };
    let all = rig.store.audit(filter, ALL).await.unwrap();
    let max = FAILED_LOGINS_PER_HOUR_MAX + UNKNOWN_LOGINS_PER_HOUR_MAX + 2;
    assert_eq!(all.len() as i64, max);
    assert_eq!((all[0].account_id, all[0].target_id, all[0].by), (None, None, By::Visitor));
}

#[tokio::test]
async fn details_are_small_objects_and_entries_come_in_pages_by_action_and_time() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let fits = "x".repeat(AUDIT_DETAIL_BYTES_MAX - json!({"x": ""}).to_string().len());
    let details = [json!({"x": fits}), json!({"x": format!("{fits}x")}), json!("text")];
    for (index, detail) in details.iter().enumerate() {
        let actor = Actor { now: UnixMillis(2_000 + index as i64), ..by(account) };
        rig.store.record(&actor, Change::new("a.b", "stream", 1, detail.clone())).await.unwrap();
    }
    let log = rig.log(account).await;
    let omitted = json!({"omitted": true});
    assert_eq!([&log[1].detail, &log[2].detail, &log[3].detail], [&details[0], &omitted, &omitted]);
    let times = async |from, to, action: Option<&str>, page| {
        let range = TimeRange { from, to };
        let filter = AuditFilter { account: Some(account), action: action.map(Into::into), range };
        let found = rig.store.audit(filter, page).await.unwrap();
        found.into_iter().map(|entry| entry.at.0).collect::<Vec<_>>()
    };
    assert_eq!(times(None, None, None, Page { before: Some(log[3].id), limit: 2 }).await, [2_001, 2_000]);
    assert_eq!(times(Some(UnixMillis(2_001)), None, None, ALL).await, [2_002, 2_001]);
    assert_eq!(times(None, Some(UnixMillis(2_001)), None, ALL).await, [2_000, 1_000]);
    assert_eq!(times(None, None, Some("account.created"), ALL).await, [1_000]);
}
