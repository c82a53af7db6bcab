//! Message types, protocol control messages and commands (RTMP 1.0, 5.4, 6.2 and 7).

use std::fmt;

use super::amf0::{self, Amf0Error, Value};
use super::limits::{CHUNK_SIZE_MAX, CHUNK_SIZE_MIN};

/// Message type ids.
pub mod kind {
    /// Set Chunk Size.
    pub const SET_CHUNK_SIZE: u8 = 1;
    /// Abort Message.
    pub const ABORT: u8 = 2;
    /// Acknowledgement.
    pub const ACKNOWLEDGEMENT: u8 = 3;
    /// User Control.
    pub const USER_CONTROL: u8 = 4;
    /// Window Acknowledgement Size.
    pub const WINDOW_SIZE: u8 = 5;
    /// Set Peer Bandwidth.
    pub const PEER_BANDWIDTH: u8 = 6;
    /// Audio.
    pub const AUDIO: u8 = 8;
    /// Video.
    pub const VIDEO: u8 = 9;
    /// Data, AMF3 envelope.
    pub const DATA_AMF3: u8 = 15;
    /// Command, AMF3 envelope.
    pub const COMMAND_AMF3: u8 = 17;
    /// Data, AMF0.
    pub const DATA: u8 = 18;
    /// Command, AMF0.
    pub const COMMAND: u8 = 20;
}

/// User Control: a message stream begins.
pub const EVENT_STREAM_BEGIN: u16 = 0;
/// User Control: ping request.
pub const EVENT_PING_REQUEST: u16 = 6;
/// User Control: ping response.
pub const EVENT_PING_RESPONSE: u16 = 7;

/// Bandwidth limit type "dynamic".
const LIMIT_DYNAMIC: u8 = 2;

/// Reasons for which a control message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Its body is too short.
    #[error("control message of type {0} is cut off")]
    Truncated(u8),
    /// Set Chunk Size with 0 or the top bit set.
    #[error("peer set an impossible chunk size")]
    ChunkSize,
}

/// A protocol control or user control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Chunk size of the sender in bytes, 1 to 16 MiB.
    SetChunkSize(usize),
    /// Drop the unfinished message of a chunk stream.
    Abort(u32),
    /// Bytes received by the sender, low 32 bits.
    Acknowledgement(u32),
    /// The sender requests an acknowledgement for every window of this many bytes.
    WindowSize(u32),
    /// The sender limits our output to this window in bytes.
    PeerBandwidth(u32),
    /// Ping with the time to send back.
    Ping(u32),
    /// Any other user control event; needs no answer.
    OtherEvent(u16),
}

impl Control {
    /// Reads a message of type 1 to 6; `None` for other types.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn parse(kind: u8, body: &[u8]) -> Result<Option<Self>, MessageError> {
        let word = |at: usize| {
            let bytes = body.get(at..).and_then(|rest| rest.first_chunk());
            bytes.map(|bytes| u32::from_be_bytes(*bytes)).ok_or(MessageError::Truncated(kind))
        };
        Ok(Some(match kind {
            kind::SET_CHUNK_SIZE => {
                let bytes = i32::from_be_bytes(word(0)?.to_be_bytes());
                let bytes = usize::try_from(bytes).map_err(|_| MessageError::ChunkSize)?;
                if bytes < CHUNK_SIZE_MIN {
                    return Err(MessageError::ChunkSize);
                }
                Control::SetChunkSize(bytes.min(CHUNK_SIZE_MAX))
            }
            kind::ABORT => Control::Abort(word(0)?),
            kind::ACKNOWLEDGEMENT => Control::Acknowledgement(word(0)?),
            kind::USER_CONTROL => {
                let event = body.first_chunk().ok_or(MessageError::Truncated(kind))?;
                match u16::from_be_bytes(*event) {
                    EVENT_PING_REQUEST => Control::Ping(word(2)?),
                    other => Control::OtherEvent(other),
                }
            }
            kind::WINDOW_SIZE => Control::WindowSize(word(0)?),
            kind::PEER_BANDWIDTH => Control::PeerBandwidth(word(0)?),
            _ => return Ok(None),
        }))
    }

    /// Message type and body.
    pub fn encode(self) -> (u8, Vec<u8>) {
        let word = |value: u32| value.to_be_bytes().to_vec();
        match self {
            Control::SetChunkSize(bytes) => (kind::SET_CHUNK_SIZE, word(bytes.min(CHUNK_SIZE_MAX) as u32)),
            Control::Abort(stream) => (kind::ABORT, word(stream)),
            Control::Acknowledgement(bytes) => (kind::ACKNOWLEDGEMENT, word(bytes)),
            Control::WindowSize(bytes) => (kind::WINDOW_SIZE, word(bytes)),
            Control::PeerBandwidth(bytes) => {
                (kind::PEER_BANDWIDTH, [&word(bytes)[..], &[LIMIT_DYNAMIC]].concat())
            }
            Control::Ping(time) => user_control(EVENT_PING_REQUEST, time),
            Control::OtherEvent(event) => (kind::USER_CONTROL, event.to_be_bytes().to_vec()),
        }
    }
}

/// Type and body of a user control message with one 32-bit value.
pub fn user_control(event: u16, value: u32) -> (u8, Vec<u8>) {
    (kind::USER_CONTROL, [&event.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

/// A command: name, transaction, then the command object and arguments.
///
/// `Debug` prints no argument: they hold app, tcUrl and stream key.
#[derive(Clone, PartialEq)]
pub struct Command {
    /// Procedure name.
    pub name: String,
    /// Transaction id; 0 means that no answer is expected.
    pub transaction: f64,
    /// Command object first, then arguments.
    pub args: Vec<Value>,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("name", &self.name)
            .field("transaction", &self.transaction)
            .field("args", &self.args.len())
            .finish()
    }
}

impl Command {
    /// Reads a command body of message type 20, or 17 with its leading byte. An unreadable value and everything after it are
    /// ignored: some peers append values of their own types. A missing transaction is read as 0, a missing name as
    /// empty.
    ///
    /// # Errors
    /// [`Amf0Error::TooDeep`] and [`Amf0Error::TooMany`].
    pub fn parse(kind: u8, body: &[u8]) -> Result<Self, Amf0Error> {
        let (values, _unreadable) = amf0::decode_front(without_envelope(kind, body))?;
        let mut values = values.into_iter();
        let name = match values.next() {
            Some(Value::String(name)) => name,
            _ => String::new(),
        };
        let transaction = values.next().and_then(|value| value.number()).unwrap_or(0.0);
        Ok(Command { name, transaction, args: values.collect() })
    }

    /// Writes a command body of message type 20.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        amf0::encode(&mut out, &Value::String(self.name.clone()));
        amf0::encode(&mut out, &Value::Number(self.transaction));
        for value in &self.args {
            amf0::encode(&mut out, value);
        }
        out
    }

    /// Text of argument `index`; the command object has index 0.
    pub fn text(&self, index: usize) -> Option<&str> {
        self.args.get(index).and_then(Value::text)
    }

    /// Number of argument `index`; the command object has index 0.
    pub fn number(&self, index: usize) -> Option<f64> {
        self.args.get(index).and_then(Value::number)
    }
}

/// Body without the zero byte before the AMF0 values of AMF3 types.
pub(crate) fn without_envelope(kind: u8, body: &[u8]) -> &[u8] {
    match (kind, body) {
        (kind::COMMAND_AMF3 | kind::DATA_AMF3, [0, rest @ ..]) => rest,
        _ => body,
    }
}

/// An AMF0 string.
pub(crate) fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_survive_a_round_trip() {
        let controls = [
            Control::SetChunkSize(CHUNK_SIZE_MIN),
            Control::SetChunkSize(CHUNK_SIZE_MAX),
            Control::Abort(7),
            Control::Acknowledgement(u32::MAX),
            Control::WindowSize(2_500_000),
            Control::PeerBandwidth(2_500_000),
            Control::Ping(0x0102_0304),
            Control::OtherEvent(EVENT_STREAM_BEGIN),
        ];
        for control in controls {
            let (kind, body) = control.encode();
            assert_eq!(Control::parse(kind, &body), Ok(Some(control)));
            let needed = if kind == kind::PEER_BANDWIDTH { 4 } else { body.len() };
            for end in 0..needed {
                match Control::parse(kind, &body[..end]) {
                    Err(error) => assert_eq!(error, MessageError::Truncated(kind)),
                    Ok(read) => panic!("{control:?} cut at {end} was read as {read:?}"),
                }
            }
        }
        assert_eq!(Control::parse(kind::AUDIO, &[]), Ok(None));
    }

    #[test]
    fn impossible_chunk_sizes_are_refused_and_huge_ones_clamped() {
        let set = |bytes: u32| Control::parse(kind::SET_CHUNK_SIZE, &bytes.to_be_bytes());
        assert_eq!(set(0), Err(MessageError::ChunkSize));
        assert_eq!(set(0x8000_0000), Err(MessageError::ChunkSize));
        assert_eq!(set(1), Ok(Some(Control::SetChunkSize(1))));
        assert_eq!(set(0x7fff_ffff), Ok(Some(Control::SetChunkSize(CHUNK_SIZE_MAX))));
    }

    #[test]
    fn commands_survive_with_and_without_the_envelope() {
        let command = Command {
            name: "publish".to_owned(),
            transaction: 5.0,
            args: vec![Value::Null, text("name"), Value::Number(2.0)],
        };
        let body = command.encode();
        assert_eq!(Command::parse(kind::COMMAND, &body), Ok(command.clone()));
        assert_eq!(Command::parse(kind::COMMAND_AMF3, &[&[0], &body[..]].concat()), Ok(command.clone()));
        assert_eq!((command.text(1), command.number(2), command.text(9)), (Some("name"), Some(2.0), None));
        let empty = Command::parse(kind::COMMAND, &[]).expect("empty is a command without a name");
        assert_eq!((empty.name.as_str(), empty.transaction), ("", 0.0));
    }
}
