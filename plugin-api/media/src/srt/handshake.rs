//! Handshakes (4.3.1): the induction, which costs the listener no state, and the conclusion with its extensions.

use core::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;

use super::crypto::{Fault, KeyMaterial};
use super::limits::{
    COOKIE_WINDOW, LATENCY_MS_MAX, LATENCY_MS_MIN, MTU_MIN, STREAM_ID_BYTES_MAX, WINDOW_PACKETS,
};
use super::reason::Reason;
use super::wire::{HANDSHAKE, HEADER_BYTES, Header, SEQUENCE, control, destination, to_words, word};

/// Bytes of a handshake before its extensions.
pub(super) const BODY_BYTES: usize = 48;
pub(super) const VERSION: u32 = 5;
pub(super) const INDUCTION: u32 = 1;
pub(super) const CONCLUSION: u32 = 0xffff_ffff;
/// Extension field of the answer to an induction.
const MAGIC: u32 = 0x4a17;
/// Flags of the extension field of a conclusion.
pub(super) const HAS_HANDSHAKE: u32 = 1;
pub(super) const HAS_KEYS: u32 = 2;
/// Other extensions follow, such as a `streamid`.
pub(super) const HAS_MORE: u32 = 4;
/// Types of extensions (table 5).
pub(super) const HS_REQUEST: u16 = 1;
pub(super) const HS_RESPONSE: u16 = 2;
pub(super) const KM_REQUEST: u16 = 3;
pub(super) const KM_RESPONSE: u16 = 4;
pub(super) const STREAM_ID: u16 = 5;
const CONGESTION: u16 = 6;
const FILTER: u16 = 7;
const GROUP: u16 = 8;
/// Version of the library that this is like: 1.5.0.
pub(super) const LIBRARY: u32 = 0x01_05_00;
/// The oldest library with this form of handshake: 1.3.0.
const LIBRARY_MIN: u32 = 0x01_03_00;
/// Both directions with timestamps, encryption, too-late drop, periodic reports of losses, marked retransmissions.
pub(super) const FLAGS: u32 = 0x3f;
/// The caller wants a byte stream instead of messages.
const FLAG_STREAM: u32 = 0x40;
/// Largest datagram with all headers.
pub(super) const MTU: u32 = 1_500;

/// A handshake that a listener answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The first one.
    Induction(Induction),
    /// The second one, with everything that the caller wants. Its cookie is not checked.
    Conclusion(Box<Conclusion>),
}

/// A caller says hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Induction {
    caller: u32,
    sequence: u32,
}

/// A caller repeats its cookie and says what it wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conclusion {
    /// The caller's socket.
    pub caller: u32,
    /// To be checked by [`Cookies::is_valid`].
    pub cookie: u32,
    /// First sequence number.
    pub(super) sequence: u32,
    /// The caller's clock in microseconds.
    pub(super) timestamp: u32,
    mtu: u32,
    window: u32,
    asked: Result<Asked, Reason>,
}

/// What the extensions say. `Debug` does not show the `streamid`, which holds the stream key.
#[derive(Clone, PartialEq, Eq, Default)]
struct Asked {
    stream_id: String,
    keys: Option<KeyMaterial>,
    /// Latency that the caller wants as the sender, and as a receiver.
    send_ms: u16,
    receive_ms: u16,
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked").finish_non_exhaustive()
    }
}

impl Request {
    /// Reads a datagram to socket 0; `None` if it is no handshake of a caller.
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let Header::Control { kind: HANDSHAKE, timestamp, .. } = Header::parse(datagram)? else {
            return None;
        };
        let body = datagram.get(HEADER_BYTES..)?;
        let field = |index: usize| word(body, 4 * index);
        body.get(..BODY_BYTES)?;
        let (version, extensions) = (field(0)?, field(1)? & 0xffff);
        let (sequence, mtu, caller) = (field(2)? & SEQUENCE, field(3)?, field(6)?);
        if destination(datagram)? != 0 || caller == 0 {
            return None;
        }
        match field(5)? {
            INDUCTION => Some(Self::Induction(Induction { caller, sequence })),
            CONCLUSION => {
                let asked = if version == VERSION && extensions & HAS_HANDSHAKE != 0 {
                    Asked::parse(&body[BODY_BYTES..])
                } else {
                    Err(Reason::Version)
                };
                let cookie = field(7)?;
                let window = field(4)?;
                let conclusion = Conclusion { caller, cookie, sequence, timestamp, mtu, window, asked };
                Some(Self::Conclusion(Box::new(conclusion)))
            }
            _ => None,
        }
    }
}

impl Asked {
    fn parse(mut rest: &[u8]) -> Result<Self, Reason> {
        let (mut asked, mut has_handshake) = (Self::default(), false);
        while let Some(head) = word(rest, 0) {
            let (kind, bytes) = ((head >> 16) as u16, (head as usize & 0xffff) * 4);
            let content = rest.get(4..4 + bytes).ok_or(Reason::Rogue)?;
            rest = &rest[4 + bytes..];
            match kind {
                HS_REQUEST => {
                    asked.handshake(content)?;
                    has_handshake = true;
                }
                KM_REQUEST => {
                    let keys = KeyMaterial::parse(content).map_err(|fault| match fault {
                        Fault::Malformed => Reason::Rogue,
                        Fault::Cipher => Reason::Crypto,
                    })?;
                    asked.keys = Some(keys);
                }
                STREAM_ID => asked.stream_id = text(content)?,
                CONGESTION if text(content)? != "live" => return Err(Reason::Congestion),
                FILTER => return Err(Reason::Filter),
                GROUP => return Err(Reason::Group),
                _ => {}
            }
        }
        if has_handshake { Ok(asked) } else { Err(Reason::Rogue) }
    }

    fn handshake(&mut self, content: &[u8]) -> Result<(), Reason> {
        let fields = [0, 4, 8].map(|at| word(content, at));
        let [Some(library), Some(flags), Some(latency)] = fields else { return Err(Reason::Rogue) };
        if library < LIBRARY_MIN {
            return Err(Reason::Version);
        }
        if flags & FLAG_STREAM != 0 {
            return Err(Reason::Congestion);
        }
        (self.receive_ms, self.send_ms) = ((latency >> 16) as u16, latency as u16);
        Ok(())
    }
}

/// Text in words that are little endian (3.2.1.3).
fn text(content: &[u8]) -> Result<String, Reason> {
    if content.len() > STREAM_ID_BYTES_MAX {
        return Err(Reason::Rogue);
    }
    let mut bytes: Vec<u8> = content.chunks_exact(4).flat_map(|word| word.iter().rev().copied()).collect();
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    String::from_utf8(bytes).map_err(|_| Reason::Rogue)
}

/// The fields of a handshake that is sent.
pub(super) struct Body {
    pub(super) version: u32,
    pub(super) fields: u32,
    pub(super) sequence: u32,
    pub(super) mtu: u32,
    pub(super) kind: u32,
    pub(super) socket: u32,
    pub(super) cookie: u32,
    pub(super) peer: IpAddr,
}

impl Body {
    pub(super) fn datagram(&self, to: u32, timestamp: u32, extensions: &[u32]) -> Vec<u8> {
        let mut address = [0; 16];
        match self.peer.to_canonical() {
            IpAddr::V4(peer) => {
                address[..4].copy_from_slice(&u32::from(peer).to_le_bytes());
            }
            IpAddr::V6(peer) => address = peer.octets(),
        }
        let window = WINDOW_PACKETS as u32;
        let head =
            [self.version, self.fields, self.sequence, self.mtu, window, self.kind, self.socket, self.cookie];
        let words = [&head[..], &to_words(&address), extensions].concat();
        control(HANDSHAKE, 0, 0, timestamp, to, &words)
    }
}

impl Induction {
    /// The answer, with the cookie that the caller has to repeat.
    pub fn answer(&self, cookie: u32, peer: IpAddr) -> Vec<u8> {
        let body = Body {
            version: VERSION,
            fields: MAGIC,
            sequence: self.sequence,
            mtu: MTU,
            kind: INDUCTION,
            socket: self.caller,
            cookie,
            peer,
        };
        body.datagram(self.caller, 0, &[])
    }
}

impl Conclusion {
    /// Why the caller cannot be served, whatever its key is.
    pub fn fault(&self) -> Option<Reason> {
        self.asked.as_ref().err().copied()
    }

    /// The `streamid`; empty if there is none.
    pub fn stream_id(&self) -> &str {
        self.asked.as_ref().map_or("", |asked| &asked.stream_id)
    }

    /// Key material, if the caller encrypts.
    pub fn key_material(&self) -> Option<&KeyMaterial> {
        self.asked.as_ref().ok().and_then(|asked| asked.keys.as_ref())
    }

    /// Latency of the connection in milliseconds, which is what the caller wants within the limits.
    pub fn latency_ms(&self) -> u16 {
        let wanted = self.asked.as_ref().map_or(0, |asked| asked.send_ms);
        wanted.clamp(LATENCY_MS_MIN, LATENCY_MS_MAX)
    }

    /// Packets on their way that the caller takes.
    pub(super) fn window(&self) -> usize {
        self.window as usize
    }

    /// Whether the caller takes packets as long as those of a [`super::Sender`].
    pub fn takes_packets(&self) -> bool {
        self.mtu >= MTU_MIN
    }

    /// The answer that refuses.
    pub fn refuse(&self, reason: Reason, peer: IpAddr) -> Vec<u8> {
        self.body(0, reason.handshake_type(), 0, peer).datagram(self.caller, 0, &[])
    }

    /// Latency in milliseconds when this side sends: what the caller wants as a receiver, or `wanted_ms` if that is more,
    /// within the limits.
    pub fn send_latency_ms(&self, wanted_ms: u16) -> u16 {
        let wanted = self.asked.as_ref().map_or(0, |asked| asked.receive_ms);
        wanted.max(wanted_ms).clamp(LATENCY_MS_MIN, LATENCY_MS_MAX)
    }

    /// The answer that accepts, by the socket `own`. `send_ms`: the latency of what this side sends.
    pub(super) fn accept(&self, own: u32, peer: IpAddr, send_ms: Option<u16>) -> Vec<u8> {
        let receive_ms = self.asked.as_ref().map_or(0, |asked| asked.receive_ms);
        let latency = u32::from(self.latency_ms()) << 16 | u32::from(send_ms.unwrap_or(receive_ms));
        let mut extensions = vec![u32::from(HS_RESPONSE) << 16 | 3, LIBRARY, FLAGS, latency];
        let mut fields = HAS_HANDSHAKE;
        if let Some(keys) = self.key_material() {
            let words = to_words(keys.bytes());
            extensions.push(u32::from(KM_RESPONSE) << 16 | words.len() as u32);
            extensions.extend(words);
            fields |= HAS_KEYS | (keys.key_bytes() as u32 / 8) << 16;
        }
        self.body(own, CONCLUSION, fields, peer).datagram(self.caller, 0, &extensions)
    }

    fn body(&self, socket: u32, kind: u32, fields: u32, peer: IpAddr) -> Body {
        let (sequence, mtu, cookie) = (self.sequence, self.mtu.min(MTU), self.cookie);
        Body { version: VERSION, fields, sequence, mtu, kind, socket, cookie, peer }
    }
}

/// An accepted caller: everything that a [`super::Connection`] begins with.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// The answer to the conclusion. It is sent again when the conclusion comes again.
    pub answer: Vec<u8>,
    /// The connection.
    pub connection: super::Connection,
}

/// Makes cookies, so that only a caller that receives at its address costs anything.
#[derive(Clone)]
pub struct Cookies {
    key: Hmac<Sha1>,
}

impl std::fmt::Debug for Cookies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cookies").finish_non_exhaustive()
    }
}

impl Cookies {
    /// With a random secret.
    pub fn new(secret: &[u8; 16]) -> Self {
        // A key of any length is fine for HMAC.
        Self { key: Hmac::new_from_slice(secret).expect("any length") }
    }

    /// The cookie of a caller at the monotonic time `now`.
    pub fn make(&self, peer: SocketAddr, now: Duration) -> u32 {
        self.of_window(peer, now.as_secs() / COOKIE_WINDOW.as_secs())
    }

    /// Whether the cookie was made for this caller in this window or the one before.
    pub fn is_valid(&self, cookie: u32, peer: SocketAddr, now: Duration) -> bool {
        let window = now.as_secs() / COOKIE_WINDOW.as_secs();
        [Some(window), window.checked_sub(1)]
            .into_iter()
            .flatten()
            .any(|window| self.of_window(peer, window) == cookie)
    }

    fn of_window(&self, peer: SocketAddr, window: u64) -> u32 {
        let address = match peer.ip() {
            IpAddr::V4(peer) => peer.to_ipv6_mapped(),
            IpAddr::V6(peer) => peer,
        };
        let mut key = self.key.clone();
        key.update(&address.octets());
        key.update(&peer.port().to_be_bytes());
        key.update(&window.to_be_bytes());
        word(&key.finalize().into_bytes(), 0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::calling::{self, conclusion, extension, induction, stream_id};
    use super::*;

    const PEER: &str = "192.0.2.7:4000";

    fn parsed(datagram: &[u8]) -> Conclusion {
        match Request::parse(datagram) {
            Some(Request::Conclusion(conclusion)) => *conclusion,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_induction_is_answered_with_a_cookie_for_its_address_and_time() {
        let peer: SocketAddr = PEER.parse().expect("an address");
        let cookies = Cookies::new(&[7; 16]);
        let Some(Request::Induction(hello)) = Request::parse(&induction(9)) else { panic!("no induction") };
        let now = COOKIE_WINDOW;
        let cookie = cookies.make(peer, now);
        let answer = hello.answer(cookie, peer.ip());
        assert_eq!((destination(&answer), calling::cookie(&answer)), (Some(9), Some(cookie)));
        assert_eq!(answer.len(), HEADER_BYTES + BODY_BYTES, "as short as the question: nothing is amplified");
        assert!(cookies.is_valid(cookie, peer, now) && cookies.is_valid(cookie, peer, 3 * now - now / 30));
        assert!(!cookies.is_valid(cookie, peer, 3 * now), "too old");
        assert!(!cookies.is_valid(cookie, "192.0.2.7:4001".parse().expect("an address"), now));
        assert!(!Cookies::new(&[8; 16]).is_valid(cookie, peer, now));
    }

    #[test]
    fn a_conclusion_says_what_the_caller_wants() {
        let read = parsed(&conclusion(9, 5, 77, 300, &stream_id("live_abcdefg")));
        assert_eq!((read.caller, read.cookie, read.sequence), (9, 5, 77));
        assert_eq!((read.fault(), read.stream_id(), read.latency_ms()), (None, "live_abcdefg", 300));
        assert_eq!(read.key_material(), None);
        for (wanted, given) in [(0, LATENCY_MS_MIN), (121, 121), (u16::MAX, LATENCY_MS_MAX)] {
            assert_eq!(parsed(&conclusion(9, 5, 77, wanted, &[])).latency_ms(), given);
        }
    }

    #[test]
    fn unsupported_requirements_have_their_reason() {
        let of = |more: &[u32]| parsed(&conclusion(9, 5, 77, 300, more)).fault();
        assert_eq!(of(&extension(CONGESTION, b"evil")), None);
        assert_eq!(of(&extension(CONGESTION, b"elif")), Some(Reason::Congestion));
        assert_eq!(of(&extension(FILTER, b"cef ")), Some(Reason::Filter));
        assert_eq!(of(&extension(GROUP, &[0; 8])), Some(Reason::Group));
        assert_eq!(of(&extension(KM_REQUEST, &[0; 16])), Some(Reason::Rogue));
        assert_eq!(of(&[u32::from(STREAM_ID) << 16 | 9]), Some(Reason::Rogue), "longer than the datagram");
        assert_eq!(of(&extension(STREAM_ID, &[0xff; 4])), Some(Reason::Rogue));
        assert_eq!(of(&stream_id(&"x".repeat(STREAM_ID_BYTES_MAX))), None);
        assert_eq!(of(&stream_id(&"x".repeat(STREAM_ID_BYTES_MAX + 1))), Some(Reason::Rogue));
        let with = |at: usize, value: u32| {
            let mut datagram = conclusion(9, 5, 77, 300, &[]);
            datagram[at..at + 4].copy_from_slice(&value.to_be_bytes());
            parsed(&datagram).fault()
        };
        let extensions_at = HEADER_BYTES + BODY_BYTES;
        assert_eq!(with(HEADER_BYTES, 4), Some(Reason::Version));
        assert_eq!(with(extensions_at + 4, 0x01_02_09), Some(Reason::Version));
        assert_eq!(with(extensions_at + 8, FLAGS | FLAG_STREAM), Some(Reason::Congestion));
        assert_eq!(with(extensions_at, 0x7777_0003), Some(Reason::Rogue), "without the handshake extension");
    }

    #[test]
    fn other_datagrams_are_no_requests() {
        let good = conclusion(9, 5, 77, 300, &[]);
        for end in 0..HEADER_BYTES + BODY_BYTES {
            assert_eq!(Request::parse(&good[..end]), None, "{end}");
        }
        assert_eq!(Request::parse(&induction(0)), None, "a caller has a socket");
        assert_eq!(Request::parse(&[0; 64]), None, "data");
    }

    #[test]
    fn a_refusal_carries_its_code() {
        let asked = parsed(&conclusion(9, 5, 77, 300, &[]));
        let answer = asked.refuse(Reason::Unauthorized, IpAddr::from([192, 0, 2, 7]));
        assert_eq!(calling::kind_and_socket(&answer), Some((2_401, 0)));
    }
}
