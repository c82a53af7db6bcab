//! Recordings that a driver in a child keeps: what it is asked, and what it tells.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use satcast_plugin_api::Error;
use satcast_plugin_api::host::{Done, Listing, SIGNED_BYTES_MAX, is_signed_address};
use satcast_plugin_api::recording::Recording;

use super::Remote;
use super::handed::{sealed, sealed_memory};
use super::message::{Failure, ToChild};
use super::session::Session;

/// Longest list of recordings a child may hand over, in bytes of JSON: as many as a driver may know, most of them without an error.
pub(super) const LIST_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Requests about recordings that may wait for one child at once.
pub(super) const REQUESTS_MAX: usize = 1024;

impl Remote {
    /// Every recording its driver still knows; those that break a rule stand apart.
    pub(in crate::drivers) fn list_recordings(&self) -> Result<Listing, Error> {
        self.session()?.list_recordings()
    }

    /// Asks for another upload.
    pub(in crate::drivers) fn retry_recording(&self, file_name: String, done: Done) {
        self.ask_about(done, |call, request| ToChild::Retry { call, request, file_name });
    }

    /// Asks to forget a recording.
    pub(in crate::drivers) fn delete_recording(&self, file_name: String, remote: bool, done: Done) {
        self.ask_about(done, |call, request| ToChild::Delete { call, request, file_name, remote });
    }

    /// Asks whether a configuration could record.
    pub(in crate::drivers) fn probe_recordings(&self, kind: String, config: String, done: Done) {
        self.ask_about(done, |call, request| ToChild::Probe { call, request, kind, config });
    }

    /// Addresses of recordings; `None` for one that has none.
    pub(in crate::drivers) fn sign_recordings(
        &self,
        names: &[String],
        valid: Duration,
    ) -> Result<Vec<Option<String>>, Error> {
        self.session()?.sign_recordings(names, valid)
    }

    /// Tells what a destination's configuration is now.
    pub(in crate::drivers) fn configured(
        &self,
        destination_id: i64,
        kind: &str,
        config: Option<&str>,
    ) -> Result<(), Error> {
        self.session()?.configured(destination_id, kind, config)
    }

    fn ask_about(&self, done: Done, message: impl FnOnce(u64, u64) -> ToChild) {
        match self.session() {
            Ok(session) => session.ask_about(done, message),
            Err(error) => done(Err(error)),
        }
    }
}

const UNREADABLE: &str = "the driver's recordings cannot be read";

/// A driver that leaves too many requests without an answer.
fn too_slow(id: &str) -> Error {
    Error::internal(format!(
        "driver {id} has {REQUESTS_MAX} requests about recordings without an answer; it is too slow"
    ))
}

impl Session {
    fn list_recordings(&self) -> Result<Listing, Error> {
        let reply = self.call_with(|call| ToChild::Recordings { call }, None)?;
        let json = sealed(reply.descriptors, LIST_BYTES_MAX)?;
        let listed: Listing = serde_json::from_slice(&json)
            .map_err(|error| Error::internal(format!("{UNREADABLE}: {error}")))?;
        listed.checked()
    }

    fn sign_recordings(&self, names: &[String], valid: Duration) -> Result<Vec<Option<String>>, Error> {
        // Text cannot fail to be written to memory.
        let json = sealed_memory(&serde_json::to_vec(names).unwrap_or_default())?;
        let reply =
            self.call_with(|call| ToChild::Sign { call, valid_secs: valid.as_secs() }, Some(&json))?;
        let bytes_max = (names.len() as u64 + 1).saturating_mul(2 * SIGNED_BYTES_MAX as u64);
        let json = sealed(reply.descriptors, bytes_max)?;
        let signed: Vec<Option<String>> = serde_json::from_slice(&json)
            .map_err(|error| Error::internal(format!("the driver's addresses cannot be read: {error}")))?;
        if signed.len() != names.len() || !signed.iter().flatten().all(|address| is_signed_address(address)) {
            return Err(Error::internal("the driver signed no addresses that can be used"));
        }
        Ok(signed)
    }

    fn configured(&self, destination_id: i64, kind: &str, config: Option<&str>) -> Result<(), Error> {
        let (kind, config) = (kind.to_owned(), config.map(str::to_owned));
        self.call_with(|call| ToChild::Configured { call, destination_id, kind, config }, None).map(drop)
    }

    /// Asks for something whose outcome comes later.
    fn ask_about(self: &Arc<Self>, done: Done, message: impl FnOnce(u64, u64) -> ToChild) {
        let request = self.number();
        {
            let mut requests = self.requests.lock();
            if requests.len() >= REQUESTS_MAX {
                drop(requests);
                return done(Err(too_slow(&self.id)));
            }
            requests.insert(request, done);
        }
        let asked = self.call_with(|call| message(call, request), None);
        // Its end answers all requests; one that came after that is answered here.
        if asked.is_err() || self.is_over.load(Ordering::Acquire) {
            let waiting = self.requests.lock().remove(&request);
            let error = asked.err().unwrap_or_else(|| self.has_ended());
            waiting.into_iter().for_each(|done| done(Err(error.clone())));
        }
    }

    /// What became of a request.
    pub(super) fn done(&self, request: u64, failure: Option<Failure>) {
        let waiting = self.requests.lock().remove(&request);
        if let Some(done) = waiting {
            done(failure.map_or(Ok(()), |failure| Err(failure.into())));
        }
    }

    /// A recording has changed.
    pub(super) fn recording(&self, recording: Recording) -> Result<(), &'static str> {
        recording.check().map_err(|_| "told of a recording that breaks the rules")?;
        // What the host cannot take is found by a list.
        let _ = self.services.recording(recording);
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests;
