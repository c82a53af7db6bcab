//! The loop of one opening: packets in, segments out, one write at a time, and the timers of the window.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::future::pending;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use satcast_media::NANOS_PER_MILLI;
use satcast_media::segment::{Event, Segmenter};
use satcast_plugin_api::driver::{self, Ctx, Destination, Media, Reconfigured, State, keep};
use satcast_plugin_api::{Error, Packet};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until, timeout};

use crate::config::Config;
use crate::disk::{Write, WriteFailed, write_segment};
use crate::folder::{Folder, Root, SegmentFile};
use crate::janitor::{self, Janitor};
use crate::limits::{IDLE_WAIT_MAX, Limits, PART_NANOS, SAVE_WAIT, TRACK_REFUSALS_LOGGED_MAX};
use crate::numbers::Numbers;
use crate::sessions::{Address, Sessions};
use crate::window::{KEYFRAMES_TOO_FAR, Window};

/// Longest time to remove all files when the driver ends; the next start clears the rest.
const CLEAR_WAIT: Duration = Duration::from_secs(1);

/// Time after the start of an opening in which it may receive backfill, packets from before the opening.
const KEPT_WITHIN: Duration = Duration::from_secs(2);

/// State that all openings share.
pub(crate) struct Shared {
    root: Root,
    /// The lock by which a later instance sees that this one is running.
    _held: Option<File>,
    numbers: Numbers,
    sessions: Sessions,
    janitor: Janitor,
    limits: Limits,
    write: Write,
}

impl Shared {
    /// Clears the files of an earlier process in the folder `name` below `data`, and prepares for openings.
    ///
    /// # Errors
    /// `Internal` when no thread can be started.
    pub(crate) fn start(data: &Path, name: &str, limits: Limits) -> Result<Self, Error> {
        Self::start_with(data, name, limits, write_segment)
    }

    pub(crate) fn start_with(data: &Path, name: &str, limits: Limits, write: Write) -> Result<Self, Error> {
        let root = Root::new(data, name, &format!("{}-{}", unix_ms(), std::process::id()));
        let found = root.take_stock();
        let no_thread = |error| Error::internal(format!("the hls driver cannot start a thread: {error}"));
        janitor::sweep(found.trash).map_err(no_thread)?;
        let janitor = Janitor::start().map_err(no_thread)?;
        let numbers = Numbers::new(found.floor, root.all());
        Ok(Shared { root, _held: found.held, numbers, sessions: Sessions::default(), janitor, limits, write })
    }

    /// Removes the files of this process, as far as a short time allows. Call it only when no viewer is served any
    /// more.
    pub(crate) fn clear(&self) {
        // The next start clears the rest.
        let _ = janitor::remove_within(&self.root.boot(), CLEAR_WAIT);
    }

    fn save_numbers(self: &Arc<Self>) -> JoinHandle<()> {
        let shared = self.clone();
        spawn_blocking(move || {
            if let Err(error) = shared.numbers.save() {
                tracing::warn!(%error, "cannot save the last media sequence number; numbers could be reused if the clock goes back");
            }
        })
    }
}

/// A destination of type `self-hosted`.
pub(crate) struct Opening {
    shared: Arc<Shared>,
    /// The owner may change it while the stream is live.
    dvr_seconds: watch::Sender<u32>,
    low_latency: bool,
}

impl Opening {
    pub(crate) fn new(shared: Arc<Shared>, config: &Config) -> Self {
        let dvr_seconds = watch::Sender::new(config.dvr_seconds);
        Opening { shared, dvr_seconds, low_latency: config.low_latency }
    }
}

impl Destination for Opening {
    async fn run(self: Arc<Self>, ctx: Ctx, media: Media) -> Result<(), Error> {
        Run::new(&self, ctx).run(media, self.dvr_seconds.subscribe()).await;
        Ok(())
    }

    // The host decides who may play; only a change of parts needs other segments.
    fn reconfigure(&self, config: driver::Config<'_>) -> Result<Reconfigured, Error> {
        let config = config.parse::<Config>()?;
        config.check()?;
        if config.low_latency != self.low_latency {
            return Ok(Reconfigured::Reopen);
        }
        self.dvr_seconds.send_replace(config.dvr_seconds);
        Ok(Reconfigured::Taken)
    }
}

/// A write in progress.
struct Writing {
    sequence: u64,
    done: JoinHandle<Result<SegmentFile, WriteFailed>>,
}

struct Run {
    ctx: Ctx,
    shared: Arc<Shared>,
    folder: Arc<Folder>,
    start: Instant,
    segmenter: Segmenter,
    window: Window,
    writing: Option<Writing>,
    is_live: bool,
    refusals: u32,
    /// The number last stored in `Sessions`.
    discontinuities: u64,
}

impl Run {
    fn new(opening: &Opening, ctx: Ctx) -> Self {
        let shared = opening.shared.clone();
        let has_parts = opening.low_latency && ctx.lets_viewers_wait();
        let number = || shared.numbers.first(u64::try_from(unix_ms() / 1000).unwrap_or(0));
        // Parts begin with a missing segment, which has the number before.
        let first = if has_parts { number().max(number()) } else { number() };
        let follows = shared.sessions.open(Address::of(&ctx));
        let mut segmenter = Segmenter::new(first);
        if has_parts {
            segmenter = segmenter.with_parts(PART_NANOS);
        }
        Run {
            folder: shared.root.opening(first, shared.janitor.clone()),
            start: Instant::now(),
            segmenter,
            window: Window::new(first, follows, *opening.dvr_seconds.borrow(), shared.limits),
            writing: None,
            is_live: false,
            refusals: 0,
            discontinuities: 0,
            ctx,
            shared,
        }
    }

    async fn run(mut self, mut media: Media, mut dvr_seconds: watch::Receiver<u32>) {
        // It may have changed since the window was created.
        dvr_seconds.mark_changed();
        // Saved at the start as well: after a crash and a clock that went back, numbers must not fall below this
        // opening.
        drop(self.shared.save_numbers());
        let mut batch = Vec::new();
        let mut timer = pin!(sleep_until(self.next_wake()));
        loop {
            tokio::select! {
                biased;
                (sequence, outcome) = write_done(&mut self.writing) => {
                    self.writing = None;
                    self.window.written(sequence, outcome, self.start.elapsed(), &self.ctx);
                }
                () = &mut timer => self.window.roll(self.start.elapsed(), &self.ctx),
                Ok(()) = dvr_seconds.changed() => {
                    let seconds = *dvr_seconds.borrow_and_update();
                    self.window.set_dvr(seconds, self.start.elapsed(), &self.ctx);
                }
                more = media.recv_batch(&mut batch) => {
                    if !more {
                        break;
                    }
                    if !self.take(&mut batch) {
                        continue;
                    }
                }
            }
            self.moved();
            timer.as_mut().reset(self.next_wake());
        }
        self.end().await;
    }

    /// Takes packets in; true when the window changed.
    fn take(&mut self, batch: &mut Vec<Packet>) -> bool {
        let mut bytes = 0;
        for mut packet in batch.drain(..) {
            bytes += packet.payload.len() as u64;
            if packet.discontinuity {
                self.segmenter.gap();
            }
            // Only the first track of each kind is used.
            if packet.track == 0 {
                keep(&mut packet, self.segmenter.held_bytes());
                let arrived_ms = self.arrived_ms(packet.dts_ns);
                self.segmenter.push(&packet, arrived_ms);
            }
        }
        self.ctx.bytes_sent(bytes);
        self.drain()
    }

    /// Wall time at which a packet arrived at the service. An opening begins with earlier packets, which come all at
    /// once; their time is calculated from the session's timeline.
    fn arrived_ms(&self, dts_ns: i64) -> i64 {
        let (now_ms, started_ms) = (unix_ms(), self.ctx.about().session_started_ms);
        if started_ms <= 0 || self.start.elapsed() > KEPT_WITHIN {
            return now_ms;
        }
        now_ms.min(started_ms.saturating_add(dts_ns / NANOS_PER_MILLI))
    }

    /// Moves the output of the segmenter to the window.
    fn drain(&mut self) -> bool {
        let mut changed = false;
        while let Some(event) = self.segmenter.poll_event() {
            changed = true;
            match event {
                Event::Started { target_seconds } => {
                    self.window.started(target_seconds, self.segmenter.part_target_ns());
                }
                Event::TargetRaised { target_seconds } => {
                    self.window.target_raised(target_seconds, &self.ctx)
                }
                Event::Init(init) => self.window.init(init, &self.ctx),
                Event::Part(part) => self.window.part(part, self.start.elapsed(), &self.ctx),
                Event::Segment(segment) => self.window.segment(segment, self.start.elapsed(), &self.ctx),
                Event::TrackRefused { kind, error } => {
                    self.refusals += 1;
                    if self.refusals <= TRACK_REFUSALS_LOGGED_MAX {
                        tracing::warn!(?kind, %error, "a track cannot be played, because its codec configuration is not usable");
                    }
                }
            }
        }
        changed
    }

    /// Stores the used numbers for later openings.
    fn count(&mut self) {
        if let Some(last) = self.window.last() {
            self.shared.numbers.used(last);
        }
        let discontinuities = self.window.discontinuities();
        if discontinuities > self.discontinuities {
            self.discontinuities = discontinuities;
            self.shared.sessions.used(Address::of(&self.ctx), discontinuities);
        }
    }

    /// After a change of the window: stores its numbers, updates the playback state, and starts a write if one is due.
    fn moved(&mut self) {
        self.count();
        // Charges begin with the first whole segment.
        let is_live = self.window.has_segment() && self.window.is_playable();
        if is_live != self.is_live {
            self.is_live = is_live;
            match is_live {
                true => self.ctx.state(State::Live),
                // Playlists stay published once they are: only keyframes can be missing.
                false => self.ctx.waiting(&Error::remote(KEYFRAMES_TOO_FAR)),
            }
        }
        if self.writing.is_none()
            && let Some((sequence, bytes)) = self.window.next_write(self.start.elapsed())
        {
            let (folder, write) = (self.folder.clone(), self.shared.write);
            let done = spawn_blocking(move || folder.write(write, sequence, &bytes));
            self.writing = Some(Writing { sequence, done });
        }
    }

    fn next_wake(&self) -> Instant {
        let idle = self.start.elapsed() + IDLE_WAIT_MAX;
        self.start + self.window.next_wake().map_or(idle, |wake| wake.min(idle))
    }

    /// The held packets become the last segments. A write in progress removes its file by itself when it is done.
    async fn end(mut self) {
        self.segmenter.finish();
        self.drain();
        self.window.end(self.start.elapsed(), &self.ctx);
        self.count();
        let stats = self.segmenter.stats();
        tracing::debug!(?stats, "ended");
        // A disk that hangs must not delay the end.
        let _ = timeout(SAVE_WAIT, self.shared.save_numbers()).await;
    }
}

/// The outcome of the write in progress; pending without one. Cancel safe.
async fn write_done(writing: &mut Option<Writing>) -> (u64, Result<SegmentFile, WriteFailed>) {
    let Some(writing) = writing else { return pending().await };
    let outcome = match (&mut writing.done).await {
        Ok(outcome) => outcome,
        Err(_) => Err(WriteFailed::new(&std::io::Error::other("writing a segment panicked"), 0)),
    };
    (writing.sequence, outcome)
}

/// The wall clock, read here only: milliseconds since 1970; 0 for a clock before that.
fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
