//! Calls to drivers about the recordings that outlive their sessions.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use satcast_plugin_api::host::{BytesDone, Done, Listing, checked_range, read_index};
use satcast_plugin_api::recording::{
    FinishedFile, INDEX_FRAGMENTS_MAX, PROBE_SECS, READ_SECS, RecordingIndex,
};
use satcast_plugin_api::{Class, Error};
use serde_json::Value;
use tokio::sync::oneshot;

use super::drivers::Drivers;
use super::entries::Entry;
use crate::load::masking::ConfigRefused;
use crate::run::Loaded;
use crate::run::control::{Backend, Kept, limit};

/// Time for a driver beyond its own limit for checking or reading a store.
const PROBE_GRACE: Duration = Duration::from_secs(1);

/// Why a configuration may not be able to record, without secrets.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProbeError {
    /// The store refuses it; the field and the reason.
    #[error("{}", .0.reason)]
    Refused(ConfigRefused),
    /// Not known: the store or the driver gave no answer.
    #[error("{0}")]
    Unreachable(String),
}

/// Why a driver did not carry out a request about a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingsError {
    /// It is not loaded, keeps no recordings, or did not answer in time.
    #[error("{0}")]
    Unavailable(String),
    /// Its error, without secrets.
    #[error("{}", .0.message)]
    Refused(Error),
}

impl Drivers {
    pub fn loaded_ids(&self) -> Vec<String> {
        let registry = self.registry();
        registry.ids().into_iter().filter(|id| registry.entry(id).is_some_and(Entry::is_loaded)).collect()
    }

    /// Every recording that a driver knows, and the invalid ones; `None` when it keeps none.
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

    /// Whether a driver may report recordings of a destination of this type: it serves the type. A removed driver
    /// that is still ending its work serves no type; it may, as long as no other driver serves the type.
    pub fn may_report(&self, driver: &str, kind: &str) -> bool {
        let registry = self.registry();
        let server = registry.kind(kind);
        match registry.entry(driver).and_then(Entry::running) {
            Some(loaded) => server.is_some_and(|kind| Arc::ptr_eq(&kind.driver, &loaded)),
            None => server.is_none(),
        }
    }

    /// Whether a line of this many bytes about a driver's action may be logged: it counts against the log limit of
    /// the driver, while that is loaded.
    pub fn may_log_of(&self, driver: &str, bytes: usize) -> bool {
        self.keeper_of(driver).ok().is_none_or(|loaded| loaded.services.may_log(bytes))
    }

    /// Requests another upload of a failed recording, and waits at most `wait` until the store has opened it.
    ///
    /// # Errors
    /// The upload was not opened.
    pub async fn retry_recording(
        &self,
        driver: &str,
        file_name: &str,
        wait: Duration,
    ) -> Result<(), RecordingsError> {
        let name = file_name.to_owned();
        self.ask(driver, wait, move |recordings, done| recordings.retry(&name, done)).await
    }

    /// Removes a recording, with `remote` also its object in the store; waits at most `wait`.
    ///
    /// # Errors
    /// The driver may still know the recording.
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

    /// Addresses from which recordings can be fetched without a login for `valid`; `None` for a recording without
    /// one.
    ///
    /// # Errors
    /// The driver cannot be called.
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

    /// Whether a driver can read its recordings; false when it does not answer.
    pub async fn reads_recordings(&self, driver: &str) -> bool {
        let Ok(loaded) = self.keeper_of(driver) else { return false };
        let reads = |backend: &Backend| backend.recordings().is_some_and(|recordings| recordings.can_read());
        loaded.control.call(limit(), reads, drop).await.unwrap_or(false)
    }

    /// `len` bytes of a recording from `offset` on.
    ///
    /// # Errors
    /// The driver cannot be called, or has an error: of class `Config` if there is no such recording or range.
    pub async fn read_recording(
        &self,
        driver: &str,
        file_name: &str,
        offset: u64,
        len: u32,
    ) -> Result<Bytes, RecordingsError> {
        let (loaded, name) = (self.keeper_of(driver)?, file_name.to_owned());
        let read = move |recordings: &Kept<'_>, done: BytesDone| recordings.read(&name, offset, len, done);
        let bytes = ask_for(&loaded, read_limit(), read).await?.ok_or_else(|| keeps_none(driver))?;
        checked_range(bytes, len).map_err(|error| refused(&loaded, error))
    }

    /// A page of the index of a recording, from fragment `first` on.
    ///
    /// # Errors
    /// As for [`Drivers::read_recording`].
    pub async fn index_recording(
        &self,
        driver: &str,
        file_name: &str,
        first: u64,
    ) -> Result<RecordingIndex, RecordingsError> {
        let (loaded, name) = (self.keeper_of(driver)?, file_name.to_owned());
        let most = INDEX_FRAGMENTS_MAX;
        let index = move |recordings: &Kept<'_>, done: BytesDone| recordings.index(&name, first, most, done);
        let page = ask_for(&loaded, read_limit(), index).await?.ok_or_else(|| keeps_none(driver))?;
        read_index(&page).map_err(|error| refused(&loaded, error))
    }

    /// Confirms to a driver that the owner of a recording is told of its deletion at `expires_at_ms`.
    ///
    /// # Errors
    /// The driver was not reached, or does not know the recording.
    pub async fn announce_expiry(
        &self,
        driver: &str,
        file_name: &str,
        expires_at_ms: i64,
    ) -> Result<(), RecordingsError> {
        let loaded = self.keeper_of(driver)?;
        let name = file_name.to_owned();
        let announce = move |backend: &Backend| match backend.recordings() {
            Some(recordings) => recordings.announced(&name, expires_at_ms),
            None => Ok(()),
        };
        let outcome = loaded.control.call(limit(), announce, drop).await.map_err(unavailable)?;
        outcome.map_err(|error| refused(&loaded, error))
    }

    /// Passes the current configuration of a destination to the driver of its type, `None` when the destination was
    /// deleted. Drivers that keep no recordings, or do not want configurations, are skipped.
    ///
    /// # Errors
    /// The driver was not reached, or it refuses the configuration.
    pub async fn configured(
        &self,
        kind: &str,
        destination_id: i64,
        config: Option<&Value>,
    ) -> Result<(), RecordingsError> {
        let Some(entry) = self.registry().kind(kind) else { return Ok(()) };
        let secrets = config.map(|config| entry.schema.secrets(config)).unwrap_or_default();
        let (kind, json) = (kind.to_owned(), config.map(Value::to_string));
        let notify = move |backend: &Backend| match backend.recordings() {
            Some(recordings) => recordings.configured(destination_id, &kind, json.as_deref()),
            None => Ok(()),
        };
        let outcome = entry.driver.control.call(limit(), notify, drop).await.map_err(unavailable)?;
        outcome.map_err(|mut error| {
            error.message = entry.driver.services.redactor(secrets).clean(&error.message);
            RecordingsError::Refused(error)
        })
    }

    /// Whether the driver of a type keeps recordings, or does not answer: only then has [`Drivers::probe`] a store to
    /// check.
    pub async fn keeps_recordings(&self, kind: &str) -> bool {
        let Some(entry) = self.registry().kind(kind) else { return false };
        let keeps = |backend: &Backend| backend.recordings().is_some();
        entry.driver.control.call(limit(), keeps, drop).await.unwrap_or(true)
    }

    /// The driver of a type, if it keeps recordings.
    pub async fn recorder(&self, kind: &str) -> Option<String> {
        let entry = self.registry().kind(kind)?;
        let keeps = |backend: &Backend| backend.recordings().is_some();
        let keeps = entry.driver.control.call(limit(), keeps, drop).await.unwrap_or(false);
        keeps.then(|| entry.driver.services.driver().to_owned())
    }

    /// The folder of a driver, in which the host puts files for it.
    ///
    /// # Errors
    /// The driver is not loaded, or the folder cannot be made.
    pub fn data_dir(&self, driver: &str) -> Result<PathBuf, RecordingsError> {
        let folder = self.keeper_of(driver)?.services.folder();
        folder.map_err(|error| RecordingsError::Unavailable(error.message))
    }

    /// Gives a finished file to a driver, which keeps it as a recording that is uploaded. `kind` and `config` are those of
    /// its destination. Waits at most `wait`. A repeat after success changes nothing.
    ///
    /// # Errors
    /// The driver may still take the file when it did not answer in time.
    pub async fn keep_file(
        &self,
        driver: &str,
        kind: &str,
        config: &Value,
        file: &FinishedFile,
        wait: Duration,
    ) -> Result<(), RecordingsError> {
        let loaded = self.keeper_of(driver)?;
        let entry = self.registry().kind(kind);
        let secrets = entry.map(|entry| entry.schema.secrets(config)).unwrap_or_default();
        let redactor = loaded.services.redactor(secrets);
        let (kind, config, file) = (kind.to_owned(), config.to_string(), file.clone());
        match ask_of(&loaded, wait, move |kept, done| kept.keep(&kind, &config, &file, done)).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(keeps_none(driver)),
            Err(RecordingsError::Refused(mut error)) => {
                error.message = redactor.clean(&error.message);
                Err(RecordingsError::Refused(error))
            }
            Err(error) => Err(error),
        }
    }

    /// Lets the driver of a type check whether a configuration can record; a driver without recordings accepts
    /// everything.
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

/// Calls a driver for an outcome that comes later, and waits for it; false when it keeps no recordings.
async fn ask_of(
    loaded: &Arc<Loaded>,
    wait: Duration,
    request: impl FnOnce(&Kept<'_>, Done) + Send + 'static,
) -> Result<bool, RecordingsError> {
    let asked = ask_for(loaded, wait, request);
    asked.await.map(|answer| answer.is_some())
}

/// The same for an answer with content; `None` when it keeps no recordings.
async fn ask_for<T: Send + 'static>(
    loaded: &Arc<Loaded>,
    wait: Duration,
    request: impl FnOnce(&Kept<'_>, Answer<T>) + Send + 'static,
) -> Result<Option<T>, RecordingsError> {
    let (answer, answered) = oneshot::channel();
    let begin = move |backend: &Backend| {
        let Some(recordings) = backend.recordings() else { return false };
        // An answer that comes too late is dropped.
        request(&recordings, Box::new(move |outcome| drop(answer.send(outcome))));
        true
    };
    if !loaded.control.call(limit(), begin, drop).await.map_err(unavailable)? {
        return Ok(None);
    }
    let late = || {
        RecordingsError::Unavailable(format!(
            "the driver gave no answer in {} s, so its store may hang; check that the store can be reached",
            wait.as_secs()
        ))
    };
    let outcome = tokio::time::timeout(wait, answered).await.map_err(|_| late())?;
    outcome.map_err(|_| late())?.map(Some).map_err(|error| refused(loaded, error))
}

/// Takes the outcome of a request; [`Done`] and [`BytesDone`] are such.
type Answer<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

fn read_limit() -> Duration {
    Duration::from_secs(READ_SECS) + PROBE_GRACE
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
