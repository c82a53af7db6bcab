//! The published assets: segments from memory and files, and the playlists that name them. No I/O and no clock: the
//! caller passes the time since the opening's start with every call and does the writing.
//!
//! The life of a segment: published from memory, written, listed (without its file when the disk is slow), handed over
//! as a file with its parts when [`Limits::memory_segments`] newer ones exist, removed from the playlist when the window
//! rolls, withdrawn when its grace time is over. On a full disk the oldest files are removed without a grace time, so that the
//! disk size limits the window.
//!
//! Invariant: the host has every asset that a published playlist names, except a segment that the playlist calls
//! missing. So assets are published before, and withdrawn after, the playlists that change with them, and an asset that
//! the host refuses, or that the disk does not take in time, is never listed.

mod health;
mod held;
mod inits;
mod lists;
mod parts;
mod preview;
mod rolling;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use satcast_media::playlist::segment_name;
use satcast_media::segment::{Init, Segment};
use satcast_plugin_api::{Asset, AssetBody, Audience, Followed, Playback, SegmentPosition};
use serde_json::json;

use crate::disk::WriteFailed;
use crate::folder::SegmentFile;
use crate::host::Host;
use crate::limits::Limits;
use health::Health;
use held::{Held, HeldSegments, Place, Stored};
use inits::Inits;
use lists::Lists;
use parts::Parts;

/// Entry playlist for viewers with a key.
pub(crate) const ENTRY: &str = "index.m3u8";
/// The media playlist.
pub(crate) const MEDIA: &str = "media.m3u8";
/// Its delta form for viewers that have an earlier version.
pub(crate) const DELTA: &str = "media-delta.m3u8";
/// Entry playlist for viewers of the preview.
pub(crate) const PREVIEW_ENTRY: &str = "preview.m3u8";
/// Its media playlist.
pub(crate) const PREVIEW_MEDIA: &str = "preview-media.m3u8";
/// How long caches may keep media, in seconds: a name never returns with other bytes.
const MAX_AGE_SECS: u32 = 3600;
/// Playback counts as ready only if a new segment came within this many target durations.
const FRESH_TARGETS: u32 = 3;
/// Distance from the end at which players start, in target durations, and at least as many segments (RFC 8216, 6.3.3).
const START_TARGETS: u32 = 3;
const START_SEGMENTS: usize = 3;
/// Published assets of one opening; the host allows 8192. Only an encoder that changes its configuration all the time
/// comes near.
const ASSETS_MAX: usize = 8000;
/// Counter of segments that the host refused, or that no playlist can list.
pub(crate) const COUNTER_REFUSED: &str = "segments_refused";
/// Event when the first segment of an opening does not start with a keyframe: players may not be able to start at it.
pub(crate) const EVENT_KEYFRAMES: &str = "keyframes_too_far";
/// Why playback cannot start, and how the owner can fix it.
pub(crate) const KEYFRAMES_TOO_FAR: &str =
    "keyframes are more than 10 s apart; set the encoder's keyframe interval to 2 s";

#[derive(Debug)]
pub(crate) struct Window {
    limits: Limits,
    dvr_seconds: u32,
    /// First number of the opening.
    first: u64,
    /// Number of the next segment.
    next: u64,
    /// Media is missing before the next segment.
    hole: bool,
    /// Discontinuities before the opening; with those of the opening this gives the discontinuity sequence number of
    /// the newest segment.
    discontinuities: u64,
    inits: Inits,
    lists: Option<Lists>,
    held: HeldSegments,
    parts: Parts,
    health: Health,
    /// A write is in progress.
    writing: bool,
    /// The owner was notified that segments are cut between keyframes.
    cut_reported: bool,
}

impl Window {
    /// An empty window whose first segment gets the number `first`. `follows`: the highest discontinuity sequence
    /// number of earlier openings at the same address, if there were any.
    pub(crate) fn new(first: u64, follows: Option<u64>, dvr_seconds: u32, limits: Limits) -> Self {
        Window {
            limits,
            dvr_seconds,
            first,
            next: first,
            hole: follows.is_some(),
            discontinuities: follows.unwrap_or(0),
            inits: Inits::default(),
            lists: None,
            held: HeldSegments::default(),
            parts: Parts::new(first),
            health: Health::default(),
            writing: false,
            cut_reported: false,
        }
    }

    /// Sets the target duration, and that of parts if there are any.
    pub(crate) fn started(&mut self, target_seconds: u32, part_target_ns: Option<i64>) {
        let (first, follows) = (self.first, self.discontinuities);
        self.parts.started(part_target_ns.is_some());
        self.lists.get_or_insert_with(|| {
            Lists::new(target_seconds, part_target_ns, self.dvr_seconds, first, follows)
        });
    }

    /// A segment longer than the target is coming. Viewers are notified at once: the segment is late for the old
    /// target.
    pub(crate) fn target_raised(&mut self, target_seconds: u32, host: &impl Host) {
        let Some(lists) = &mut self.lists else { return };
        lists.raise_target(target_seconds);
        self.publish_lists(false, host);
    }

    /// Sets the init segment of the following segments.
    pub(crate) fn init(&mut self, init: Init, host: &impl Host) {
        self.inits.add(init, self.first, host);
    }

    /// Takes a segment in. A segment that cannot be published is lost and causes a discontinuity.
    pub(crate) fn segment(&mut self, mut segment: Segment, now: Duration, host: &impl Host) {
        let Some(lists) = &self.lists else { return };
        // Numbers are assigned here, so that a lost segment leaves no hole in them.
        segment.sequence = self.next;
        segment.discontinuity |= self.hole;
        let target = lists.media().target_seconds();
        let good = lists.fits(&segment)
            && self.inits.ready(&segment, target, host)
            && self.publish_memory(&segment, host);
        if !good {
            self.lose_parts();
            // Before the very first segment nothing can be missing, unless its parts were listed.
            self.hole |= self.next > self.first || self.parts.newest().is_some();
            host.count(COUNTER_REFUSED, 1);
            // Old assets are removed first to free space.
            self.roll(now, host);
            return;
        }
        self.hole = false;
        self.next += 1;
        self.discontinuities += u64::from(segment.discontinuity);
        self.inits.used(segment.init_id);
        if !segment.independent && !std::mem::replace(&mut self.cut_reported, true) {
            tracing::warn!("{KEYFRAMES_TOO_FAR}");
            host.event(EVENT_KEYFRAMES, &json!({ "reason": KEYFRAMES_TOO_FAR }));
        }
        // With parts the next part is listed soon, and the segment must come before it.
        let waits = self.dvr_seconds > 0 && !self.health.is_failing() && !self.parts.is_on();
        let list_by = if waits { now + self.limits.list_wait } else { now };
        self.held.all.push_back(Held::new(segment, list_by));
        self.roll(now, host);
    }

    fn publish_memory(&self, segment: &Segment, host: &impl Host) -> bool {
        let published = self.publish_body(segment, AssetBody::Memory(segment.bytes.clone()), host);
        published.is_ok()
    }

    fn publish_body(&self, segment: &Segment, body: AssetBody, host: &impl Host) -> Result<(), ()> {
        let known = self.inits.get(segment.init_id).ok_or(())?;
        let refused =
            |error| tracing::warn!(%error, sequence = segment.sequence, "the host refuses a segment");
        let place = SegmentPosition {
            number: segment.sequence,
            offset_ns: segment.offset_ns,
            start_ms: segment.program_date_time_ms,
            init: known.name.clone(),
        };
        let followed = Followed { segment: Some(place), ..Followed::default() };
        let name = segment_name(segment.sequence);
        let asset = Asset::new(name, known.content_type(), Audience::Hosted, body).max_age(MAX_AGE_SECS);
        host.publish(Asset { followed, ..asset }).map_err(refused)
    }

    /// The next segment to write, one at a time; the caller passes the outcome to [`Window::written`].
    pub(crate) fn next_write(&mut self, now: Duration) -> Option<(u64, Bytes)> {
        if self.dvr_seconds == 0 || self.writing || now < self.health.retry_at() {
            return None;
        }
        let sequence = self.held.to_write()?.sequence();
        let held = self.held.find(sequence)?;
        held.stored = Stored::Writing;
        self.writing = true;
        Some((sequence, held.segment.bytes.clone()))
    }

    /// A write has ended. A file that is no longer needed is dropped, which removes it.
    pub(crate) fn written(
        &mut self,
        sequence: u64,
        outcome: Result<SegmentFile, WriteFailed>,
        now: Duration,
        host: &impl Host,
    ) {
        self.writing = false;
        let held = self.held.find(sequence).filter(|held| matches!(held.stored, Stored::Writing));
        match outcome {
            Ok(file) => {
                if let Some(held) = held {
                    held.stored = Stored::Both(Arc::new(file));
                }
                let caught_up = self.unwritten().0 == 0;
                self.health.worked(caught_up, now, &self.limits, host);
            }
            Err(failed) => {
                if let Some(held) = held {
                    held.stored = Stored::Memory;
                }
                self.health.failed(&failed, now, &self.limits, host);
                if let Some(short_bytes) = failed.short_bytes {
                    self.free_disk(short_bytes, failed.going_bytes, now, host);
                }
            }
        }
        self.roll(now, host);
    }

    /// The session has ended: everything is listed, and the playlists are closed.
    pub(crate) fn end(&mut self, now: Duration, host: &impl Host) {
        for held in self.held.all.iter_mut().filter(|held| held.is_pending()) {
            held.place = Place::Pending(now);
        }
        self.list(now, host);
        if let Some(lists) = &mut self.lists {
            lists.end(host);
        }
        self.publish_lists(true, host);
    }

    pub(crate) fn last(&self) -> Option<u64> {
        (self.next > self.first).then(|| self.next - 1)
    }

    /// Discontinuity sequence number of the newest segment.
    pub(crate) fn discontinuities(&self) -> u64 {
        self.discontinuities
    }

    /// Viewers can open the playlists, and a player that starts now finds a keyframe: one of the segments at which
    /// players start begins with one.
    pub(crate) fn is_playable(&self) -> bool {
        let Some(lists) = self.lists.as_ref().filter(|lists| lists.is_open()) else { return false };
        if lists.media().is_empty() {
            // The first part begins with a keyframe.
            return true;
        }
        let start_ns = i64::from(lists.media().target_seconds() * START_TARGETS) * 1_000_000_000;
        let mut behind_ns = 0;
        let listed = self.held.all.iter().rev().filter(|held| held.place == Place::Listed);
        let mut at_start = listed.enumerate().take_while(|(count, held)| {
            let is_near = *count < START_SEGMENTS || behind_ns < start_ns;
            behind_ns += held.segment.duration_ns;
            is_near
        });
        at_start.any(|(_, held)| held.segment.independent)
    }

    /// A whole segment is listed: the destination forwards. Parts alone can be played before.
    pub(crate) fn has_segment(&self) -> bool {
        self.lists.as_ref().is_some_and(|lists| !lists.media().is_empty())
    }

    /// When [`Window::roll`] or [`Window::next_write`] is due.
    pub(crate) fn next_wake(&self) -> Option<Duration> {
        let pending = self.held.first_pending().and_then(|held| match held.place {
            Place::Pending(by) => Some(by),
            _ => None,
        });
        let retry = self.health.retry_at();
        let writes = self.dvr_seconds > 0 && !self.writing && self.held.to_write().is_some();
        let write = (writes && self.health.is_failing()).then_some(retry);
        let preview = self.lists.as_ref().and_then(|lists| lists.preview.next_wake());
        [pending, write, preview, self.next_retirement(), self.parts.next_wake()].into_iter().flatten().min()
    }

    fn publish_lists(&mut self, ended: bool, host: &impl Host) {
        let first_ms = self.held.first_listed().map(|first| first.segment.program_date_time_ms);
        let last_init = self.held.last_listed().map(|last| last.segment.init_id);
        // Parts can be all there is.
        let (init, first_ms) = match (last_init.zip(first_ms), self.parts.newest()) {
            (Some(listed), _) | (None, Some(listed)) => listed,
            (None, None) => return,
        };
        let Some(known) = self.inits.get(init) else { return };
        let published =
            self.lists.as_mut().is_some_and(|lists| lists.publish(known, host) && lists.is_open());
        let Some(lists) = self.lists.as_ref().filter(|_| published) else { return };
        let target_ms = lists.media().target_seconds().saturating_mul(1000);
        let reported = host.playback(&Playback {
            entry: ENTRY.to_owned(),
            preview: lists.has_preview().then(|| PREVIEW_ENTRY.to_owned()),
            first_ms,
            window_ms: u64::try_from(lists.media().duration_ns() / 1_000_000).unwrap_or(0),
            window_max_ms: u64::from(self.dvr_seconds) * 1000,
            // The host reports it as not ready then.
            fresh_ms: if self.is_playable() { target_ms.saturating_mul(FRESH_TARGETS) } else { 0 },
            ended,
        });
        if let Err(error) = reported {
            tracing::warn!(%error, "the host refuses the playback state");
        }
    }
}
