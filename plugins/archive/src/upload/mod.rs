//! Uploads a recording: in parts while it grows, as one object when it is complete.
//!
//! [`step`] decides from the known state. Every step is in the journal before the next one begins, so that a crash at
//! any point leads to the same object. Parts that the store lost are sent again.

pub(crate) mod attempts;
pub(crate) mod begin;
pub(crate) mod blocks;
mod complete;
pub(crate) mod ending;
pub(crate) mod fault;
pub(crate) mod permits;
pub(crate) mod probe;
mod restart;
pub(crate) mod send;
pub(crate) mod sockets;
pub(crate) mod store;
pub(crate) mod sums;
pub(crate) mod tls;
pub(crate) mod wire;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use satcast_plugin_api::{Class, Error};
use tokio::time::{sleep, timeout};

use self::attempts::{Attempts, Next};
use self::fault::{Fault, Kind};
use self::permits::Taken;
use crate::core::Core;
use crate::entry::{State, Trouble};
use crate::limits::ASKED_OPEN_MAX;
use crate::table::{Data, Item};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing, until it changes.
    Wait,
    /// The recorder is gone: find the end of the whole part.
    Repair,
    /// It is empty.
    Forget,
    /// Have the store open an upload.
    Open,
    /// Send the parts that are complete.
    Send,
    /// Make an object of the parts.
    Complete,
    /// It is deleted: abort the open uploads at the store.
    Delete,
    Done,
}

/// Decides the next step. No I/O, no clock.
pub(crate) fn step(data: &Data) -> Step {
    let entry = &data.entry;
    let is_closed = match entry.state {
        State::Deleting { .. } => return Step::Delete,
        State::Done { .. } | State::Failed { .. } | State::Gone { .. } => return Step::Done,
        State::Recording { .. } if !data.is_live => return Step::Repair,
        State::Recording { .. } => false,
        State::Uploading { .. } => true,
    };
    if is_closed && entry.bytes == 0 {
        return Step::Forget;
    }
    match (entry.upload(), data.part(entry.parts())) {
        // From the first bytes on, so that a refusal shows at once and not when the first part is complete.
        (None, _) if entry.bytes > 0 => Step::Open,
        (Some(_), Some(_)) => Step::Send,
        (Some(_), None) if is_closed => Step::Complete,
        _ => Step::Wait,
    }
}

/// Starts the upload task of a recording.
pub(crate) fn spawn(core: &Arc<Core>, item: &Arc<Item>) {
    item.run(false, task(core.clone(), item.clone()));
}

/// The same, unless the task is running.
pub(crate) fn spawn_if_idle(core: &Arc<Core>, item: &Arc<Item>) {
    item.run(true, task(core.clone(), item.clone()));
}

async fn task(core: Arc<Core>, item: Arc<Item>) {
    let run = AssertUnwindSafe(run(&core, &item)).catch_unwind();
    if run.await.is_err() {
        let error = Error::new(Class::Panic, "the driver crashed while it processed this recording");
        fail(&core, &item, &error).await;
    }
}

/// The work on one recording: ends when the store has it, when it has failed, or when it is deleted.
async fn run(core: &Arc<Core>, item: &Arc<Item>) {
    let mut attempts = Attempts::default();
    while let Err(fault) = work(core, item, &mut attempts).await {
        if !again(core, item, fault, &mut attempts).await {
            return;
        }
    }
}

async fn work(core: &Arc<Core>, item: &Arc<Item>, attempts: &mut Attempts) -> Result<(), Fault> {
    loop {
        let next = step(&item.data());
        match next {
            Step::Wait => item.changed.notified().await,
            Step::Repair => {
                let _permit = permit(core, item).await;
                begin::repair(core, item).await?;
            }
            Step::Forget => {
                tracing::info!(recording = item.file_name, "the recording is empty and is removed");
                // The host was notified of it, so it must learn that it is gone.
                let gone = State::Gone { is_deleted: false };
                core.table.touch(item, true, |data| data.entry.state = gone);
                core.table.forget(item).await?;
                return Ok(());
            }
            Step::Open => open(core, item).await?,
            Step::Send => send::send(core, item, attempts).await?,
            Step::Complete => {
                let _permit = permit(core, item).await;
                complete::complete(core, item).await?;
            }
            Step::Delete => {
                let _permit = permit(core, item).await;
                ending::delete(core, item).await?;
                core.table.bury(item).await?;
                return Ok(());
            }
            Step::Done => return Ok(()),
        }
    }
}

/// Opens an upload at the store. A paid retry pays only for an upload that was opened in time; one that is opened later
/// is aborted.
async fn open(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Fault> {
    let opening = async {
        let _permit = permit(core, item).await;
        let mut opened = std::pin::pin!(begin::open(core, item));
        let wait = core.limits.silent_after;
        match timeout(wait, &mut opened).await {
            Ok(opened) => opened,
            Err(_) => {
                // Shown at once; a late answer of the store clears it.
                core.table.failed(item, &probe::silent(wait).error).await;
                opened.await
            }
        }
    };
    if item.data().answer.is_none() {
        return opening.await;
    }
    let late = |_| {
        Fault::remote(format!(
            "the store did not open an upload within {} s; check that the store can be reached",
            ASKED_OPEN_MAX.as_secs()
        ))
    };
    timeout(ASKED_OPEN_MAX, opening).await.unwrap_or_else(|elapsed| Err(late(elapsed)))
}

/// Waits for a request's permit.
async fn permit(core: &Core, item: &Item) -> Taken {
    core.requests.take(&core.client(item), 1).await
}

/// After a failure: waits for the next try; false when there is none.
async fn again(core: &Arc<Core>, item: &Arc<Item>, fault: Fault, attempts: &mut Attempts) -> bool {
    if let Some(answer) = item.take_answer() {
        // A retry was requested and its answer is pending: the store did not accept it.
        fail(core, item, &fault.error).await;
        answer.give(Err(fault.error));
        return false;
    }
    let failing_ms = core.table.failed(item, &fault.error).await;
    let next = attempts.failed(fault.error.class, failing_ms, rand::random(), &core.limits.pauses);
    let (is_recording, is_deleting) = match item.data().entry.state {
        State::Recording { .. } => (true, false),
        State::Deleting { .. } => (false, true),
        _ => (false, false),
    };
    match next {
        // Nothing is given up during the recording.
        Next::Again(pause) if fault.kind != Kind::Final || is_recording => {
            tracing::warn!(
                recording = item.file_name, reason = %fault, wait_ms = pause.as_millis() as u64,
                "an upload failed; the driver tries again"
            );
            tokio::select! {
                () = sleep(pause) => {}
                () = item.renewed.notified() => attempts.progressed(),
            }
            true
        }
        _ if is_deleting => {
            tracing::warn!(recording = item.file_name, reason = %fault, "an upload of a deleted recording could not be aborted at its store");
            let _ = core.table.bury(item).await;
            false
        }
        _ => {
            fail(core, item, &fault.error).await;
            false
        }
    }
}

/// Gives a recording up: its local copy stays, and open uploads are aborted.
pub(crate) async fn fail(core: &Arc<Core>, item: &Arc<Item>, error: &Error) {
    if item.data().is_live {
        tracing::error!(recording = item.file_name, reason = %error, "a running recording is not uploaded until it is closed");
        return;
    }
    tracing::error!(recording = item.file_name, reason = %error, "a recording was not uploaded; its local copy is kept for a while");
    let changed = core
        .table
        .change(item, |data| {
            data.entry.state = State::Failed { trouble: Trouble::new(error), has_copy: true };
            data.failed_at = None;
            data.entry.abandon_upload();
        })
        .await;
    if let Err(error) = changed {
        tracing::error!(recording = item.file_name, %error, "the journal of a failed recording cannot be written");
    }
    // Parts that are never completed cost money at the store. If the abort fails, the next upload or the deletion does
    // it.
    end_uploads(core, item).await;
}

/// Aborts open uploads, as far as possible.
pub(crate) async fn end_uploads(core: &Arc<Core>, item: &Arc<Item>) {
    if let Err(fault) = ending::end_uploads(core, item).await {
        tracing::debug!(recording = item.file_name, reason = %fault, "the upload could not be aborted at the store");
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault { kind: Kind::Other, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{AtStore, Entry, Fate, Upload};

    const MIB: u64 = 1024 * 1024;

    fn decide(state: State, is_live: bool, bytes: u64, parts: Option<usize>) -> Step {
        let mut entry = Entry::new("a/b.mp4".into(), 0);
        (entry.state, entry.bytes) = (state, bytes);
        entry.at_store = parts.map(|parts| {
            let upload = Upload {
                id: "u".into(),
                parts: vec![String::new(); parts],
                has_sums: true,
                takes_crcs: true,
            };
            AtStore { upload: Some(upload), ..AtStore::new("k".into()) }
        });
        let item = Item::new(entry, is_live);
        let data = item.data();
        step(&data)
    }

    #[test]
    fn every_state_has_its_step() {
        let recording = || State::Recording { trouble: None };
        let uploading = || State::Uploading { trouble: None, failing_ms: 0 };
        let failed = State::Failed { trouble: Trouble::new(&Error::internal("no")), has_copy: true };
        let table = [
            (recording(), true, 0, None, Step::Wait),
            (recording(), true, 1, None, Step::Open),
            (recording(), true, 7 * MIB, Some(0), Step::Wait),
            (recording(), true, 9 * MIB, Some(0), Step::Send),
            (recording(), true, 9 * MIB, Some(1), Step::Wait),
            (recording(), true, 30 * MIB, Some(1), Step::Send),
            (recording(), false, 9 * MIB, Some(1), Step::Repair),
            (uploading(), false, 9 * MIB, Some(1), Step::Send),
            (uploading(), false, 9 * MIB, Some(2), Step::Complete),
            (uploading(), false, 1, None, Step::Open),
            (uploading(), false, 0, None, Step::Forget),
            (State::Done { url: String::new() }, false, 1, None, Step::Done),
            (failed, false, 1, None, Step::Done),
            (State::Deleting { object: Fate::Stays, failing_ms: 0 }, false, 1, Some(1), Step::Delete),
            (State::Gone { is_deleted: true }, false, 1, None, Step::Done),
        ];
        for (state, is_live, bytes, parts, expected) in table {
            let found = decide(state.clone(), is_live, bytes, parts);
            assert_eq!(found, expected, "{state:?} {bytes} {parts:?}");
        }
    }
}
