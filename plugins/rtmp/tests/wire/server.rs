//! A scripted RTMP server on loopback, and the driver with short time limits.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use satcast_driver_rtmp::attempts::Attempts;
use satcast_driver_rtmp::push::Push;
use satcast_driver_rtmp::target::Target;
use satcast_driver_rtmp::timing::Timing;
use satcast_media::Packet;
use satcast_media::rtmp::Metadata;
use satcast_media::rtmp::server::{PublishId, ServerConfig, ServerEvent, ServerSession};
use satcast_plugin_api::driver::{Config, Driver, DriverInfo, DynDestination, Host, State};
use satcast_plugin_api::testkit::{self, TestDestination};
use satcast_plugin_api::{Codec, DestType, Error};

/// Longest time that a server waits for its client.
const READ_WAIT_MAX: Duration = Duration::from_secs(20);
/// Largest block a server reads at once.
const READ_BYTES: usize = 256 * 1024;

/// The rtmp driver with time limits that are short enough for tests.
pub(crate) struct Quick(Attempts);

/// Time limits of [`Quick`].
pub(crate) const QUICK: Timing = Timing {
    setup: Duration::from_millis(800),
    stalled: Duration::from_millis(500),
    unread_max: Duration::from_millis(1500),
    media_silent: Duration::from_millis(500),
    flush: Duration::from_millis(1000),
};

impl Driver for Quick {
    const INFO: DriverInfo = DriverInfo { id: "rtmp", version: "0.0.0", title: "quick" };

    fn types() -> Vec<DestType> {
        satcast_driver_rtmp::Rtmp::types()
    }

    fn load(_: &Host) -> Result<Self, Error> {
        Ok(Quick(Attempts::default()))
    }

    fn open(&self, config: Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        let target = config.parse::<satcast_driver_rtmp::Config>()?.target()?;
        Ok(Arc::new(Push::new(target, QUICK, crate::tls::trust()).with_attempts(&self.0)))
    }
}

/// Starts a driver of this test's own: each use has its own slot.
macro_rules! kit {
    ($driver:ty) => {{
        satcast_plugin_api::driver_entry!(entry, $driver);
        satcast_plugin_api::testkit::keep_own_logs();
        satcast_plugin_api::testkit::Testkit::start(entry).unwrap()
    }};
}

/// Observations of a server about its client.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) app: String,
    pub(crate) stream_key: String,
    pub(crate) query: Option<String>,
    pub(crate) packets: Vec<Packet>,
    pub(crate) metadata: Vec<Metadata>,
    pub(crate) unpublished: bool,
    /// The client closed the connection in order: with TLS, by its closing alert.
    pub(crate) closed: bool,
    pub(crate) bytes: u64,
    /// All bytes read, if recorded.
    pub(crate) raw: Option<Vec<u8>>,
}

impl Seen {
    /// Media packets without codec configurations.
    pub(crate) fn media(&self) -> impl Iterator<Item = &Packet> {
        self.packets.iter().filter(|packet| !packet.is_config())
    }
}

/// A connection of any kind.
pub(crate) trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// The server's side of one connection.
pub(crate) struct Conn {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) session: ServerSession,
    pub(crate) seen: Seen,
    /// Announces nothing of Enhanced RTMP.
    pub(crate) silent_about_codecs: bool,
    request: Option<PublishId>,
    buffer: Vec<u8>,
}

impl Conn {
    fn new(stream: Box<dyn Stream>) -> Self {
        let session = ServerSession::new(ServerConfig::default());
        let (seen, buffer) = (Seen::default(), vec![0; READ_BYTES]);
        Conn { stream, session, seen, silent_about_codecs: false, request: None, buffer }
    }

    /// Reads once; false at the end of the connection.
    pub(crate) fn read(&mut self) -> bool {
        let count = match self.stream.read(&mut self.buffer) {
            Ok(count @ 1..) => count,
            end => {
                self.seen.closed = end.is_ok();
                return false;
            }
        };
        self.seen.bytes += count as u64;
        let block = &self.buffer[..count];
        if let Some(raw) = &mut self.seen.raw {
            raw.extend_from_slice(block);
        }
        self.session.input(Bytes::copy_from_slice(block)).unwrap();
        while let Some(event) = self.session.poll_event() {
            match event {
                ServerEvent::Connected { .. } | ServerEvent::Foreign(_) => {}
                ServerEvent::PublishRequested { id, app, stream_key, query } => {
                    self.request = Some(id);
                    (self.seen.app, self.seen.stream_key, self.seen.query) = (app, stream_key, query);
                }
                ServerEvent::Packet(packet) => self.seen.packets.push(packet),
                ServerEvent::Metadata(metadata) => self.seen.metadata.push(metadata),
                ServerEvent::Unpublished => self.seen.unpublished = true,
            }
        }
        self.flush();
        true
    }

    /// Writes the session's output.
    pub(crate) fn flush(&mut self) {
        let mut output = self.session.take_output().to_vec();
        if self.silent_about_codecs {
            for name in [&b"FourCcInfoMap"[..], b"fourCcList"] {
                for at in 0..output.len().saturating_sub(name.len()) {
                    if output[at..].starts_with(name) {
                        output[at] = b'-';
                    }
                }
            }
        }
        // A closed client is seen at the next read.
        let _ = self.stream.write_all(&output);
    }

    /// Reads until the client asks to publish.
    pub(crate) fn requested(&mut self) -> PublishId {
        while self.request.is_none() {
            assert!(self.read(), "the client left before it asked to publish");
        }
        self.request.unwrap()
    }

    /// Accepts the publish.
    pub(crate) fn accept(&mut self) {
        let id = self.requested();
        self.session.accept_publish(id).unwrap();
        self.flush();
    }

    /// Reads until `done` or the end of the connection; false at the end.
    pub(crate) fn until(&mut self, done: impl Fn(&Seen) -> bool) -> bool {
        while !done(&self.seen) {
            if !self.read() {
                return false;
            }
        }
        true
    }

    /// Reads to the end of the connection and ignores the data.
    pub(crate) fn drain(&mut self) {
        while let Ok(1..) = self.stream.read(&mut self.buffer) {}
    }

    /// Reads to the end of the connection.
    pub(crate) fn read_out(&mut self) {
        while self.read() {}
    }
}

/// A server that takes one connection.
pub(crate) struct Server {
    pub(crate) port: u16,
    thread: JoinHandle<Seen>,
}

impl Server {
    /// Runs `script` on the first connection.
    pub(crate) fn start(script: impl FnOnce(&mut Conn) + Send + 'static) -> Self {
        Self::over(|socket| Box::new(socket), script)
    }

    /// Like [`Server::start`], over the stream that `dress` makes of the connection's socket.
    pub(crate) fn over(
        dress: impl FnOnce(TcpStream) -> Box<dyn Stream> + Send + 'static,
        script: impl FnOnce(&mut Conn) + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            let mut conn = Conn::new(dress(accept(&listener)));
            script(&mut conn);
            conn.seen
        });
        Server { port, thread }
    }

    /// A server that accepts and reads to the end.
    pub(crate) fn healthy() -> Self {
        Self::start(|conn| {
            conn.accept();
            conn.read_out();
        })
    }

    /// `rtmp://127.0.0.1:port` and `path`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("rtmp://127.0.0.1:{}{path}", self.port)
    }

    /// The target of this server, without the key.
    pub(crate) fn target(&self) -> Target {
        Target::parse(&self.url("/live"), None).unwrap()
    }

    /// Its observations, after the script has ended.
    pub(crate) fn finish(self) -> Seen {
        self.thread.join().unwrap()
    }
}

fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let until = Instant::now() + READ_WAIT_MAX;
    while Instant::now() < until {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(READ_WAIT_MAX)).unwrap();
            stream.set_nodelay(true).unwrap();
            return stream;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("the client did not connect");
}

/// `count` access units, 10 ms apart from `start_ms` on: every third is audio, every thirtieth a keyframe.
pub(crate) fn stream(start_ms: i64, count: u64) -> Vec<satcast_plugin_api::Packet> {
    let unit = |index: u64| {
        let dts_ms = start_ms + 10 * index as i64;
        let length = 20 + (index as usize * 7919) % 9000;
        let payload = Bytes::from(vec![index as u8; length]);
        let codec = if index % 3 == 2 { Codec::Aac } else { Codec::H264 };
        testkit::media(codec, index, dts_ms, index.is_multiple_of(30), payload)
    };
    (0..count).map(unit).collect()
}

/// Pushes both codec configurations and then `packets`.
pub(crate) fn push_all(dest: &TestDestination, packets: &[satcast_plugin_api::Packet]) {
    dest.push(testkit::config(Codec::H264, b"\x01avcC-record"));
    dest.push(testkit::config(Codec::Aac, &[0x11, 0x90]));
    packets.iter().for_each(|packet| dest.push(packet.clone()));
}

/// Continues a stream of which `sent` was pushed, until the destination is live.
pub(crate) fn push_until_live(dest: &TestDestination, sent: &mut Vec<satcast_plugin_api::Packet>) {
    let is_live =
        || dest.report(|report| report.states.last().is_some_and(|(state, _)| *state == State::Live));
    let until = Instant::now() + testkit::WAIT_MAX;
    while !is_live() && Instant::now() < until {
        let last = &sent[sent.len() - 1];
        let (sequence, dts_ms) = (last.sequence + 1, last.dts_ns / 1_000_000 + 10);
        let next = testkit::media(Codec::H264, sequence, dts_ms, false, Bytes::from(vec![7; 500]));
        dest.push(next.clone());
        sent.push(next);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(is_live());
}

/// Every access unit arrived, in order, whole, with its time less one offset.
pub(crate) fn assert_same(seen: &Seen, sent: &[satcast_plugin_api::Packet]) {
    let offset = sent[0].dts_ns;
    assert_eq!(seen.media().count(), sent.len());
    for (got, sent) in seen.media().zip(sent) {
        assert_eq!((got.dts_ns, got.pts_ns), (sent.dts_ns - offset, sent.pts_ns - offset));
        assert_eq!(got.codec.name(), sent.codec.name());
        assert_eq!(got.keyframe, sent.keyframe);
        assert!(got.payload == sent.payload, "payload of packet {}", sent.sequence);
    }
}
