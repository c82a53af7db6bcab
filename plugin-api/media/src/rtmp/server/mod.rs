//! The server side of one RTMP connection: accepts a publisher.

mod commands;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;

use super::chunk::Message;
use super::limits::{
    COMMAND_BYTES_MAX, DATA_BYTES_MAX, EVENTS_MAX, HELD_MEDIA_BYTES_MAX, HELD_MEDIA_MESSAGES_MAX,
};
use super::link::{Incoming, Link};
use super::message::{Command, kind};
use super::time::TimeLine;
use super::{Metadata, RtmpError};
use crate::flv::{self, ForeignCodec};
use crate::{Kind, Packet};

/// Values that the server announces.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Chunk size announced and used for replies, in bytes. ffmpeg adopts it for its own chunks; large messages then
    /// arrive in one chunk and need no copy. Default 60,000.
    pub chunk_size: u32,
    /// Acknowledgement window and peer bandwidth announced, in bytes. Default 2,500,000.
    pub window_bytes: u32,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig { chunk_size: 60_000, window_bytes: 2_500_000 }
    }
}

/// Identifies one publish request within its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublishId(pub(crate) u32);

/// Events of the connection.
///
/// `Debug` never prints the app, the stream key or the query.
#[derive(Clone, PartialEq)]
pub enum ServerEvent {
    /// `connect` was answered.
    Connected {
        /// Application name as sent, without a trailing slash; may hold a key or a query.
        app: String,
    },
    /// A publish request; answer with [`ServerSession::accept_publish`] or [`ServerSession::reject_publish`].
    PublishRequested {
        /// Id of the request.
        id: PublishId,
        /// Application name, as in `Connected`.
        app: String,
        /// Publish name up to the first `?`; empty if the publisher gave none.
        stream_key: String,
        /// Publish name after the first `?`, with its escapes unchanged.
        query: Option<String>,
    },
    /// A codec configuration or access unit of an accepted publish.
    Packet(Packet),
    /// A track of an accepted publish has an unsupported codec; comes once for each kind of track and publish.
    Foreign(ForeignCodec),
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
            ServerEvent::Foreign(codec) => codec.fmt(f),
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

/// State of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Handshake or `connect` is due.
    Connecting,
    /// Connected; no publish request yet.
    Connected,
    /// A publish waits for the caller's decision.
    Requested { id: PublishId, stream: u32 },
    /// The publish was accepted.
    Publishing { stream: u32 },
    /// The publisher ended its publish; it may request another.
    Unpublished,
    /// We refused or ended the publish; input is ignored.
    Closed,
}

/// A call whose answer waits for the publish decision.
#[derive(Debug, Clone, Copy)]
struct HeldCall {
    transaction: f64,
    /// FCPublish, which needs a notice besides its result; otherwise releaseStream.
    fc_publish: bool,
}

/// The server side of one connection.
///
/// After every `input`, decision and end: poll all events and write the bytes of [`Self::take_output`], also
/// after an error. Media before the decision is held up to a limit; media without a publish
/// request is an error.
pub struct ServerSession {
    config: ServerConfig,
    link: Link,
    stage: Stage,
    app: String,
    flash_ver: String,
    next_publish: u32,
    streams_created: u32,
    held_calls: Vec<HeldCall>,
    held_media: VecDeque<Message>,
    held_media_bytes: usize,
    time: TimeLine,
    events: VecDeque<ServerEvent>,
    stats: ServerStats,
    foreign_video_named: bool,
    foreign_audio_named: bool,
    failed: bool,
}

impl fmt::Debug for ServerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSession")
            .field("stage", &self.stage)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl ServerSession {
    /// A session that waits for the client's handshake.
    pub fn new(config: ServerConfig) -> Self {
        ServerSession {
            config,
            link: Link::server(),
            stage: Stage::Connecting,
            app: String::new(),
            flash_ver: String::new(),
            next_publish: 1,
            streams_created: 0,
            held_calls: Vec::new(),
            held_media: VecDeque::new(),
            held_media_bytes: 0,
            time: TimeLine::default(),
            events: VecDeque::new(),
            stats: ServerStats::default(),
            foreign_video_named: false,
            foreign_audio_named: false,
            failed: false,
        }
    }

    /// The client's `flashVer` from `connect`, at most [`NAME_BYTES_MAX`](super::limits::NAME_BYTES_MAX) bytes; empty before `connect`.
    pub fn flash_ver(&self) -> &str {
        &self.flash_ver
    }

    /// Takes bytes read from the peer, all of them.
    ///
    /// # Errors
    /// Any [`RtmpError`]; write the bytes of [`Self::take_output`] and close the connection. Later calls give
    /// [`RtmpError::Failed`].
    pub fn input(&mut self, bytes: Bytes) -> Result<(), RtmpError> {
        if self.failed {
            return Err(RtmpError::Failed);
        }
        let result = self.read(bytes);
        self.failed = result.is_err();
        result
    }

    /// Sets the size of the buffer, in bytes, that each following block of [`Self::input`] is a slice of. Payloads smaller than
    /// this size divided by [`SMALL_PAYLOAD_PART`](super::limits::SMALL_PAYLOAD_PART) are copied, so that a small packet does
    /// not keep a large buffer in memory.
    pub fn set_block_bytes(&mut self, bytes: usize) {
        self.link.set_block_bytes(bytes);
    }

    /// The next event, in order.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// Bytes to write to the peer, empty when there are none.
    pub fn take_output(&mut self) -> Bytes {
        self.link.output.take()
    }

    /// Answers a publish with NetStream.Publish.Start and delivers the media held for it.
    ///
    /// # Errors
    /// [`RtmpError::NoSuchRequest`] if the request was withdrawn or decided (the session continues); any
    /// other error as from [`Self::input`].
    pub fn accept_publish(&mut self, id: PublishId) -> Result<(), RtmpError> {
        let Stage::Requested { id: pending, stream } = self.stage else {
            return Err(RtmpError::NoSuchRequest);
        };
        if pending != id {
            return Err(RtmpError::NoSuchRequest);
        }
        let result = self.start(stream);
        self.failed |= result.is_err();
        result
    }

    /// Answers a publish with an error status; all later input is ignored. A stale id does nothing.
    pub fn reject_publish(&mut self, id: PublishId, code: &str, description: &str) {
        if let Stage::Requested { id: pending, stream } = self.stage
            && pending == id
        {
            self.stage = Stage::Closed;
            self.drop_held();
            self.refuse_held_calls(code, description);
            self.status(stream, "error", code, description);
        }
    }

    /// Ends an accepted or pending publish and notifies the publisher; all later input is ignored.
    ///
    /// The level is "status" for codes that end in `.Success`, otherwise "error".
    pub fn end_publish(&mut self, code: &str, description: &str) {
        if let Stage::Publishing { stream } | Stage::Requested { stream, .. } = self.stage {
            self.stage = Stage::Closed;
            self.drop_held();
            let level = if code.ends_with(".Success") { "status" } else { "error" };
            self.status(stream, level, code, description);
        }
    }

    /// Counters.
    pub fn stats(&self) -> ServerStats {
        ServerStats { bytes_in: self.link.bytes_in(), ..self.stats }
    }

    /// Bytes of the peer held in memory: unfinished messages and media before the decision.
    pub fn held_bytes(&self) -> usize {
        self.link.unfinished_bytes() + self.held_media_bytes
    }

    fn read(&mut self, mut block: Bytes) -> Result<(), RtmpError> {
        self.link.count(block.len());
        while self.stage != Stage::Closed {
            match self.link.next(&mut block)? {
                None => break,
                Some(Incoming::HandshakeDone | Incoming::Acknowledged(_)) => {}
                Some(Incoming::Message(message)) => self.message(message)?,
            }
        }
        self.link.finish()
    }

    fn message(&mut self, message: Message) -> Result<(), RtmpError> {
        match message.header.kind {
            kind::COMMAND | kind::COMMAND_AMF3 => {
                let bytes = message.payload.len();
                if bytes > COMMAND_BYTES_MAX {
                    return Err(RtmpError::CommandTooLong { bytes });
                }
                let command = Command::parse(message.header.kind, &message.payload)?;
                self.command(message.header.stream, &command)
            }
            kind::AUDIO | kind::VIDEO => self.media(message),
            kind::DATA | kind::DATA_AMF3 if self.takes_media() => self.media(message),
            _ => {
                self.stats.ignored_messages += 1;
                Ok(())
            }
        }
    }

    fn takes_media(&self) -> bool {
        matches!(self.stage, Stage::Publishing { .. } | Stage::Requested { .. })
    }

    fn media(&mut self, message: Message) -> Result<(), RtmpError> {
        match self.stage {
            Stage::Connecting => Err(RtmpError::Order { what: "media", before: "connect" }),
            Stage::Connected => Err(RtmpError::Order { what: "media", before: "publish" }),
            Stage::Requested { .. } => self.hold(message),
            Stage::Publishing { .. } => self.deliver(message),
            Stage::Unpublished | Stage::Closed => {
                self.stats.ignored_messages += 1;
                Ok(())
            }
        }
    }

    fn hold(&mut self, message: Message) -> Result<(), RtmpError> {
        self.held_media_bytes += message.payload.len();
        self.held_media.push_back(message);
        if self.held_media_bytes > HELD_MEDIA_BYTES_MAX || self.held_media.len() > HELD_MEDIA_MESSAGES_MAX {
            return Err(RtmpError::HeldMediaFull);
        }
        Ok(())
    }

    fn drop_held(&mut self) {
        self.held_media.clear();
        self.held_media_bytes = 0;
    }

    fn deliver(&mut self, message: Message) -> Result<(), RtmpError> {
        let track = match message.header.kind {
            kind::AUDIO => Kind::Audio,
            kind::VIDEO => Kind::Video,
            other => return self.data(other, &message.payload),
        };
        let time_ms = self.time.unwrap_ms(message.header.timestamp)?;
        match flv::demux(track, time_ms, &message.payload) {
            Ok(Some(packet)) => self.event(ServerEvent::Packet(packet))?,
            Ok(None) => {
                self.stats.ignored_tags += 1;
                self.name_foreign(track, &message.payload)?;
            }
            // A broken tag affects one message only; the chunk stream stays intact.
            Err(_) if message.payload.is_empty() => self.stats.ignored_tags += 1,
            Err(_) => self.stats.malformed_tags += 1,
        }
        Ok(())
    }

    fn name_foreign(&mut self, track: Kind, body: &[u8]) -> Result<(), RtmpError> {
        let is_named = match track {
            Kind::Video => &mut self.foreign_video_named,
            Kind::Audio => &mut self.foreign_audio_named,
        };
        let found = if *is_named { None } else { ForeignCodec::of(track, body) };
        *is_named |= found.is_some();
        found.map_or(Ok(()), |codec| self.event(ServerEvent::Foreign(codec)))
    }

    fn data(&mut self, kind: u8, body: &[u8]) -> Result<(), RtmpError> {
        let metadata = if body.len() > DATA_BYTES_MAX { None } else { Metadata::parse(kind, body) };
        match metadata {
            Some(metadata) => self.event(ServerEvent::Metadata(metadata)),
            None => {
                self.stats.ignored_messages += 1;
                Ok(())
            }
        }
    }

    fn event(&mut self, event: ServerEvent) -> Result<(), RtmpError> {
        if self.events.len() >= EVENTS_MAX {
            return Err(RtmpError::EventsFull);
        }
        self.events.push_back(event);
        Ok(())
    }
}
