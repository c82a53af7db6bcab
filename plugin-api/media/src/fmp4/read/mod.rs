//! Reads the initialization segments and media segments of this crate back into packets.
//!
//! The input is untrusted: values outside the limits or the bytes are errors, and no memory is allocated for a count
//! before its data is seen. Boxes that are not needed are skipped.

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
/// Longest media segment that is read, in bytes: the payload and the largest headers of its samples.
pub const READ_BYTES_MAX: usize = SEGMENT_BYTES_MAX + TRACKS_MAX * SEGMENT_SAMPLES_MAX * 32;
/// Sample flag (8.8.3.1): no decoder can start here.
const FLAG_NON_SYNC: u32 = 0x0001_0000;
const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Reads the segments of one initialization segment.
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

/// Contents of a media segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadSegment {
    /// Access units by rising decode time; those of one track stay in order.
    pub packets: Vec<Packet>,
    /// Earliest start of a track in decode time, in nanoseconds.
    pub start_ns: i64,
    /// Latest end of a track in decode time, in nanoseconds.
    pub end_ns: i64,
}

impl Reader {
    /// Reads the tracks from an initialization segment.
    ///
    /// # Errors
    /// [`Fmp4Error::Tracks`] for no track, too many or unknown ones, [`Fmp4Error::Box`] for bytes that cannot be read.
    pub fn new(init: &[u8]) -> Result<Self, Fmp4Error> {
        let tracks = read_moov(init)?.trak.into_iter().map(|mut trak| {
            let entry = trak.mdia.minf.stbl.stsd.codecs.pop().ok_or(Fmp4Error::Tracks)?;
            let (codec, record) = record(&entry)?;
            let timescale = trak.mdia.mdhd.timescale;
            Ok(Track { id: trak.tkhd.track_id, timescale, entry, codec, record })
        });
        Ok(Reader { tracks: tracks.collect::<Result<_, Fmp4Error>>()? })
    }

    /// Sets the original `record` on the track that was made from it: a record that is read back is equivalent, but not always
    /// byte for byte the same.
    pub fn set_record(&mut self, codec: Codec, record: &Bytes) {
        let made = TrackConfig::parse(codec, record).and_then(|track| init_segment(&[&track]));
        let Ok(made) = made.and_then(|init| Reader::new(&init)) else { return };
        let same = |track: &&mut Track| made.tracks.iter().any(|made| made.entry == track.entry);
        if let Some(track) = self.tracks.iter_mut().find(same) {
            track.record = record.clone();
        }
    }

    /// The codec configurations, video first. They have no time of their own; all get `dts_ns`.
    pub fn configs(&self, dts_ns: i64) -> Vec<Packet> {
        let config = |track: &Track| Packet {
            dts_ns,
            pts_ns: dts_ns,
            ..Packet::configuration(track.codec, track.record.clone())
        };
        self.tracks.iter().map(config).collect()
    }

    /// Reads a media segment, or its concatenated parts. `offset_ns` is added to all times. Payloads are slices of `bytes`.
    ///
    /// # Errors
    /// [`Fmp4Error::TooLarge`], [`Fmp4Error::Tracks`] for a track that is not in the initialization segment or if there are no
    /// samples, [`Fmp4Error::Box`] for bytes that cannot be read.
    pub fn segment(&self, bytes: &Bytes, offset_ns: i64) -> Result<ReadSegment, Fmp4Error> {
        if bytes.len() > READ_BYTES_MAX {
            return Err(Fmp4Error::TooLarge { samples: 0, bytes: bytes.len() });
        }
        let mut read = ReadSegment { packets: Vec::new(), start_ns: i64::MAX, end_ns: i64::MIN };
        for (_, from, to) in boxes(bytes).filter(|(kind, ..)| kind == b"moof") {
            let moof = read_moof(&bytes[from..to])?;
            for traf in &moof.traf {
                let track = self.tracks.iter().find(|track| track.id == traf.tfhd.track_id);
                self.run(track.ok_or(Fmp4Error::Tracks)?, traf, from, bytes, offset_ns, &mut read)?;
            }
        }
        if read.packets.is_empty() {
            return Err(Fmp4Error::Tracks);
        }
        // The sort is stable: packets with the same decode time keep the order of the tracks.
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
                let Entry { duration, length, keyframe, composition } = Entry::of(&entry, &traf.tfhd);
                let end = at.checked_add(length).filter(|end| *end <= bytes.len()).ok_or_else(outside)?;
                let dts_ns = time(tick);
                let keyframe = keyframe && track.codec.kind() == Kind::Video;
                let pts_ns = dts_ns.saturating_add(signed_nanos(composition, track.timescale));
                let payload = bytes.slice(at..end);
                read.packets.push(Packet::media(track.codec, keyframe, dts_ns, pts_ns, payload));
                (at, tick) = (end, tick.saturating_add(duration));
            }
        }
        read.end_ns = read.end_ns.max(time(tick));
        Ok(())
    }
}

/// The `moov` of an initialization segment.
pub(super) fn read_moov(init: &[u8]) -> Result<Moov, Fmp4Error> {
    if init.len() > INIT_BYTES_MAX {
        return Err(Fmp4Error::Box(format!("an initialization segment of {} bytes", init.len())));
    }
    let moov = boxes(init).find(|(kind, ..)| kind == b"moov").ok_or(Fmp4Error::Tracks)?;
    let moov = &init[moov.1..moov.2];
    refuse_unknown_boxes(moov, NESTED_MAX)?;
    let moov = Moov::decode(&mut &moov[..])?;
    if moov.trak.is_empty() || moov.trak.len() > TRACKS_MAX {
        return Err(Fmp4Error::Tracks);
    }
    Ok(moov)
}

/// A complete `moof`.
pub(super) fn read_moof(moof: &[u8]) -> Result<Moof, Fmp4Error> {
    refuse_unknown_boxes(moof, NESTED_MAX)?;
    Ok(Moof::decode(&mut &moof[..])?)
}

/// One sample, with the defaults of its fragment applied.
pub(super) struct Entry {
    pub(super) duration: u64,
    pub(super) length: usize,
    pub(super) keyframe: bool,
    /// Presentation minus decode time in ticks.
    pub(super) composition: i64,
}

impl Entry {
    pub(super) fn of(entry: &TrunEntry, usual: &Tfhd) -> Self {
        let or = |own: Option<u32>, usual: Option<u32>| own.or(usual).unwrap_or(0);
        Entry {
            duration: u64::from(or(entry.duration, usual.default_sample_duration)),
            length: or(entry.size, usual.default_sample_size) as usize,
            keyframe: or(entry.flags, usual.default_sample_flags) & FLAG_NON_SYNC == 0,
            composition: entry.cts.unwrap_or(0),
        }
    }
}

fn outside() -> Fmp4Error {
    Fmp4Error::Box("a sample lies outside the segment".to_owned())
}

/// Nanoseconds of ticks, rounded; `timescale` is in ticks per second.
pub(crate) fn signed_nanos(ticks: i64, timescale: u32) -> i64 {
    let nanos = i128::from(ticks) * NANOS_PER_SECOND;
    let half = i128::from(timescale) / 2 * i128::from(ticks.signum());
    i64::try_from((nanos + half) / i128::from(timescale.max(1))).unwrap_or(0)
}

/// Kind, offset and end of each complete top-level box.
pub(super) fn boxes(bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let header = BoxHeader::parse(bytes.get(at..)?)?;
        let end = usize::try_from(header.bytes).ok().and_then(|length| at.checked_add(length))?;
        let from = std::mem::replace(&mut at, end);
        (end <= bytes.len()).then_some((header.kind, from, end))
    })
}

/// Container boxes that [`init_segment`] and `media_segment` write.
const CONTAINERS: [&[u8; 4]; 9] =
    [b"moov", b"mvex", b"trak", b"mdia", b"minf", b"dinf", b"stbl", b"moof", b"traf"];
/// Boxes that they write into the containers.
const LEAVES: [&[u8; 4]; 17] = [
    b"mvhd", b"trex", b"tkhd", b"mdhd", b"hdlr", b"vmhd", b"smhd", b"dref", b"stsd", b"stts", b"stsc",
    b"stsz", b"stco", b"mfhd", b"tfhd", b"tfdt", b"trun",
];
/// Deepest nesting that they write.
pub(super) const NESTED_MAX: usize = 5;

/// Boxes that they write into sample entries.
const IN_ENTRIES: [&[u8; 4]; 5] = [b"avcC", b"hvcC", b"av1C", b"esds", b"dOps"];
/// Bytes of a sample entry before its boxes (ISO/IEC 14496-12, 8.5.2.2, 12.1.3.2 and 12.2.3.2), and of `stsd`.
const VIDEO_FIELDS: usize = 86;
const AUDIO_FIELDS: usize = 36;
const STSD_FIELDS: usize = 16;

/// Refuses sample entries in a complete `stsd`, and boxes in them, that this crate does not write: the decoder reads every
/// box that it knows there, to any depth.
pub(super) fn refuse_unknown_entries(stsd: &[u8]) -> Result<(), Fmp4Error> {
    let entries = after(stsd, STSD_FIELDS)?;
    let mut read = 0;
    for (kind, from, to) in boxes(entries) {
        let entry = &entries[from..to];
        let fields = match &kind {
            b"avc1" | b"hvc1" | b"av01" => VIDEO_FIELDS,
            // Another version has more fields.
            b"mp4a" | b"Opus" if entry.get(16..18) == Some(&[0, 0]) => AUDIO_FIELDS,
            _ => return Err(unexpected(kind)),
        };
        let inner = after(entry, fields)?;
        let mut end = 0;
        for (kind, _, to) in boxes(inner) {
            if !IN_ENTRIES.contains(&&kind) {
                return Err(unexpected(kind));
            }
            end = to;
        }
        whole(end, inner)?;
        read = to;
    }
    whole(read, entries)
}

/// What follows the first bytes of a box whose size has 32 bits.
fn after(atom: &[u8], fields: usize) -> Result<&[u8], Fmp4Error> {
    let is_long = atom.starts_with(&[0, 0, 0, 1]);
    atom.get(fields..).filter(|_| !is_long).ok_or(Fmp4Error::Tracks)
}

fn whole(read: usize, bytes: &[u8]) -> Result<(), Fmp4Error> {
    if read == bytes.len() { Ok(()) } else { Err(Fmp4Error::Box("bytes outside of boxes".into())) }
}

fn unexpected(kind: [u8; 4]) -> Fmp4Error {
    Fmp4Error::Box(format!("unexpected box {}", kind.escape_ascii()))
}

/// Refuses every box that this crate does not write: some have counts of zero-size entries, and the decoder would allocate for
/// each entry.
pub(super) fn refuse_unknown_boxes(bytes: &[u8], depth: usize) -> Result<(), Fmp4Error> {
    let mut read = 0;
    for (kind, from, to) in boxes(bytes) {
        let is_container = CONTAINERS.contains(&&kind);
        if (is_container && depth == 0) || !(is_container || LEAVES.contains(&&kind)) {
            return Err(unexpected(kind));
        }
        if &kind == b"stsd" {
            refuse_unknown_entries(&bytes[from..to])?;
        }
        if is_container {
            // A 64-bit size adds eight bytes to the header.
            let header = if bytes[from..].starts_with(&[0, 0, 0, 1]) { 16 } else { 8 };
            refuse_unknown_boxes(&bytes[from + header..to], depth - 1)?;
        }
        read = to;
    }
    whole(read, bytes)
}

/// The codec configuration from which a sample entry was made.
pub(super) fn record(entry: &SampleEntry) -> Result<(Codec, Bytes), Fmp4Error> {
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

/// Builds OpusHead from `dOps`: little-endian, with a magic and a version.
pub(crate) fn opus_head(dops: &Dops, head: &mut Vec<u8>) {
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
pub(super) mod tests;
