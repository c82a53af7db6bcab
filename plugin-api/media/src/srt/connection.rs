//! An accepted connection: its clock, acknowledgements, reports of losses, keys and end.

use core::net::IpAddr;
use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};

use super::buffer::{Buffer, Delivery, Taken};
use super::crypto::{KeyMaterial, Keys};
use super::handshake::{Accepted, Conclusion};
use super::limits::{ACKS_OPEN_MAX, PAYLOAD_BYTES_MAX, SILENCE};
use super::wire::{self, HEADER_BYTES, Header, Parity, after, control, distance, push_run, word};

/// Acknowledgements are this far apart (4.8.1).
const ACK_EVERY: Duration = Duration::from_millis(10);
/// Least time between two reports of the same losses (4.8.2).
const NAK_EVERY_MIN: Duration = Duration::from_millis(20);
/// A side that has nothing to send says so each second (4.7.2).
pub(super) const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(1);
/// Round-trip time before it is measured, and its variance (4.10).
pub(super) const RTT: Duration = Duration::from_millis(100);
/// Samples of the caller's clock for one correction.
const DRIFT_SAMPLES: i64 = 1_000;
/// Least time between two changes of keys: to unwrap keys takes about a millisecond of a thread that serves others. Callers
/// repeat what is not answered.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// Status in an answer to key material that does not fit (3.2.2): a 4 with its lowest byte first, as libsrt sends and
/// reads it on common machines.
const KM_BAD_SECRET: u32 = 4 << 24;

/// Numbers of a connection; counters only grow, except `lost`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Round-trip time.
    pub rtt: Duration,
    /// Agreed latency.
    pub latency: Duration,
    /// Data packets that were taken.
    pub packets: u64,
    /// Datagrams' bytes that were taken.
    pub bytes: u64,
    /// Packets that were missing when a later one came. One that comes late without being sent again is taken off.
    pub lost: u64,
    /// Packets that the caller sent again.
    pub retransmitted: u64,
    /// Packets that did not come in time and were given up.
    pub dropped: u64,
    /// Packets that are not encrypted as agreed.
    pub refused: u64,
}

/// Why a connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The other side closed it.
    Closed,
    /// The other side sent nothing for [`SILENCE`].
    Silent,
    /// As many packets were sent as one key may encrypt; a new connection has a new key.
    Worn,
}

/// The listener's end of a connection. Times are monotonic, from any start.
#[derive(Debug, Clone)]
pub struct Connection {
    caller: u32,
    began: Duration,
    clock: Clock,
    keys: Option<Keys>,
    renewed: Option<Duration>,
    buffer: Buffer,
    acks: Acks,
    stats: Stats,
    nak_at: Duration,
    heard: Duration,
    sent: Duration,
    over: Option<Over>,
    output: Vec<Vec<u8>>,
}

impl Connection {
    /// Accepts a caller for the socket `own`, whose conclusion came at `came`; with `keys` its packets must be encrypted.
    pub fn accept(
        conclusion: &Conclusion,
        own: u32,
        peer: IpAddr,
        keys: Option<Keys>,
        came: Duration,
        now: Duration,
    ) -> Accepted {
        let latency = Duration::from_millis(conclusion.latency_ms().into());
        let connection = Self {
            caller: conclusion.caller,
            began: now,
            clock: Clock::new(conclusion.timestamp, came, latency),
            keys,
            renewed: None,
            buffer: Buffer::new(conclusion.sequence),
            acks: Acks::new(conclusion.sequence, now),
            stats: Stats { latency, rtt: RTT, ..Stats::default() },
            nak_at: now,
            heard: now,
            sent: now,
            over: None,
            output: Vec::new(),
        };
        Accepted { answer: conclusion.accept(own, peer, None), connection }
    }

    /// Takes a datagram to this socket. Datagrams that violate the protocol are ignored.
    pub fn input(&mut self, mut datagram: BytesMut, now: Duration) {
        let Some(header) = Header::parse(&datagram) else { return };
        if self.over.is_some() {
            return;
        }
        self.heard = now;
        match header {
            Header::Data { sequence, parity, is_repeat, timestamp } => {
                let bytes = datagram.len() as u64;
                datagram.advance(HEADER_BYTES);
                if datagram.is_empty() || datagram.len() > PAYLOAD_BYTES_MAX {
                    return;
                }
                if !self.decrypt(parity, sequence, &mut datagram) {
                    self.stats.refused += 1;
                    return;
                }
                self.stats.bytes += bytes;
                self.data(sequence, is_repeat, timestamp, datagram, now);
            }
            Header::Control { kind, subtype, info, timestamp } => {
                let content = datagram.get(HEADER_BYTES..).unwrap_or_default();
                match (kind, subtype) {
                    (wire::ACKACK, _) => {
                        if let Some(rtt) = self.acks.confirmed(info, now) {
                            self.clock.sample(timestamp, now, rtt, self.acks.rtt);
                            self.stats.rtt = self.acks.rtt;
                        }
                    }
                    (wire::SHUTDOWN, _) => self.over = Some(Over::Closed),
                    (wire::DROP_REQUEST, _) => {
                        if let (Some(first), Some(last)) = (word(content, 0), word(content, 4)) {
                            self.buffer.give_up(first & wire::SEQUENCE, last & wire::SEQUENCE);
                        }
                    }
                    (wire::EXTENSION, wire::SUBTYPE_KM_REQUEST) => {
                        let content = content.to_vec();
                        self.renew_keys(&content, now);
                    }
                    _ => {}
                }
            }
        }
    }

    fn decrypt(&self, parity: Result<Option<Parity>, ()>, sequence: u32, payload: &mut [u8]) -> bool {
        match (parity, &self.keys) {
            (Ok(None), None) => true,
            (Ok(Some(parity)), Some(keys)) => keys.decrypt(parity, sequence, payload),
            _ => false,
        }
    }

    fn data(&mut self, sequence: u32, is_repeat: bool, timestamp: u32, payload: BytesMut, now: Duration) {
        let (end, due) = (self.buffer.end(), self.clock.due(timestamp));
        self.stats.retransmitted += u64::from(is_repeat);
        match self.buffer.take(sequence, payload.freeze(), due, now) {
            Taken::New { lost } => {
                self.stats.packets += 1;
                self.stats.lost += lost as u64;
                if lost > 0 {
                    let mut words = Vec::new();
                    push_run(&mut words, end, after(end, lost - 1));
                    self.report(&words, now);
                }
            }
            Taken::Filled => {
                self.stats.packets += 1;
                if !is_repeat {
                    self.stats.lost = self.stats.lost.saturating_sub(1);
                }
            }
            Taken::Known | Taken::Refused => {}
        }
    }

    fn renew_keys(&mut self, content: &[u8], now: Duration) {
        let Some(keys) = &mut self.keys else { return };
        if self.renewed.is_some_and(|at| now < at + RENEW_EVERY) {
            return;
        }
        self.renewed = Some(now);
        let fits = KeyMaterial::parse(content).is_ok_and(|material| keys.renew(&material));
        let answer = if fits { wire::to_words(content) } else { vec![KM_BAD_SECRET] };
        self.send(wire::EXTENSION, wire::SUBTYPE_KM_RESPONSE, 0, &answer, now);
    }

    /// Does what is due at `now`. Then [`Self::take_output`] has datagrams, and [`Self::give`] media.
    pub fn poll(&mut self, now: Duration) {
        if self.over.is_some() {
            return;
        }
        if now >= self.heard + SILENCE {
            self.over = Some(Over::Silent);
            return;
        }
        if self.ack_at().is_some_and(|at| now >= at) {
            let (acknowledged, room) = (self.buffer.acknowledged(), self.buffer.room().max(2) as u32);
            let number = self.acks.next(acknowledged, now);
            let [rtt, variance] = [self.acks.rtt, self.acks.variance].map(|time| time.as_micros() as u32);
            self.send(wire::ACK, 0, number, &[acknowledged, rtt, variance, room], now);
        }
        if !self.buffer.is_whole() && now >= self.nak_at {
            let every = self.nak_every();
            let words = self.buffer.missing(now.saturating_sub(every), now);
            self.nak_at = now + NAK_EVERY_MIN;
            if !words.is_empty() {
                self.report(&words, now);
            }
        }
        if now >= self.sent + KEEP_ALIVE_EVERY {
            self.send(wire::KEEP_ALIVE, 0, 0, &[0], now);
        }
    }

    /// When [`Self::poll`] or [`Self::give`] have something to do.
    pub fn next_at(&self) -> Duration {
        let nak = (!self.buffer.is_whole()).then_some(self.nak_at);
        let always = (self.sent + KEEP_ALIVE_EVERY).min(self.heard + SILENCE);
        [self.ack_at(), nak, self.buffer.due()].into_iter().flatten().fold(always, Duration::min)
    }

    fn ack_at(&self) -> Option<Duration> {
        self.acks.due(self.buffer.acknowledged())
    }

    fn nak_every(&self) -> Duration {
        ((self.acks.rtt + 4 * self.acks.variance) / 2).max(NAK_EVERY_MIN)
    }

    /// The next payload or gap whose time has come.
    pub fn give(&mut self, now: Duration) -> Option<Delivery> {
        let (delivery, dropped) = self.buffer.give(now)?;
        self.stats.dropped += dropped as u64;
        Some(delivery)
    }

    /// Datagrams for the caller.
    pub fn take_output(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.output)
    }

    /// Whether it is over. What is in the buffer then is still given, at once.
    pub fn over(&self) -> Option<Over> {
        self.over
    }

    /// Tells the caller that the connection ends.
    pub fn shut_down(&mut self, now: Duration) {
        self.send(wire::SHUTDOWN, 0, 0, &[0], now);
        self.over = Some(Over::Closed);
    }

    /// Numbers of the connection.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    fn report(&mut self, words: &[u32], now: Duration) {
        self.send(wire::NAK, 0, 0, words, now);
    }

    fn send(&mut self, kind: u16, subtype: u16, info: u32, content: &[u32], now: Duration) {
        let timestamp = now.saturating_sub(self.began).as_micros() as u32;
        self.output.push(control(kind, subtype, info, timestamp, self.caller, content));
        self.sent = now;
    }

    /// Bytes of media in memory; at most [`super::limits::HELD_BYTES_MAX`].
    pub fn held_bytes(&self) -> usize {
        self.buffer.held_bytes()
    }
}

/// The caller's clock: when its packets are due (4.5). Microseconds.
#[derive(Debug, Clone)]
struct Clock {
    /// Our time at the caller's time 0, with the corrections so far.
    base: i64,
    latency: i64,
    /// Newest time of the caller, unwrapped.
    newest: i64,
    /// Sum and count of samples of the caller's clock, and the round-trip time of the first.
    drift: (i64, i64),
    first_rtt: Option<i64>,
}

impl Clock {
    fn new(timestamp: u32, now: Duration, latency: Duration) -> Self {
        let newest = i64::from(timestamp);
        let base = micros(now) - newest;
        Self { base, latency: micros(latency), newest, drift: (0, 0), first_rtt: None }
    }

    /// Unwraps a timestamp of 32 bits, which wraps every 72 minutes.
    fn unwrap(&mut self, timestamp: u32) -> i64 {
        let step = timestamp.wrapping_sub(self.newest as u32) as i32;
        let time = self.newest + i64::from(step);
        self.newest = self.newest.max(time);
        time
    }

    fn due(&mut self, timestamp: u32) -> Duration {
        let due = self.base + self.unwrap(timestamp) + self.latency;
        Duration::from_micros(u64::try_from(due).unwrap_or(0))
    }

    /// The caller's time in a packet that came at `now` (4.5.1.2). The clocks of both sides differ by some parts in a
    /// million, which would use up the latency within hours.
    fn sample(&mut self, timestamp: u32, now: Duration, rtt: Duration, smoothed: Duration) {
        // A sample that was held up on its way says nothing about the clock.
        if rtt > 2 * smoothed {
            return;
        }
        let rtt = micros(rtt);
        let first = *self.first_rtt.get_or_insert(rtt);
        let ahead = micros(now) - (self.base + self.unwrap(timestamp)) - (rtt - first) / 2;
        self.drift = (self.drift.0.saturating_add(ahead), self.drift.1 + 1);
        if self.drift.1 >= DRIFT_SAMPLES {
            let (sum, count) = std::mem::take(&mut self.drift);
            self.base += sum / count;
        }
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 4)
}

/// Acknowledgements, and the round-trip time that their confirmations give (4.8.1, 4.10).
#[derive(Debug, Clone)]
struct Acks {
    number: u32,
    /// Sequence number of the last one, and when it was sent.
    last: u32,
    at: Duration,
    is_confirmed: bool,
    open: VecDeque<(u32, Duration)>,
    rtt: Duration,
    variance: Duration,
    is_measured: bool,
}

impl Acks {
    fn new(first: u32, now: Duration) -> Self {
        Self {
            number: 0,
            last: first,
            at: now,
            is_confirmed: true,
            open: VecDeque::new(),
            rtt: RTT,
            variance: RTT / 2,
            is_measured: false,
        }
    }

    /// When the next one is due: after new packets, or again if the last one was not confirmed.
    fn due(&self, acknowledged: u32) -> Option<Duration> {
        if distance(self.last, acknowledged) != 0 {
            return Some(self.at + ACK_EVERY);
        }
        (!self.is_confirmed).then(|| self.at + (self.rtt + 4 * self.variance).max(ACK_EVERY))
    }

    fn next(&mut self, acknowledged: u32, now: Duration) -> u32 {
        self.number = self.number.wrapping_add(1).max(1);
        (self.last, self.at, self.is_confirmed) = (acknowledged, now, false);
        if self.open.len() == ACKS_OPEN_MAX {
            self.open.pop_front();
        }
        self.open.push_back((self.number, now));
        self.number
    }

    /// The confirmation of an acknowledgement; returns the round-trip time that it shows.
    fn confirmed(&mut self, number: u32, now: Duration) -> Option<Duration> {
        let at = self.open.iter().position(|(open, _)| *open == number)?;
        let (_, sent) = self.open.drain(..=at).next_back()?;
        self.is_confirmed |= number == self.number;
        let rtt = now.saturating_sub(sent);
        if self.is_measured {
            self.variance = (3 * self.variance + self.rtt.abs_diff(rtt)) / 4;
            self.rtt = (7 * self.rtt + rtt) / 8;
        } else {
            (self.rtt, self.variance, self.is_measured) = (rtt, rtt / 2, true);
        }
        Some(rtt)
    }
}
