//! What host and child say to each other. The first byte of a message tells its form: text (JSON) for everything rare, fixed
//! fields for media and what is let go of.

use std::time::Duration;

use satcast_plugin_api::driver_state::State;
use satcast_plugin_api::host::{Delivery, LogLine, Packet, Playback};
use satcast_plugin_api::packet::{Codec, Kind};
use satcast_plugin_api::{Audience, Class, Error};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::config::ProcessLimits;

/// Version of these messages: both sides are one binary, unless it was replaced while it ran.
pub(super) const PROTOCOL: u32 = 1;
/// Most packets in one message.
pub(super) const BATCH_PACKETS_MAX: usize = 64;
/// Most packets let go of in one message.
pub(super) const RELEASES_MAX: usize = 1024;

const FORM_TEXT: u8 = 1;
const FORM_MEDIA: u8 = 2;
const FORM_DEMAND: u8 = 3;

const MARK_KEYFRAME: u32 = 1;
const MARK_CONFIG: u32 = 1 << 1;
const MARK_DISCONTINUITY: u32 = 1 << 2;

/// Why a message of the other side cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// An [`Error`] on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failure {
    class: u32,
    retry_ms: u64,
    message: String,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let retry_ms = error.retry_after.map_or(0, |wait| wait.as_millis() as u64);
        Self { class: error.class.to_abi(), retry_ms, message: error.message }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let error = Error::new(Class::from_abi(failure.class), failure.message);
        if failure.retry_ms == 0 { error } else { error.retry_after(Duration::from_millis(failure.retry_ms)) }
    }
}

/// From host to child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToChild {
    /// The first message; the shared memory comes beside it.
    Start {
        protocol: u32,
        id: String,
        image: String,
        max_level: u32,
        limits: ProcessLimits,
    },
    /// Answered by [`ToHost::Answer`], as the following ones.
    Validate {
        call: u64,
        kind: String,
        config: String,
    },
    Open {
        call: u64,
        dest: u64,
        source: u64,
        kind: String,
        config: String,
    },
    Stop {
        call: u64,
        dest: u64,
        deadline_ms: u32,
    },
    Destroy {
        call: u64,
        dest: u64,
    },
    /// The queue is closed and was handed over.
    MediaEnd {
        dest: u64,
    },
    /// Answers [`ToHost::Connect`]; the socket comes beside it.
    Connected {
        call: u64,
        failure: Option<Failure>,
    },
    /// Answers a call of the child.
    Answer {
        call: u64,
        outcome: Result<String, Failure>,
    },
    /// The bytes of a published file are not needed any more.
    BodyReleased {
        body: u64,
    },
    /// Answered by [`ToHost::Pong`].
    Ping,
    /// End in order.
    End,
}

/// From child to host.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToHost {
    /// The library is loaded and started; its manifest comes beside it.
    Ready {
        id: String,
        version: String,
    },
    /// It cannot be loaded or started.
    Refused {
        reason: String,
    },
    Answer {
        call: u64,
        outcome: Result<(), Failure>,
    },
    Log(Line),
    State {
        dest: u64,
        state: u32,
        reason: Option<Failure>,
    },
    Event {
        dest: u64,
        name: String,
        json: String,
    },
    /// What was added to counters.
    Counted {
        dest: u64,
        name: String,
        added: u64,
    },
    Stopped {
        dest: u64,
        failure: Option<Failure>,
    },
    Connect {
        call: u64,
        dest: u64,
        host: String,
        port: u16,
        timeout_ms: u64,
    },
    DataDir {
        call: u64,
    },
    /// Bytes in memory come beside it.
    Publish {
        call: u64,
        dest: u64,
        piece: Piece,
    },
    Retract {
        dest: u64,
        name: String,
    },
    Playback {
        call: u64,
        dest: u64,
        told: Told,
    },
    Pong,
}

/// A [`LogLine`] on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) dest: u64,
    pub(super) level: u32,
    pub(super) target: String,
    pub(super) message: String,
    pub(super) fields: Vec<(String, String)>,
}

impl From<Line> for LogLine {
    fn from(line: Line) -> Self {
        let Line { dest, level, target, message, fields } = line;
        Self { dest, level, target, message, fields }
    }
}

/// A piece for viewers on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Piece {
    pub(super) name: String,
    pub(super) content_type: String,
    pub(super) max_age_secs: u32,
    pub(super) hosted: bool,
    pub(super) preview: bool,
    pub(super) bytes: PieceBytes,
}

/// Where the bytes of a piece are.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum PieceBytes {
    /// In sealed memory beside the message.
    Memory,
    /// In a file; `body` names it in [`ToChild::BodyReleased`].
    File { path: String, offset: u64, len: u64, body: u64 },
    /// In other pieces.
    Parts(Vec<String>),
}

impl Piece {
    pub(super) fn audience(&self) -> Option<Audience> {
        match (self.hosted, self.preview) {
            (true, true) => Some(Audience::Both),
            (true, false) => Some(Audience::Hosted),
            (false, true) => Some(Audience::Preview),
            (false, false) => None,
        }
    }
}

/// A [`Playback`] on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) entry: String,
    pub(super) preview: Option<String>,
    pub(super) first_ms: i64,
    pub(super) window_ms: u64,
    pub(super) window_max_ms: u64,
    pub(super) fresh_ms: u32,
    pub(super) ended: bool,
}

impl From<Playback> for Told {
    fn from(told: Playback) -> Self {
        let Playback { entry, preview, first_ms, window_ms, window_max_ms, fresh_ms, ended } = told;
        Self { entry, preview, first_ms, window_ms, window_max_ms, fresh_ms, ended }
    }
}

impl From<Told> for Playback {
    fn from(told: Told) -> Self {
        let Told { entry, preview, first_ms, window_ms, window_max_ms, fresh_ms, ended } = told;
        Self { entry, preview, first_ms, window_ms, window_max_ms, fresh_ms, ended }
    }
}

/// The number of a state on its way.
pub(super) fn state_number(state: State) -> u32 {
    state.to_abi()
}

/// A text message as bytes.
pub(super) fn text(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![FORM_TEXT];
    // Numbers, text and lists cannot fail to be written to memory.
    if serde_json::to_writer(&mut bytes, message).is_err() {
        bytes.truncate(1);
    }
    bytes
}

/// A message as it came.
#[derive(Debug)]
pub(super) enum Message<T> {
    /// Something rare.
    Text(Box<T>),
    /// Packets for a destination, to the child only.
    Media(Batch),
    /// To the host only.
    Demand(Demand),
}

/// Reads a message.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<Message<T>, Malformed> {
    let (form, rest) = bytes.split_first().ok_or(Malformed)?;
    match *form {
        FORM_TEXT => serde_json::from_slice(rest).map(Message::Text).map_err(|_| Malformed),
        FORM_MEDIA => Batch::read(rest).map(Message::Media),
        FORM_DEMAND => Demand::read(rest).map(Message::Demand),
        _ => Err(Malformed),
    }
}

/// What a child wants and lets go of.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    /// Destination that waits for media; 0 = none.
    pub(super) wanted: u64,
    /// Destination that gave its queue back; 0 = none.
    pub(super) abandoned: u64,
    /// Leases.
    pub(super) released: Vec<u64>,
}

impl Demand {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(17 + 8 * self.released.len());
        bytes.push(FORM_DEMAND);
        for number in [self.wanted, self.abandoned].iter().chain(&self.released) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        if !bytes.len().is_multiple_of(8) || bytes.len() > 8 * (2 + RELEASES_MAX) {
            return Err(Malformed);
        }
        let mut fields = Fields(bytes);
        let (wanted, abandoned) = (fields.u64()?, fields.u64()?);
        let released = (0..fields.0.len() / 8).map(|_| fields.u64()).collect::<Result<_, _>>()?;
        Ok(Self { wanted, abandoned, released })
    }
}

/// Packets for one destination.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) dest: u64,
    pub(super) packets: Vec<Note>,
}

/// One packet: everything but its payload, and where that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) lease: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) source: u64,
    pub(super) sequence: u64,
    pub(super) dts_ns: i64,
    pub(super) pts_ns: i64,
    pub(super) marks: u32,
    pub(super) kind: u32,
    pub(super) codec: u32,
    pub(super) track: u32,
}

impl Note {
    pub(super) fn of(delivery: &Delivery, lease: u64, offset: usize) -> Self {
        let packet = &delivery.packet;
        let mark = |is: bool, mark: u32| if is { mark } else { 0 };
        Self {
            lease,
            offset: offset as u64,
            len: packet.payload.len() as u64,
            source: packet.source,
            sequence: packet.sequence,
            dts_ns: packet.dts_ns,
            pts_ns: packet.pts_ns,
            marks: mark(packet.keyframe, MARK_KEYFRAME)
                | mark(packet.config, MARK_CONFIG)
                | mark(packet.discontinuity || delivery.discontinuity, MARK_DISCONTINUITY),
            kind: u32::from(packet.kind == Kind::Audio),
            codec: packet.codec.to_abi(),
            track: packet.track,
        }
    }

    /// The packet with its payload; `None` for a codec this version does not know.
    pub(super) fn packet(&self, payload: bytes::Bytes) -> Option<Packet> {
        Some(Packet {
            kind: if self.kind == 0 { Kind::Video } else { Kind::Audio },
            codec: Codec::from_abi(self.codec)?,
            config: self.marks & MARK_CONFIG != 0,
            keyframe: self.marks & MARK_KEYFRAME != 0,
            discontinuity: self.marks & MARK_DISCONTINUITY != 0,
            track: self.track,
            source: self.source,
            sequence: self.sequence,
            dts_ns: self.dts_ns,
            pts_ns: self.pts_ns,
            payload,
        })
    }
}

impl Batch {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(9 + 72 * self.packets.len());
        bytes.push(FORM_MEDIA);
        bytes.extend_from_slice(&self.dest.to_le_bytes());
        for note in &self.packets {
            for number in [note.lease, note.offset, note.len, note.source, note.sequence] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            for time in [note.dts_ns, note.pts_ns] {
                bytes.extend_from_slice(&time.to_le_bytes());
            }
            for number in [note.marks, note.kind, note.codec, note.track] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(bytes);
        let mut batch = Batch { dest: fields.u64()?, packets: Vec::new() };
        while !fields.0.is_empty() && batch.packets.len() < BATCH_PACKETS_MAX {
            batch.packets.push(Note {
                lease: fields.u64()?,
                offset: fields.u64()?,
                len: fields.u64()?,
                source: fields.u64()?,
                sequence: fields.u64()?,
                dts_ns: fields.u64()?.cast_signed(),
                pts_ns: fields.u64()?.cast_signed(),
                marks: fields.u32()?,
                kind: fields.u32()?,
                codec: fields.u32()?,
                track: fields.u32()?,
            });
        }
        if fields.0.is_empty() { Ok(batch) } else { Err(Malformed) }
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u64(&mut self) -> Result<u64, Malformed> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*field))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*field))
    }
}

#[cfg(test)]
mod tests;
