//! What host and child say to each other. The first byte of a message tells its form: text (JSON) for everything rare, fixed
//! fields for media and what is let go of.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use satcast_plugin_api::driver_state::State;
use satcast_plugin_api::host::{Followed, LogLine, Playback};
use satcast_plugin_api::recording::{About, Recording};
use satcast_plugin_api::{Audience, Class, Error};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::notes::{Batch, Demand, FORM_DEMAND, FORM_MEDIA};
use crate::config::ProcessLimits;

/// Version of these messages: both sides are one binary, unless it was replaced while it ran.
pub(super) const PROTOCOL: u32 = 6;

const FORM_TEXT: u8 = 1;

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
        about: About,
    },
    /// Answered by whether it was taken.
    Reconfigure {
        call: u64,
        dest: u64,
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
    /// Every recording; the answer comes with a JSON list beside it.
    Recordings {
        call: u64,
    },
    /// Addresses of recordings, whose names come beside it as a JSON list; so do the addresses.
    Sign {
        call: u64,
        valid_secs: u64,
    },
    /// Another upload of a recording. Answered when it was asked for; what became of it is told by [`ToHost::Done`].
    Retry {
        call: u64,
        request: u64,
        file_name: String,
    },
    /// A recording is to be forgotten. Answered and told as [`ToChild::Retry`].
    Delete {
        call: u64,
        request: u64,
        file_name: String,
        remote: bool,
    },
    /// Whether a configuration could record. Answered and told as [`ToChild::Retry`].
    Probe {
        call: u64,
        request: u64,
        kind: String,
        config: String,
    },
    /// What a destination's configuration is now; nothing = it was deleted.
    Configured {
        call: u64,
        destination_id: i64,
        kind: String,
        config: Option<String>,
    },
    /// A viewer asks. Answered by whether it was handed over, and told of by [`ToHost::Respond`], if at all.
    Request {
        call: u64,
        dest: u64,
        token: u64,
        is_head: bool,
        is_preview: bool,
        path: String,
        query: String,
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
    /// The library is loaded; its manifest comes beside it.
    Loaded {
        id: String,
        version: String,
        is_lossless: bool,
    },
    /// It is started.
    Ready {
        keeps_recordings: bool,
    },
    /// It cannot be loaded or started.
    Refused {
        reason: String,
    },
    Answer {
        call: u64,
        outcome: Result<bool, Failure>,
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
    Settings {
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
    /// Answers [`ToChild::Request`]; `None` = the driver's answer broke a rule. Bytes in memory, or the file, come beside it.
    Respond {
        token: u64,
        response: Option<Responded>,
    },
    /// A recording has changed.
    Recording(Recording),
    /// What became of a request about a recording.
    Done {
        request: u64,
        failure: Option<Failure>,
    },
    /// Answered by the sealed text, or by the text that was sealed, as [`coded`].
    Seal {
        call: u64,
        text: String,
    },
    Unseal {
        call: u64,
        sealed: String,
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
    pub(super) followed: Followed,
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

/// An answer to a viewer on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Responded {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) max_age_secs: u32,
    pub(super) headers: Vec<(String, String)>,
    pub(super) bytes: RespondedBytes,
}

/// Where the bytes of an answer are.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum RespondedBytes {
    /// As those of a piece.
    Piece(PieceBytes),
    /// In the file beside the message.
    Descriptor { offset: u64, len: u64 },
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

/// Text in a form whose length on the way is known, whatever is in it.
pub(super) fn coded(text: &str) -> String {
    STANDARD.encode(text)
}

/// What was given to [`coded`].
pub(super) fn decoded(coded: &str) -> Result<String, Error> {
    let text = STANDARD.decode(coded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| Error::internal("a text came in a form that nobody sends"))
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

#[cfg(test)]
mod tests;
