//! What the owner asks of recordings that are there already: again, away, an address.

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

/// Longest a signed address is good for (S3's limit): a week.
const SIGNED_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Why nothing is done for a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("its local copy is gone; it cannot be uploaded again")]
    CopyGone,
    #[error("it is uploaded already")]
    Uploaded,
    #[error("it is being recorded")]
    Recording,
    #[error("it is being recorded; stop the stream first")]
    DeletedWhileRecording,
    #[error("it is being uploaded")]
    Uploading,
    #[error("it is deleted")]
    Deleted,
    #[error("it was deleted meanwhile")]
    DeletedMeanwhile,
    #[error("its days at the store were over, and it is deleted there")]
    Expired,
    #[error("it is not in its store yet")]
    NotReady,
    #[error(
        "there is no such recording here any more; delete what is left of it at its store, and then without `remote`"
    )]
    Unknown,
    #[error(
        "the driver was replaced, and its earlier instance still has the recording; try again when its streams have ended"
    )]
    Elsewhere,
}

impl Refusal {
    /// The answer for the recording of this name.
    pub(crate) fn of(self, file_name: &str) -> Error {
        Error::config(format!("{file_name}: {self}"))
    }
}

/// Uploads a failed recording again.
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

/// Deletes a recording.
pub(crate) fn delete(core: &Arc<Core>, file_name: &str, remote: bool, answer: Answer) {
    let Some(item) = core.table.find(file_name) else {
        // Nothing is left here; of its object nothing is known.
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
        // It is as it was, and its upload goes on.
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
    // The store may be down: what is open there is ended in the background.
    upload::spawn(core, item);
    Ok(())
}

/// Has the store delete what it has of a recording, and returns when it is so. First the note: after a kill the deletion goes on, and
/// nothing is brought back that may be gone at the store.
async fn delete_at_store(core: &Arc<Core>, item: &Arc<Item>, object: Fate) -> Result<(), Error> {
    let removed = match core.table.begin_deletion(item, object).await {
        Err(error) => Err(error),
        Ok(()) => match timeout(REMOVE_MAX, ending::delete(core, item)).await {
            Ok(outcome) => outcome.map_err(|fault| not_removed(&fault.error)),
            Err(_) => {
                let late = format!("the store did not do it within {} s", REMOVE_MAX.as_secs());
                Err(not_removed(&Error::network(late)))
            }
        },
    };
    if removed.is_err() {
        core.table.undo_deletion(item).await;
    }
    removed
}

/// The store did not delete, because of `why`.
fn not_removed(why: &Error) -> Error {
    let text = format!(
        "what the store has of it could not be deleted, and so nothing was: {}; try again later, or delete it without `remote`, which leaves what the store has",
        why.message
    );
    Error::new(why.class, text)
}

/// An address that gives the object to whoever has it.
pub(crate) fn sign(core: &Arc<Core>, file_name: &str, valid: Duration) -> Result<String, Error> {
    let item = core.table.find(file_name).ok_or_else(|| unknown(core, file_name))?;
    if !matches!(item.data().told(), State::Done { .. }) {
        return Err(Refusal::NotReady.of(file_name));
    }
    let (store, key) = core.store(&item)?;
    store.sign(&key, valid.min(SIGNED_MAX)).map_err(|fault: Fault| fault.error)
}

fn unknown(core: &Core, file_name: &str) -> Error {
    let refusal = if core.table.is_alone() { Refusal::Unknown } else { Refusal::Elsewhere };
    refusal.of(file_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_texts() {
        for (refusal, text) in [
            (Refusal::CopyGone, "its local copy is gone; it cannot be uploaded again"),
            (Refusal::Uploaded, "it is uploaded already"),
            (Refusal::Recording, "it is being recorded"),
            (Refusal::DeletedWhileRecording, "it is being recorded; stop the stream first"),
            (Refusal::Uploading, "it is being uploaded"),
            (Refusal::Deleted, "it is deleted"),
            (Refusal::DeletedMeanwhile, "it was deleted meanwhile"),
            (Refusal::Expired, "its days at the store were over, and it is deleted there"),
            (Refusal::NotReady, "it is not in its store yet"),
            (
                Refusal::Unknown,
                "there is no such recording here any more; delete what is left of it at its store, and then \
                 without `remote`",
            ),
            (
                Refusal::Elsewhere,
                "the driver was replaced, and its earlier instance still has the recording; try again when its \
                 streams have ended",
            ),
        ] {
            assert_eq!(refusal.of("a.mp4"), Error::config(format!("a.mp4: {text}")));
        }
        let text = "what the store has of it could not be deleted, and so nothing was: no route; try again later, or \
                    delete it without `remote`, which leaves what the store has";
        assert_eq!(not_removed(&Error::network("no route")), Error::network(text));
    }
}
