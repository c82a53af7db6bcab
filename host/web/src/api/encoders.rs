//! The encoders of a stream, as its owner sees them.

use poem_openapi::{Enum, Object};

use super::app::App;
use super::null::Null;
use satcast_core::ids::StreamId;
use satcast_live as live;

/// A connected encoder.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct StreamEncoder {
    /// Which key the encoder publishes with.
    role: Role,
    /// Whether its media goes out.
    state: State,
    /// Time of its connection, Unix milliseconds.
    connected_at: i64,
    /// Bits per second of its media over the last seconds; null until enough has arrived.
    bitrate: Null<u64>,
}

/// Which key the encoder publishes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename = "EncoderRole", rename_all = "lowercase")]
enum Role {
    /// The stream key.
    Primary,
    /// The backup key.
    Backup,
}

/// Whether the media of an encoder goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename = "EncoderState", rename_all = "lowercase")]
enum State {
    /// Its media goes to destinations and viewers.
    Active,
    /// Its media waits for the other encoder to fail.
    Standby,
}

impl StreamEncoder {
    /// The encoders that are connected to this node, the primary one first.
    pub(super) fn of(app: &App, stream: StreamId) -> Vec<Self> {
        app.live.encoders(stream).into_iter().map(Self::from).collect()
    }
}

impl From<live::EncoderSnapshot> for StreamEncoder {
    fn from(encoder: live::EncoderSnapshot) -> Self {
        let video = encoder.figures.video.and_then(|video| video.bitrate);
        let audio = encoder.figures.audio.and_then(|audio| audio.bitrate);
        let bitrate = video.or(audio).map(|_| video.unwrap_or(0) + audio.unwrap_or(0));
        Self {
            role: match encoder.role {
                live::EncoderRole::Primary => Role::Primary,
                live::EncoderRole::Backup => Role::Backup,
            },
            state: if encoder.is_active { State::Active } else { State::Standby },
            connected_at: encoder.connected_at.0,
            bitrate: bitrate.into(),
        }
    }
}
