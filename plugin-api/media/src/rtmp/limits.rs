//! All limits on the memory, parsing and work that a peer can cause.
//!
//! The values come from measurements; each has a test that reaches it (named beside it).

/// Longest message accepted from a peer, in bytes. Test: `chunk::tests::limits`.
pub const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Chunk streams one peer may use at once. Test: `chunk::tests::limits`.
pub const CHUNK_STREAMS_MAX: usize = 32;

/// Bytes of unfinished messages one peer may have in memory over all its chunk streams.
/// Test: `chunk::tests::limits`.
pub const UNFINISHED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Most memory reserved for an announced message length before its bytes arrive, in bytes.
/// Test: `chunk::tests::limits`.
pub const ALLOCATION_AHEAD_BYTES_MAX: usize = 256 * 1024;

/// Smallest chunk size a peer may set, in bytes. Test: `message::tests`.
pub const CHUNK_SIZE_MIN: usize = 1;

/// Largest effective chunk size, in bytes; larger announcements mean this one (RTMP 1.0, 5.4.1).
/// Test: `message::tests`.
pub const CHUNK_SIZE_MAX: usize = 16 * 1024 * 1024;

/// Payloads below this many bytes are copied out of the read block so that they do not keep it alive.
/// Test: `chunk::tests::zero_copy`.
pub const SMALL_PAYLOAD_BYTES: usize = 2 * 1024;

/// Payloads smaller than the read block divided by this number are copied too. A slice keeps the whole block in memory; the
/// block is then at most this many times larger than the slice. Test: `chunk::tests::zero_copy`.
pub const SMALL_PAYLOAD_PART: usize = 2;

/// Nesting depth of AMF0 values, the outermost value being 1. Test: `amf0::tests`.
pub const AMF_DEPTH_MAX: usize = 16;

/// Top-level AMF0 values in one command or data message. Test: `amf0::tests`.
pub const AMF_TOP_VALUES_MAX: usize = 16;

/// AMF0 values of any depth in one message. Test: `amf0::tests`.
pub const AMF_VALUES_MAX: usize = 1024;

/// Longest command message, in bytes; a longer one ends the session. Test: `server::tests::limits`.
pub const COMMAND_BYTES_MAX: usize = 256 * 1024;

/// Longest data message (onMetaData) that is read, in bytes; longer ones are skipped.
/// Test: `server::tests::limits`.
pub const DATA_BYTES_MAX: usize = 256 * 1024;

/// Longest app or publish name, in bytes. Test: `server::tests::limits`.
pub const NAME_BYTES_MAX: usize = 1024;

/// Message streams one peer may create. Test: `server::tests::limits`.
pub const MESSAGE_STREAMS_MAX: u32 = 16;

/// releaseStream and FCPublish calls whose answer waits for the publish decision; more stay unanswered.
/// Test: `server::tests::limits`.
pub const HELD_CALLS_MAX: usize = 8;

/// Bytes of media held while the publish decision is pending. Test: `server::tests::limits`.
pub const HELD_MEDIA_BYTES_MAX: usize = 1024 * 1024;

/// Media messages held while the publish decision is pending. Test: `server::tests::limits`.
pub const HELD_MEDIA_MESSAGES_MAX: usize = 512;

/// Events that may wait to be polled. Test: `server::tests::limits`.
pub const EVENTS_MAX: usize = 16_384;

/// Most bytes queued in an output, for a peer that does not read or a caller that does not write.
/// Test: `client::tests::limits`.
pub const OUTPUT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Smallest acknowledgement window, in bytes. Smaller ones are raised to it, so that a peer cannot
/// request an acknowledgement for every byte. Test: `link::tests`.
pub const WINDOW_BYTES_MIN: u32 = 4096;

/// Longest status code or description kept from a peer, in characters. Test: `client::tests`.
pub const STATUS_CHARS_MAX: usize = 256;

/// Largest distance of unwrapped time from zero, in milliseconds (about 139 years).
/// Test: `time::tests`.
pub const TIME_MS_MAX: i64 = 1 << 42;

/// Longest codec configuration record, in bytes. Test: `flv::tests`.
pub const CONFIG_BYTES_MAX: usize = 64 * 1024;

/// ModEx prefixes read in one Enhanced RTMP tag. Test: `flv::tests`.
pub const MODEX_MAX: usize = 8;
