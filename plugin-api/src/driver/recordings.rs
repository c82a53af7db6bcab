//! A driver's functions for recordings that outlive their sessions.

use std::time::Duration;

use bytes::Bytes;

use super::Config;
use crate::Error;
use crate::abi::{SatcastBytesDone, SatcastDone};
use crate::recording::{FinishedFile, Recording, RecordingIndex};
use crate::wire::{bytes_done_of, done_of, read_index, with_abi};

/// Recordings that outlive their sessions. Every function is called on the control thread, inside the driver's runtime, and returns
/// within one second; answers are given from any thread.
pub trait Recordings: Send + Sync {
    /// `[control]` Every recording the driver still knows, in its newest state. At most
    /// [`RECORDINGS_MAX`](crate::recording::RECORDINGS_MAX). The host leaves out a recording that breaks a rule of [`Recording`] and logs it.
    ///
    /// # Errors
    /// The journal cannot be read.
    fn list(&self) -> Result<Vec<Recording>, Error>;

    /// `[control]` Uploads a failed recording again. Answers when the store has opened the upload or has failed to; the upload continues in
    /// the background and is reported by [`Host::recording`](super::Host::recording). Each accepted call adds one to `attempt`.
    fn retry(&self, file_name: &str, answer: Answer);

    /// `[control]` Forgets a recording: removes the local copy, and with `remote` the object, too. Answers at the end of that. An unknown
    /// name is a success.
    fn delete(&self, file_name: &str, remote: bool, answer: Answer);

    /// `[control]` An address that gives access to the object without a login for `valid`: `http://` or `https://`, printable ASCII without
    /// spaces. No I/O.
    ///
    /// # Errors
    /// The recording is unknown, or is not in the store.
    fn sign(&self, file_name: &str, valid: Duration) -> Result<String, Error>;

    /// `[control]` Tests whether a configuration can record: asks its store for the rights that an upload needs. Answers within
    /// [`PROBE_SECS`](crate::recording::PROBE_SECS): success, an error of class `Config` or `Auth` when the store refuses, shown at the
    /// field that its text begins with, or of another class when the store cannot be reached. The default succeeds without a test.
    fn probe(&self, config: Config<'_>, answer: Answer) {
        let _ = config;
        answer.give(Ok(()));
    }

    /// `[control]` Reads `bytes` bytes (1 to [`READ_RANGE_BYTES_MAX`](crate::recording::READ_RANGE_BYTES_MAX)) of a recording from `offset`
    /// on, from the local copy while there is one, else from the store. Holds up no other request. Answers within
    /// [`READ_SECS`](crate::recording::READ_SECS) with exactly these bytes; an error of class `Config` when the recording is unknown or
    /// has no such range, else of the class of the store's failure. The default refuses: viewers cannot watch such recordings.
    fn read(&self, file_name: &str, offset: u64, bytes: u32, answer: BytesAnswer) {
        let _ = (file_name, offset, bytes);
        answer.give(Err(Error::config("the driver cannot read its recordings")));
    }

    /// `[control]` The index of a recording from fragment `first` on, at most `most` of them (1 to
    /// [`INDEX_FRAGMENTS_MAX`](crate::recording::INDEX_FRAGMENTS_MAX)). Answers within
    /// [`READ_SECS`](crate::recording::READ_SECS); errors as for [`Recordings::read`]. The default refuses.
    fn index(&self, file_name: &str, first: u64, most: u32, answer: IndexAnswer) {
        let _ = (file_name, first, most);
        answer.give(Err(Error::config("the driver cannot read its recordings")));
    }

    /// `[control]` The owner of a recording with [`Recording::asks_notice`] is told that it will be deleted at `expires_at_ms`, in
    /// milliseconds since 1970 and at least [`EXPIRY_NOTICE_MS`](crate::recording::EXPIRY_NOTICE_MS) after the notice: the driver does
    /// not delete it earlier. The host repeats the time when the driver asks again. No I/O. The default ignores it.
    ///
    /// # Errors
    /// The recording is unknown; the host calls again later.
    fn announced(&self, file_name: &str, expires_at_ms: i64) -> Result<(), Error> {
        let _ = (file_name, expires_at_ms);
        Ok(())
    }

    /// `[control]` Keeps a finished file as a recording that is uploaded to the store of `config`. Answers within
    /// [`KEEP_SECS`](crate::recording::KEEP_SECS): success when the driver has taken the file away from its path and will keep it through a
    /// crash, also when it has a recording of that name already. After an error the file is where it was. The default refuses.
    fn keep(&self, file: FinishedFile, config: Config<'_>, answer: Answer) {
        let _ = (file, config);
        answer.give(Err(Error::config("the driver keeps no finished files")));
    }

    /// `[control]` The current configuration of a destination, `None` after its deletion: for recordings that continue without an opening,
    /// perhaps with other keys. Called after a change, and after `load` for destinations with recordings, also without a change.
    /// No slow I/O. The default ignores it.
    ///
    /// # Errors
    /// The driver cannot use it; the host calls again later.
    fn configured(&self, destination_id: i64, config: Option<Config<'_>>) -> Result<(), Error> {
        let _ = (destination_id, config);
        Ok(())
    }
}

/// Takes the outcome of one request, on any thread. Dropping it without an outcome counts as an error of the driver.
pub struct Answer(Option<SatcastDone>);

// SAFETY: the contract lets a driver answer from any thread.
unsafe impl Send for Answer {}

impl Answer {
    pub(crate) fn new(done: SatcastDone) -> Self {
        Self(Some(done))
    }

    /// An answer that calls `call`, for tests.
    pub fn calling(call: impl FnOnce(Result<(), Error>) + Send + 'static) -> Self {
        Self::new(done_of(Box::new(call)))
    }

    /// Sends the outcome.
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
        self.send(Err(Error::internal("the driver dropped a request without an answer")));
    }
}

/// Takes the bytes that one request asked for, on any thread. Dropping it without an outcome counts as an error of the driver.
pub struct BytesAnswer(Option<SatcastBytesDone>);

// SAFETY: the contract lets a driver answer from any thread.
unsafe impl Send for BytesAnswer {}

impl BytesAnswer {
    pub(crate) fn new(done: SatcastBytesDone) -> Self {
        Self(Some(done))
    }

    /// An answer that calls `call`, for tests.
    pub fn calling(call: impl FnOnce(Result<Bytes, Error>) + Send + 'static) -> Self {
        Self::new(bytes_done_of(Box::new(call), usize::MAX))
    }

    /// Sends the outcome.
    pub fn give(mut self, outcome: Result<Bytes, Error>) {
        self.send(outcome);
    }

    fn send(&mut self, outcome: Result<Bytes, Error>) {
        let Some((data, done)) = self.0.take().and_then(|raw| Some((raw.data, raw.done?))) else { return };
        match outcome {
            // SAFETY: called once; the bytes live for the call.
            Ok(bytes) => unsafe { done(data, bytes.as_ptr(), bytes.len(), std::ptr::null()) },
            // SAFETY: called once; the error lives for the call.
            Err(error) => with_abi(&error, |raw| unsafe { done(data, std::ptr::null(), 0, raw) }),
        }
    }
}

impl Drop for BytesAnswer {
    fn drop(&mut self) {
        self.send(Err(Error::internal("the driver dropped a request without an answer")));
    }
}

/// Takes a page of an index, like [`BytesAnswer`].
pub struct IndexAnswer(BytesAnswer);

impl IndexAnswer {
    pub(crate) fn new(done: SatcastBytesDone) -> Self {
        Self(BytesAnswer::new(done))
    }

    /// An answer that calls `call`, for tests.
    pub fn calling(call: impl FnOnce(Result<RecordingIndex, Error>) + Send + 'static) -> Self {
        Self(BytesAnswer::calling(|outcome| call(outcome.and_then(|bytes| read_index(&bytes)))))
    }

    /// Sends the outcome.
    pub fn give(self, outcome: Result<RecordingIndex, Error>) {
        let json = outcome.and_then(|index| {
            index.check()?;
            serde_json::to_vec(&index).map_err(|error| Error::internal(error.to_string()))
        });
        self.0.give(json.map(Bytes::from));
    }
}
