//! Whether a player that came now would play.

use std::sync::Arc;

use satcast_plugin_api::AssetBody;

use super::{Playback, entry};
use crate::base::ApiError;
use satcast_core::ids::StreamId;
use satcast_drivers::published::{Assets, Opening, Published};
use satcast_live::SessionState;

impl Playback {
    /// New media came lately, or its encoder is away for a moment; and from the entry on everything a player fetches first is there:
    /// the media playlist, its newest initialization and its newest segment. No file is looked at.
    pub fn is_ready(&self, opening: &Opening, session: SessionState) -> bool {
        let Some(facts) = opening.assets().playback() else { return false };
        let is_away = session == SessionState::Reconnecting;
        let is_fresh = facts.fresh_until.is_some_and(|until| is_away || self.clock.monotonic() < until);
        let is_open = !opening.ended() && !facts.ended;
        is_open && is_fresh && is_playable(opening.assets()).is_some()
    }

    /// Why nothing of a stream can be played: a session begins before its destinations have anything.
    pub(super) fn nothing_yet(&self, stream: StreamId) -> ApiError {
        if self.live.session(stream).is_some() { ApiError::starting() } else { ApiError::offline() }
    }
}

/// The media playlist that players follow.
pub(super) fn media(assets: &Assets) -> Option<Arc<Published>> {
    let entry = hosted(assets, &assets.playback()?.entry)?;
    let text = text(&entry)?;
    if entry::is_multivariant(text) { hosted(assets, entry::first(text)?) } else { Some(entry) }
}

fn is_playable(assets: &Assets) -> Option<()> {
    let media = media(assets)?;
    let (init, segment) = entry::newest(self::text(&media)?)?;
    for name in init.into_iter().chain([segment]) {
        is_there(assets, &*hosted(assets, name)?)?;
    }
    Some(())
}

/// A piece that viewers with a key may fetch.
fn hosted(assets: &Assets, name: &str) -> Option<Arc<Published>> {
    assets.get(name).filter(|piece| piece.audience.is_hosted())
}

/// The text of a playlist.
pub(super) fn text(piece: &Published) -> Option<&str> {
    match &piece.body {
        AssetBody::Memory(bytes) if piece.is_playlist() => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

fn is_there(assets: &Assets, piece: &Published) -> Option<()> {
    match &piece.body {
        AssetBody::Memory(bytes) => (!bytes.is_empty()).then_some(()),
        // Not looked at: a disk that hangs must not hang who asks. The driver keeps it while it is published.
        AssetBody::File { len, .. } | AssetBody::Open { len, .. } => (*len > 0).then_some(()),
        AssetBody::Parts(names) => names.iter().try_for_each(|name| {
            let part = assets.get(name).filter(|part| !matches!(part.body, AssetBody::Parts(_)))?;
            is_there(assets, &part)
        }),
    }
}
