//! What stands in the drivers folder and what became of each file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use satcast_plugin_api::host::Table;

use super::loader::{self, Found, LoadError};
use super::{Drivers, HostParts, Inner, probe, start};
use crate::config::{Config, Isolation};

/// Where drivers come from.
pub struct LoadOptions<'a> {
    /// `[drivers]` and `[driver.<name>]`.
    pub config: &'a Config,
    /// This binary, which runs probes.
    pub exe: PathBuf,
    /// Folder of private copies.
    pub images: PathBuf,
}

/// What became of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Serves its types.
    Loaded,
    /// A valid library that is not in `[drivers] enabled`.
    Disabled,
    /// Not loaded, and why.
    Refused(String),
    /// Enabled, but there is no file.
    Missing,
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
}

impl Drivers {
    /// Loads the enabled drivers of the folder. A file that cannot be loaded is logged and listed, and harms nothing else.
    /// Blocks: probes run as child processes.
    pub fn load(options: &LoadOptions<'_>, parts: &HostParts) -> Self {
        let mut inner = Inner::default();
        let folder = options.config.drivers_dir();
        let (found, no_folder) = match loader::scan(&folder) {
            Ok(found) => (found, None),
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "drivers folder not used");
                // Where there is no folder there simply are no files; one that is refused is another matter.
                let reason = || format!("the drivers folder {} is not used: {error}", folder.display());
                (Vec::new(), folder.exists().then(reason))
            }
        };
        let own = loader::own_hashes(&folder);
        let mut kept = BTreeSet::new();
        let enabled = &options.config.drivers.enabled;
        for file in &found {
            let is_enabled = enabled.contains(&file.id);
            let summary = examine(file, is_enabled, &own, options, parts, &mut inner, &mut kept);
            report(&summary);
            inner.summaries.push(summary);
        }
        loader::remove_old_copies(&options.images, &kept);
        for id in enabled.iter().filter(|id| !found.iter().any(|file| file.id == **id)) {
            let summary = Summary {
                id: id.clone(),
                file: None,
                version: String::new(),
                types: Vec::new(),
                state: no_folder.clone().map_or(State::Missing, State::Refused),
            };
            report(&summary);
            inner.summaries.push(summary);
        }
        Self { inner: Arc::new(inner) }
    }
}

fn report(summary: &Summary) {
    let driver = summary.id.as_str();
    let file = summary.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
    match &summary.state {
        State::Loaded => {
            tracing::info!(driver, version = %summary.version, types = ?summary.types, "driver loaded")
        }
        State::Disabled => tracing::info!(driver, file, "driver is there but not in [drivers] enabled"),
        State::Refused(reason) => tracing::error!(driver, file, "driver {file}: {reason}"),
        State::Missing => {
            tracing::warn!(driver, "driver is enabled, but there is no {driver}.so in the drivers folder")
        }
    }
}

fn examine(
    found: &Found,
    is_enabled: bool,
    own: &BTreeMap<String, String>,
    options: &LoadOptions<'_>,
    parts: &HostParts,
    inner: &mut Inner,
    kept: &mut BTreeSet<String>,
) -> Summary {
    let mut summary = Summary {
        id: found.id.clone(),
        file: Some(found.file.clone()),
        version: String::new(),
        types: Vec::new(),
        state: State::Disabled,
    };
    match check(found, is_enabled, own, options, kept) {
        Ok(None) => {}
        Ok(Some(table)) => {
            summary.version = table.version().to_string();
            summary.types = table.manifest().types.iter().map(|kind| kind.name.clone()).collect();
            let settings = options.config.driver.get(&found.id).map(|driver| &driver.settings);
            let taken = summary.types.iter().find(|name| inner.kinds.contains_key(*name));
            summary.state = match taken {
                Some(name) => {
                    State::Refused(format!("serves type {name}, which another driver serves already"))
                }
                None => match start(table, parts, 0, settings.unwrap_or(&BTreeMap::new())) {
                    Ok(kinds) => {
                        inner.kinds.extend(kinds);
                        State::Loaded
                    }
                    Err(error) => State::Refused(error.to_string()),
                },
            };
        }
        Err(error) => summary.state = State::Refused(error.to_string()),
    }
    summary
}

/// `None`: valid, but not enabled; its code is then not run in this process.
fn check(
    found: &Found,
    is_enabled: bool,
    own: &BTreeMap<String, String>,
    options: &LoadOptions<'_>,
    kept: &mut BTreeSet<String>,
) -> Result<Option<Table>, LoadError> {
    let (bytes, hash) = loader::read_library(&found.file)?;
    kept.insert(hash.clone());
    let settings = options.config.driver.get(&found.id);
    if let Some(pinned) = settings.and_then(|settings| settings.sha256.as_ref())
        && !pinned.eq_ignore_ascii_case(&hash)
    {
        return Err(LoadError::Pin { id: found.id.clone(), actual: hash, pinned: pinned.clone() });
    }
    let image = loader::private_copy(&options.images, &bytes, &hash)?;
    probe::probe(&options.exe, &image)?;
    if !is_enabled {
        return Ok(None);
    }
    let file_name = format!("{}.so", found.id);
    let is_own = own.get(&file_name).is_some_and(|own| own.eq_ignore_ascii_case(&hash));
    let isolation = settings.and_then(|settings| settings.isolation);
    let in_thread = match isolation {
        Some(Isolation::Thread) => true,
        Some(Isolation::Process) => false,
        None => is_own,
    };
    if !in_thread {
        return Err(LoadError::NeedsIsolation(found.id.clone()));
    }
    let table = loader::open(&image)?;
    if table.id() != found.id {
        return Err(LoadError::Name { id: table.id().to_string() });
    }
    if !table.panics_unwind() {
        return Err(LoadError::PanicAbort);
    }
    Ok(Some(table))
}
