//! All drivers of the host, as the rest of the host uses them: their types, and the openings of destinations from a
//! configuration to the end. Changes of drivers and calls about recordings are in modules of their own.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use satcast_plugin_api::host::{MediaSource, Services as _};
use satcast_plugin_api::recording::About;
use satcast_plugin_api::{Class, Error};
use serde_json::Value;
use tracing::Span;

use super::entries::{Entry, Registry, SPOOL_FOLDER, SpoolPlace, State, Summary, report};
use super::keeper::{Keeper, LoadOptions, add_missing};
use crate::load::masking::ConfigRefused;
use crate::load::requirements::Requirements;
use crate::load::{annotations, loader, masking};
use crate::published::Assets;
use crate::run::control::{Backend, CallOwner, Held, limit};
use crate::run::process::ToOpen;
use crate::run::pump::Waker;
use crate::run::routes::RouteHandler;
use crate::run::services::{Counters, EVENTS_PER_SEC_MAX, LOG_LINES_PER_SEC_MAX, Observer, Opened, shown};
use crate::run::{HostParts, Loaded};
use satcast_core::config::QueueLimits;
use satcast_core::ids::{AccountId, DestinationId};
use satcast_core::log_limit::LogLimit;

/// Why a configuration of a destination is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValidateError {
    UnknownType,
    Config(ConfigRefused),
    /// The driver is set aside for the account; its fault, and what happens next.
    SetAside(String),
    /// The driver cannot be called.
    Driver(String),
}

/// Description of a destination type for users and programs.
#[derive(Clone, Debug)]
pub struct TypeSchema {
    /// Value of `type` in the API.
    pub name: String,
    pub title: String,
    /// Its destinations publish assets for viewers.
    pub playback: bool,
    pub schema: Value,
}

/// Input of [`Drivers::open`].
pub struct OpenRequest {
    pub kind: String,
    pub config: Value,
    /// The destination, for logs.
    pub destination: DestinationId,
    /// Account, stream and session, as passed to the driver.
    pub about: About,
    /// Number of the session; the same for all its destinations.
    pub source: u64,
    /// The queue.
    pub media: Arc<dyn MediaSource>,
    /// Gets state changes, events and the end.
    pub observer: Arc<dyn Observer>,
    /// Counters that outlive this opening.
    pub counters: Arc<Counters>,
    /// Holds its assets for viewers.
    pub assets: Arc<Assets>,
}

/// An open destination: can be reconfigured, stopped and freed.
pub struct OpenDestination {
    drivers: Drivers,
    kind: String,
    driver: Arc<Loaded>,
    dest: u64,
    owner: Option<CallOwner>,
    instance: Option<Held>,
    assets: Arc<Assets>,
}

/// Cheap to clone.
#[derive(Clone, Default)]
pub struct Drivers {
    pub(super) inner: Arc<Inner>,
}

#[derive(Default)]
pub(super) struct Inner {
    /// Replaced as a whole; current readers keep the old one.
    pub(super) registry: RwLock<Arc<Registry>>,
    /// Grows with each change of the registry.
    pub(super) version: AtomicU64,
    /// State for changes; `None` where nothing can change.
    pub(super) keeper: Option<Keeper>,
    pub(super) next_dest: AtomicU64,
}

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

    pub(super) fn registry(&self) -> Arc<Registry> {
        self.inner.registry.read().clone()
    }

    /// Checks a configuration from an account with the schema of its type, then with the driver.
    ///
    /// # Errors
    /// Unknown type, or the field and reason of the refusal; never a value.
    pub async fn validate(
        &self,
        account: AccountId,
        kind: &str,
        config: &Value,
    ) -> Result<(), ValidateError> {
        let entry = self.registry().kind(kind).ok_or(ValidateError::UnknownType)?;
        entry.schema.check(config).map_err(ValidateError::Config)?;
        let services = &entry.driver.services;
        services.may_ask(account.0).map_err(|error| match services.quarantine() {
            // The driver's own text is about another account's work.
            Some(why) => ValidateError::Driver(why),
            None => ValidateError::SetAside(error.message),
        })?;
        let (kind, json) = (kind.to_string(), config.to_string());
        let owner = Some(CallOwner { account: account.0, destination: None });
        let asked = entry
            .driver
            .control
            .call_for(owner, limit(), move |driver| driver.validate(account.0, &kind, &json), |_| ())
            .await
            .map_err(|error| ValidateError::Driver(error.message))?;
        asked.map_err(|error| {
            let redactor = services.redactor(entry.schema.secrets(config));
            let text = shown(&redactor, &error.message);
            match error.class {
                Class::Config => ValidateError::Config(entry.schema.refused_by_driver(&text)),
                _ => ValidateError::Driver(text),
            }
        })
    }

    /// Whether destinations of the type publish assets for viewers.
    pub fn has_playback(&self, kind: &str) -> bool {
        self.registry().kind(kind).is_some_and(|kind| kind.playback)
    }

    /// Whether destinations of the type begin with a backfill of the DVR window.
    pub fn wants_backfill(&self, kind: &str) -> bool {
        self.registry().kind(kind).is_some_and(|kind| kind.wants_backfill)
    }

    /// Disk spool for packets of a destination of this type when its queue is full; `None` when such packets are
    /// dropped.
    pub fn spool(&self, kind: &str) -> Option<SpoolPlace> {
        self.registry().kind(kind)?.spool.clone()
    }

    /// Limits of the memory queue of a destination of this type.
    pub fn queue(&self, kind: &str) -> QueueLimits {
        self.registry().kind(kind).map(|kind| kind.queue).unwrap_or_default()
    }

    /// The title of a type, shown to users.
    pub fn title(&self, kind: &str) -> Option<String> {
        Some(self.registry().kind(kind)?.title.clone())
    }

    /// Requirements of the service behind a type; `None` when there are none.
    pub fn requirements(&self, kind: &str) -> Option<Arc<Requirements>> {
        self.registry().kind(kind)?.requirements.clone()
    }

    /// The names of all destination types, sorted.
    pub fn known_types(&self) -> Vec<String> {
        self.registry().kinds().map(|(name, _)| name.clone()).collect()
    }

    pub fn schemas(&self) -> Vec<TypeSchema> {
        let registry = self.registry();
        let kinds = registry.kinds().map(|(name, kind)| TypeSchema {
            name: name.clone(),
            title: kind.title.clone(),
            playback: kind.playback,
            schema: kind.schema.json().clone(),
        });
        kinds.collect()
    }

    /// Changes with each change of the loaded drivers.
    pub fn version(&self) -> u64 {
        self.inner.version.load(Ordering::Acquire)
    }

    /// Every file of the drivers folder and every enabled name, with its state.
    pub fn summaries(&self) -> Vec<Summary> {
        self.registry().summaries()
    }

    /// The address of a destination, masked; `***` where its type has none.
    pub fn shown_address(&self, kind: &str, config: &Value) -> String {
        let kind = self.registry().kind(kind);
        let settings = || {
            let json = kind.as_ref().map(|kind| kind.driver.services.settings());
            json.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default()
        };
        let schema = kind.as_ref().map(|kind| kind.schema.json());
        annotations::address(schema, config, settings).unwrap_or_else(|| "***".to_owned())
    }

    /// The origins whose pages may play a destination; empty = all.
    pub fn origins(&self, kind: &str, config: &Value) -> Vec<String> {
        annotations::origins(self.registry().kind(kind).as_ref().map(|kind| kind.schema.json()), config)
    }

    /// A configuration for its owner, with masked secrets. Everything is hidden when no driver serves `kind`.
    pub fn shown_config(&self, kind: &str, config: &Value) -> Value {
        masking::masked(self.registry().kind(kind).as_ref().map(|kind| kind.schema.json()), config)
    }

    /// A configuration to store in place of `stored`: masked secrets keep their values.
    ///
    /// # Errors
    /// The field whose secret cannot be kept, and why.
    pub fn restored_config(&self, kind: &str, stored: &Value, sent: &Value) -> Result<Value, ConfigRefused> {
        masking::restored(self.registry().kind(kind).as_ref().map(|kind| kind.schema.json()), stored, sent)
    }

    /// The waker of the driver that serves `kind`.
    ///
    /// # Errors
    /// No driver serves it now. The operator may load one, so this is no error of the configuration.
    pub fn waker(&self, kind: &str) -> Result<Waker, Error> {
        let entry = self.registry().kind(kind).ok_or_else(|| unserved(kind))?;
        Ok(Waker::new(entry.driver.pump.clone()))
    }

    /// Whether the driver of a type is not available, or opens nothing for `account` now, whatever the destination.
    pub fn is_away(&self, kind: &str, account: AccountId) -> bool {
        self.registry().kind(kind).is_some_and(|kind| kind.driver.may_open(account.0).is_err())
    }

    /// Opens a destination. From then on `request.observer` gets its state changes.
    ///
    /// # Errors
    /// Class `Internal` for a type that no driver serves, `Config` for a refused configuration, else the error of the
    /// driver.
    pub async fn open(&self, request: OpenRequest) -> Result<OpenDestination, Error> {
        let entry = self.registry().kind(&request.kind).ok_or_else(|| unserved(&request.kind))?;
        let account = request.about.account_id;
        entry.driver.services.may_open(account)?;
        let secrets = entry.schema.secrets(&request.config);
        let dest = self.inner.next_dest.fetch_add(1, Ordering::Relaxed) + 1;
        let driver = entry.driver.clone();
        let services = driver.services.clone();
        let redactor = services.redactor(secrets);
        let opened = Opened {
            destination: request.destination,
            observer: request.observer,
            counters: request.counters,
            assets: request.assets.clone(),
            redactor: RwLock::new(redactor.clone()),
            log_limit: LogLimit::per_second(LOG_LINES_PER_SEC_MAX),
            event_limit: LogLimit::per_second(EVENTS_PER_SEC_MAX),
            account,
            span: Span::current(),
        };
        services.insert(dest, opened);
        let (kind, config, media) = (request.kind.clone(), request.config.to_string(), request.media);
        let to_open = ToOpen { dest, source: request.source, kind, config, about: request.about };
        let owner = Some(CallOwner { account, destination: Some(request.destination.0) });
        let open = move |driver: &Backend| driver.open(&to_open, media);
        // Too late: nothing will drive this instance, so it is asked to stop; it cannot be freed, as its end is not
        // observed.
        let late = |outcome: Result<Held, Error>| {
            if let Ok(instance) = outcome {
                instance.stop(0);
            }
        };
        let outcome = driver.control.call_for(owner, limit(), open, late).await.and_then(|outcome| outcome);
        match outcome {
            Ok(instance) => {
                let (drivers, kind, assets) = (self.clone(), request.kind, request.assets);
                if !entry.routes.is_empty() {
                    let handler = RouteHandler::new(&driver, dest, entry.routes.clone());
                    assets.set_handler(Some(Arc::new(handler)));
                }
                Ok(OpenDestination { drivers, kind, driver, dest, owner, instance: Some(instance), assets })
            }
            Err(mut error) => {
                services.remove(dest);
                error.message = shown(&redactor, &error.message);
                driver.note(account, dest, &error);
                Err(error)
            }
        }
    }
}

impl OpenDestination {
    /// Offers a running destination a new, validated configuration; false when it must be opened again for it.
    pub async fn reconfigure(&mut self, config: &Value) -> bool {
        let Some(entry) = self.drivers.registry().kind(&self.kind) else { return false };
        // Another driver serves the type now.
        if !Arc::ptr_eq(&entry.driver, &self.driver) {
            return false;
        }
        let Some(instance) = self.instance.take() else { return false };
        self.driver.services.hide_more(self.dest, entry.schema.secrets(config));
        let json = config.to_string();
        let offer = move |_: &Backend| {
            let outcome = instance.reconfigure(&json);
            (instance, outcome)
        };
        // The effect of a late call is unknown, and the destination is opened again: this opening is asked to stop.
        let late = |(instance, _): (Held, Result<bool, Error>)| instance.stop(0);
        let Ok((instance, outcome)) = self.driver.control.call_for(self.owner, limit(), offer, late).await
        else {
            return false;
        };
        self.instance = Some(instance);
        outcome.unwrap_or_else(|error| {
            let reason = shown(&entry.driver.services.redactor(entry.schema.secrets(config)), &error.message);
            tracing::warn!(kind = %self.kind, reason, "driver refuses a new configuration for a running destination");
            false
        })
    }

    /// Requests the stop; the observer gets the end, within `deadline` if the driver obeys.
    pub async fn stop(&mut self, deadline: Duration) {
        let Some(instance) = self.instance.take() else { return };
        let deadline_ms = u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX);
        let stop = move |_: &Backend| {
            instance.stop(deadline_ms);
            instance
        };
        self.instance = self.driver.control.call_for(self.owner, limit(), stop, drop).await.ok();
    }

    /// Frees it after the observer got its end.
    pub fn ended(mut self) {
        if let Some(instance) = self.instance.take() {
            // A driver that takes no calls keeps the instance; that is a leak of a driver that hangs, and harmless.
            let _ = self.driver.control.post(move |_| instance.destroy());
        }
    }
}

impl Drop for OpenDestination {
    fn drop(&mut self) {
        self.assets.set_handler(None);
        self.driver.services.remove(self.dest);
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

fn unserved(kind: &str) -> Error {
    Error::internal(format!("no driver serves type {kind}; the operator can enable one"))
}

#[cfg(any(test, feature = "testing"))]
/// The refusal of the driver `bad` beside [`Drivers::linked`] drivers, for tests of other packages.
pub const REFUSED: &str = "refused.so is no driver";

#[cfg(any(test, feature = "testing"))]
impl Drivers {
    pub fn linked(entries: &[satcast_plugin_api::abi::SatcastDriverEntry], parts: &HostParts) -> Self {
        use super::starting::{Source, start};
        let mut registry = Registry::default();
        for entry in entries {
            let table = loader::linked(*entry).expect("a good table");
            let flags = satcast_plugin_api::abi::HOST_FLAG_STATIC;
            let id = table.id().to_string();
            let started = start(
                Source::Thread { table: Box::new(table), flags, lease: None },
                parts,
                &Default::default(),
            )
            .expect("a driver that starts");
            registry.put(Entry::loaded(&id, None, started));
        }
        registry.put(Entry::with_state("bad", None, State::Refused(REFUSED.into())));
        Self { inner: Arc::new(Inner { registry: RwLock::new(Arc::new(registry)), ..Inner::default() }) }
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
