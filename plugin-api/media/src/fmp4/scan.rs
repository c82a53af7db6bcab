//! Reads files made of these segments back, box by box: where a file that was cut off ends whole, and how long it is.

use mp4_atom::{Decode, Moof, Moov};

use super::{Fmp4Error, TRACKS_MAX, ticks_to_nanos};

/// Bytes that are enough for the header of any box.
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
    /// Reads the first bytes of a box; `None` when they are too few, or say an impossible size. A box that goes on to the end of
    /// the file (size 0) is impossible here.
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

/// How far the fragments of a file reach, learned from its `moov` and its `moof`s.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// Track id and ticks per second.
    tracks: Vec<(u32, u32)>,
    end_ns: i64,
}

impl Reach {
    /// Learns the tracks from a whole `moov`.
    ///
    /// # Errors
    /// [`Fmp4Error::Box`] when it cannot be read, [`Fmp4Error::Tracks`] when it has none or too many.
    pub fn moov(&mut self, atom: &[u8]) -> Result<(), Fmp4Error> {
        let moov = Moov::decode(&mut &atom[..])?;
        if moov.trak.is_empty() || moov.trak.len() > TRACKS_MAX {
            return Err(Fmp4Error::Tracks);
        }
        self.tracks = moov.trak.iter().map(|trak| (trak.tkhd.track_id, trak.mdia.mdhd.timescale)).collect();
        Ok(())
    }

    /// Learns from a whole `moof` where its samples end.
    ///
    /// # Errors
    /// [`Fmp4Error::Box`] when it cannot be read, [`Fmp4Error::Tracks`] when it has a track that `moov` does not.
    pub fn moof(&mut self, atom: &[u8]) -> Result<(), Fmp4Error> {
        let moof = Moof::decode(&mut &atom[..])?;
        for traf in &moof.traf {
            let known = self.tracks.iter().find(|(id, _)| *id == traf.tfhd.track_id);
            let (_, timescale) = known.ok_or(Fmp4Error::Tracks)?;
            let usual = traf.tfhd.default_sample_duration.unwrap_or(0);
            let samples = traf.trun.iter().flat_map(|trun| trun.samples.iter());
            let ticks: u64 = samples.map(|sample| u64::from(sample.duration.unwrap_or(usual))).sum();
            let start = traf.tfdt.as_ref().map_or(0, |tfdt| tfdt.base_media_decode_time);
            self.end_ns = self.end_ns.max(ticks_to_nanos(start.saturating_add(ticks), *timescale));
        }
        Ok(())
    }

    /// Decode time where the longest track ends, in nanoseconds.
    pub fn end_ns(&self) -> i64 {
        self.end_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_and_impossible_ones_refused() {
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
    fn what_cannot_be_read_is_an_error() {
        let mut reach = Reach::default();
        assert!(reach.moov(b"\0\0\0\x10moovxxxxxxxx").is_err());
        assert!(reach.moof(b"\0\0\0\x09moofx").is_err());
        assert_eq!(reach.end_ns(), 0);
    }
}
