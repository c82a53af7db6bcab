//! All drivers of the host, as the rest of the host uses them. Larger groups of calls are in modules of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use satcast_plugin_api::host::Services as _;
use satcast_plugin_api::{Class, Error};
use serde_json::Value;

use super::catalog::Summary;
use super::entries::Registry;
use super::keeper::Keeper;
use super::kinds::SpoolPlace;
use crate::load::refused::ConfigRefused;
use crate::load::requirements::Requirements;
use crate::load::{annotations, masking};
use crate::run::control::{CallOwner, limit};
#[cfg(any(test, feature = "testing"))]
use crate::run::parts::HostParts;
use crate::run::services::shown;
use crate::run::waker::Waker;
use satcast_core::config::QueueLimits;
use satcast_core::ids::AccountId;

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
}

pub(super) fn unserved(kind: &str) -> Error {
    Error::internal(format!("no driver serves type {kind}; the operator can enable one"))
}

#[cfg(any(test, feature = "testing"))]
/// The refusal of the driver `bad` beside [`Drivers::linked`] drivers, for tests of other packages.
pub const REFUSED: &str = "refused.so is no driver";

#[cfg(any(test, feature = "testing"))]
impl Drivers {
    pub fn linked(entries: &[satcast_plugin_api::abi::SatcastDriverEntry], parts: &HostParts) -> Self {
        use super::entries::Entry;
        use super::starting::{Source, start};
        let mut registry = Registry::default();
        for entry in entries {
            let table = crate::load::loader::linked(*entry).expect("a good table");
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
        registry.put(Entry::with_state("bad", None, super::catalog::State::Refused(REFUSED.into())));
        Self { inner: Arc::new(Inner { registry: RwLock::new(Arc::new(registry)), ..Inner::default() }) }
    }
}
