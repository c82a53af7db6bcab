//! Drivers: found in a folder, checked, loaded, and called without trusting them with the host's threads.
//!
//! - [`loader`]: file to checked table; all `unsafe` of the host is there and in [`probe`].
//! - [`probe`]: a first look in a child process.
//! - [`control`]: the threads that run driver code.
//! - [`services`]: what a driver can ask of the host.
//! - [`schema`]: configurations of destinations.
//!
//! This module knows no sessions and no retries: `live` decides when a destination is opened again.

mod assets;
mod catalog;
mod control;
pub mod loader;
mod masking;
mod opening;
pub mod probe;
mod redact;
mod schema;
mod services;
mod settings;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use satcast_plugin_api::host::{DriverWaker, Instance, MediaSource, Table};
use satcast_plugin_api::{Class, Error};
use serde_json::Value;

pub use assets::{Assets, PlaybackFacts, Published, PublishedBody};
pub use catalog::{LoadOptions, State, Summary};
pub use loader::LoadError;
pub use opening::Opening;
pub use schema::ConfigRefused;
pub use services::{Counters, Observer};

use crate::clock::Clock;
use crate::ids::DestinationId;
use crate::outbound::Guard;
use crate::secret::{mask_key, mask_url};
use control::{Control, Pump};
use schema::ConfigSchema;
use services::{DriverServices, LogGate, Opened};

/// How long `open` and `validate` of a driver may take.
pub const CALL_TIMEOUT_MS: u64 = 1_000;

/// Log level gate of all drivers; see [`set_log_level`].
static MAX_LEVEL: AtomicU32 = AtomicU32::new(3);

/// Sets how much drivers log: 0 nothing, 1 errors, to 5 everything.
pub fn set_log_level(level: u32) {
    MAX_LEVEL.store(level, Ordering::Relaxed);
}

/// What driver code needs of the host.
#[derive(Clone)]
pub struct HostParts {
    /// Checks and makes outbound connections.
    pub guard: Guard,
    /// The host's runtime, for connections.
    pub runtime: tokio::runtime::Handle,
    /// Time for log limits.
    pub clock: Clock,
    /// Folder below which each driver gets its own.
    pub data_dir: PathBuf,
}

/// A configuration of a destination that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValidateError {
    /// No loaded driver serves the type.
    UnknownType,
    /// The schema or the driver refuses it.
    Config(ConfigRefused),
    /// The driver cannot be asked.
    Driver(String),
}

/// What is shown of a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicView {
    /// Platform name.
    pub platform: String,
    /// Masked address.
    pub url: String,
}

/// A destination type as it is described to people and programs.
#[derive(Clone, Debug)]
pub struct TypeSchema {
    /// Value of `type` in the API.
    pub name: String,
    /// Human name.
    pub title: String,
    /// Its destinations publish for viewers.
    pub playback: bool,
    /// JSON Schema of the configuration.
    pub schema: Value,
}

/// One loaded driver.
struct Loaded {
    control: Control,
    pump: Arc<Pump>,
    services: Arc<DriverServices>,
}

struct Kind {
    driver: Arc<Loaded>,
    title: String,
    playback: bool,
    schema: ConfigSchema,
}

/// All drivers of the host; cheap to clone.
#[derive(Clone, Default)]
pub struct Drivers {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    kinds: BTreeMap<String, Kind>,
    summaries: Vec<Summary>,
    next_dest: AtomicU64,
}

/// What [`Drivers::open`] is given.
pub struct OpenRequest {
    /// Destination type.
    pub kind: String,
    /// Its configuration.
    pub config: Value,
    /// The destination, for logs.
    pub destination: DestinationId,
    /// Number of the session; the same for all its destinations.
    pub source: u64,
    /// The queue.
    pub media: Arc<dyn MediaSource>,
    /// Who is told of its life.
    pub observer: Arc<dyn Observer>,
    /// Counters that outlive this opening.
    pub counters: Arc<Counters>,
    /// Where its pieces for viewers go.
    pub assets: Arc<Assets>,
}

/// Wakes drivers that wait for media, each on its own pump thread.
#[derive(Clone)]
pub struct Waker {
    pump: Arc<Pump>,
}

impl Waker {
    /// Wakes `wakers` soon; at most one system call.
    pub fn wake(&self, wakers: impl IntoIterator<Item = DriverWaker>) {
        self.pump.wake(wakers);
    }

    /// Two wakers of one driver are the same.
    pub fn same_driver(&self, other: &Waker) -> bool {
        Arc::ptr_eq(&self.pump, &other.pump)
    }
}

impl Drivers {
    /// Checks a configuration with the schema of its type, then with the driver.
    ///
    /// # Errors
    /// Unknown type, or the field and reason of the refusal; never a value.
    pub async fn validate(&self, kind: &str, config: &Value) -> Result<(), ValidateError> {
        let entry = self.inner.kinds.get(kind).ok_or(ValidateError::UnknownType)?;
        entry.schema.check(config).map_err(ValidateError::Config)?;
        let (kind, json) = (kind.to_string(), config.to_string());
        let asked = entry
            .driver
            .control
            .call(limit(), move |driver| driver.validate(&kind, &json), |_| ())
            .await
            .map_err(|error| ValidateError::Driver(error.message))?;
        let redactor = entry.driver.services.redactor(entry.schema.secrets(config));
        asked.map_err(|error| match error.class {
            Class::Config => {
                ValidateError::Config(entry.schema.refused_by_driver(&redactor.clean(&error.message)))
            }
            _ => ValidateError::Driver(redactor.clean(&error.message)),
        })
    }

    /// Destinations of the type publish for viewers.
    pub fn has_playback(&self, kind: &str) -> bool {
        self.inner.kinds.get(kind).is_some_and(|kind| kind.playback)
    }

    /// The names of all destination types, sorted.
    pub fn known_types(&self) -> Vec<String> {
        self.inner.kinds.keys().cloned().collect()
    }

    /// Each type with its title and configuration schema.
    pub fn schemas(&self) -> Vec<TypeSchema> {
        let kinds = self.inner.kinds.iter().map(|(name, kind)| TypeSchema {
            name: name.clone(),
            title: kind.title.clone(),
            playback: kind.playback,
            schema: kind.schema.json().clone(),
        });
        kinds.collect()
    }

    /// Every file of the drivers folder and every enabled name, with what became of it.
    pub fn summaries(&self) -> &[Summary] {
        &self.inner.summaries
    }

    /// What is shown of a destination.
    pub fn public_view(&self, kind: &str, config: &Value) -> PublicView {
        let url = self.address(kind, config);
        let key = config.get("key").and_then(Value::as_str).unwrap_or_default();
        let mut shown = mask_url(url);
        if !key.is_empty() {
            shown = format!("{}/{}", shown.trim_end_matches('/'), mask_key(key));
        }
        PublicView { platform: kind.to_string(), url: shown }
    }

    /// Where a destination publishes to: what its configuration says, or what its type says when that is left out.
    fn address<'a>(&'a self, kind: &str, config: &'a Value) -> &'a str {
        let given = ["url", "server"].into_iter().find_map(|name| config.get(name)?.as_str());
        let schema = self.inner.kinds.get(kind).map(|kind| kind.schema.json());
        let usual = schema.and_then(|schema| schema.pointer("/properties/server/default")?.as_str());
        given.filter(|given| !given.is_empty()).or(usual).unwrap_or_default()
    }

    /// A configuration as its owner is shown it: secrets masked. Everything is hidden when no driver serves `kind`.
    pub fn shown_config(&self, kind: &str, config: &Value) -> Value {
        masking::masked(self.inner.kinds.get(kind).map(|kind| kind.schema.json()), config)
    }

    /// A configuration that was sent for a destination that has one: secrets that come as they are shown stay.
    ///
    /// # Errors
    /// The field and why its secret cannot stay.
    pub fn restored_config(&self, kind: &str, stored: &Value, sent: &Value) -> Result<Value, ConfigRefused> {
        masking::restored(self.inner.kinds.get(kind).map(|kind| kind.schema.json()), stored, sent)
    }

    /// The waker of the driver that serves `kind`.
    pub fn waker(&self, kind: &str) -> Option<Waker> {
        self.inner.kinds.get(kind).map(|kind| Waker { pump: kind.driver.pump.clone() })
    }

    /// Opens a destination. What it does is told to `request.observer` from then on.
    ///
    /// # Errors
    /// Class `Config` for an unknown type or a refused configuration, else what the driver says.
    pub async fn open(&self, request: OpenRequest) -> Result<Opening, Error> {
        let entry = self.inner.kinds.get(&request.kind).ok_or_else(|| {
            Error::config(format!("no driver serves type {}; the operator can enable one", request.kind))
        })?;
        let secrets = entry.schema.secrets(&request.config);
        let dest = self.inner.next_dest.fetch_add(1, Ordering::Relaxed) + 1;
        let driver = entry.driver.clone();
        let services = driver.services.clone();
        let redactor = services.redactor(secrets);
        let opened = Opened {
            destination: request.destination,
            observer: request.observer,
            counters: request.counters,
            assets: request.assets,
            redactor: RwLock::new(redactor.clone()),
            log_gate: LogGate::default(),
        };
        services.insert(dest, opened);
        let (kind, json, media) = (request.kind.clone(), request.config.to_string(), request.media);
        let source = request.source;
        let open =
            move |driver: &satcast_plugin_api::host::Driver| driver.open(dest, source, &kind, &json, media);
        // Too late: nobody will drive this instance, so it is asked to end; it cannot be freed, as its end is not watched.
        let late = |outcome: Result<Instance, Error>| {
            if let Ok(instance) = outcome {
                instance.stop(0);
            }
        };
        let outcome = driver.control.call(limit(), open, late).await.and_then(|outcome| outcome);
        match outcome {
            Ok(instance) => Ok(Opening {
                drivers: self.clone(),
                kind: request.kind,
                driver,
                dest,
                instance: Some(instance),
            }),
            Err(mut error) => {
                services.remove(dest);
                error.message = redactor.clean(&error.message);
                Err(error)
            }
        }
    }
}

fn limit() -> Duration {
    Duration::from_millis(CALL_TIMEOUT_MS)
}

/// Starts a checked driver with what the operator set for it.
fn start(
    table: Table,
    parts: &HostParts,
    flags: u32,
    settings: &BTreeMap<String, Value>,
) -> Result<BTreeMap<String, Kind>, LoadError> {
    let id = table.id().to_string();
    let manifest = table.manifest().clone();
    let mut schemas = BTreeMap::new();
    for kind in &manifest.types {
        let schema = ConfigSchema::compile(&kind.schema).map_err(|error| {
            LoadError::Start(format!("the configuration schema of type {} is invalid: {error}", kind.name))
        })?;
        schemas.insert(kind.name.clone(), (kind.title.clone(), kind.playback, schema));
    }
    let settings = settings::checked(&id, manifest.settings.as_ref(), settings).map_err(LoadError::Start)?;
    let failed = |error: Error| LoadError::Start(error.message);
    let pump = Arc::new(Pump::start(&id).map_err(failed)?);
    let services = Arc::new(DriverServices::new(
        &id,
        parts.data_dir.join(&id),
        parts.guard.clone(),
        parts.runtime.clone(),
        parts.clock.clone(),
        settings,
        pump.clone(),
    ));
    let failed = |mut error: Error| {
        error.message = services.redactor(Vec::new()).clean(&error.message);
        LoadError::Start(error.message)
    };
    let control = Control::start(table, services.clone(), &MAX_LEVEL, flags).map_err(failed)?;
    let driver = Arc::new(Loaded { control, pump, services });
    let kinds = schemas.into_iter().map(|(name, (title, playback, schema))| {
        (name, Kind { driver: driver.clone(), title, playback, schema })
    });
    Ok(kinds.collect())
}

#[cfg(test)]
impl Drivers {
    /// Drivers that are linked into the test binary.
    pub(crate) fn linked(entries: &[satcast_plugin_api::abi::SatcastDriverEntry], parts: &HostParts) -> Self {
        use satcast_plugin_api::abi::HOST_FLAG_STATIC;
        let mut inner = Inner::default();
        for entry in entries {
            let table = loader::linked(*entry).expect("a good table");
            let types = table.manifest().types.iter().map(|kind| kind.name.clone()).collect();
            let (id, version) = (table.id().to_string(), table.version().to_string());
            inner.summaries.push(Summary { id, file: None, version, types, state: State::Loaded });
            inner.kinds.extend(
                start(table, parts, HOST_FLAG_STATIC, &BTreeMap::new()).expect("a driver that starts"),
            );
        }
        let error = "refused.so is no driver".to_string();
        let types = Vec::new();
        let refused = State::Refused(error);
        inner.summaries.push(Summary {
            id: "bad".into(),
            file: None,
            version: String::new(),
            types,
            state: refused,
        });
        Self { inner: Arc::new(inner) }
    }
}

#[cfg(test)]
impl Waker {
    /// A waker of no driver.
    pub(crate) fn idle() -> Self {
        Self { pump: Arc::new(Pump::start("test").expect("a thread")) }
    }
}
