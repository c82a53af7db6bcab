//! The tables of a track (8.6 and 8.7): where its samples are, and when each is decoded and shown.

use bytes::Bytes;

use super::{HIDDEN_MILLIS_MAX, Mp4Error, SAMPLES_MAX, child, entry, inside, long, number, timescale};
use crate::fmp4::{TrackConfig, signed_nanos};
use crate::{Kind, Packet};

/// Media time of an edit that shows nothing.
const EMPTY_EDIT: i64 = -1;

/// A track with its media.
pub(super) struct Track {
    pub(super) config: TrackConfig,
    pub(super) packets: Vec<Packet>,
    /// End of its last sample in decode time, in nanoseconds.
    pub(super) end_ns: i64,
}

/// One sample in ticks; `shown`: presentation time.
struct Sample {
    decoded: i64,
    shown: i64,
    lasts: i64,
    bytes: usize,
    keyframe: bool,
}

impl Track {
    /// Reads a `trak`; `None` for a track that is neither video nor audio.
    pub(super) fn read(trak: &[u8], movie_scale: u32, file: &Bytes) -> Result<Option<Self>, Mp4Error> {
        let handler = inside(trak, &[b"mdia", b"hdlr"]).and_then(|hdlr| hdlr.get(8..12));
        let kind = match handler {
            Some(b"vide") => Kind::Video,
            Some(b"soun") => Kind::Audio,
            _ => return Ok(None),
        };
        let of = |path: &[&[u8; 4]]| inside(trak, path).ok_or(Mp4Error::NotMp4("a track has no tables"));
        let scale = timescale(of(&[b"mdia", b"mdhd"])?)?;
        let stbl = of(&[b"mdia", b"minf", b"stbl"])?;
        let config = entry::track(of(&[b"mdia", b"minf", b"stbl", b"stsd"])?, kind)?;
        let samples = samples(stbl, kind, file.len())?;
        let shift = edit(trak, movie_scale, scale, &samples)?;
        let places = places(stbl, &samples, file.len())?;
        let nanos = |ticks: i64| signed_nanos(ticks.saturating_add(shift), scale);
        let media = samples.iter().zip(places).map(|(sample, at)| {
            let payload = file.slice(at..at + sample.bytes);
            let keyframe = sample.keyframe && kind == Kind::Video;
            Packet::media(config.codec(), keyframe, nanos(sample.decoded), nanos(sample.shown), payload)
        });
        let packets: Vec<_> = media.collect();
        let end_ns = samples.last().map_or(0, |last| nanos(last.decoded.saturating_add(last.lasts)));
        Ok(Some(Self { config, packets, end_ns }))
    }

    pub(super) fn kind(&self) -> Kind {
        self.config.codec().kind()
    }

    pub(super) fn length_ns(&self) -> i64 {
        self.end_ns.saturating_sub(self.packets.first().map_or(0, |first| first.dts_ns))
    }
}

fn broken() -> Mp4Error {
    Mp4Error::NotMp4("the tables of a track do not fit together")
}

/// Entries of a table with a count behind version and flags, each of `N` numbers. A table that is cut off gives what is there.
fn entries<const N: usize>(table: &[u8]) -> impl Iterator<Item = [u32; N]> {
    let count = number(table, 4).unwrap_or(0) as usize;
    let rows = table.get(8..).unwrap_or_default().chunks_exact(4 * N).take(count);
    rows.map(|row| std::array::from_fn(|index| number(row, 4 * index).unwrap_or(0)))
}

/// The numbers of a table of runs, each as often as its run says; runs of a hostile file may be long, and end with the caller.
fn runs(table: Option<&[u8]>) -> impl Iterator<Item = u32> {
    let runs = entries::<2>(table.unwrap_or_default());
    runs.flat_map(|[count, value]| std::iter::repeat_n(value, count as usize))
}

/// The samples from `stsz`, `stts`, `ctts` and `stss`.
fn samples(stbl: &[u8], kind: Kind, file_bytes: usize) -> Result<Vec<Sample>, Mp4Error> {
    let stsz = child(stbl, b"stsz").ok_or_else(broken)?;
    let (same, count) = (number(stsz, 4).ok_or_else(broken)?, number(stsz, 8).ok_or_else(broken)? as usize);
    if count > SAMPLES_MAX {
        return Err(Mp4Error::Samples);
    }
    let sizes = stsz.get(12..).unwrap_or_default();
    let mut durations = runs(child(stbl, b"stts"));
    let ctts = child(stbl, b"ctts");
    let mut compositions = runs(ctts);
    let sync = child(stbl, b"stss");
    let mut keyframes = entries::<1>(sync.unwrap_or_default()).map(|[number]| number as usize).peekable();
    let (mut samples, mut decoded, mut total) = (Vec::new(), 0i64, 0usize);
    for index in 0..count {
        let bytes = if same == 0 { number(sizes, 4 * index).ok_or_else(broken)? } else { same } as usize;
        total = total.saturating_add(bytes);
        if bytes == 0 || total > file_bytes {
            return Err(broken());
        }
        // Negative durations are in broken files, and times must not go back.
        let lasts = i32::try_from(durations.next().ok_or_else(broken)?).map_err(|_| broken())?;
        let composition = match ctts {
            Some(_) => compositions.next().ok_or_else(broken)? as i32,
            None => 0,
        };
        while keyframes.next_if(|number| *number <= index).is_some() {}
        let keyframe = match sync {
            Some(_) => keyframes.peek() == Some(&(index + 1)),
            None => true,
        };
        let shown = decoded + i64::from(if kind == Kind::Video { composition } else { 0 });
        samples.push(Sample { decoded, shown, lasts: lasts.into(), bytes, keyframe });
        // At most SAMPLES_MAX times 31 bits.
        decoded += i64::from(lasts);
    }
    Ok(samples)
}

/// Offsets of the samples in the file, from `stsc` and `stco` or `co64`.
fn places(stbl: &[u8], samples: &[Sample], file_bytes: usize) -> Result<Vec<usize>, Mp4Error> {
    let mut chunks = entries::<3>(child(stbl, b"stsc").ok_or_else(broken)?).peekable();
    let short = child(stbl, b"stco");
    let table = short.or_else(|| child(stbl, b"co64")).ok_or_else(broken)?;
    let offset = |index: usize| match short {
        Some(_) => number(table, 8 + 4 * index).map(u64::from),
        None => long(table, 8 + 8 * index),
    };
    let count = number(table, 4).unwrap_or(0);
    let (mut places, mut per_chunk) = (Vec::new(), 0usize);
    if samples.is_empty() {
        return Ok(places);
    }
    let mut rest = samples.iter();
    for index in 0..count {
        // Chunks are counted from 1.
        while let Some([_, samples, _]) = chunks.next_if(|[first, ..]| *first <= index + 1) {
            per_chunk = samples as usize;
        }
        let mut at = usize::try_from(offset(index as usize).ok_or_else(broken)?).map_err(|_| broken())?;
        for sample in rest.by_ref().take(per_chunk) {
            let end = at.checked_add(sample.bytes).filter(|end| *end <= file_bytes).ok_or_else(broken)?;
            places.push(at);
            at = end;
        }
        if places.len() == samples.len() {
            return Ok(places);
        }
    }
    Err(broken())
}

/// Ticks that the edit list adds to all times: one edit at the normal rate, perhaps behind an empty one.
fn edit(trak: &[u8], movie_scale: u32, scale: u32, samples: &[Sample]) -> Result<i64, Mp4Error> {
    let Some(elst) = inside(trak, &[b"edts", b"elst"]) else { return Ok(0) };
    let (mut empty, mut shows) = (0, None);
    for index in 0..number(elst, 4).unwrap_or(0) as usize {
        let (duration, media_time, rate) = one_edit(elst, index).ok_or(Mp4Error::Edits)?;
        match media_time {
            EMPTY_EDIT if index == 0 => empty = duration,
            0.. if shows.is_none() && rate == 1 => shows = Some((duration, media_time)),
            _ => return Err(Mp4Error::Edits),
        }
    }
    let Some((duration, media_time)) = shows else { return Ok(0) };
    let begin = samples.iter().map(|sample| sample.shown).min().unwrap_or(0);
    let end = samples.iter().map(|sample| sample.shown.saturating_add(sample.lasts)).max().unwrap_or(0);
    // In ticks of the movie and of the track multiplied, so that nothing is rounded.
    let [of_track, of_movie] = [i128::from(movie_scale), i128::from(scale)];
    let (duration, empty) = (i128::from(duration) * of_movie, i128::from(empty) * of_movie);
    let ticks = |ticks: i64| i128::from(ticks) * of_track;
    // A duration of 0 stands for the whole track.
    let tail = if duration == 0 { 0 } else { ticks(end) - ticks(media_time) - duration };
    let most = i128::from(HIDDEN_MILLIS_MAX) * of_track * of_movie / 1_000;
    if [ticks(media_time) - ticks(begin), tail, empty].into_iter().any(|hidden| hidden > most) {
        return Err(Mp4Error::Edits);
    }
    Ok(i64::try_from(empty / of_track).unwrap_or(0).saturating_sub(media_time))
}

/// Duration in ticks of the movie, media time in ticks of the track, and rate (8.6.6).
fn one_edit(elst: &[u8], index: usize) -> Option<(i64, i64, u32)> {
    let (duration, media_time, rate) = if elst.first() == Some(&1) {
        let at = 8 + 20 * index;
        (i64::try_from(long(elst, at)?).ok()?, long(elst, at + 8)? as i64, number(elst, at + 16)?)
    } else {
        let at = 8 + 12 * index;
        (number(elst, at)?.into(), i64::from(number(elst, at + 4)? as i32), number(elst, at + 8)?)
    };
    Some((duration, media_time, rate >> 16))
}
