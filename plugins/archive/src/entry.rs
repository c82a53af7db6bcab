//! What the journal keeps of a recording: what every one has, what of it is at its store, and where it stands.

use satcast_plugin_api::driver::About;
use satcast_plugin_api::{Class, Error};
use serde::{Deserialize, Serialize};

use crate::limits::{ERROR_CHARS_MAX, STALE_MAX};

/// Of what is written now; see [`version1`](crate::version1) for the earlier one.
pub(crate) const VERSION: u32 = 2;

/// All that is known of a recording.
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
    pub(crate) bucket: Bucket,
    /// `None` until an upload was asked for: from then on the store may have one that we did not hear of.
    pub(crate) at_store: Option<AtStore>,
    /// Whole bytes on disk; what a running recording has is only known from its file.
    pub(crate) bytes: u64,
    pub(crate) duration_ms: u64,
    /// Retries that were asked for, and whether the store opened the upload of the last one.
    pub(crate) attempt: u32,
    pub(crate) attempt_opened: bool,
    pub(crate) state: State,
}

/// Whose a recording is, as far as the host says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// An account.
    Account(i64),
    /// Of an unknown account: a destination is the least that is one owner's for sure.
    Destination(i64),
}

impl Owner {
    /// 0 = the host did not say the account.
    pub(crate) fn new(account_id: i64, destination_id: i64) -> Self {
        match account_id {
            0 => Owner::Destination(destination_id),
            account_id => Owner::Account(account_id),
        }
    }
}

/// Whose bucket it goes to. The store is kept as the host sealed it, keys included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Bucket {
    /// The destination's own.
    Own(String),
    /// The operator's: keys of the settings are for it as long as they name the same bucket. `None` = it could not be sealed.
    Operators(Option<String>),
}

/// What the store may have of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AtStore {
    /// Name in the bucket.
    pub(crate) key: String,
    /// The store opened an upload at some time.
    pub(crate) has_begun: bool,
    /// The one that is open.
    pub(crate) upload: Option<Upload>,
    /// Ids of earlier uploads of the same key that are still to be ended.
    pub(crate) stale: Vec<String>,
    /// The checksum that the whole object has, once the store was asked to make it. Whether it did may not have been heard.
    pub(crate) sum: Option<String>,
    /// Its destination was given another store, and it stays in the one where it began.
    pub(crate) stays: bool,
}

/// An upload that the store has opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Upload {
    /// The store's id of it.
    pub(crate) id: String,
    /// ETags of the parts it has, in order, as it wrote them.
    pub(crate) parts: Vec<String>,
    /// Every one of them was the MD5 of its part.
    pub(crate) has_sums: bool,
}

/// Where a recording stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum State {
    /// It grows. Found at the start: a crash cut it off.
    Recording { trouble: Option<Trouble> },
    /// It is whole and goes to the store. `failing_ms`: for how long nothing has worked, counted while the driver runs.
    Uploading { trouble: Option<Trouble>, failing_ms: u64 },
    /// The store has confirmed it; there is no local copy.
    Done { url: String },
    /// Given up; the local copy is kept for a while.
    Failed { trouble: Trouble, has_copy: bool },
    /// It was asked to be deleted; something at the store is still to be ended.
    Deleting { object: Fate, failing_ms: u64 },
    /// Deleted, or its days at the store were over. Kept for a while, so that the host hears of it.
    Gone { is_deleted: bool },
}

/// What becomes of an object of a recording that is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Fate {
    Stays,
    /// It goes if an upload of ours became one without our hearing of it.
    GoesIfOurs,
    Goes,
}

/// What went wrong last.
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
            bucket: Bucket::Operators(None),
            at_store: None,
            bytes: 0,
            duration_ms: 0,
            attempt: 0,
            attempt_opened: false,
            state: State::Recording { trouble: None },
        }
    }

    /// Whose it is.
    pub(crate) fn owner(&self) -> Owner {
        Owner::new(self.about.account_id, self.about.destination_id)
    }

    /// The upload that is open.
    pub(crate) fn upload(&self) -> Option<&Upload> {
        self.at_store.as_ref().and_then(|at_store| at_store.upload.as_ref())
    }

    /// Parts that the store has.
    pub(crate) fn parts(&self) -> usize {
        self.upload().map_or(0, |upload| upload.parts.len())
    }

    /// The store opened an upload at some time.
    pub(crate) fn has_begun(&self) -> bool {
        self.at_store.as_ref().is_some_and(|at_store| at_store.has_begun)
    }

    /// It stays in the store where it began, and not in the one that its destination has now.
    pub(crate) fn stays(&self) -> bool {
        self.at_store.as_ref().is_some_and(|at_store| at_store.stays)
    }

    /// The store has opened an upload of it.
    pub(crate) fn open_upload(&mut self, key: &str, id: String) {
        let at_store = self.at_store.get_or_insert_with(|| AtStore::new(key.to_owned()));
        at_store.upload = Some(Upload { id, parts: Vec::new(), has_sums: true });
        at_store.has_begun = true;
    }

    /// The upload that is open is continued by nobody: it is to be ended.
    pub(crate) fn abandon_upload(&mut self) {
        let Some(at_store) = &mut self.at_store else { return };
        at_store.stale.extend(at_store.upload.take().map(|upload| upload.id));
        let surplus = at_store.stale.len().saturating_sub(STALE_MAX);
        at_store.stale.drain(..surplus);
    }

    /// It is whole; what was wrong while it grew stays.
    pub(crate) fn close(&mut self) {
        if let State::Recording { trouble } = &mut self.state {
            self.state = State::Uploading { trouble: trouble.take(), failing_ms: 0 };
        }
    }

    /// What is wrong is forgotten.
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
    fn only_so_many_earlier_uploads_are_remembered() {
        let mut entry = Entry::new("a/b.mp4".into(), 0);
        entry.abandon_upload();
        entry.at_store = Some(AtStore::new("k".into()));
        for number in 0..STALE_MAX + 3 {
            let upload = Upload { id: number.to_string(), parts: Vec::new(), has_sums: true };
            entry.at_store.as_mut().unwrap().upload = Some(upload);
            entry.abandon_upload();
        }
        entry.abandon_upload();
        let stale = entry.at_store.unwrap().stale;
        assert_eq!((stale.len(), stale[0].as_str()), (STALE_MAX, "3"));
    }

    #[test]
    fn an_unknown_account_is_told_by_its_destination() {
        assert_eq!(Owner::new(3, 7), Owner::new(3, 8));
        assert_ne!(Owner::new(0, 7), Owner::new(0, 8));
        assert_ne!(Owner::new(0, 7), Owner::new(7, 0));
    }
}
