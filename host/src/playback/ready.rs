//! Whether a player that came now would play.

use super::{Playback, entry};
use crate::drivers::{Assets, Published, PublishedBody};
use crate::live::Shelf;

impl Playback {
    /// The session is fresh, and from the entry on everything a player fetches first is there: the media playlist, its
    /// newest initialization and its newest segment. No file is looked at.
    pub fn is_ready(&self, shelf: &Shelf) -> bool {
        let Some(facts) = shelf.assets().playback() else { return false };
        let live = !shelf.ended() && !facts.ended && self.clock.monotonic() < facts.fresh_until;
        live && is_playable(shelf.assets(), &facts.entry).is_some()
    }
}

fn is_playable(assets: &Assets, name: &str) -> Option<()> {
    let entry = hosted(assets, name)?;
    let text = text(&entry)?;
    let media =
        if entry::is_multivariant(text) { hosted(assets, entry::first(text)?)? } else { entry.clone() };
    let (init, segment) = entry::newest(self::text(&media)?)?;
    for name in init.into_iter().chain([segment]) {
        is_there(assets, &*hosted(assets, name)?)?;
    }
    Some(())
}

/// A piece that viewers with a key may fetch.
fn hosted(assets: &Assets, name: &str) -> Option<std::sync::Arc<Published>> {
    assets.get(name).filter(|piece| piece.audience.is_hosted())
}

/// The text of a playlist.
pub(super) fn text(piece: &Published) -> Option<&str> {
    match &piece.body {
        PublishedBody::Memory(bytes) if piece.is_playlist() => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

fn is_there(assets: &Assets, piece: &Published) -> Option<()> {
    match &piece.body {
        PublishedBody::Memory(bytes) => (!bytes.is_empty()).then_some(()),
        // Not looked at: a disk that hangs must not hang who asks. The driver keeps it while it is published.
        PublishedBody::File { len, .. } | PublishedBody::Open { len, .. } => (*len > 0).then_some(()),
        PublishedBody::Parts(names) => names.iter().try_for_each(|name| {
            let part = assets.get(name).filter(|part| !matches!(part.body, PublishedBody::Parts(_)))?;
            is_there(assets, &part)
        }),
    }
}
