//! The chunk stream (RTMP 1.0, 5.3): splits messages into chunks and reassembles them.

mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;

use bytes::Bytes;

pub use reader::ChunkReader;
pub use writer::{ChunkOutput, ChunkWriter};

/// Chunk size before any Set Chunk Size message, in bytes (RTMP 1.0, 5.4.1).
pub const CHUNK_SIZE_INITIAL: usize = 128;

/// Value of the 3-byte time field from which the time is in the extended timestamp.
pub(crate) const EXTENDED_TIME: u32 = 0x00ff_ffff;

/// Header fields of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHeader {
    /// Chunk stream id, 2 to 65,599.
    pub chunk_stream: u32,
    /// Time in milliseconds, wrapping at 32 bits.
    pub timestamp: u32,
    /// Message type id.
    pub kind: u8,
    /// Message stream id.
    pub stream: u32,
}

/// One complete message. `Debug` prints only the length of the payload: the payload may hold a stream key.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// Header fields.
    pub header: MessageHeader,
    /// Body: a slice of the input block if the message arrived in one block and one chunk and is not small, otherwise a copy.
    pub payload: Bytes,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("header", &self.header)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// Reasons for which a chunk stream cannot be read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// Announced message length over [`super::limits::MESSAGE_BYTES_MAX`].
    #[error(
        "peer announced a message of {0} bytes, more than the limit of {limit}",
        limit = super::limits::MESSAGE_BYTES_MAX
    )]
    MessageTooLong(usize),
    /// More chunk streams than [`super::limits::CHUNK_STREAMS_MAX`].
    #[error("peer uses too many chunk streams")]
    TooManyStreams,
    /// More unfinished bytes than [`super::limits::UNFINISHED_BYTES_MAX`].
    #[error("peer has too many bytes of unfinished messages")]
    TooMuchUnfinished,
    /// A type 2 or 3 header on a chunk stream that had no header with a length before.
    #[error("peer sent a short chunk header on a new chunk stream")]
    NoPreviousHeader,
    /// A message to be written is over [`super::limits::MESSAGE_BYTES_MAX`].
    #[error(
        "message to send has {0} bytes, more than the limit of {limit}",
        limit = super::limits::MESSAGE_BYTES_MAX
    )]
    OutgoingTooLong(usize),
}
