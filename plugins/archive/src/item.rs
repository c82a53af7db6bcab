//! One recording in memory, and what the host is told of it.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::config::Target;
use crate::journal::{Entry, Stage};
use crate::parts;
use satcast_plugin_api::driver::{Answer, Recording, RecordingState};

/// A recording. Its file name never changes.
pub(crate) struct Item {
    pub(crate) file_name: String,
    data: Mutex<Data>,
    /// Something changed that its upload may wait for; it alone waits.
    pub(crate) changed: Notify,
    /// Held while its journal file is written, so that the last state is the last written.
    pub(crate) saving: Mutex<()>,
}

/// What changes of it.
pub(crate) struct Data {
    pub(crate) entry: Entry,
    /// Somebody records into it.
    pub(crate) is_live: bool,
    /// Its journal file was removed and must not come back.
    pub(crate) is_gone: bool,
    /// Where it goes, once that was decrypted.
    pub(crate) target: Option<Target>,
    /// Who waits for the store to open the upload.
    pub(crate) answer: Option<Answer>,
    pub(crate) task: Option<AbortHandle>,
    /// Uploads begun anew in this attempt.
    pub(crate) restarts: u32,
    /// Requests of its upload that were refused, in a row.
    pub(crate) refusals: u32,
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file_name)
    }
}

impl Item {
    pub(crate) fn new(entry: Entry, target: Option<Target>, is_live: bool) -> Self {
        let data = Data {
            entry,
            is_live,
            is_gone: false,
            target,
            answer: None,
            task: None,
            restarts: 0,
            refusals: 0,
        };
        Item {
            file_name: data.entry.file_name.clone(),
            data: Mutex::new(data),
            changed: Notify::new(),
            saving: Mutex::new(()),
        }
    }

    pub(crate) fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of what the journal should say.
    pub(crate) fn entry(&self) -> Entry {
        self.data().entry.clone()
    }
}

impl Data {
    /// Bytes it takes on the local disk.
    pub(crate) fn local_bytes(&self) -> u64 {
        if self.entry.is_local { self.entry.bytes } else { 0 }
    }

    /// What the host is told; `None` for one that is deleted.
    pub(crate) fn recording(&self) -> Option<Recording> {
        let entry = &self.entry;
        let state = match entry.stage {
            Stage::Recording => RecordingState::Recording,
            Stage::Uploading => RecordingState::Uploading,
            Stage::Ready => RecordingState::Ready,
            Stage::Failed => RecordingState::Failed,
            // The host knows by its mark that it is not there any more.
            Stage::Gone => RecordingState::Ready,
            Stage::Leaving => return None,
        };
        let parts = entry.upload.as_ref().map_or(0, |upload| upload.parts.len());
        let uploaded_bytes = match entry.stage {
            Stage::Ready | Stage::Gone => entry.bytes,
            _ => parts::bytes_before(parts, entry.bytes),
        };
        Some(Recording {
            file_name: entry.file_name.clone(),
            destination_id: entry.destination_id,
            session_id: entry.session_id.clone(),
            state,
            size_bytes: entry.bytes,
            uploaded_bytes,
            duration_ms: entry.duration_ms,
            error: entry.error.clone(),
            error_class: entry.error_class,
            url: entry.url.clone(),
            started_at_ms: entry.started_at_ms,
            changed_at_ms: entry.changed_at_ms,
            attempt: entry.attempt,
            attempt_opened: entry.attempt_opened,
            has_copy: entry.is_local,
            gone: entry.stage == Stage::Gone,
        })
    }
}
