//! What drivers are asked of the recordings that they keep beyond their sessions.

use std::sync::Arc;
use std::time::Duration;

use satcast_plugin_api::host::{Done, Listing};
use satcast_plugin_api::recording::PROBE_SECS;
use satcast_plugin_api::{Class, Error};
use serde_json::Value;
use tokio::sync::oneshot;

use super::drivers::Drivers;
use super::entries::Entry;
use crate::load::refused::ConfigRefused;
use crate::run::backend::{Backend, Kept};
use crate::run::control::limit;
use crate::run::loaded::Loaded;

/// What a driver is given beyond the time in which it must say whether a store can be used.
const PROBE_GRACE: Duration = Duration::from_secs(1);

/// Why a configuration may not be able to record, without secrets.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProbeError {
    /// The store refuses it; which field.
    #[error("{}", .0.reason)]
    Refused(ConfigRefused),
    /// Nobody can say: the store or the driver gave no answer.
    #[error("{0}")]
    Unreachable(String),
}

/// Why a driver did not do what it was asked for with a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingsError {
    /// It is not loaded, keeps no recordings, or gave no answer in time.
    #[error("{0}")]
    Unavailable(String),
    /// What it said, without secrets.
    #[error("{}", .0.message)]
    Refused(Error),
}

impl Drivers {
    /// Ids of the drivers that are loaded.
    pub fn loaded_ids(&self) -> Vec<String> {
        let registry = self.registry();
        registry.ids().into_iter().filter(|id| registry.entry(id).is_some_and(Entry::is_loaded)).collect()
    }

    /// Every recording that a driver knows, and which break a rule; `None` when it keeps none.
    ///
    /// # Errors
    /// It is not loaded, does not answer, or cannot list them.
    pub async fn recordings(&self, driver: &str) -> Result<Option<Listing>, RecordingsError> {
        let loaded = self.keeper_of(driver)?;
        let list = |backend: &Backend| backend.recordings().map(|recordings| recordings.list()).transpose();
        let listed = loaded.control.call(limit(), list, drop).await.map_err(unavailable)?;
        let mut listed = listed.map_err(|error| refused(&loaded, error))?;
        if let Some(listing) = &mut listed {
            listing.recordings.iter_mut().for_each(|recording| loaded.services.clean_recording(recording));
            for refused in &mut listing.refused {
                refused.name = loaded.services.clean_text(&refused.name);
                refused.why = loaded.services.clean_text(&refused.why);
            }
        }
        Ok(listed)
    }

    /// Whether a driver may tell of recordings of a destination of this type: it serves the type. One that was taken out and still ends
    /// what it began serves nothing any more; it may, as long as no other serves the type.
    pub fn may_tell_of(&self, driver: &str, kind: &str) -> bool {
        let registry = self.registry();
        let server = registry.kind(kind);
        match registry.entry(driver).and_then(Entry::running) {
            Some(loaded) => server.is_some_and(|kind| Arc::ptr_eq(&kind.driver, &loaded)),
            None => server.is_none(),
        }
    }

    /// Whether a line of so many bytes about what a driver did may be logged: it counts as one of the driver's own, while that is loaded.
    pub fn may_log_of(&self, driver: &str, bytes: usize) -> bool {
        self.keeper_of(driver).ok().is_none_or(|loaded| loaded.services.may_log(bytes))
    }

    /// Asks for another upload of a failed recording, and waits at most `wait` until the store has opened it.
    ///
    /// # Errors
    /// It has not.
    pub async fn retry_recording(
        &self,
        driver: &str,
        file_name: &str,
        wait: Duration,
    ) -> Result<(), RecordingsError> {
        let name = file_name.to_owned();
        self.ask(driver, wait, move |recordings, done| recordings.retry(&name, done)).await
    }

    /// Has a recording forgotten, with `remote` its object in the store, too; waits at most `wait`.
    ///
    /// # Errors
    /// It may be known still.
    pub async fn delete_recording(
        &self,
        driver: &str,
        file_name: &str,
        remote: bool,
        wait: Duration,
    ) -> Result<(), RecordingsError> {
        let name = file_name.to_owned();
        self.ask(driver, wait, move |recordings, done| recordings.delete(&name, remote, done)).await
    }

    /// Addresses by which recordings may be fetched for `valid` without a login; `None` for one that has none.
    ///
    /// # Errors
    /// The driver cannot be asked.
    pub async fn sign_recordings(
        &self,
        driver: &str,
        file_names: Vec<String>,
        valid: Duration,
    ) -> Result<Vec<Option<String>>, RecordingsError> {
        let loaded = self.keeper_of(driver)?;
        let sign = move |backend: &Backend| {
            backend.recordings().map(|recordings| recordings.sign(&file_names, valid))
        };
        let signed = loaded.control.call(limit(), sign, drop).await.map_err(unavailable)?;
        signed.ok_or_else(|| keeps_none(driver))?.map_err(|error| refused(&loaded, error))
    }

    /// Tells the driver of a type what the configuration of one of its destinations is now, `None` when it was deleted. A driver that
    /// keeps no recordings, or does not want to know, is not told.
    ///
    /// # Errors
    /// It does not hear of it, or does not take it.
    pub async fn configured(
        &self,
        kind: &str,
        destination_id: i64,
        config: Option<&Value>,
    ) -> Result<(), RecordingsError> {
        let Some(entry) = self.registry().kind(kind) else { return Ok(()) };
        let secrets = config.map(|config| entry.schema.secrets(config)).unwrap_or_default();
        let (kind, json) = (kind.to_owned(), config.map(Value::to_string));
        let tell = move |backend: &Backend| match backend.recordings() {
            Some(recordings) => recordings.configured(destination_id, &kind, json.as_deref()),
            None => Ok(()),
        };
        let told = entry.driver.control.call(limit(), tell, drop).await.map_err(unavailable)?;
        told.map_err(|mut error| {
            error.message = entry.driver.services.redactor(secrets).clean(&error.message);
            RecordingsError::Refused(error)
        })
    }

    /// The driver of a type keeps recordings, or does not say: only then has [`Drivers::probe`] a store to ask.
    pub async fn keeps_recordings(&self, kind: &str) -> bool {
        let Some(entry) = self.registry().kind(kind) else { return false };
        let keeps = |backend: &Backend| backend.recordings().is_some();
        entry.driver.control.call(limit(), keeps, drop).await.unwrap_or(true)
    }

    /// Has the driver of a type ask whether a configuration could record; one that keeps no recordings finds nothing wrong.
    ///
    /// # Errors
    /// [`ProbeError`].
    pub async fn probe(&self, kind: &str, config: &Value) -> Result<(), ProbeError> {
        let Some(entry) = self.registry().kind(kind) else { return Ok(()) };
        let loaded = entry.driver.clone();
        let redactor = loaded.services.redactor(entry.schema.secrets(config));
        let (kind, json) = (kind.to_owned(), config.to_string());
        let wait = Duration::from_secs(PROBE_SECS) + PROBE_GRACE;
        let asked = ask_of(&loaded, wait, move |recordings, done| recordings.probe(&kind, &json, done)).await;
        let clean = |text: &str| redactor.clean(text);
        match asked {
            Ok(_) => Ok(()),
            Err(RecordingsError::Refused(error)) if matches!(error.class, Class::Config | Class::Auth) => {
                Err(ProbeError::Refused(entry.schema.refused_by_driver(&clean(&error.message))))
            }
            Err(error) => Err(ProbeError::Unreachable(clean(&error.to_string()))),
        }
    }

    async fn ask(
        &self,
        driver: &str,
        wait: Duration,
        request: impl FnOnce(&Kept<'_>, Done) + Send + 'static,
    ) -> Result<(), RecordingsError> {
        let loaded = self.keeper_of(driver)?;
        if ask_of(&loaded, wait, request).await? { Ok(()) } else { Err(keeps_none(driver)) }
    }

    fn keeper_of(&self, driver: &str) -> Result<Arc<Loaded>, RecordingsError> {
        let loaded = self.registry().entry(driver).and_then(Entry::running);
        loaded.ok_or_else(|| RecordingsError::Unavailable(format!("driver {driver} is not loaded")))
    }
}

/// Asks a driver for something whose outcome comes later, and waits for it; false when it keeps no recordings.
async fn ask_of(
    loaded: &Arc<Loaded>,
    wait: Duration,
    request: impl FnOnce(&Kept<'_>, Done) + Send + 'static,
) -> Result<bool, RecordingsError> {
    let (answer, answered) = oneshot::channel();
    let begin = move |backend: &Backend| {
        let Some(recordings) = backend.recordings() else { return false };
        // Nobody waits for an answer that comes too late.
        let done = Box::new(move |outcome| drop(answer.send(outcome)));
        request(&recordings, done);
        true
    };
    if !loaded.control.call(limit(), begin, drop).await.map_err(unavailable)? {
        return Ok(false);
    }
    let late = || {
        RecordingsError::Unavailable(format!(
            "the driver gave no answer in {} s, so its store may hang; see that the store can be reached",
            wait.as_secs()
        ))
    };
    let outcome = tokio::time::timeout(wait, answered).await.map_err(|_| late())?;
    outcome.map_err(|_| late())?.map_err(|error| refused(loaded, error))?;
    Ok(true)
}

fn unavailable(error: Error) -> RecordingsError {
    RecordingsError::Unavailable(error.message)
}

fn keeps_none(driver: &str) -> RecordingsError {
    RecordingsError::Unavailable(format!("driver {driver} keeps no recordings"))
}

fn refused(loaded: &Loaded, mut error: Error) -> RecordingsError {
    error.message = loaded.services.clean_text(&error.message);
    RecordingsError::Refused(error)
}
