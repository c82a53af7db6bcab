//! The sending side of the load: one thread, a socket for each stream.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use satcast_media::rtmp::Metadata;
use satcast_media::rtmp::client::{ClientConfig, ClientEvent, ClientSession};

use super::frames::{Rhythm, configuration};

/// Shortest pause between two rounds. Frames are late by at most this time, and their stamps include it.
const ROUND: Duration = Duration::from_millis(4);
/// Delay between the starts of two streams. It is not a divisor of the frame interval, so that frames are not sent at the same time.
const STAGGER: Duration = Duration::from_millis(23);
/// Interval in which a stream reads from its server.
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
        let shared = Arc::<Shared>::default();
        *shared.begun.lock() = vec![None; ingests.len()];
        let its = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            if let Err(failure) = publish(clock, &ingests, &its) {
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

fn publish(clock: Instant, ingests: &[Ingest], shared: &Shared) -> Result<(), String> {
    let began = Instant::now();
    let mut streams: Vec<Stream> = Vec::with_capacity(ingests.len());
    while !shared.over.load(Ordering::Relaxed) {
        let now = Instant::now();
        while let Some(ingest) = ingests.get(streams.len()) {
            if now < began + STAGGER * u32::try_from(streams.len()).unwrap_or(u32::MAX) {
                break;
            }
            streams.push(Stream::connect(u32::try_from(streams.len()).unwrap_or(u32::MAX), ingest)?);
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
        let next = streams.iter().map(Stream::next).min().filter(|_| streams.len() == ingests.len());
        let earliest = now + ROUND;
        let wake = next.map_or(earliest, |next| next.max(earliest));
        std::thread::sleep(wake.saturating_duration_since(Instant::now()));
    }
    for stream in &mut streams {
        stream.session.end();
        // A server that closed first is not an error of the stream.
        let _ = stream.write();
    }
    Ok(())
}

/// One stream.
struct Stream {
    number: u32,
    socket: TcpStream,
    session: ClientSession,
    rhythm: Rhythm,
    begun: Option<Instant>,
    told: bool,
    listened: Instant,
    gop_bytes: u64,
}

impl Stream {
    fn connect(number: u32, ingest: &Ingest) -> Result<Self, String> {
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
        let (rhythm, listened) = (Rhythm::default(), Instant::now());
        Ok(Self { number, socket, session, rhythm, begun: None, told: false, listened, gop_bytes: 0 })
    }

    /// Time of the next round.
    fn next(&self) -> Instant {
        self.begun.map_or(self.listened, |begun| begun + self.rhythm.next().due())
    }

    /// Sends the frames that are due and returns their number.
    fn round(&mut self, clock: Instant) -> Result<u64, String> {
        let now = Instant::now();
        if self.begun.is_none() || now >= self.listened + LISTEN {
            self.listened = now;
            self.listen()?;
        }
        let mut sent = 0;
        if let Some(begun) = self.begun {
            while begun + self.rhythm.next().due() <= now {
                let packet = self.rhythm.take().packet(self.number, 0, clock.elapsed());
                self.session.send(&packet).map_err(|error| error.to_string())?;
                let kept = if packet.keyframe { 0 } else { self.gop_bytes };
                self.gop_bytes = kept + packet.payload.len() as u64;
                sent += 1;
            }
        }
        self.write()?;
        Ok(sent)
    }

    fn listen(&mut self) -> Result<(), String> {
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
                ClientEvent::Publishing => self.begin()?,
                ClientEvent::Acknowledged { .. } => {}
                ClientEvent::Rejected { code, description }
                | ClientEvent::PeerClosed { code, description } => {
                    return Err(format!("its server refused it: {code} {description}"));
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), String> {
        self.begun = Some(Instant::now());
        let metadata = Metadata { width: Some(1280), height: Some(720), ..Metadata::default() };
        self.session.send_metadata(&metadata).map_err(|error| error.to_string())?;
        for packet in configuration(0) {
            self.session.send(&packet).map_err(|error| error.to_string())?;
        }
        Ok(())
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
}
