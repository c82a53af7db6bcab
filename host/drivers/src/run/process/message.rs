//! What host and child say to each other, in the contract's own types. Bytes of packets and of assets for viewers stand behind a message, a
//! descriptor comes beside it.

use std::sync::Arc;
use std::time::Duration;

use satcast_plugin_api::driver_state::State;
use satcast_plugin_api::host::{Listing, LogLine};
use satcast_plugin_api::recording::{About, Recording};
use satcast_plugin_api::{Asset, Error, HttpRequest, HttpResponse, Packet, Playback};
use serde::{Deserialize, Serialize};

use super::payloads::Place;
use satcast_core::config::ProcessLimits;

/// Version of these messages: both sides are one binary, unless it was replaced while it ran.
pub(super) const PROTOCOL: u32 = 8;

/// From host to child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToChild {
    /// The first message.
    Start {
        protocol: u32,
        id: String,
        image: String,
        max_level: u32,
        limits: ProcessLimits,
        /// The process is in a control group that bounds its memory.
        is_grouped: bool,
    },
    /// Answered by [`ToHost::Answer`].
    Call { call: u64, ask: Ask },
    /// Packets for a destination.
    Media { dest: u64, packets: Vec<Sent> },
    /// The queue is closed and was handed over.
    MediaEnd { dest: u64 },
    /// Answers [`ToHost::Call`]; the socket of a connection comes beside it.
    Answer { call: u64, outcome: Result<String, Error> },
    /// The bytes of a published file are not needed any more.
    BodyReleased { body: u64 },
    /// End in order.
    End,
}

/// A packet on its way, and where its payload is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Sent {
    #[serde(with = "shared")]
    pub(super) packet: Arc<Packet>,
    /// Packets before this one were dropped for this destination.
    pub(super) discontinuity: bool,
    pub(super) payload: Place,
}

/// A destination that is to be opened; its media comes apart.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ToOpen {
    /// Number of this opening, never used twice.
    pub(crate) dest: u64,
    /// The session that it is fed from.
    pub(crate) source: u64,
    /// Its type.
    pub(crate) kind: String,
    /// Its configuration, JSON that the type's schema accepts.
    pub(crate) config: String,
    /// What it is about.
    pub(crate) about: About,
}

/// What the library is called for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    Validate {
        kind: String,
        config: String,
    },
    Open(ToOpen),
    Reconfigure {
        dest: u64,
        config: String,
    },
    Stop {
        dest: u64,
        deadline_ms: u32,
    },
    Destroy {
        dest: u64,
    },
    /// Every recording.
    Recordings,
    /// Addresses of recordings.
    Sign {
        names: Vec<String>,
        valid: Duration,
    },
    /// Another upload of a recording. Answered when it was asked for; what became of it is told by [`ToHost::Done`].
    Retry {
        request: u64,
        file_name: String,
    },
    /// A recording is to be forgotten. Answered and told as [`Ask::Retry`].
    Delete {
        request: u64,
        file_name: String,
        remote: bool,
    },
    /// Whether a configuration could record. Answered and told as [`Ask::Retry`].
    Probe {
        request: u64,
        kind: String,
        config: String,
    },
    /// What a destination's configuration is now; `None` = it was deleted.
    Configured {
        destination_id: i64,
        kind: String,
        config: Option<String>,
    },
    /// A viewer asks. Answered by whether it was handed over, and told of by [`ToHost::Respond`], if at all.
    Request {
        dest: u64,
        token: u64,
        request: HttpRequest,
    },
}

/// What the library answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// Whether it was taken.
    Taken(bool),
    Recordings(Listing),
    Signed(Vec<Option<String>>),
}

/// From child to host.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToHost {
    /// The library is loaded.
    Loaded {
        id: String,
        version: String,
        /// JSON.
        manifest: String,
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
    /// Answers [`ToChild::Call`].
    Answer {
        call: u64,
        outcome: Result<Reply, Error>,
    },
    /// Answered by [`ToChild::Answer`].
    Call {
        call: u64,
        wish: Wish,
    },
    /// What became of media.
    Media(Vec<Progress>),
    Log(LogLine),
    State {
        dest: u64,
        state: State,
        reason: Option<Error>,
    },
    Event {
        dest: u64,
        name: String,
        json: String,
    },
    /// What was added to a counter.
    Counted {
        dest: u64,
        name: String,
        added: u64,
    },
    Stopped {
        dest: u64,
        outcome: Result<(), Error>,
    },
    Retract {
        dest: u64,
        name: String,
    },
    /// Answers [`Ask::Request`]; `None` = the driver's answer broke a rule. Bytes in memory stand behind it, an open file comes beside it.
    Respond {
        token: u64,
        response: Option<HttpResponse>,
        body: u64,
    },
    /// A recording has changed.
    Recording(Recording),
    /// What became of a request about a recording.
    Done {
        request: u64,
        outcome: Result<(), Error>,
    },
    /// Nothing else was to be said for a while.
    Alive,
}

/// What the library asks of the host.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Wish {
    DataDir,
    Settings,
    Connect {
        dest: u64,
        host: String,
        port: u16,
        timeout: Duration,
    },
    /// Bytes in memory stand behind it; a file is named `body` in [`ToChild::BodyReleased`].
    Publish {
        dest: u64,
        asset: Asset,
        body: u64,
    },
    Playback {
        dest: u64,
        playback: Playback,
    },
    Seal(String),
    Unseal(String),
}

/// What became of the media of one destination since it was told last.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) dest: u64,
    /// Packets that the library took.
    pub(super) packets: usize,
    /// Their bytes.
    pub(super) bytes: usize,
    /// Bytes that it let go of.
    pub(super) released: usize,
    /// It gave the queue back.
    pub(super) is_given_back: bool,
}

/// A shared packet as the packet.
mod shared {
    use std::sync::Arc;

    use satcast_plugin_api::Packet;
    use serde::{Deserialize as _, Serialize as _};

    pub(super) fn serialize<S: serde::Serializer>(packet: &Arc<Packet>, to: S) -> Result<S::Ok, S::Error> {
        packet.as_ref().serialize(to)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Arc<Packet>, D::Error> {
        Packet::deserialize(from).map(Arc::new)
    }
}
