//! RTMP 1.0 with the Enhanced RTMP extensions, without I/O, in both roles.

pub mod amf0;
pub mod chunk;
pub mod client;
pub mod handshake;
pub mod limits;
mod link;
pub mod message;
mod metadata;
pub mod server;
mod time;

pub use metadata::Metadata;

/// Reasons for which a session fails. After any error from `input` the caller closes the connection.
///
/// No variant carries text from the peer, so an error can be logged as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RtmpError {
    /// The handshake failed.
    #[error("rtmp handshake: {0}")]
    Handshake(#[from] handshake::HandshakeError),
    /// The chunk stream is broken or over a limit.
    #[error("rtmp chunk stream: {0}")]
    Chunk(#[from] chunk::ChunkError),
    /// A protocol control message is malformed.
    #[error("rtmp control message: {0}")]
    Message(#[from] message::MessageError),
    /// A command's AMF0 body is malformed or over a limit.
    #[error("rtmp command: {0}")]
    Amf0(#[from] amf0::Amf0Error),
    /// A name is over [`limits::NAME_BYTES_MAX`].
    #[error(
        "peer sent {what} of {bytes} bytes, more than the limit of {limit}; connection closed",
        limit = limits::NAME_BYTES_MAX
    )]
    NameTooLong {
        /// The name that is too long: `app`, `flashVer` or `publish name`.
        what: &'static str,
        /// Its length in bytes.
        bytes: usize,
    },
    /// A command message is over [`limits::COMMAND_BYTES_MAX`].
    #[error(
        "peer sent a command of {bytes} bytes, more than the limit of {limit}; connection closed",
        limit = limits::COMMAND_BYTES_MAX
    )]
    CommandTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// A command or media message came before the one it depends on.
    #[error("peer sent {what} before {before}; connection closed")]
    Order {
        /// The command or media that arrived.
        what: &'static str,
        /// The command that was due first.
        before: &'static str,
    },
    /// The answer to createStream has no number that can be a stream id.
    #[error("peer answered createStream without a valid stream id; connection closed")]
    NoStreamId,
    /// The media before the publish decision is over [`limits::HELD_MEDIA_BYTES_MAX`] or [`limits::HELD_MEDIA_MESSAGES_MAX`].
    #[error("peer sent too much media before its publish was decided; connection closed")]
    HeldMediaFull,
    /// More message streams than [`limits::MESSAGE_STREAMS_MAX`].
    #[error("peer created too many message streams; connection closed")]
    TooManyStreams,
    /// Unwrapped time is beyond [`limits::TIME_MS_MAX`].
    #[error("peer sent a timestamp out of range; connection closed")]
    TimestampRange,
    /// More events than [`limits::EVENTS_MAX`] wait.
    #[error("too many events wait; poll events after every input")]
    EventsFull,
    /// More bytes than [`limits::OUTPUT_BYTES_MAX`] wait to be written.
    #[error("too many bytes wait to be written; write or close before sending more")]
    OutputFull,
    /// A decision names a publish request that is not pending.
    #[error("no publish request with this id is pending; it was decided or withdrawn")]
    NoSuchRequest,
    /// A packet was sent before `Publishing` or after the end.
    #[error("not publishing; wait for the Publishing event before sending")]
    NotPublishing,
    /// `input` was called again after an error.
    #[error("session already failed; close the connection")]
    Failed,
}
