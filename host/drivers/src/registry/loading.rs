//! Loading the drivers of the folder when the service starts.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;

use super::catalog::{LoadOptions, State, report};
use super::drivers::{Drivers, Inner};
use super::entries::{Entry, Registry};
use super::keeper::{Keeper, add_missing};
use super::kinds::SPOOL_FOLDER;
use crate::load::loader;
use crate::run::parts::HostParts;

impl Drivers {
    /// Loads the enabled drivers of the folder. A file that cannot be loaded is logged and listed, and affects no
    /// other. Blocks: probes run as child processes.
    pub fn load(options: &LoadOptions<'_>, parts: &HostParts) -> Self {
        let keeper = Keeper::new(options, parts);
        let mut registry = Registry::default();
        remove_spool(&parts.data_dir);
        let (found, no_folder) = keeper.scan();
        let mut kept = BTreeSet::new();
        for file in &found {
            let examined = keeper.examine(file, &registry);
            kept.extend(examined.hash);
            let entry = examined.outcome.unwrap_or_else(|error| {
                Entry::with_state(&file.id, Some(file.file.clone()), State::Refused(error.to_string()))
            });
            registry.put(entry);
        }
        registry.summaries().iter().for_each(report);
        loader::remove_old_copies(&options.images, &kept);
        add_missing(&mut registry, &keeper, &found, no_folder);
        let registry = RwLock::new(Arc::new(registry));
        Self { inner: Arc::new(Inner { registry, keeper: Some(keeper), ..Inner::default() }) }
    }
}

/// Removes spool files that a crash may have left: they hold no bytes, as such files lose their names at once.
fn remove_spool(folder: &Path) {
    let folder = folder.join(SPOOL_FOLDER);
    if folder.exists()
        && let Err(error) = std::fs::remove_dir_all(&folder)
    {
        tracing::warn!(folder = %folder.display(), %error, "cannot remove an old spool folder");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_spool_files_of_a_crash_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        remove_spool(folder.path());
        for name in [SPOOL_FOLDER, "recorder"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("1-1"), "left").unwrap();
        }
        remove_spool(folder.path());
        assert!(!folder.path().join(SPOOL_FOLDER).exists() && folder.path().join("recorder/1-1").exists());
    }
}
