//! Journal files of version 1, in which every field stood beside every other: read, and written anew in today's form.

use satcast_plugin_api::Class;
use satcast_plugin_api::driver::About;
use serde::Deserialize;

use crate::entry::{AtStore, Bucket, Entry, Fate, State, Trouble, Upload, VERSION};

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Stage {
    Recording,
    Uploading,
    Ready,
    Failed,
    Leaving,
    Gone,
}

/// Fields that nothing follows from are left out.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Version1 {
    file_name: String,
    destination_id: i64,
    session_id: String,
    label: String,
    number: u32,
    started_at_ms: i64,
    changed_at_ms: i64,
    #[serde(default)]
    account_id: i64,
    sealed: Option<String>,
    #[serde(default)]
    of_operator: bool,
    retention_days: Option<u32>,
    stage: Stage,
    bytes: u64,
    duration_ms: u64,
    key: Option<String>,
    upload: Option<Upload>,
    stale: Vec<String>,
    #[serde(default)]
    sum: Option<String>,
    error: Option<String>,
    error_class: Option<Class>,
    url: Option<String>,
    attempt: u32,
    attempt_opened: bool,
    is_local: bool,
    #[serde(default)]
    remove_object: bool,
    #[serde(default)]
    begun: bool,
    #[serde(default)]
    stays: bool,
    #[serde(default)]
    failing_ms: u64,
}

impl Version1 {
    fn state(&self) -> State {
        let trouble = || {
            let class = self.error_class.unwrap_or(Class::Internal);
            self.error.clone().map(|error| Trouble { error, class })
        };
        let object = match (self.remove_object, &self.url) {
            (false, _) => Fate::Stays,
            (true, None) => Fate::GoesIfOurs,
            (true, Some(_)) => Fate::Goes,
        };
        match self.stage {
            Stage::Gone => State::Gone { is_deleted: self.error.is_some() },
            // A deletion was noted, and then asked for at the store.
            _ if self.remove_object || self.stage == Stage::Leaving => {
                State::Deleting { object, failing_ms: self.failing_ms }
            }
            Stage::Recording => State::Recording { trouble: trouble() },
            Stage::Uploading => State::Uploading { trouble: trouble(), failing_ms: self.failing_ms },
            Stage::Ready | Stage::Leaving => State::Done { url: self.url.clone().unwrap_or_default() },
            Stage::Failed => {
                let unknown = || Trouble { error: "it failed".to_owned(), class: Class::Internal };
                State::Failed { trouble: trouble().unwrap_or_else(unknown), has_copy: self.is_local }
            }
        }
    }
}

impl From<Version1> for Entry {
    fn from(old: Version1) -> Self {
        let state = old.state();
        let is_gone = old.stage == Stage::Gone;
        // The first files of this version did not note that an upload had begun, but what follows from it.
        let has_traces = old.upload.is_some() || !old.stale.is_empty() || old.sum.is_some();
        let has_begun = old.begun || old.attempt_opened || has_traces;
        let (upload, stale, sum, stays) = (old.upload, old.stale, old.sum, old.stays);
        let at_store =
            old.key.filter(|_| !is_gone).map(|key| AtStore { key, has_begun, upload, stale, sum, stays });
        Entry {
            version: VERSION,
            file_name: old.file_name,
            about: About {
                destination_id: old.destination_id,
                session_id: old.session_id,
                label: old.label,
                account_id: old.account_id,
                ..About::default()
            },
            number: old.number,
            started_at_ms: old.started_at_ms,
            changed_at_ms: old.changed_at_ms,
            retention_days: old.retention_days,
            bucket: match old.sealed {
                _ if is_gone => Bucket::Operators(None),
                Some(sealed) if !old.of_operator => Bucket::Own(sealed),
                sealed => Bucket::Operators(sealed),
            },
            at_store,
            bytes: old.bytes,
            duration_ms: old.duration_ms,
            attempt: old.attempt,
            attempt_opened: old.attempt_opened,
            state,
        }
    }
}
