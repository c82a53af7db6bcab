//! The media segments among the pieces of an opening.

use std::sync::Arc;

use satcast_plugin_api::host::SegmentPlace;

use super::{Assets, Published};

impl Assets {
    /// The media segments by rising number, from `number` on, with their names.
    pub fn segments(&self, number: u64) -> Vec<(SegmentPlace, String)> {
        let pieces = self.pieces.read();
        let place = |piece: &Arc<Published>| piece.followed.segment.clone();
        let all = pieces.by_name.iter().filter_map(|(name, piece)| Some((place(piece)?, name.clone())));
        let mut found: Vec<_> = all.filter(|(place, _)| place.number >= number).collect();
        found.sort_unstable_by_key(|(place, _)| place.number);
        found
    }
}
