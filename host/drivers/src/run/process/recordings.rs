//! Calls of the host to a driver in a child about recordings and requests, across its children.

use std::sync::Arc;
use std::time::Duration;

use satcast_plugin_api::host::{BytesDone, Done, Listing};
use satcast_plugin_api::recording::FinishedFile;
use satcast_plugin_api::{Error, HttpRequest};

use super::message::{Ask, Reply};
use super::remote::Remote;
use super::session::Session;

/// Most requests about recordings that may wait for one child.
pub(super) const REQUESTS_MAX: usize = 1024;

impl Remote {
    /// Passes a viewer's request on; false when no child runs, or the driver answers none. A child that does not take
    /// it in time is ended.
    pub(crate) fn request(&self, dest: u64, token: u64, request: &HttpRequest) -> bool {
        let Ok(session) = self.session() else { return false };
        let reply =
            session.call(session.account_of(dest), Ask::Request { dest, token, request: request.clone() });
        matches!(reply, Ok(Reply::Taken(true)))
    }

    /// Every recording that its driver knows; invalid ones are listed separately.
    pub(crate) fn list_recordings(&self) -> Result<Listing, Error> {
        match self.session()?.call(None, Ask::Recordings)? {
            Reply::Recordings(listing) => Ok(listing),
            other => Err(odd(&other)),
        }
    }

    /// Addresses of recordings; `None` for a recording without one.
    pub(crate) fn sign_recordings(
        &self,
        names: &[String],
        valid: Duration,
    ) -> Result<Vec<Option<String>>, Error> {
        match self.session()?.call(None, Ask::Sign { names: names.to_vec(), valid })? {
            Reply::Signed(signed) if signed.len() == names.len() => Ok(signed),
            other => Err(odd(&other)),
        }
    }

    pub(crate) fn retry_recording(&self, file_name: String, done: Done) {
        self.ask_about(done, |request| Ask::Retry { request, file_name });
    }

    pub(crate) fn delete_recording(&self, file_name: String, remote: bool, done: Done) {
        self.ask_about(done, |request| Ask::Delete { request, file_name, remote });
    }

    pub(crate) fn probe_recordings(&self, kind: String, config: String, done: Done) {
        self.ask_about(done, |request| Ask::Probe { request, kind, config });
    }

    pub(crate) fn keep_file(&self, kind: String, config: String, file: FinishedFile, done: Done) {
        self.ask_about(done, |request| Ask::Keep { request, kind, config, file });
    }

    pub(crate) fn configured(
        &self,
        destination_id: i64,
        kind: &str,
        config: Option<&str>,
    ) -> Result<(), Error> {
        let (kind, config) = (kind.to_owned(), config.map(str::to_owned));
        self.session()?.call(None, Ask::Configured { destination_id, kind, config }).map(drop)
    }

    pub(crate) fn read_recording(&self, file_name: String, offset: u64, len: u32, done: BytesDone) {
        self.ask_for(done, |request| Ask::Read { request, file_name, offset, len });
    }

    pub(crate) fn index_recording(&self, file_name: String, first: u64, most: u32, done: BytesDone) {
        self.ask_for(done, |request| Ask::Index { request, file_name, first, most });
    }

    pub(crate) fn announced(&self, file_name: &str, expires_at_ms: i64) -> Result<(), Error> {
        let ask = Ask::Announced { file_name: file_name.to_owned(), expires_at_ms };
        self.session()?.call(None, ask).map(drop)
    }

    fn ask_about(&self, done: Done, ask: impl FnOnce(u64) -> Ask) {
        self.ask_for(Box::new(move |outcome| done(outcome.map(drop))), ask);
    }

    fn ask_for(&self, done: BytesDone, ask: impl FnOnce(u64) -> Ask) {
        match self.session() {
            Ok(session) => session.ask_for(done, ask),
            Err(error) => done(Err(error)),
        }
    }
}

fn odd(reply: &Reply) -> Error {
    tracing::debug!(?reply, "unexpected answer of a driver's process");
    Error::internal("the driver's process sent an unexpected answer")
}

impl Session {
    /// Sends a request whose outcome comes later.
    pub(super) fn ask_for(self: &Arc<Self>, done: BytesDone, ask: impl FnOnce(u64) -> Ask) {
        let request = self.number();
        {
            let mut requests = self.requests.lock();
            if requests.len() >= REQUESTS_MAX {
                drop(requests);
                return done(Err(too_slow(&self.id)));
            }
            requests.insert(request, done);
        }
        let asked = self.call(None, ask(request));
        // Its end fails all requests; a request that comes after that fails here.
        if asked.is_err() || self.is_over() {
            let waiting = self.requests.lock().remove(&request);
            let error = asked.err().unwrap_or_else(|| self.has_ended());
            waiting.into_iter().for_each(|done| done(Err(error.clone())));
        }
    }
}

/// Error for a driver with too many unanswered requests.
pub(super) fn too_slow(id: &str) -> Error {
    Error::internal(format!(
        "driver {id} has {REQUESTS_MAX} requests about recordings without an answer; it is too slow"
    ))
}
