//! The journal entry of a recording: its fixed data, its part at the store, and its state.

use satcast_plugin_api::driver::About;
use satcast_plugin_api::{Class, Error};
use serde::{Deserialize, Serialize};

use crate::crc::Crc;
use crate::limits::{ERROR_CHARS_MAX, STALE_MAX};
use crate::rules::Rules;

/// Current version; see [`version1`](crate::version1) for the earlier one.
pub(crate) const VERSION: u32 = 2;

/// The journal entry of one recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    pub(crate) version: u32,
    pub(crate) file_name: String,
    pub(crate) about: About,
    /// Number of the file in its session.
    pub(crate) number: u32,
    pub(crate) started_at_ms: i64,
    pub(crate) changed_at_ms: i64,
    pub(crate) retention_days: Option<u32>,
    /// `maxGigabytes` of its destination.
    #[serde(default)]
    pub(crate) max_gigabytes: Option<u32>,
    /// When it is to be deleted at the store, once it is there; see [`retention`](crate::retention).
    #[serde(default)]
    pub(crate) expires_at_ms: Option<i64>,
    pub(crate) bucket: Bucket,
    /// `None` until an upload was requested. From then on the store may have one whose answer was lost.
    pub(crate) at_store: Option<AtStore>,
    /// Whole bytes on disk. For a running recording only the file tells.
    pub(crate) bytes: u64,
    /// Checksums of its first parts, computed when they were written. Those of other parts are computed when they are
    /// read. Version 0.1.0 of the driver kept none.
    #[serde(default)]
    pub(crate) crcs: Vec<Crc>,
    pub(crate) duration_ms: u64,
    /// Retries that were requested, and whether the store opened the upload of the last one.
    pub(crate) attempt: u32,
    pub(crate) attempt_opened: bool,
    /// Where a finished file of the host is, below the driver's folder, until it is moved to the spool.
    #[serde(default)]
    pub(crate) given: Option<String>,
    /// A finished file of the host, such as a clip: its owner deletes it, and no rule does.
    #[serde(default)]
    pub(crate) is_finished: bool,
    /// It has no video.
    #[serde(default)]
    pub(crate) audio_only: bool,
    pub(crate) state: State,
}

/// The owner of a recording, as far as the host says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    Account(i64),
    /// The account is unknown; a destination certainly has one owner.
    Destination(i64),
}

impl Owner {
    /// `account_id` 0: the host did not say the account.
    pub(crate) fn new(account_id: i64, destination_id: i64) -> Self {
        match account_id {
            0 => Owner::Destination(destination_id),
            account_id => Owner::Account(account_id),
        }
    }
}

/// The bucket of a recording. The store is kept as the host sealed it, keys included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Bucket {
    /// The destination's own.
    Own(String),
    /// The operator's. The keys of the settings apply as long as they name the same bucket. `None`: it could not be
    /// sealed.
    Operators(Option<String>),
}

/// The part of a recording that the store may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AtStore {
    /// Name in the bucket.
    pub(crate) key: String,
    /// The store has opened an upload at some time.
    pub(crate) has_begun: bool,
    /// The open upload.
    pub(crate) upload: Option<Upload>,
    /// Ids of earlier uploads of the same key that must still be aborted.
    pub(crate) stale: Vec<String>,
    /// Expected checksum of the whole object, an ETag or a CRC-64/NVME, set before the store is asked to complete it.
    /// The answer may have been lost.
    pub(crate) sum: Option<String>,
    /// Its destination was given another store, and the recording stays in the first one.
    pub(crate) stays: bool,
}

/// An upload that the store has opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Upload {
    /// The store's id of the upload.
    pub(crate) id: String,
    /// ETags of the uploaded parts, in order, as the store wrote them.
    pub(crate) parts: Vec<String>,
    /// Each ETag was the MD5 of its part.
    pub(crate) has_sums: bool,
    /// The store opened it for parts with a CRC-64/NVME.
    #[serde(default)]
    pub(crate) takes_crcs: bool,
}

/// The answer of a store that has opened an upload.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) id: String,
    /// As in [`Upload`].
    pub(crate) takes_crcs: bool,
}

/// State of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum State {
    /// It grows. If found at the start, a crash interrupted it.
    Recording { trouble: Option<Trouble> },
    /// It is whole and is uploaded. `failing_ms`: time without progress, counted while the driver runs.
    Uploading { trouble: Option<Trouble>, failing_ms: u64 },
    /// The store has confirmed it; there is no local copy.
    Done { url: String },
    /// Given up; the local copy is kept for a while.
    Failed { trouble: Trouble, has_copy: bool },
    /// Its deletion was requested; the store has not finished.
    Deleting { object: Fate, failing_ms: u64 },
    /// Deleted or expired. Kept for a while, so that the host learns of it.
    Gone { is_deleted: bool },
}

/// What happens to the object of a deleted recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Fate {
    Stays,
    /// Delete it if it is ours: an upload may have completed without our receiving the answer.
    GoesIfOurs,
    Goes,
}

/// The latest failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trouble {
    pub(crate) error: String,
    pub(crate) class: Class,
}

impl Trouble {
    pub(crate) fn new(error: &Error) -> Self {
        Trouble { error: error.message.chars().take(ERROR_CHARS_MAX).collect(), class: error.class }
    }
}

impl AtStore {
    pub(crate) fn new(key: String) -> Self {
        AtStore { key, has_begun: false, upload: None, stale: Vec::new(), sum: None, stays: false }
    }
}

impl Entry {
    /// A recording that begins.
    pub(crate) fn new(file_name: String, started_at_ms: i64) -> Self {
        Entry {
            version: VERSION,
            file_name,
            about: About::default(),
            number: 0,
            started_at_ms,
            changed_at_ms: started_at_ms,
            retention_days: None,
            max_gigabytes: None,
            expires_at_ms: None,
            bucket: Bucket::Operators(None),
            at_store: None,
            bytes: 0,
            crcs: Vec::new(),
            duration_ms: 0,
            attempt: 0,
            attempt_opened: false,
            given: None,
            is_finished: false,
            audio_only: false,
            state: State::Recording { trouble: None },
        }
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner::new(self.about.account_id, self.about.destination_id)
    }

    pub(crate) fn rules(&self) -> Rules {
        Rules { days: self.retention_days, gigabytes: self.max_gigabytes }
    }

    pub(crate) fn set_rules(&mut self, rules: Rules) {
        (self.retention_days, self.max_gigabytes) = (rules.days, rules.gigabytes);
    }

    pub(crate) fn upload(&self) -> Option<&Upload> {
        self.at_store.as_ref().and_then(|at_store| at_store.upload.as_ref())
    }

    /// Expected checksum of the whole object, once the store was asked to complete it.
    pub(crate) fn sum(&self) -> Option<&str> {
        self.at_store.as_ref().and_then(|at_store| at_store.sum.as_deref())
    }

    /// Number of parts that the store has.
    pub(crate) fn parts(&self) -> usize {
        self.upload().map_or(0, |upload| upload.parts.len())
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.at_store.as_ref().is_some_and(|at_store| at_store.has_begun)
    }

    /// It stays in its first store although its destination has another one now.
    pub(crate) fn stays(&self) -> bool {
        self.at_store.as_ref().is_some_and(|at_store| at_store.stays)
    }

    /// Notes the upload that the store has opened.
    pub(crate) fn open_upload(&mut self, key: &str, opened: Opened) {
        let Opened { id, takes_crcs } = opened;
        let at_store = self.at_store.get_or_insert_with(|| AtStore::new(key.to_owned()));
        at_store.upload = Some(Upload { id, parts: Vec::new(), has_sums: true, takes_crcs });
        at_store.has_begun = true;
    }

    /// Marks the open upload as stale: it will be aborted.
    pub(crate) fn abandon_upload(&mut self) {
        let Some(at_store) = &mut self.at_store else { return };
        at_store.stale.extend(at_store.upload.take().map(|upload| upload.id));
        let surplus = at_store.stale.len().saturating_sub(STALE_MAX);
        at_store.stale.drain(..surplus);
    }

    /// The recording is whole; a trouble of its recording is kept.
    pub(crate) fn close(&mut self) {
        if let State::Recording { trouble } = &mut self.state {
            self.state = State::Uploading { trouble: trouble.take(), failing_ms: 0 };
        }
    }

    pub(crate) fn clear_trouble(&mut self) {
        if let State::Recording { trouble } | State::Uploading { trouble, .. } = &mut self.state {
            *trouble = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_stale_uploads_is_bounded() {
        let mut entry = Entry::new("a/b.mp4".into(), 0);
        entry.abandon_upload();
        entry.at_store = Some(AtStore::new("k".into()));
        for number in 0..STALE_MAX + 3 {
            entry.open_upload("k", Opened { id: number.to_string(), takes_crcs: true });
            entry.abandon_upload();
        }
        entry.abandon_upload();
        let stale = entry.at_store.unwrap().stale;
        assert_eq!((stale.len(), stale[0].as_str()), (STALE_MAX, "3"));
    }

    #[test]
    fn an_unknown_account_is_identified_by_its_destination() {
        assert_eq!(Owner::new(3, 7), Owner::new(3, 8));
        assert_ne!(Owner::new(0, 7), Owner::new(0, 8));
        assert_ne!(Owner::new(0, 7), Owner::new(7, 0));
    }
}
