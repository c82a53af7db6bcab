//! What stands in the drivers folder and what became of each file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;

use super::change::Keeper;
use super::load::loader::{self, Found};
use super::registry::{Entry, Registry, SPOOL_FOLDER};
use super::{Drivers, HostParts, Inner};
use crate::config::{Config, Isolation};

/// Where drivers come from.
pub struct LoadOptions<'a> {
    /// `[drivers]` and `[driver.<name>]`.
    pub config: &'a Config,
    /// This binary, which runs probes and drivers in processes of their own.
    pub exe: PathBuf,
    /// Folder of private copies.
    pub images: PathBuf,
}

/// What became of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Serves its types.
    Loaded,
    /// Loaded, but its process crashed or it failed too often, and what follows.
    Failing(String),
    /// A valid library that is not enabled.
    Disabled,
    /// Not loaded, and why.
    Refused(String),
    /// Enabled, but there is no file.
    Missing,
}

impl State {
    /// As the API shows it.
    pub fn as_str(&self) -> &'static str {
        match self {
            State::Loaded => "loaded",
            State::Failing(_) => "failing",
            State::Disabled => "disabled",
            State::Refused(_) => "refused",
            State::Missing => "missing",
        }
    }
}

/// One driver of the folder or of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Id, from the file name.
    pub id: String,
    /// The file; `None` when there is none.
    pub file: Option<PathBuf>,
    /// Version; empty when it is not known.
    pub version: String,
    /// Destination types.
    pub types: Vec<String>,
    /// What became of it.
    pub state: State,
    /// Why what was to take its place, another library or other settings, was refused when it was looked at last; it goes on as it
    /// was. `None` when it is what it should be.
    pub refused: Option<String>,
    /// Where it runs; `None` when it does not.
    pub isolation: Option<Isolation>,
    /// How often its process crashed since it was loaded; on threads, how often it panicked.
    pub crashes: u64,
}

impl Drivers {
    /// Loads the enabled drivers of the folder. A file that cannot be loaded is logged and listed, and harms nothing else.
    /// Blocks: probes run as child processes.
    pub fn load(options: &LoadOptions<'_>, parts: &HostParts) -> Self {
        let keeper = Keeper::new(options, parts);
        let mut registry = Registry::default();
        remove_spool(&parts.data_dir);
        let (found, no_folder) = keeper.scan();
        let mut kept = BTreeSet::new();
        for file in &found {
            let examined = keeper.examine(file, &registry, false);
            kept.extend(examined.hash);
            let entry = examined.outcome.unwrap_or_else(|error| {
                Entry::with_state(&file.id, Some(file.file.clone()), State::Refused(error.to_string()))
            });
            report(&entry.summary());
            registry.put(entry);
        }
        loader::remove_old_copies(&options.images, &kept);
        add_missing(&mut registry, &keeper, &found, no_folder);
        let registry = RwLock::new(Arc::new(registry));
        Self { inner: Arc::new(Inner { registry, keeper: Some(keeper), ..Inner::default() }) }
    }
}

/// Removes what a crash may have left of packets that waited on disk: nothing with bytes in it, as such files lose their names at once.
fn remove_spool(folder: &Path) {
    let folder = folder.join(SPOOL_FOLDER);
    if folder.exists()
        && let Err(error) = std::fs::remove_dir_all(&folder)
    {
        tracing::warn!(folder = %folder.display(), %error, "leftovers of packets that waited on disk cannot be removed");
    }
}

/// Lists the enabled drivers that have no file; those that go on because the folder is refused stay as they are.
pub(super) fn add_missing(
    registry: &mut Registry,
    keeper: &Keeper,
    found: &[Found],
    no_folder: Option<String>,
) {
    for id in keeper.enabled().iter().filter(|id| !found.iter().any(|file| file.id == **id)) {
        if let Some(reason) = no_folder.as_ref().filter(|_| registry.entry(id).is_some_and(Entry::is_loaded))
        {
            tracing::error!(driver = %id, "driver not looked at, it goes on as it is: {reason}");
            registry.note_refusal(id, reason.clone());
            continue;
        }
        let state = no_folder.clone().map_or(State::Missing, State::Refused);
        let entry = Entry::with_state(id, None, state);
        report(&entry.summary());
        registry.put(entry);
    }
}

/// Logs what became of a driver.
pub(super) fn report(summary: &Summary) {
    let driver = summary.id.as_str();
    let file = summary.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
    match &summary.state {
        State::Loaded => {
            tracing::info!(driver, version = %summary.version, types = ?summary.types, isolation = ?summary.isolation, "driver loaded")
        }
        State::Failing(reason) => tracing::error!(driver, "driver {driver}: {reason}"),
        State::Disabled => tracing::info!(driver, file, "driver is there but not in [drivers] enabled"),
        State::Refused(reason) => tracing::error!(driver, file, "driver {file}: {reason}"),
        State::Missing => {
            tracing::warn!(driver, "driver is enabled, but there is no {driver}.so in the drivers folder")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crash_left_of_a_spool_goes_and_nothing_else() {
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
