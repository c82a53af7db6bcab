//! Actions of owners on existing recordings: retry, deletion, signed address.

use std::sync::Arc;
use std::time::Duration;

use satcast_plugin_api::Error;

use crate::core::Core;
use crate::disk::is_file;
use crate::entry::{Fate, State};
use crate::limits::REMOVE_MAX;
use crate::table::Item;
use crate::upload;
use crate::upload::ending;
use crate::upload::fault::Fault;
use satcast_plugin_api::driver::Answer;
use tokio::time::timeout;

/// Longest validity of a signed address (S3's limit): a week.
const SIGNED_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Why an action is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the local copy of the recording is gone, so it cannot be uploaded again")]
    CopyGone,
    #[error("the recording is already uploaded; there is nothing to recover")]
    Uploaded,
    #[error("the recording is still running; wait until it has ended")]
    Recording,
    #[error("the recording is still running; stop the stream first")]
    DeletedWhileRecording,
    #[error("the recording is being uploaded; wait until the upload has ended")]
    Uploading,
    #[error("the recording is deleted")]
    Deleted,
    #[error("the recording was deleted meanwhile")]
    DeletedMeanwhile,
    #[error("the retention time of the recording is over, and the store has deleted it")]
    Expired,
    #[error("the recording does not have these bytes")]
    NoRange,
    #[error("the recording is not in its store yet; wait until it is ready")]
    NotReady,
    #[error(
        "this service no longer has the recording; delete its object at the store first, then delete it here with `remote=false`"
    )]
    Unknown,
    #[error(
        "the driver was replaced, and the earlier instance still holds the recording; try again when its streams have ended"
    )]
    Elsewhere,
}

impl Refusal {
    /// The error for the recording of this name.
    pub(crate) fn of(self, file_name: &str) -> Error {
        Error::config(format!("{file_name}: {self}"))
    }
}

pub(crate) fn retry(core: &Arc<Core>, file_name: &str, answer: Answer) {
    let Some(item) = core.table.find(file_name) else { return answer.give(Err(unknown(core, file_name))) };
    let core = core.clone();
    tokio::spawn(async move {
        if let Err((answer, error)) = retry_now(&core, &item, answer).await {
            answer.give(Err(error));
        }
    });
}

async fn retry_now(core: &Arc<Core>, item: &Arc<Item>, answer: Answer) -> Result<(), (Answer, Error)> {
    let is_there = is_file(&core.table.path(&item.file_name));
    let mut refused = None;
    let mut waiting = Some(answer);
    let saved = core.table.change(item, |data| {
        refused = match data.entry.state {
            State::Failed { has_copy, .. } if is_there && has_copy => None,
            State::Failed { .. } => Some(Refusal::CopyGone),
            State::Done { .. } => Some(Refusal::Uploaded),
            State::Recording { .. } => Some(Refusal::Recording),
            State::Uploading { .. } => Some(Refusal::Uploading),
            State::Deleting { .. } | State::Gone { is_deleted: true } => Some(Refusal::Deleted),
            State::Gone { is_deleted: false } => Some(Refusal::Expired),
        };
        if refused.is_some() {
            return;
        }
        data.entry.state = State::Uploading { trouble: None, failing_ms: 0 };
        data.failed_at = None;
        data.entry.attempt = data.entry.attempt.saturating_add(1);
        data.entry.attempt_opened = false;
        data.restarts = 0;
        data.answer = waiting.take();
    });
    let saved = saved.await;
    if let (Some(refused), Some(answer)) = (refused, waiting.take()) {
        return Err((answer, refused.of(&item.file_name)));
    }
    if let Err(error) = saved {
        tracing::warn!(recording = item.file_name, %error, "the journal of a recording cannot be written");
    }
    upload::spawn(core, item);
    Ok(())
}

pub(crate) fn delete(core: &Arc<Core>, file_name: &str, remote: bool, answer: Answer) {
    let Some(item) = core.table.find(file_name) else {
        // Nothing is left here, and the state of the object is unknown.
        let is_done = core.table.is_alone() && !remote;
        return answer.give(if is_done { Ok(()) } else { Err(unknown(core, file_name)) });
    };
    let core = core.clone();
    tokio::spawn(async move { answer.give(delete_now(&core, &item, remote).await) });
}

async fn delete_now(core: &Arc<Core>, item: &Arc<Item>, remote: bool) -> Result<(), Error> {
    let is = |is: fn(&State) -> bool| is(&item.data().entry.state);
    if is(|state| matches!(state, State::Recording { .. })) {
        return Err(Refusal::DeletedWhileRecording.of(&item.file_name));
    }
    item.cut().await;
    let is_gone = is(|state| matches!(state, State::Gone { .. }));
    let is_done = is(|state| matches!(state, State::Done { .. }));
    if remote
        && !is_gone
        && let Err(error) =
            delete_at_store(core, item, if is_done { Fate::Goes } else { Fate::GoesIfOurs }).await
    {
        // The recording is as before, and its upload goes on.
        upload::spawn(core, item);
        return Err(error);
    }
    if let Some(answer) = item.take_answer() {
        answer.give(Err(Refusal::DeletedMeanwhile.of(&item.file_name)));
    }
    if is_gone {
        return core.table.forget(item).await;
    }
    if remote || is_done {
        return core.table.bury(item).await;
    }
    let deleting = State::Deleting { object: Fate::Stays, failing_ms: 0 };
    core.table.change(item, |data| data.entry.state = deleting).await?;
    core.table.remove_local(item).await?;
    // The store may be down: open uploads are aborted in the background.
    upload::spawn(core, item);
    Ok(())
}

/// Has the store delete its part of a recording, and returns when that is done. The journal is written first: after a
/// kill the deletion goes on, and a recording whose object may be gone is not restored.
async fn delete_at_store(core: &Arc<Core>, item: &Arc<Item>, object: Fate) -> Result<(), Error> {
    let removed = match core.table.begin_deletion(item, object).await {
        Err(error) => Err(error),
        Ok(()) => match timeout(REMOVE_MAX, ending::delete(core, item)).await {
            Ok(outcome) => outcome.map_err(|fault| not_removed(&fault.error)),
            Err(_) => {
                let late = format!("the store did not delete the object within {} s", REMOVE_MAX.as_secs());
                Err(not_removed(&Error::network(late)))
            }
        },
    };
    if removed.is_err() {
        core.table.undo_deletion(item).await;
    }
    removed
}

/// The store did not delete; `why` is the reason.
fn not_removed(why: &Error) -> Error {
    let text = format!(
        "the store could not delete its object, so nothing was deleted: {}; delete with `remote=false` to leave the object there",
        why.message
    );
    Error::new(why.class, text)
}

/// A signed address: anyone who has it can fetch the object.
pub(crate) fn sign(core: &Arc<Core>, file_name: &str, valid: Duration) -> Result<String, Error> {
    let item = core.table.find(file_name).ok_or_else(|| unknown(core, file_name))?;
    if !matches!(item.data().reported(), State::Done { .. }) {
        return Err(Refusal::NotReady.of(file_name));
    }
    let (store, key) = core.store(&item)?;
    store.sign(&key, valid.min(SIGNED_MAX)).map_err(|fault: Fault| fault.error)
}

/// The host has told the owner of a recording's deletion.
pub(crate) fn announced(core: &Arc<Core>, file_name: &str, at_ms: i64) -> Result<(), Error> {
    let item = core.table.find(file_name).ok_or_else(|| unknown(core, file_name))?;
    item.announced(at_ms);
    Ok(())
}

pub(crate) fn unknown(core: &Core, file_name: &str) -> Error {
    let refusal = if core.table.is_alone() { Refusal::Unknown } else { Refusal::Elsewhere };
    refusal.of(file_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_texts() {
        for (refusal, text) in [
            (Refusal::CopyGone, "the local copy of the recording is gone, so it cannot be uploaded again"),
            (Refusal::Uploaded, "the recording is already uploaded; there is nothing to recover"),
            (Refusal::Recording, "the recording is still running; wait until it has ended"),
            (Refusal::DeletedWhileRecording, "the recording is still running; stop the stream first"),
            (Refusal::Uploading, "the recording is being uploaded; wait until the upload has ended"),
            (Refusal::Deleted, "the recording is deleted"),
            (Refusal::DeletedMeanwhile, "the recording was deleted meanwhile"),
            (Refusal::Expired, "the retention time of the recording is over, and the store has deleted it"),
            (Refusal::NoRange, "the recording does not have these bytes"),
            (Refusal::NotReady, "the recording is not in its store yet; wait until it is ready"),
            (
                Refusal::Unknown,
                "this service no longer has the recording; delete its object at the store first, then delete it here \
                 with `remote=false`",
            ),
            (
                Refusal::Elsewhere,
                "the driver was replaced, and the earlier instance still holds the recording; try again when its \
                 streams have ended",
            ),
        ] {
            assert_eq!(refusal.of("a.mp4"), Error::config(format!("a.mp4: {text}")));
        }
        let text = "the store could not delete its object, so nothing was deleted: no route; delete with `remote=false` to \
                    leave the object there";
        assert_eq!(not_removed(&Error::network("no route")), Error::network(text));
    }
}
