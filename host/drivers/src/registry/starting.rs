//! How a driver starts: code, threads, settings, and the resulting types.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use satcast_plugin_api::Error;
use satcast_plugin_api::host::{Driver, Services, Table};
use satcast_plugin_api::manifest::{DestType, Manifest};
use serde_json::Value;

use super::entries::{Kind, KindFacts, SPOOL_FOLDER, SpoolPlace, Started};
use crate::load::annotations::takes_table;
use crate::load::error::LoadError;
use crate::load::images::Lease;
use crate::load::requirements::Requirements;
use crate::load::schema::ConfigSchema;
use crate::load::settings::OperatorSettings;
use crate::load::{made, settings};
use crate::run::control::{Backend, Control};
use crate::run::process::{Accept, Hooks, Remote, Spec};
use crate::run::pump::Pump;
use crate::run::quarantine::Fault;
use crate::run::services::DriverServices;
use crate::run::{HostParts, Loaded, MAX_LEVEL};
use satcast_core::config::{ARCHIVE_TABLE, DriverSettings};

const BYTES_PER_MB: u64 = 1024 * 1024;

pub(super) enum Source {
    /// A checked table of this process; `flags` are `HOST_FLAG_*`; `lease` is for its image, `None` where it is
    /// linked in.
    Thread { table: Box<Table>, flags: u32, lease: Option<Lease> },
    /// A library for a child.
    Process(Spec),
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
            services.bound_assets(spec.limits.memory_mb.saturating_mul(BYTES_PER_MB));
            let level = MAX_LEVEL.load(Ordering::Relaxed);
            let reports = parts.recordings.reports.clone();
            // Reports of an earlier child, or of this one at its start, may have been lost.
            let up = Box::new(move || reports.mark_incomplete());
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
    made::check_addresses(&id, &manifest, &settings, &parts.guard).map_err(LoadError::Start)?;
    for kind in made::types(&id, &manifest, &settings).map_err(LoadError::Start)? {
        let name = kind.name.clone();
        let made_by = made::made_by(&id, &manifest, &name);
        let facts = Arc::new(facts_of(kind, made_by, spool.clone(), chosen)?);
        kinds.insert(name, Arc::new(Kind { driver: loaded.clone(), facts }));
    }
    Ok(Started { version, loaded, kinds })
}

fn facts_of(
    kind: DestType,
    made_by: Option<String>,
    spool: Option<SpoolPlace>,
    chosen: &DriverSettings,
) -> Result<KindFacts, LoadError> {
    Ok(KindFacts {
        schema: compile(&kind.name, &kind.schema)?,
        requirements: Requirements::of(&kind).map(Arc::new),
        title: kind.title,
        playback: kind.playback,
        made_by,
        routes: kind.routes,
        wants_backfill: kind.wants_backfill,
        spool,
        queue: chosen.queue,
    })
}

/// Checks a driver before its code is started, and passes it the operator's settings.
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

/// The same check for each process of a driver.
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
