//! As a listener: open a port, let receivers call, and send to each of them from its next keyframe on.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use satcast_media::srt::{Conclusion, Cookies, Keys, Reason, Request, Sender, StreamId, destination};
use satcast_plugin_api::driver::{Ctx, Destination, Media, State};
use satcast_plugin_api::{Error, Packet};
use tokio::net::UdpSocket;
use tokio::time::sleep_until;

use crate::feed::Feed;
use crate::outlet::{Counters, Outlet, Told};
use crate::refusal;
use crate::target::Target;
use crate::timing::Timing;
use crate::wire::{Clock, DATAGRAM_BYTES, FULL_PAUSE, ROUND_DATAGRAMS, Sent};

/// Receivers of one destination at a time.
pub const CALLERS_MAX: usize = 8;
/// Passphrases of callers that are tried in a second, those of known networks apart: each takes about a millisecond of a thread that
/// serves others.
pub const UNWRAPS_PER_SEC_MAX: u32 = 100;
/// Networks that are known because a receiver in them had the passphrase.
const NETWORKS_KNOWN_MAX: usize = 64;

/// A port that receivers call.
pub(crate) struct Listen {
    target: Target,
    address: SocketAddr,
    timing: Timing,
}

impl Listen {
    pub(crate) fn new(target: Target, address: SocketAddr, timing: Timing) -> Self {
        Self { target, address, timing }
    }
}

impl Destination for Listen {
    async fn run(self: Arc<Self>, ctx: Ctx, media: Media) -> Result<(), Error> {
        let opened = std::net::UdpSocket::bind(self.address).and_then(|socket| {
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket)
        });
        let socket = opened.map_err(|error| refusal::not_opened(self.address.port(), &error))?;
        let serve = Serve {
            listen: &self,
            socket,
            clock: Clock::start(),
            cookies: Cookies::new(&rand::random()),
            receivers: Vec::new(),
            tries: Tries::new(),
            refusals: PerSecond::new(1),
            feed: Feed::new(&ctx),
            counters: Counters::of(&ctx),
            ctx: &ctx,
            media,
            open: true,
            is_full: false,
            last_media: Duration::ZERO,
            told: None,
            stop_by: None,
        };
        serve.run().await
    }
}

/// A receiver that was accepted.
struct Receiver {
    address: SocketAddr,
    /// Its socket and ours.
    caller: u32,
    own: u32,
    /// The answer to its conclusion, which it may have to get again, and when it was made.
    answer: Vec<u8>,
    answered: Duration,
    outlet: Outlet,
}

/// Events of this second that are limited.
struct PerSecond {
    most: u32,
    since: Duration,
    count: u32,
}

impl PerSecond {
    fn new(most: u32) -> Self {
        Self { most, since: Duration::ZERO, count: 0 }
    }

    fn may(&mut self, now: Duration) -> bool {
        if now >= self.since + Duration::from_secs(1) {
            (self.since, self.count) = (now, 0);
        }
        self.count += 1;
        self.count <= self.most
    }
}

/// Which callers may have their passphrase tried.
struct Tries {
    unwraps: PerSecond,
    /// Networks that sent a wrong key in the last second: at most twice [`UNWRAPS_PER_SEC_MAX`] besides the known ones.
    wrong: Vec<(IpAddr, Duration)>,
    /// Networks with the right one, the newest last. Strangers cannot keep their receivers from coming back.
    known: VecDeque<IpAddr>,
}

impl Tries {
    fn new() -> Self {
        Self { unwraps: PerSecond::new(UNWRAPS_PER_SEC_MAX), wrong: Vec::new(), known: VecDeque::new() }
    }

    /// Whether the key of a caller is tried. A network with a wrong key waits, so that one host does not use up the tries of others.
    fn may(&mut self, address: IpAddr, now: Duration) -> bool {
        self.wrong.retain(|(_, at)| now < *at + Duration::from_secs(1));
        let network = network_of(address);
        !self.wrong.iter().any(|(wrong, _)| *wrong == network)
            && (self.known.contains(&network) || self.unwraps.may(now))
    }

    fn note(&mut self, address: IpAddr, is_right: bool, now: Duration) {
        let network = network_of(address);
        if !is_right {
            self.wrong.push((network, now));
            return;
        }
        self.known.retain(|known| *known != network);
        if self.known.len() == NETWORKS_KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back(network);
    }
}

/// An IPv4 address, or the 64 bits of IPv6 behind which a host chooses its address.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

struct Serve<'a> {
    listen: &'a Listen,
    socket: UdpSocket,
    clock: Clock,
    cookies: Cookies,
    receivers: Vec<Receiver>,
    tries: Tries,
    /// Lines of the log about refused callers.
    refusals: PerSecond,
    feed: Feed,
    counters: Counters,
    ctx: &'a Ctx,
    media: Media,
    open: bool,
    is_full: bool,
    last_media: Duration,
    told: Option<Told>,
    stop_by: Option<Duration>,
}

impl Serve<'_> {
    async fn run(mut self) -> Result<(), Error> {
        let (ctx, mut taken) = (self.ctx, Vec::new());
        let mut stopping = pin!(ctx.stopping());
        loop {
            let until = self.round();
            if self.is_done() {
                self.end();
                return Ok(());
            }
            tokio::select! {
                biased;
                () = &mut stopping, if self.stop_by.is_none() => self.stop(),
                more = self.media.recv_batch(&mut taken), if self.open => {
                    if let Err(error) = self.give(&taken) {
                        self.end();
                        return Err(error);
                    }
                    taken.clear();
                    if !more {
                        self.open = false;
                        self.stop();
                    }
                }
                _ = self.socket.readable() => {
                    self.read();
                    // Readiness costs no budget in tokio, and this thread serves other destinations too.
                    tokio::task::yield_now().await;
                }
                _ = self.socket.writable(), if self.is_full => self.is_full = false,
                () = sleep_until(self.clock.at(until)) => {}
            }
        }
    }

    fn stop(&mut self) {
        let by = self.clock.now() + self.listen.timing.flush;
        self.stop_by.get_or_insert(by);
    }

    /// Gives media to all receivers. One that is too slow loses it up to a keyframe, alone.
    fn give(&mut self, packets: &[Packet]) -> Result<(), Error> {
        let (now, receivers) = (self.clock.now(), &mut self.receivers);
        let mut put = |payload: &[u8], begins: bool| {
            receivers.iter_mut().for_each(|receiver| receiver.outlet.push(payload, begins, now));
        };
        for packet in packets {
            self.feed.take(packet, &mut put)?;
        }
        self.feed.flush(&mut put);
        self.last_media = now;
        Ok(())
    }

    /// Does what is due, and returns when something is due next.
    fn round(&mut self) -> Duration {
        let now = self.clock.now();
        let (mut has_progress, mut next) = (false, now + Duration::from_secs(1));
        self.is_full = false;
        let (timing, target) = (self.listen.timing, &self.listen.target);
        for receiver in &mut self.receivers {
            receiver.outlet.sender.poll(now);
            self.is_full |= !transmit(&self.socket, receiver, now);
            has_progress |= receiver.outlet.count(&self.counters, now);
            next = next.min(receiver.outlet.sender.next_at());
            if !self.open && receiver.outlet.sender.given_at() > now {
                next = next.min(receiver.outlet.sender.given_at());
            }
            if receiver.outlet.unanswered().is_some_and(|since| now >= since + timing.stalled) {
                receiver.outlet.sender.shut_down(now);
                transmit(&self.socket, receiver, now);
            }
        }
        self.receivers.retain(|receiver| {
            let over = receiver.outlet.sender.over();
            if let Some(over) = over {
                tracing::info!(%target, receiver = %receiver.address, ?over, "a receiver has left");
            }
            over.is_none()
        });
        if self.open && now >= self.last_media + timing.media_silent {
            self.tell(Told::NoMedia);
        } else if self.receivers.is_empty() {
            self.tell(Told::NoCaller);
        } else if has_progress {
            self.tell(Told::Live);
        }
        let next = if self.is_full { next.max(now + FULL_PAUSE) } else { next };
        self.stop_by.map_or(next, |by| next.min(by))
    }

    fn tell(&mut self, news: Told) {
        if self.told.replace(news) != Some(news) {
            match news {
                Told::Live => self.ctx.state(State::Live),
                Told::NoMedia => self.ctx.waiting(&refusal::no_media()),
                Told::NoCaller => self.ctx.waiting(&refusal::no_caller(&self.listen.target)),
            }
        }
    }

    fn read(&mut self) {
        let mut block = [0; DATAGRAM_BYTES];
        for _ in 0..ROUND_DATAGRAMS {
            match self.socket.try_recv_from(&mut block) {
                Ok((bytes, from)) => self.take(&block[..bytes], from),
                // Also an unreachable receiver, which its silence ends.
                Err(_) => return,
            }
        }
    }

    fn take(&mut self, datagram: &[u8], from: SocketAddr) {
        let now = self.clock.now();
        match destination(datagram) {
            None => {}
            Some(0) => match Request::parse(datagram) {
                Some(Request::Induction(hello)) => {
                    self.send(&hello.answer(self.cookies.make(from, now), from.ip()), from);
                }
                Some(Request::Conclusion(asked)) => self.concluded(&asked, from, now),
                None => {}
            },
            Some(own) => {
                let is_it = |receiver: &&mut Receiver| receiver.own == own && receiver.address == from;
                if let Some(receiver) = self.receivers.iter_mut().find(is_it) {
                    receiver.outlet.sender.input(datagram, now);
                }
            }
        }
    }

    /// A caller says what it wants.
    fn concluded(&mut self, asked: &Conclusion, from: SocketAddr, now: Duration) {
        if !self.cookies.is_valid(asked.cookie, from, now) {
            return;
        }
        let is_known = |receiver: &&Receiver| receiver.address == from && receiver.caller == asked.caller;
        if let Some(receiver) = self.receivers.iter().find(is_known) {
            // The clock of the receiver begins by the answer that it gets, so this one says how late it is.
            let (mut answer, late) = (receiver.answer.clone(), now.saturating_sub(receiver.answered));
            answer[8..12].copy_from_slice(&(late.as_micros() as u32).to_be_bytes());
            return self.send(&answer, from);
        }
        let keys = match self.admit(asked, from.ip(), now) {
            Ok(keys) => keys,
            Err(reason) => {
                if self.refusals.may(now) {
                    tracing::info!(target = %self.listen.target, caller = %from, code = reason.code(), "a caller is refused");
                }
                return self.send(&asked.refuse(reason, from.ip()), from);
            }
        };
        // Its numbers cannot be guessed, because they are all that a datagram shows.
        let own = rand::random::<u32>() | 1;
        let latency_ms = self.listen.target.latency_ms;
        let (answer, sender) = Sender::accept(asked, own, from.ip(), keys, latency_ms, now);
        self.send(&answer, from);
        tracing::info!(target = %self.listen.target, receiver = %from, "a receiver has called");
        let outlet = Outlet::new(sender);
        let (address, caller) = (from, asked.caller);
        self.receivers.push(Receiver { address, caller, own, answer, answered: now, outlet });
    }

    /// Whether a caller gets the stream, and the keys that it has sent.
    fn admit(&mut self, asked: &Conclusion, from: IpAddr, now: Duration) -> Result<Option<Keys>, Reason> {
        if let Some(fault) = asked.fault() {
            return Err(fault);
        }
        let target = &self.listen.target;
        if !self.open || self.stop_by.is_some() {
            return Err(Reason::Down);
        }
        if !asked.takes_packets() {
            return Err(Reason::Rogue);
        }
        let id = asked.stream_id();
        if !target.stream_id.is_empty()
            && id != target.stream_id
            && StreamId::parse(id).resource != target.stream_id
        {
            return Err(Reason::Unauthorized);
        }
        if self.receivers.len() >= CALLERS_MAX {
            return Err(Reason::Overload);
        }
        match (&target.passphrase, asked.key_material()) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) if !self.tries.may(from, now) => Err(Reason::Overload),
            (Some(passphrase), Some(material)) => {
                let keys = Keys::unwrap(passphrase, material);
                self.tries.note(from, keys.is_some(), now);
                keys.map(Some).ok_or(Reason::BadSecret)
            }
            (Some(_), None) | (None, Some(_)) => Err(Reason::Unsecure),
        }
    }

    /// Sends what the system takes at once; the rest counts as lost on the way.
    fn send(&self, datagram: &[u8], to: SocketAddr) {
        let _may_be_lost = self.socket.try_send_to(datagram, to);
    }

    /// Every receiver has everything after the end of the media, or its time is over.
    fn is_done(&self) -> bool {
        let now = self.clock.now();
        let has_all = |receiver: &Receiver| {
            receiver.outlet.sender.is_empty() && now >= receiver.outlet.sender.given_at()
        };
        let is_given = !self.open && self.receivers.iter().all(has_all);
        is_given || self.stop_by.is_some_and(|by| now >= by)
    }

    fn end(&mut self) {
        let now = self.clock.now();
        for receiver in &mut self.receivers {
            receiver.outlet.end(now);
            transmit(&self.socket, receiver, now);
            receiver.outlet.count(&self.counters, now);
        }
    }
}

/// Sends what may leave; false when the system has no room.
fn transmit(socket: &UdpSocket, receiver: &mut Receiver, now: Duration) -> bool {
    let (to, mut last) = (receiver.address, Sent::Gone);
    receiver.outlet.sender.transmit(now, |datagram| {
        last = Sent::of(&socket.try_send_to(datagram, to));
        // An unreachable receiver is ended by its silence.
        last != Sent::Full
    });
    last != Sent::Full
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn passphrases_of_strangers_that_are_tried_in_a_second_are_limited() {
        let (mut tries, now) = (Tries::new(), Duration::from_secs(9));
        tries.note(address("192.0.2.7"), true, now);
        let stranger = address("198.51.100.7");
        assert!((0..UNWRAPS_PER_SEC_MAX).all(|_| tries.may(stranger, now)));
        assert!(!tries.may(stranger, now) && !tries.may(stranger, now + Duration::from_millis(999)));
        assert!(tries.may(address("192.0.2.7"), now), "a receiver was there before");
        assert!(tries.may(stranger, now + Duration::from_secs(1)));
    }

    #[test]
    fn known_networks_are_limited() {
        let (mut tries, now) = (Tries::new(), Duration::from_secs(9));
        for host in 0..=NETWORKS_KNOWN_MAX {
            tries.note(address(&format!("192.0.2.{host}")), true, now);
            tries.note(address("198.51.100.7"), true, now);
        }
        assert_eq!(tries.known.len(), NETWORKS_KNOWN_MAX);
        assert_eq!(tries.known.back(), Some(&address("198.51.100.7")), "once");
        assert!(!tries.known.contains(&address("192.0.2.0")), "the oldest has gone");
    }

    #[test]
    fn a_network_tries_one_wrong_key_in_a_second() {
        let (mut tries, now) = (Tries::new(), Duration::from_secs(9));
        tries.note(address("192.0.2.7"), true, now);
        assert!(tries.may(address("192.0.2.7"), now));
        tries.note(address("192.0.2.7"), false, now);
        tries.note(address("2001:db8:0:1::7"), false, now);
        for (text, may) in [
            ("192.0.2.7", false),
            ("::ffff:192.0.2.7", false),
            ("192.0.2.8", true),
            ("2001:db8:0:1:ffff::", false),
            ("2001:db8:0:2::7", true),
        ] {
            assert_eq!(tries.may(address(text), now + Duration::from_millis(999)), may, "{text}");
        }
        assert!(tries.may(address("192.0.2.7"), now + Duration::from_secs(1)));
        assert!(tries.wrong.is_empty(), "nothing is kept for longer");
    }
}
