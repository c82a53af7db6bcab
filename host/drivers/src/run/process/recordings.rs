//! What the host asks a driver in a child, across the children it has.

use std::sync::Arc;
use std::time::Duration;

use satcast_plugin_api::host::{Done, Listing};
use satcast_plugin_api::{Error, HttpRequest};

use super::message::{Ask, Reply};
use super::remote::Remote;
use super::session::Session;

/// Requests about recordings that may wait for one child at once.
pub(super) const REQUESTS_MAX: usize = 1024;

impl Remote {
    /// Hands a viewer's request over; false when no child runs, or it answers none. A child that does not take it in time is ended.
    pub(crate) fn request(&self, dest: u64, token: u64, request: &HttpRequest) -> bool {
        let Ok(session) = self.session() else { return false };
        let reply =
            session.call(session.account_of(dest), Ask::Request { dest, token, request: request.clone() });
        matches!(reply, Ok(Reply::Taken(true)))
    }

    /// Every recording its driver still knows; those that break a rule stand apart.
    pub(crate) fn list_recordings(&self) -> Result<Listing, Error> {
        match self.session()?.call(None, Ask::Recordings)? {
            Reply::Recordings(listing) => Ok(listing),
            other => Err(odd(&other)),
        }
    }

    /// Addresses of recordings; `None` for one that has none.
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

    /// Asks for another upload.
    pub(crate) fn retry_recording(&self, file_name: String, done: Done) {
        self.ask_about(done, |request| Ask::Retry { request, file_name });
    }

    /// Asks to forget a recording.
    pub(crate) fn delete_recording(&self, file_name: String, remote: bool, done: Done) {
        self.ask_about(done, |request| Ask::Delete { request, file_name, remote });
    }

    /// Asks whether a configuration could record.
    pub(crate) fn probe_recordings(&self, kind: String, config: String, done: Done) {
        self.ask_about(done, |request| Ask::Probe { request, kind, config });
    }

    /// Tells what a destination's configuration is now.
    pub(crate) fn configured(
        &self,
        destination_id: i64,
        kind: &str,
        config: Option<&str>,
    ) -> Result<(), Error> {
        let (kind, config) = (kind.to_owned(), config.map(str::to_owned));
        self.session()?.call(None, Ask::Configured { destination_id, kind, config }).map(drop)
    }

    fn ask_about(&self, done: Done, ask: impl FnOnce(u64) -> Ask) {
        match self.session() {
            Ok(session) => session.ask_about(done, ask),
            Err(error) => done(Err(error)),
        }
    }
}

fn odd(reply: &Reply) -> Error {
    tracing::debug!(?reply, "an answer to something else");
    Error::internal("the driver's process answered something else")
}

impl Session {
    /// Asks for something whose outcome comes later.
    pub(super) fn ask_about(self: &Arc<Self>, done: Done, ask: impl FnOnce(u64) -> Ask) {
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
        // Its end answers all requests; one that came after that is answered here.
        if asked.is_err() || self.is_over() {
            let waiting = self.requests.lock().remove(&request);
            let error = asked.err().unwrap_or_else(|| self.has_ended());
            waiting.into_iter().for_each(|done| done(Err(error.clone())));
        }
    }
}

/// A driver that leaves too many requests without an answer.
pub(super) fn too_slow(id: &str) -> Error {
    Error::internal(format!(
        "driver {id} has {REQUESTS_MAX} requests about recordings without an answer; it is too slow"
    ))
}
