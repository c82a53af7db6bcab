//! Message types, protocol control messages and commands.

/// Why a control message was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Its body is too short.
    #[error("control message of type {0} is cut off")]
    Truncated(u8),
    /// Set Chunk Size with 0 or the top bit set.
    #[error("peer set an impossible chunk size")]
    ChunkSize,
}
