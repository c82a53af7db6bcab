//! Whether a player can start now.

use std::sync::Arc;

use satcast_plugin_api::AssetBody;

use super::{Playback, entry};
use crate::base::ApiError;
use satcast_core::ids::StreamId;
use satcast_drivers::published::{Assets, Opening, Published};
use satcast_live::SessionState;

impl Playback {
    /// Whether new media arrived recently or the encoder is reconnecting, and everything that a player fetches first is published: entry,
    /// media playlist, newest init segment and newest segment. Does not access files.
    pub fn is_ready(&self, opening: &Opening, session: SessionState) -> bool {
        let Some(facts) = opening.assets().playback() else { return false };
        let is_away = session == SessionState::Reconnecting;
        let is_fresh = facts.fresh_until.is_some_and(|until| is_away || self.clock.monotonic() < until);
        let is_open = !opening.ended() && !facts.ended;
        is_open && is_fresh && is_playable(opening.assets()).is_some()
    }

    /// Error for a stream that has no media yet: offline, or starting, because a session starts before its destinations publish.
    pub(super) fn nothing_yet(&self, stream: StreamId) -> ApiError {
        if self.live.session(stream).is_some() { ApiError::starting() } else { ApiError::offline() }
    }
}

/// The media playlist that players load.
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

/// An asset that viewers with a key may fetch.
fn hosted(assets: &Assets, name: &str) -> Option<Arc<Published>> {
    assets.get(name).filter(|asset| asset.audience.is_hosted())
}

/// The text of a playlist.
pub(super) fn text(asset: &Published) -> Option<&str> {
    match &asset.body {
        AssetBody::Memory(bytes) if asset.is_playlist() => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

fn is_there(assets: &Assets, asset: &Published) -> Option<()> {
    match &asset.body {
        AssetBody::Memory(bytes) => (!bytes.is_empty()).then_some(()),
        // The file is not checked, because a hanging disk must not block the caller. The driver keeps it while it is published.
        AssetBody::File { len, .. } | AssetBody::Open { len, .. } => (*len > 0).then_some(()),
        AssetBody::Parts(names) => names.iter().try_for_each(|name| {
            let part = assets.get(name).filter(|part| !matches!(part.body, AssetBody::Parts(_)))?;
            is_there(assets, &part)
        }),
    }
}
