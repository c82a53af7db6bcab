//! The RTMP server's side of one connection: a publisher comes in.

use std::fmt;

use bytes::Bytes;

use super::{Metadata, RtmpError};
use crate::packet::Packet;

/// What the server announces.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Chunk size announced and used for replies, in bytes. ffmpeg copies it as its own; large messages then
    /// come in one chunk and need no copy. Default 60,000.
    pub chunk_size: u32,
    /// Acknowledgement window and peer bandwidth announced, in bytes. Default 2,500,000.
    pub window_bytes: u32,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig { chunk_size: 60_000, window_bytes: 2_500_000 }
    }
}

/// Names one publish request within its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublishId(pub(crate) u32);

/// What happened on the connection.
///
/// `Debug` never prints the app, the stream key or the query.
#[derive(Clone, PartialEq)]
pub enum ServerEvent {
    /// `connect` was answered.
    Connected {
        /// Application name as sent, without a trailing slash; may hold a key or a query.
        app: String,
    },
    /// A publisher asks; answer with [`ServerSession::accept_publish`] or [`ServerSession::reject_publish`].
    PublishRequested {
        /// Names the request.
        id: PublishId,
        /// Application name, as in `Connected`.
        app: String,
        /// Publish name up to the first `?`; empty if the publisher gave none.
        stream_key: String,
        /// Publish name behind the first `?`, with its escapes as typed.
        query: Option<String>,
    },
    /// A configuration record or access unit of an accepted publish.
    Packet(Packet),
    /// Numbers of an onMetaData message of an accepted publish.
    Metadata(Metadata),
    /// The publisher ended an accepted or pending publish; comes once for each.
    Unpublished,
}

impl fmt::Debug for ServerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerEvent::Connected { .. } => f.write_str("Connected"),
            ServerEvent::PublishRequested { id, .. } => write!(f, "PublishRequested({id:?})"),
            ServerEvent::Packet(packet) => packet.fmt(f),
            ServerEvent::Metadata(metadata) => metadata.fmt(f),
            ServerEvent::Unpublished => f.write_str("Unpublished"),
        }
    }
}

/// Counters of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerStats {
    /// Bytes read from the peer.
    pub bytes_in: u64,
    /// Messages skipped: unknown type, over-long or unreadable data, media after the end.
    pub ignored_messages: u64,
    /// Media messages skipped by policy: other codecs, other tracks, commands, empty bodies.
    pub ignored_tags: u64,
    /// Media messages skipped because they are malformed.
    pub malformed_tags: u64,
}

/// The server's side of one connection.
pub struct ServerSession {
    config: ServerConfig,
}

impl ServerSession {
    /// A session that waits for the client's handshake.
    pub fn new(config: ServerConfig) -> Self {
        ServerSession { config }
    }

    /// Takes bytes read from the peer, all of them.
    ///
    /// # Errors
    /// Any [`RtmpError`]; write what [`Self::take_output`] holds and close.
    pub fn input(&mut self, bytes: Bytes) -> Result<(), RtmpError> {
        let _ = (bytes, &self.config);
        Ok(())
    }

    /// The next event, in order.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        None
    }

    /// Bytes to write to the peer, empty when there are none.
    pub fn take_output(&mut self) -> Bytes {
        Bytes::new()
    }

    /// Answers a publish with NetStream.Publish.Start.
    ///
    /// # Errors
    /// [`RtmpError::NoSuchRequest`] when the request was withdrawn or decided.
    pub fn accept_publish(&mut self, id: PublishId) -> Result<(), RtmpError> {
        let _ = id;
        Ok(())
    }

    /// Answers a publish with an error status; all later input is ignored. A stale id does nothing.
    pub fn reject_publish(&mut self, id: PublishId, code: &str, description: &str) {
        let _ = (id, code, description);
    }

    /// Tells a running publisher that its publish is over; all later input is ignored.
    pub fn end_publish(&mut self, code: &str, description: &str) {
        let _ = (code, description);
    }

    /// Counters.
    pub fn stats(&self) -> ServerStats {
        ServerStats::default()
    }
}
