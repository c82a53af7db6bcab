//! One push: connect, publish, forward until the end, all in the one task of `run`.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use satcast_media::rtmp::RtmpError;
use satcast_media::rtmp::chunk::ChunkOutput;
use satcast_media::rtmp::client::{ClientConfig, ClientEvent, ClientSession};
use satcast_plugin_api::Error;
use satcast_plugin_api::driver::{Ctx, Destination, Media, State};
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::feed::Feed;
use crate::pipe::{self, Reader, Writer};
use crate::refusal;
use crate::target::Target;
use crate::timing::Timing;
use crate::tls::{self, Trust};
use crate::watch::{Due, Watch};

/// Most segments of one write: a full batch of messages of one chunk is half of it. Below every system's `IOV_MAX`.
const WRITE_SLICES_MAX: usize = 256;
/// Room for one read: what a server says to a publisher is short.
const READ_BYTES: usize = 4096;
/// How long the reason is waited for after a write has failed; a closed connection is readable at once.
const LAST_WORDS_WAIT_MAX: Duration = Duration::from_millis(100);
/// Bytes a server may send at once, over what its time on the line allows.
const INPUT_BURST_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes per second a server may send in the long run; acknowledgements and pings are below a hundredth of it.
const INPUT_BYTES_PER_SECOND_MAX: u64 = 64 * 1024;

/// A destination that pushes to one RTMP server.
#[derive(Debug)]
pub struct Push {
    target: Target,
    timing: Timing,
    trust: Trust,
}

impl Push {
    /// A push to `target`, whose certificate is checked against `trust` if it is one with TLS.
    pub fn new(target: Target, timing: Timing, trust: Trust) -> Self {
        Push { target, timing, trust }
    }

    /// Connects and publishes, within `timing.setup`.
    async fn establish(&self, ctx: &Ctx) -> Result<Link<'_>, Error> {
        let target = &self.target;
        let deadline = Instant::now() + self.timing.setup;
        let stream = ctx.connect(target.host(), target.port(), self.timing.setup).await?;
        let halves = if target.is_tls() {
            pipe::tls(tls::connect(target, stream, &self.trust, deadline).await?)
        } else {
            pipe::plain(stream)
        };
        let mut link = Link::new(target, halves, ctx);
        match timeout_at(deadline, link.publish()).await {
            Ok(published) => published.map(|()| link),
            Err(_) => Err(Error::network(format!(
                "{target} did not accept the stream within {:?}; check that it is an RTMP server",
                self.timing.setup
            ))),
        }
    }
}

impl Destination for Push {
    async fn run(self: Arc<Self>, ctx: Ctx, media: Media) -> Result<(), Error> {
        let target = &self.target;
        if target.has_login() {
            tracing::warn!(%target, "the login in the url is not sent");
        }
        let link = tokio::select! {
            biased;
            () = ctx.stopping() => return Ok(()),
            link = self.establish(&ctx) => link?,
        };
        tracing::debug!(%target, "publishing");
        let watch = Watch::new(self.timing, Instant::now());
        let forward = Forward { link, watch, feed: Feed::default(), ctx: &ctx, media, open: true };
        forward.run().await
    }
}

/// The connection and the session on it.
struct Link<'a> {
    target: &'a Target,
    reader: Reader,
    writer: Writer,
    session: ClientSession,
    input: BytesMut,
    input_bytes: u64,
    since: Instant,
    ctx: Ctx,
}

impl<'a> Link<'a> {
    fn new(target: &'a Target, (reader, writer): (Reader, Writer), ctx: &Ctx) -> Self {
        let session = ClientSession::new(ClientConfig {
            app: target.app().to_owned(),
            tc_url: target.tc_url().to_owned(),
            stream_key: target.publish_name().to_owned(),
            ..ClientConfig::default()
        });
        let (input, since) = (BytesMut::with_capacity(READ_BYTES), Instant::now());
        Link { target, reader, writer, session, input, input_bytes: 0, since, ctx: ctx.clone() }
    }

    /// Handshake, connect and publish.
    async fn publish(&mut self) -> Result<(), Error> {
        loop {
            tokio::select! {
                biased;
                written = write_some(&mut self.writer, self.session.output()),
                    if !self.session.output().is_empty() => self.wrote(written).await?,
                read = self.reader.read_buf(&mut self.input) => {
                    if read.as_ref().map_or_else(refusal::is_close, |bytes| *bytes == 0) {
                        return Err(Error::remote(format!(
                            "{} closed the connection before it accepted the stream; check url and key",
                            self.target
                        )));
                    }
                    if self.received(read)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Bytes were read, or reading failed. True when the server has accepted the stream.
    fn received(&mut self, read: io::Result<usize>) -> Result<bool, Error> {
        let bytes = read.map_err(|error| refusal::io(self.target, &error))?;
        if bytes == 0 {
            return Err(refusal::closed(self.target));
        }
        self.check_input_rate(bytes)?;
        let parsed = self.session.input(self.input.split().freeze());
        self.input.reserve(READ_BYTES);
        let mut publishing = false;
        // What the server said before it broke the protocol is the better reason.
        while let Some(event) = self.session.poll_event() {
            match event {
                ClientEvent::Publishing => publishing = true,
                ClientEvent::Rejected { code, description } => {
                    return Err(refusal::refused(self.target, &code, &description));
                }
                ClientEvent::PeerClosed { code, description } => {
                    return Err(refusal::ended(self.target, &code, &description));
                }
                ClientEvent::Acknowledged { .. } => {}
            }
        }
        parsed.map_err(|error| Error::remote(format!("{} does not keep to RTMP: {error}", self.target)))?;
        Ok(publishing)
    }

    fn check_input_rate(&mut self, bytes: usize) -> Result<(), Error> {
        self.input_bytes += bytes as u64;
        let allowed = INPUT_BURST_BYTES_MAX + self.since.elapsed().as_secs() * INPUT_BYTES_PER_SECOND_MAX;
        if self.input_bytes > allowed {
            return Err(Error::remote(format!("{} sends far more than a publisher needs", self.target)));
        }
        Ok(())
    }

    /// Bytes were written, or writing failed.
    async fn wrote(&mut self, written: io::Result<usize>) -> Result<(), Error> {
        let bytes = match written {
            Ok(bytes) => bytes,
            Err(error) => {
                let said = self.last_words().await;
                return Err(said.unwrap_or_else(|| refusal::io(self.target, &error)));
            }
        };
        self.session.output().advance(bytes);
        self.ctx.bytes_sent(bytes as u64);
        Ok(())
    }

    /// Why the server closed, if it said so before writing to it failed.
    async fn last_words(&mut self) -> Option<Error> {
        let by = Instant::now() + LAST_WORDS_WAIT_MAX;
        let read = timeout_at(by, self.reader.read_buf(&mut self.input)).await;
        let bytes = read.ok()?.ok().filter(|bytes| *bytes > 0)?;
        self.received(Ok(bytes)).err()
    }

    /// Output position the socket has taken.
    fn taken(&mut self) -> u64 {
        let output = self.session.output();
        output.total_bytes() - output.len_bytes() as u64
    }

    /// Closes our side and reads until the server has closed its own: a socket closed with unread input would reset the
    /// connection and lose what the server has not read.
    async fn close(mut self, by: Instant) {
        let shut = timeout_at(by, async {
            self.writer.shutdown().await?;
            while self.reader.read_buf(&mut self.input).await? > 0 {
                self.input.clear();
            }
            io::Result::Ok(())
        });
        // Everything is written; how the server leaves changes nothing any more.
        let outcome = shut.await;
        tracing::debug!(target = %self.target, clean = matches!(outcome, Ok(Ok(()))), "closed");
    }
}

/// Writes from the front of `output`. Cancel safe.
async fn write_some(writer: &mut Writer, output: &ChunkOutput) -> io::Result<usize> {
    let written = poll_fn(|cx| {
        let mut slices = [IoSlice::new(&[]); WRITE_SLICES_MAX];
        let count = output.slices(&mut slices);
        writer.poll_send(cx, &slices[..count])
    });
    match written.await {
        Ok(0) => Err(io::ErrorKind::BrokenPipe.into()),
        written => written,
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
    ctx: &'a Ctx,
    media: Media,
    /// The host's queue may still have packets.
    open: bool,
}

impl Forward<'_> {
    async fn run(mut self) -> Result<(), Error> {
        let ctx = self.ctx;
        let sent = ctx.counter("packets_sent");
        let skipped = ctx.counter("packets_skipped");
        let mut batch = Vec::new();
        let mut stop_seen = false;
        let mut stopping = pin!(ctx.stopping());
        let mut timer = pin!(sleep_until(self.watch.next(Instant::now())));
        while self.open || !self.link.session.output().is_empty() {
            self.prepare()?;
            let idle = self.link.session.output().is_empty();
            tokio::select! {
                biased;
                written = write_some(&mut self.link.writer, self.link.session.output()), if !idle => {
                    self.wrote(written).await?;
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
                }
            }
        }
        let by = self.watch.stop(Instant::now());
        self.link.close(by).await;
        Ok(())
    }

    /// Turns what was pulled into chunks.
    fn prepare(&mut self) -> Result<(), Error> {
        if !self.feed.is_empty()
            && let Some(end) = self.feed.fill(&mut self.link.session).map_err(broken)?
        {
            self.watch.queued_media(end);
        }
        if self.watch.starts_waiting() && !self.link.session.output().is_empty() {
            self.watch.waiting(Instant::now());
        }
        Ok(())
    }

    async fn wrote(&mut self, written: io::Result<usize>) -> Result<(), Error> {
        self.link.wrote(written).await?;
        let taken = self.link.taken();
        let more = !self.link.session.output().is_empty() || !self.feed.is_empty();
        if self.watch.taken(Instant::now(), taken, more) {
            self.ctx.state(State::Live);
        }
        Ok(())
    }

    fn took(&mut self, batch: &mut Vec<satcast_plugin_api::driver::Packet>) -> Result<(), Error> {
        self.watch.media(Instant::now());
        self.feed.take(batch).map_err(|error| Error::config(error.to_string()))
    }

    /// Looks at the clock; returns when to look again.
    fn check(&mut self) -> Result<Instant, Error> {
        let (now, taken) = (Instant::now(), self.link.taken());
        let target = self.link.target;
        match self.watch.due(now, taken) {
            Due::Nothing => {}
            Due::Stalled => {
                self.ctx.waiting(&Error::network(format!("{target} takes no data at the moment")));
            }
            Due::NoMedia => self.ctx.waiting(&Error::network("no media from the encoder")),
            Due::DoesNotRead => {
                return Err(Error::network(format!(
                    "{target} does not read: it has taken no data for too long"
                )));
            }
            Due::StopOverdue => {
                let left = self.link.session.output().len_bytes();
                return Err(Error::network(format!("{target} did not take the last {left} bytes in time")));
            }
        }
        Ok(self.watch.next(now))
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
