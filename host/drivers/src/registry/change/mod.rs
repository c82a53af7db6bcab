//! Enabling, disabling and replacing drivers while the service runs.
//!
//! Running work is never touched: an open destination keeps its driver, and the driver ends with the last of them. An
//! image that was mapped into this process stays mapped ([`crate::load::loader`]); a process really ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::drivers::Drivers;
use super::entries::{Entry, Registry, State, Summary, report};
use super::keeper::{Keeper, add_missing};
use satcast_core::config::Config;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Load it; a driver in quarantine is used again.
    Enable,
    /// Open nothing new with it.
    Disable,
    /// Load the current file of the folder.
    Replace,
}

/// Why a driver without a file of its own cannot be changed.
pub const LINKED_IN: &str = "it is part of this program";

/// Why a change was not made; everything is as before.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("there is no driver {0}; put its library into the drivers folder as {0}.so")]
    Unknown(String),
    #[error("driver {id}: {reason}")]
    Refused { id: String, reason: String },
}

impl Drivers {
    /// Enables, disables or replaces the driver `id` until the next start or [`Drivers::reconfigure`]. Open
    /// destinations keep their driver until they end. Blocks: probes and starts.
    ///
    /// # Errors
    /// The reason; everything is as before.
    pub fn change(&self, id: &str, change: Change) -> Result<Summary, ChangeError> {
        let Some(keeper) = self.inner.keeper.as_ref() else { return self.stay(id, change) };
        let _one = keeper.changing.lock();
        let registry = self.registry();
        let (found, no_folder) = keeper.scan();
        let file = found.iter().find(|file| file.id == id);
        let was_enabled = keeper.enabled().contains(id);
        if change == Change::Disable {
            if file.is_none() && registry.entry(id).is_none() {
                return Err(ChangeError::Unknown(id.to_string()));
            }
            keeper.disable(id);
            let path = file.map(|file| file.file.clone());
            return Ok(self.install(keeper, Entry::with_state(id, path, State::Disabled)));
        }
        let no_file = || format!("there is no {id}.so in the drivers folder");
        let is_loaded = registry.entry(id).is_some_and(Entry::is_loaded);
        let unknown = || match no_folder.or_else(|| is_loaded.then(no_file)) {
            Some(reason) => {
                self.keep(id, reason.clone());
                ChangeError::Refused { id: id.to_string(), reason }
            }
            None => ChangeError::Unknown(id.to_string()),
        };
        let file = file.ok_or_else(unknown)?;
        keeper.enable(id);
        match keeper.examine(file, &registry).outcome {
            Ok(entry) => Ok(self.install(keeper, entry)),
            Err(error) => {
                if !was_enabled {
                    keeper.disable(id);
                }
                self.keep(id, error.to_string());
                Err(ChangeError::Refused { id: id.to_string(), reason: error.to_string() })
            }
        }
    }

    /// Drivers that are linked in cannot be changed.
    fn stay(&self, id: &str, change: Change) -> Result<Summary, ChangeError> {
        let registry = self.registry();
        let entry = registry.entry(id).ok_or_else(|| ChangeError::Unknown(id.to_string()))?;
        if entry.is_loaded() != (change == Change::Disable) {
            return Ok(entry.summary());
        }
        Err(ChangeError::Refused { id: id.to_string(), reason: LINKED_IN.into() })
    }

    /// Applies `[drivers]` and `[driver.<name>]` of `config`: loads drivers that are newly enabled, have another
    /// library or other settings, or crashed too often; drops drivers that are no longer enabled. A driver whose new
    /// library is refused keeps its old one, and so do all drivers when the folder is refused. Blocks.
    pub fn reconfigure(&self, config: &Config) {
        let Some(keeper) = self.inner.keeper.as_ref() else { return };
        let _one = keeper.changing.lock();
        keeper.choose(config);
        let (found, no_folder) = keeper.scan();
        for file in &found {
            let registry = self.registry();
            let before = registry.entry(&file.id).is_some_and(Entry::is_loaded);
            let is_enabled = keeper.enabled().contains(&file.id);
            match keeper.examine(file, &registry).outcome {
                Ok(entry) => drop(self.install(keeper, entry)),
                Err(error) if before && is_enabled => {
                    tracing::error!(driver = %file.id, %error, "driver not replaced; the old one keeps running");
                    self.keep(&file.id, error.to_string());
                }
                Err(error) => {
                    let state = State::Refused(error.to_string());
                    self.install(keeper, Entry::with_state(&file.id, Some(file.file.clone()), state));
                }
            }
        }
        let mut registry = (*self.registry()).clone();
        let enabled = keeper.enabled();
        for id in registry.ids().into_iter().filter(|id| !found.iter().any(|file| file.id == *id)) {
            if no_folder.is_some() && enabled.contains(&id) {
                continue;
            }
            let gone = registry.take(&id);
            keeper.retire(&id, gone.as_ref(), &registry);
        }
        add_missing(&mut registry, keeper, &found, no_folder);
        self.publish(registry);
    }

    /// Keeps the driver `id` as it is, if it runs, and shows `why`.
    fn keep(&self, id: &str, why: String) {
        let mut registry = (*self.registry()).clone();
        registry.note_refusal(id, why);
        self.publish(registry);
    }

    fn install(&self, keeper: &Keeper, entry: Entry) -> Summary {
        let mut registry = (*self.registry()).clone();
        let summary = entry.summary();
        let before = registry.take(&summary.id);
        let is_same = before.as_ref().is_some_and(|before| before.is_same(&entry));
        let is_news = !is_same || before.as_ref().is_none_or(|before| before.summary() != summary);
        registry.put(entry.clone());
        if !is_same {
            keeper.retire(&summary.id, before.as_ref(), &registry);
        }
        let summary = registry.summary(&entry);
        if is_news {
            report(&summary);
        }
        self.publish(registry);
        summary
    }

    fn publish(&self, registry: Registry) {
        let mut current = self.inner.registry.write();
        let before = std::mem::replace(&mut *current, Arc::new(registry));
        drop(current);
        self.inner.version.fetch_add(1, Ordering::AcqRel);
        // The last reference to a driver ends it: not under the lock.
        drop(before);
    }
}

#[cfg(test)]
mod tests;
