//! Media segments: `styp`, `moof` and `mdat` (ISO/IEC 14496-12, 8.16.2, 8.8.4 to 8.8.8, 8.1.1).

use bytes::Bytes;
use mp4_atom::{Encode, FourCC, Mfhd, Moof, Styp, Tfdt, Tfhd, Traf, Trun, TrunEntry};

use super::{Fmp4Error, SEGMENT_BYTES_MAX, SEGMENT_SAMPLES_MAX, TRACKS_MAX};

/// Sample flags (8.8.3.1): depends on no other sample.
const FLAGS_SYNC: u32 = 0x0200_0000;
/// Sample flags: depends on others, is no sync sample.
const FLAGS_NON_SYNC: u32 = 0x0101_0000;
/// Bytes of the header of `mdat`.
const MDAT_HEADER_BYTES: usize = 8;

/// One access unit of a run.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Duration in ticks of the track.
    pub duration: u32,
    /// Presentation minus decode time in ticks; may be negative.
    pub composition: i32,
    /// A decoder can start here; true for all audio.
    pub sync: bool,
    /// Access unit; shared, copied once into the segment.
    pub payload: Bytes,
}

/// The samples of one track in one segment.
#[derive(Debug, Clone, Default)]
pub struct TrackRun {
    /// [`super::VIDEO_TRACK_ID`] or [`super::AUDIO_TRACK_ID`].
    pub track_id: u32,
    /// Decode time of the first sample in ticks of the track.
    pub decode_time: u64,
    /// Samples in decode order.
    pub samples: Vec<Sample>,
}

impl TrackRun {
    /// Decode time at the end of the last sample, in ticks of the track.
    pub fn end(&self) -> u64 {
        self.samples.iter().fold(self.decode_time, |at, sample| at.saturating_add(sample.duration.into()))
    }

    /// Removes and returns the samples that start before `tick`, in ticks of the track.
    #[must_use]
    pub fn take_before(&mut self, tick: u64) -> TrackRun {
        let mut begin = self.decode_time;
        let count = self.samples.iter().take_while(|sample| {
            let is_before = begin < tick;
            begin = begin.saturating_add(sample.duration.into());
            is_before
        });
        let rest = self.samples.split_off(count.count());
        let samples = std::mem::replace(&mut self.samples, rest);
        let taken = TrackRun { track_id: self.track_id, decode_time: self.decode_time, samples };
        self.decode_time = taken.end();
        taken
    }

    fn payload_bytes(&self) -> usize {
        self.samples.iter().map(|sample| sample.payload.len()).sum()
    }

    fn traf(&self, data_offset: i32) -> Traf {
        let durations = common(self.samples.iter().map(|sample| sample.duration));
        let flags = common(self.samples.iter().map(flags));
        let composed = self.samples.iter().any(|sample| sample.composition != 0);
        let entry = |sample: &Sample| TrunEntry {
            duration: durations.is_none().then_some(sample.duration),
            // The limit on segment bytes keeps this exact.
            size: Some(sample.payload.len() as u32),
            flags: flags.is_none().then(|| self::flags(sample)),
            cts: composed.then(|| i64::from(sample.composition)),
        };
        Traf {
            tfhd: Tfhd {
                track_id: self.track_id,
                default_sample_duration: durations,
                default_sample_flags: flags,
                default_base_is_moof: true,
                ..Tfhd::default()
            },
            tfdt: Some(Tfdt { base_media_decode_time: self.decode_time }),
            trun: vec![Trun {
                data_offset: Some(data_offset),
                samples: self.samples.iter().map(entry).collect::<Vec<_>>().into(),
            }],
            ..Traf::default()
        }
    }
}

fn flags(sample: &Sample) -> u32 {
    if sample.sync { FLAGS_SYNC } else { FLAGS_NON_SYNC }
}

/// The value all items share.
fn common(mut items: impl Iterator<Item = u32>) -> Option<u32> {
    let first = items.next()?;
    items.all(|item| item == first).then_some(first)
}

/// One segment of one fragment, as [`write_fragment`] writes it.
///
/// # Errors
/// Those of [`write_fragment`].
pub fn media_segment(sequence: u32, runs: &[TrackRun]) -> Result<Bytes, Fmp4Error> {
    let mut segment = Vec::new();
    write_fragment(&mut segment, sequence, runs)?;
    Ok(Bytes::from(segment))
}

/// Appends a fragment to `segment`. Runs without samples are skipped; payloads have the order of the runs. Composition
/// offsets are signed (`trun` version 1); `sequence` is the fragment number of `mfhd`.
///
/// # Errors
/// [`Fmp4Error::Tracks`] without samples or with more than [`TRACKS_MAX`] runs, [`Fmp4Error::TooLarge`].
pub fn write_fragment(segment: &mut Vec<u8>, sequence: u32, runs: &[TrackRun]) -> Result<(), Fmp4Error> {
    let runs: Vec<&TrackRun> = runs.iter().filter(|run| !run.samples.is_empty()).collect();
    if runs.is_empty() || runs.len() > TRACKS_MAX {
        return Err(Fmp4Error::Tracks);
    }
    let samples = runs.iter().map(|run| run.samples.len()).max().unwrap_or(0);
    let bytes: usize = runs.iter().map(|run| run.payload_bytes()).sum();
    if samples > SEGMENT_SAMPLES_MAX || bytes > SEGMENT_BYTES_MAX {
        return Err(Fmp4Error::TooLarge { samples, bytes });
    }
    let mut head = Vec::with_capacity(1024);
    let brand = FourCC::new(b"msdh");
    Styp { major_brand: brand, minor_version: 0, compatible_brands: vec![brand] }.encode(&mut head)?;
    let styp_bytes = head.len();
    // The size of moof does not depend on its offsets: it is written once to measure it, then with the offsets.
    moof(sequence, &runs, 0).encode(&mut head)?;
    let moof_bytes = head.len() - styp_bytes;
    head.truncate(styp_bytes);
    moof(sequence, &runs, moof_bytes + MDAT_HEADER_BYTES).encode(&mut head)?;
    segment.reserve(head.len() + MDAT_HEADER_BYTES + bytes);
    segment.extend_from_slice(&head);
    segment.extend_from_slice(&((MDAT_HEADER_BYTES + bytes) as u32).to_be_bytes());
    segment.extend_from_slice(b"mdat");
    for sample in runs.iter().flat_map(|run| &run.samples) {
        segment.extend_from_slice(&sample.payload);
    }
    Ok(())
}

fn moof(sequence: u32, runs: &[&TrackRun], first_payload: usize) -> Moof {
    let mut offset = first_payload;
    let traf = |run: &&TrackRun| {
        let traf = run.traf(offset as i32);
        offset += run.payload_bytes();
        traf
    };
    Moof { mfhd: Mfhd { sequence_number: sequence }, traf: runs.iter().map(traf).collect() }
}
