//! Special cases of single operations: caps, states, money, and exhausted permits.

use std::time::Duration;

use futures_util::future::join_all;
use poem::http::Method;
use satcast_plugin_api::recording::RecordingState;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::operation::Operation;
use super::rows::{self, About, Row, rtmp};
use super::world::{BETWEEN, Call, Credential, Resource, World};
use crate::api::Subject;
use crate::api::archives::too_little;
use crate::api::tests::{Answer, BROKEN, LINKED_DRIVER};
use crate::api::uploads::SLATE_BYTES_MAX;
use crate::base::error::INVALID_PUBLIC_KEY_TEXT;
use satcast_archive::CLIPS_WAITING_MAX;
use satcast_core::feed::{WATCHERS_MAX, WATCHERS_PER_ACCOUNT_MAX};
use satcast_core::ids::{AccountId, Msat};
use satcast_core::secret::new_invite_token;
use satcast_drivers::{ChangeError, LINKED_IN};
use satcast_money::wallet::lightning::Fault;
use satcast_store::{AccountChange, AuditFilter, Page, Scopes};

/// Most concurrent webhook tests.
const TESTS_OF_ACCOUNT: usize = 4;
/// Longest wait for the start of one.
const WAIT_MAX: Duration = Duration::from_secs(60);

impl World {
    /// Checks the special cases of this operation.
    pub(super) async fn check_special_cases(&self, operation: &Operation, row: &Row) {
        match operation.id {
            "createStream" | "addDestination" | "changeDestination" => {
                self.broken_driver(operation, row).await
            }
            "changeDriver" => self.drivers(operation, row).await,
            "listAccounts" | "createAccount" | "changeAccount" => self.accounts(operation, row).await,
            "createKey" => self.cap(operation, row, "keys_per_account = 2").await,
            "createWebhook" => self.cap(operation, row, "webhooks_per_account = 1").await,
            "redeliverWebhookDelivery" => self.disabled_webhook(operation, row).await,
            "testWebhook" => self.busy_tests(operation, row).await,
            "createClip" => self.clips(operation, row).await,
            "setSlate" => self.slates(operation, row).await,
            "recoverArchive" | "deleteArchive" => self.archives(operation, row).await,
            "connectWallet" | "createTopUp" | "getWalletBalance" => self.wallets(operation, row).await,
            "followEvents" => self.watchers(operation, row).await,
            "logIn" | "setUp" | "changePassword" => self.passwords(operation, row).await,
            "logOut" => self.two_at_once(operation, row).await,
            "getStreamStatus" | "getActiveCost" => self.disabled_destination(operation, row).await,
            _ => {}
        }
    }

    /// Missing drivers, invalid driver actions, and accounts that are not operators.
    async fn drivers(&self, operation: &Operation, row: &Row) {
        let change = async |driver: &str, action: &str| {
            let body = json!({"driver": driver, "action": action}).to_string();
            self.send(self.one(operation, row).await.with_body(body)).await
        };
        change("carrier-pigeon", "enable").await.error(404, "not_found");
        let text = change(LINKED_DRIVER, "disable").await.error(422, "driver_refused");
        let refused = |id: &str, reason: &str| {
            ChangeError::Refused { id: id.to_owned(), reason: reason.to_owned() }.to_string()
        };
        assert_eq!(text, refused(LINKED_DRIVER, LINKED_IN));
        let text = change("bad", "replace").await.error(422, "driver_refused");
        assert!(text.starts_with(&refused("bad", "")), "{text}");
        assert_eq!(change("bad", "disable").await.ok()["state"], "refused");
        let replaced = change(LINKED_DRIVER, "replace").await.ok();
        assert_eq!((&replaced["state"], &replaced["isolation"]), (&json!("loaded"), &json!("thread")));
        let log = self.rig.app.store.audit(AuditFilter::default(), Page::ALL).await.unwrap();
        let entry = log.iter().find(|entry| entry.action == "driver.replaced").unwrap();
        assert_eq!(entry.detail["driver"], LINKED_DRIVER);
        let world = World::new().await;
        let call = Call::new(operation, row, &Resource::nothing(), Credential::Owner);
        world.send(call).await.error(403, "not_operator");
        self.absorb(&world);
    }

    /// Accounts that are unknown, the own one or have the name already, and callers that are not operators.
    async fn accounts(&self, operation: &Operation, row: &Row) {
        let own = Resource { id: self.rig.account.0, ..self.resource(row.about).await };
        if operation.id == "changeAccount" {
            let unknown = Resource { id: i64::MAX, ..own.clone() };
            let call = Call::new(operation, row, &unknown, Credential::Owner);
            self.send(call).await.error(404, "not_found");
            let call = Call::new(operation, row, &own, Credential::Owner);
            self.send(call).await.error(409, "own_account");
        }
        if operation.id == "createAccount" {
            let taken = Resource { name: "owner".into(), ..own.clone() };
            let call = Call::new(operation, row, &taken, Credential::Owner);
            self.send(call).await.error(409, "name_taken");
        }
        let call = Call::new(operation, row, &own, Credential::Stranger);
        self.send(call).await.error(403, "not_operator");
    }

    /// Files that are refused, another content type, and too many uploads at once.
    async fn slates(&self, operation: &Operation, row: &Row) {
        let one = async || self.one(operation, row).await;
        self.send(one().await.with_body("no mp4")).await.error(422, "slate_unreadable");
        self.send(one().await.with_body(vec![0; SLATE_BYTES_MAX + 1])).await.error(413, "body_too_large");
        for content_type in [None, Some("application/json")] {
            let call = Call { content_type, ..one().await };
            self.send(call).await.error(415, "content_type_not_supported");
        }
        let uploads = &self.rig.app.limits.uploads;
        let held = uploads.try_take(self.rig.account, uploads.share()).unwrap();
        self.send(one().await).await.error(503, "busy");
        drop(held);
        self.send(one().await).await.ok();
    }

    async fn one(&self, operation: &Operation, row: &Row) -> Call {
        self.call(operation, row, row.takes.first()).await
    }

    /// A failing driver, and the caps of streams and destinations.
    async fn broken_driver(&self, operation: &Operation, row: &Row) {
        let body = match operation.id {
            "createStream" => json!({"label": "x", "destinations": [rtmp(BROKEN)]}),
            "addDestination" => rtmp(BROKEN),
            _ => json!({"config": {"url": BROKEN}}),
        };
        let call = self.one(operation, row).await.with_body(body.to_string());
        let text = self.send(call).await.error(503, "driver_unavailable");
        assert!(!text.contains("hunter2"), "{text}");
        match operation.id {
            // The world's own stream uses up the cap.
            "createStream" => self.cap(operation, row, "streams_per_account = 1").await,
            "addDestination" => {
                let world = World::with_config("[limits]\ndestinations_per_stream = 1").await;
                let resource = world.resource(About::Stream).await;
                let call = || Call::new(operation, row, &resource, Credential::Owner);
                world.send(call()).await.ok();
                world.send(call()).await.error(409, "cap_reached");
            }
            _ => {}
        }
    }

    async fn cap(&self, operation: &Operation, row: &Row, cap: &str) {
        let world = World::with_config(&format!("[limits]\n{cap}")).await;
        if operation.id == "createWebhook" {
            world.webhook_to("https://a.example/in").await;
        }
        // The cap is reached, so the request uses the resource that exists from the start.
        let about = Resource::nothing();
        world.send(Call::new(operation, row, &about, Credential::Owner)).await.error(409, "cap_reached");
    }

    async fn disabled_webhook(&self, operation: &Operation, row: &Row) {
        let resource = self.resource(row.about).await;
        self.rig.intruder().await.disable_webhook(resource.id, "it is gone").await;
        self.send(Call::new(operation, row, &resource, Credential::Owner))
            .await
            .error(409, "webhook_disabled");
    }

    /// Silent receivers hold all permits of the account.
    async fn busy_tests(&self, operation: &Operation, row: &Row) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let id = self.webhook_to(&format!("http://{}/in", listener.local_addr().unwrap())).await;
        let resource = Resource { id, ..Resource::nothing() };
        // A separate key for each test, because each key is limited per minute.
        let call = || self.send(Call::new(operation, row, &resource, Credential::Without(Scopes::NONE)));
        let held = join_all((0..TESTS_OF_ACCOUNT).map(|_| call()));
        let one_more = async {
            let mut sockets = Vec::new();
            for _ in 0..TESTS_OF_ACCOUNT {
                let accepted = timeout(WAIT_MAX, listener.accept()).await.expect("a running test");
                sockets.push(accepted.unwrap());
            }
            call().await.error(503, "busy");
        };
        let (answers, ()) = tokio::join!(held, one_more);
        assert!(answers.iter().all(|answer| answer.ok()["ok"] == false), "nobody answered");
    }

    /// States that refuse operations on a recording, its price, and a missing driver.
    async fn archives(&self, operation: &Operation, row: &Row) {
        let (states, code) = match operation.id {
            "deleteArchive" => (vec![RecordingState::Recording], "archive_recording"),
            _ => (
                vec![RecordingState::Recording, RecordingState::Uploading, RecordingState::Ready],
                "archive_not_failed",
            ),
        };
        for state in states {
            self.rig.app.clock.advance(BETWEEN);
            let resource = self.archive("", state).await;
            self.send(Call::new(operation, row, &resource, Credential::Owner)).await.error(409, code);
        }
        if operation.id != "recoverArchive" {
            let resource = self.archive("stuck-", RecordingState::Failed).await;
            let call = Call::new(operation, row, &resource, Credential::Owner);
            self.send(call).await.error(502, "archive_unavailable");
            return;
        }
        let dear = World::with_config("[pricing]\narchive_recovery_sats = 20000").await;
        let text = dear.send(dear.one(operation, row).await).await.error(402, "insufficient_funds");
        assert_eq!(text, too_little(Msat(20_000_000), Msat(10_000_000)).to_string());
        self.absorb(&dear);
        self.rig.app.clock.advance(BETWEEN);
        let resource = self.archive("refused-", RecordingState::Failed).await;
        let call = || self.send(Call::new(operation, row, &resource, Credential::Owner));
        for _ in 0..10 {
            call().await.error(502, "archive_unavailable");
        }
        let text = call().await.error(429, "rate_limited");
        assert_eq!(text, "Rate limit exceeded. Maximum 10 requests per minute.");
    }

    /// The price of a clip, the clips in the making, and all slots taken.
    async fn clips(&self, operation: &Operation, row: &Row) {
        let dear = World::with_config("[pricing]\nclip_sats = 20000").await;
        dear.send(dear.one(operation, row).await).await.error(402, "insufficient_funds");
        self.absorb(&dear);
        let name = |number: usize| format!("clips/{number}.mp4");
        let call = self.one(operation, row).await;
        let slots: Vec<_> = (0..CLIPS_WAITING_MAX)
            .map_while(|number| self.rig.app.archive.clip_slot(&name(number)))
            .collect();
        self.send(call).await.error(503, "busy");
        drop(slots);
        let world = World::with_config("[limits]\nclips_per_account = 1").await;
        world.send(world.one(operation, row).await).await.ok();
        world.send(world.one(operation, row).await).await.error(409, "cap_reached");
        self.absorb(&world);
    }

    /// Failing wallets, and a service that does not sell credit.
    async fn wallets(&self, operation: &Operation, row: &Row) {
        let bank = &self.rig.bank;
        if operation.id == "getWalletBalance" {
            let body = rows::ROWS.iter().find(|row| row.id == "connectWallet").unwrap().body.unwrap();
            let body = body(&Resource::nothing());
            self.rig.ask(Method::PUT, "/api/wallet/connection", Some(&body.to_string())).await.ok();
            bank.state().held = Err(Fault::Unreachable);
            self.send(self.one(operation, row).await).await.error(503, "wallet_silent");
            return;
        }
        let without = World::with_config("").await;
        without.send(without.one(operation, row).await).await.error(409, "wallet_not_offered");
        self.absorb(&without);
        if operation.id == "connectWallet" {
            for (fault, status, code) in [
                (Fault::Unauthorized, 422, "wallet_unauthorized"),
                (Fault::Restricted, 422, "wallet_restricted"),
                (Fault::Unreachable, 502, "wallet_unreachable"),
                (Fault::Internal, 502, "wallet_internal"),
            ] {
                bank.state().held = Err(fault);
                self.send(self.one(operation, row).await).await.error(status, code);
            }
        } else {
            bank.state().makes_none = Some(Fault::Unreachable);
            self.send(self.one(operation, row).await).await.error(502, "service_wallet_failed");
        }
        let resource = self.resource(row.about).await;
        let call = || self.send(Call::new(operation, row, &resource, Credential::Owner));
        for _ in 0..10 {
            call().await.error(
                502,
                if row.id == "createTopUp" { "service_wallet_failed" } else { "wallet_internal" },
            );
        }
        let text = call().await.error(429, "rate_limited");
        assert_eq!(text, "Rate limit exceeded. Maximum 10 requests per minute.");
    }

    async fn watchers(&self, operation: &Operation, row: &Row) {
        let feed = self.rig.app.store.feed();
        let mut held: Vec<_> =
            (0..WATCHERS_PER_ACCOUNT_MAX).map(|_| feed.watch(self.rig.account, None).unwrap()).collect();
        self.send(self.one(operation, row).await).await.error(429, "too_many_streams");
        held.pop();
        for number in held.len()..WATCHERS_MAX {
            let account = i64::try_from(1_000 + number / WATCHERS_PER_ACCOUNT_MAX).unwrap();
            held.push(feed.watch(AccountId(account), None).unwrap());
        }
        self.send(self.one(operation, row).await).await.error(503, "too_many_streams");
    }

    /// Invalid names and links, and no free hashing permit.
    async fn passwords(&self, operation: &Operation, row: &Row) {
        let refused = async |body: serde_json::Value, status: u16, code: &str| {
            let call = self.one(operation, row).await.with_body(body.to_string());
            let text = self.send(call).await.error(status, code);
            assert!(!text.contains("hunter2"), "{text}");
        };
        let secret = "hunter2hunter2";
        match operation.id {
            "logIn" => {
                refused(json!({"name": "owner", "password": secret}), 401, "invalid_login").await;
                let disable = |disabled| {
                    let change = AccountChange { disabled: Some(disabled), ..Default::default() };
                    let (store, actor) = (self.rig.app.store.clone(), self.actor());
                    async move { store.change_account(&actor, change).await.unwrap() }
                };
                let call = self.one(operation, row).await;
                disable(true).await;
                self.send(call).await.error(403, "account_disabled");
                disable(false).await;
            }
            "setUp" => {
                refused(json!({"name": "eve", "password": secret}), 403, "registration_closed").await;
                let unknown = new_invite_token().into_inner();
                refused(json!({"token": unknown, "name": "eve", "password": secret}), 404, "not_found").await;
                let resource = self.resource(About::Invite).await;
                let taken = json!({"token": resource.name, "name": "owner", "password": secret});
                refused(taken, 409, "name_taken").await;
            }
            _ => {
                let wrong = json!({"currentPassword": secret, "newPassword": secret});
                refused(wrong, 422, "password_refused").await;
            }
        }
        let call = self.one(operation, row).await;
        let _all = self.rig.app.limits.hashing.acquire_many(2).await.unwrap();
        self.rig.app.clock.passing(Duration::from_millis(100), self.send(call)).await.error(503, "busy");
    }

    /// Two requests end the same session: both are authenticated before either is executed.
    async fn two_at_once(&self, operation: &Operation, row: &Row) {
        let (token, login) = self.session(self.rig.account).await;
        let bearer = format!("Bearer {token}");
        let call = || {
            let call = Call::new(operation, row, &Resource::nothing(), Credential::Nobody);
            self.send(call.with_header("authorization", &bearer))
        };
        let mut intruder = self.rig.intruder().await;
        intruder.keep_from_writing().await;
        let app = &self.rig.app;
        let let_in = async || {
            let verdict = app.limits.writes.peek(Subject::Login(login), app.clock.monotonic());
            verdict.remaining + 2 <= verdict.rule.max
        };
        let released = async {
            self.rig.until("both to be let in", let_in).await;
            intruder.let_write().await;
        };
        let (first, second, ()) = tokio::join!(call(), call(), released);
        let (done, late): (Vec<Answer>, Vec<Answer>) =
            [first, second].into_iter().partition(|answer| answer.status.is_success());
        assert_eq!((done.len(), late.len()), (1, 1));
        assert_eq!(late[0].error(404, "not_found"), "No such session");
    }

    async fn disabled_destination(&self, operation: &Operation, row: &Row) {
        let mut intruder = self.rig.intruder().await;
        for enabled in [false, true] {
            intruder.enable_destination(1, enabled).await;
            let answer = self.send(self.one(operation, row).await).await;
            match enabled {
                true => drop(answer.ok()),
                false => {
                    let text = answer.error(401, "invalid_key");
                    assert_eq!(text, INVALID_PUBLIC_KEY_TEXT, "{}", operation.id);
                }
            }
        }
    }
}
