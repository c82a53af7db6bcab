//! The RTMP client's side of one connection: packets are pushed to a destination.

use std::fmt;

use bytes::Bytes;

use super::chunk::ChunkOutput;
use super::{Metadata, RtmpError};
use crate::packet::Packet;

/// What the client says to the server. `Debug` never prints the app, the tcUrl or the stream key.
#[derive(Clone)]
pub struct ClientConfig {
    /// Application name.
    pub app: String,
    /// `scheme://host[:port]/app`.
    pub tc_url: String,
    /// Publish name with its query.
    pub stream_key: String,
    /// Default `FMLE/3.0 (compatible; Satcast)`.
    pub flash_ver: String,
    /// Chunk size announced and used, in bytes. Default 60,000.
    pub chunk_size: u32,
    /// Acknowledgement window announced, in bytes. Default 2,500,000.
    pub window_bytes: u32,
    /// Whether `connect` lists the Enhanced RTMP codecs. Default true.
    pub enhanced: bool,
}

impl Default for ClientConfig {
    fn default() -> Self {
        ClientConfig {
            app: String::new(),
            tc_url: String::new(),
            stream_key: String::new(),
            flash_ver: "FMLE/3.0 (compatible; Satcast)".to_owned(),
            chunk_size: 60_000,
            window_bytes: 2_500_000,
            enhanced: true,
        }
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("chunk_size", &self.chunk_size)
            .field("window_bytes", &self.window_bytes)
            .field("enhanced", &self.enhanced)
            .finish_non_exhaustive()
    }
}

/// What happened on the connection. Texts are the server's, bounded and without control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientEvent {
    /// NetStream.Publish.Start came; packets may be sent.
    Publishing,
    /// The server refused connect, createStream or publish, or ended the publish with an error.
    Rejected {
        /// Status code such as `NetStream.Publish.BadName`; may be empty.
        code: String,
        /// Description; may be empty.
        description: String,
    },
    /// The server acknowledged bytes; only the newest count is kept.
    Acknowledged {
        /// Bytes since the start of the connection, never more than were written.
        bytes: u64,
    },
    /// The server ended the publish without an error.
    PeerClosed {
        /// Status code; may be empty.
        code: String,
        /// Description; may be empty.
        description: String,
    },
}

/// The client's side of one connection.
pub struct ClientSession {
    config: ClientConfig,
    output: ChunkOutput,
}

impl ClientSession {
    /// A session whose output starts with the handshake.
    pub fn new(config: ClientConfig) -> Self {
        ClientSession { config, output: ChunkOutput::default() }
    }

    /// Takes bytes read from the peer, all of them.
    ///
    /// # Errors
    /// Any [`RtmpError`]; close the connection.
    pub fn input(&mut self, bytes: Bytes) -> Result<(), RtmpError> {
        let _ = (bytes, &self.config);
        Ok(())
    }

    /// The next event, in order.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        None
    }

    /// Appends one packet to the output.
    ///
    /// # Errors
    /// [`RtmpError::NotPublishing`], [`RtmpError::OutputFull`]; nothing is appended then.
    pub fn send(&mut self, packet: &Packet) -> Result<(), RtmpError> {
        let _ = packet;
        Ok(())
    }

    /// Appends `@setDataFrame onMetaData` with the numbers given.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_metadata(&mut self, metadata: &Metadata) -> Result<(), RtmpError> {
        let _ = metadata;
        Ok(())
    }

    /// Appends FCUnpublish and deleteStream; nothing can be sent afterwards.
    pub fn end(&mut self) {}

    /// Bytes to write to the peer.
    pub fn output(&mut self) -> &mut ChunkOutput {
        &mut self.output
    }
}
