//! Clips: an ordinary MP4 (`moov` before the media, no fragments) cut out of fragments at a keyframe, without re-encoding.
//!
//! [`ClipSource`] reads an initialization segment and the `moof`s that follow it, and keeps only a table of samples.
//! [`ClipSource::cut`] gives the head of the file and the ranges of the source that follow it; the caller copies them.

mod write;

use bytes::Bytes;
use mp4_atom::{Moov, Traf};

use super::read::{Entry, read_moof, read_moov, record};
use super::{Fmp4Error, SEGMENT_SAMPLES_MAX, TRACKS_MAX, ticks_to_nanos};
use crate::{Kind, NANOS_PER_MILLI};

/// Most samples of a source of a clip, all tracks together; each takes 48 bytes of memory.
pub const CLIP_SAMPLES_MAX: usize = 500_000;
/// Most bytes of media in a clip; offsets in the file have 32 bits.
pub const CLIP_BYTES_MAX: u64 = 4_000_000_000;
/// Longest `moof` that is read, in bytes.
pub const MOOF_BYTES_MAX: usize = TRACKS_MAX * SEGMENT_SAMPLES_MAX * 32;
/// Largest gap between audio and video that a start of audio after the start of video is rounded away from, in nanoseconds.
const ROUNDING_NANOS: i64 = NANOS_PER_MILLI / 2;

/// The samples of fragments with one initialization segment, in order.
#[derive(Debug, Clone)]
pub struct ClipSource {
    moov: Moov,
    tracks: Vec<Track>,
    samples: usize,
}

/// A clip that is not copied yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clip {
    /// The file up to its first media byte.
    pub head: Bytes,
    /// The rest of the file.
    pub ranges: Vec<SourceRange>,
    /// Presentation time of the first frame in the source, in nanoseconds.
    pub start_ns: i64,
    /// Length in nanoseconds.
    pub duration_ns: i64,
    /// It has no video.
    pub audio_only: bool,
}

/// Bytes of the source that a clip has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceRange {
    /// Number of the source, as given to [`ClipSource::push`].
    pub source: u32,
    /// First byte in it.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

#[derive(Debug, Clone)]
struct Track {
    id: u32,
    timescale: u32,
    kind: Kind,
    samples: Vec<Sample>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    source: u32,
    bytes: u32,
    offset: u64,
    /// Decode time and duration in ticks.
    dts: u64,
    duration: u32,
    /// Presentation minus decode time in ticks.
    composition: i32,
    keyframe: bool,
}

impl Clip {
    /// Bytes of the whole file.
    pub fn bytes(&self) -> u64 {
        self.head.len() as u64 + self.ranges.iter().map(|range| range.bytes).sum::<u64>()
    }
}

impl ClipSource {
    /// Reads the tracks from an initialization segment.
    ///
    /// # Errors
    /// As [`Reader::new`](super::Reader::new).
    pub fn new(init: &[u8]) -> Result<Self, Fmp4Error> {
        let moov = read_moov(init)?;
        let mut tracks: Vec<Track> = Vec::new();
        for trak in &moov.trak {
            let entry = trak.mdia.minf.stbl.stsd.codecs.last().ok_or(Fmp4Error::Tracks)?;
            let (kind, timescale) = (record(entry)?.0.kind(), trak.mdia.mdhd.timescale);
            if timescale == 0 || tracks.iter().any(|track| track.kind == kind) {
                return Err(Fmp4Error::Tracks);
            }
            tracks.push(Track { id: trak.tkhd.track_id, timescale, kind, samples: Vec::new() });
        }
        Ok(ClipSource { moov, tracks, samples: 0 })
    }

    /// Adds the samples of a fragment: a complete `moof` that begins at byte `moof_at` of source number `source`, which has
    /// `source_bytes`. Fragments come in order.
    ///
    /// # Errors
    /// [`Fmp4Error::Box`] for bytes that cannot be read, samples outside of the source, and decode times that go back;
    /// [`Fmp4Error::Tracks`] for an unknown track, [`Fmp4Error::ClipTooLarge`].
    pub fn push(
        &mut self,
        moof: &[u8],
        source: u32,
        moof_at: u64,
        source_bytes: u64,
    ) -> Result<(), Fmp4Error> {
        if moof.len() > MOOF_BYTES_MAX {
            return Err(Fmp4Error::Box(format!("a fragment header of {} bytes", moof.len())));
        }
        for traf in &read_moof(moof)?.traf {
            let track = self.tracks.iter_mut().find(|track| track.id == traf.tfhd.track_id);
            let track = track.ok_or(Fmp4Error::Tracks)?;
            let count: usize = traf.trun.iter().map(|trun| trun.samples.len()).sum();
            self.samples = self.samples.saturating_add(count);
            if self.samples > CLIP_SAMPLES_MAX {
                return Err(Fmp4Error::ClipTooLarge);
            }
            track.push(traf, source, moof_at, source_bytes)?;
        }
        Ok(())
    }

    /// Presentation time of the first sample in nanoseconds, of video if there is some.
    pub fn first_ns(&self) -> Option<i64> {
        let leader = self.leader()?;
        leader.samples.first().map(|first| leader.shown_ns(first))
    }

    /// The clip of a range of presentation times in nanoseconds: from the last keyframe at or before `from_ns`, or the first one
    /// after it, up to `to_ns` in decode order. Audio begins and ends with the video.
    ///
    /// # Errors
    /// [`Fmp4Error::NoMedia`], [`Fmp4Error::ClipTooLarge`], [`Fmp4Error::Box`] for times that do not fit into a file.
    pub fn cut(&self, from_ns: i64, to_ns: i64) -> Result<Clip, Fmp4Error> {
        let leader = self.leader().ok_or(Fmp4Error::NoMedia)?;
        let chosen = leader.chosen(from_ns, to_ns).ok_or(Fmp4Error::NoMedia)?;
        let start_ns = leader.shown_ns(&chosen[0]);
        let end_ns = leader.end_ns(chosen);
        let runs = self.tracks.iter().map(|track| {
            let samples = if track.kind == leader.kind { chosen } else { track.between(start_ns, end_ns) };
            Run { track, samples }
        });
        write::write(&self.moov, &runs.collect::<Vec<_>>(), start_ns)
    }

    /// The track whose keyframes begin clips.
    fn leader(&self) -> Option<&Track> {
        let of =
            |kind: Kind| self.tracks.iter().find(|track| track.kind == kind && !track.samples.is_empty());
        of(Kind::Video).or_else(|| of(Kind::Audio))
    }
}

/// The samples of a track in a clip; perhaps none.
struct Run<'a> {
    track: &'a Track,
    samples: &'a [Sample],
}

impl Track {
    fn push(&mut self, traf: &Traf, source: u32, moof_at: u64, source_bytes: u64) -> Result<(), Fmp4Error> {
        let outside = || Fmp4Error::Box("a sample lies outside the segment".to_owned());
        let mut dts = traf.tfdt.as_ref().map_or(0, |tfdt| tfdt.base_media_decode_time);
        if self.samples.last().is_some_and(|last| last.dts > dts) {
            return Err(Fmp4Error::Box("decode times go back".to_owned()));
        }
        for trun in &traf.trun {
            let offset = trun.data_offset.and_then(|offset| u64::try_from(offset).ok());
            let mut at = offset.ok_or_else(outside)?.saturating_add(moof_at);
            for entry in trun.samples.iter() {
                let Entry { duration, length, keyframe, composition } = Entry::of(&entry, &traf.tfhd);
                let end = at.checked_add(length as u64).filter(|end| *end <= source_bytes);
                let (end, length) = (end.ok_or_else(outside)?, u32::try_from(length).map_err(|_| outside())?);
                self.samples.push(Sample {
                    source,
                    bytes: length,
                    offset: at,
                    dts,
                    // A duration is read from 32 bits.
                    duration: u32::try_from(duration).unwrap_or(u32::MAX),
                    composition: i32::try_from(composition).unwrap_or(0),
                    keyframe: keyframe || self.kind == Kind::Audio,
                });
                (at, dts) = (end, dts.saturating_add(duration));
            }
        }
        Ok(())
    }

    fn nanos(&self, ticks: u64) -> i64 {
        ticks_to_nanos(ticks, self.timescale)
    }

    /// Presentation time in nanoseconds.
    fn shown_ns(&self, sample: &Sample) -> i64 {
        self.nanos(sample.dts.saturating_add_signed(i64::from(sample.composition)))
    }

    /// Latest end of presentation in nanoseconds.
    fn end_ns(&self, samples: &[Sample]) -> i64 {
        let end = |sample: &Sample| {
            let shown = sample.dts.saturating_add_signed(i64::from(sample.composition));
            self.nanos(shown.saturating_add(sample.duration.into()))
        };
        samples.iter().map(end).max().unwrap_or(0)
    }

    /// The samples of a clip whose start this track decides; at least one.
    fn chosen(&self, from_ns: i64, to_ns: i64) -> Option<&[Sample]> {
        let is_start = |sample: &&Sample| sample.keyframe;
        let index = |sample: &Sample| self.samples.iter().position(|own| std::ptr::eq(own, sample));
        let early =
            self.samples.iter().rev().find(|sample| sample.keyframe && self.shown_ns(sample) <= from_ns);
        let start = early.or_else(|| self.samples.iter().find(is_start))?;
        if self.shown_ns(start) >= to_ns {
            return None;
        }
        let begin = index(start)?;
        let samples = &self.samples[begin..];
        let mut count = samples.iter().take_while(|sample| self.nanos(sample.dts) < to_ns).count().max(1);
        // The frames that are shown before the last one follow it in decode order.
        let shown = |sample: &Sample| sample.dts.saturating_add_signed(sample.composition.into());
        let latest = samples[..count].iter().map(shown).max().unwrap_or(0);
        count += samples[count..].iter().take_while(|sample| shown(sample) < latest).count();
        self.samples.get(begin..begin + count)
    }

    /// The samples between two times.
    fn between(&self, start_ns: i64, end_ns: i64) -> &[Sample] {
        let end = |sample: &Sample| self.nanos(sample.dts.saturating_add(sample.duration.into()));
        let begin =
            self.samples.partition_point(|sample| end(sample).saturating_sub(start_ns) <= ROUNDING_NANOS);
        let until = self.samples.partition_point(|sample| self.nanos(sample.dts) < end_ns);
        self.samples.get(begin..until).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
