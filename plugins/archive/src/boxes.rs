//! Finds the end of the last whole fragment of a spooled file: a crash may have left half a fragment.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use satcast_media::fmp4::{BOX_HEADER_BYTES, BoxHeader, Reach};

/// Largest `moov` or `moof` that is read into memory; this driver writes about 100 KB at most.
const HEAD_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The whole part of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Whole {
    /// Bytes up to the end of the last whole fragment; 0 when there is none.
    pub(crate) bytes: u64,
    /// Duration in milliseconds.
    pub(crate) duration_ms: u64,
}

/// Scans a file. Everything from the first invalid box on counts as torn.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn whole(file: &File) -> io::Result<Whole> {
    let size = file.metadata()?.len();
    let (mut reach, mut whole, mut at) = (Reach::default(), Whole::default(), 0);
    loop {
        let mut head = [0; BOX_HEADER_BYTES];
        let read = read_up_to(file, &mut head, at)?;
        let Some(header) = BoxHeader::parse(&head[..read]) else { return Ok(whole) };
        let Some(end) = at.checked_add(header.bytes).filter(|end| *end <= size) else { return Ok(whole) };
        let understood = match &header.kind {
            b"moov" => read_box(file, at, header.bytes)?.is_some_and(|atom| reach.moov(&atom).is_ok()),
            b"moof" => read_box(file, at, header.bytes)?.is_some_and(|atom| reach.moof(&atom).is_ok()),
            b"ftyp" | b"styp" => true,
            b"mdat" => {
                let duration_ms = u64::try_from(reach.end_ns() / 1_000_000).unwrap_or(0);
                whole = Whole { bytes: end, duration_ms };
                true
            }
            _ => false,
        };
        if !understood {
            return Ok(whole);
        }
        at = end;
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
