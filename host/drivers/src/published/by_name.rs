//! The assets of one opening by name, with the limits of one opening.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use satcast_plugin_api::{Error, SegmentPosition};

use super::asset::Published;
use super::versions::Coming;

/// Most assets of one opening: an hour of segments and its grace time, twice.
pub(super) const ASSETS_MAX: usize = 8192;
const ASSET_MEMORY_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Written by driver threads, read by every request of a viewer. Dropping bytes may run foreign code, so nothing is
/// dropped under the lock.
#[derive(Debug, Default)]
pub(super) struct ByName {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    assets: HashMap<String, Arc<Published>>,
    memory_bytes: u64,
    coming: Coming,
}

impl ByName {
    /// Removes all assets in memory: the opening has ended, and others need the memory.
    pub(super) fn give_up_memory(&self) {
        let mut state = self.state.write();
        let gone: Vec<_> = state.assets.extract_if(|_, asset| asset.memory_bytes() > 0).collect();
        state.memory_bytes = 0;
        gone.iter().for_each(|(name, _)| state.coming.retracted(name));
        drop(state);
        drop(gone);
    }

    /// Returns the replaced asset, and whether viewers may be waiting for the new one.
    pub(super) fn put(&self, asset: Published) -> Result<(Option<Arc<Published>>, bool), Error> {
        let name = asset.name.clone();
        let size = asset.memory_bytes();
        let mut state = self.state.write();
        let earlier = state.assets.get(&name);
        if earlier.is_none() && state.assets.len() >= ASSETS_MAX {
            return Err(Error::internal(format!("more than {ASSETS_MAX} assets; retract old ones")));
        }
        let others = state.memory_bytes - earlier.map_or(0, |asset| asset.memory_bytes());
        if size > 0 && others + size > ASSET_MEMORY_BYTES_MAX {
            return Err(Error::internal(format!(
                "more than {ASSET_MEMORY_BYTES_MAX} bytes of assets in memory; retract old ones"
            )));
        }
        state.memory_bytes = others + size;
        let is_waited_for = state.coming.published(&name, &asset.followed);
        Ok((state.assets.insert(name, Arc::new(asset)), is_waited_for))
    }

    pub(super) fn retract(&self, name: &str) {
        let mut state = self.state.write();
        let removed = state.assets.remove(name);
        state.memory_bytes -= removed.as_ref().map_or(0, |asset| asset.memory_bytes());
        state.coming.retracted(name);
        drop(state);
        drop(removed);
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Published>> {
        self.state.read().assets.get(name).cloned()
    }

    /// The media segments by rising number, from `number` on, with their names.
    pub(super) fn segments(&self, number: u64) -> Vec<(SegmentPosition, String)> {
        let state = self.state.read();
        let place = |asset: &Arc<Published>| asset.followed.segment.clone();
        let all = state.assets.iter().filter_map(|(name, asset)| Some((place(asset)?, name.clone())));
        let mut found: Vec<_> = all.filter(|(place, _)| place.number >= number).collect();
        found.sort_unstable_by_key(|(place, _)| place.number);
        found
    }

    pub(super) fn look_ahead<T>(&self, look: impl FnOnce(&Coming) -> T) -> T {
        look(&self.state.read().coming)
    }

    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> u64 {
        self.state.read().memory_bytes
    }
}
