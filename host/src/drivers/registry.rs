//! Which drivers are loaded and which types they serve.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use satcast_plugin_api::host::{Driver, Services, Table};
use satcast_plugin_api::manifest::Manifest;
use satcast_plugin_api::{Error, Route};
use serde_json::Value;

use super::annotations::takes_table;
use super::backend::Backend;
use super::catalog::{State, Summary};
use super::control::{Control, Pump};
use super::images::Lease;
use super::loader::LoadError;
use super::process::{Accept, Hooks, Remote, Spec};
use super::quarantine::Fault;
use super::schema::ConfigSchema;
use super::services::{DriverServices, OperatorSettings};
use super::wishes::Wishes;
use super::{HostParts, MAX_LEVEL, SpoolPlace, made, settings};
use crate::config::{ARCHIVE_TABLE, DriverSettings, Isolation, QueueLimits};

/// Folder of packets that wait on disk, beside the folders of the drivers: no driver has such a name.
pub(super) const SPOOL_FOLDER: &str = ".spool";
const BYTES_PER_MB: u64 = 1024 * 1024;

/// One loaded driver. It ends when its last destination and the registry have let go of it.
pub(super) struct Loaded {
    pub(super) control: Control,
    pub(super) pump: Arc<Pump>,
    pub(super) services: Arc<DriverServices>,
    /// The process it runs in, if it has one.
    pub(super) remote: Option<Arc<Remote>>,
    /// `[archive]` goes on to it.
    takes_archive: bool,
}

impl Loaded {
    /// It would get the same settings.
    fn is_same_with(&self, before: &DriverSettings, after: &DriverSettings) -> bool {
        let archive = if self.takes_archive { after } else { before }.archive.clone();
        *before == DriverSettings { archive, ..after.clone() }
    }

    fn crashes(&self) -> u64 {
        self.remote.as_ref().map_or_else(|| self.services.panicked(), |remote| remote.crashed())
    }
}

/// One destination type, and who serves it.
pub(super) struct Kind {
    pub(super) driver: Arc<Loaded>,
    facts: Arc<KindFacts>,
}

impl std::ops::Deref for Kind {
    type Target = KindFacts;

    fn deref(&self) -> &KindFacts {
        &self.facts
    }
}

/// One destination type.
pub(super) struct KindFacts {
    pub(super) title: String,
    pub(super) playback: bool,
    /// It begins with what viewers can go back to.
    pub(super) wants_past: bool,
    /// Viewers' requests that it answers itself.
    pub(super) routes: Vec<Route>,
    pub(super) schema: ConfigSchema,
    /// Where its packets wait rather than being lost.
    pub(super) spool: Option<SpoolPlace>,
    /// What waits in memory where there is no such place.
    pub(super) queue: QueueLimits,
    /// What the service behind it asks of streams.
    pub(super) wishes: Option<Arc<Wishes>>,
}

/// A driver on threads that is used for nothing new. What it still runs keeps it alive: it is taken as it is when it is wanted again.
pub(super) struct Resting {
    hash: String,
    settings: DriverSettings,
    version: String,
    loaded: Weak<Loaded>,
    kinds: BTreeMap<String, Arc<KindFacts>>,
}

impl Resting {
    /// The driver, if it still runs and would be the same if it were loaded again.
    pub(super) fn wake(&self, hash: &str, settings: &DriverSettings) -> Option<Started> {
        let loaded = self.loaded.upgrade().filter(|loaded| loaded.control.trouble().is_none())?;
        if self.hash != hash || !loaded.is_same_with(&self.settings, settings) {
            return None;
        }
        loaded.services.forgive();
        let kind = |facts: &Arc<KindFacts>| Arc::new(Kind { driver: loaded.clone(), facts: facts.clone() });
        let kinds = self.kinds.iter().map(|(name, facts)| (name.clone(), kind(facts))).collect();
        Some(Started { version: self.version.clone(), loaded: loaded.clone(), kinds })
    }
}

/// All of it at one moment.
#[derive(Clone, Default)]
pub(super) struct Registry {
    kinds: BTreeMap<String, Arc<Kind>>,
    entries: BTreeMap<String, Entry>,
}

/// One driver of the folder or of the configuration.
#[derive(Clone)]
pub(super) struct Entry {
    summary: Summary,
    /// What it was loaded from; empty when it was not.
    hash: String,
    settings: DriverSettings,
    loaded: Option<Arc<Loaded>>,
    kinds: BTreeMap<String, Arc<Kind>>,
}

/// Where the code of a driver comes from.
pub(super) enum Source {
    /// A checked table of this process; `flags` are `HOST_FLAG_*`; `lease` is of its image, `None` where it is linked in.
    Thread { table: Box<Table>, flags: u32, lease: Option<Lease> },
    /// A library for a child.
    Process(Spec),
}

/// A driver that was started.
pub(super) struct Started {
    version: String,
    loaded: Arc<Loaded>,
    kinds: BTreeMap<String, Arc<Kind>>,
}

impl Registry {
    pub(super) fn kind(&self, name: &str) -> Option<Arc<Kind>> {
        self.kinds.get(name).cloned()
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = (&String, &Arc<Kind>)> {
        self.kinds.iter()
    }

    pub(super) fn entry(&self, id: &str) -> Option<&Entry> {
        self.entries.get(id)
    }

    /// Every driver as it stands now.
    pub(super) fn summaries(&self) -> Vec<Summary> {
        self.entries.values().map(Entry::summary).collect()
    }

    /// The type of `started` that another driver serves.
    pub(super) fn taken(&self, id: &str, started: &Started) -> Option<String> {
        let others = self.entries.values().filter(|entry| entry.summary.id != id);
        let mut names = others.flat_map(|entry| entry.kinds.keys());
        names.find(|name| started.kinds.contains_key(*name)).cloned()
    }

    /// Puts a driver in place of the one of that id.
    pub(super) fn put(&mut self, entry: Entry) {
        self.take(&entry.summary.id.clone());
        self.kinds.extend(entry.kinds.clone());
        self.entries.insert(entry.summary.id.clone(), entry);
    }

    /// Takes a driver out.
    pub(super) fn take(&mut self, id: &str) -> Option<Entry> {
        let entry = self.entries.remove(id)?;
        for name in entry.kinds.keys() {
            self.kinds.remove(name);
        }
        Some(entry)
    }

    /// Notes on a driver that goes on why what was to take its place was refused.
    pub(super) fn note_refusal(&mut self, id: &str, why: String) {
        if let Some(entry) = self.entries.get_mut(id).filter(|entry| entry.is_loaded()) {
            entry.summary.refused = Some(why);
        }
    }

    /// How many drivers run on threads.
    pub(super) fn on_threads(&self) -> usize {
        let on_threads = |entry: &&Entry| entry.summary.isolation == Some(Isolation::Thread);
        self.entries.values().filter(on_threads).count()
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }
}

impl Entry {
    /// A driver that is not loaded.
    pub(super) fn with_state(id: &str, file: Option<PathBuf>, state: State) -> Self {
        let (id, version, types, refused, isolation) = (id.into(), String::new(), Vec::new(), None, None);
        let summary = Summary { id, file, version, types, state, refused, isolation, crashes: 0 };
        let (hash, settings) = (String::new(), DriverSettings::default());
        Self { summary, hash, settings, loaded: None, kinds: BTreeMap::new() }
    }

    /// A driver that was started.
    pub(super) fn loaded(id: &str, file: Option<PathBuf>, started: Started) -> Self {
        let mut entry = Self::with_state(id, file, State::Loaded);
        entry.summary.version = started.version;
        entry.summary.types = started.kinds.keys().cloned().collect();
        let in_process = started.loaded.remote.is_some();
        entry.summary.isolation = Some(if in_process { Isolation::Process } else { Isolation::Thread });
        entry.loaded = Some(started.loaded);
        entry.kinds = started.kinds;
        entry
    }

    /// Notes what it was loaded from, so that it is not loaded again for nothing.
    pub(super) fn made_from(mut self, hash: &str, settings: &DriverSettings) -> Self {
        self.hash = hash.to_string();
        self.settings = settings.clone();
        self
    }

    /// The same without what was refused: it is what it should be.
    pub(super) fn accepted(&self) -> Self {
        let mut entry = self.clone();
        entry.summary.refused = None;
        entry
    }

    /// It runs, and would be the same if it were loaded again.
    pub(super) fn is_current(&self, hash: &str, settings: &DriverSettings) -> bool {
        let is_well = self.summary.state == State::Loaded && self.trouble().is_none();
        let is_same = |loaded: &Arc<Loaded>| loaded.is_same_with(&self.settings, settings);
        is_well && self.hash == hash && self.loaded.as_ref().is_some_and(is_same)
    }

    /// What is left of it when it is taken out, where that is on threads.
    pub(super) fn resting(&self) -> Option<Resting> {
        let loaded = self.loaded.as_ref().filter(|loaded| loaded.remote.is_none())?;
        Some(Resting {
            hash: self.hash.clone(),
            settings: self.settings.clone(),
            version: self.summary.version.clone(),
            loaded: Arc::downgrade(loaded),
            kinds: self.kinds.iter().map(|(name, kind)| (name.clone(), kind.facts.clone())).collect(),
        })
    }

    /// Both are the same running driver.
    pub(super) fn is_same(&self, other: &Entry) -> bool {
        match (&self.loaded, &other.loaded) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }

    /// The driver, if it runs.
    pub(super) fn running(&self) -> Option<Arc<Loaded>> {
        self.loaded.clone()
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.loaded.is_some()
    }

    /// What is shown of it now.
    pub(super) fn summary(&self) -> Summary {
        let mut summary = self.summary.clone();
        summary.crashes = self.loaded.as_ref().map_or(0, |loaded| loaded.crashes());
        let quarantine = self.loaded.as_ref().and_then(|loaded| loaded.services.quarantine());
        if let Some(trouble) = self.trouble().or(quarantine) {
            summary.state = State::Failing(trouble);
        }
        summary
    }

    /// What is wrong with its process, or with its thread.
    fn trouble(&self) -> Option<String> {
        let loaded = self.loaded.as_ref()?;
        let of_process = loaded.remote.as_ref().and_then(|remote| remote.trouble());
        of_process.or_else(|| loaded.control.trouble())
    }

    /// The account with whose work it hangs on its threads.
    pub(super) fn hung_for(&self) -> Option<i64> {
        self.loaded.as_ref()?.control.hung_for()
    }

    /// Leaves it alone for an account with whose work the one before it hung.
    pub(super) fn hold(&self, account: i64) {
        self.loaded.iter().for_each(|loaded| loaded.services.hold(account));
    }

    /// Lets it be used again after its faults.
    pub(super) fn forgive(&self) {
        self.loaded.iter().for_each(|loaded| loaded.services.forgive());
    }
}

/// Starts a driver with its threads. Blocks.
pub(super) fn start(
    source: Source,
    parts: &HostParts,
    chosen: &DriverSettings,
) -> Result<Started, LoadError> {
    let failed = |error: Error| LoadError::Start(error.message);
    let id = match &source {
        Source::Thread { table, .. } => table.id().to_string(),
        Source::Process(spec) => spec.id.clone(),
    };
    let pump = Arc::new(Pump::start(&id).map_err(failed)?);
    let services = Arc::new(DriverServices::new(
        &id,
        parts.data_dir.join(&id),
        parts.guard.clone(),
        parts.runtime.clone(),
        parts.clock.clone(),
        OperatorSettings::default(),
        &pump,
        parts.recordings.clone(),
    ));
    let cleaned = |mut error: Error| {
        error.message = services.redactor(Vec::new()).clean(&error.message);
        LoadError::Start(error.message)
    };
    let asked: Arc<dyn Services> = services.clone();
    let clock = parts.clock.clone();
    let (version, manifest, is_lossless, remote, control) = match source {
        Source::Thread { table, flags, lease } => {
            let (version, manifest) = (table.version().to_string(), table.manifest().clone());
            let is_lossless = table.is_lossless();
            accept(&id, &manifest, chosen, &services).map_err(LoadError::Start)?;
            let begin = move || {
                let driver = Driver::start(*table, asked, &MAX_LEVEL, flags)?;
                Ok(Backend::Thread(Box::new(driver), lease))
            };
            (version, manifest, is_lossless, None, Control::start(&id, clock, begin).map_err(cleaned)?)
        }
        Source::Process(spec) => {
            services.bound_pieces(spec.limits.memory_mb.saturating_mul(BYTES_PER_MB));
            let level = MAX_LEVEL.load(Ordering::Relaxed);
            let reports = parts.recordings.reports.clone();
            // What an earlier child told last, or this one at its start, may not have come.
            let up = Box::new(move || reports.miss());
            let faults = services.clone();
            let fault = Box::new(move |account, why: &str| faults.fault(account, Fault::Crashed, why));
            let hooks = Hooks { accept: accepting(&id, chosen, &services), up, fault };
            let (remote, facts) = Remote::start(spec, asked, pump.clone(), clock.clone(), level, hooks)
                .map_err(|error| LoadError::Start(services.redactor(Vec::new()).clean(&error.to_string())))?;
            // From here on its process ends with the control thread.
            let backend = Backend::Process(remote.clone());
            let control = Control::start(&id, clock, move || Ok(backend)).map_err(failed)?;
            (facts.version, facts.manifest, facts.is_lossless, Some(remote), control)
        }
    };
    let takes_archive = takes_table(&id, manifest.settings.as_ref(), ARCHIVE_TABLE);
    let loaded = Arc::new(Loaded { control, pump, services, remote, takes_archive });
    let spool = SpoolPlace {
        folder: parts.data_dir.join(SPOOL_FOLDER),
        bytes_max: chosen.spool_mb.saturating_mul(BYTES_PER_MB),
    };
    let spool = (is_lossless && spool.bytes_max > 0).then_some(spool);
    let mut kinds = BTreeMap::new();
    let settings = settings::named(&id, manifest.settings.as_ref(), chosen);
    for kind in made::types(&id, &manifest, &settings).map_err(LoadError::Start)? {
        let schema = compile(&kind.name, &kind.schema)?;
        let wishes = Wishes::of(&kind.name, &kind.title, &kind.schema).map(Arc::new);
        let (title, playback, routes, wants_past) = (kind.title, kind.playback, kind.routes, kind.wants_past);
        let (spool, queue) = (spool.clone(), chosen.queue);
        let facts = KindFacts { title, playback, routes, wants_past, schema, wishes, spool, queue };
        kinds.insert(kind.name, Arc::new(Kind { driver: loaded.clone(), facts: Arc::new(facts) }));
    }
    Ok(Started { version, loaded, kinds })
}

/// Looks at a driver before its code is started, and hands it the operator's settings.
fn accept(
    id: &str,
    manifest: &Manifest,
    chosen: &DriverSettings,
    services: &DriverServices,
) -> Result<(), String> {
    for kind in &manifest.types {
        compile(&kind.name, &kind.schema).map_err(|error| error.to_string())?;
    }
    services.set_settings(settings::checked(id, manifest.settings.as_ref(), chosen)?);
    Ok(())
}

/// The same for each process of a driver.
fn accepting(id: &str, chosen: &DriverSettings, services: &Arc<DriverServices>) -> Accept {
    let (id, chosen, services) = (id.to_string(), chosen.clone(), services.clone());
    Box::new(move |facts| {
        if facts.id != id {
            return Err(LoadError::Name { id: facts.id.clone() }.to_string());
        }
        accept(&id, &facts.manifest, &chosen, &services)
    })
}

fn compile(name: &str, schema: &Value) -> Result<ConfigSchema, LoadError> {
    ConfigSchema::compile(schema).map_err(|error| {
        LoadError::Start(format!("the configuration schema of type {name} is invalid: {error}"))
    })
}
