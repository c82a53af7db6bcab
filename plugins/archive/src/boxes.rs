//! Walks the boxes of a recording: finds its fragments, and the end of the last whole one, because a crash may have left
//! half a fragment.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use satcast_media::fmp4::{BOX_HEADER_BYTES, BoxHeader, FragmentMedia, Reach};
use satcast_plugin_api::driver::Fragment;

/// Largest `moov` or `moof` that is read into memory; this driver writes about 100 KB at most.
const HEAD_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The whole part of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Whole {
    /// Bytes up to the end of the last whole fragment; 0 when there is none.
    pub(crate) bytes: u64,
    /// Duration in milliseconds.
    pub(crate) duration_ms: u64,
    /// Bytes of the initialization segment.
    pub(crate) init_bytes: u64,
    pub(crate) fragments: Vec<Fragment>,
}

/// The position in a file whose boxes are taken one after the other. No I/O.
#[derive(Debug, Clone, Default)]
pub(crate) struct Walk {
    reach: Reach,
    /// Bytes of the initialization segment, once it was taken.
    init_bytes: u64,
    /// The next box begins here.
    at: u64,
    /// End of the last fragment, in bytes and microseconds.
    end: u64,
    end_us: u64,
    media: Option<FragmentMedia>,
}

/// Something in the file that this driver does not write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Torn;

impl Walk {
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    pub(crate) fn init_bytes(&self) -> u64 {
        self.init_bytes
    }

    /// Continues behind a fragment that is known. The initialization segment must have been taken.
    pub(crate) fn skip(&mut self, last: &Fragment) {
        (self.at, self.end, self.end_us) = (last.end(), last.end(), last.end_us());
    }

    /// Whether the content of a box is needed.
    pub(crate) fn needs(header: BoxHeader) -> bool {
        matches!(&header.kind, b"moov" | b"moof")
    }

    /// Takes the next box, with its bytes if they are needed; gives the fragment that it ends.
    pub(crate) fn take(&mut self, header: BoxHeader, atom: &[u8]) -> Result<Option<Fragment>, Torn> {
        let at = self.at.checked_add(header.bytes).ok_or(Torn)?;
        let fragment = match &header.kind {
            b"ftyp" | b"styp" => None,
            b"moov" if self.init_bytes == 0 => {
                self.reach.moov(atom).map_err(|_| Torn)?;
                (self.init_bytes, self.end) = (at, at);
                None
            }
            b"moof" => {
                self.media = Some(self.reach.moof(atom).map_err(|_| Torn)?);
                None
            }
            b"mdat" => Some(self.fragment(at)?),
            _ => return Err(Torn),
        };
        self.at = at;
        Ok(fragment)
    }

    fn fragment(&mut self, end: u64) -> Result<Fragment, Torn> {
        let media = self.media.take().ok_or(Torn)?;
        let until_us = u64::try_from(media.end_ns / 1000).map_err(|_| Torn)?.max(self.end_us);
        let fragment = Fragment {
            offset: self.end,
            bytes: u32::try_from(end - self.end).map_err(|_| Torn)?,
            start_us: self.end_us,
            duration_us: u32::try_from(until_us - self.end_us).map_err(|_| Torn)?,
            is_keyframe: media.is_keyframe,
        };
        (self.end, self.end_us) = (end, until_us);
        Ok(fragment)
    }

    /// Takes the boxes at the beginning of `bytes`, which begin at the present position, up to the end of a fragment or of
    /// the initialization segment; or returns how many bytes it needs from the present position on.
    pub(crate) fn take_from(&mut self, bytes: &[u8]) -> Result<Taken, Torn> {
        let mut rest = bytes;
        loop {
            let Some(header) = BoxHeader::parse(rest) else {
                if rest.len() >= BOX_HEADER_BYTES {
                    return Err(Torn);
                }
                return Ok(Taken::Needs(BOX_HEADER_BYTES as u64));
            };
            let whole = usize::try_from(header.bytes).unwrap_or(usize::MAX);
            let (atom, next) = match rest.split_at_checked(whole) {
                Some((atom, next)) => (atom, next),
                None if Self::needs(header) => return Ok(Taken::Needs(header.bytes)),
                None => (rest, &[][..]),
            };
            let is_init = header.kind == *b"moov";
            match self.take(header, atom)? {
                Some(fragment) => return Ok(Taken::Fragment(fragment)),
                None if is_init => return Ok(Taken::Init),
                None => rest = next,
            }
        }
    }
}

/// What [`Walk::take_from`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The whole initialization segment.
    Init,
    Fragment(Fragment),
    /// So many bytes are needed from the present position on.
    Needs(u64),
}

/// Scans a file. Everything from the first invalid box on counts as torn.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn whole(file: &File) -> io::Result<Whole> {
    let size = file.metadata()?.len();
    let (mut walk, mut whole) = (Walk::default(), Whole::default());
    loop {
        let (mut head, at) = ([0; BOX_HEADER_BYTES], walk.at());
        let read = read_up_to(file, &mut head, at)?;
        let Some(header) = BoxHeader::parse(&head[..read]) else { return Ok(whole) };
        if at.checked_add(header.bytes).is_none_or(|end| end > size) {
            return Ok(whole);
        }
        let atom = if Walk::needs(header) { read_box(file, at, header.bytes)? } else { Some(Vec::new()) };
        let Some(taken) = atom.and_then(|atom| walk.take(header, &atom).ok()) else { return Ok(whole) };
        if let Some(fragment) = taken {
            whole.bytes = fragment.end();
            whole.duration_ms = u64::try_from(walk.reach.end_ns() / 1_000_000).unwrap_or(0);
            whole.init_bytes = walk.init_bytes();
            whole.fragments.push(fragment);
        }
    }
}

fn read_box(file: &File, at: u64, bytes: u64) -> io::Result<Option<Vec<u8>>> {
    if bytes > HEAD_BYTES_MAX {
        return Ok(None);
    }
    let mut atom = vec![0; usize::try_from(bytes).unwrap_or(0)];
    file.read_exact_at(&mut atom, at)?;
    Ok(Some(atom))
}

/// Reads as many bytes as there are, up to the buffer's size.
fn read_up_to(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _, Write as _};

    use super::*;
    use crate::tests::media;

    /// A file of three fragments, and the end of each.
    fn recorded() -> (Vec<u8>, Vec<(usize, u64)>) {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for event in media::events(media::video(80, 25)) {
            match event {
                crate::cut::CutEvent::Begin { init, .. } => bytes.extend_from_slice(&init),
                crate::cut::CutEvent::Fragment { bytes: more, end_ns } => {
                    bytes.extend_from_slice(&more);
                    ends.push((bytes.len(), u64::try_from(end_ns / 1_000_000).unwrap()));
                }
                other => panic!("{other:?}"),
            }
        }
        (bytes, ends)
    }

    #[test]
    fn a_file_cut_at_any_byte_ends_with_its_last_whole_fragment() {
        let (bytes, ends) = recorded();
        assert!(ends.len() >= 3, "{ends:?}");
        for length in (0..=bytes.len()).step_by(7).chain(ends.iter().map(|(end, _)| *end)) {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes[..length]).unwrap();
            let expected = ends.iter().rev().find(|(end, _)| *end <= length).copied().unwrap_or((0, 0));
            let found = whole(&file).unwrap();
            assert_eq!((found.bytes, found.duration_ms), (expected.0 as u64, expected.1), "{length}");
            let mut read = Vec::new();
            file.rewind().unwrap();
            file.read_to_end(&mut read).unwrap();
            assert_eq!(read.len(), length, "only looked at");
        }
    }

    /// The fragments of a file in memory, as the recorder and the store's objects are read.
    fn fragments(bytes: &[u8], given: usize) -> Vec<Fragment> {
        let (mut walk, mut found, mut needed) = (Walk::default(), Vec::new(), 0);
        while walk.at() < bytes.len() as u64 {
            let rest = &bytes[walk.at() as usize..];
            let given = given.max(needed).min(rest.len());
            needed = 0;
            match walk.take_from(&rest[..given]).unwrap() {
                Taken::Init => {}
                Taken::Fragment(fragment) => found.push(fragment),
                Taken::Needs(bytes) => needed = bytes as usize,
            }
        }
        found
    }

    #[test]
    fn all_ways_find_the_same_fragments_without_gaps() {
        let (bytes, ends) = recorded();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let whole = whole(&file).unwrap();
        let found = whole.fragments;
        assert_eq!(fragments(&bytes, bytes.len()), found);
        assert_eq!(fragments(&bytes, 64), found);
        let places: Vec<usize> = found.iter().map(|fragment| fragment.end() as usize).collect();
        assert_eq!(places, ends.iter().map(|(end, _)| *end).collect::<Vec<_>>());
        assert_eq!((found[0].offset, found[0].start_us, found[0].is_keyframe), (whole.init_bytes, 0, true));
        assert!(
            found
                .windows(2)
                .all(|pair| pair[1].offset == pair[0].end() && pair[1].start_us == pair[0].end_us())
        );
        let last = found.last().unwrap();
        assert_eq!(last.end_us() / 1000, whole.duration_ms);
        let mut walk = Walk::default();
        assert_eq!(walk.take_from(&bytes), Ok(Taken::Init));
        walk.skip(&found[found.len() - 2]);
        assert_eq!(walk.take_from(&bytes[walk.at() as usize..]), Ok(Taken::Fragment(*last)));
    }

    #[test]
    fn hostile_boxes_are_refused_without_long_work() {
        let mut walk = Walk::default();
        for bytes in
            [&b"\0\0\0\x10moovxxxxxxxx"[..], b"\0\0\0\x08mdat", b"\0\0\0\x08junk", &[0xff; 64], &[0; 16]]
        {
            assert_eq!(walk.take_from(bytes), Err(Torn), "{bytes:?}");
        }
        assert_eq!(walk.take_from(b"\0\0\0\x20moov"), Ok(Taken::Needs(32)));
        assert_eq!(walk.take_from(b"\0\0"), Ok(Taken::Needs(BOX_HEADER_BYTES as u64)));
    }

    #[test]
    fn unknown_boxes_count_as_torn() {
        let (bytes, ends) = recorded();
        for tail in [&b"\0\0\0\0\0\0\0\0"[..], b"\0\0\0\x08junk", &[0xff; 64]] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            file.write_all(tail).unwrap();
            assert_eq!(whole(&file).unwrap().bytes, ends.last().unwrap().0 as u64);
        }
        assert_eq!(whole(&tempfile::tempfile().unwrap()).unwrap(), Whole::default());
    }
}
