//! The files of the drivers folder, the loaded drivers and their types, and the state of each.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use satcast_plugin_api::Route;

use crate::load::requirements::Requirements;
use crate::load::schema::ConfigSchema;
use crate::run::Loaded;
use satcast_core::config::{DriverSettings, Isolation, QueueLimits};
use satcast_core::ids::{AccountId, UnixMillis};

/// Folder of spooled packets, beside the folders of the drivers: no driver has such a name.
pub(super) const SPOOL_FOLDER: &str = ".spool";

/// Disk spool for packets that a destination cannot take at once and must not lose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolPlace {
    /// Folder of the spool file.
    pub folder: PathBuf,
    /// Most bytes of one destination.
    pub bytes_max: u64,
}

/// A destination type and its driver.
pub(super) struct Kind {
    pub(super) driver: Arc<Loaded>,
    pub(super) facts: Arc<KindFacts>,
}

impl std::ops::Deref for Kind {
    type Target = KindFacts;

    fn deref(&self) -> &KindFacts {
        &self.facts
    }
}

pub(super) struct KindFacts {
    pub(super) title: String,
    pub(super) playback: bool,
    /// It begins with a backfill of the DVR window.
    pub(super) wants_backfill: bool,
    /// The entry of the operator's settings that makes it; `None` for a type that its driver declares.
    pub(super) made_by: Option<String>,
    /// Viewers' requests that the driver answers itself.
    pub(super) routes: Vec<Route>,
    pub(super) schema: ConfigSchema,
    /// Spool of a type that must not lose packets.
    pub(super) spool: Option<SpoolPlace>,
    /// Limits of the memory queue of a type without a spool.
    pub(super) queue: QueueLimits,
    /// Requirements of the service behind the type.
    pub(super) requirements: Option<Arc<Requirements>>,
}

/// State of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Loaded,
    /// Loaded, but its process crashed or it failed too often; the text says why and what happens next.
    Failing(String),
    /// A valid library that is not enabled.
    Disabled,
    /// Not loaded; the reason.
    Refused(String),
    Missing,
}

impl State {
    /// The value in the API.
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

/// An account for which a driver currently opens nothing new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    pub account: AccountId,
    /// The fault of the driver, and what happens next.
    pub why: String,
    /// When the quarantine ends by itself; `None` = when an operator enables the driver.
    pub until: Option<UnixMillis>,
}

/// One driver of the folder or of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub id: String,
    /// The file; `None` when there is none.
    pub file: Option<PathBuf>,
    /// Empty when it is not known.
    pub version: String,
    pub types: Vec<String>,
    pub state: State,
    /// Why the latest replacement (another library or other settings) was refused, or an entry that makes a type; the
    /// driver runs without it. `None` when nothing was refused.
    pub refused: Option<String>,
    /// Where it runs; `None` when it does not run.
    pub isolation: Option<Isolation>,
    /// Crashes of its process since it was loaded; on threads, panics.
    pub crashes: u64,
    /// Accounts for which it opens nothing new.
    pub set_aside: Vec<SetAside>,
}

/// Logs the state of a driver.
pub(super) fn report(summary: &Summary) {
    let driver = summary.id.as_str();
    if let Some(refused) = &summary.refused {
        tracing::error!(driver, "driver {driver}: {refused}");
    }
    let file = summary.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
    match &summary.state {
        State::Loaded => {
            let isolation = summary.isolation.map(Isolation::name);
            tracing::info!(driver, version = %summary.version, types = ?summary.types, isolation, "driver loaded")
        }
        State::Failing(reason) => tracing::error!(driver, "driver {driver}: {reason}"),
        State::Disabled => tracing::info!(driver, file, "driver found but not in [drivers] enabled"),
        State::Refused(reason) => tracing::error!(driver, file, "driver {file}: {reason}"),
        State::Missing => {
            tracing::warn!(driver, "driver is enabled, but there is no {driver}.so in the drivers folder")
        }
    }
}

/// A driver on threads that gets nothing new. Its open destinations keep it alive; it is used again as it is when it
/// is enabled again.
pub(super) struct Draining {
    hash: String,
    settings: DriverSettings,
    version: String,
    loaded: Weak<Loaded>,
    kinds: BTreeMap<String, Arc<KindFacts>>,
}

impl Draining {
    /// The driver, if it still runs and a new load would give the same driver.
    pub(super) fn revive(&self, hash: &str, settings: &DriverSettings) -> Option<Started> {
        let loaded = self.loaded.upgrade().filter(|loaded| loaded.control.trouble().is_none())?;
        if self.hash != hash || !loaded.is_same_with(&self.settings, settings) {
            return None;
        }
        loaded.services.clear_faults();
        let kind = |facts: &Arc<KindFacts>| Arc::new(Kind { driver: loaded.clone(), facts: facts.clone() });
        let kinds = self.kinds.iter().map(|(name, facts)| (name.clone(), kind(facts))).collect();
        Some(Started { version: self.version.clone(), loaded: loaded.clone(), kinds })
    }
}

/// A snapshot of all drivers.
#[derive(Clone, Default)]
pub(super) struct Registry {
    kinds: BTreeMap<String, Arc<Kind>>,
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone)]
pub(super) struct Entry {
    summary: Summary,
    /// Hash of its library; empty when it has none.
    hash: String,
    settings: DriverSettings,
    loaded: Option<Arc<Loaded>>,
    kinds: BTreeMap<String, Arc<Kind>>,
}

pub(super) struct Started {
    pub(super) version: String,
    pub(super) loaded: Arc<Loaded>,
    pub(super) kinds: BTreeMap<String, Arc<Kind>>,
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

    pub(super) fn summaries(&self) -> Vec<Summary> {
        self.entries.values().map(|entry| self.summary(entry)).collect()
    }

    /// The current state of a driver. An entry that makes a type of another driver is refused alone.
    pub(super) fn summary(&self, entry: &Entry) -> Summary {
        let mut summary = entry.summary();
        for (name, kind) in &entry.kinds {
            let serves = |other: &&Entry| {
                let of_name = (other.kinds.get(name), self.kinds.get(name));
                matches!(of_name, (Some(one), Some(serving)) if Arc::ptr_eq(one, serving))
            };
            let serving = self.entries.values().find(serves).map_or("", |serving| &serving.summary.id);
            if let Some(place) = kind.made_by.as_ref().filter(|_| serving != entry.summary.id) {
                summary.types.retain(|of| of != name);
                summary.refused.get_or_insert_with(|| entry_refused(place, name, serving));
            }
        }
        summary
    }

    /// A type that `started` declares and another driver serves.
    pub(super) fn taken(&self, id: &str, started: &Started) -> Option<String> {
        let others = self.entries.values().filter(|entry| entry.summary.id != id);
        let mut declared = others.flat_map(|entry| &entry.kinds).filter(|(_, kind)| kind.made_by.is_none());
        let is_taken = |name: &String| started.kinds.get(name).is_some_and(|kind| kind.made_by.is_none());
        declared.find(|(name, _)| is_taken(name)).map(|(name, _)| name.clone())
    }

    /// Replaces the driver of that id.
    pub(super) fn put(&mut self, entry: Entry) {
        self.entries.insert(entry.summary.id.clone(), entry);
        self.arrange();
    }

    /// Removes a driver.
    pub(super) fn take(&mut self, id: &str) -> Option<Entry> {
        let entry = self.entries.remove(id)?;
        self.arrange();
        Some(entry)
    }

    /// Assigns each type to a driver: the one that declares it has priority over one for which operators made it.
    fn arrange(&mut self) {
        let all = || self.entries.values().flat_map(|entry| &entry.kinds);
        let made = all().filter(|(_, kind)| kind.made_by.is_some());
        let declared = all().filter(|(_, kind)| kind.made_by.is_none());
        self.kinds = made.chain(declared).map(|(name, kind)| (name.clone(), kind.clone())).collect();
    }

    /// Records at a running driver why its replacement was refused.
    pub(super) fn note_refusal(&mut self, id: &str, why: String) {
        if let Some(entry) = self.entries.get_mut(id).filter(|entry| entry.is_loaded()) {
            entry.summary.refused = Some(why);
        }
    }

    /// Number of drivers on threads.
    pub(super) fn on_threads(&self) -> usize {
        let on_threads = |entry: &&Entry| entry.summary.isolation == Some(Isolation::Thread);
        self.entries.values().filter(on_threads).count()
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }
}

/// Why an entry of the operator's settings makes no type.
fn entry_refused(place: &str, name: &str, driver: &str) -> String {
    format!("{place} is refused: driver {driver} serves type {name}; give the entry another name")
}

impl Entry {
    /// A driver that is not loaded.
    pub(super) fn with_state(id: &str, file: Option<PathBuf>, state: State) -> Self {
        let (id, version, types, refused, isolation) = (id.into(), String::new(), Vec::new(), None, None);
        let set_aside = Vec::new();
        let summary = Summary { id, file, version, types, state, refused, isolation, crashes: 0, set_aside };
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

    /// Records the hash and the settings, so that an unchanged driver is not loaded again.
    pub(super) fn made_from(mut self, hash: &str, settings: &DriverSettings) -> Self {
        self.hash = hash.to_string();
        self.settings = settings.clone();
        self
    }

    /// The same entry without the refusal: it is current.
    pub(super) fn accepted(&self) -> Self {
        let mut entry = self.clone();
        entry.summary.refused = None;
        entry
    }

    /// It runs, and a new load would give the same driver.
    pub(super) fn is_current(&self, hash: &str, settings: &DriverSettings) -> bool {
        let is_well = self.summary.state == State::Loaded && self.trouble().is_none();
        let is_same = |loaded: &Arc<Loaded>| loaded.is_same_with(&self.settings, settings);
        is_well && self.hash == hash && self.loaded.as_ref().is_some_and(is_same)
    }

    /// The driver to keep after its removal, if it runs on threads.
    pub(super) fn draining(&self) -> Option<Draining> {
        let loaded = self.loaded.as_ref().filter(|loaded| loaded.remote.is_none())?;
        Some(Draining {
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

    /// The current state.
    pub(super) fn summary(&self) -> Summary {
        let mut summary = self.summary.clone();
        let Some(loaded) = &self.loaded else { return summary };
        summary.crashes = loaded.crashes();
        if let Some(trouble) = self.trouble().or_else(|| loaded.services.quarantine()) {
            summary.state = State::Failing(trouble);
        }
        let held = loaded.services.set_aside().into_iter().map(|(account, why)| (account, why, None));
        let waiting = loaded.remote.iter().flat_map(|remote| remote.waiting());
        let all = held.chain(waiting.map(|(account, why, until)| (account, why, Some(until))));
        summary.set_aside =
            all.map(|(account, why, until)| SetAside { account: AccountId(account), why, until }).collect();
        summary
    }

    /// Trouble of its process or of its thread.
    fn trouble(&self) -> Option<String> {
        let loaded = self.loaded.as_ref()?;
        let of_process = loaded.remote.as_ref().and_then(|remote| remote.trouble());
        of_process.or_else(|| loaded.control.trouble())
    }

    /// The account in whose call it hangs, on threads.
    pub(super) fn hung_for(&self) -> Option<i64> {
        self.loaded.as_ref()?.control.hung_for()
    }

    /// Sets it aside for an account in whose call its predecessor hung.
    pub(super) fn hold(&self, account: i64) {
        self.loaded.iter().for_each(|loaded| loaded.services.hold(account));
    }

    /// Clears its faults, so that it is used again.
    pub(super) fn clear_faults(&self) {
        self.loaded.iter().for_each(|loaded| loaded.services.clear_faults());
    }
}

#[cfg(test)]
mod tests;
