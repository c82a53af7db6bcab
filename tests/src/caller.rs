//! RTMP by hand: single publish requests whose refusal can be read, and hostile bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use satcast_media::Packet;
use satcast_media::rtmp::client::{ClientConfig, ClientEvent, ClientSession};

/// Longest wait for a message of the other side.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Pause between two bytes of [`trickle`].
const TRICKLE_PAUSE: Duration = Duration::from_millis(100);
/// C0 and C1, or C2 alone without the first byte.
const HANDSHAKE_BYTES: usize = 1537;

/// How a publish request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Accepted.
    Publishing,
    /// Refused with a status.
    Rejected {
        /// Status code.
        code: String,
        /// The text that the encoder shows its user.
        description: String,
    },
    /// Closed without a word.
    Closed,
}

/// A connection that asked to publish.
pub struct Call {
    socket: TcpStream,
    session: ClientSession,
}

impl Call {
    /// Connects, asks to publish `stream_key` in `app`, and waits for the answer.
    ///
    /// # Panics
    /// When the port does not answer at all.
    #[track_caller]
    #[must_use]
    pub fn publish(address: SocketAddr, app: &str, stream_key: &str) -> (Self, Outcome) {
        let socket = connect(address);
        let session = ClientSession::new(ClientConfig {
            app: app.to_owned(),
            tc_url: format!("rtmp://{address}/{app}"),
            stream_key: stream_key.to_owned(),
            ..ClientConfig::default()
        });
        let mut call = Self { socket, session };
        let outcome = call.outcome();
        (call, outcome)
    }

    fn outcome(&mut self) -> Outcome {
        match self.next_event() {
            Some(ClientEvent::Publishing) => Outcome::Publishing,
            Some(
                ClientEvent::Rejected { code, description } | ClientEvent::PeerClosed { code, description },
            ) => Outcome::Rejected { code, description },
            _ => Outcome::Closed,
        }
    }

    /// Sends one packet.
    ///
    /// # Panics
    /// When it was not accepted before.
    pub fn send(&mut self, packet: &Packet) {
        self.session.send(packet).expect("an accepted publish");
        self.flush();
    }

    /// The next message of the service except acknowledgements; `None` when it closed the connection or sent nothing.
    pub fn next_event(&mut self) -> Option<ClientEvent> {
        let started = Instant::now();
        let mut block = [0; 4096];
        while started.elapsed() < ANSWER_LIMIT {
            self.flush();
            while let Some(event) = self.session.poll_event() {
                if !matches!(event, ClientEvent::Acknowledged { .. }) {
                    return Some(event);
                }
            }
            match self.socket.read(&mut block) {
                Ok(0) => return None,
                Ok(count) => self.session.input(Bytes::copy_from_slice(&block[..count])).ok()?,
                Err(error) if would_block(&error) => {}
                Err(_) => return None,
            }
        }
        None
    }

    fn flush(&mut self) {
        let bytes = self.session.output().take();
        // The next read reports a connection that the service closed meanwhile.
        let _ = self.socket.write_all(&bytes);
    }
}

/// Sends `bytes` and waits until the service closes; gives how long that took.
///
/// # Panics
/// When it does not close within `limit`.
#[track_caller]
pub fn closed_after(address: SocketAddr, bytes: &[u8], limit: Duration) -> Duration {
    let mut socket = connect(address);
    let started = Instant::now();
    // The service may close before all is sent: the test waits for that.
    let _ = socket.write_all(bytes);
    let mut block = [0; 4096];
    loop {
        match socket.read(&mut block) {
            Ok(0) => return started.elapsed(),
            Err(error) if !would_block(&error) => return started.elapsed(),
            _ => {}
        }
        assert!(started.elapsed() < limit, "the service kept the connection open for {} s", limit.as_secs());
    }
}

/// Does the handshake a byte at a time and waits until the service has enough; gives how long that took.
///
/// # Panics
/// When it does not close within `limit`.
#[track_caller]
pub fn trickle(address: SocketAddr, limit: Duration) -> Duration {
    let mut socket = connect(address);
    socket.set_read_timeout(Some(TRICKLE_PAUSE)).expect("a read time-out");
    let started = Instant::now();
    let mut block = [0; 4096];
    for byte in handshake() {
        if socket.write_all(&[byte]).is_err() {
            return started.elapsed();
        }
        match socket.read(&mut block) {
            Ok(0) => return started.elapsed(),
            Err(error) if !would_block(&error) => return started.elapsed(),
            _ => {}
        }
        assert!(started.elapsed() < limit, "the service accepted a slow handshake for {} s", limit.as_secs());
    }
    panic!("the whole handshake went through a byte at a time");
}

/// A handshake and a `connect` whose object is nested `depth` deep.
///
/// # Panics
/// When the length of the message exceeds 24 bits.
#[must_use]
pub fn deep_connect(depth: usize) -> Vec<u8> {
    let mut body = vec![2, 0, 7];
    body.extend_from_slice(b"connect");
    body.push(0);
    body.extend_from_slice(&1_f64.to_be_bytes());
    // Each level: an object with one key, "a", whose value is the next level.
    body.extend([3, 0, 1, b'a'].repeat(depth));
    let mut bytes = handshake();
    // C2, then Set Chunk Size so that the message comes in one chunk.
    bytes.extend(std::iter::repeat_n(0, HANDSHAKE_BYTES - 1));
    bytes.extend([2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff]);
    let [top, length @ ..] = u32::try_from(body.len()).expect("a message").to_be_bytes();
    assert_eq!(top, 0, "the message is too long");
    bytes.extend([3, 0, 0, 0]);
    bytes.extend(length);
    bytes.extend([20, 0, 0, 0, 0]);
    bytes.extend(body);
    bytes
}

/// C0 and C1 of the plain handshake.
#[must_use]
pub fn handshake() -> Vec<u8> {
    let mut bytes = vec![0; HANDSHAKE_BYTES];
    bytes[0] = 3;
    bytes
}

#[track_caller]
fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).expect("the RTMP port accepts connections");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a read time-out");
    socket.set_write_timeout(Some(ANSWER_LIMIT)).expect("a write time-out");
    socket.set_nodelay(true).expect("no delay");
    socket
}

fn would_block(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
