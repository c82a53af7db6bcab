//! Video of encoders that send parameter sets in band: access units of a byte stream (annex B), or temporal units of
//! AV1, become packets, and their parameter sets the codec configuration. Used for transport streams and WebRTC.

use bytes::Bytes;

use crate::codec::nal::{annex_b, push_prefixed};
use crate::codec::{CodecError, PARAMETER_SETS_MAX, av1, avc, hevc};
use crate::rtmp::limits::CONFIG_BYTES_MAX;
use crate::{Codec, Packet};

/// Longest parameter set that is taken from an access unit, in bytes. Test: `ts::tests::limits`.
pub const PARAMETER_SET_BYTES_MAX: usize = 4096;

/// Bytes of parameter sets that one reader holds at most.
pub const HELD_BYTES_MAX: usize = 3 * PARAMETER_SETS_MAX * PARAMETER_SET_BYTES_MAX;

/// Memory for longer prefixes: a start code of three bytes becomes a length of four.
const SPARE_BYTES: usize = 64;

/// Kinds of parameter sets, in the order of a codec configuration. AV1 has a sequence header alone, which is an [`Sps`](Self::Sps).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    Vps,
    Sps,
    Pps,
}

const SETS: [Set; 3] = [Set::Vps, Set::Sps, Set::Pps];

/// What a NAL unit is for this reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nal {
    Set(Set),
    Delimiter,
    /// A slice of a frame at which decoding can start.
    Key,
    /// Supplemental information of H.264, which can say that decoding can start here.
    Information,
    Other,
}

fn kind(codec: Codec, nal: &[u8]) -> Nal {
    if codec == Codec::Hevc {
        return match hevc::nal_type(nal) {
            hevc::NAL_VPS => Nal::Set(Set::Vps),
            hevc::NAL_SPS => Nal::Set(Set::Sps),
            hevc::NAL_PPS => Nal::Set(Set::Pps),
            hevc::NAL_DELIMITER => Nal::Delimiter,
            other if hevc::NAL_RANDOM_ACCESS.contains(&other) => Nal::Key,
            _ => Nal::Other,
        };
    }
    match avc::nal_type(nal) {
        avc::NAL_SPS => Nal::Set(Set::Sps),
        avc::NAL_PPS => Nal::Set(Set::Pps),
        avc::NAL_DELIMITER => Nal::Delimiter,
        avc::NAL_IDR => Nal::Key,
        avc::NAL_SEI => Nal::Information,
        _ => Nal::Other,
    }
}

/// An access unit with length prefixes, and what was taken out of it.
#[derive(Debug)]
struct Unit<'a> {
    payload: Vec<u8>,
    sets: Vec<(Set, &'a [u8])>,
    keyframe: bool,
}

impl<'a> Unit<'a> {
    /// `None` if it is broken.
    fn read(codec: Codec, bytes: &'a [u8]) -> Option<Self> {
        if codec != Codec::Av1 {
            return Some(Self::of_byte_stream(codec, bytes));
        }
        let unit = av1::TemporalUnit::read(bytes)?;
        if unit.sequence_header.is_some_and(|header| header.len() > PARAMETER_SET_BYTES_MAX) {
            return None;
        }
        // A header alone changes nothing: decoders start with a keyframe.
        let header = unit.sequence_header.filter(|_| unit.keyframe);
        let sets = header.map(|header| (Set::Sps, header)).into_iter().collect();
        Some(Unit { payload: unit.sample, sets, keyframe: unit.keyframe })
    }

    fn of_byte_stream(codec: Codec, bytes: &'a [u8]) -> Self {
        let payload = Vec::with_capacity(bytes.len() + SPARE_BYTES);
        let mut unit = Unit { payload, sets: Vec::new(), keyframe: false };
        let mut has_sps = false;
        let mut recovers = false;
        for nal in annex_b(bytes) {
            let kind = kind(codec, nal);
            match kind {
                Nal::Set(set) => {
                    has_sps |= set == Set::Sps;
                    if unit.sets.len() < PARAMETER_SETS_MAX && nal.len() <= PARAMETER_SET_BYTES_MAX {
                        unit.sets.push((set, nal));
                    }
                }
                Nal::Delimiter => {}
                Nal::Key | Nal::Information | Nal::Other => {
                    unit.keyframe |= kind == Nal::Key;
                    recovers |= kind == Nal::Information && avc::is_recovery_point(nal);
                    push_prefixed(&mut unit.payload, nal);
                }
            }
        }
        // Open GOPs of H.264: parameter sets in front say that a decoder may start here.
        unit.keyframe |= has_sps && recovers;
        unit
    }
}

/// The parameter sets that the stream has sent.
#[derive(Debug, Default)]
struct ParameterSets {
    lists: [Vec<Vec<u8>>; 3],
}

impl ParameterSets {
    /// Takes the sets of an access unit, and returns whether something changed. Sets with a sequence parameter set
    /// replace those of their kind; others replace the one with their number.
    fn take(&mut self, codec: Codec, found: &[(Set, &[u8])]) -> bool {
        let has_sps = found.iter().any(|(set, _)| *set == Set::Sps);
        let mut changed = false;
        for (set, list) in SETS.into_iter().zip(&mut self.lists) {
            let mut fresh: Vec<&[u8]> = Vec::new();
            for (_, nal) in found.iter().filter(|(other, _)| *other == set) {
                if !fresh.contains(nal) {
                    fresh.push(*nal);
                }
            }
            if fresh.is_empty() || *list == fresh {
                continue;
            }
            if has_sps {
                *list = fresh.into_iter().map(<[u8]>::to_vec).collect();
                changed = true;
            } else {
                changed |= fresh.into_iter().fold(false, |changed, nal| put(codec, set, list, nal) | changed);
            }
        }
        changed
    }

    fn record(&self, codec: Codec) -> Result<Vec<u8>, CodecError> {
        let [vps, sps, pps] = &self.lists;
        match codec {
            Codec::Hevc => hevc::record(vps, sps, pps),
            Codec::Av1 => av1::record(sps.first().map_or(&[], Vec::as_slice)),
            _ => avc::record(sps, pps),
        }
    }

    fn held_bytes(&self) -> usize {
        self.lists.iter().flatten().map(Vec::len).sum()
    }
}

/// Puts a set in place of the one with its number, or behind the others; returns whether something changed.
fn put(codec: Codec, set: Set, list: &mut Vec<Vec<u8>>, nal: &[u8]) -> bool {
    let id = |nal: &[u8]| match (codec, set) {
        (Codec::Hevc, Set::Vps) => hevc::vps_id(nal),
        (Codec::Hevc, _) => hevc::pps_id(nal),
        _ => avc::pps_id(nal),
    };
    let number = id(nal);
    match list.iter().position(|old| id(old) == number) {
        Some(at) if list[at] == nal => false,
        Some(at) => {
            list[at] = nal.to_vec();
            true
        }
        None => {
            let has_room = list.len() < PARAMETER_SETS_MAX;
            if has_room {
                list.push(nal.to_vec());
            }
            has_room
        }
    }
}

/// Times of an access unit in nanoseconds, on the timeline of its encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// When it is shown.
    pub pts_ns: i64,
    /// When it is decoded.
    pub dts_ns: i64,
}

/// Reads the access units of a video stream of H.264 or HEVC, or the temporal units of one of AV1.
#[derive(Debug)]
pub struct VideoReader {
    codec: Codec,
    sets: ParameterSets,
    /// The newest codec configuration.
    record: Option<Bytes>,
    /// It was not given yet.
    is_new: bool,
    /// Nothing is given before the next keyframe.
    is_waiting: bool,
    /// Frames before the next one are missing.
    is_cut: bool,
}

impl VideoReader {
    /// Nothing is given before the first keyframe.
    pub fn new(codec: Codec) -> Self {
        let sets = ParameterSets::default();
        VideoReader { codec, sets, record: None, is_new: false, is_waiting: true, is_cut: false }
    }

    /// Media is missing: nothing is given before the next keyframe, which has [`Packet::discontinuity`].
    pub fn lost(&mut self) {
        self.is_waiting = true;
        self.is_cut = true;
    }

    /// Whether nothing is given before a keyframe comes.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Bytes in memory.
    pub fn held_bytes(&self) -> usize {
        self.sets.held_bytes()
    }

    /// Reads an access unit, and appends its packet, after a new codec configuration. Without times, or if it is broken,
    /// its frame is lost. Returns false if the frame was left out.
    pub fn read(&mut self, times: Option<Times>, unit: &[u8], packets: &mut Vec<Packet>) -> bool {
        let Some(unit) = Unit::read(self.codec, unit) else {
            self.lost();
            return false;
        };
        if self.sets.take(self.codec, &unit.sets) {
            self.renew();
        }
        if unit.payload.is_empty() {
            return true;
        }
        let starts = unit.keyframe && self.record.is_some();
        let Some(times) = times.filter(|_| starts || !self.is_waiting) else {
            self.lost();
            return false;
        };
        self.is_waiting = false;
        if std::mem::take(&mut self.is_new)
            && let Some(record) = &self.record
        {
            packets.push(Packet::configuration(self.codec, record.clone()));
        }
        let discontinuity = std::mem::take(&mut self.is_cut);
        let payload = Bytes::from(unit.payload);
        let packet = Packet::media(self.codec, unit.keyframe, times.dts_ns, times.pts_ns, payload);
        packets.push(Packet { discontinuity, ..packet });
        true
    }

    /// Makes the codec configuration again. Sets that give none leave the one before.
    fn renew(&mut self) {
        let record = self.sets.record(self.codec).ok().filter(|record| record.len() <= CONFIG_BYTES_MAX);
        let Some(record) = record.filter(|record| self.record.as_ref().is_none_or(|last| last != record))
        else {
            return;
        };
        self.record = Some(Bytes::from(record));
        self.is_new = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fmp4::tests::{AV1, AV1_PQ};
    use crate::testing::hex;

    #[test]
    fn av1_goes_on_at_a_keyframe_behind_a_broken_unit_and_changes_with_its_header() {
        let [first, second] = [AV1, AV1_PQ].map(|record| hex(record)[4..].to_vec());
        let (key, inter) = ([0x32, 2, 0x10, 7], [0x32, 2, 0x30, 7]);
        let [start, other] = [&first, &second].map(|header| [&header[..], &key].concat());
        // A header that is too long, because of what follows its end.
        let mut long = vec![0x0a, 0x80, 0x40];
        long.extend(first[2..].iter().copied().chain(std::iter::repeat(0)).take(8_192));
        long.extend(key);
        let mut reader = VideoReader::new(Codec::Av1);
        let mut read = |unit: &[u8]| {
            let mut packets = Vec::new();
            let taken = reader.read(Some(Times { pts_ns: 0, dts_ns: 0 }), unit, &mut packets);
            let marks =
                packets.iter().map(|packet| (packet.is_config(), packet.keyframe, packet.discontinuity));
            assert!(reader.held_bytes() <= PARAMETER_SET_BYTES_MAX);
            (taken, marks.collect::<Vec<_>>())
        };
        let frame = |keyframe, cut| (false, keyframe, cut);
        let config = (true, false, false);
        assert_eq!(read(&inter), (false, vec![]), "before a keyframe");
        assert_eq!(read(&start), (true, vec![config, frame(true, true)]));
        assert_eq!(read(&[]), (true, vec![]), "without a frame");
        assert_eq!(read(&second), (true, vec![]), "a header alone");
        assert_eq!(read(&inter), (true, vec![frame(false, false)]));
        for broken in [&[0x80][..], &long] {
            assert_eq!(read(broken), (false, vec![]));
            assert_eq!(read(&inter), (false, vec![]));
            assert_eq!(read(&start), (true, vec![frame(true, true)]));
        }
        assert_eq!(read(&other), (true, vec![config, frame(true, false)]));
    }
}
