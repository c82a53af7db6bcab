//! The messages between host and child, in the contract's own types. Bytes of packets and of assets for viewers
//! follow a message; a descriptor is sent with it. The limits that both sides share are here as well.

use std::sync::Arc;
use std::time::Duration;

use satcast_plugin_api::driver_state::State;
use satcast_plugin_api::host::{Listing, LogLine};
use satcast_plugin_api::recording::{About, FinishedFile, Recording};
use satcast_plugin_api::{Asset, Error, HttpRequest, HttpResponse, Packet, Playback};
use serde::{Deserialize, Serialize};

use super::payloads::Place;
use satcast_core::config::ProcessLimits;

/// Version of these messages: both sides are one binary, unless it was replaced while it ran.
pub(super) const PROTOCOL: u32 = 10;

/// Name of the hidden subcommand that the child runs.
pub const RUNNER_COMMAND: &str = "driver-runner";
pub(super) const BYTES_PER_MB: u64 = 1024 * 1024;
/// Time limit of a call into a child; below the limit of the control thread, which would give up the driver.
pub(super) const CALL_MS: u64 = 900;
/// Time limit from the start of a child to a loaded library.
pub(super) const START_MS: u64 = 4_500;
/// Interval of signs of life of a child without other messages.
pub(super) const ALIVE_MS: u64 = 2_000;
/// A child that is silent for this long is killed.
pub(super) const SILENCE_MS: u64 = 8_000;
/// Time for a child to end by itself before it is killed.
pub(super) const END_MS: u64 = 2_000;
/// Most packets of a destination that were sent and that its library has not read.
pub(super) const UNREAD_PACKETS_MAX: usize = 64;
/// Most bytes of these packets, plus one packet.
pub(super) const UNREAD_BYTES_MAX: usize = 1024 * 1024;

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
        /// The process is in a control group that limits its memory.
        is_grouped: bool,
    },
    /// Answered by [`ToHost::Answer`].
    Call {
        call: u64,
        ask: Ask,
    },
    /// Packets for a destination.
    Media {
        dest: u64,
        packets: Vec<Sent>,
    },
    /// The queue was closed and all its packets were sent.
    MediaEnd {
        dest: u64,
    },
    /// Answers [`ToHost::Call`]; the socket of a connection is sent with it.
    Answer {
        call: u64,
        outcome: Result<String, Error>,
    },
    /// The bytes of a published file are no longer needed.
    BodyReleased {
        body: u64,
    },
    End,
}

/// A packet on its way, and the place of its payload.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Sent {
    #[serde(with = "shared")]
    pub(super) packet: Arc<Packet>,
    /// Packets before this one were dropped for this destination.
    pub(super) discontinuity: bool,
    pub(super) payload: Place,
}

/// A destination to open; its media is sent separately.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ToOpen {
    /// Number of this opening, never used twice.
    pub(crate) dest: u64,
    /// Number of the session that feeds it.
    pub(crate) source: u64,
    /// Destination type.
    pub(crate) kind: String,
    /// Configuration as JSON that the type's schema accepts.
    pub(crate) config: String,
    /// Account, stream and session.
    pub(crate) about: About,
}

/// A call into the library.
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
    Recordings,
    /// Addresses of recordings.
    Sign {
        names: Vec<String>,
        valid: Duration,
    },
    /// Another upload of a recording. Answered when it was requested; [`ToHost::Done`] reports the outcome.
    Retry {
        request: u64,
        file_name: String,
    },
    /// Removal of a recording. Answered and reported like [`Ask::Retry`].
    Delete {
        request: u64,
        file_name: String,
        remote: bool,
    },
    /// Whether a configuration can record. Answered and reported like [`Ask::Retry`].
    Probe {
        request: u64,
        kind: String,
        config: String,
    },
    /// A range of a recording. Answered like [`Ask::Retry`]; the bytes follow [`ToHost::Done`].
    Read {
        request: u64,
        file_name: String,
        offset: u64,
        len: u32,
    },
    /// A page of the index of a recording. Answered like [`Ask::Read`].
    Index {
        request: u64,
        file_name: String,
        first: u64,
        most: u32,
    },
    /// A finished file that is to be kept. Answered and reported like [`Ask::Retry`].
    Keep {
        request: u64,
        kind: String,
        config: String,
        file: FinishedFile,
    },
    /// The current configuration of a destination; `None` = it was deleted.
    Configured {
        destination_id: i64,
        kind: String,
        config: Option<String>,
    },
    /// The owner of a recording is told of its deletion.
    Announced {
        file_name: String,
        expires_at_ms: i64,
    },
    /// A viewer's request. The answer says whether it was passed on; [`ToHost::Respond`] has the response, if there
    /// is one.
    Request {
        dest: u64,
        token: u64,
        request: HttpRequest,
    },
}

/// The library's answer to a call.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// Whether it was accepted.
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
    Ready {
        keeps_recordings: bool,
        /// It can read them.
        reads_recordings: bool,
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
        request: Request,
    },
    /// Media progress.
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
    /// An increment of a counter.
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
    /// Answers [`Ask::Request`]; `None` = the driver's answer broke a rule. Bytes in memory follow it; an open file
    /// is sent with it.
    Respond {
        token: u64,
        response: Option<HttpResponse>,
        body: u64,
    },
    Recording(Recording),
    /// The outcome of a request about a recording. Bytes that were asked for follow it.
    Done {
        request: u64,
        outcome: Result<(), Error>,
    },
    /// A sign of life when there were no other messages for a while.
    Alive,
}

/// A call of the library to the host.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    DataDir,
    Settings,
    Connect {
        dest: u64,
        host: String,
        port: u16,
        timeout: Duration,
        is_udp: bool,
    },
    /// Bytes in memory follow it; a file is named `body` in [`ToChild::BodyReleased`].
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

/// Media progress of one destination since the last report.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) dest: u64,
    /// Packets that the library took.
    pub(super) packets: usize,
    pub(super) bytes: usize,
    /// Bytes that it released.
    pub(super) released: usize,
    /// It gave the queue back.
    pub(super) is_given_back: bool,
}

/// Serializes a shared packet as the packet.
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
