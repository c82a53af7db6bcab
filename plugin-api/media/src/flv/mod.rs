//! FLV and Enhanced RTMP tags to packets and back.

/// Why a tag body cannot be read or a packet cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FlvError {
    /// The body ends inside its header.
    #[error("tag is cut off")]
    Truncated,
    /// The packet's kind does not fit its codec.
    #[error("packet's track kind does not fit its codec")]
    KindMismatch,
}
