//! The receiving side of the load: one server on one thread that takes every publish and reads the stamps.

use std::future::poll_fn;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use parking_lot::Mutex;
use satcast_media::rtmp::server::{ServerConfig, ServerEvent, ServerSession};
use satcast_media::{Kind, Packet};
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::frames::{Last, Stamp};
use super::srt;
use crate::ports::Port;

/// Bytes of one read. A block smaller than a keyframe costs a copy of the frame, a larger one costs memory for each connection.
const READ_BYTES: usize = 64 * 1024;
const STREAM_PREFIX: char = 's';
const APP_PREFIX: char = 'd';

/// Received frames of one route: one stream at one destination.
#[derive(Clone, Debug, Default)]
struct Route {
    /// Publishes accepted; more than one means that the connection was lost.
    publishes: u64,
    /// When the first frame came, on the clock of both sides.
    first: Option<Duration>,
    /// When the last frame came.
    newest: Duration,
    last: Last,
}

/// Sums over all routes.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Received frames.
    pub frames: u64,
    /// Frames that are missing between two received frames.
    pub lost: u64,
    /// Frames received twice or out of order.
    pub repeated: u64,
    /// Frames of another stream, or without a stamp.
    pub misrouted: u64,
    /// Connections beyond the first of a route.
    pub reconnected: u64,
    /// Microseconds from sending to arrival, of each frame since [`Sinks::measure`].
    pub latencies: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: Instant,
    destinations: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    routes: Vec<Route>,
    tally: Tally,
    measuring: bool,
}

/// A server for `streams` x `destinations` routes.
#[derive(Debug)]
pub struct Sinks {
    port: Port,
    shared: Arc<Shared>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Tally {
    /// Frames lost, repeated or misrouted, and connections lost.
    #[must_use]
    pub fn wrong(&self) -> u64 {
        self.lost + self.repeated + self.misrouted + self.reconnected
    }
}

impl Sinks {
    /// Listens; times are counted from `clock`.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn start(clock: Instant, streams: usize, destinations: usize) -> Self {
        let port = Port::lease();
        let listener = TcpListener::bind(port.address()).expect("the leased port is free");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let shared = Shared::new(clock, streams, destinations);
        let (end, ended) = oneshot::channel();
        let its = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
            runtime.expect("a runtime for the sinks").block_on(async {
                tokio::select! {
                    () = accept(listener, its) => {}
                    _ = ended => {}
                }
            });
        });
        Self { port, shared, end: Some(end), thread: Some(thread) }
    }

    /// The same by SRT, with one destination for each stream, whose name is the `streamid`.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn start_srt(clock: Instant, streams: usize) -> Self {
        let port = Port::lease();
        let socket = UdpSocket::bind(port.address()).expect("the leased port is free");
        let (shared, (end, ended)) = (Shared::new(clock, streams, 1), oneshot::channel());
        let its = Arc::clone(&shared);
        let thread = std::thread::spawn(move || srt::receive(&socket, &its, ended));
        Self { port, shared, end: Some(end), thread: Some(thread) }
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The URLs of the destinations that every stream goes to, without a stream name.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        (0..self.shared.destinations)
            .map(|destination| format!("rtmp://{}/{APP_PREFIX}{destination}", self.port.address()))
            .collect()
    }

    /// The name that a stream has at each of them.
    #[must_use]
    pub fn name(stream: usize) -> String {
        format!("{STREAM_PREFIX}{stream}")
    }

    /// Number of routes without a frame so far.
    #[must_use]
    pub fn silent(&self) -> usize {
        self.shared.state.lock().routes.iter().filter(|route| route.first.is_none()).count()
    }

    /// Number of routes on which no frame came for longer than `limit`.
    #[must_use]
    pub fn stopped(&self, limit: Duration) -> usize {
        let since = self.shared.clock.elapsed().saturating_sub(limit);
        self.shared.state.lock().routes.iter().filter(|route| route.newest < since).count()
    }

    /// Starts to record latencies.
    pub fn measure(&self) {
        let mut state = self.shared.state.lock();
        state.measuring = true;
        state.tally.latencies.clear();
    }

    /// Number of frames received so far.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.shared.state.lock().tally.frames
    }

    /// The sums so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.shared.state.lock().tally.clone()
    }

    /// Arrival of the first frame of a stream at each destination.
    #[must_use]
    pub fn first(&self, stream: usize) -> Vec<Option<Duration>> {
        let state = self.shared.state.lock();
        let begin = stream * self.shared.destinations;
        state.routes[begin..begin + self.shared.destinations].iter().map(|route| route.first).collect()
    }
}

impl Drop for Sinks {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed its reason.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener of this runtime");
    loop {
        let (socket, _) = listener.accept().await.expect("the sinks can accept");
        tokio::spawn(serve(socket, Arc::clone(&shared)));
    }
}

/// One connection, until its peer ends it.
async fn serve(mut socket: TcpStream, shared: Arc<Shared>) {
    let mut session = ServerSession::new(ServerConfig::default());
    session.set_block_bytes(READ_BYTES);
    let mut block = BytesMut::new();
    let mut route = None;
    loop {
        if block.len() < READ_BYTES / 2 {
            block.resize(READ_BYTES, 0);
        }
        let Some(count) = read(&mut socket, &mut block).await else { return };
        let came = shared.clock.elapsed();
        let input = session.input(block.split_to(count).freeze());
        while let Some(event) = session.poll_event() {
            match event {
                ServerEvent::PublishRequested { id, app, stream_key, .. } => {
                    route = shared.route(&app, &stream_key);
                    if session.accept_publish(id).is_err() {
                        return;
                    }
                }
                ServerEvent::Packet(packet) => shared.keep(route, &packet, came),
                _ => {}
            }
        }
        let output = session.take_output();
        if input.is_err() || !write(&socket, &output).await {
            return;
        }
    }
}

/// Reads once, which costs one system call: the runtime knows that a short read has emptied the socket. `None` at the end.
async fn read(socket: &mut TcpStream, block: &mut [u8]) -> Option<usize> {
    let mut block = ReadBuf::new(block);
    poll_fn(|context| Pin::new(&mut *socket).poll_read(context, &mut block)).await.ok()?;
    Some(block.filled().len()).filter(|count| *count > 0)
}

async fn write(socket: &TcpStream, mut output: &[u8]) -> bool {
    while !output.is_empty() {
        match socket.try_write(output) {
            Ok(written) => output = &output[written..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if socket.writable().await.is_err() {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    true
}

impl Shared {
    fn new(clock: Instant, streams: usize, destinations: usize) -> Arc<Self> {
        let routes = vec![Route::default(); streams * destinations];
        let state = Mutex::new(State { routes, ..State::default() });
        Arc::new(Self { clock, destinations, state })
    }

    /// The route of a stream by its name alone.
    pub(super) fn only_route(&self, name: &str) -> Option<usize> {
        self.route(&format!("{APP_PREFIX}0"), name)
    }

    /// The route of a publish name; `None` for an unknown name, and then all of its frames count as misrouted.
    fn route(&self, app: &str, name: &str) -> Option<usize> {
        let destination: usize = app.strip_prefix(APP_PREFIX)?.parse().ok()?;
        let stream: usize = name.strip_prefix(STREAM_PREFIX)?.parse().ok()?;
        let mut state = self.state.lock();
        let index = stream.checked_mul(self.destinations)?.checked_add(destination)?;
        let State { routes, tally, .. } = &mut *state;
        let route = routes.get_mut(index).filter(|_| destination < self.destinations)?;
        route.publishes += 1;
        tally.reconnected += u64::from(route.publishes > 1);
        Some(index)
    }

    pub(super) fn keep(&self, route: Option<usize>, packet: &Packet, came: Duration) {
        if packet.is_config() {
            return;
        }
        let mut state = self.state.lock();
        let State { routes, tally, measuring } = &mut *state;
        let right = route.zip(Stamp::read(&packet.payload));
        let right = right.filter(|(route, stamp)| stamp.stream as usize == route / self.destinations);
        let Some((route, stamp)) = right else {
            tally.misrouted += 1;
            return;
        };
        let route = &mut routes[route];
        let is_video = packet.kind() == Kind::Video;
        route.newest = came;
        if is_video && route.first.is_none() {
            route.first = Some(came);
        }
        match route.last.take(is_video, stamp.number) {
            Some(missing) => tally.lost += missing,
            None => tally.repeated += 1,
        }
        tally.frames += 1;
        if *measuring {
            let took = came.saturating_sub(stamp.sent).as_micros();
            tally.latencies.push(u32::try_from(took).unwrap_or(u32::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::Frame;
    use super::*;

    fn shared(streams: usize, destinations: usize) -> Arc<Shared> {
        Shared::new(Instant::now(), streams, destinations)
    }

    #[test]
    fn lost_repeated_and_misrouted_frames_are_counted() {
        let shared = shared(2, 3);
        let route = shared.route("d2", "s1");
        assert_eq!(route, Some(5));
        for (frame, stream) in [
            (Frame::Video(10), 1),
            (Frame::Audio(3), 1),
            (Frame::Video(11), 1),
            (Frame::Video(14), 1),
            (Frame::Video(14), 1),
            (Frame::Video(15), 0),
            (Frame::Audio(4), 1),
        ] {
            shared.keep(route, &frame.packet(stream, 0, Duration::ZERO), Duration::from_secs(1));
        }
        shared.keep(None, &Frame::Video(0).packet(0, 0, Duration::ZERO), Duration::ZERO);
        let state = shared.state.lock();
        let Tally { frames, lost, repeated, misrouted, .. } = state.tally;
        assert_eq!((frames, lost, repeated, misrouted), (6, 2, 1, 2));
        assert_eq!(state.routes[5].first, Some(Duration::from_secs(1)));
    }

    #[test]
    fn other_names_are_no_routes() {
        let shared = shared(2, 3);
        for (app, name) in [("d3", "s0"), ("d0", "s2"), ("x0", "s0"), ("d0", "0"), ("d-1", "s0"), ("", "")] {
            assert_eq!(shared.route(app, name), None, "{app}/{name}");
        }
        shared.route("d0", "s0");
        shared.route("d0", "s0");
        assert_eq!(shared.state.lock().tally.reconnected, 1);
    }
}
