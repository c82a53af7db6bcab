//! The reasons for the end of a connection, and their texts for the encoder and the operator.

use std::io::{self, ErrorKind};

use satcast_media::rtmp::RtmpError;

use super::admit::Status;
use super::tls;

/// RTMP status when the service stops.
const CODE_SHUTDOWN: &str = "NetConnection.Connect.AppShutdown";
/// RTMP status when a publisher is disconnected because it sends nothing.
const CODE_IDLE: &str = "NetConnection.Connect.IdleTimeOut";

/// Why a connection ended. The texts hold no secrets and no text of the peer.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    /// The encoder ended its publish.
    #[error("the encoder unpublished")]
    Unpublished,
    /// The encoder closed the connection without ending its publish.
    #[error("the encoder closed the connection")]
    PeerClosed,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// TLS failed; the text explains it.
    #[error("{0}")]
    Tls(String),
    /// The peer violated the protocol or one of its limits.
    #[error("{0}")]
    Protocol(RtmpError),
    /// Handshake, connect and publish took too long.
    #[error("no publish within {0} ms")]
    SetupTimeout(u128),
    /// Too much was sent before a publish.
    #[error("more than {0} bytes before a publish")]
    SetupFull(u64),
    /// The publish request was refused; the status has been queued.
    #[error("publish refused: {reason}")]
    Refused {
        /// The reason, for the operator.
        reason: String,
        /// The mask of the stream key, if one was sent.
        key: Option<String>,
    },
    /// The media connection of a WHIP sender was not made.
    #[error(
        "no media connection within {0} ms; let UDP pass to the port of [ingest] webrtc_listen, and behind NAT set \
         webrtc_addresses"
    )]
    NotConnected(u128),
    /// The encoder sent no media.
    #[error("no media within {0} ms")]
    Idle(u128),
    /// The encoder did not read its replies in time.
    #[error("the encoder took no reply within {0} ms")]
    WriteTimeout(u128),
    /// The encoder asks for more replies than it reads.
    #[error("the encoder does not read its replies; too many wait")]
    RepliesFull,
    /// No track of the encoder has a supported codec; the text names the codecs and their replacements.
    #[error("the media of the encoder cannot be used: {0}")]
    Unusable(String),
    /// The session disconnects this encoder.
    #[error("{}", .0.reason)]
    Closed(Status),
    /// The media comes from the stream itself, or through too many streams.
    #[error("{}", .0.reason)]
    Looped(Status),
    /// The service stops.
    #[error("the service shuts down")]
    Shutdown,
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        match (error.kind(), tls::explained(&error)) {
            (_, Some(how)) => Self::Tls(how),
            (ErrorKind::UnexpectedEof, None) => Self::PeerClosed,
            (_, None) => Self::Io(error),
        }
    }
}

impl From<RtmpError> for End {
    fn from(error: RtmpError) -> Self {
        match error {
            // The encoder withdrew its request before the decision.
            RtmpError::NoSuchRequest => Self::Unpublished,
            error => Self::Protocol(error),
        }
    }
}

impl End {
    /// The status a running publisher gets before the connection closes.
    pub(super) fn status(&self) -> Option<Status> {
        match self {
            Self::Closed(status) | Self::Looped(status) => Some(status.clone()),
            Self::Shutdown => {
                Some(Status::new(CODE_SHUTDOWN, "the server is shutting down; reconnect shortly"))
            }
            Self::Unusable(text) => Some(Status::unusable(text)),
            Self::Idle(_) => Some(Status::new(CODE_IDLE, "no audio or video arrived in time")),
            _ => None,
        }
    }

    /// Whether the encoder still reads, and gets time to read its last status.
    pub(super) fn is_polite(&self) -> bool {
        matches!(
            self,
            Self::Unpublished
                | Self::Refused { .. }
                | Self::Unusable(_)
                | Self::Idle(_)
                | Self::Closed(_)
                | Self::Looped(_)
                | Self::Shutdown
        )
    }

    /// Whether to warn the operator: a client misbehaves or cannot publish.
    pub(super) fn is_warning(&self) -> bool {
        !matches!(self, Self::Unpublished | Self::PeerClosed | Self::Closed(_) | Self::Shutdown | Self::Io(_))
    }
}
