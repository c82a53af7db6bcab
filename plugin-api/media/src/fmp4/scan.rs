//! Scans files of these segments box by box: finds the end of the last complete box of a truncated file, and its duration.

use mp4_atom::{Decode, Moof, Moov};

use super::read::{NESTED_MAX, refuse_unknown_boxes};
use super::{Fmp4Error, SEGMENT_SAMPLES_MAX, TRACKS_MAX, VIDEO_TRACK_ID, ticks_to_nanos};

/// Sample flag (8.8.3.1): no decoder can start here.
const FLAG_NON_SYNC: u32 = 0x0001_0000;

/// Size of the longest box header, in bytes.
pub const BOX_HEADER_BYTES: usize = 16;

/// The header of a box (ISO/IEC 14496-12, 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoxHeader {
    /// Four characters.
    pub kind: [u8; 4],
    /// Bytes of the whole box, header included; at least those of the header.
    pub bytes: u64,
}

impl BoxHeader {
    /// Reads the first bytes of a box; `None` if there are too few bytes or the size is impossible. A box that extends to the
    /// end of the file (size 0) counts as impossible here.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (size, rest) = bytes.split_first_chunk::<4>()?;
        let (kind, rest) = rest.split_first_chunk::<4>()?;
        let (size, header) = match u32::from_be_bytes(*size) {
            1 => (u64::from_be_bytes(*rest.first_chunk::<8>()?), 16),
            size => (u64::from(size), 8),
        };
        (size >= header).then_some(BoxHeader { kind: *kind, bytes: size })
    }
}

/// The media of one fragment of a file of this crate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FragmentMedia {
    /// Decode time at the end of its video, or without video in it of its longest track, in nanoseconds.
    pub end_ns: i64,
    /// Its video begins with a keyframe; true for a file without video.
    pub is_keyframe: bool,
}

/// End of the fragments of a file, read from its `moov` and its `moof`s.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// Track id and ticks per second.
    tracks: Vec<(u32, u32)>,
    end_ns: i64,
}

impl Reach {
    /// Reads the tracks from a complete `moov`.
    ///
    /// # Errors
    /// [`Fmp4Error::Box`] if it cannot be read, [`Fmp4Error::Tracks`] if it has no track or too many.
    pub fn moov(&mut self, atom: &[u8]) -> Result<(), Fmp4Error> {
        refuse_unknown_boxes(atom, NESTED_MAX)?;
        let moov = Moov::decode(&mut &atom[..])?;
        if moov.trak.is_empty() || moov.trak.len() > TRACKS_MAX {
            return Err(Fmp4Error::Tracks);
        }
        self.tracks = moov.trak.iter().map(|trak| (trak.tkhd.track_id, trak.mdia.mdhd.timescale)).collect();
        Ok(())
    }

    /// Reads the end of the samples from a complete `moof`.
    ///
    /// # Errors
    /// [`Fmp4Error::Box`] if it cannot be read, [`Fmp4Error::Tracks`] if it has a track that `moov` does not have,
    /// [`Fmp4Error::TooLarge`] for a run with over [`SEGMENT_SAMPLES_MAX`] samples.
    pub fn moof(&mut self, atom: &[u8]) -> Result<FragmentMedia, Fmp4Error> {
        refuse_unknown_boxes(atom, NESTED_MAX)?;
        let moof = Moof::decode(&mut &atom[..])?;
        let (mut video, mut longest_ns) = (None, 0);
        for traf in &moof.traf {
            // A hostile run may say four thousand million samples in a few bytes.
            let samples: usize = traf.trun.iter().fold(0, |all, trun| all.saturating_add(trun.samples.len()));
            if samples > SEGMENT_SAMPLES_MAX {
                return Err(Fmp4Error::TooLarge { samples, bytes: 0 });
            }
            let known = self.tracks.iter().find(|(id, _)| *id == traf.tfhd.track_id);
            let (_, timescale) = known.ok_or(Fmp4Error::Tracks)?;
            let usual = traf.tfhd.default_sample_duration.unwrap_or(0);
            let samples = traf.trun.iter().flat_map(|trun| trun.samples.iter());
            let ticks: u64 = samples.map(|sample| u64::from(sample.duration.unwrap_or(usual))).sum();
            let start = traf.tfdt.as_ref().map_or(0, |tfdt| tfdt.base_media_decode_time);
            let end_ns = ticks_to_nanos(start.saturating_add(ticks), *timescale);
            self.end_ns = self.end_ns.max(end_ns);
            longest_ns = longest_ns.max(end_ns);
            let first = traf.trun.iter().find_map(|trun| trun.samples.iter().next());
            if let Some(first) = first.filter(|_| traf.tfhd.track_id == VIDEO_TRACK_ID) {
                let flags = first.flags.or(traf.tfhd.default_sample_flags).unwrap_or(0);
                video = Some(FragmentMedia { end_ns, is_keyframe: flags & FLAG_NON_SYNC == 0 });
            }
        }
        let has_video = self.tracks.iter().any(|(id, _)| *id == VIDEO_TRACK_ID);
        Ok(video.unwrap_or(FragmentMedia { end_ns: longest_ns, is_keyframe: !has_video }))
    }

    /// Decode time at the end of the longest track, in nanoseconds.
    pub fn end_ns(&self) -> i64 {
        self.end_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn box_headers_are_read_and_impossible_ones_refused() {
        let header = |kind: &[u8; 4], bytes| Some(BoxHeader { kind: *kind, bytes });
        let table: [(&[u8], _); 7] = [
            (b"\0\0\0\x08free", header(b"free", 8)),
            (b"\0\0\0\x20mdatxx", header(b"mdat", 32)),
            (b"\0\0\0\x01mdat\0\0\0\x01\0\0\0\0", header(b"mdat", 1 << 32)),
            (b"\0\0\0\x01mdat\0\0\0\0\0\0\0\x0f", None),
            (b"\0\0\0\x01mdat\0\0\0", None),
            (b"\0\0\0\x07free", None),
            (b"\0\0\0\0fr", None),
        ];
        for (bytes, expected) in table {
            assert_eq!(BoxHeader::parse(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn unreadable_boxes_are_errors() {
        let mut reach = Reach::default();
        assert!(reach.moov(b"\0\0\0\x10moovxxxxxxxx").is_err());
        assert!(reach.moof(b"\0\0\0\x09moofx").is_err());
        assert_eq!(reach.end_ns(), 0);
    }
}
