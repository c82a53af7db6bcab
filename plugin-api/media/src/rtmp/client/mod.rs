//! The client side of one RTMP connection: sends packets to a destination.

mod commands;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;

use super::chunk::{ChunkOutput, MessageHeader};
use super::link::{Incoming, Link};
use super::message::kind;
use super::{Metadata, RtmpError};
use crate::flv::{floor_ms, mux};
use crate::{Codec, Kind, Packet};

const AUDIO_CHUNK_STREAM: u32 = 4;
const DATA_CHUNK_STREAM: u32 = 5;
const VIDEO_CHUNK_STREAM: u32 = 6;

/// Settings of the client. `Debug` never prints the app, the tcUrl or the stream key.
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

/// Events of the connection. Texts come from the server; they are bounded and have no control characters.
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
        /// Bytes since the start of the connection, never more than the written total.
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

/// State of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Handshake,
    /// `connect` was sent.
    Connecting,
    /// `createStream` was sent.
    CreatingStream,
    /// `publish` was sent.
    Requesting {
        stream: u32,
    },
    Publishing {
        stream: u32,
    },
    /// Refused, or ended by either side; input is ignored.
    Closed,
}

/// The client side of one connection.
///
/// Write [`Self::output`] to the server and pass all bytes of the server to [`Self::input`]. Keep reading while publishing:
/// acknowledgements and pings need it. After every `input` poll all events.
pub struct ClientSession {
    config: ClientConfig,
    link: Link,
    stage: Stage,
    /// Codecs that the server announced with Enhanced RTMP.
    announced: Vec<Codec>,
    /// Output position that the server has acknowledged, and the 32-bit count of its last acknowledgement.
    acknowledged: u64,
    acknowledged_low: u32,
    /// The server has sent an impossible acknowledgement.
    acknowledges_wrongly: bool,
    /// At most one start, one end, and one acknowledgement before and between them.
    events: VecDeque<ClientEvent>,
    failed: bool,
}

impl fmt::Debug for ClientSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSession")
            .field("stage", &self.stage)
            .field("acknowledged", &self.acknowledged)
            .finish_non_exhaustive()
    }
}

impl ClientSession {
    /// A session whose output starts with the handshake.
    pub fn new(config: ClientConfig) -> Self {
        ClientSession {
            config,
            link: Link::client(),
            stage: Stage::Handshake,
            announced: Vec::new(),
            acknowledged: 0,
            acknowledged_low: 0,
            acknowledges_wrongly: false,
            events: VecDeque::new(),
            failed: false,
        }
    }

    /// Takes bytes read from the peer, all of them.
    ///
    /// # Errors
    /// Any [`RtmpError`]; close the connection. Later calls give [`RtmpError::Failed`].
    pub fn input(&mut self, bytes: Bytes) -> Result<(), RtmpError> {
        if self.failed {
            return Err(RtmpError::Failed);
        }
        let result = self.read(bytes);
        self.failed = result.is_err();
        result
    }

    /// Whether the server accepts `codec`: H.264 and AAC always, the others if it announced them. Meaningful from
    /// [`ClientEvent::Publishing`] on. Some servers announce no codec and still accept them.
    pub fn takes(&self, codec: Codec) -> bool {
        matches!(codec, Codec::H264 | Codec::Aac) || self.announced.contains(&codec)
    }

    /// The next event, in order.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Appends one packet to the output; its payload is shared. Codec configurations become sequence
    /// headers. Times are rounded down to whole milliseconds (a negative decode time is sent as 0) and wrap at 32
    /// bits.
    ///
    /// # Errors
    /// [`RtmpError::NotPublishing`], [`RtmpError::OutputFull`] or [`RtmpError::Chunk`]; nothing is appended and the session
    /// continues.
    pub fn send(&mut self, packet: &Packet) -> Result<(), RtmpError> {
        let Stage::Publishing { stream } = self.stage else { return Err(RtmpError::NotPublishing) };
        let tag = mux(packet);
        let (kind, chunk_stream) = match packet.kind() {
            Kind::Audio => (kind::AUDIO, AUDIO_CHUNK_STREAM),
            Kind::Video => (kind::VIDEO, VIDEO_CHUNK_STREAM),
        };
        // The truncation is intended: RTMP time wraps at 32 bits.
        let timestamp = floor_ms(packet.dts_ns).max(0) as u32;
        let header = MessageHeader { chunk_stream, timestamp, kind, stream };
        self.link.send_media(header, tag.as_slice(), &packet.payload)
    }

    /// Appends `@setDataFrame onMetaData` with the numbers given, at time 0.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_metadata(&mut self, metadata: &Metadata) -> Result<(), RtmpError> {
        let Stage::Publishing { stream } = self.stage else { return Err(RtmpError::NotPublishing) };
        let header =
            MessageHeader { chunk_stream: DATA_CHUNK_STREAM, timestamp: 0, kind: kind::DATA, stream };
        self.link.send_media(header, &[], &Bytes::from(metadata.encode()))
    }

    /// Asks the server to acknowledge every `bytes` bytes from now on, instead of [`ClientConfig::window_bytes`].
    ///
    /// # Errors
    /// [`RtmpError::Chunk`]; nothing is appended.
    pub fn announce_window(&mut self, bytes: u32) -> Result<(), RtmpError> {
        self.link.announce_window(bytes)
    }

    /// Acknowledgement window that was last announced to the server, in bytes. The server can change it with Set Peer Bandwidth.
    pub fn window_bytes(&self) -> u32 {
        self.link.window_sent
    }

    /// Whether the server has ever acknowledged more than the written total, less than before, or the same count again. Its
    /// acknowledgements then do not show how much it has read.
    pub fn acknowledges_wrongly(&self) -> bool {
        self.acknowledges_wrongly
    }

    /// Appends FCUnpublish and deleteStream; nothing can be sent afterwards and input is ignored.
    pub fn end(&mut self) {
        if let Stage::Publishing { stream } | Stage::Requesting { stream } = self.stage {
            self.send_end(stream);
        }
        self.stage = Stage::Closed;
    }

    /// Bytes to write to the peer.
    pub fn output(&mut self) -> &mut ChunkOutput {
        &mut self.link.output
    }

    /// Bytes of the peer's unfinished messages in memory.
    pub fn held_bytes(&self) -> usize {
        self.link.unfinished_bytes()
    }

    fn read(&mut self, mut block: Bytes) -> Result<(), RtmpError> {
        self.link.count(block.len());
        while self.stage != Stage::Closed {
            match self.link.next(&mut block)? {
                None => break,
                Some(Incoming::HandshakeDone) => self.connect()?,
                Some(Incoming::Acknowledged(low)) => self.acknowledge(low),
                Some(Incoming::Message(message)) => self.message(&message)?,
            }
        }
        self.link.finish()
    }

    /// Unwraps a 32-bit count. A count over the written total is cut to it; a count that goes back or repeats is ignored. Both set
    /// `acknowledges_wrongly`.
    fn acknowledge(&mut self, low: u32) {
        let written = self.link.output.total_bytes();
        let Some(reported) = unwrapped(self.acknowledged, self.acknowledged_low, low, written) else {
            self.acknowledges_wrongly = true;
            return;
        };
        self.acknowledges_wrongly |= reported > written;
        let bytes = reported.min(written);
        let low = if reported > written { bytes as u32 } else { low };
        (self.acknowledged, self.acknowledged_low) = (bytes, low);
        if let Some(ClientEvent::Acknowledged { bytes: newest }) = self.events.back_mut() {
            *newest = bytes;
            return;
        }
        self.events.push_back(ClientEvent::Acknowledged { bytes });
    }
}

/// Output position of the 32-bit count `low`. The count before it was `before`, for the output position `position`; `written`
/// bytes were written so far. `None` if the count goes back or repeats.
fn unwrapped(position: u64, before: u32, low: u32, written: u64) -> Option<u64> {
    let step = low.wrapping_sub(before);
    if step == 0 || step >= 1 << 31 {
        return None;
    }
    let reported = position + u64::from(step);
    // nginx-rtmp restarts its count at 0 some bytes before the 32 bits are full.
    let restarts = reported > written && low < before;
    Some(if restarts { position + u64::from(low) } else { reported })
}
