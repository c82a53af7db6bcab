//! A host's requests about recordings, and the driver's reports.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;

use super::{Testkit, WAIT_MAX};
use crate::Error;
use crate::host::{Recordings, checked_range, read_index};
use crate::recording::{FinishedFile, Recording, RecordingIndex};

const SEALED: &str = "testkit:";

impl Testkit {
    /// Every recording the driver knows.
    ///
    /// # Errors
    /// The driver's error; the driver keeps no recordings; or the recordings that break a rule.
    pub fn recordings(&self) -> Result<Vec<Recording>, Error> {
        self.offered()?.list()?.whole()
    }

    /// Asks for another upload and waits for the answer.
    ///
    /// # Errors
    /// The driver's error, or no answer within [`WAIT_MAX`].
    pub fn retry_recording(&self, file_name: &str) -> Result<(), Error> {
        let recordings = self.offered()?;
        answer(|done| recordings.retry(file_name, done))
    }

    /// Asks to forget a recording and waits for the answer.
    ///
    /// # Errors
    /// As [`Testkit::retry_recording`].
    pub fn delete_recording(&self, file_name: &str, remote: bool) -> Result<(), Error> {
        let recordings = self.offered()?;
        answer(|done| recordings.delete(file_name, remote, done))
    }

    /// Asks for a signed address.
    ///
    /// # Errors
    /// The driver's error.
    pub fn sign_recording(&self, file_name: &str, valid: Duration) -> Result<String, Error> {
        self.offered()?.sign(file_name, valid)
    }

    /// Confirms the notice of a recording's deletion.
    ///
    /// # Errors
    /// The driver's error.
    pub fn announce_expiry(&self, file_name: &str, expires_at_ms: i64) -> Result<(), Error> {
        self.offered()?.announced(file_name, expires_at_ms)
    }

    /// Tests whether a configuration can record, and waits for the answer.
    ///
    /// # Errors
    /// As [`Testkit::retry_recording`].
    pub fn probe_recordings(&self, type_name: &str, config: &Value) -> Result<(), Error> {
        let recordings = self.offered()?;
        answer(|done| recordings.probe(type_name, &config.to_string(), done))
    }

    /// Reads a range of a recording and waits for the bytes.
    ///
    /// # Errors
    /// As [`Testkit::retry_recording`]; or the driver gave another number of bytes.
    pub fn read_recording(&self, file_name: &str, offset: u64, len: u32) -> Result<Bytes, Error> {
        let recordings = self.offered()?;
        let bytes = answer(|done| recordings.read(file_name, offset, len, done))?;
        checked_range(bytes, len)
    }

    /// Asks for a page of the index of a recording and waits for it.
    ///
    /// # Errors
    /// As [`Testkit::retry_recording`]; or the page breaks a rule.
    pub fn index_recording(&self, file_name: &str, first: u64, most: u32) -> Result<RecordingIndex, Error> {
        let recordings = self.offered()?;
        read_index(&answer(|done| recordings.index(file_name, first, most, done))?)
    }

    /// Gives a finished file to the driver and waits for the answer.
    ///
    /// # Errors
    /// As [`Testkit::retry_recording`].
    pub fn keep_file(&self, type_name: &str, config: &Value, file: &FinishedFile) -> Result<(), Error> {
        let recordings = self.offered()?;
        answer(|done| recordings.keep(type_name, &config.to_string(), file, done))
    }

    /// Gives the driver the current configuration of a destination, `None` when the destination was deleted.
    ///
    /// # Errors
    /// The driver's error.
    pub fn configure_recordings(
        &self,
        destination_id: i64,
        type_name: &str,
        config: Option<&Value>,
    ) -> Result<(), Error> {
        let config = config.map(Value::to_string);
        self.offered()?.configured(destination_id, type_name, config.as_deref())
    }

    /// All recordings that the driver reported, in order.
    pub fn reported_recordings(&self) -> Vec<Recording> {
        self.shared.recordings.lock().clone()
    }

    /// Waits for a report that satisfies `is_met` and returns the first one, which may be an earlier report; `None` after
    /// [`WAIT_MAX`].
    pub fn wait_for_recording(&self, is_met: impl Fn(&Recording) -> bool) -> Option<Recording> {
        let end = Instant::now() + WAIT_MAX;
        let mut reported = self.shared.recordings.lock();
        loop {
            if let Some(found) = reported.iter().find(|recording| is_met(recording)) {
                return Some(found.clone());
            }
            let left = end.checked_duration_since(Instant::now())?;
            self.shared.changed.wait_for(&mut reported, left);
        }
    }

    fn offered(&self) -> Result<Recordings, Error> {
        self.driver.recordings().ok_or_else(|| Error::internal("the driver keeps no recordings"))
    }
}

type Given<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

fn answer<T: Send + 'static>(request: impl FnOnce(Given<T>)) -> Result<T, Error> {
    let (sender, answered) = mpsc::channel();
    request(Box::new(move |outcome| {
        // After the timeout the receiver is gone.
        let _ = sender.send(outcome);
    }));
    answered.recv_timeout(WAIT_MAX).unwrap_or_else(|_| Err(Error::internal("the driver did not answer")))
}

/// Only obscures the text; the real host encrypts.
pub(super) fn seal(text: &str) -> String {
    text.bytes().fold(SEALED.to_owned(), |sealed, byte| format!("{sealed}{:02x}", !byte))
}

pub(super) fn unseal(sealed: &str) -> Result<String, Error> {
    let wrong = || Error::internal("this testkit did not seal the text");
    let digits = sealed.strip_prefix(SEALED).filter(|digits| digits.is_ascii()).ok_or_else(wrong)?;
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(text, 16).ok().filter(|_| pair.len() == 2).map(|byte| !byte)
    };
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
    String::from_utf8(bytes.ok_or_else(wrong)?).map_err(|_| wrong())
}
