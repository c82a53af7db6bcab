//! Splits messages into chunks, and keeps the bytes for the peer as shared segments for vectored writes.

use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{CHUNK_SIZE_INITIAL, ChunkError, EXTENDED_TIME, MessageHeader};
use crate::rtmp::limits::{CHUNK_SIZE_MAX, CHUNK_SIZE_MIN, MESSAGE_BYTES_MAX};

/// Chunk payloads up to this many bytes are copied after their header: cheaper than one more output segment.
const INLINE_BYTES_MAX: usize = 256;

/// Bytes of header memory allocated at a time, for some twenty messages. Every connection has this much.
const SCRATCH_BYTES: usize = 1024;

/// Segments whose memory an empty output keeps: those of a usual batch. The first GOP of a connection has many more.
const SEGMENTS_KEPT: usize = 32;

/// Last message written on one chunk stream.
#[derive(Debug, Clone, Copy)]
struct Previous {
    chunk_stream: u32,
    timestamp: u32,
    stream: u32,
}

/// Splits messages into chunks.
///
/// A message starts with a type 1 header if its time does not go back and it has the message stream of the
/// message before it on the chunk stream, otherwise with type 0. Types 2 and 3 never start a message: they would
/// save at most seven bytes, and receivers often read them wrong.
pub struct ChunkWriter {
    chunk_size: usize,
    previous: Vec<Previous>,
    scratch: BytesMut,
}

impl fmt::Debug for ChunkWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkWriter").field("chunk_size", &self.chunk_size).finish_non_exhaustive()
    }
}

impl Default for ChunkWriter {
    fn default() -> Self {
        ChunkWriter { chunk_size: CHUNK_SIZE_INITIAL, previous: Vec::new(), scratch: BytesMut::new() }
    }
}

impl ChunkWriter {
    /// Chunk size in use, in bytes.
    pub fn chunk_size(&self) -> usize {
        self.chunk_size
    }

    /// Sets the chunk size in bytes, clamped to 1 byte to 16 MiB. Announce it to the peer first.
    pub fn set_chunk_size(&mut self, bytes: usize) {
        self.chunk_size = bytes.clamp(CHUNK_SIZE_MIN, CHUNK_SIZE_MAX);
    }

    /// Appends one message with body `prefix` + `payload`. The payload is shared; only slices of up to 256 bytes are copied.
    ///
    /// # Errors
    /// [`ChunkError::OutgoingTooLong`]; nothing is appended.
    pub fn write(
        &mut self,
        output: &mut ChunkOutput,
        header: MessageHeader,
        prefix: &[u8],
        payload: &Bytes,
    ) -> Result<(), ChunkError> {
        let length = prefix.len() + payload.len();
        if length > MESSAGE_BYTES_MAX {
            return Err(ChunkError::OutgoingTooLong(length));
        }
        self.reserve(prefix.len(), length);
        let extended = self.start(header, length);
        let mut free = self.chunk_size;
        let mut prefix = prefix;
        let mut sent = 0;
        loop {
            let count = prefix.len().min(free);
            self.scratch.put_slice(&prefix[..count]);
            prefix = &prefix[count..];
            free -= count;
            let count = (payload.len() - sent).min(free);
            if count > INLINE_BYTES_MAX {
                output.push(self.scratch.split().freeze());
                output.push(payload.slice(sent..sent + count));
            } else {
                self.scratch.put_slice(&payload[sent..sent + count]);
            }
            sent += count;
            if prefix.is_empty() && sent == payload.len() {
                break;
            }
            self.put_basic(3, header.chunk_stream);
            if let Some(time) = extended {
                self.scratch.put_u32(time);
            }
            free = self.chunk_size;
        }
        output.push(self.scratch.split().freeze());
        Ok(())
    }

    /// Reserves header memory, so that one allocation serves many messages.
    fn reserve(&mut self, prefix_bytes: usize, length: usize) {
        let copied = if self.chunk_size <= INLINE_BYTES_MAX { length } else { 2 * INLINE_BYTES_MAX };
        let headers = 18 + 7 * (length / self.chunk_size);
        let needed = prefix_bytes + copied + headers;
        if self.scratch.capacity() - self.scratch.len() < needed {
            self.scratch.reserve(needed.max(SCRATCH_BYTES));
        }
    }

    /// Writes the first header of a message; returns the extended time that every chunk of the message repeats.
    fn start(&mut self, header: MessageHeader, length: usize) -> Option<u32> {
        let slot = self.previous.iter_mut().find(|previous| previous.chunk_stream == header.chunk_stream);
        let delta = match &slot {
            Some(previous) if previous.stream == header.stream => {
                let delta = header.timestamp.wrapping_sub(previous.timestamp);
                (delta < 1 << 31).then_some(delta)
            }
            _ => None,
        };
        let now = Previous {
            chunk_stream: header.chunk_stream,
            timestamp: header.timestamp,
            stream: header.stream,
        };
        match slot {
            Some(previous) => *previous = now,
            None => self.previous.push(now),
        }
        let time = delta.unwrap_or(header.timestamp);
        self.put_basic(u8::from(delta.is_some()), header.chunk_stream);
        let extended = (time >= EXTENDED_TIME).then_some(time);
        self.scratch.put_uint(u64::from(time.min(EXTENDED_TIME)), 3);
        self.scratch.put_uint(length as u64, 3);
        self.scratch.put_u8(header.kind);
        if delta.is_none() {
            self.scratch.put_u32_le(header.stream);
        }
        if let Some(time) = extended {
            self.scratch.put_u32(time);
        }
        extended
    }

    fn put_basic(&mut self, format: u8, chunk_stream: u32) {
        let format = format << 6;
        match chunk_stream {
            0..=63 => self.scratch.put_u8(format | chunk_stream as u8),
            64..=319 => self.scratch.put_slice(&[format, (chunk_stream - 64) as u8]),
            _ => {
                self.scratch.put_u8(format | 1);
                self.scratch.put_u16_le((chunk_stream - 64) as u16);
            }
        }
    }
}

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
        self.segments.shrink_to(SEGMENTS_KEPT);
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
    fn an_empty_output_gives_the_memory_of_a_burst_back() {
        let mut output = ChunkOutput::default();
        for burst in [20 * SEGMENTS_KEPT, SEGMENTS_KEPT] {
            (0..burst).for_each(|_| output.push(Bytes::from_static(b"a")));
            output.advance(burst - 1);
            assert!(output.segments.capacity() >= burst, "not while segments are queued");
            output.advance(1);
            assert!((1..2 * SEGMENTS_KEPT).contains(&output.segments.capacity()));
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
