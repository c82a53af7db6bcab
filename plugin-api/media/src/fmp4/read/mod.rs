//! Reads initialization segments and media segments as written here back into packets.
//!
//! The bytes may be anything: what is outside the limits or the bytes is an error, and nothing is allocated by a count that is only
//! claimed. Boxes of no use are passed over.

use bytes::Bytes;
use mp4_atom::{
    Atom as _, Codec as SampleEntry, Decode as _, Dops, Moof, Moov, OpusChannelMapping, Tfhd, Traf, TrunEntry,
};

use super::{
    BoxHeader, Fmp4Error, RECORD_BYTES_MAX, SEGMENT_BYTES_MAX, SEGMENT_SAMPLES_MAX, TRACKS_MAX, TrackConfig,
    init_segment, ticks_to_nanos,
};
use crate::{Codec, Kind, Packet};

/// Longest initialization segment that is read, in bytes.
pub const INIT_BYTES_MAX: usize = 4 * RECORD_BYTES_MAX;
/// Longest media segment that is read, in bytes: the payload and as much again as its samples can take in heads.
pub const READ_BYTES_MAX: usize = SEGMENT_BYTES_MAX + TRACKS_MAX * SEGMENT_SAMPLES_MAX * 32;
/// Sample flag (8.8.3.1): no decoder can start here.
const FLAG_NON_SYNC: u32 = 0x0001_0000;
const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Reads the segments of one configuration.
#[derive(Debug, Clone)]
pub struct Reader {
    tracks: Vec<Track>,
}

#[derive(Debug, Clone)]
struct Track {
    id: u32,
    timescale: u32,
    entry: SampleEntry,
    codec: Codec,
    record: Bytes,
}

/// What a media segment holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadSegment {
    /// Access units by rising decode time; within a track in their order.
    pub packets: Vec<Packet>,
    /// Decode time at which the first track begins, in nanoseconds.
    pub start_ns: i64,
    /// Decode time at which the last track ends, in nanoseconds.
    pub end_ns: i64,
}

impl Reader {
    /// Learns the tracks from an initialization segment.
    ///
    /// # Errors
    /// [`Fmp4Error::Tracks`] for no track, too many or unknown ones, [`Fmp4Error::Box`] for bytes that cannot be read.
    pub fn new(init: &[u8]) -> Result<Self, Fmp4Error> {
        if init.len() > INIT_BYTES_MAX {
            return Err(Fmp4Error::Box(format!("an initialization segment of {} bytes", init.len())));
        }
        let moov = boxes(init).find(|(kind, ..)| kind == b"moov").ok_or(Fmp4Error::Tracks)?;
        let moov = &init[moov.1..moov.2];
        only_ours(moov, NESTED_MAX)?;
        let moov = Moov::decode(&mut &moov[..])?;
        if moov.trak.is_empty() || moov.trak.len() > TRACKS_MAX {
            return Err(Fmp4Error::Tracks);
        }
        let tracks = moov.trak.into_iter().map(|mut trak| {
            let entry = trak.mdia.minf.stbl.stsd.codecs.pop().ok_or(Fmp4Error::Tracks)?;
            let (codec, record) = record(&entry)?;
            let timescale = trak.mdia.mdhd.timescale;
            Ok(Track { id: trak.tkhd.track_id, timescale, entry, codec, record })
        });
        Ok(Reader { tracks: tracks.collect::<Result<_, Fmp4Error>>()? })
    }

    /// Gives the track that was made from `record` this record: one that is read back says the same, but not always in the same bytes.
    pub fn know(&mut self, codec: Codec, record: &Bytes) {
        let made = TrackConfig::parse(codec, record).and_then(|track| init_segment(&[&track]));
        let Ok(made) = made.and_then(|init| Reader::new(&init)) else { return };
        let same = |track: &&mut Track| made.tracks.iter().any(|made| made.entry == track.entry);
        if let Some(track) = self.tracks.iter_mut().find(same) {
            track.record = record.clone();
        }
    }

    /// The configuration records, video first. They have no time of their own: `dts_ns` is what it is to be.
    pub fn configs(&self, dts_ns: i64) -> Vec<Packet> {
        let config = |track: &Track| Packet {
            dts_ns,
            pts_ns: dts_ns,
            ..Packet::configuration(track.codec, track.record.clone())
        };
        self.tracks.iter().map(config).collect()
    }

    /// Reads a media segment, whole or in parts one after the other. `offset_ns` is added to all times. Payloads are slices of `bytes`.
    ///
    /// # Errors
    /// [`Fmp4Error::TooLarge`], [`Fmp4Error::Tracks`] for a track that the initialization segment does not have and for no samples,
    /// [`Fmp4Error::Box`] for bytes that cannot be read.
    pub fn segment(&self, bytes: &Bytes, offset_ns: i64) -> Result<ReadSegment, Fmp4Error> {
        if bytes.len() > READ_BYTES_MAX {
            return Err(Fmp4Error::TooLarge { samples: 0, bytes: bytes.len() });
        }
        let mut read = ReadSegment { packets: Vec::new(), start_ns: i64::MAX, end_ns: i64::MIN };
        for (_, from, to) in boxes(bytes).filter(|(kind, ..)| kind == b"moof") {
            only_ours(&bytes[from..to], NESTED_MAX)?;
            let moof = Moof::decode(&mut &bytes[from..to])?;
            for traf in &moof.traf {
                let track = self.tracks.iter().find(|track| track.id == traf.tfhd.track_id);
                self.run(track.ok_or(Fmp4Error::Tracks)?, traf, from, bytes, offset_ns, &mut read)?;
            }
        }
        if read.packets.is_empty() {
            return Err(Fmp4Error::Tracks);
        }
        // Stable: what is decoded at the same time keeps the order of the tracks.
        read.packets.sort_by_key(|packet| packet.dts_ns);
        Ok(read)
    }

    fn run(
        &self,
        track: &Track,
        traf: &Traf,
        moof_at: usize,
        bytes: &Bytes,
        offset_ns: i64,
        read: &mut ReadSegment,
    ) -> Result<(), Fmp4Error> {
        let mut tick = traf.tfdt.as_ref().map_or(0, |tfdt| tfdt.base_media_decode_time);
        let time = |tick: u64| ticks_to_nanos(tick, track.timescale).saturating_add(offset_ns);
        read.start_ns = read.start_ns.min(time(tick));
        for trun in &traf.trun {
            let offset = trun.data_offset.and_then(|offset| usize::try_from(offset).ok());
            let mut at = offset.ok_or_else(outside)?.saturating_add(moof_at);
            for entry in trun.samples.iter() {
                if read.packets.len() >= TRACKS_MAX * SEGMENT_SAMPLES_MAX {
                    return Err(Fmp4Error::TooLarge { samples: read.packets.len() + 1, bytes: bytes.len() });
                }
                let Entry { duration, length, keyframe, apart } = Entry::of(&entry, &traf.tfhd);
                let end = at.checked_add(length).filter(|end| *end <= bytes.len()).ok_or_else(outside)?;
                let dts_ns = time(tick);
                let keyframe = keyframe && track.codec.kind() == Kind::Video;
                let pts_ns = dts_ns.saturating_add(signed_nanos(apart, track.timescale));
                let payload = bytes.slice(at..end);
                read.packets.push(Packet::media(track.codec, keyframe, dts_ns, pts_ns, payload));
                (at, tick) = (end, tick.saturating_add(duration));
            }
        }
        read.end_ns = read.end_ns.max(time(tick));
        Ok(())
    }
}

/// One sample, with what its fragment says of all.
struct Entry {
    duration: u64,
    length: usize,
    keyframe: bool,
    /// Presentation minus decode time in ticks.
    apart: i64,
}

impl Entry {
    fn of(entry: &TrunEntry, usual: &Tfhd) -> Self {
        let or = |own: Option<u32>, usual: Option<u32>| own.or(usual).unwrap_or(0);
        Entry {
            duration: u64::from(or(entry.duration, usual.default_sample_duration)),
            length: or(entry.size, usual.default_sample_size) as usize,
            keyframe: or(entry.flags, usual.default_sample_flags) & FLAG_NON_SYNC == 0,
            apart: entry.cts.unwrap_or(0),
        }
    }
}

fn outside() -> Fmp4Error {
    Fmp4Error::Box("a sample lies outside the segment".to_owned())
}

fn signed_nanos(ticks: i64, timescale: u32) -> i64 {
    let nanos = i128::from(ticks) * NANOS_PER_SECOND;
    let half = i128::from(timescale) / 2 * i128::from(ticks.signum());
    i64::try_from((nanos + half) / i128::from(timescale.max(1))).unwrap_or(0)
}

/// Kind, first byte and end of each whole box at the top.
fn boxes(bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let header = BoxHeader::parse(bytes.get(at..)?)?;
        let end = usize::try_from(header.bytes).ok().and_then(|length| at.checked_add(length))?;
        let from = std::mem::replace(&mut at, end);
        (end <= bytes.len()).then_some((header.kind, from, end))
    })
}

/// Boxes in boxes that [`init_segment`] and `media_segment` write.
const CONTAINERS: [&[u8; 4]; 9] =
    [b"moov", b"mvex", b"trak", b"mdia", b"minf", b"dinf", b"stbl", b"moof", b"traf"];
/// What they write into those.
const LEAVES: [&[u8; 4]; 17] = [
    b"mvhd", b"trex", b"tkhd", b"mdhd", b"hdlr", b"vmhd", b"smhd", b"dref", b"stsd", b"stts", b"stsc",
    b"stsz", b"stco", b"mfhd", b"tfhd", b"tfdt", b"trun",
];
/// How deep they do.
const NESTED_MAX: usize = 5;

/// Refuses every box that we do not write: some have counts of things without a size, for each of which a reader would allocate.
fn only_ours(bytes: &[u8], depth: usize) -> Result<(), Fmp4Error> {
    let mut read = 0;
    for (kind, from, to) in boxes(bytes) {
        let is_container = CONTAINERS.contains(&&kind);
        if (is_container && depth == 0) || !(is_container || LEAVES.contains(&&kind)) {
            return Err(Fmp4Error::Box(format!("a box that is not ours: {}", kind.escape_ascii())));
        }
        if is_container {
            // A size of 64 bits has eight bytes more before the content.
            let header = if bytes[from..].starts_with(&[0, 0, 0, 1]) { 16 } else { 8 };
            only_ours(&bytes[from + header..to], depth - 1)?;
        }
        read = to;
    }
    if read == bytes.len() { Ok(()) } else { Err(Fmp4Error::Box("bytes that are no box".into())) }
}

/// The configuration record that a sample entry was made from.
fn record(entry: &SampleEntry) -> Result<(Codec, Bytes), Fmp4Error> {
    let mut body = Vec::new();
    let codec = match entry {
        SampleEntry::Avc1(entry) => entry.avcc.encode_body(&mut body).map(|()| Codec::H264)?,
        SampleEntry::Hvc1(entry) => entry.hvcc.encode_body(&mut body).map(|()| Codec::Hevc)?,
        SampleEntry::Av01(entry) => entry.av1c.encode_body(&mut body).map(|()| Codec::Av1)?,
        SampleEntry::Mp4a(entry) => {
            let specific = &entry.esds.es_desc.dec_config.dec_specific;
            body.extend_from_slice(specific.as_ref().map_or(&[][..], |specific| &specific.raw));
            Codec::Aac
        }
        SampleEntry::Opus(entry) => {
            opus_head(&entry.dops, &mut body);
            Codec::Opus
        }
        _ => return Err(Fmp4Error::Unsupported("a codec that is not written here")),
    };
    if body.len() > RECORD_BYTES_MAX {
        return Err(Fmp4Error::RecordTooLong(body.len()));
    }
    Ok((codec, body.into()))
}

/// The reverse of what makes `dOps`: little-endian, with a magic and a version.
fn opus_head(dops: &Dops, head: &mut Vec<u8>) {
    head.extend_from_slice(b"OpusHead\x01");
    head.push(dops.output_channel_count);
    head.extend_from_slice(&dops.pre_skip.to_le_bytes());
    head.extend_from_slice(&dops.input_sample_rate.to_le_bytes());
    head.extend_from_slice(&dops.output_gain.to_le_bytes());
    match &dops.channel_mapping {
        None => head.push(0),
        Some(OpusChannelMapping { family, stream_count, coupled_count, channel_mapping }) => {
            head.extend_from_slice(&[*family, *stream_count, *coupled_count]);
            head.extend_from_slice(channel_mapping);
        }
    }
}

#[cfg(test)]
mod tests;
