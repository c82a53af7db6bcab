//! Latency of a viewer at the live edge, computed from the media playlist.

use super::{Playback, edge};
use satcast_drivers::published::Opening;

impl Playback {
    /// Milliseconds from the arrival of a frame until a viewer sees it, if the viewer keeps the distance that the playlist asks for: the
    /// age of the end of the newest listed media, plus that distance. `None` if nothing is listed.
    pub fn latency_ms(&self, opening: &Opening) -> Option<i64> {
        let media = edge::media(opening.assets())?;
        let edge = edge::of(&media)?;
        let age_ms = (self.clock.now().0 - edge.end_ms?).max(0);
        // Drivers of earlier minor versions do not report it.
        let told_ms = opening.assets().hold_back_ms().map(i64::from);
        Some(age_ms + told_ms.or(edge.distance_ms)?)
    }
}
