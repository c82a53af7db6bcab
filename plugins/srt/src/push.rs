//! As a caller: call the receiver, and send until the end, all in the one task of `run`.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use satcast_media::srt::{Called, Caller, Seed, Sender};
use satcast_plugin_api::driver::{Ctx, Destination, Media, State};
use satcast_plugin_api::{Error, Packet};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::feed::Feed;
use crate::outlet::{Counters, Outlet, Told};
use crate::refusal;
use crate::target::Target;
use crate::timing::Timing;
use crate::wire::{Clock, FULL_PAUSE, Sent, read_all};

/// A call to one receiver.
pub(crate) struct Push {
    target: Target,
    host: String,
    port: u16,
    timing: Timing,
}

impl Push {
    pub(crate) fn new(target: Target, host: String, port: u16, timing: Timing) -> Self {
        Self { target, host, port, timing }
    }

    /// Makes a socket and calls, within `timing.setup`.
    async fn call(&self, ctx: &Ctx) -> Result<(UdpSocket, Clock, Sender), Error> {
        let (deadline, setup) = (Instant::now() + self.timing.setup, self.timing.setup);
        let socket = ctx.connect_udp(&self.host, self.port, setup).await?;
        let (clock, peer) = (Clock::start(), socket.peer_addr().map_err(|error| refusal::io(&error))?);
        let seed = Seed {
            socket: rand::random(),
            sequence: rand::random(),
            salt: rand::random(),
            key: rand::random(),
        };
        let mut caller = Caller::new(self.target.call(), seed, peer.ip(), clock.now())
            .ok_or_else(|| Error::internal("the passphrase was accepted and cannot be used"))?;
        // Before, the runtime does not know that the socket can send, and the first datagram would wait for its repeat.
        let _in_time = timeout_at(deadline, socket.writable()).await;
        loop {
            // Here, because a timer is not looked at while datagrams come.
            if Instant::now() >= deadline {
                return Err(refusal::no_answer(&self.target, setup));
            }
            if let Some(datagram) = caller.poll(clock.now()) {
                match Sent::of(&socket.try_send(&datagram)) {
                    // A lost one is sent again.
                    Sent::Gone | Sent::Full => {}
                    Sent::Refused => return Err(refusal::nothing_listens(&self.target)),
                }
            }
            let until = clock.at(caller.next_at()).min(deadline);
            if timeout_at(until, socket.readable()).await.is_err() {
                continue;
            }
            let mut called = None;
            let is_open = read_all(&socket, |datagram| {
                if called.is_none() {
                    called = caller.input(datagram, clock.now());
                }
            });
            match called {
                Some(Called::Accepted(sender)) => return Ok((socket, clock, *sender)),
                Some(Called::Refused(code)) => return Err(refusal::refused(&self.target, code)),
                // Readiness costs no budget in tokio, and this thread serves other destinations too.
                None if is_open => tokio::task::yield_now().await,
                None => return Err(refusal::nothing_listens(&self.target)),
            }
        }
    }
}

impl Destination for Push {
    async fn run(self: Arc<Self>, ctx: Ctx, media: Media) -> Result<(), Error> {
        let (socket, clock, sender) = tokio::select! {
            biased;
            () = ctx.stopping() => return Ok(()),
            // Boxed: what a call needs is freed before the media flows.
            called = Box::pin(self.call(&ctx)) => called?,
        };
        tracing::debug!(target = %self.target, latency = ?sender.stats().latency, "connected");
        let forward = Forward {
            push: &self,
            socket,
            clock,
            outlet: Outlet::new(sender),
            feed: Feed::new(&ctx),
            counters: Counters::of(&ctx),
            ctx: &ctx,
            media,
            batch: VecDeque::new(),
            open: true,
            is_full: false,
            last_media: clock.now(),
            told: None,
            stop_by: None,
        };
        forward.run().await
    }
}

/// Sends media over an accepted connection. More is taken from the host only when nearly everything before it has
/// left, so that media for a slow receiver waits in the host's queue, which drops up to a keyframe.
struct Forward<'a> {
    push: &'a Push,
    socket: UdpSocket,
    clock: Clock,
    outlet: Outlet,
    feed: Feed,
    counters: Counters,
    ctx: &'a Ctx,
    media: Media,
    batch: VecDeque<Packet>,
    /// The host's queue may still have packets.
    open: bool,
    /// The system has no room for datagrams.
    is_full: bool,
    last_media: Duration,
    told: Option<Told>,
    /// When the destination ends, whatever was not acknowledged.
    stop_by: Option<Duration>,
}

impl Forward<'_> {
    async fn run(mut self) -> Result<(), Error> {
        let (ctx, mut taken) = (self.ctx, Vec::new());
        let mut stopping = pin!(ctx.stopping());
        loop {
            let until = self.round().map_err(|error| self.failed(error))?;
            if self.is_done() {
                return self.end();
            }
            let wants_media = self.open && self.batch.is_empty() && self.outlet.sender.has_room();
            tokio::select! {
                biased;
                () = &mut stopping, if self.stop_by.is_none() => self.stop(),
                more = self.media.recv_batch(&mut taken), if wants_media => {
                    self.batch.extend(taken.drain(..));
                    self.last_media = self.clock.now();
                    if !more {
                        self.open = false;
                        self.stop();
                    }
                }
                _ = self.socket.readable() => {
                    self.read().map_err(|error| self.failed(error))?;
                    // Readiness costs no budget in tokio, and this thread serves other destinations too.
                    tokio::task::yield_now().await;
                }
                _ = self.socket.writable(), if self.is_full => self.is_full = false,
                () = sleep_until(self.clock.at(until)) => {}
            }
        }
    }

    fn stop(&mut self) {
        let by = self.clock.now() + self.push.timing.flush;
        self.stop_by.get_or_insert(by);
    }

    /// Does what is due, and returns when something is due next.
    fn round(&mut self) -> Result<Duration, Error> {
        let now = self.clock.now();
        self.outlet.sender.poll(now);
        self.transmit(now)?;
        while self.outlet.sender.has_room()
            && let Some(packet) = self.batch.pop_front()
        {
            let outlet = &mut self.outlet;
            self.feed.take(&packet, |payload, begins| outlet.push(payload, begins, now))?;
            if self.batch.is_empty() {
                self.feed.flush(|payload, begins| outlet.push(payload, begins, now));
            }
            self.transmit(now)?;
        }
        if let Some(over) = self.outlet.sender.over() {
            return Err(refusal::over(&self.push.target, over));
        }
        let timing = &self.push.timing;
        let has_progress = self.outlet.count(&self.counters, now);
        let silent_at = self.last_media + timing.media_silent;
        if self.open && now >= silent_at && self.batch.is_empty() {
            self.tell(Told::NoMedia);
        } else if has_progress {
            self.tell(Told::Live);
        }
        let stalled_at = self.outlet.unanswered().map(|since| since + timing.stalled);
        if stalled_at.is_some_and(|at| now >= at) {
            return Err(refusal::stalled(&self.push.target));
        }
        let silent_at = Some(silent_at).filter(|at| *at > now);
        let given_at = self.is_whole().then(|| self.outlet.sender.given_at());
        let times = [silent_at, stalled_at, self.stop_by, given_at];
        let next = times.into_iter().flatten().fold(self.outlet.sender.next_at(), Duration::min);
        Ok(if self.is_full { next.max(now + FULL_PAUSE) } else { next })
    }

    fn tell(&mut self, news: Told) {
        if self.told.replace(news) != Some(news) {
            match news {
                Told::Live => self.ctx.state(State::Live),
                Told::NoMedia | Told::NoCaller => self.ctx.waiting(&refusal::no_media()),
            }
        }
    }

    fn transmit(&mut self, now: Duration) -> Result<(), Error> {
        let (socket, mut last) = (&self.socket, Sent::Gone);
        self.outlet.sender.transmit(now, |datagram| {
            last = Sent::of(&socket.try_send(datagram));
            last == Sent::Gone
        });
        self.is_full = last == Sent::Full;
        if last == Sent::Refused { Err(refusal::nothing_listens(&self.push.target)) } else { Ok(()) }
    }

    fn read(&mut self) -> Result<(), Error> {
        let (now, sender) = (self.clock.now(), &mut self.outlet.sender);
        let is_open = read_all(&self.socket, |datagram| sender.input(datagram, now));
        if is_open { Ok(()) } else { Err(refusal::nothing_listens(&self.push.target)) }
    }

    /// Tells the receiver about the end: until it sees the silence, it may refuse the next connection as a second one.
    fn failed(&mut self, error: Error) -> Error {
        let now = self.clock.now();
        self.outlet.sender.shut_down(now);
        let _unreachable = self.transmit(now);
        self.outlet.count(&self.counters, now);
        error
    }

    /// Everything was pushed and is acknowledged.
    fn is_whole(&self) -> bool {
        !self.open && self.batch.is_empty() && self.outlet.sender.is_empty()
    }

    /// The receiver has everything after the end of the media, or the time for it is over.
    fn is_done(&self) -> bool {
        let now = self.clock.now();
        let is_given = self.is_whole() && now >= self.outlet.sender.given_at();
        is_given || self.stop_by.is_some_and(|by| now >= by)
    }

    fn end(&mut self) -> Result<(), Error> {
        let now = self.clock.now();
        let is_whole = self.is_whole();
        self.outlet.end(now);
        // The receiver sees the silence if this is lost.
        let _unreachable = self.transmit(now);
        self.outlet.count(&self.counters, now);
        if is_whole { Ok(()) } else { Err(refusal::not_taken(&self.push.target)) }
    }
}
