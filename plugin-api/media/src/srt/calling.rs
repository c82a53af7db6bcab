//! Handshakes of a caller: what it sends, and the answers of a listener (4.3.1). Tests and fuzzing write callers with them.

use core::net::{IpAddr, Ipv4Addr};

use super::handshake::{
    BODY_BYTES, Body, CONCLUSION, FLAGS, HAS_HANDSHAKE, HAS_KEYS, HAS_MORE, HS_REQUEST, HS_RESPONSE,
    INDUCTION, KM_RESPONSE, LIBRARY, MTU, STREAM_ID, VERSION,
};
use super::limits::WINDOW_PACKETS;
use super::reason::TYPE_BASE;
use super::wire::{HANDSHAKE, HEADER_BYTES, Header, SEQUENCE, to_words, word};

/// Version of an induction, and the type of socket in it.
const VERSION_OF_INDUCTION: u32 = 4;
const DATAGRAMS: u32 = 2;
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// What the conclusion of a caller says.
pub(super) struct Conclusion<'a> {
    pub(super) socket: u32,
    pub(super) cookie: u32,
    pub(super) sequence: u32,
    /// The caller's clock in microseconds.
    pub(super) timestamp: u32,
    pub(super) latency_ms: u16,
    /// Flags of the extensions, and bytes of a key divided by 8 in the upper half.
    pub(super) fields: u32,
    pub(super) peer: IpAddr,
    /// Extensions behind the one of the handshake.
    pub(super) more: &'a [u32],
}

impl Conclusion<'_> {
    pub(super) fn datagram(&self) -> Vec<u8> {
        let latency = u32::from(self.latency_ms) << 16 | u32::from(self.latency_ms);
        let handshake = [u32::from(HS_REQUEST) << 16 | 3, LIBRARY, FLAGS, latency];
        let body = Body {
            version: VERSION,
            fields: self.fields,
            sequence: self.sequence,
            mtu: MTU,
            kind: CONCLUSION,
            socket: self.socket,
            cookie: self.cookie,
            peer: self.peer,
        };
        body.datagram(0, self.timestamp, &[&handshake, self.more].concat())
    }
}

/// An induction of the socket `caller`.
pub fn induction(caller: u32) -> Vec<u8> {
    first(caller, 1, LOCALHOST)
}

pub(super) fn first(socket: u32, sequence: u32, peer: IpAddr) -> Vec<u8> {
    let (version, fields, mtu, kind) = (VERSION_OF_INDUCTION, DATAGRAMS, MTU, INDUCTION);
    Body { version, fields, sequence, mtu, kind, socket, cookie: 0, peer }.datagram(0, 0, &[])
}

/// A conclusion whose first packet has the number `sequence`, with this latency and these further extensions.
pub fn conclusion(socket: u32, cookie: u32, sequence: u32, latency_ms: u16, more: &[u32]) -> Vec<u8> {
    let fields = HAS_HANDSHAKE | HAS_KEYS | HAS_MORE;
    let (timestamp, peer) = (0, LOCALHOST);
    Conclusion { socket, cookie, sequence, timestamp, latency_ms, fields, peer, more }.datagram()
}

/// The cookie of an answer to an induction.
pub fn cookie(answer: &[u8]) -> Option<u32> {
    word(answer, HEADER_BYTES + 28)
}

/// The type of a handshake, and the socket that sends it.
pub fn kind_and_socket(answer: &[u8]) -> Option<(u32, u32)> {
    Some((word(answer, HEADER_BYTES + 20)?, word(answer, HEADER_BYTES + 24)?))
}

/// An extension with its head.
pub fn extension(kind: u16, content: &[u8]) -> Vec<u32> {
    let words = to_words(content);
    [vec![u32::from(kind) << 16 | words.len() as u32], words].concat()
}

/// The extension with a `streamid`.
pub fn stream_id(text: &str) -> Vec<u32> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(bytes.len().div_ceil(4) * 4, 0);
    bytes.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    extension(STREAM_ID, &bytes)
}

/// A listener's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    /// To an induction: the cookie that is to be repeated.
    Cookie(u32),
    /// To a conclusion: it is refused for the reason of this number.
    Refused(u32),
    /// To a conclusion.
    Accepted(Agreed<'a>),
}

/// What a listener has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agreed<'a> {
    /// The listener's socket.
    pub(super) socket: u32,
    /// Packets on their way that it takes.
    pub(super) window: usize,
    pub(super) mtu: u32,
    /// Latency of what the caller sends, if the listener says one.
    pub(super) latency_ms: Option<u16>,
    /// Answer to the key material.
    pub(super) keys: Option<&'a [u8]>,
}

impl<'a> Answer<'a> {
    /// Reads a datagram; `None` if it is no answer of a listener of version 5.
    pub(super) fn parse(datagram: &'a [u8]) -> Option<Self> {
        let Header::Control { kind: HANDSHAKE, .. } = Header::parse(datagram)? else { return None };
        let body = datagram.get(HEADER_BYTES..)?;
        let mut rest = body.get(BODY_BYTES..)?;
        let field = |index: usize| word(body, 4 * index);
        let (mtu, window, kind, socket) = (field(3)?, field(4)?, field(5)?, field(6)?);
        match kind {
            INDUCTION if field(0)? == VERSION => return Some(Self::Cookie(field(7)?)),
            CONCLUSION if field(0)? == VERSION && socket != 0 => {}
            TYPE_BASE.. if kind <= SEQUENCE => return Some(Self::Refused(kind - TYPE_BASE)),
            _ => return None,
        }
        let (mut latency_ms, mut keys) = (None, None);
        while let Some(head) = word(rest, 0) {
            let (kind, bytes) = ((head >> 16) as u16, (head as usize & 0xffff) * 4);
            let content = rest.get(4..4 + bytes)?;
            rest = &rest[4 + bytes..];
            match kind {
                HS_RESPONSE => latency_ms = Some((word(content, 8)? >> 16) as u16),
                KM_RESPONSE => keys = Some(content),
                _ => {}
            }
        }
        let window = usize::try_from(window).unwrap_or(WINDOW_PACKETS).min(WINDOW_PACKETS);
        Some(Self::Accepted(Agreed { socket, window, mtu, latency_ms, keys }))
    }
}
