//! Drivers that are enabled, disabled or replaced while the service runs.
//!
//! What runs is never touched: a destination that is open keeps its driver, and the driver ends with the last of them. An
//! image that was mapped into this process stays so ([`super::load::loader`]); a process really ends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::catalog::{State, Summary, add_missing, report};
use super::load::error::LoadError;
use super::load::images::{Images, Lease};
use super::load::loader::{self, Found};
use super::load::probe;
use super::process::Spec;
use super::registry::{Entry, Registry, Resting, Started};
use super::starting::{Source, start};
use super::{Drivers, HostParts, LoadOptions};
use crate::config::{Config, DriverSettings, Isolation};

/// With more images left mapped than this a restart is advised.
const RETIRED_IMAGES_MAX: usize = 32;

/// What an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Load it; one that crashed or panicked too often is used again.
    Enable,
    /// Use it for nothing new.
    Disable,
    /// Load the file that stands in the folder now.
    Replace,
}

/// Why a driver without a file of its own stays as it is.
pub(crate) const LINKED_IN: &str = "it is part of this program";

/// Why a change was not made; everything is as before.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// No such driver.
    #[error("there is no driver {0}; its library must stand in the drivers folder as {0}.so")]
    Unknown(String),
    /// It cannot be loaded.
    #[error("driver {id}: {reason}")]
    Refused {
        /// The driver.
        id: String,
        /// Why.
        reason: String,
    },
}

/// What changes need.
pub(super) struct Keeper {
    chosen: Mutex<Chosen>,
    /// One change at a time.
    changing: Mutex<()>,
    exe: PathBuf,
    images: PathBuf,
    parts: HostParts,
    mapped: Images,
    /// The last one of each id that was taken out and may still run.
    resting: Mutex<BTreeMap<String, Resting>>,
}

#[derive(Clone)]
struct Chosen {
    config: Config,
    enabled: BTreeSet<String>,
}

/// A file that was looked at.
pub(super) struct Examined {
    /// Its hash, if it could be read.
    pub(super) hash: Option<String>,
    pub(super) outcome: Result<Entry, LoadError>,
}

impl Keeper {
    pub(super) fn new(options: &LoadOptions<'_>, parts: &HostParts) -> Self {
        let (exe, images, parts) = (options.exe.clone(), options.images.clone(), parts.clone());
        let chosen = Mutex::new(Chosen::of(options.config));
        Self {
            chosen,
            changing: Mutex::default(),
            exe,
            images,
            parts,
            mapped: Images::default(),
            resting: Mutex::default(),
        }
    }

    pub(super) fn enabled(&self) -> BTreeSet<String> {
        self.chosen.lock().enabled.clone()
    }

    /// The files of the folder, and why it is not used.
    pub(super) fn scan(&self) -> (Vec<Found>, Option<String>) {
        let folder = self.chosen.lock().config.drivers_dir();
        match loader::scan(&folder) {
            Ok(found) => (found, None),
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "drivers folder not used");
                // Where there is no folder there simply are no files; one that is refused is another matter.
                let reason = || format!("the drivers folder {} is not used: {error}", folder.display());
                (Vec::new(), folder.exists().then(reason))
            }
        }
    }

    /// Looks at a file and loads it if it is enabled. One that runs and has not changed is taken as it is, unless `anew`.
    pub(super) fn examine(&self, found: &Found, registry: &Registry, anew: bool) -> Examined {
        let chosen = self.chosen.lock().clone();
        let settings = chosen.config.driver_settings(&found.id);
        let (bytes, hash) = match loader::read_library(&found.file) {
            Ok(read) => read,
            Err(error) => return Examined { hash: None, outcome: Err(error) },
        };
        let is_enabled = chosen.enabled.contains(&found.id);
        let current = registry.entry(&found.id).filter(|entry| !anew && entry.is_current(&hash, &settings));
        let outcome = match current.filter(|_| is_enabled) {
            Some(entry) => {
                // Its image and its threads are as they were; only what it did is forgotten.
                entry.forgive();
                Ok(entry.accepted())
            }
            None => {
                let made = self.make(found, &bytes, &hash, &chosen, &settings, is_enabled, registry);
                // What made the one before hang comes again, and would take this one from all as well.
                if let (Ok(made), Some(account)) =
                    (&made, registry.entry(&found.id).and_then(Entry::hung_for))
                {
                    made.hold(account);
                }
                made
            }
        };
        Examined { hash: Some(hash), outcome }
    }

    fn make(
        &self,
        found: &Found,
        bytes: &[u8],
        hash: &str,
        chosen: &Chosen,
        settings: &DriverSettings,
        is_enabled: bool,
        registry: &Registry,
    ) -> Result<Entry, LoadError> {
        let (id, file) = (&found.id, Some(found.file.clone()));
        if let Some(pinned) = settings.sha256.as_ref().filter(|pinned| !pinned.eq_ignore_ascii_case(hash)) {
            let (actual, pinned) = (hash.to_string(), pinned.clone());
            return Err(LoadError::Pin { id: id.clone(), actual, pinned });
        }
        let image = loader::private_copy(&self.images, bytes, hash)?;
        probe::probe(&self.exe, &image)?;
        if !is_enabled {
            // Valid, but its code is not run here.
            return Ok(Entry::with_state(id, file, State::Disabled));
        }
        let own = loader::own_hashes(&chosen.config.drivers_dir());
        let is_own = own.get(&format!("{id}.so")).is_some_and(|own| own.eq_ignore_ascii_case(hash));
        let by_origin = if is_own { Isolation::Thread } else { Isolation::Process };
        let entry_of = |started: Started| match registry.taken(id, &started) {
            Some(name) => Err(LoadError::TypeTaken(name)),
            None => Ok(Entry::loaded(id, file, started).made_from(hash, settings)),
        };
        let source = match settings.isolation.unwrap_or(by_origin) {
            Isolation::Thread => match self.rested(id, hash, settings) {
                Some(started) => return entry_of(started),
                None => thread_source(id, self.mapped.lease(&self.images, &image, bytes, hash)?)?,
            },
            Isolation::Process => {
                let (exe, id, limits) = (self.exe.clone(), id.clone(), settings.limits);
                Source::Process(Spec { exe, id, image, limits })
            }
        };
        entry_of(start(source, &self.parts, settings)?)
    }

    /// The same driver, if it still runs on threads for destinations that were open when it was taken out.
    fn rested(&self, id: &str, hash: &str, settings: &DriverSettings) -> Option<Started> {
        self.resting.lock().get(id)?.wake(hash, settings)
    }

    /// Notes a driver that was taken out of `registry`, and says so when many images are mapped that nothing new uses.
    fn retire(&self, id: &str, entry: Option<&Entry>, registry: &Registry) {
        let Some(resting) = entry.and_then(Entry::resting) else { return };
        self.resting.lock().insert(id.to_owned(), resting);
        let retired = self.mapped.count().saturating_sub(registry.on_threads());
        if retired > RETIRED_IMAGES_MAX {
            tracing::warn!(
                retired,
                "many replaced drivers are still in memory; restart the service at a quiet time"
            );
        }
    }
}

impl Chosen {
    fn of(config: &Config) -> Self {
        Self { config: config.clone(), enabled: config.drivers.enabled.iter().cloned().collect() }
    }
}

fn thread_source(id: &str, lease: Lease) -> Result<Source, LoadError> {
    let table = loader::open(lease.path())?;
    if table.id() != id {
        return Err(LoadError::Name { id: table.id().to_string() });
    }
    if !table.panics_unwind() {
        return Err(LoadError::PanicAbort);
    }
    Ok(Source::Thread { table: Box::new(table), flags: 0, lease: Some(lease) })
}

impl Drivers {
    /// Enables, disables or replaces the driver `id` until the next start or [`Drivers::reconfigure`]. Destinations that are
    /// open finish on what they began with. Blocks: probes and starts.
    ///
    /// # Errors
    /// Why not; everything is as before.
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
            keeper.chosen.lock().enabled.remove(id);
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
        keeper.chosen.lock().enabled.insert(id.to_string());
        match keeper.examine(file, &registry, false).outcome {
            Ok(entry) => Ok(self.install(keeper, entry)),
            Err(error) => {
                if !was_enabled {
                    keeper.chosen.lock().enabled.remove(id);
                }
                self.keep(id, error.to_string());
                Err(ChangeError::Refused { id: id.to_string(), reason: error.to_string() })
            }
        }
    }

    /// Drivers that are linked in are as they are.
    fn stay(&self, id: &str, change: Change) -> Result<Summary, ChangeError> {
        let registry = self.registry();
        let entry = registry.entry(id).ok_or_else(|| ChangeError::Unknown(id.to_string()))?;
        if entry.is_loaded() != (change == Change::Disable) {
            return Ok(entry.summary());
        }
        Err(ChangeError::Refused { id: id.to_string(), reason: LINKED_IN.into() })
    }

    /// Takes `[drivers]` and `[driver.<name>]` of `config`: loads what is newly enabled, what has another library or other
    /// settings, and what crashed too often; lets go of what is no longer enabled. A driver whose new library is refused goes
    /// on with its old one, and so do all when the folder is. Blocks.
    pub fn reconfigure(&self, config: &Config) {
        let Some(keeper) = self.inner.keeper.as_ref() else { return };
        let _one = keeper.changing.lock();
        *keeper.chosen.lock() = Chosen::of(config);
        let (found, no_folder) = keeper.scan();
        for file in &found {
            let registry = self.registry();
            let before = registry.entry(&file.id).is_some_and(Entry::is_loaded);
            let is_enabled = keeper.enabled().contains(&file.id);
            match keeper.examine(file, &registry, false).outcome {
                Ok(entry) => drop(self.install(keeper, entry)),
                Err(error) if before && is_enabled => {
                    tracing::error!(driver = %file.id, %error, "driver not replaced, the old one goes on");
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

    /// The driver `id` goes on as it is, if it runs, and shows `why`.
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
        registry.put(entry);
        if !is_same {
            keeper.retire(&summary.id, before.as_ref(), &registry);
        }
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
