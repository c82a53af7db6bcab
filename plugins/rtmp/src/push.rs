//! One push: connect, publish, forward until the end, all in the one task of `run`.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use satcast_media::rtmp::RtmpError;
use satcast_plugin_api::driver::{Ctx, Destination, Media, State};
use satcast_plugin_api::{Class, Error, Packet};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::feed::Feed;
use crate::link::{Link, write_some};
use crate::login;
use crate::past::{Ended, Pasts, Plan};
use crate::pipe;
use crate::refusal;
use crate::taking::Taking;
use crate::target::Target;
use crate::timing::Timing;
use crate::tls::{self, Trust};
use crate::watch::{Due, Seen, WINDOW_BYTES_MIN, Watch};

/// A destination that pushes to one RTMP server.
#[derive(Debug)]
pub struct Push {
    /// The servers: the first one and its backups. Never empty.
    targets: Vec<Target>,
    timing: Timing,
    trust: Trust,
    taking: Taking,
    pasts: Pasts,
}

impl Push {
    /// A push to `target`, whose certificate is checked against `trust` if it is one with TLS.
    pub fn new(target: Target, timing: Timing, trust: Trust) -> Self {
        let targets = vec![target];
        Push { targets, timing, trust, taking: Taking::AsAnnounced, pasts: Pasts::default() }
    }

    /// The same with targets that are tried in turn, each with its own time, where the first cannot be reached or breaks off
    /// before it has accepted the stream. A refusal is not answered by trying the next at once; but where two tries in a row failed at one
    /// server, however they did, the next begins at the one after it: see [`crate::past`] for when that is left again.
    pub fn with_backups(mut self, backups: Vec<Target>) -> Self {
        self.targets.extend(backups);
        self
    }

    /// The same, remembering in `pasts` how its tries ended: those of one driver share it.
    pub fn remembering(self, pasts: &Pasts) -> Self {
        Push { pasts: pasts.clone(), ..self }
    }

    /// The same for a server whose codecs are known (by `Codec::name`), whatever it announces; `who` it is stands in the
    /// refusal of another.
    pub fn taking<'a>(self, codecs: impl IntoIterator<Item = &'a str>, who: &str) -> Self {
        let codecs = codecs.into_iter().map(str::to_owned).collect();
        Push { taking: Taking::Known { codecs, who: who.to_owned() }, ..self }
    }

    /// The same for a server that takes every codec, whatever it announces.
    pub fn taking_all(self) -> Self {
        Push { taking: Taking::All, ..self }
    }

    /// Connects and publishes at the first target from `begin` on that can be reached; its place as well.
    async fn establish(&self, begin: usize, ctx: &Ctx) -> Result<(usize, Link<'_>), Error> {
        let mut order = (0..self.targets.len()).map(|step| (begin + step) % self.targets.len());
        let place = order.next().unwrap_or_default();
        let mut first = match self.establish_at(&self.targets[place], ctx).await {
            Ok(link) => return Ok((place, link)),
            Err(failure) if failure.is_elsewhere_better && self.targets.len() > 1 => failure.error,
            Err(failure) => return Err(failure.error),
        };
        for place in order {
            let target = &self.targets[place];
            tracing::warn!(%target, reason = %first, "trying another server");
            match self.establish_at(target, ctx).await {
                Ok(link) => return Ok((place, link)),
                // An address that may not be connected to is no reason to give up one that only fails now.
                Err(Failure { error, is_elsewhere_better: true }) if first.class == Class::Config => {
                    first = error
                }
                Err(failure) if failure.is_elsewhere_better => {}
                Err(failure) => return Err(failure.error),
            }
        }
        first.message.push_str(refusal::BACKUP_TOO);
        Err(first)
    }

    /// Connects and publishes, within `timing.setup`; once more where the server asks who it is.
    async fn establish_at<'a>(&self, target: &'a Target, ctx: &Ctx) -> Result<Link<'a>, Failure> {
        let deadline = Instant::now() + self.timing.setup;
        let login = target.login();
        let mut answers = Vec::new();
        for _ in 0..login::ROUNDS_MAX {
            let connected = ctx.connect(target.host(), target.port(), self.timing.setup).await;
            // Also where the guard refuses it: a server of a published list may be one that is not to be connected to.
            let stream = connected.map_err(|error| Failure { error, is_elsewhere_better: true })?;
            pipe::limit_unsent(&stream);
            let halves = if target.is_tls() {
                let stream = tls::connect(target, stream, &self.trust, deadline).await?;
                pipe::tls(stream).map_err(|error| refusal::io(target, &error))?
            } else {
                pipe::plain(stream)
            };
            let mut link = Link::new(target, halves, ctx, &answers);
            match (timeout_at(deadline, link.publish()).await, link.question(), &login) {
                (Ok(Ok(())), ..) => return Ok(link),
                (Ok(Err(_)), Some(question), Some(login)) => {
                    answers.push(question.answer(login, target.app()))
                }
                (Ok(Err(error)), ..) => return Err(error.into()),
                (Err(_), ..) => {
                    return Err(refusal::late(target, self.timing.setup).into());
                }
            }
        }
        Err(refusal::asks_again(target).into())
    }
}

impl Push {
    /// From connect to the end, which is told to `ended` as far as it came.
    async fn try_once(
        &self,
        plan: Plan,
        ctx: &Ctx,
        mut media: Media,
        ended: &mut Ended,
    ) -> Result<(), Error> {
        let mut first = Vec::new();
        if self.taking.is_known() {
            // A broadcast is not begun to say then that its codec is none for it.
            if !media.recv_batch(&mut first).await {
                return Ok(());
            }
            self.taking.check_known(&first)?;
        }
        let (place, link) = tokio::select! {
            biased;
            () = ctx.stopping() => return Ok(()),
            established = self.establish(plan.first, ctx) => established?,
        };
        ended.server = Some(place);
        tracing::debug!(target = %link.target, "publishing");
        let (accepted, target) = (Instant::now(), link.target);
        // A platform's server may be a backup, or one of a published list.
        ctx.event("publishing", &json!({ "server": target.to_string() }));
        // What another server did says nothing of this one.
        let is_doubted = place == plan.first && plan.was_unread;
        let mut forward = Forward {
            link,
            watch: Watch::new(self.timing, accepted, is_doubted),
            feed: Feed::default(),
            taking: &self.taking,
            ctx,
            media,
            first,
            open: true,
            does_not_read: false,
        };
        let outcome = forward.run().await;
        ended.lived = forward.watch.lived();
        ended.was_unread = forward.does_not_read;
        if outcome.is_ok() {
            let by = forward.watch.stop(Instant::now());
            forward.link.close(by).await;
        }
        outcome.map_err(|error| refusal::soon(target, error, accepted.elapsed()))
    }
}

impl Destination for Push {
    async fn run(self: Arc<Self>, ctx: Ctx, media: Media) -> Result<(), Error> {
        let (servers, about) = (self.targets.len(), ctx.about());
        let plan = self.pasts.plan(about, servers, Instant::now());
        let mut ended = Ended { server: None, lived: Duration::ZERO, was_unread: false };
        let outcome = self.try_once(plan, &ctx, media, &mut ended).await;
        match &outcome {
            Ok(()) => self.pasts.forget(about),
            Err(_) => self.pasts.ended(about, servers, ended, Instant::now()),
        }
        outcome
    }
}

/// Forwards media over an accepted connection.
///
/// A batch is pulled when everything before it was written, so at most one batch is on its way: with media in bursts a burst
/// costs one pull and one write, and a server that does not read leaves the rest in the host's queue.
struct Forward<'a> {
    link: Link<'a>,
    watch: Watch,
    feed: Feed,
    taking: &'a Taking,
    ctx: &'a Ctx,
    media: Media,
    /// What was taken of it before the connection.
    first: Vec<Packet>,
    /// The host's queue may still have packets.
    open: bool,
    /// It was given up because the server does not read.
    does_not_read: bool,
}

impl Forward<'_> {
    async fn run(&mut self) -> Result<(), Error> {
        let ctx = self.ctx;
        // The sooner the server says that it reads, the sooner this is known.
        self.link.session.announce_window(WINDOW_BYTES_MIN).map_err(broken)?;
        let sent = ctx.counter("packets_sent");
        let skipped = ctx.counter("packets_skipped");
        let mut batch = std::mem::take(&mut self.first);
        if !batch.is_empty() {
            self.took(&mut batch)?;
        }
        let mut stop_seen = false;
        let mut stopping = pin!(ctx.stopping());
        let mut timer = pin!(sleep_until(self.watch.next()));
        while self.open || !self.link.session.output().is_empty() {
            self.prepare()?;
            if self.watch.is_look_due(Instant::now()) {
                timer.as_mut().reset(self.check()?);
            }
            let idle = self.link.session.output().is_empty();
            tokio::select! {
                biased;
                written = write_some(&mut self.link.writer, self.link.session.output()), if !idle => {
                    self.link.wrote(written).await?;
                    if self.link.session.output().is_empty() {
                        let counts = self.feed.take_counts();
                        add(sent, counts.sent);
                        add(skipped, counts.skipped);
                    }
                }
                () = &mut stopping, if !stop_seen => {
                    stop_seen = true;
                    timer.as_mut().reset(self.watch.stop(Instant::now()));
                }
                () = &mut timer => timer.as_mut().reset(self.check()?),
                more = self.media.recv_batch(&mut batch), if idle && self.open => {
                    if more {
                        self.took(&mut batch)?;
                    } else {
                        self.open = false;
                        self.link.session.end();
                        timer.as_mut().reset(self.watch.stop(Instant::now()));
                    }
                }
                // Last: a server that talks without end must not keep media from it.
                read = self.link.reader.read_buf(&mut self.link.input) => {
                    self.link.received(read)?;
                    if !self.watch.is_live() {
                        timer.as_mut().reset(self.check()?);
                    }
                }
            }
        }
        Ok(())
    }

    /// Turns what was pulled into chunks.
    fn prepare(&mut self) -> Result<(), Error> {
        if !self.feed.is_empty()
            && let Some(end) = self.feed.fill(&mut self.link.session).map_err(broken)?
        {
            self.watch.queued_media(Instant::now(), end);
        }
        Ok(())
    }

    fn took(&mut self, batch: &mut Vec<Packet>) -> Result<(), Error> {
        for packet in batch.iter().filter(|packet| packet.is_config()) {
            self.taking.check(packet.codec, &self.link.session, self.link.target)?;
        }
        self.feed.take(batch);
        Ok(())
    }

    /// Looks at what the server has acknowledged, and at the clock; returns when to look again.
    fn check(&mut self) -> Result<Instant, Error> {
        let now = Instant::now();
        let (taken, all) = self.link.acknowledged()?;
        let session = &mut self.link.session;
        let read = (!session.acknowledges_wrongly()).then_some(self.link.read_bytes);
        let (asked, end) = (session.window_bytes(), session.output().total_bytes());
        let due = self.watch.look(now, Seen { taken, all: all && self.feed.is_empty(), read, asked, end });
        if self.open
            && let Some(bytes) = self.watch.window(now, asked)
        {
            session.announce_window(bytes).map_err(broken)?;
        }
        let target = self.link.target;
        match due {
            Due::Nothing => {}
            Due::Live => self.ctx.state(State::Live),
            Due::Stalled { is_silent } => self.ctx.waiting(&refusal::stalled(target, is_silent)),
            Due::Slow => self.ctx.waiting(&refusal::slow(target)),
            Due::NoMedia => self.ctx.waiting(&refusal::no_media()),
            Due::DoesNotRead { is_silent } => {
                // A server that only pretends would else keep the stream's name with what is still on its way.
                self.link.writer.abort();
                self.does_not_read = true;
                return Err(refusal::does_not_read(target, is_silent));
            }
            Due::StopOverdue => {
                let left = self.link.session.output().len_bytes();
                self.link.writer.abort();
                return Err(refusal::not_taken(target, left));
            }
        }
        Ok(self.watch.next())
    }
}

/// Why a target did not take the stream.
struct Failure {
    error: Error,
    /// The server cannot be reached, or not now: another one may be.
    is_elsewhere_better: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let is_taken = error.retry_after == Some(refusal::NAME_TAKEN_RETRY_FLOOR);
        let is_elsewhere_better = matches!(error.class, Class::Network | Class::Remote) && !is_taken;
        Failure { error, is_elsewhere_better }
    }
}

/// The session refuses our own packets.
fn broken(error: RtmpError) -> Error {
    Error::internal(format!("the RTMP session refuses a packet: {error}"))
}

fn add(counter: Option<&'static AtomicU64>, count: u64) {
    if let (Some(counter), 1..) = (counter, count) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
