//! The sending end of a connection: packets with their numbers and times, repeats of those that were lost, and their
//! end: acknowledged, or too late (4.6 to 4.10).

use core::net::IpAddr;
use std::collections::VecDeque;
use std::time::Duration;

use super::connection::{KEEP_ALIVE_EVERY, Over, RTT};
use super::crypto::Keys;
use super::handshake::Conclusion;
use super::limits::{
    CONTROL_MAX, PACKETS_PER_KEY_MAX, REPORT_LOOKS_MAX, RTT_MAX, SEND_BYTES, SILENCE, SPARE_MAX,
    UNSENT_BYTES_MAX, WINDOW_PACKETS,
};
use super::pace::Pace;
use super::wire::{self, HEADER_BYTES, Header, Parity, RANGE, SEQUENCE, after, control, distance, word};

/// Bytes of the longest data packet.
const DATAGRAM_BYTES: usize = HEADER_BYTES + SEND_BYTES;
/// Least time for which a packet is kept, as with libsrt; a quarter longer than the latency if that is more (4.6).
const KEPT_MIN: Duration = Duration::from_secs(1);
/// The last packet is repeated when its acknowledgement is this late beyond the round-trip time: nothing behind it
/// shows that it was lost.
const LAST_LATE: Duration = Duration::from_millis(50);
/// A message in one packet (3.1).
const WHOLE_MESSAGE: u32 = 0xc000_0000;
/// Bits of message numbers.
const MESSAGE: u32 = 0x03ff_ffff;
/// Bit of a repeat, in the first byte of the second word.
const REPEAT: u8 = 0x04;

/// Numbers of a connection that sends; counters only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendStats {
    /// Round-trip time as the receiver measures it.
    pub rtt: Duration,
    /// Agreed latency.
    pub latency: Duration,
    /// Packets that were sent, without repeats.
    pub packets: u64,
    /// Bytes of all data packets on the wire, with repeats.
    pub bytes: u64,
    /// Packets that were sent again.
    pub retransmitted: u64,
    /// Packets that were given up as too late, sent or not.
    pub dropped: u64,
    /// Packets that the receiver has acknowledged.
    pub acknowledged: u64,
}

/// A packet until it is acknowledged.
#[derive(Debug, Clone)]
struct Slot {
    datagram: Vec<u8>,
    /// When it was sent first; until then when it came.
    at: Duration,
    /// When it was sent last.
    last: Duration,
    is_lost: bool,
}

/// The sending end of a connection. Times are monotonic, from any start.
#[derive(Debug, Clone)]
pub struct Sender {
    own: u32,
    peer: u32,
    /// Time 0 of the timestamps.
    began: Duration,
    keys: Option<(Keys, Parity)>,
    encrypted: u64,
    /// Number of the first packet in `slots`.
    first: u32,
    slots: VecDeque<Slot>,
    /// The first packet in `slots` that was never sent.
    unsent: usize,
    unsent_bytes: usize,
    /// Packets that are to be repeated; none of them is before `lost_from`.
    lost: usize,
    lost_from: usize,
    /// Looks at packets that reports may still cost until the next poll.
    looks: usize,
    message: u32,
    /// Packets on their way that the receiver takes.
    window: usize,
    rtt: Duration,
    variance: Duration,
    pace: Pace,
    /// Memory of packets that were acknowledged.
    spare: Vec<Vec<u8>>,
    control: VecDeque<Vec<u8>>,
    stats: SendStats,
    /// When the newest packet was sent first.
    newest: Duration,
    heard: Duration,
    sent: Duration,
    is_overrun: bool,
    over: Option<Over>,
}

impl Sender {
    /// A connection between the sockets `own` and `peer`, whose timestamps count from `began`.
    pub(super) fn new(
        (own, peer): (u32, u32),
        first: u32,
        latency: Duration,
        keys: Option<Keys>,
        began: Duration,
        now: Duration,
    ) -> Self {
        let keys = keys.map(|keys| {
            let parity = keys.parity();
            (keys, parity)
        });
        Self {
            own,
            peer,
            began,
            keys,
            encrypted: 0,
            first,
            slots: VecDeque::new(),
            unsent: 0,
            unsent_bytes: 0,
            lost: 0,
            lost_from: 0,
            looks: REPORT_LOOKS_MAX,
            message: 1,
            window: WINDOW_PACKETS,
            rtt: RTT,
            variance: RTT / 2,
            pace: Pace::new(now),
            spare: Vec::new(),
            control: VecDeque::new(),
            stats: SendStats { latency, rtt: RTT, ..SendStats::default() },
            newest: now,
            heard: now,
            sent: now,
            is_overrun: false,
            over: None,
        }
    }

    /// Accepts a caller that receives, for the socket `own`; `latency_ms` is the least latency. With `keys`, which are
    /// those of the caller, packets are encrypted. The first value answers the conclusion.
    pub fn accept(
        conclusion: &Conclusion,
        own: u32,
        peer: IpAddr,
        keys: Option<Keys>,
        latency_ms: u16,
        now: Duration,
    ) -> (Vec<u8>, Self) {
        let latency_ms = conclusion.send_latency_ms(latency_ms);
        let latency = Duration::from_millis(latency_ms.into());
        let answer = conclusion.accept(own, peer, Some(latency_ms));
        let mut sender = Self::new((own, conclusion.caller), conclusion.sequence, latency, keys, now, now);
        sender.limit(conclusion.window());
        (answer, sender)
    }

    /// Takes no more than this many packets on their way.
    pub(super) fn limit(&mut self, window: usize) {
        self.window = window.clamp(2, WINDOW_PACKETS);
    }

    /// Whether media should be pushed: what was pushed before has nearly left.
    pub fn has_room(&self) -> bool {
        self.unsent_bytes < UNSENT_BYTES_MAX && self.slots.len() < WINDOW_PACKETS && self.over.is_none()
    }

    /// Takes the payload of the next packet, of at most [`SEND_BYTES`] bytes. False: there is no room, or it is too long,
    /// and it was not taken.
    pub fn push(&mut self, payload: &[u8], now: Duration) -> bool {
        let is_short = (1..=SEND_BYTES).contains(&payload.len());
        if self.slots.len() >= WINDOW_PACKETS || !is_short || self.over.is_some() {
            return false;
        }
        let sequence = after(self.first, self.slots.len());
        let mut datagram = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(DATAGRAM_BYTES));
        datagram.clear();
        let parity = match &self.keys {
            None => 0,
            Some((_, Parity::Even)) => 1,
            Some((_, Parity::Odd)) => 2,
        };
        let second = WHOLE_MESSAGE | parity << 27 | self.message;
        for word in [sequence, second, 0, self.peer] {
            datagram.extend_from_slice(&word.to_be_bytes());
        }
        datagram.extend_from_slice(payload);
        if let Some((keys, parity)) = &self.keys {
            keys.decrypt(*parity, sequence, &mut datagram[HEADER_BYTES..]);
            self.encrypted += 1;
            if self.encrypted >= PACKETS_PER_KEY_MAX {
                self.over = Some(Over::Worn);
            }
        }
        self.message = (self.message + 1) & MESSAGE;
        self.message += u32::from(self.message == 0);
        self.unsent_bytes += datagram.len();
        self.pace.came(datagram.len(), now);
        self.slots.push_back(Slot { datagram, at: now, last: now, is_lost: false });
        true
    }

    /// Takes a datagram to this socket. Datagrams that violate the protocol are ignored.
    pub fn input(&mut self, datagram: &[u8], now: Duration) {
        let Some(Header::Control { kind, info, .. }) = Header::parse(datagram) else { return };
        if self.over.is_some() || wire::destination(datagram) != Some(self.own) {
            return;
        }
        let content = datagram.get(HEADER_BYTES..).unwrap_or_default();
        match kind {
            wire::ACK => self.acknowledged(info, content, now),
            wire::NAK => self.reported(content, now),
            wire::SHUTDOWN => self.over = Some(Over::Closed),
            wire::KEEP_ALIVE | wire::EXTENSION => {}
            _ => return,
        }
        self.heard = now;
    }

    fn acknowledged(&mut self, number: u32, content: &[u8], now: Duration) {
        let Some(acknowledged) = word(content, 0) else { return };
        let ahead = distance(self.first, acknowledged & SEQUENCE);
        // It was never sent.
        if ahead > self.unsent as i64 {
            return;
        }
        if let Ok(count @ 1..) = usize::try_from(ahead) {
            self.release(count);
            self.stats.acknowledged += count as u64;
        }
        let is_new = ahead >= 0;
        if let (true, Some(rtt), Some(variance)) = (is_new, word(content, 4), word(content, 8)) {
            let [rtt, variance] =
                [rtt, variance].map(|micros| Duration::from_micros(micros.into()).min(RTT_MAX));
            (self.rtt, self.variance, self.stats.rtt) = (rtt, variance, rtt);
        }
        if let (true, Some(room)) = (is_new, word(content, 12)) {
            self.limit(room as usize);
        }
        // A light acknowledgement is only the number of the packet.
        if content.len() > 4 {
            self.tell(wire::ACKACK, number, &[], now);
        }
    }

    /// Forgets the first packets.
    fn release(&mut self, count: usize) {
        for slot in self.slots.drain(..count) {
            self.lost -= usize::from(slot.is_lost);
            if self.spare.len() < SPARE_MAX {
                self.spare.push(slot.datagram);
            }
        }
        self.first = after(self.first, count);
        self.unsent -= count;
        self.lost_from = self.lost_from.saturating_sub(count);
    }

    /// Marks lost packets. All reports between two polls cost no more than a look at each packet that is kept.
    fn reported(&mut self, content: &[u8], now: Duration) {
        let mut words = content.chunks_exact(4).filter_map(|chunk| word(chunk, 0));
        let mut gone = None;
        while let Some(begin) = words.next() {
            let first = begin & SEQUENCE;
            let last = if begin & RANGE == 0 { Some(first) } else { words.next() };
            let Some(last) = last.map(|last| last & SEQUENCE) else { break };
            let [from, to] = [first, last].map(|number| distance(self.first, number));
            // Backwards, or never sent.
            if to < from || to >= self.unsent as i64 {
                break;
            }
            if from < 0 && gone.is_none() {
                gone = Some([first, if to < 0 { last } else { after(self.first, SEQUENCE as usize) }]);
            }
            let Ok(to) = usize::try_from(to) else { continue };
            let from = usize::try_from(from).unwrap_or(0);
            if to - from >= self.looks {
                break;
            }
            self.looks -= to - from + 1;
            (from..=to).for_each(|at| self.mark(at, now));
        }
        if let Some(gone) = gone {
            self.tell(wire::DROP_REQUEST, 0, &gone, now);
        }
    }

    /// Marks a packet as lost, unless it was sent so recently that the report cannot know of it.
    fn mark(&mut self, at: usize, now: Duration) {
        let on_its_way = self.rtt.saturating_sub(self.variance);
        if let Some(slot) =
            self.slots.get_mut(at).filter(|slot| !slot.is_lost && now >= slot.last + on_its_way)
        {
            slot.is_lost = true;
            self.lost += 1;
            self.lost_from = self.lost_from.min(at);
        }
    }

    /// Does what is due at `now`. Then [`Self::transmit`] has datagrams.
    pub fn poll(&mut self, now: Duration) {
        if self.over.is_some() {
            return;
        }
        if now >= self.heard + SILENCE {
            self.over = Some(Over::Silent);
            return;
        }
        self.looks = REPORT_LOOKS_MAX;
        let kept = self.kept();
        let late = self.slots.range(..self.unsent).take_while(|slot| now >= slot.at + kept).count();
        self.release(late);
        self.stats.dropped += late as u64;
        if self.slots.get(self.unsent).is_some_and(|slot| now >= slot.at + kept) {
            self.overrun();
        }
        if self.last_is_late_at().is_some_and(|at| now >= at) {
            self.mark(self.unsent - 1, now);
        }
        if now >= self.sent + KEEP_ALIVE_EVERY {
            self.tell(wire::KEEP_ALIVE, 0, &[0], now);
        }
    }

    /// Time for which packets are kept.
    fn kept(&self) -> Duration {
        (self.stats.latency * 5 / 4).max(KEPT_MIN)
    }

    /// Gives up everything that was not sent. The numbers are used again: nobody has seen them.
    fn overrun(&mut self) {
        self.stats.dropped += (self.slots.len() - self.unsent) as u64;
        self.slots.truncate(self.unsent);
        (self.unsent_bytes, self.is_overrun) = (0, true);
    }

    /// Gives up everything that was not sent, because the rest of it has no room.
    pub fn discard(&mut self) {
        self.overrun();
    }

    /// Whether packets were given up that were never sent, since the last call: media may go on with a keyframe.
    pub fn take_overrun(&mut self) -> bool {
        std::mem::take(&mut self.is_overrun)
    }

    /// When the last packet is to be sent again without a report.
    fn last_is_late_at(&self) -> Option<Duration> {
        let is_waiting = self.unsent > 0 && self.unsent == self.slots.len() && self.lost == 0;
        let last = self.slots.back().filter(|_| is_waiting)?;
        Some(last.last + self.rtt + 4 * self.variance + LAST_LATE)
    }

    /// When [`Self::poll`] or [`Self::transmit`] have something to do.
    pub fn next_at(&self) -> Duration {
        let always = (self.sent + KEEP_ALIVE_EVERY).min(self.heard + SILENCE);
        let kept = self.kept();
        let late = self.slots.front().map(|slot| slot.at + kept);
        let unsent = self.slots.get(self.unsent).map(|slot| slot.at + kept);
        let repeat = (self.lost > 0).then(|| self.pace.next_repeat());
        let new = self.may_send_new().then(|| self.pace.next());
        let times = [late, unsent, repeat, new, self.last_is_late_at()];
        times.into_iter().flatten().fold(always, Duration::min)
    }

    fn may_send_new(&self) -> bool {
        self.unsent < self.slots.len() && self.unsent < self.window
    }

    /// Gives what may leave at `now` to `send`, which says whether the system took it.
    pub fn transmit(&mut self, now: Duration, mut send: impl FnMut(&[u8]) -> bool) {
        while let Some(control) = self.control.front() {
            if !send(control) {
                return;
            }
            self.control.pop_front();
        }
        while self.over.is_none() {
            let Some((at, is_repeat)) = self.choose(now) else { return };
            let Some(slot) = self.slots.get_mut(at) else { return };
            if is_repeat {
                slot.datagram[4] |= REPEAT;
            } else {
                let timestamp = now.saturating_sub(self.began).as_micros() as u32;
                slot.datagram[8..12].copy_from_slice(&timestamp.to_be_bytes());
            }
            if !send(&slot.datagram) {
                return;
            }
            let bytes = slot.datagram.len();
            (slot.last, slot.is_lost, self.sent) = (now, false, now);
            self.pace.sent(bytes, is_repeat, now);
            self.stats.bytes += bytes as u64;
            if is_repeat {
                self.lost -= 1;
                self.stats.retransmitted += 1;
            } else {
                (slot.at, self.newest) = (now, now);
                self.unsent += 1;
                self.unsent_bytes -= bytes;
                self.stats.packets += 1;
            }
        }
    }

    /// The packet that is to leave next, and whether it is a repeat. The oldest first: it is needed first.
    fn choose(&mut self, now: Duration) -> Option<(usize, bool)> {
        if self.lost > 0 && now >= self.pace.next_repeat() {
            let lost = self.slots.range(self.lost_from..).position(|slot| slot.is_lost);
            self.lost_from += lost?;
            return Some((self.lost_from, true));
        }
        (self.may_send_new() && now >= self.pace.next()).then_some((self.unsent, false))
    }

    /// Whether everything that was pushed is acknowledged or given up.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// When the receiver has given the newest packet to its program. Some receivers give nothing more after the end of a
    /// connection.
    pub fn given_at(&self) -> Duration {
        self.newest + self.stats.latency + self.rtt
    }

    /// Whether the connection is over.
    pub fn over(&self) -> Option<Over> {
        self.over
    }

    /// Ends the connection: [`Self::transmit`] then has the news for the receiver.
    pub fn shut_down(&mut self, now: Duration) {
        self.tell(wire::SHUTDOWN, 0, &[0], now);
        self.over = Some(Over::Closed);
    }

    /// Numbers of the connection.
    pub fn stats(&self) -> SendStats {
        self.stats
    }

    /// Bytes of media in memory; at most [`super::limits::HELD_BYTES_MAX`] with headers.
    pub fn held_bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.datagram.len()).sum()
    }

    /// Packets whose memory is kept.
    #[cfg(test)]
    pub(super) fn spares(&self) -> usize {
        self.spare.len()
    }

    /// As if so many packets were encrypted before.
    #[cfg(test)]
    pub(super) fn wear(&mut self, packets: u64) {
        self.encrypted = packets;
    }

    fn tell(&mut self, kind: u16, info: u32, content: &[u32], now: Duration) {
        // What is beyond it answers a flood.
        if self.control.len() < CONTROL_MAX {
            let timestamp = now.saturating_sub(self.began).as_micros() as u32;
            self.control.push_back(control(kind, 0, info, timestamp, self.peer, content));
            self.sent = now;
        }
    }
}
