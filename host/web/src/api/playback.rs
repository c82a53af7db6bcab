//! Playback of a stream's self-hosted destinations: addresses, the preview, readiness.

use std::sync::Arc;

use poem_openapi::Object;

use super::app::App;
use super::null::Null;
use satcast_core::ids::{DestinationId, StreamId};
use satcast_drivers::published::Opening;
use satcast_live::{SessionSnapshot, SessionState};
use satcast_store::DestinationView;

/// Playback of one self-hosted destination.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct StreamPlayback {
    /// Destination identifier.
    destination_id: i64,
    /// HLS playback URL without a key; viewers append `?apiKey=` and a public key.
    url: String,
    /// HLS URL of the preview, for one or two viewers; null when the stream is not live or the destination has no preview.
    preview_url: Null<String>,
    /// Token of the preview; null when `previewUrl` is null.
    preview_token: Null<String>,
    /// Whether a player can start now.
    hls_ready: bool,
    /// Players that loaded a playlist in the last 30 seconds, counted as in the stream status; null when the stream is not live.
    viewers: Null<i64>,
}

impl StreamPlayback {
    /// `None` for a destination without playback.
    pub(super) fn of(app: &App, record: &DestinationView) -> Option<Self> {
        let path = record.playback_path.as_deref()?;
        let url = app.playback_url(path);
        let live = live_session(app, record.stream_id);
        let opening = live.as_ref().and_then(|live| live_opening(app, record.id, live));
        // Until the driver has published its playback, a preview is assumed.
        let has_preview =
            |opening: &&Arc<Opening>| opening.assets().playback().is_none_or(|facts| facts.preview.is_some());
        let token = opening.as_ref().filter(has_preview);
        let token = token.map(|opening| app.playback.preview_token(opening, path));
        let viewers = live.as_ref().map(|_| viewers(app, record.id));
        Some(Self {
            destination_id: record.id.0,
            preview_url: token.as_ref().map(|token| format!("{url}?token={token}")).into(),
            url,
            preview_token: token.into(),
            hls_ready: live
                .zip(opening)
                .is_some_and(|(live, opening)| app.playback.is_ready(&opening, live.state)),
            viewers: viewers.into(),
        })
    }
}

/// The live session of a stream as viewers see it: a session that is ending has ended for them.
pub(super) fn live_session(app: &App, stream: StreamId) -> Option<SessionSnapshot> {
    app.live.session(stream).filter(|session| session.state != SessionState::Stopping)
}

/// Players of a destination that loaded a playlist in the last 30 seconds.
pub(super) fn viewers(app: &App, destination: DestinationId) -> i64 {
    i64::try_from(app.playback.viewers(destination)).unwrap_or(i64::MAX)
}

/// The published assets of a destination in this session; `None` while the driver is being opened.
pub(super) fn live_opening(
    app: &App,
    destination: DestinationId,
    session: &SessionSnapshot,
) -> Option<Arc<Opening>> {
    app.live.opening(destination).filter(|opening| opening.session == session.session_id)
}
