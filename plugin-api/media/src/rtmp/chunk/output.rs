//! Bytes to be written to the peer, as shared segments for vectored writes.

use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Queue of byte segments: chunk headers, and payload slices shared with their packets.
#[derive(Default)]
pub struct ChunkOutput {
    segments: VecDeque<Bytes>,
    waiting_bytes: usize,
    written_bytes: u64,
}

impl fmt::Debug for ChunkOutput {
    /// Prints sizes only: the bytes hold the stream key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkOutput")
            .field("waiting_bytes", &self.waiting_bytes)
            .field("written_bytes", &self.written_bytes)
            .finish_non_exhaustive()
    }
}

impl ChunkOutput {
    /// Appends a segment; an empty one is dropped.
    pub fn push(&mut self, segment: Bytes) {
        if !segment.is_empty() {
            self.waiting_bytes += segment.len();
            self.segments.push_back(segment);
        }
    }

    /// Fills `slices` from the front of the queue and returns how many were set, for one `write_vectored`.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slot, segment) in slices.iter_mut().zip(&self.segments) {
            *slot = IoSlice::new(segment);
            count += 1;
        }
        count
    }

    /// Removes `written` bytes from the front; a number over the queued bytes empties the queue.
    pub fn advance(&mut self, written: usize) {
        let mut left = written.min(self.waiting_bytes);
        self.waiting_bytes -= left;
        self.written_bytes += left as u64;
        while let Some(front) = self.segments.front_mut() {
            if front.len() > left {
                front.advance(left);
                return;
            }
            left -= front.len();
            self.segments.pop_front();
        }
    }

    /// Takes all queued bytes as one block; copies only if there is more than one segment.
    pub fn take(&mut self) -> Bytes {
        let bytes = match self.segments.len() {
            0 => Bytes::new(),
            1 => self.segments.pop_front().unwrap_or_default(),
            _ => {
                let mut joined = BytesMut::with_capacity(self.waiting_bytes);
                for segment in self.segments.drain(..) {
                    joined.extend_from_slice(&segment);
                }
                joined.freeze()
            }
        };
        self.written_bytes += bytes.len() as u64;
        self.waiting_bytes = 0;
        bytes
    }

    /// Queued bytes.
    pub fn len_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Queued segments.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Whether no bytes are queued.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bytes ever appended, both removed and queued.
    pub fn total_bytes(&self) -> u64 {
        self.written_bytes + self.waiting_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> ChunkOutput {
        let mut output = ChunkOutput::default();
        for part in ["", "abc", "de", "", "f"] {
            output.push(Bytes::from_static(part.as_bytes()));
        }
        output
    }

    #[test]
    fn slices_show_the_front_and_advance_removes_it() {
        for step in 1..8 {
            let mut output = filled();
            let mut seen = Vec::new();
            while !output.is_empty() {
                let mut slices = [IoSlice::new(&[]); 2];
                let count = output.slices(&mut slices);
                let flat: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
                let take = flat.len().min(step);
                seen.extend_from_slice(&flat[..take]);
                output.advance(take);
            }
            assert_eq!((seen.as_slice(), output.len_bytes(), output.total_bytes()), (&b"abcdef"[..], 0, 6));
        }
    }

    #[test]
    fn take_joins_and_counts() {
        let mut output = filled();
        assert_eq!((output.len_bytes(), output.segments()), (6, 3));
        assert_eq!(output.take(), "abcdef");
        assert_eq!((output.take(), output.total_bytes()), (Bytes::new(), 6));
        output.push(Bytes::from_static(b"one"));
        assert_eq!(output.take(), "one");
    }

    #[test]
    fn advance_past_the_end_empties() {
        let mut output = filled();
        output.advance(100);
        assert!(output.is_empty());
        assert_eq!(output.total_bytes(), 6);
    }
}
