//! The API against a real store, real sessions and a driver behind the C table; requests go through the middleware.

mod accounts;
mod analytics;
mod archives;
mod audit;
mod bodies;
mod clips;
pub(crate) mod contract;
mod cost;
mod deliveries;
mod destinations;
mod edits;
mod errors;
mod events;
mod idempotency;
mod keys;
mod limits;
mod lists;
mod login;
mod metrics;
mod poster;
mod recordings;
mod recordings_nodes;
mod slate;
mod status;
mod streams;
mod table;
mod texts;
mod viewers;
mod wallet;
mod wallets;
mod webhook_events;
mod webhooks;
mod whip;

use std::sync::{Arc, OnceLock};

use poem::http::{Method, StatusCode};
use poem::{Request, Route};
use satcast_plugin_api::driver::{
    Config as DriverConfig, Ctx, Destination, Driver, DriverInfo, DynDestination, Host, Media, Recordings,
};
use satcast_plugin_api::{DestType, Error, Secret, driver_entry};
use serde_json::Value;
use tempfile::TempDir;

use super::{App, Limits, endpoint};
use crate::base::Middleware;
use crate::playback::{Playback, PlaybackSecret};
use satcast_archive::Archive;
use satcast_archive::testing::{Kept, reports};
use satcast_core::clock::Clock;
use satcast_core::config::{Config, Current, Durability, Flags, IngestAddresses};
use satcast_core::ids::{AccountId, Msat, UnixMillis};
use satcast_core::secret::{KeyKind, Vault, new_api_key};
use satcast_drivers::testing;
use satcast_drivers::{Drivers, RecordingParts};
use satcast_live::{Live, Settings};
use satcast_money::billing::Billing;
use satcast_money::wallet::topups::testing::Bank;
use satcast_net::outbound::Guard;
use satcast_store::testing::Intruder;
use satcast_store::{NewAccount, NewKey, OpenOptions, Origin, Scopes};
use satcast_webhooks::{Sender, Targets, Webhooks};

/// Configuration of the test's `rtmp` type.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Target {
    url: String,
    #[allow(dead_code, reason = "read by the schema only")]
    key: Option<Secret<String>>,
}

/// Configuration of the test's `self-hosted` type.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Hosted {
    #[serde(rename = "dvrSeconds")]
    #[allow(dead_code, reason = "read by the schema only")]
    dvr_seconds: Option<u32>,
    /// Does not end by itself when its stream ends.
    #[serde(default)]
    deaf: bool,
}

/// The url at which the test's driver fails.
const BROKEN: &str = "rtmp://broken.example/live";

struct Rtmp(Kept);

struct Sink {
    deaf: bool,
}

impl Driver for Rtmp {
    const INFO: DriverInfo = DriverInfo { id: "apitest", version: "1.0.0", title: "API test" };

    fn types() -> Vec<DestType> {
        let hosted = DestType::of::<Hosted>("self-hosted").title("Self-hosted").playback();
        vec![DestType::of::<Target>("rtmp").title("RTMP"), hosted]
    }

    fn load(host: &Host) -> Result<Self, Error> {
        Ok(Rtmp(Kept(host.clone())))
    }

    fn recordings(&self) -> Option<&dyn Recordings> {
        Some(&self.0)
    }

    fn validate(&self, config: DriverConfig<'_>) -> Result<(), Error> {
        if config.type_name() == "self-hosted" {
            return config.parse::<Hosted>().map(drop);
        }
        let url = config.parse::<Target>()?.url;
        if url == BROKEN {
            return Err(Error::internal("hunter2hunter2"));
        }
        if url.starts_with("rtmp://") { Ok(()) } else { Err(Error::config("url: must begin with rtmp://")) }
    }

    fn open(&self, config: DriverConfig<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        let deaf = config.type_name() == "self-hosted" && config.parse::<Hosted>()?.deaf;
        Ok(Arc::new(Sink { deaf }))
    }
}

impl Destination for Sink {
    async fn run(self: Arc<Self>, _ctx: Ctx, mut media: Media) -> Result<(), Error> {
        let mut batch = Vec::new();
        while media.recv_batch(&mut batch).await {
            batch.clear();
        }
        if self.deaf {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

driver_entry!(rtmp_entry, Rtmp);

/// Id of the linked driver.
const LINKED_DRIVER: &str = "apitest";

fn drivers() -> Drivers {
    static DRIVERS: OnceLock<Drivers> = OnceLock::new();
    let parts = || RecordingParts { reports: reports(), vault: None };
    DRIVERS.get_or_init(|| testing::start_with(rtmp_entry, parts())).clone()
}

fn webhooks(store: &satcast_store::Store, config: &Config, clock: &Clock) -> Webhooks {
    let sender = Sender::new(Targets::new(config).unwrap()).unwrap();
    Webhooks::new(store.clone(), sender, clock.clone())
}

/// One service with one account, its permanent key, and a clock moved by hand.
struct Rig {
    app: Arc<App>,
    bank: Bank,
    middleware: Middleware,
    account: AccountId,
    key: String,
    folder: TempDir,
}

/// A parsed response.
struct Answer {
    status: StatusCode,
    headers: poem::http::HeaderMap,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Asserts the error body and returns its text.
    fn error(&self, status: u16, code: &str) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        let body = self.json();
        assert_eq!(body["code"], code, "{body}");
        assert_eq!(body["requestId"], self.header("x-request-id"), "{body}");
        assert_eq!(self.header("content-type"), "application/json");
        body["error"].as_str().unwrap().to_owned()
    }

    fn ok(&self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        self.json()
    }
}

impl Rig {
    async fn new() -> Self {
        Self::with_config("").await
    }

    /// A service with the given TOML over the defaults.
    async fn with_config(toml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("satcast.toml");
        std::fs::write(&file, toml).unwrap();
        let config = Config::load(Some(&file), [], &Flags::default()).unwrap().config;
        let url = satcast_store::testing::url(&folder.path().join("t.db")).await;
        let vault = Vault::new(&[7; 32]);
        let store = satcast_store::open(OpenOptions {
            url,
            durability: Durability::Normal,
            vault,
            low_balance: config.low_balance(),
        })
        .await
        .unwrap();
        let clock = Clock::manual(UnixMillis(1_800_000_000_000));
        let settings = Settings::default();
        let billing = Billing::new(store.clone(), clock.clone(), &config);
        let live = Live::metered(store.clone(), drivers(), clock.clone(), settings, billing.gate());
        let bank = Bank::new(clock.clone());
        let config = Arc::new(config);
        let secret = PlaybackSecret::of(&Vault::new(&[7; 32]));
        let limits = Limits::default();
        let app = Arc::new(App {
            playback: Playback::new(
                store.clone(),
                live.clone(),
                clock.clone(),
                config.clone(),
                &secret,
                limits.invalid_keys.clone(),
                None,
            ),

            live,
            wallets: bank.topups(&store, &config),
            nodes: None,
            webhooks: webhooks(&store, &config, &clock),
            ports: Default::default(),
            archive: Archive::new(store.clone(), drivers(), reports(), clock.clone()),
            billing,
            store,
            drivers: drivers(),
            guard: Guard::new(&Config::allow_texts(&config.outbound.allow)).unwrap(),
            clock,
            ingest: IngestAddresses::new(&config.public_url, config.ingest.rtmp_listen, None, None, false),
            whip: None,
            current: Current::new(Config::clone(&config)),
            stopping: Default::default(),
            limits,
            known: Default::default(),
            key_uses: Default::default(),
        });
        let (middleware, account) = (endpoint(app.clone(), Route::new()), AccountId(0));
        let mut rig = Self { middleware, app, bank, account, key: String::new(), folder };
        (rig.account, rig.key) = rig.account("owner").await;
        rig
    }

    /// Another account with a permanent key.
    async fn account(&self, name: &str) -> (AccountId, String) {
        self.account_that(name, false).await
    }

    /// The origin of a command of the operator.
    fn origin(&self) -> Origin {
        Origin::command(self.app.clock.now())
    }

    /// The permanent key of an operator.
    async fn operator(&self) -> String {
        self.account_that("operator", true).await.1
    }

    async fn account_that(&self, name: &str, operator: bool) -> (AccountId, String) {
        let new = NewAccount { name: name.into(), password_hash: None, operator, initial_credit: Msat(0) };
        let account = self.app.store.create_account(&self.origin(), new).await.unwrap();
        let key = self.key(account, KeyKind::Permanent, Scopes::ALL, None).await;
        (account, key)
    }

    async fn key(
        &self,
        account: AccountId,
        kind: KeyKind,
        scopes: Scopes,
        destination: Option<i64>,
    ) -> String {
        let key = new_api_key(kind);
        let new = NewKey {
            login: None,
            kind,
            key: key.clone(),
            scopes,
            destination_id: destination.map(Into::into),
            label: String::new(),
            caps: self.app.caps(),
        };
        self.app.store.create_key(&self.origin().acting_for(account), new).await.unwrap();
        key.into_inner()
    }

    /// Another writer to the database.
    async fn intruder(&self) -> Intruder {
        Intruder::open(&self.folder.path().join("t.db")).await
    }

    async fn send(&self, request: Request) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let mut response = self.middleware.answer(request).await;
        let text = response.take_body().into_string().await.unwrap();
        contract::check(&method, &path, response.status(), response.headers(), &text);
        Answer { status: response.status(), headers: response.headers().clone(), text }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&str>) -> Answer {
        let mut request = Request::builder().method(method).uri_str(path).header("X-API-Key", &self.key);
        if body.is_some() {
            request = request.content_type("application/json");
        }
        self.send(request.body(body.unwrap_or_default().to_owned())).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, None).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask(Method::POST, path, Some(&body.to_string())).await
    }

    async fn put(&self, path: &str, body: &Value) -> Answer {
        self.ask(Method::PUT, path, Some(&body.to_string())).await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.ask(Method::DELETE, path, None).await
    }

    /// A new stream's id.
    async fn stream(&self) -> i64 {
        self.post("/api/streams", &serde_json::json!({"label": "test"})).await.ok()["id"].as_i64().unwrap()
    }
}
