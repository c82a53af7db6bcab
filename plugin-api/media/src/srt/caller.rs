//! The caller's side of a handshake, from its first datagram to a [`Sender`].

use core::net::IpAddr;
use std::time::Duration;

use super::calling::{self, Agreed, Answer, extension};
use super::crypto::{KeyMaterial, Keys};
use super::handshake::{HAS_HANDSHAKE, HAS_KEYS, HAS_MORE, KM_REQUEST};
use super::limits::{LATENCY_MS_MAX, LATENCY_MS_MIN, MTU_MIN, PASSPHRASE_BYTES, STREAM_ID_BYTES_MAX};
use super::reason::Reason;
use super::sender::Sender;
use super::wire::{SEQUENCE, destination};

/// A handshake without an answer is sent again after this time, as libsrt does.
const REPEAT_EVERY: Duration = Duration::from_millis(250);
/// Status of key material in an answer: the listener has no passphrase.
const KM_NO_SECRET: u8 = 3;

/// What a caller wants. `Debug` shows no secret.
#[derive(Clone, Default)]
pub struct Call {
    /// The `streamid`; at most [`STREAM_ID_BYTES_MAX`] bytes, the rest is cut.
    pub stream_id: String,
    /// Latency in milliseconds, within the limits; the listener may ask for more.
    pub latency_ms: u16,
    /// Passphrase of [`PASSPHRASE_BYTES`] bytes, and the bytes of the key, 16 or 32.
    pub secret: Option<(String, usize)>,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("latency_ms", &self.latency_ms).finish_non_exhaustive()
    }
}

/// Random numbers for one call.
#[derive(Clone, Copy, Default)]
pub struct Seed {
    /// Number of the caller's socket.
    pub socket: u32,
    /// Number of the first packet.
    pub sequence: u32,
    /// Salt of the keys.
    pub salt: [u8; 16],
    /// The key.
    pub key: [u8; 32],
}

/// Does not show the key.
impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seed").finish_non_exhaustive()
    }
}

/// How a call ended.
#[derive(Debug)]
pub enum Called {
    /// The listener takes the stream.
    Accepted(Box<Sender>),
    /// The listener refuses it for the reason of this number ([`Reason::code`], or another one of its own).
    Refused(u32),
}

/// A call that was not answered yet. Times are monotonic, from any start.
#[derive(Debug)]
pub struct Caller {
    call: Call,
    socket: u32,
    sequence: u32,
    peer: IpAddr,
    keys: Option<(Keys, KeyMaterial)>,
    began: Duration,
    cookie: Option<u32>,
    due: Duration,
}

impl Caller {
    /// A call to `peer`. With a passphrase it takes about a millisecond. `None`: the passphrase or its key has another
    /// length than allowed.
    pub fn new(mut call: Call, seed: Seed, peer: IpAddr, now: Duration) -> Option<Self> {
        let keys = match call.secret.take() {
            Some((passphrase, bytes)) if PASSPHRASE_BYTES.contains(&passphrase.len()) => {
                Some(Keys::wrap(&passphrase, seed.salt, seed.key.get(..bytes)?)?)
            }
            Some(_) => return None,
            None => None,
        };
        call.stream_id.truncate(call.stream_id.floor_char_boundary(STREAM_ID_BYTES_MAX));
        call.latency_ms = call.latency_ms.clamp(LATENCY_MS_MIN, LATENCY_MS_MAX);
        // A socket has a number, of 30 bits.
        let (socket, sequence) = (seed.socket & SEQUENCE >> 1 | 1, seed.sequence & SEQUENCE);
        Some(Self { call, socket, sequence, peer, keys, began: now, cookie: None, due: now })
    }

    /// The datagram that is due at `now`.
    pub fn poll(&mut self, now: Duration) -> Option<Vec<u8>> {
        if now < self.due {
            return None;
        }
        self.due = now + REPEAT_EVERY;
        let Some(cookie) = self.cookie else {
            return Some(calling::first(self.socket, self.sequence, self.peer));
        };
        let (mut more, mut fields) = (Vec::new(), HAS_HANDSHAKE);
        if !self.call.stream_id.is_empty() {
            more.extend(calling::stream_id(&self.call.stream_id));
            fields |= HAS_MORE;
        }
        if let Some((_, material)) = &self.keys {
            more.extend(extension(KM_REQUEST, material.bytes()));
            fields |= HAS_KEYS | (material.key_bytes() as u32 / 8) << 16;
        }
        let conclusion = calling::Conclusion {
            socket: self.socket,
            cookie,
            sequence: self.sequence,
            timestamp: now.saturating_sub(self.began).as_micros() as u32,
            latency_ms: self.call.latency_ms,
            fields,
            peer: self.peer,
            more: &more,
        };
        Some(conclusion.datagram())
    }

    /// When [`Self::poll`] has something.
    pub fn next_at(&self) -> Duration {
        self.due
    }

    /// Takes a datagram of the listener; the end of the call if it is one. All others are ignored.
    pub fn input(&mut self, datagram: &[u8], now: Duration) -> Option<Called> {
        if destination(datagram) != Some(self.socket) {
            return None;
        }
        match Answer::parse(datagram)? {
            Answer::Cookie(_) if self.cookie.is_some() => None,
            Answer::Cookie(cookie) => {
                (self.cookie, self.due) = (Some(cookie), now);
                None
            }
            // An answer to a conclusion that was never sent.
            _ if self.cookie.is_none() => None,
            Answer::Refused(code) => Some(Called::Refused(code)),
            Answer::Accepted(agreed) => Some(self.accepted(agreed, now)),
        }
    }

    fn accepted(&mut self, agreed: Agreed<'_>, now: Duration) -> Called {
        let refused = |reason: Reason| Called::Refused(reason.code());
        if agreed.mtu < MTU_MIN {
            return refused(Reason::Rogue);
        }
        match (&self.keys, agreed.keys) {
            (None, _) => {}
            (Some((_, sent)), Some(answer)) if answer == sent.bytes() => {}
            (Some(_), None) => return refused(Reason::Unsecure),
            // libsrt sends the word in the byte order of its machine, so the 3 mostly comes first.
            (Some(_), Some(answer)) if answer.len() == 4 && answer.contains(&KM_NO_SECRET) => {
                return refused(Reason::Unsecure);
            }
            (Some(_), Some(_)) => return refused(Reason::BadSecret),
        }
        let latency_ms = agreed.latency_ms.unwrap_or(0).max(self.call.latency_ms).min(LATENCY_MS_MAX);
        let latency = Duration::from_millis(latency_ms.into());
        let keys = self.keys.take().map(|(keys, _)| keys);
        let mut sender =
            Sender::new((self.socket, agreed.socket), self.sequence, latency, keys, self.began, now);
        sender.limit(agreed.window);
        Called::Accepted(Box::new(sender))
    }
}
