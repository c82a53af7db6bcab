//! The four playlists: their content, and when they are published again.

use std::time::Duration;

use bytes::Bytes;
use satcast_media::playlist::{Entry, MediaPlaylist, Multivariant, PartEntry, PartRules, segment_name};
use satcast_media::segment::{Part, Segment};
use satcast_plugin_api::playback::PLAYLIST_TYPE;
use satcast_plugin_api::{Asset, AssetBody, Audience, Followed, Reload};

use super::inits::Known;
use super::preview::Preview;
use super::{DELTA, ENTRY, MEDIA, PREVIEW_ENTRY, PREVIEW_MEDIA};
use crate::host::Host;
use crate::limits::{Limits, PART_HOLD_BACK_NANOS};

/// How long caches may keep a playlist in seconds: half a segment.
const PLAYLIST_AGE_SECS: u32 = 1;
/// Allowed difference between published and measured rates, in percent; BANDWIDTH has a tenth of headroom.
const RATE_DRIFT_PERCENT: u64 = 5;
/// Allowed difference of the frame rate, in thousandths.
const FRAME_DRIFT_PER_MILLE: u64 = 10;

/// The playlists of one opening.
#[derive(Debug)]
pub(super) struct Lists {
    media: MediaPlaylist,
    media_published: u64,
    entry: Entrance,
    pub(super) preview: Preview,
    preview_entry: Entrance,
}

impl Lists {
    /// Playlists that start with the segment `first`, after `follows` discontinuities; with parts when `part_target_ns`
    /// is given.
    pub(super) fn new(
        target_seconds: u32,
        part_target_ns: Option<i64>,
        window_seconds: u32,
        first: u64,
        follows: u64,
    ) -> Self {
        let mut media =
            MediaPlaylist::new(target_seconds, window_seconds).with_discontinuity_sequence(follows);
        if let Some(target_ns) = part_target_ns {
            media = media.with_parts(PartRules { target_ns, hold_back_ns: PART_HOLD_BACK_NANOS });
        }
        Lists {
            media,
            media_published: 0,
            entry: Entrance::default(),
            preview: Preview::new(target_seconds, first, follows),
            preview_entry: Entrance::default(),
        }
    }

    pub(super) fn media(&self) -> &MediaPlaylist {
        &self.media
    }

    /// Raises the target duration.
    pub(super) fn raise_target(&mut self, target_seconds: u32) {
        self.media.raise_target(target_seconds);
        self.preview.raise_target(target_seconds);
    }

    /// Whether the duration rounds to no more than the target. Anything else is a fault of the segmenter.
    pub(super) fn fits(&self, segment: &Segment) -> bool {
        let limit_ns = i64::from(self.media.target_seconds()) * 1_000_000_000 + 499_999_999;
        (1..=limit_ns).contains(&segment.duration_ns)
    }

    /// Lists a segment; returns how many left the window.
    pub(super) fn push(
        &mut self,
        segment: &Segment,
        known: &Known,
        now: Duration,
        limits: &Limits,
        host: &impl Host,
    ) -> usize {
        let pushed = self.media.push(Entry {
            sequence: segment.sequence,
            duration_ns: segment.duration_ns,
            program_date_time_ms: segment.program_date_time_ms,
            discontinuity: segment.discontinuity,
            independent: segment.independent,
            init: &known.name,
            name: &segment_name(segment.sequence),
        });
        self.preview.push(segment, known, host);
        self.preview.age(now + limits.preview_grace);
        pushed.unwrap_or_else(|error| {
            // Numbers and durations were checked: this is our defect, not the stream's.
            tracing::error!(%error, "a segment cannot be listed");
            0
        })
    }

    /// Changes the length of the window; returns how many segments left it.
    pub(super) fn set_window(&mut self, seconds: u32) -> usize {
        self.media.set_window(seconds)
    }

    /// Lists a part of the unfinished segment; false when that fails.
    pub(super) fn push_part(&mut self, part: &Part, known: &Known, name: &str, next: &str) -> bool {
        let pushed = self.media.push_part(PartEntry {
            sequence: part.sequence,
            duration_ns: part.duration_ns,
            independent: part.independent,
            program_date_time_ms: part.program_date_time_ms,
            discontinuity: part.discontinuity,
            init: &known.name,
            name,
            next,
        });
        pushed.inspect_err(|error| tracing::error!(%error, "a part cannot be listed")).is_ok()
    }

    /// The unfinished segment is lost, and its parts with it.
    pub(super) fn drop_parts(&mut self) {
        self.media.drop_open_parts();
    }

    /// Removes the segments before `sequence` from the playlist as far as enough remain; returns how many.
    pub(super) fn remove_before(&mut self, sequence: u64) -> usize {
        self.media.remove_before(sequence)
    }

    /// Removes every segment before `sequence` from the playlist, because they are no longer available. Returns how
    /// many.
    pub(super) fn lose_before(&mut self, sequence: u64) -> usize {
        self.media.lose_before(sequence)
    }

    pub(super) fn end(&mut self, host: &impl Host) {
        self.media.end();
        self.preview.end(host);
    }

    /// Publishes changed playlists; true when the media playlist changed.
    pub(super) fn publish(&mut self, known: &Known, host: &impl Host) -> bool {
        let version = self.media.version();
        let changed = version != self.media_published && self.publish_media(host);
        if changed {
            self.media_published = version;
        }
        if self.preview.publish(PREVIEW_MEDIA, host) {
            let independent = self.preview.playlist().is_independent();
            self.preview_entry.publish(known, independent, (PREVIEW_ENTRY, PREVIEW_MEDIA), host);
        }
        if self.media_published > 0 {
            self.entry.publish(known, self.media.is_independent(), (ENTRY, MEDIA), host);
        }
        changed
    }

    /// Publishes the media playlist, first its delta form, and how viewers wait for the next version.
    fn publish_media(&mut self, host: &impl Host) -> bool {
        let Some(text) = self.media.render() else { return false };
        let delta = self.media.render_delta();
        let has_delta = delta.is_some_and(|text| {
            publish_text((DELTA, PLAYLIST_AGE_SECS), text, Audience::Hosted, Followed::default(), host)
        });
        // Parts alone are of no use to players of whole segments, which therefore wait: caches must not answer them.
        let age_secs = if self.media.is_empty() { 0 } else { PLAYLIST_AGE_SECS };
        let (next_sequence, next_part) = self.media.position();
        let target_ms = self.media.target_seconds().saturating_mul(1000);
        // Without a next part there is nothing to wait for.
        let reload = self.media.hint().map(|hint| Reload {
            next_sequence,
            next_part,
            target_ms,
            delta: has_delta.then(|| DELTA.to_owned()),
            hint: Some(hint.to_owned()),
        });
        let hold_back_ms = u32::try_from(self.media.hold_back_ns() / 1_000_000).unwrap_or(u32::MAX);
        publish_text(
            (MEDIA, age_secs),
            text,
            Audience::Hosted,
            Followed { hold_back_ms, reload, ..Followed::default() },
            host,
        )
    }

    /// Viewers with a key can open the entry playlist.
    pub(super) fn is_open(&self) -> bool {
        self.entry.published.is_some()
    }

    /// Viewers of the preview can open its entry playlist.
    pub(super) fn has_preview(&self) -> bool {
        self.preview_entry.published.is_some()
    }
}

/// Publishes a media playlist; true when the host accepted it.
pub(super) fn publish_list(list: &MediaPlaylist, name: &str, audience: Audience, host: &impl Host) -> bool {
    let Some(text) = list.render() else { return false };
    publish_text((name, PLAYLIST_AGE_SECS), text, audience, Followed::default(), host)
}

/// Publishes a playlist by its name; caches may keep it for the given seconds.
fn publish_text(
    (name, age_secs): (&str, u32),
    text: String,
    audience: Audience,
    followed: Followed,
    host: &impl Host,
) -> bool {
    let body = AssetBody::Memory(Bytes::from(text));
    let asset = Asset::new(name, PLAYLIST_TYPE, audience, body).max_age(age_secs);
    // The next segment tries again.
    let published = host.publish(Asset { followed, ..asset });
    published.inspect_err(|error| tracing::warn!(%error, name, "the host refuses a playlist")).is_ok()
}

/// A multivariant playlist that stays published until its values are wrong.
#[derive(Debug, Default)]
struct Entrance {
    published: Option<(Multivariant, bool)>,
}

impl Entrance {
    fn publish(&mut self, known: &Known, independent: bool, names: (&str, &str), host: &impl Host) {
        let now = Multivariant::new(&known.init, &known.rates);
        let stands = |(said, was): &(Multivariant, bool)| *was == independent && still_true(said, &now);
        if self.published.as_ref().is_some_and(stands) {
            return;
        }
        let audience = if names.0 == ENTRY { Audience::Hosted } else { Audience::Preview };
        let Ok(text) = now.render(names.1, independent) else { return };
        if publish_text((names.0, PLAYLIST_AGE_SECS), text, audience, Followed::default(), host) {
            self.published = Some((now, independent));
        }
    }
}

/// Players would decide the same, and the rates are close.
fn still_true(said: &Multivariant, now: &Multivariant) -> bool {
    let near = |said: u64, now: u64, part: u64, of: u64| said.abs_diff(now) <= said / of * part;
    let same = said.codecs == now.codecs
        && said.resolution == now.resolution
        && said.video_range == now.video_range
        && said.frame_rate_milli.is_some() == now.frame_rate_milli.is_some();
    let frames = (said.frame_rate_milli.unwrap_or(0), now.frame_rate_milli.unwrap_or(0));
    same && near(said.bandwidth, now.bandwidth, RATE_DRIFT_PERCENT, 100)
        && near(said.average_bandwidth, now.average_bandwidth, RATE_DRIFT_PERCENT, 100)
        && near(frames.0, frames.1, FRAME_DRIFT_PER_MILLE, 1000)
}
