//! Recordings that outlive their sessions, as a driver offers them.

use std::time::Duration;

use super::Config;
use crate::Error;
use crate::abi::SatcastDone;
use crate::recording::Recording;
use crate::wire::{done_of, with_abi};

/// Recordings that outlive their sessions. Every function is called on the control thread, inside the driver's runtime, and returns
/// within one second; answers are given from any thread.
pub trait Recordings: Send + Sync {
    /// `[control]` Every recording the driver still knows, in its newest state. At most
    /// [`RECORDINGS_MAX`](crate::recording::RECORDINGS_MAX). One that breaks a rule of [`Recording`] is left out and named in the log.
    ///
    /// # Errors
    /// The journal cannot be read.
    fn list(&self) -> Result<Vec<Recording>, Error>;

    /// `[control]` Uploads a failed one again. Answers once the store has opened the upload, or why not; the rest goes on in the background and
    /// is told by [`Host::recording`](super::Host::recording). Each call that is taken up counts one to `attempt`.
    fn retry(&self, file_name: &str, answer: Answer);

    /// `[control]` Forgets a recording: removes the local copy, and with `remote` the object, too. Answers when that is done. A name that is
    /// not known is done already.
    fn delete(&self, file_name: &str, remote: bool, answer: Answer);

    /// `[control]` An address by which the object may be fetched without a login for `valid`: `http://` or `https://`, printable ASCII without
    /// spaces. No I/O.
    ///
    /// # Errors
    /// The recording is not known, or the store has not got it.
    fn sign(&self, file_name: &str, valid: Duration) -> Result<String, Error>;

    /// `[control]` Whether a configuration could record: asks its store with the rights that an upload needs. Answers within
    /// [`PROBE_SECS`](crate::recording::PROBE_SECS): done, an error of class `Config` or `Auth` when the store refuses, which is shown at
    /// the field that its text begins with, or of another class when the store cannot be reached. The default asks nobody.
    fn probe(&self, config: Config<'_>, answer: Answer) {
        let _ = config;
        answer.give(Ok(()));
    }

    /// `[control]` What a destination's configuration is now, or `None` when it was deleted: for recordings that go on without an opening, with
    /// other keys perhaps. Told when it was changed, and after `load` for destinations with recordings, also when nothing changed.
    /// No I/O that takes time. A driver that does not care leaves it out.
    ///
    /// # Errors
    /// It cannot be taken; it is told again later.
    fn configured(&self, destination_id: i64, config: Option<Config<'_>>) -> Result<(), Error> {
        let _ = (destination_id, config);
        Ok(())
    }
}

/// Takes the outcome of one request, on any thread. Dropped without one it is an error of the driver.
pub struct Answer(Option<SatcastDone>);

// SAFETY: the contract lets a driver answer from any thread.
unsafe impl Send for Answer {}

impl Answer {
    pub(crate) fn new(done: SatcastDone) -> Self {
        Self(Some(done))
    }

    /// An answer that goes to `call`, for tests of what answers.
    pub fn calling(call: impl FnOnce(Result<(), Error>) + Send + 'static) -> Self {
        Self::new(done_of(Box::new(call)))
    }

    /// Done, or why not.
    pub fn give(mut self, outcome: Result<(), Error>) {
        self.send(outcome);
    }

    fn send(&mut self, outcome: Result<(), Error>) {
        let Some((data, done)) = self.0.take().and_then(|raw| Some((raw.data, raw.done?))) else { return };
        match outcome {
            // SAFETY: called once.
            Ok(()) => unsafe { done(data, std::ptr::null()) },
            // SAFETY: called once; the error lives for the call.
            Err(error) => with_abi(&error, |raw| unsafe { done(data, raw) }),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.send(Err(Error::internal("the driver gave up a request without an answer")));
    }
}
