//! What viewers can have: segments from memory and files, and the lists that name them. No I/O and no clock: the caller gives the
//! time since the opening's start with every call and does the writing.
//!
//! The life of a segment: published from memory, written, listed (without its file when the disk is slow), handed over as a file
//! when [`Limits::edge_segments`] newer ones exist, off the list when the window rolls, taken away when its grace time is over. On a
//! full disk the oldest files go without a grace time, so that the window becomes what the disk holds.
//!
//! Invariant: the host has every piece that a published playlist names. So pieces are published before and taken away after the
//! lists that change with them, and a piece that the host refuses, or the disk does not take in time, is never in a list.

mod health;
mod held;
mod inits;
mod lists;
mod parts;
mod preview;
mod rolling;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use satcast_media::playlist::segment_name;
use satcast_media::segment::{Init, Segment};
use satcast_plugin_api::{Asset, AssetBody, Audience, Followed, Playback, SegmentPlace};
use serde_json::json;

use crate::disk::WriteFailed;
use crate::folder::SegmentFile;
use crate::limits::Limits;
use crate::shelf::Shelf;
use health::Health;
use held::{Held, Place, Shelved, Stored};
use inits::Inits;
use lists::Lists;
use parts::Parts;

/// Playlist where viewers with a key enter.
pub(crate) const ENTRY: &str = "index.m3u8";
/// The media playlist.
pub(crate) const MEDIA: &str = "media.m3u8";
/// Its form for viewers who have an earlier version.
pub(crate) const DELTA: &str = "media-delta.m3u8";
/// Playlist where viewers of the preview enter.
pub(crate) const PREVIEW_ENTRY: &str = "preview.m3u8";
/// Its media playlist.
pub(crate) const PREVIEW_MEDIA: &str = "preview-media.m3u8";
/// How long caches may keep media, in seconds: a name never comes back with other bytes.
const MAX_AGE_SECS: u32 = 3600;
/// Media targets in which a new segment must come for the playback to count as ready.
const FRESH_TARGETS: u32 = 3;
/// Targets behind the end at which players start, and segments of that stretch at least (RFC 8216, 6.3.3).
const START_TARGETS: u32 = 3;
const START_SEGMENTS: usize = 3;
/// Pieces of one opening; the host allows 8192. Only an encoder that changes its configuration all the time comes near.
const PIECES_MAX: usize = 8000;
/// Counter of segments that the host refused, or that no playlist can list.
pub(crate) const COUNTER_REFUSED: &str = "segments_refused";
/// Event when the first segment of an opening does not start with a keyframe: players may not be able to start at it.
pub(crate) const EVENT_KEYFRAMES: &str = "keyframes_too_far";
/// Why nobody can start to play, and what the owner can do.
pub(crate) const KEYFRAMES_TOO_FAR: &str =
    "keyframes are more than 10 s apart; set the encoder's keyframe interval to 2 s";

/// The window of one opening.
#[derive(Debug)]
pub(crate) struct Window {
    limits: Limits,
    dvr_seconds: u32,
    /// First number of the opening.
    first: u64,
    /// Number of the next segment.
    next: u64,
    /// Something is missing before the next segment.
    hole: bool,
    /// Discontinuities before the opening, with those in it the discontinuity sequence number of the newest segment.
    discontinuities: u64,
    inits: Inits,
    lists: Option<Lists>,
    held: Shelved,
    parts: Parts,
    health: Health,
    /// A write is on its way.
    writing: bool,
    /// The owner knows that segments are cut between keyframes.
    told_cut: bool,
}

impl Window {
    /// An empty window whose first segment gets the number `first`. `follows` is the highest discontinuity sequence number of the
    /// openings before it at the same address, if there were any.
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
            held: Shelved::default(),
            parts: Parts::new(first),
            health: Health::default(),
            writing: false,
            told_cut: false,
        }
    }

    /// The target duration is known, and that of parts if there are to be any.
    pub(crate) fn started(&mut self, target_seconds: u32, part_target_ns: Option<i64>) {
        let (first, follows) = (self.first, self.discontinuities);
        self.parts.started(part_target_ns.is_some());
        self.lists.get_or_insert_with(|| {
            Lists::new(target_seconds, part_target_ns, self.dvr_seconds, first, follows)
        });
    }

    /// A segment is coming that is longer than the target. Viewers are told at once: the next one comes late for the old target.
    pub(crate) fn target_raised(&mut self, target_seconds: u32, shelf: &impl Shelf) {
        let Some(lists) = &mut self.lists else { return };
        lists.raise_target(target_seconds);
        self.publish_lists(false, shelf);
    }

    /// Segments need this from now on.
    pub(crate) fn init(&mut self, init: Init, shelf: &impl Shelf) {
        self.inits.add(init, self.first, shelf);
    }

    /// Takes a segment in. One that viewers cannot have costs itself and a discontinuity.
    pub(crate) fn segment(&mut self, mut segment: Segment, now: Duration, shelf: &impl Shelf) {
        let Some(lists) = &self.lists else { return };
        // Numbers are given here, so that a lost segment leaves no hole in them.
        segment.sequence = self.next;
        segment.discontinuity |= self.hole;
        let target = lists.media().target_seconds();
        let good = lists.fits(&segment)
            && self.inits.ready(&segment, target, shelf)
            && self.publish_memory(&segment, shelf);
        if !good {
            self.lose_parts();
            // Before the very first segment nothing can be missing.
            self.hole |= self.next > self.first;
            shelf.count(COUNTER_REFUSED, 1);
            // Room comes from what is old.
            self.roll(now, shelf);
            return;
        }
        self.hole = false;
        self.next += 1;
        self.discontinuities += u64::from(segment.discontinuity);
        self.inits.used(segment.init_id);
        if !segment.independent && !std::mem::replace(&mut self.told_cut, true) {
            tracing::warn!("{KEYFRAMES_TOO_FAR}");
            shelf.event(EVENT_KEYFRAMES, &json!({ "reason": KEYFRAMES_TOO_FAR }));
        }
        // With parts the next one is listed soon, which the segment must come before.
        let waits = self.dvr_seconds > 0 && !self.health.is_failing() && !self.parts.is_on();
        let list_by = if waits { now + self.limits.list_wait } else { now };
        self.held.all.push_back(Held::new(segment, list_by));
        self.roll(now, shelf);
    }

    fn publish_memory(&self, segment: &Segment, shelf: &impl Shelf) -> bool {
        let published = self.publish_body(segment, AssetBody::Memory(segment.bytes.clone()), shelf);
        published.is_ok()
    }

    fn publish_body(&self, segment: &Segment, body: AssetBody, shelf: &impl Shelf) -> Result<(), ()> {
        let known = self.inits.get(segment.init_id).ok_or(())?;
        let refused =
            |error| tracing::warn!(%error, sequence = segment.sequence, "the host refuses a segment");
        let place = SegmentPlace {
            number: segment.sequence,
            offset_ns: segment.offset_ns,
            start_ms: segment.program_date_time_ms,
            init: known.name.clone(),
        };
        let followed = Followed { segment: Some(place), ..Followed::default() };
        let name = segment_name(segment.sequence);
        let asset = Asset::new(name, known.content_type(), Audience::Hosted, body).max_age(MAX_AGE_SECS);
        shelf.publish(Asset { followed, ..asset }).map_err(refused)
    }

    /// The next segment to be written, one at a time; its outcome is told to [`Window::written`].
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

    /// A write has ended. A file that is not needed any more is dropped, and so removed.
    pub(crate) fn written(
        &mut self,
        sequence: u64,
        outcome: Result<SegmentFile, WriteFailed>,
        now: Duration,
        shelf: &impl Shelf,
    ) {
        self.writing = false;
        let held = self.held.find(sequence).filter(|held| matches!(held.stored, Stored::Writing));
        match outcome {
            Ok(file) => {
                if let Some(held) = held {
                    held.stored = Stored::Both(file);
                }
                let caught_up = self.unwritten().0 == 0;
                self.health.worked(caught_up, now, &self.limits, shelf);
            }
            Err(failed) => {
                if let Some(held) = held {
                    held.stored = Stored::Memory;
                }
                self.health.failed(&failed, now, &self.limits, shelf);
                if let Some(short_bytes) = failed.short_bytes {
                    self.free_disk(short_bytes, failed.going_bytes, now, shelf);
                }
            }
        }
        self.roll(now, shelf);
    }

    /// The session has ended: everything is listed, and the lists say that no more comes.
    pub(crate) fn end(&mut self, now: Duration, shelf: &impl Shelf) {
        for held in self.held.all.iter_mut().filter(|held| held.is_pending()) {
            held.place = Place::Pending(now);
        }
        self.list(now, shelf);
        if let Some(lists) = &mut self.lists {
            lists.end(shelf);
        }
        self.publish_lists(true, shelf);
    }

    /// Number of the last segment, if there was one.
    pub(crate) fn last(&self) -> Option<u64> {
        (self.next > self.first).then(|| self.next - 1)
    }

    /// Discontinuity sequence number of the newest segment.
    pub(crate) fn discontinuities(&self) -> u64 {
        self.discontinuities
    }

    /// Viewers can enter, and a player that starts now finds a keyframe: one of the segments at which players start has one at
    /// its own start.
    pub(crate) fn is_playable(&self) -> bool {
        let Some(lists) = self.lists.as_ref().filter(|lists| lists.is_open()) else { return false };
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

    /// When [`Window::roll`] has something to do, or [`Window::next_write`] something to give.
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

    fn publish_lists(&mut self, ended: bool, shelf: &impl Shelf) {
        let (Some(first), Some(last)) = (self.held.first_listed(), self.held.last_listed()) else { return };
        let Some(known) = self.inits.get(last.segment.init_id) else { return };
        let published =
            self.lists.as_mut().is_some_and(|lists| lists.publish(known, shelf) && lists.is_open());
        let Some(lists) = self.lists.as_ref().filter(|_| published) else { return };
        let target_ms = lists.media().target_seconds().saturating_mul(1000);
        let told = shelf.playback(&Playback {
            entry: ENTRY.to_owned(),
            preview: lists.has_preview().then(|| PREVIEW_ENTRY.to_owned()),
            first_ms: first.segment.program_date_time_ms,
            window_ms: u64::try_from(lists.media().duration_ns() / 1_000_000).unwrap_or(0),
            window_max_ms: u64::from(self.dvr_seconds) * 1000,
            // The host says that it is not ready then.
            fresh_ms: if self.is_playable() { target_ms.saturating_mul(FRESH_TARGETS) } else { 0 },
            ended,
        });
        if let Err(error) = told {
            tracing::warn!(%error, "the host refuses what viewers can see");
        }
    }
}
