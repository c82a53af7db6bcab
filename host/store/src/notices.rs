//! What webhooks are told of a session while it runs; its begin and its end are told in the transactions that record them.

use super::EventType;
use satcast_core::ids::{DestinationId, EndReason, SessionId, UnixMillis};

/// Longest text of a failure that is told, in characters.
pub const TOLD_ERROR_CHARS_MAX: usize = 300;

/// A hard limit of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// What a session may cost.
    MaxSats,
    /// How long it may last.
    MaxDuration,
}

impl Limit {
    /// The name in the body of an event: that of the stream's field.
    pub fn as_str(self) -> &'static str {
        match self {
            Limit::MaxSats => "maxSats",
            Limit::MaxDuration => "maxDurationMinutes",
        }
    }

    /// The limit at which a session ended, if it did.
    pub fn reached(reason: EndReason) -> Option<Self> {
        match reason {
            EndReason::MaxSats => Some(Limit::MaxSats),
            EndReason::MaxDuration => Some(Limit::MaxDuration),
            _ => None,
        }
    }
}

/// A destination of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldDestination {
    /// Its id.
    pub id: DestinationId,
    /// Its platform name.
    pub platform: String,
}

/// Something that is wrong with a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldIssue {
    /// Its name.
    pub code: &'static str,
    /// One sentence for people.
    pub text: String,
    /// Destination types that it breaks.
    pub platforms: Vec<String>,
}

/// How the health of a stream changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldHealth {
    /// Names of the issues that are new.
    pub appeared: Vec<&'static str>,
    /// Names of the issues that are gone.
    pub cleared: Vec<&'static str>,
    /// All that are there.
    pub issues: Vec<ToldIssue>,
}

/// What happens in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// Most of a limit is used.
    LimitWarning(Limit),
    /// A destination forwards for the first time.
    Connected(ToldDestination),
    /// A destination stopped forwarding, or did not begin to; why, without secrets.
    Failed(ToldDestination, String),
    /// A destination forwards again.
    Recovered(ToldDestination),
    /// What the encoder sends got worse or better.
    Health(ToldHealth),
}

impl Happening {
    /// Its event.
    pub fn event(&self) -> EventType {
        match self {
            Happening::LimitWarning(_) => EventType::LimitWarning,
            Happening::Connected(_) => EventType::DestinationConnected,
            Happening::Failed(..) => EventType::DestinationFailed,
            Happening::Recovered(_) => EventType::DestinationRecovered,
            Happening::Health(_) => EventType::StreamHealth,
        }
    }
}

/// Something that happens in a session, for the webhooks of its account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The session.
    pub session: SessionId,
    /// What.
    pub what: Happening,
    /// When.
    pub at: UnixMillis,
}
