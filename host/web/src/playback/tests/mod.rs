//! Playback over real sockets, with a real store and an opening that the test fills.

mod access;
mod bodies;
mod cors;
mod follow;
mod metering;
mod preview;
mod ready;
mod relay;
mod routes;
mod segments;
mod watch;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use poem::http::HeaderMap;
use poem::http::header::{HeaderName, HeaderValue};
use satcast_plugin_api::playback::PLAYLIST_TYPE;
use satcast_plugin_api::{Asset, AssetBody, Audience, Playback as Told};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::*;
use crate::api::tests::contract;
use crate::site::Site;
use satcast_core::config::{self, Durability, Flags};
use satcast_core::ids::{AccountId, DestinationId, Msat, SessionId, UnixMillis};
use satcast_core::secret::{KeyKind, Vault, new_api_key, new_stream_key};
use satcast_drivers::testing;
use satcast_live::Settings;
use satcast_net::http::{Server, ServerLimits};
use satcast_net::outbound::Guard;
use satcast_store::testing::Intruder;
use satcast_store::{
    self, Actor, Caps, NewAccount, NewDestination, NewKey, NewStream, OpenOptions, Origin, Scopes,
};

/// Longest wait for an expected event.
const WAIT_MAX: Duration = Duration::from_secs(60);
const START: UnixMillis = UnixMillis(1_800_000_000_000);
const SESSION: &str = "ses_0123456789abcdefghijkl";
const ENTRY: &str = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nmedia.m3u8\n";
const PREVIEW: &str = "#EXTM3U\n#EXT-X-MAP:URI=\"i1-0.mp4\"\n#EXTINF:6.000,\np1-3.m4s\n";

/// One service with one live destination, and a clock moved by hand.
struct Rig {
    playback: Arc<Playback>,
    app: Arc<crate::api::App>,
    opening: Arc<Opening>,
    account: AccountId,
    destination: DestinationId,
    path: String,
    key: String,
    address: SocketAddr,
    folder: TempDir,
    _stop: oneshot::Sender<()>,
}

/// An answer taken apart.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Asserts the error shape, and gives the body.
    fn error(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        let body: Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(body["code"], code);
        assert_eq!(body["requestId"], self.header("x-request-id"));
        assert_eq!(self.header("content-type"), "application/json");
        assert_eq!(self.header("cache-control"), "no-store");
        assert_eq!(self.header("access-control-allow-origin"), "*");
        assert_eq!(self.header("x-content-type-options"), "nosniff");
        let retry = body.get("retryAfter").map_or(String::new(), Value::to_string);
        assert_eq!(self.header("retry-after"), retry);
        assert_eq!(
            !retry.is_empty(),
            matches!(status, 429 | 503) || code == "starting",
            "responses with a wait have Retry-After: {self:?}"
        );
        body
    }

    fn ok(&self) -> &[u8] {
        assert_eq!(self.status, 200, "{self:?}");
        &self.body
    }

    /// Path of the first asset in a playlist.
    fn first(&self, base: &str) -> String {
        self.ok();
        format!("{}/{}", base.rsplit_once('/').unwrap().0, entry::first(self.text()).unwrap())
    }
}

impl Rig {
    async fn new() -> Self {
        Self::with_config(json!({})).await
    }

    async fn with_config(config: Value) -> Self {
        Self::of(config, None).await
    }

    async fn of(config: Value, owners: Option<Arc<dyn Owners>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = satcast_store::testing::url(&folder.path().join("t.db")).await;
        let vault = vault();
        let store = satcast_store::open(OpenOptions {
            url,
            durability: Durability::Normal,
            vault,
            low_balance: Msat(0),
        })
        .await
        .unwrap();
        let app = app(store, Clock::manual(START), folder.path(), owners);
        let (live, playback) = (app.live.clone(), app.playback.clone());
        let (account, destination, path) = destination(&app.store, config).await;
        let opening = live.begin_opening(destination, SessionId(SESSION.into()));
        let (address, stop) = serve(Site::new(app.clone(), crate::pages::testing::pages())).await;
        let mut rig = Self {
            playback,
            app,
            opening,
            account,
            destination,
            path,
            key: String::new(),
            address,
            folder,
            _stop: stop,
        };
        rig.key = rig.new_key(KeyKind::Public, Some(destination)).await;
        rig.fill();
        rig
    }

    async fn new_key(&self, kind: KeyKind, destination: Option<DestinationId>) -> String {
        let key = new_api_key(kind);
        let new = NewKey {
            login: None,
            kind,
            key: key.clone(),
            scopes: Scopes::ALL,
            destination_id: destination,
            label: String::new(),
            caps: caps(),
        };
        self.app.store.create_key(&Actor::command(self.account, START), new).await.unwrap();
        key.into_inner()
    }

    /// What a driver would publish of a stream.
    fn fill(&self) {
        let playlist =
            |name, text: String| self.publish(name, PLAYLIST_TYPE, 1, Audience::Both, text.into_bytes());
        playlist("index.m3u8", ENTRY.to_owned());
        playlist("media.m3u8", media_playlist(1..40));
        self.publish("preview.m3u8", PLAYLIST_TYPE, 1, Audience::Preview, PREVIEW.into());
        self.media("i1-0.mp4", vec![1; 700]);
        for sequence in 1..40 {
            self.media(&format!("{sequence}.m4s"), noise(100_000 + sequence));
        }
        let parts = AssetBody::Parts(vec!["1.m4s".into(), "2.m4s".into(), "3.m4s".into()]);
        self.put("p1-3.m4s", "video/mp4", 3_600, Audience::Preview, parts);
        self.tell(false);
    }

    fn tell(&self, ended: bool) {
        self.tell_fresh(6_000, ended);
    }

    fn tell_fresh(&self, fresh_ms: u32, ended: bool) {
        let told = Told {
            entry: "index.m3u8".into(),
            preview: Some("preview.m3u8".into()),
            first_ms: START.0,
            window_ms: 78_000,
            window_max_ms: 3_600_000,
            fresh_ms,
            ended,
        };
        self.opening.assets().set_playback(told, self.app.clock.monotonic());
    }

    fn put(&self, name: &str, content_type: &str, max_age_secs: u32, audience: Audience, body: AssetBody) {
        let (name, content_type, followed) = (name.into(), content_type.into(), Default::default());
        let asset = Asset { name, content_type, max_age_secs, audience, body, followed };
        self.opening.assets().publish(asset, self.folder.path()).unwrap();
    }

    fn publish(&self, name: &str, content_type: &str, max_age_secs: u32, audience: Audience, bytes: Vec<u8>) {
        let body = AssetBody::Memory(Bytes::from(bytes));
        self.put(name, content_type, max_age_secs, audience, body);
    }

    fn media(&self, name: &str, bytes: Vec<u8>) {
        self.publish(name, "video/mp4", 3_600, Audience::Both, bytes);
    }

    /// Writes a file and publishes all but its first and last 10 bytes.
    fn file(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.folder.path().join(name), bytes).unwrap();
        let len = bytes.len() as u64 - 20;
        let keep = None;
        let body = AssetBody::File { path: Path::new(name).into(), offset: 10, len, keep };
        self.put(name, "video/mp4", 3_600, Audience::Both, body);
    }

    async fn intruder(&self) -> Intruder {
        Intruder::open(&self.folder.path().join("t.db")).await
    }

    fn index(&self) -> String {
        format!("/hls/{}/index.m3u8?apiKey={}", self.path, self.key)
    }

    fn preview(&self) -> String {
        format!(
            "/hls/{}/index.m3u8?token={}",
            self.path,
            self.playback.preview_token(&self.opening, &self.path)
        )
    }

    /// Path of an asset as a viewer with the key finds it.
    async fn asset(&self, name: &str) -> String {
        let media = self.get(&self.index()).await.first(&format!("/hls/{}/", self.path));
        format!("{}/{name}", media.rsplit_once('/').unwrap().0)
    }

    /// The same with a preview token.
    fn preview_asset(&self, name: &str) -> String {
        format!("/hls/{}/t/{}/{name}", self.path, self.playback.preview_token(&self.opening, &self.path))
    }

    async fn get(&self, target: &str) -> Answer {
        self.ask("GET", target, &[]).await
    }

    async fn ask(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
        let mut socket = self.send(method, target, headers).await;
        let mut answer = Vec::new();
        tokio::time::timeout(WAIT_MAX, socket.read_to_end(&mut answer)).await.unwrap().unwrap();
        let answer = parse(&answer);
        let (method, path) = (method.parse().unwrap(), target.split('?').next().unwrap());
        let text = String::from_utf8_lossy(&answer.body);
        let status = StatusCode::from_u16(answer.status).unwrap();
        contract::check(&method, path, status, &answer.headers, &text);
        answer
    }

    async fn send(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> TcpStream {
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        socket.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
        socket
    }

    async fn used(&self) -> u64 {
        self.playback.this_hour(self.account).await.unwrap().bytes
    }
}

/// The parts of a service on a store; `owners` are the other nodes.
fn app(store: Store, clock: Clock, folder: &Path, owners: Option<Arc<dyn Owners>>) -> Arc<crate::api::App> {
    let secret = PlaybackSecret::of(&vault());
    let settings = Settings::default();
    let flags = Flags { data_dir: Some(folder.to_owned()), ..Flags::default() };
    let service = Arc::new(Config::load(None, [], &flags).unwrap().config);
    let live = Live::new(store.clone(), testing::drivers(), clock.clone(), settings);
    let limits = crate::api::Limits::default();
    let guesses = limits.invalid_keys.clone();
    let playback =
        Playback::new(store.clone(), live.clone(), clock.clone(), service.clone(), &secret, guesses, owners);
    let targets = satcast_webhooks::Targets::new(&service).unwrap();
    let sender = satcast_webhooks::Sender::new(targets).unwrap();
    let reports = Default::default();
    let archive = satcast_archive::Archive::new(store.clone(), testing::drivers(), reports, clock.clone());
    Arc::new(crate::api::App {
        archive,
        nodes: None,
        wallets: satcast_money::wallet::topups::testing::Bank::new(clock.clone()).topups(&store, &service),
        webhooks: satcast_webhooks::Webhooks::new(store.clone(), sender, clock.clone()),
        ports: Default::default(),
        billing: satcast_money::billing::Billing::new(store.clone(), clock.clone(), &service),
        store,
        live,
        drivers: testing::drivers(),
        playback,
        guard: Guard::new(&[]).unwrap(),
        clock,
        ingest: config::IngestAddresses::new(
            &service.public_url,
            service.ingest.rtmp_listen,
            None,
            None,
            false,
        ),
        whip: None,
        current: config::Current::new(Config::clone(&service)),
        stopping: Default::default(),
        limits,
        known: Default::default(),
        key_uses: Default::default(),
    })
}

fn vault() -> Vault {
    Vault::new(&[7; 32])
}

fn caps() -> Caps {
    Caps { destinations_per_stream: 50, streams_per_account: 50, keys_per_account: 50 }
}

async fn destination(store: &Store, config: Value) -> (AccountId, DestinationId, String) {
    let new =
        NewAccount { name: "owner".into(), password_hash: None, operator: false, initial_credit: Msat(0) };
    let account = store.create_account(&Origin::command(START), new).await.unwrap();
    let destination = NewDestination {
        kind: "shown".into(),
        platform: "self-hosted".into(),
        config,
        has_playback: true,
        delays: Default::default(),
    };
    let stream = NewStream {
        srt_passphrase: None,
        allowed: Default::default(),
        label: "test".into(),
        stream_key: new_stream_key(),
        destinations: vec![destination],
        caps: caps(),
    };
    let (stream, destinations) = store.create_stream(&Actor::command(account, START), stream).await.unwrap();
    let records = store.destinations_of(stream).await.unwrap();
    (account, destinations[0], records[0].playback_path.clone().unwrap())
}

async fn serve(site: Site) -> (SocketAddr, oneshot::Sender<()>) {
    let listen = config::Http {
        listen: "127.0.0.1:0".parse().unwrap(),
        tls_cert: None,
        tls_key: None,
        trusted_proxies: Vec::new(),
    };
    let server = Server::bind(&listen, ServerLimits::default()).await.unwrap();
    let address = server.local_addr();
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(server.serve(site, async {
        let _ = stopped.await;
    }));
    (address, stop)
}

/// An answer whose connection was closed behind it.
fn parse(answer: &[u8]) -> Answer {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head");
    let head = std::str::from_utf8(&answer[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.map(|line| line.split_once(": ").unwrap());
    let headers = headers
        .map(|(name, value)| (HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap()));
    let mut map = HeaderMap::new();
    headers.for_each(|(name, value)| {
        map.append(name, value);
    });
    Answer { status, headers: map, body: answer[end + 4..].to_vec() }
}

fn media_playlist(sequences: std::ops::Range<u32>) -> String {
    let mut text = "#EXTM3U\n#EXT-X-MAP:URI=\"i1-0.mp4\"\n".to_owned();
    for sequence in sequences {
        text.push_str(&format!("#EXTINF:2.000,\n{sequence}.m4s\n"));
    }
    text
}

/// Bytes in which no two neighbouring blocks are equal.
fn noise(len: usize) -> Vec<u8> {
    (0..len as u64).map(|index| (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
