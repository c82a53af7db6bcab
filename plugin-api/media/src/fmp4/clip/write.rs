//! Writes the head of a clip: `ftyp`, a `moov` with sample tables and edit lists, and the header of `mdat`.

use bytes::Bytes;
use mp4_atom::{
    Ctts, CttsEntry, Edts, Elst, ElstEntry, Encode, FourCC, Ftyp, Moov, Mvhd, Stbl, Stco, Stsc, StscEntry,
    Stss, Stsz, StszSamples, Stts, SttsEntry, Trak,
};

use super::{CLIP_BYTES_MAX, Clip, ROUNDING_NANOS, Run, Sample, SourceRange};
use crate::Kind;
use crate::fmp4::{AUDIO_TRACK_ID, Fmp4Error, VIDEO_TIMESCALE};

/// Ticks per second of the whole file: that of video, so that an edit ends exactly with a frame.
const MOVIE_TIMESCALE: u32 = VIDEO_TIMESCALE;
const NANOS_PER_SECOND: i128 = 1_000_000_000;
/// Bytes of the header of `mdat`.
const MDAT_HEADER_BYTES: u64 = 8;

/// Samples of one track that follow each other in the source and so in the file.
struct Chunk {
    /// Index of its run.
    run: usize,
    /// Samples in it.
    count: u32,
    range: SourceRange,
}

/// The clip of these runs, which begins at `start_ns`.
pub(super) fn write(moov: &Moov, runs: &[Run<'_>], start_ns: i64) -> Result<Clip, Fmp4Error> {
    let chunks = chunks(runs)?;
    let media_bytes: u64 = chunks.iter().map(|chunk| chunk.range.bytes).sum();
    let mut head = Vec::with_capacity(64 * 1024);
    Ftyp {
        major_brand: FourCC::new(b"isom"),
        minor_version: 0x200,
        compatible_brands: [b"isom", b"iso4", b"mp41"].map(FourCC::new).to_vec(),
    }
    .encode(&mut head)?;
    let ftyp_bytes = head.len();
    // The size of moov does not depend on its offsets: it is written once to measure it, then with the offsets.
    let mut written = file(moov, runs, &chunks, 0, start_ns)?;
    written.encode(&mut head)?;
    let first = head.len() as u64 + MDAT_HEADER_BYTES;
    head.truncate(ftyp_bytes);
    written = file(moov, runs, &chunks, first, start_ns)?;
    written.encode(&mut head)?;
    let mdat = u32::try_from(media_bytes + MDAT_HEADER_BYTES).map_err(|_| Fmp4Error::ClipTooLarge)?;
    head.extend_from_slice(&mdat.to_be_bytes());
    head.extend_from_slice(b"mdat");
    let duration = i128::from(written.mvhd.duration) * NANOS_PER_SECOND / i128::from(MOVIE_TIMESCALE);
    Ok(Clip {
        head: Bytes::from(head),
        ranges: joined(&chunks),
        start_ns,
        duration_ns: i64::try_from(duration).unwrap_or(i64::MAX),
        audio_only: runs.iter().all(|run| run.track.kind == Kind::Audio || run.samples.is_empty()),
    })
}

/// The chunks in the order of the source.
fn chunks(runs: &[Run<'_>]) -> Result<Vec<Chunk>, Fmp4Error> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut total: u64 = 0;
    for (run, Run { samples, .. }) in runs.iter().enumerate() {
        let first = chunks.len();
        for Sample { source, offset, bytes, .. } in samples.iter().copied() {
            let bytes = u64::from(bytes);
            total = total.saturating_add(bytes);
            let open = chunks[first..].last_mut().filter(|chunk| {
                let range = &chunk.range;
                (range.source, range.offset.saturating_add(range.bytes)) == (source, offset)
            });
            match open {
                Some(chunk) => {
                    chunk.count += 1;
                    chunk.range.bytes += bytes;
                }
                None => chunks.push(Chunk { run, count: 1, range: SourceRange { source, offset, bytes } }),
            }
        }
    }
    if total > CLIP_BYTES_MAX {
        return Err(Fmp4Error::ClipTooLarge);
    }
    // The sort is stable: the chunks of a track stay in their order unless the source mixes them up.
    if chunks.chunk_by(|one, next| one.run == next.run).all(|own| own.is_sorted_by_key(place)) {
        chunks.sort_by_key(place);
    }
    Ok(chunks)
}

fn place(chunk: &Chunk) -> (u32, u64) {
    (chunk.range.source, chunk.range.offset)
}

/// Ranges that follow each other in the source are one.
fn joined(chunks: &[Chunk]) -> Vec<SourceRange> {
    let mut ranges: Vec<SourceRange> = Vec::new();
    for range in chunks.iter().map(|chunk| chunk.range) {
        match ranges.last_mut() {
            Some(last) if (last.source, last.offset + last.bytes) == (range.source, range.offset) => {
                last.bytes += range.bytes;
            }
            _ => ranges.push(range),
        }
    }
    ranges
}

/// The `moov` of a file whose media begins at byte `first`.
fn file(
    moov: &Moov,
    runs: &[Run<'_>],
    chunks: &[Chunk],
    first: u64,
    start_ns: i64,
) -> Result<Moov, Fmp4Error> {
    let mut traks = Vec::new();
    for (index, run) in runs.iter().enumerate().filter(|(_, run)| !run.samples.is_empty()) {
        let source = moov.trak.iter().find(|trak| trak.tkhd.track_id == run.track.id);
        let source = source.ok_or(Fmp4Error::Tracks)?;
        traks.push(trak(source, run, &of_run(index, chunks, first)?, start_ns)?);
    }
    let duration = traks.iter().map(|trak| trak.tkhd.duration).max().unwrap_or(0);
    let mvhd = Mvhd {
        timescale: MOVIE_TIMESCALE,
        duration,
        rate: 1.into(),
        volume: 1.into(),
        next_track_id: AUDIO_TRACK_ID + 1,
        ..Mvhd::default()
    };
    Ok(Moov { mvhd, trak: traks, ..Moov::default() })
}

/// Offset in the file and samples of each chunk of a run.
fn of_run(run: usize, chunks: &[Chunk], first: u64) -> Result<Vec<(u32, u32)>, Fmp4Error> {
    let (mut at, mut own) = (first, Vec::new());
    for chunk in chunks {
        if chunk.run == run {
            own.push((u32::try_from(at).map_err(|_| Fmp4Error::ClipTooLarge)?, chunk.count));
        }
        at += chunk.range.bytes;
    }
    Ok(own)
}

fn trak(source: &Trak, run: &Run<'_>, chunks: &[(u32, u32)], start_ns: i64) -> Result<Trak, Fmp4Error> {
    let mut trak = source.clone();
    let deltas = deltas(run.samples)?;
    let media: u64 = deltas.iter().map(|delta| u64::from(*delta)).sum();
    let edits = edits(run, media, start_ns);
    trak.tkhd.duration = edits.iter().map(|edit| edit.segment_duration).sum();
    trak.edts = Some(Edts { elst: Some(Elst { entries: edits }) });
    trak.mdia.mdhd.duration = media;
    let composed = run.samples.iter().any(|sample| sample.composition != 0);
    let compositions = run.samples.iter().map(|sample| i64::from(sample.composition));
    let keyframes =
        run.samples.iter().zip(1..).filter(|(sample, _)| sample.keyframe).map(|(_, number)| number);
    let keyframes: Vec<u32> = keyframes.collect();
    let is_all = keyframes.len() == run.samples.len();
    let mut stbl = Stbl { stsd: source.mdia.minf.stbl.stsd.clone(), ..Stbl::default() };
    stbl.stts = Stts {
        entries: counted(deltas.into_iter(), |sample_count, sample_delta| SttsEntry {
            sample_count,
            sample_delta,
        }),
    };
    stbl.ctts = composed.then(|| Ctts {
        entries: counted(compositions, |sample_count, sample_offset| CttsEntry {
            sample_count,
            sample_offset,
        }),
    });
    stbl.stss = (run.track.kind == Kind::Video && !is_all).then_some(Stss { entries: keyframes });
    stbl.stsz = Stsz {
        samples: StszSamples::Different { sizes: run.samples.iter().map(|sample| sample.bytes).collect() },
    };
    stbl.stsc = Stsc { entries: chunk_lengths(chunks) };
    stbl.stco = Some(Stco { entries: chunks.iter().map(|(at, _)| *at).collect() });
    trak.mdia.minf.stbl = stbl;
    Ok(trak)
}

/// Ticks from each sample to the next; the last has its own duration. A gap makes the sample before it longer.
fn deltas(samples: &[Sample]) -> Result<Vec<u32>, Fmp4Error> {
    let apart = samples.windows(2).map(|pair| u32::try_from(pair[1].dts.saturating_sub(pair[0].dts)));
    let mut deltas: Vec<u32> =
        apart.collect::<Result<_, _>>().map_err(|_| Fmp4Error::Box("a gap is too long for a file".into()))?;
    deltas.extend(samples.last().map(|last| last.duration));
    Ok(deltas)
}

/// The edit list: the track begins at `start_ns`, after a wait if its media begins later.
fn edits(run: &Run<'_>, media: u64, start_ns: i64) -> Vec<ElstEntry> {
    let track = run.track;
    let Some(first) = run.samples.first() else { return Vec::new() };
    let scale = i128::from(track.timescale);
    let to_movie = |ticks: u64| {
        let ticks = i128::from(ticks) * i128::from(MOVIE_TIMESCALE);
        u64::try_from((ticks + scale - 1) / scale).unwrap_or(u64::MAX)
    };
    // How much of the media is before the start, by decode time; a wait when negative.
    let shown_ns = track.shown_ns(first);
    let early_ns = start_ns.saturating_sub(shown_ns);
    let composed = u64::try_from(first.composition).unwrap_or(0);
    let ticks = |nanos: i64| {
        let ticks = (i128::from(nanos) * scale + NANOS_PER_SECOND / 2) / NANOS_PER_SECOND;
        u64::try_from(ticks).unwrap_or(0)
    };
    let skipped = composed.saturating_add(ticks(early_ns.max(0))).min(media);
    // The last frames in decode order may be shown after those that follow them.
    let latest = run.samples.iter().map(|sample| {
        sample.dts.saturating_add_signed(sample.composition.into()).saturating_add(sample.duration.into())
    });
    let shown = latest.max().unwrap_or(0).saturating_sub(first.dts).max(media).saturating_sub(skipped);
    let mut edits = Vec::new();
    if early_ns < -ROUNDING_NANOS {
        let wait = i128::from(early_ns.unsigned_abs()) * i128::from(MOVIE_TIMESCALE) / NANOS_PER_SECOND;
        let segment_duration = u64::try_from(wait).unwrap_or(u64::MAX);
        edits.push(ElstEntry { segment_duration, media_time: None, media_rate: 1.into() });
    }
    edits.push(ElstEntry {
        segment_duration: to_movie(shown),
        media_time: Some(skipped),
        media_rate: 1.into(),
    });
    edits
}

/// Runs of equal values, with their lengths.
fn counted<T: PartialEq + Copy, E>(values: impl Iterator<Item = T>, entry: impl Fn(u32, T) -> E) -> Vec<E> {
    let mut runs: Vec<(u32, T)> = Vec::new();
    for value in values {
        match runs.last_mut() {
            Some((count, last)) if *last == value => *count += 1,
            _ => runs.push((1, value)),
        }
    }
    runs.into_iter().map(|(count, value)| entry(count, value)).collect()
}

fn chunk_lengths(chunks: &[(u32, u32)]) -> Vec<StscEntry> {
    let mut entries: Vec<StscEntry> = Vec::new();
    for ((_, count), first_chunk) in chunks.iter().zip(1..) {
        if entries.last().is_none_or(|last| last.samples_per_chunk != *count) {
            entries.push(StscEntry { first_chunk, samples_per_chunk: *count, sample_description_index: 1 });
        }
    }
    entries
}
