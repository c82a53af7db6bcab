//! Reassembles messages from chunks.

use std::fmt;

use bytes::{Buf, Bytes};

use super::{CHUNK_SIZE_INITIAL, ChunkError, EXTENDED_TIME, Message, MessageHeader};
use crate::rtmp::limits::{
    ALLOCATION_AHEAD_BYTES_MAX, CHUNK_SIZE_MAX, CHUNK_SIZE_MIN, CHUNK_STREAMS_MAX, MESSAGE_BYTES_MAX,
    SMALL_PAYLOAD_BYTES, SMALL_PAYLOAD_PART, UNFINISHED_BYTES_MAX,
};

/// Longest chunk header: 3 basic, 11 message, 4 extended time.
const HEADER_BYTES_MAX: usize = 18;

/// State of a chunk stream between chunks.
#[derive(Default)]
struct Stream {
    id: u32,
    timestamp: u32,
    /// Added to `timestamp` by a type 3 header that starts a message. After a type 0 header it is that
    /// header's own time (RTMP 1.0, 5.3.1.2.4); ffmpeg writes and reads it so.
    delta: u32,
    /// Value of the extended time of the last header that had one; `None` if it had none.
    extended: Option<u32>,
    length: usize,
    kind: u8,
    stream: u32,
    /// A header with a length has arrived.
    known: bool,
    /// A message is unfinished: its header has arrived, its payload is incomplete.
    open: bool,
    partial: Vec<u8>,
}

/// Extended time after a type 3 header.
enum Repeat {
    Absent,
    Present(u32),
    CutOff,
}

/// A parsed chunk header: its length in bytes and the index of its chunk stream.
struct Header {
    used: usize,
    index: usize,
}

/// Reassembles messages from chunks.
pub struct ChunkReader {
    chunk_size: usize,
    /// Payloads below this are copied.
    copy_below: usize,
    streams: Vec<Stream>,
    /// Index of the chunk stream and missing bytes of the current chunk.
    current: Option<(usize, usize)>,
    /// Start of an incomplete header.
    carry: [u8; HEADER_BYTES_MAX],
    carried: usize,
    unfinished_bytes: usize,
}

impl fmt::Debug for ChunkReader {
    /// Prints sizes only: the bytes may hold a stream key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkReader")
            .field("chunk_size", &self.chunk_size)
            .field("unfinished_bytes", &self.unfinished_bytes)
            .finish_non_exhaustive()
    }
}

impl Default for ChunkReader {
    fn default() -> Self {
        ChunkReader {
            chunk_size: CHUNK_SIZE_INITIAL,
            copy_below: SMALL_PAYLOAD_BYTES,
            streams: Vec::new(),
            current: None,
            carry: [0; HEADER_BYTES_MAX],
            carried: 0,
            unfinished_bytes: 0,
        }
    }
}

impl ChunkReader {
    /// Chunk size in use, in bytes.
    pub fn chunk_size(&self) -> usize {
        self.chunk_size
    }

    /// Sets the peer's chunk size in bytes, clamped to 1 byte to 16 MiB, from the next chunk on.
    pub fn set_chunk_size(&mut self, bytes: usize) {
        self.chunk_size = bytes.clamp(CHUNK_SIZE_MIN, CHUNK_SIZE_MAX);
    }

    /// Sets the size of the buffer, in bytes, that each following block keeps in memory. Payloads that are small
    /// compared with the buffer are copied.
    pub fn set_block_bytes(&mut self, bytes: usize) {
        self.copy_below = (bytes / SMALL_PAYLOAD_PART).max(SMALL_PAYLOAD_BYTES);
    }

    /// Bytes of unfinished messages in memory.
    pub fn unfinished_bytes(&self) -> usize {
        self.unfinished_bytes
    }

    /// Memory reserved for unfinished messages, in bytes.
    #[cfg(test)]
    pub(super) fn reserved_bytes(&self) -> usize {
        self.streams.iter().map(|stream| stream.partial.capacity()).sum()
    }

    /// Drops the unfinished message of a chunk stream (Abort Message).
    pub fn abort(&mut self, chunk_stream: u32) {
        if let Some(index) = self.streams.iter().position(|stream| stream.id == chunk_stream) {
            self.drop_partial(index);
        }
    }

    /// Takes bytes from the front of `block` until a message is complete (`Some`) or the block is empty (`None`).
    ///
    /// # Errors
    /// Any [`ChunkError`]; the reader must not be used after one.
    pub fn read(&mut self, block: &mut Bytes) -> Result<Option<Message>, ChunkError> {
        // Position in the block. `advance` and `slice` run once at the end, because chunks may be one byte long.
        let mut at = 0;
        loop {
            let (index, left) = match self.current {
                Some(current) => current,
                None if self.carried > 0 => {
                    block.advance(at);
                    at = 0;
                    match self.carried_header(block)? {
                        Some(index) => (index, self.chunk_left(index)),
                        None => return Ok(None),
                    }
                }
                None => match self.header(&block[at..])? {
                    Some(header) => {
                        at += header.used;
                        (header.index, self.chunk_left(header.index))
                    }
                    None => {
                        let rest = &block[at..];
                        self.carry[..rest.len()].copy_from_slice(rest);
                        self.carried = rest.len();
                        block.clear();
                        return Ok(None);
                    }
                },
            };
            let taken = left.min(block.len() - at);
            let stream = &mut self.streams[index];
            if stream.partial.is_empty() && taken == stream.length {
                let payload = match taken < self.copy_below {
                    true => Bytes::copy_from_slice(&block[at..at + taken]),
                    false => block.slice(at..at + taken),
                };
                block.advance(at + taken);
                return Ok(Some(self.finish(index, payload)));
            }
            append(stream, &block[at..at + taken]);
            at += taken;
            self.unfinished_bytes += taken;
            if stream.partial.len() == stream.length {
                block.advance(at);
                let payload = Bytes::from(std::mem::take(&mut stream.partial));
                self.unfinished_bytes -= payload.len();
                return Ok(Some(self.finish(index, payload)));
            }
            if self.unfinished_bytes > UNFINISHED_BYTES_MAX {
                return Err(ChunkError::TooMuchUnfinished);
            }
            self.current = (taken < left).then_some((index, left - taken));
            if at == block.len() {
                block.clear();
                return Ok(None);
            }
        }
    }

    fn chunk_left(&self, index: usize) -> usize {
        let stream = &self.streams[index];
        (stream.length - stream.partial.len()).min(self.chunk_size)
    }

    fn finish(&mut self, index: usize, payload: Bytes) -> Message {
        self.current = None;
        let stream = &mut self.streams[index];
        stream.open = false;
        let header = MessageHeader {
            chunk_stream: stream.id,
            timestamp: stream.timestamp,
            kind: stream.kind,
            stream: stream.stream,
        };
        Message { header, payload }
    }

    fn drop_partial(&mut self, index: usize) {
        let stream = &mut self.streams[index];
        self.unfinished_bytes -= stream.partial.len();
        stream.partial = Vec::new();
        stream.open = false;
        if self.current.is_some_and(|(current, _)| current == index) {
            self.current = None;
        }
    }

    /// Completes a carried header with the front of `block`. If the extended time is absent, the carried bytes after the
    /// header are payload and go back to the front of the block.
    fn carried_header(&mut self, block: &mut Bytes) -> Result<Option<usize>, ChunkError> {
        let mut joined = self.carry;
        let fresh = block.len().min(HEADER_BYTES_MAX - self.carried);
        joined[self.carried..self.carried + fresh].copy_from_slice(&block[..fresh]);
        let total = self.carried + fresh;
        match self.header(&joined[..total])? {
            None => {
                self.carry = joined;
                self.carried = total;
                block.clear();
                Ok(None)
            }
            Some(header) if header.used >= self.carried => {
                block.advance(header.used - self.carried);
                self.carried = 0;
                Ok(Some(header.index))
            }
            Some(header) => {
                let mut back = joined[header.used..self.carried].to_vec();
                back.extend_from_slice(block);
                *block = Bytes::from(back);
                self.carried = 0;
                Ok(Some(header.index))
            }
        }
    }

    /// Parses one chunk header at the front of `bytes` and applies it; `None` (and no change) if it is incomplete.
    fn header(&mut self, bytes: &[u8]) -> Result<Option<Header>, ChunkError> {
        let Some((format, id, basic)) = basic_header(bytes) else { return Ok(None) };
        let fields = [11, 7, 3, 0][usize::from(format)];
        let Some(body) = bytes.get(basic..basic + fields) else { return Ok(None) };
        let rest = &bytes[basic + fields..];
        let found = self.streams.iter().position(|stream| stream.id == id);
        let known = found.is_some_and(|index| self.streams[index].known);
        if format >= 2 && !known {
            return Err(ChunkError::NoPreviousHeader);
        }
        let extended = match (format, found) {
            (3, Some(index)) => match self.streams[index].repeated_time(rest) {
                Repeat::Absent => None,
                Repeat::Present(time) => Some(time),
                Repeat::CutOff => return Ok(None),
            },
            _ if be24(body) == EXTENDED_TIME => match rest.first_chunk() {
                Some(time) => Some(u32::from_be_bytes(*time)),
                None => return Ok(None),
            },
            _ => None,
        };
        let index = match found {
            Some(index) => index,
            None if self.streams.len() == CHUNK_STREAMS_MAX => return Err(ChunkError::TooManyStreams),
            None => {
                self.streams.push(Stream { id, ..Stream::default() });
                self.streams.len() - 1
            }
        };
        if format < 3 {
            self.drop_partial(index);
        }
        self.streams[index].apply(format, body, extended)?;
        let used = basic + fields + if extended.is_some() { 4 } else { 0 };
        Ok(Some(Header { used, index }))
    }
}

impl Stream {
    /// Decides whether the bytes after a type 3 header, `rest`, start with an extended time.
    ///
    /// Old librtmp omits it in the middle of a message. Therefore, within a message, the bytes count as a time only if they repeat
    /// the stored value. Before a new message the time must be present.
    fn repeated_time(&self, rest: &[u8]) -> Repeat {
        let Some(stored) = self.extended else { return Repeat::Absent };
        let seen = &rest[..rest.len().min(4)];
        if self.open && seen != &stored.to_be_bytes()[..seen.len()] {
            return Repeat::Absent;
        }
        match rest.first_chunk() {
            Some(time) => Repeat::Present(u32::from_be_bytes(*time)),
            None => Repeat::CutOff,
        }
    }

    fn apply(&mut self, format: u8, body: &[u8], extended: Option<u32>) -> Result<(), ChunkError> {
        if format == 3 {
            if !self.open {
                if extended.is_some() {
                    self.extended = extended;
                    self.delta = extended.unwrap_or(self.delta);
                }
                self.timestamp = self.timestamp.wrapping_add(self.delta);
                self.open = true;
            }
            return Ok(());
        }
        let time = extended.unwrap_or_else(|| be24(body));
        self.extended = extended;
        self.delta = time;
        self.timestamp = if format == 0 { time } else { self.timestamp.wrapping_add(time) };
        if format <= 1 {
            let length = be24(&body[3..]) as usize;
            if length > MESSAGE_BYTES_MAX {
                return Err(ChunkError::MessageTooLong(length));
            }
            self.length = length;
            self.kind = body[6];
            self.known = true;
        }
        if format == 0 {
            self.stream = u32::from_le_bytes([body[7], body[8], body[9], body[10]]);
        }
        self.open = true;
        Ok(())
    }
}

/// Appends bytes; the reserved memory grows with the received bytes, not with the announced length.
fn append(stream: &mut Stream, bytes: &[u8]) {
    let partial = &mut stream.partial;
    if partial.capacity() - partial.len() < bytes.len() {
        let ahead = partial.capacity().max(ALLOCATION_AHEAD_BYTES_MAX);
        let target = (partial.len() + bytes.len()).max(partial.len() + ahead).min(stream.length);
        partial.reserve_exact(target - partial.len());
    }
    partial.extend_from_slice(bytes);
}

fn be24(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]])
}

/// Format, chunk stream id and length of a basic header (RTMP 1.0, 5.3.1.1).
fn basic_header(bytes: &[u8]) -> Option<(u8, u32, usize)> {
    let first = *bytes.first()?;
    let format = first >> 6;
    match first & 0x3f {
        0 => Some((format, 64 + u32::from(*bytes.get(1)?), 2)),
        1 => {
            let id = 64 + u32::from(*bytes.get(1)?) + 256 * u32::from(*bytes.get(2)?);
            Some((format, id, 3))
        }
        id => Some((format, u32::from(id), 1)),
    }
}
