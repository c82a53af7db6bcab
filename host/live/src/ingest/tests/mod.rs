//! Real loopback sockets, a real database and a scripted encoder; only the live sessions are replaced by a fake.

mod admitted;
mod limits;
mod log;
mod proxied;
mod refused;
mod secure;
mod srt;
mod whip;
mod wrong_keys;

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use satcast_media::flv::ForeignCodec;
use satcast_media::rtmp::client::{ClientConfig, ClientEvent, ClientSession};
use satcast_media::{Codec, NANOS_PER_MILLI, Packet, Role};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tracing_subscriber::fmt::MakeWriter;

use self::log::Log;
use super::*;
use crate::{EncoderRole, Via};
use satcast_core::config::Durability;
use satcast_core::ids::{StreamId, UnixMillis};
use satcast_core::secret::{Vault, new_stream_key};
use satcast_store::{Actor, Caps, NewAccount, NewStream, OpenOptions, Origin, StreamRecord};

/// Longest wait in a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// The mark that the fake live sessions have themselves.
const LOOP_MARK: [u8; 8] = [7; 8];

/// What the fake live sessions do with a publish request.
#[derive(Debug, Clone)]
enum Behaviour {
    Accept,
    Refuse(Status),
    Hang,
    Panic,
    /// The key is replaced meanwhile.
    Replace(Store),
}

/// Fake live sessions: packets go into a channel.
#[derive(Debug, Clone)]
struct FakeLive {
    behaviour: Arc<Mutex<Behaviour>>,
    pushes: mpsc::UnboundedSender<Vec<Packet>>,
    close: watch::Sender<Option<Status>>,
    publishers: Arc<AtomicUsize>,
    refused: Arc<Mutex<Vec<(StreamId, Status)>>>,
}

#[derive(Debug)]
struct FakePublisher(FakeLive);

impl Admission for FakeLive {
    type Publisher = FakePublisher;

    async fn publish(
        &self,
        stream: StreamRecord,
        _: EncoderRole,
        _via: Via,
        _: IpAddr,
    ) -> Result<FakePublisher, Status> {
        assert_eq!(stream.label, "test");
        let behaviour = self.behaviour.lock().clone();
        match behaviour {
            Behaviour::Accept => {
                self.publishers.fetch_add(1, Ordering::SeqCst);
                Ok(FakePublisher(self.clone()))
            }
            Behaviour::Refuse(status) => Err(status),
            Behaviour::Hang => std::future::pending().await,
            Behaviour::Panic => panic!("on purpose"),
            Behaviour::Replace(store) => {
                let owner = Actor::command(stream.account_id, UnixMillis(1_700_000_000_001));
                store.replace_stream_key(&owner, stream.id, &new_stream_key()).await.unwrap();
                self.publishers.fetch_add(1, Ordering::SeqCst);
                Ok(FakePublisher(self.clone()))
            }
        }
    }

    fn refused(&self, stream: StreamId, status: &Status) {
        self.refused.lock().push((stream, status.clone()));
    }
}

impl PacketSink for FakePublisher {
    fn push(&mut self, packets: &mut Vec<Packet>) {
        assert!(!packets.is_empty(), "a push has packets");
        let _receiver_may_be_gone = self.0.pushes.send(std::mem::take(packets));
    }

    fn foreign(&mut self, _: ForeignCodec) {}

    fn came_through(&mut self, via: Via) -> Result<(), Status> {
        if via == Via::of_note(&LOOP_MARK) { Err(Status::new(admit::CODE_DENIED, "a loop")) } else { Ok(()) }
    }

    async fn closed(&self) -> Status {
        let mut close = self.0.close.subscribe();
        let status = close.wait_for(Option::is_some).await.ok().and_then(|status| status.clone());
        status.expect("the sender lives as long as the publisher")
    }
}

impl Drop for FakePublisher {
    fn drop(&mut self) {
        self.0.publishers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A running listener with one stream in its database.
struct Service {
    address: SocketAddr,
    /// The RTMPS port; its certificate is in the folder.
    secure: SocketAddr,
    /// The SRT port.
    srt: SocketAddr,
    /// The port of WHIP, and its HTTP side.
    media: SocketAddr,
    whip: Whip,
    key: String,
    stream: StreamId,
    store: Store,
    live: FakeLive,
    pushed: mpsc::UnboundedReceiver<Vec<Packet>>,
    clock: Clock,
    shared: Arc<Shared<FakeLive>>,
    shutdown: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
    _folder: TempDir,
}

impl Service {
    async fn start(read_batch_ms: u64, change: impl FnOnce(&mut Limits)) -> Self {
        let mut settings = Settings::new(SocketAddr::from(([127, 0, 0, 1], 0)), read_batch_ms);
        // The wait between reads begins at once.
        (settings.limits.prompt, settings.limits.first_gop) = (Duration::ZERO, Duration::ZERO);
        change(&mut settings.limits);
        Self::with(settings).await
    }

    async fn with(settings: Settings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open_store(&folder).await;
        let (key, stream) = new_stream(&store).await;
        let (pushes, pushed) = mpsc::unbounded_channel();
        let live = FakeLive {
            behaviour: Arc::new(Mutex::new(Behaviour::Accept)),
            pushes,
            close: watch::Sender::new(None),
            publishers: Arc::default(),
            refused: Arc::default(),
        };
        let clock = Clock::manual(UnixMillis(1_700_000_000_000));
        let settings =
            settings.with_tls(SocketAddr::from(([127, 0, 0, 1], 0)), secure::certificates(&folder));
        let settings = settings.with_srt(SocketAddr::from(([127, 0, 0, 1], 0)));
        let settings = match settings.whip {
            Some(_) => settings,
            None => settings.with_whip(SocketAddr::from(([127, 0, 0, 1], 0))),
        };
        let mut listener =
            Listener::bind(settings, store.clone(), live.clone(), clock.clone()).await.unwrap();
        // Log lines are collected on the test's thread.
        listener.threads = super::threads::Threads::here();
        let address = listener.local_addr().unwrap();
        let secure = listener.secure_addr().unwrap().unwrap();
        let srt = listener.srt_addr().unwrap().unwrap();
        let (media, whip) = (listener.whip_addr().unwrap().unwrap(), listener.whip().unwrap());
        let shared = Arc::clone(&listener.shared);
        let (shutdown, stop) = oneshot::channel();
        let running = tokio::spawn(listener.run(async move {
            let _dropped_or_sent = stop.await;
        }));
        let shutdown = Some(shutdown);
        Self {
            address,
            secure,
            srt,
            media,
            whip,
            key,
            stream,
            store,
            live,
            pushed,
            clock,
            shared,
            shutdown,
            running,
            _folder: folder,
        }
    }

    /// Default settings, with short deadlines for tests.
    async fn quick() -> Self {
        Self::start(0, |limits| limits.linger = Duration::from_millis(200)).await
    }

    fn behave(&self, behaviour: Behaviour) {
        *self.live.behaviour.lock() = behaviour;
    }

    fn publishers(&self) -> usize {
        self.live.publishers.load(Ordering::SeqCst)
    }

    /// The refusals of encoders with the right key so far.
    fn refused(&self) -> Vec<(StreamId, Status)> {
        self.live.refused.lock().clone()
    }

    /// Waits for `count` packets; returns them with the number of pushes.
    async fn packets(&mut self, count: usize) -> (Vec<Packet>, usize) {
        let mut packets = Vec::new();
        let mut pushes = 0;
        while packets.len() < count {
            packets.extend(timeout(PATIENCE, self.pushed.recv()).await.expect("packets in time").unwrap());
            pushes += 1;
        }
        (packets, pushes)
    }

    async fn no_publisher_is_left(&self) {
        eventually(|| self.publishers() == 0).await;
    }
}

/// Waits until `reached` holds.
async fn eventually(reached: impl Fn() -> bool) {
    timeout(PATIENCE, async {
        while !reached() {
            sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .expect("the state is reached in time");
}

async fn open_store(folder: &TempDir) -> Store {
    let url = satcast_store::testing::url(&folder.path().join("test.db")).await;
    let vault = Vault::new(&[7; 32]);
    satcast_store::open(OpenOptions { url, durability: Durability::Normal, vault, low_balance: 0.into() })
        .await
        .unwrap()
}

async fn new_stream(store: &Store) -> (String, StreamId) {
    let now = UnixMillis(1_700_000_000_000);
    let account = NewAccount {
        name: "owner".to_owned(),
        password_hash: None,
        operator: false,
        initial_credit: 0.into(),
    };
    let account_id = store.create_account(&Origin::command(now), account).await.unwrap();
    let stream_key = new_stream_key();
    let key = stream_key.expose().clone();
    let caps = Caps { destinations_per_stream: 1, streams_per_account: 1, keys_per_account: 1 };
    let label = "test".to_owned();
    let stream = NewStream {
        srt_passphrase: None,
        allowed: Default::default(),
        label,
        stream_key,
        destinations: vec![],
        caps,
    };
    (key, store.create_stream(&Actor::command(account_id, now), stream).await.unwrap().0)
}

/// A well-formed key of no stream.
fn wrong_key() -> String {
    new_stream_key().into_inner()
}

/// A scripted encoder.
struct Encoder {
    socket: TcpStream,
    session: ClientSession,
    /// All bytes sent.
    written: Vec<u8>,
}

impl Encoder {
    async fn connect(address: SocketAddr, app: &str, name: &str) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        socket.set_nodelay(true).unwrap();
        let session = ClientSession::new(ClientConfig {
            app: app.to_owned(),
            tc_url: format!("rtmp://{address}/{app}"),
            stream_key: name.to_owned(),
            ..ClientConfig::default()
        });
        Self { socket, session, written: Vec::new() }
    }

    /// Connects and waits for the answer to its publish.
    async fn publish(address: SocketAddr, name: &str) -> (Self, Option<ClientEvent>) {
        let mut encoder = Self::connect(address, "live", name).await;
        let answer = encoder.event().await;
        (encoder, answer)
    }

    async fn publishing(service: &Service) -> Self {
        let (encoder, answer) = Self::publish(service.address, &service.key).await;
        assert_eq!(answer, Some(ClientEvent::Publishing));
        encoder
    }

    /// Writes the pending output. An error means that the service closed the connection.
    async fn flush(&mut self) -> io::Result<()> {
        let bytes = self.session.output().take();
        self.written.extend_from_slice(&bytes);
        self.socket.write_all(&bytes).await
    }

    /// The next event, without acknowledgements; `None` when the service closed the connection.
    async fn event(&mut self) -> Option<ClientEvent> {
        timeout(PATIENCE, async {
            loop {
                match self.session.poll_event() {
                    Some(ClientEvent::Acknowledged { .. }) => {}
                    Some(event) => return Some(event),
                    None => {
                        let _closed_shows_in_the_read = self.flush().await;
                        let mut block = vec![0; 4096];
                        let read = self.socket.read(&mut block).await.unwrap_or(0);
                        if read == 0 {
                            return None;
                        }
                        block.truncate(read);
                        self.session.input(block.into()).unwrap();
                    }
                }
            }
        })
        .await
        .expect("an event or the end in time")
    }

    async fn send(&mut self, packets: &[Packet]) {
        for packet in packets {
            self.session.send(packet).unwrap();
        }
        self.flush().await.unwrap();
    }
}

/// An encoder with the right key from another address.
async fn publishing_from_elsewhere(service: &Service) -> Encoder {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
    let mut encoder = Encoder::connect(service.address, "live", &service.key).await;
    encoder.socket = socket.connect(service.address).await.unwrap();
    assert_eq!(encoder.event().await, Some(ClientEvent::Publishing), "another address has its own limits");
    encoder
}

/// Waits until the service has closed the connection; whether it said so properly does not matter.
async fn closed_by_service(socket: &mut TcpStream) -> bool {
    let mut block = [0; 1024];
    timeout(PATIENCE, async { while socket.read(&mut block).await.is_ok_and(|read| read > 0) {} })
        .await
        .is_ok()
}

fn packet(codec: Codec, role: Role, millis: i64, payload: impl Into<Bytes>) -> Packet {
    let dts_ns = millis * NANOS_PER_MILLI;
    Packet { role, ..Packet::media(codec, false, dts_ns, dts_ns, payload.into()) }
}

fn audio(millis: i64, bytes: usize) -> Packet {
    packet(Codec::Aac, Role::Data, millis, vec![0x21; bytes])
}

/// AAC LC, 44.1 kHz, stereo; an H.264 record with a parameter set each; a keyframe; audio.
fn start_of_stream() -> Vec<Packet> {
    let avcc: &[u8] = &[
        1, 0x64, 0, 0x1f, 0xff, 0xe1, 0, 9, 0x67, 0x64, 0, 0x1f, 0xac, 0xd9, 0x40, 0x50, 0x05, 1, 0, 4, 0x68,
        0xeb, 0xe3, 0xcb,
    ];
    let mut nal = vec![0, 0, 0x40, 0, 0x65];
    nal.resize(4 + 0x4000, 0xab);
    let keyframe = Packet { keyframe: true, ..packet(Codec::H264, Role::Data, 0, nal) };
    vec![
        packet(Codec::H264, Role::Config, 0, avcc),
        packet(Codec::Aac, Role::Config, 0, &[0x12, 0x10][..]),
        keyframe,
        audio(0, 300),
        audio(23, 300),
    ]
}
