//! One push: connect, publish, forward until the end, all in the one task of `run`.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use satcast_media::rtmp::RtmpError;
use satcast_plugin_api::driver::{Ctx, Destination, Media, State};
use satcast_plugin_api::{Class, Codec, Error, Packet};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::attempts::{Attempts, Ended, Plan};
use crate::codec_policy::CodecPolicy;
use crate::feed::{Feed, PACKETS_KEPT};
use crate::link::{self, Link, write_some};
use crate::login;
use crate::refusal;
use crate::target::Target;
use crate::timing::Timing;
use crate::tls::{self, Trust};
use crate::watch::{Due, Seen, WINDOW_BYTES_MIN, Watch};

#[derive(Debug)]
pub struct Push {
    /// The first server and its backups. Never empty.
    targets: Vec<Target>,
    timing: Timing,
    trust: Trust,
    codec_policy: CodecPolicy,
    attempts: Attempts,
}

impl Push {
    /// A push to `target`; `trust` checks its certificate if the target uses TLS.
    pub fn new(target: Target, timing: Timing, trust: Trust) -> Self {
        let targets = vec![target];
        Push { targets, timing, trust, codec_policy: CodecPolicy::AsAnnounced, attempts: Attempts::default() }
    }

    /// Adds backups, each with a time limit of its own. The next target is tried where the first cannot be reached or
    /// breaks off before it has accepted the stream. After a refusal the next target is not tried at once; but after
    /// two failed attempts in a row at one server, whatever the reason, the next attempt begins at the server after
    /// it. [`crate::attempts`] says when the first server is used again.
    pub fn with_backups(mut self, backups: Vec<Target>) -> Self {
        self.targets.extend(backups);
        self
    }

    /// Records in `attempts` how attempts ended; all destinations of one driver share it.
    pub fn with_attempts(self, attempts: &Attempts) -> Self {
        Push { attempts: attempts.clone(), ..self }
    }

    /// Sets the codecs (by `Codec::name`) that the server accepts, whatever it announces; `service` is its name in
    /// the refusal of other codecs.
    pub fn with_codecs<'a>(self, codecs: impl IntoIterator<Item = &'a str>, service: &str) -> Self {
        let codecs = codecs.into_iter().map(str::to_owned).collect();
        Push { codec_policy: CodecPolicy::Known { codecs, service: service.to_owned() }, ..self }
    }

    /// For a server that accepts every codec, whatever it announces.
    pub fn with_all_codecs(self) -> Self {
        Push { codec_policy: CodecPolicy::All, ..self }
    }

    /// Connects and publishes at the first target from `begin` on that can be reached; also returns the index of that
    /// target.
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
                // A forbidden address of a backup does not replace a first target that only fails for now.
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

    /// Connects and publishes, within `timing.setup`; connects again where the server asks for a login.
    async fn establish_at<'a>(&self, target: &'a Target, ctx: &Ctx) -> Result<Link<'a>, Failure> {
        let deadline = Instant::now() + self.timing.setup;
        let login = target.login();
        let mut answers = Vec::new();
        for _ in 0..login::ROUNDS_MAX {
            let connected = ctx.connect(target.host(), target.port(), self.timing.setup).await;
            // Also where the guard refuses the address: one server of a published list may have a forbidden address.
            let stream = connected.map_err(|error| Failure { error, is_elsewhere_better: true })?;
            link::limit_unsent(&stream);
            let halves = if target.is_tls() {
                let stream = tls::connect(target, stream, &self.trust, deadline).await?;
                link::tls(stream).map_err(|error| refusal::io(target, &error))?
            } else {
                link::plain(stream)
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
    /// From connect to the end; records in `ended` how far it came.
    async fn try_once(
        &self,
        plan: Plan,
        ctx: &Ctx,
        mut media: Media,
        ended: &mut Ended,
    ) -> Result<(), Error> {
        let mut first = Vec::new();
        if self.codec_policy.is_known() {
            // Checks the codec before the broadcast starts on the platform.
            if !media.recv_batch(&mut first).await {
                return Ok(());
            }
            self.codec_policy.check_known(&first)?;
        }
        let (place, link) = tokio::select! {
            biased;
            () = ctx.stopping() => return Ok(()),
            // Boxed: what a connection needs while it is made, TLS included, is freed before the media flows.
            established = Box::pin(self.establish(plan.first, ctx)) => established?,
        };
        ended.server = Some(place);
        tracing::debug!(target = %link.target, "publishing");
        let (accepted, target) = (Instant::now(), link.target);
        // The server may be a backup, or one of a platform's published list.
        ctx.event("publishing", &json!({ "server": target.to_string() }));
        // The behaviour of another server says nothing about this one.
        let is_doubted = place == plan.first && plan.was_unread;
        let mut forward = Forward {
            link,
            watch: Watch::new(self.timing, accepted, is_doubted),
            feed: Feed::default(),
            codec_policy: &self.codec_policy,
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
        let plan = self.attempts.plan(about, servers, Instant::now());
        let mut ended = Ended { server: None, lived: Duration::ZERO, was_unread: false };
        let outcome = self.try_once(plan, &ctx, media, &mut ended).await;
        match &outcome {
            Ok(()) => self.attempts.forget(about),
            Err(_) => self.attempts.ended(about, servers, ended, Instant::now()),
        }
        outcome
    }
}

/// Forwards media over an accepted connection.
///
/// A batch is pulled after everything before it was written, so at most one batch is in flight: a burst costs one
/// pull and one write, and packets for a server that does not read stay in the host's queue.
struct Forward<'a> {
    link: Link<'a>,
    watch: Watch,
    feed: Feed,
    codec_policy: &'a CodecPolicy,
    ctx: &'a Ctx,
    media: Media,
    /// Packets that were taken before the connection was made.
    first: Vec<Packet>,
    /// The host's queue may still have packets.
    open: bool,
    /// The connection was given up because the server does not read.
    does_not_read: bool,
}

impl Forward<'_> {
    async fn run(&mut self) -> Result<(), Error> {
        let ctx = self.ctx;
        // Asks for early acknowledgements, so that reading is confirmed soon.
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
            if self.watch.is_check_due(Instant::now()) {
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
                // Last: a server that sends without end must not hold up media.
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

    /// Turns the pulled packets into chunks.
    fn prepare(&mut self) -> Result<(), Error> {
        if !self.feed.is_empty()
            && let Some(end) = self.feed.fill(&mut self.link.session).map_err(broken)?
        {
            self.watch.queued_media(Instant::now(), end);
        }
        Ok(())
    }

    fn took(&mut self, batch: &mut Vec<Packet>) -> Result<(), Error> {
        for codec in batch.iter().filter(|packet| packet.is_config()).map(|packet| packet.codec) {
            let (session, target) = (&self.link.session, self.link.target);
            self.codec_policy.check(codec, session, target).inspect_err(|_| {
                let takes = Codec::ALL.into_iter().filter(|codec| self.codec_policy.takes(*codec, session));
                let takes: Vec<&str> = takes.map(Codec::name).collect();
                self.ctx.event("codec_refused", &json!({ "codec": codec.name(), "takes": takes }));
            })?;
        }
        self.feed.take(batch);
        batch.shrink_to(PACKETS_KEPT);
        Ok(())
    }

    /// Checks acknowledgements and time limits; returns the time of the next check.
    fn check(&mut self) -> Result<Instant, Error> {
        let now = Instant::now();
        let (taken, all) = self.link.acknowledged()?;
        let session = &mut self.link.session;
        let read = (!session.acknowledges_wrongly()).then_some(self.link.read_bytes);
        let (asked, end) = (session.window_bytes(), session.output().total_bytes());
        let due = self.watch.check(now, Seen { taken, all: all && self.feed.is_empty(), read, asked, end });
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
                // Otherwise a server that only pretends to read would keep the stream's name busy with bytes still in
                // flight.
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

struct Failure {
    error: Error,
    /// The server cannot be reached now; another one may be.
    is_elsewhere_better: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let is_taken = error.retry_after == Some(refusal::NAME_TAKEN_RETRY_FLOOR);
        let is_elsewhere_better = matches!(error.class, Class::Network | Class::Remote) && !is_taken;
        Failure { error, is_elsewhere_better }
    }
}

fn broken(error: RtmpError) -> Error {
    Error::internal(format!("the RTMP session refuses a packet: {error}"))
}

fn add(counter: Option<&'static AtomicU64>, count: u64) {
    if let (Some(counter), 1..) = (counter, count) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
