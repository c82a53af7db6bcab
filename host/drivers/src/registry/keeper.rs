//! The operator's choices, and how a file of the folder becomes a driver.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use parking_lot::Mutex;

use super::entries::{Draining, Entry, Registry, Started, State, report};
use super::starting::{Source, start};
use crate::load::error::LoadError;
use crate::load::images::{Images, Lease};
use crate::load::loader::{self, Found};
use crate::load::probe;
use crate::run::HostParts;
use crate::run::process::Spec;
use satcast_core::config::{Config, DriverSettings, Isolation};

/// With more retired images mapped than this, a restart is advised.
const RETIRED_IMAGES_MAX: usize = 32;

/// The source of drivers.
pub struct LoadOptions<'a> {
    /// `[drivers]` and `[driver.<name>]`.
    pub config: &'a Config,
    /// This binary, which runs probes and isolated drivers in child processes.
    pub exe: PathBuf,
    pub images: PathBuf,
}

/// State for changes.
pub(super) struct Keeper {
    chosen: Mutex<Chosen>,
    /// One change at a time.
    pub(super) changing: Mutex<()>,
    exe: PathBuf,
    images: PathBuf,
    parts: HostParts,
    mapped: Images,
    /// The last driver of each id that was removed and may still run.
    draining: Mutex<BTreeMap<String, Draining>>,
}

#[derive(Clone)]
struct Chosen {
    config: Config,
    enabled: BTreeSet<String>,
}

pub(super) struct Examined {
    /// Its hash, if the file could be read.
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
            draining: Mutex::default(),
        }
    }

    pub(super) fn enabled(&self) -> BTreeSet<String> {
        self.chosen.lock().enabled.clone()
    }

    pub(super) fn enable(&self, id: &str) {
        self.chosen.lock().enabled.insert(id.to_owned());
    }

    pub(super) fn disable(&self, id: &str) {
        self.chosen.lock().enabled.remove(id);
    }

    /// Takes other settings; running drivers stay as they are.
    pub(super) fn choose(&self, config: &Config) {
        *self.chosen.lock() = Chosen::of(config);
    }

    /// The files of the folder, and the reason if the folder is not used.
    pub(super) fn scan(&self) -> (Vec<Found>, Option<String>) {
        let folder = self.chosen.lock().config.drivers_dir();
        match loader::scan(&folder) {
            Ok(found) => (found, None),
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "drivers folder not used");
                // A missing folder simply has no files; a refused folder is an error.
                let reason = || format!("the drivers folder {} is not used: {error}", folder.display());
                (Vec::new(), folder.exists().then(reason))
            }
        }
    }

    /// Checks a file and loads it if it is enabled. An unchanged running driver is kept.
    pub(super) fn examine(&self, found: &Found, registry: &Registry) -> Examined {
        let chosen = self.chosen.lock().clone();
        let settings = chosen.config.driver_settings(&found.id);
        let (bytes, hash) = match loader::read_library(&found.file) {
            Ok(read) => read,
            Err(error) => return Examined { hash: None, outcome: Err(error) },
        };
        let is_enabled = chosen.enabled.contains(&found.id);
        let current = registry.entry(&found.id).filter(|entry| entry.is_current(&hash, &settings));
        let outcome = match current.filter(|_| is_enabled) {
            Some(entry) => {
                // Its image and its threads stay; only its faults are cleared.
                entry.clear_faults();
                Ok(entry.accepted())
            }
            None => {
                let made = self.make(found, &bytes, &hash, &chosen, &settings, is_enabled, registry);
                // The cause of the hang would come again and would block this driver for all accounts as well.
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
        probe::probe(&self.exe, &image).map_err(|error| error.of_file(&image, &found.file))?;
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
            Isolation::Thread => match self.revive(id, hash, settings) {
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

    /// The same driver, if it still runs on threads for destinations that were open when it was removed.
    fn revive(&self, id: &str, hash: &str, settings: &DriverSettings) -> Option<Started> {
        self.draining.lock().get(id)?.revive(hash, settings)
    }

    /// Records a driver that was removed from `registry`, and logs when many retired images are still mapped.
    pub(super) fn retire(&self, id: &str, entry: Option<&Entry>, registry: &Registry) {
        let Some(draining) = entry.and_then(Entry::draining) else { return };
        self.draining.lock().insert(id.to_owned(), draining);
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

/// Lists the enabled drivers without a file; when the folder is refused, running drivers stay as they are.
pub(super) fn add_missing(
    registry: &mut Registry,
    keeper: &Keeper,
    found: &[Found],
    no_folder: Option<String>,
) {
    for id in keeper.enabled().iter().filter(|id| !found.iter().any(|file| file.id == **id)) {
        if let Some(reason) = no_folder.as_ref().filter(|_| registry.entry(id).is_some_and(Entry::is_loaded))
        {
            tracing::error!(driver = %id, "driver not checked, it keeps running as it is: {reason}");
            registry.note_refusal(id, reason.clone());
            continue;
        }
        let state = no_folder.clone().map_or(State::Missing, State::Refused);
        let entry = Entry::with_state(id, None, state);
        report(&entry.summary());
        registry.put(entry);
    }
}
