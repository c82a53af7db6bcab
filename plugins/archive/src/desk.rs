//! What the owner asks of recordings that are there already: again, away, an address.

use std::sync::Arc;
use std::time::Duration;

use satcast_plugin_api::Error;

use crate::item::Item;
use crate::journal::Stage;
use crate::limits::REMOVE_MAX;
use crate::state::{Core, is_file};
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
    let Some(item) = core.find(file_name) else { return answer.give(Err(unknown(core, file_name))) };
    let core = core.clone();
    tokio::spawn(async move {
        if let Err((answer, error)) = retry_now(&core, &item, answer).await {
            answer.give(Err(error));
        }
    });
}

async fn retry_now(core: &Arc<Core>, item: &Arc<Item>, answer: Answer) -> Result<(), (Answer, Error)> {
    let is_there = is_file(&core.path(&item.file_name));
    let mut refused = None;
    let mut waiting = Some(answer);
    let saved = core.change(item, |data| {
        refused = match data.entry.stage {
            Stage::Failed if is_there && data.entry.is_local => None,
            Stage::Failed => Some(Refusal::CopyGone),
            Stage::Ready => Some(Refusal::Uploaded),
            Stage::Recording => Some(Refusal::Recording),
            Stage::Uploading => Some(Refusal::Uploading),
            Stage::Leaving => Some(Refusal::Deleted),
            Stage::Gone if data.is_deleted() => Some(Refusal::Deleted),
            Stage::Gone => Some(Refusal::Expired),
        };
        if refused.is_some() {
            return;
        }
        data.entry.stage = Stage::Uploading;
        data.entry.error = None;
        data.entry.error_class = None;
        data.restarts_failing();
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
    core.spawn(item);
    Ok(())
}

/// Deletes a recording.
pub(crate) fn delete(core: &Arc<Core>, file_name: &str, remote: bool, answer: Answer) {
    let Some(item) = core.find(file_name) else {
        // Nothing is left here; of its object nothing is known.
        let is_done = core.is_alone() && !remote;
        return answer.give(if is_done { Ok(()) } else { Err(unknown(core, file_name)) });
    };
    let core = core.clone();
    tokio::spawn(async move { answer.give(delete_now(&core, &item, remote).await) });
}

async fn delete_now(core: &Arc<Core>, item: &Arc<Item>, remote: bool) -> Result<(), Error> {
    if item.data().entry.stage == Stage::Recording {
        return Err(Refusal::DeletedWhileRecording.of(&item.file_name));
    }
    item.cut().await;
    let stage = item.data().entry.stage;
    if remote && stage != Stage::Gone {
        // First the note: who is killed from here on goes on with it, and does not bring back what may be gone at the store.
        let noted = note_removal(core, item, true).await;
        let removed = match noted {
            Ok(()) => remove(core, item, stage).await,
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            if let Err(error) = note_removal(core, item, false).await {
                tracing::warn!(recording = item.file_name, %error, "a recording that could not be deleted is deleted at the next start");
            }
            // It is as it was, and its upload goes on.
            core.spawn(item);
            return Err(error);
        }
    }
    let answer = item.data().answer.take();
    if let Some(answer) = answer {
        answer.give(Err(Refusal::DeletedMeanwhile.of(&item.file_name)));
    }
    if stage == Stage::Gone {
        return core.forget(item).await;
    }
    if remote || stage == Stage::Ready {
        return core.bury(item).await;
    }
    core.change(item, |data| {
        data.entry.stage = Stage::Leaving;
        data.entry.is_local = false;
        data.restarts_failing();
    })
    .await?;
    core.remove_local(item).await?;
    // The store may be down: what is open there is ended in the background.
    core.spawn(item);
    Ok(())
}

/// Notes durably that a recording is being deleted with its object, or is not.
async fn note_removal(core: &Arc<Core>, item: &Arc<Item>, is_removed: bool) -> Result<(), Error> {
    item.data().entry.remove_object = is_removed;
    core.save(item).await
}

/// Has the store delete what it has of a recording: who asked hears of it when it is so.
async fn remove(core: &Arc<Core>, item: &Arc<Item>, stage: Stage) -> Result<(), Error> {
    let removing = async {
        if stage != Stage::Ready {
            return ending::remove(core, item).await;
        }
        let (store, key) = core.store(item)?;
        store.delete(&key).await
    };
    let why = match timeout(REMOVE_MAX, removing).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(fault)) => fault.error,
        Err(_) => Error::network(format!("the store did not do it within {} s", REMOVE_MAX.as_secs())),
    };
    Err(not_removed(&why))
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
    let item = core.find(file_name).ok_or_else(|| unknown(core, file_name))?;
    if item.data().entry.stage != Stage::Ready {
        return Err(Refusal::NotReady.of(file_name));
    }
    let (store, key) = core.store(&item)?;
    store.sign(&key, valid.min(SIGNED_MAX)).map_err(|fault: Fault| fault.error)
}

fn unknown(core: &Core, file_name: &str) -> Error {
    let refusal = if core.is_alone() { Refusal::Unknown } else { Refusal::Elsewhere };
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
