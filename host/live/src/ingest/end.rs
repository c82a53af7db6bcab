//! Why a connection ended, and what its encoder and the operator hear of it.

use std::io::{self, ErrorKind};

use satcast_media::rtmp::RtmpError;

use super::admit::{CODE_DENIED, Status};
use super::tls;

/// RTMP status of a publisher that leaves because the service stops.
const CODE_SHUTDOWN: &str = "NetConnection.Connect.AppShutdown";
/// RTMP status of a publisher that is thrown out for sending nothing.
const CODE_IDLE: &str = "NetConnection.Connect.IdleTimeOut";

/// Why a connection ended. The texts hold no secrets and nothing the peer wrote.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    /// The encoder said that it is done.
    #[error("the encoder unpublished")]
    Unpublished,
    /// The encoder closed the connection without a word.
    #[error("the encoder closed the connection")]
    PeerClosed,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// TLS failed, and how.
    #[error("{0}")]
    Tls(String),
    /// The peer broke the protocol or one of its limits.
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
        /// What happened, for the operator.
        reason: String,
        /// The stream key's mask, where there was one.
        key: Option<String>,
    },
    /// No media came.
    #[error("no media within {0} ms")]
    Idle(u128),
    /// The encoder did not read its replies in time.
    #[error("the encoder took no reply within {0} ms")]
    WriteTimeout(u128),
    /// The encoder asks for more replies than it reads.
    #[error("too many replies wait for the encoder")]
    RepliesFull,
    /// Nothing of what the encoder sends can be used; which codecs, and what to set instead.
    #[error("nothing that the encoder sends can be used: {0}")]
    Unusable(String),
    /// The session has no more use for this encoder.
    #[error("{}", .0.reason)]
    Closed(Status),
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
            // The encoder changed its mind while its request was being decided.
            RtmpError::NoSuchRequest => Self::Unpublished,
            error => Self::Protocol(error),
        }
    }
}

impl End {
    /// The status a running publisher gets before the connection closes.
    pub(super) fn status(&self) -> Option<Status> {
        match self {
            Self::Closed(status) => Some(status.clone()),
            Self::Shutdown => {
                Some(Status::new(CODE_SHUTDOWN, "the server is shutting down; reconnect shortly"))
            }
            Self::Unusable(text) => Some(Status::new(CODE_DENIED, text.as_str())),
            Self::Idle(_) => Some(Status::new(CODE_IDLE, "no audio or video came in time")),
            _ => None,
        }
    }

    /// Whether the encoder still listens and should get the time to read its last status.
    pub(super) fn is_polite(&self) -> bool {
        matches!(
            self,
            Self::Unpublished
                | Self::Refused { .. }
                | Self::Unusable(_)
                | Self::Idle(_)
                | Self::Closed(_)
                | Self::Shutdown
        )
    }

    /// Whether the operator should hear of it: somebody does something wrong or cannot get in.
    pub(super) fn is_warning(&self) -> bool {
        !matches!(self, Self::Unpublished | Self::PeerClosed | Self::Closed(_) | Self::Shutdown | Self::Io(_))
    }
}
