//! The sending side of the load: one thread, a socket for each stream.
//!
//! A [`Line`] is the connection of one stream in its protocol: [`Rtmp`], or that of [`super::srt`].

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use satcast_media::Packet;
use satcast_media::rtmp::Metadata;
use satcast_media::rtmp::client::{ClientConfig, ClientEvent, ClientSession};

use super::frames::{Rhythm, configuration};
use super::srt::SrtLine;

/// Shortest pause between two rounds. Frames are late by at most this time, and their stamps include it.
const ROUND: Duration = Duration::from_millis(4);
/// Delay between the starts of two streams. It is not a divisor of the frame interval, so that frames are not sent at the same time.
const STAGGER: Duration = Duration::from_millis(23);
/// Interval in which a stream by RTMP reads from its server.
const LISTEN: Duration = Duration::from_millis(500);
/// Unread bytes from which on a server counts as too slow.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;
const READ_BYTES: usize = 16 * 1024;
/// Slices given to one vectored write.
const SLICES: usize = 64;

/// Where a stream is published to.
#[derive(Clone, Debug)]
pub struct Ingest {
    /// The server.
    pub address: SocketAddr,
    /// Application.
    pub app: String,
    /// Publish name or stream key.
    pub name: String,
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    /// Frames sent by all streams.
    frames: AtomicU64,
    /// Bytes of frames since the newest keyframe, of all streams.
    gop_bytes: AtomicU64,
    /// When each stream sent its first packet, on the clock of both sides.
    begun: Mutex<Vec<Option<Duration>>>,
    failure: Mutex<Option<String>>,
}

/// Streams that are published until this is dropped; the stream number in a stamp is the place in the list.
#[derive(Debug)]
pub struct Publishers {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Publishers {
    /// Begins one stream after the other; the time in the stamps is counted from `clock`.
    #[must_use]
    pub fn start(clock: Instant, ingests: Vec<Ingest>) -> Self {
        Self::start_by::<Rtmp>(clock, ingests)
    }

    /// The same by SRT; the name of an ingest is the `streamid`.
    #[must_use]
    pub fn start_srt(clock: Instant, ingests: Vec<Ingest>) -> Self {
        Self::start_by::<SrtLine>(clock, ingests)
    }

    fn start_by<L: Line>(clock: Instant, ingests: Vec<Ingest>) -> Self {
        let shared = Arc::<Shared>::default();
        *shared.begun.lock() = vec![None; ingests.len()];
        let its = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            if let Err(failure) = publish::<L>(clock, &ingests, &its) {
                *its.failure.lock() = Some(failure);
            }
        });
        Self { shared, thread: Some(thread) }
    }

    /// Frames that all streams have sent so far.
    ///
    /// # Panics
    /// When a stream could not be published.
    #[must_use]
    #[track_caller]
    pub fn frames(&self) -> u64 {
        if let Some(failure) = self.shared.failure.lock().as_ref() {
            panic!("{failure}");
        }
        self.shared.frames.load(Ordering::Relaxed)
    }

    /// Bytes of the frames since the newest keyframe of each stream, of all streams together: a server that keeps the GOP for new
    /// destinations holds at least these.
    #[must_use]
    pub fn gop_bytes(&self) -> u64 {
        self.shared.gop_bytes.load(Ordering::Relaxed)
    }

    /// When a stream sent its first packet; `None` before.
    #[must_use]
    pub fn begun(&self, stream: usize) -> Option<Duration> {
        self.shared.begun.lock().get(stream).copied().flatten()
    }
}

impl Drop for Publishers {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed its reason.
            let _ = thread.join();
        }
    }
}

/// The connection of one stream.
pub(super) trait Line: Sized {
    /// # Errors
    /// It cannot be made; the text names the server.
    fn connect(ingest: &Ingest) -> Result<Self, String>;

    /// Reads the bytes of the server; whether media may be sent.
    ///
    /// # Errors
    /// The server has refused or ended the connection.
    fn listen(&mut self) -> Result<bool, String>;

    /// Takes a packet.
    ///
    /// # Errors
    /// The server is too slow.
    fn send(&mut self, packet: &Packet) -> Result<(), String>;

    /// Gives the taken packets to the system, as far as it has room.
    ///
    /// # Errors
    /// The server has ended the connection.
    fn write(&mut self) -> Result<(), String>;

    /// When the line itself has something to do.
    fn next(&self) -> Option<Instant>;

    /// Ends the stream. A server that closed first is no error.
    fn end(&mut self);
}

fn publish<L: Line>(clock: Instant, ingests: &[Ingest], shared: &Shared) -> Result<(), String> {
    let began = Instant::now();
    let mut streams: Vec<Stream<L>> = Vec::with_capacity(ingests.len());
    while !shared.over.load(Ordering::Relaxed) {
        let now = Instant::now();
        while let Some(ingest) = ingests.get(streams.len()) {
            if now < began + STAGGER * u32::try_from(streams.len()).unwrap_or(u32::MAX) {
                break;
            }
            streams.push(Stream::new(u32::try_from(streams.len()).unwrap_or(u32::MAX), L::connect(ingest)?));
        }
        for (number, stream) in streams.iter_mut().enumerate() {
            let sent = stream.round(clock).map_err(|error| format!("stream {number}: {error}"))?;
            shared.frames.fetch_add(sent, Ordering::Relaxed);
            if sent > 0 && !stream.told {
                stream.told = true;
                shared.begun.lock()[number] = stream.begun.map(|begun| begun - clock);
            }
        }
        let gop_bytes = streams.iter().map(|stream| stream.gop_bytes).sum();
        shared.gop_bytes.store(gop_bytes, Ordering::Relaxed);
        let times = streams.iter().map(|stream| stream.next().unwrap_or(now));
        let next = times.min().filter(|_| streams.len() == ingests.len());
        let earliest = now + ROUND;
        let wake = next.map_or(earliest, |next| next.max(earliest));
        std::thread::sleep(wake.saturating_duration_since(Instant::now()));
    }
    streams.iter_mut().for_each(|stream| stream.line.end());
    Ok(())
}

/// One stream.
struct Stream<L> {
    number: u32,
    line: L,
    rhythm: Rhythm,
    begun: Option<Instant>,
    told: bool,
    gop_bytes: u64,
}

impl<L: Line> Stream<L> {
    fn new(number: u32, line: L) -> Self {
        Self { number, line, rhythm: Rhythm::default(), begun: None, told: false, gop_bytes: 0 }
    }

    /// Time of the next round; `None` before the stream has begun.
    fn next(&self) -> Option<Instant> {
        let due = self.begun? + self.rhythm.next().due();
        Some(self.line.next().map_or(due, |next| due.min(next)))
    }

    /// Sends the frames that are due and returns their number.
    fn round(&mut self, clock: Instant) -> Result<u64, String> {
        let may_send = self.line.listen()?;
        if may_send && self.begun.is_none() {
            self.begun = Some(Instant::now());
            configuration(0).iter().try_for_each(|packet| self.line.send(packet))?;
        }
        let (now, mut sent) = (Instant::now(), 0);
        if let Some(begun) = self.begun {
            while begun + self.rhythm.next().due() <= now {
                let packet = self.rhythm.take().packet(self.number, 0, clock.elapsed());
                self.line.send(&packet)?;
                let kept = if packet.keyframe { 0 } else { self.gop_bytes };
                self.gop_bytes = kept + packet.payload.len() as u64;
                sent += 1;
            }
        }
        self.line.write()?;
        Ok(sent)
    }
}

/// A connection by RTMP.
struct Rtmp {
    socket: TcpStream,
    session: ClientSession,
    is_publishing: bool,
    listened: Option<Instant>,
}

impl Line for Rtmp {
    fn connect(ingest: &Ingest) -> Result<Self, String> {
        let Ingest { address, app, name } = ingest;
        let failed = |error: std::io::Error| format!("cannot connect to {address}: {error}");
        let socket = TcpStream::connect(address).map_err(failed)?;
        socket.set_nodelay(true).and_then(|()| socket.set_nonblocking(true)).map_err(failed)?;
        let session = ClientSession::new(ClientConfig {
            app: app.clone(),
            tc_url: format!("rtmp://{address}/{app}"),
            stream_key: name.clone(),
            ..ClientConfig::default()
        });
        Ok(Self { socket, session, is_publishing: false, listened: None })
    }

    fn listen(&mut self) -> Result<bool, String> {
        let now = Instant::now();
        if self.is_publishing && self.listened.is_some_and(|listened| now < listened + LISTEN) {
            return Ok(true);
        }
        self.listened = Some(now);
        let mut block = [0; READ_BYTES];
        loop {
            match self.socket.read(&mut block) {
                Ok(0) => return Err("its server closed the connection".into()),
                Ok(count) => {
                    let input = Bytes::copy_from_slice(&block[..count]);
                    self.session.input(input).map_err(|error| error.to_string())?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(format!("cannot read from its server: {error}")),
            }
        }
        while let Some(event) = self.session.poll_event() {
            match event {
                ClientEvent::Publishing => {
                    self.is_publishing = true;
                    let metadata = Metadata { width: Some(1280), height: Some(720), ..Metadata::default() };
                    self.session.send_metadata(&metadata).map_err(|error| error.to_string())?;
                }
                ClientEvent::Acknowledged { .. } => {}
                ClientEvent::Rejected { code, description }
                | ClientEvent::PeerClosed { code, description } => {
                    return Err(format!("its server refused it: {code} {description}"));
                }
            }
        }
        Ok(self.is_publishing)
    }

    fn send(&mut self, packet: &Packet) -> Result<(), String> {
        self.session.send(packet).map_err(|error| error.to_string())
    }

    fn write(&mut self) -> Result<(), String> {
        while !self.session.output().is_empty() {
            let output = self.session.output();
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = output.slices(&mut slices);
            match self.socket.write_vectored(&slices[..count]) {
                Ok(written) => output.advance(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let waiting = output.len_bytes();
                    if waiting > WAITING_BYTES_MAX {
                        return Err(format!("its server left {waiting} bytes unread"));
                    }
                    break;
                }
                Err(error) => return Err(format!("cannot write to its server: {error}")),
            }
        }
        Ok(())
    }

    fn next(&self) -> Option<Instant> {
        None
    }

    fn end(&mut self) {
        self.session.end();
        let _ = self.write();
    }
}
