//! All drivers of the host, as the rest of it uses them. What they are asked in detail stands in files of its own.

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
use crate::load::wishes::Wishes;
use crate::load::{annotations, masking};
use crate::run::control::{Whom, limit};
#[cfg(any(test, feature = "testing"))]
use crate::run::parts::HostParts;
use crate::run::services::shown;
use crate::run::waker::Waker;
use satcast_core::config::QueueLimits;
use satcast_core::ids::AccountId;

/// A configuration of a destination that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValidateError {
    /// No loaded driver serves the type.
    UnknownType,
    /// The schema or the driver refuses it.
    Config(ConfigRefused),
    /// The driver is set aside for the account; what it did, and what follows.
    SetAside(String),
    /// The driver cannot be asked.
    Driver(String),
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

/// All drivers of the host; cheap to clone.
#[derive(Clone, Default)]
pub struct Drivers {
    pub(super) inner: Arc<Inner>,
}

#[derive(Default)]
pub(super) struct Inner {
    /// Replaced as a whole; who has the old one goes on with it.
    pub(super) registry: RwLock<Arc<Registry>>,
    /// Grows with each change of the registry.
    pub(super) version: AtomicU64,
    /// What changes need; none where nothing can change.
    pub(super) keeper: Option<Keeper>,
    pub(super) next_dest: AtomicU64,
}

impl Drivers {
    pub(super) fn registry(&self) -> Arc<Registry> {
        self.inner.registry.read().clone()
    }

    /// Checks a configuration that an account sent, with the schema of its type, then with the driver.
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
            // Its words are about another account's work.
            Some(why) => ValidateError::Driver(why),
            None => ValidateError::SetAside(error.message),
        })?;
        let (kind, json) = (kind.to_string(), config.to_string());
        let whom = Some(Whom { account: account.0, destination: None });
        let asked = entry
            .driver
            .control
            .call_for(whom, limit(), move |driver| driver.validate(account.0, &kind, &json), |_| ())
            .await
            .map_err(|error| ValidateError::Driver(error.message))?;
        let redactor = entry.driver.services.redactor(entry.schema.secrets(config));
        asked.map_err(|error| match error.class {
            Class::Config => {
                ValidateError::Config(entry.schema.refused_by_driver(&shown(&redactor, &error.message)))
            }
            _ => ValidateError::Driver(shown(&redactor, &error.message)),
        })
    }

    /// Destinations of the type publish for viewers.
    pub fn has_playback(&self, kind: &str) -> bool {
        self.registry().kind(kind).is_some_and(|kind| kind.playback)
    }

    /// Destinations of the type begin with what viewers can go back to.
    pub fn wants_past(&self, kind: &str) -> bool {
        self.registry().kind(kind).is_some_and(|kind| kind.wants_past)
    }

    /// Where packets of a destination of this type wait when its queue is full; `None` when it loses them.
    pub fn spool(&self, kind: &str) -> Option<SpoolPlace> {
        self.registry().kind(kind)?.spool.clone()
    }

    /// What may wait in memory for a destination of this type that does not keep up.
    pub fn queue(&self, kind: &str) -> QueueLimits {
        self.registry().kind(kind).map(|kind| kind.queue).unwrap_or_default()
    }

    /// What the service behind a type asks of streams; `None` when it asks for nothing.
    pub fn wishes(&self, kind: &str) -> Option<Arc<Wishes>> {
        self.registry().kind(kind)?.wishes.clone()
    }

    /// The names of all destination types, sorted.
    pub fn known_types(&self) -> Vec<String> {
        self.registry().kinds().map(|(name, _)| name.clone()).collect()
    }

    /// Each type with its title and configuration schema.
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

    /// A number that is another one after each change of what is loaded.
    pub fn version(&self) -> u64 {
        self.inner.version.load(Ordering::Acquire)
    }

    /// Every file of the drivers folder and every enabled name, with what became of it.
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

    /// A configuration as its owner is shown it: secrets masked. Everything is hidden when no driver serves `kind`.
    pub fn shown_config(&self, kind: &str, config: &Value) -> Value {
        masking::masked(self.registry().kind(kind).as_ref().map(|kind| kind.schema.json()), config)
    }

    /// A configuration that was sent for a destination that has one: secrets that come as they are shown stay.
    ///
    /// # Errors
    /// The field and why its secret cannot stay.
    pub fn restored_config(&self, kind: &str, stored: &Value, sent: &Value) -> Result<Value, ConfigRefused> {
        masking::restored(self.registry().kind(kind).as_ref().map(|kind| kind.schema.json()), stored, sent)
    }

    /// The waker of the driver that serves `kind`.
    ///
    /// # Errors
    /// There is none now. Its operator may bring one back, so that is no fault of the configuration.
    pub fn waker(&self, kind: &str) -> Result<Waker, Error> {
        let entry = self.registry().kind(kind).ok_or_else(|| unserved(kind))?;
        Ok(Waker::new(entry.driver.pump.clone()))
    }
}

/// The error of a destination whose type no driver serves.
pub(super) fn unserved(kind: &str) -> Error {
    Error::internal(format!("no driver serves type {kind}; the operator can enable one"))
}

/// Why the driver `bad` is refused, which stands beside [`Drivers::linked`] ones.
#[cfg(any(test, feature = "testing"))]
/// The reason that tests of other packages see for a refused library.
pub const REFUSED: &str = "refused.so is no driver";

#[cfg(any(test, feature = "testing"))]
impl Drivers {
    /// Drivers that are linked into the test binary.
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
