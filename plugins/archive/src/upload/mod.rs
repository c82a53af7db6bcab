//! Brings a recording into the store: in parts while it grows, as one object when it is whole.
//!
//! [`step`] decides from what is known; everything that was done is in the journal before the next step begins, so that a crash at
//! any point leads to the same object. What the store lost is sent again.

pub(crate) mod attempts;
pub(crate) mod begin;
mod complete;
pub(crate) mod ending;
pub(crate) mod fault;
pub(crate) mod probe;
mod restart;
pub(crate) mod send;
pub(crate) mod sockets;
pub(crate) mod store;
mod sums;
pub(crate) mod tls;
pub(crate) mod turns;
mod wire;

use std::sync::Arc;

use satcast_plugin_api::Error;
use tokio::time::{sleep, timeout};

use self::attempts::{Attempts, Next};
use self::fault::{Fault, Kind};
use self::turns::Turn;
use crate::item::{Data, Item};
use crate::journal::Stage;
use crate::limits::{ASKED_OPEN_MAX, ERROR_CHARS_MAX, PARTS_OF_ONE, STALE_MAX};
use crate::parts::{self, Part};
use crate::state::Core;

/// What to do next for a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing, until it changes.
    Wait,
    /// Whoever recorded into it is gone: find out what of it is whole.
    Repair,
    /// It is empty.
    Forget,
    /// Have the store open an upload.
    Open,
    /// Send these parts.
    Send(Vec<Part>),
    /// Make an object of the parts.
    Complete,
    /// It is deleted: end what is open at the store.
    Leave,
    /// It is as it should be.
    Done,
}

/// Decides. No I/O, no clock.
pub(crate) fn step(data: &Data) -> Step {
    let entry = &data.entry;
    let is_closed = match entry.stage {
        Stage::Leaving => return Step::Leave,
        Stage::Ready | Stage::Failed | Stage::Gone => return Step::Done,
        Stage::Recording if !data.is_live => return Step::Repair,
        Stage::Recording => false,
        Stage::Uploading => true,
    };
    if is_closed && entry.bytes == 0 {
        return Step::Forget;
    }
    let done = entry.upload.as_ref().map_or(0, |upload| upload.parts.len());
    let parts = (done..done + PARTS_OF_ONE).map_while(|index| parts::ready(index, entry.bytes, is_closed));
    let parts: Vec<Part> = parts.collect();
    match (&entry.upload, parts.is_empty()) {
        // From the first bytes on: a store that refuses shows at once, and not when the first part is whole.
        (None, _) if entry.bytes > 0 => Step::Open,
        (Some(_), false) => Step::Send(parts),
        (Some(_), true) if is_closed => Step::Complete,
        _ => Step::Wait,
    }
}

/// The task of one recording: ends when the store has it, when it has failed, or when it is deleted.
pub(crate) async fn run(core: Arc<Core>, item: Arc<Item>) {
    let mut attempts = Attempts::default();
    while let Err(fault) = work(&core, &item, &mut attempts).await {
        if !again(&core, &item, fault, &mut attempts).await {
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
                let _turn = turn(core, item).await?;
                begin::repair(core, item).await?;
            }
            Step::Forget => {
                tracing::info!(recording = item.file_name, "nothing was recorded");
                core.withdraw(item);
                core.forget(item).await?;
                return Ok(());
            }
            Step::Open => open(core, item).await?,
            Step::Send(parts) => {
                send::send(core, item, parts).await?;
                attempts.progressed();
            }
            Step::Complete => {
                let _turn = turn(core, item).await?;
                complete::complete(core, item).await?;
            }
            Step::Leave => {
                let _turn = turn(core, item).await?;
                ending::leave(core, item).await?;
                core.bury(item).await?;
                return Ok(());
            }
            Step::Done => return Ok(()),
        }
    }
}

/// Has the store open an upload. Whoever asked for this attempt pays for one that was opened in time, and for no other: one that
/// is opened later is ended.
async fn open(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Fault> {
    let opening = async {
        let _turn = turn(core, item).await?;
        begin::open(core, item).await
    };
    if item.data().answer.is_none() {
        return opening.await;
    }
    let late = |_| {
        Fault::remote(format!(
            "the store did not open an upload within {} s; see that it can be reached",
            ASKED_OPEN_MAX.as_secs()
        ))
    };
    timeout(ASKED_OPEN_MAX, opening).await.unwrap_or_else(|elapsed| Err(late(elapsed)))
}

/// Waits for the recording's turn at its store.
async fn turn(core: &Core, item: &Item) -> Result<Turn, Fault> {
    core.requests.take(&core.client(item), 1).await
}

/// After a failure: waits for the next try. False when there is none.
async fn again(core: &Arc<Core>, item: &Arc<Item>, fault: Fault, attempts: &mut Attempts) -> bool {
    let waiting = item.data().answer.take();
    if let Some(answer) = waiting {
        // Somebody asked for this attempt and waits to hear whether the store took it: it did not.
        fail(core, item, &fault.error).await;
        answer.give(Err(fault.error));
        return false;
    }
    let (failing_ms, stage) = note(core, item, &fault.error).await;
    let next = attempts.failed(fault.error.class, failing_ms, rand::random(), &core.limits.pauses);
    match next {
        // Nothing is given up while it is recorded.
        Next::Again(pause) if fault.kind != Kind::Final || stage == Stage::Recording => {
            tracing::warn!(
                recording = item.file_name, reason = %fault, wait_ms = pause.as_millis() as u64,
                "a recording could not be brought to its store; it is tried again"
            );
            tokio::select! {
                () = sleep(pause) => {}
                () = item.renewed.notified() => attempts.progressed(),
            }
            true
        }
        _ if stage == Stage::Leaving => {
            tracing::warn!(recording = item.file_name, reason = %fault, "an upload of a deleted recording could not be ended at its store");
            let _ = core.bury(item).await;
            false
        }
        _ => {
            fail(core, item, &fault.error).await;
            false
        }
    }
}

/// Writes a failure down, from where the next process goes on counting, and tells of it when it is another one than before; how long
/// nothing has worked, and where the recording stands.
async fn note(core: &Arc<Core>, item: &Arc<Item>, error: &Error) -> (Option<i64>, Stage) {
    let (now, wall_ms) = (core.outside.elapsed(), core.outside.now_ms());
    let before = item.data().entry.error.clone();
    let (mut failing_ms, mut stage) = (None, Stage::Recording);
    let mut note = |data: &mut Data| {
        failing_ms = data.failed(now, wall_ms, error);
        stage = data.entry.stage;
        data.entry.error == before
    };
    let is_known = note(&mut item.data());
    let saved = if is_known { core.save(item).await } else { core.change(item, |_| ()).await };
    if let Err(error) = saved {
        tracing::warn!(recording = item.file_name, %error, "the journal of a recording cannot be written");
    }
    (failing_ms, stage)
}

/// Gives a recording up: its local copy stays, what is open at the store is ended.
pub(crate) async fn fail(core: &Arc<Core>, item: &Arc<Item>, error: &Error) {
    if item.data().is_live {
        tracing::error!(recording = item.file_name, reason = %error, "a recording that runs is not uploaded until it is closed");
        return;
    }
    tracing::error!(recording = item.file_name, reason = %error, "a recording was not uploaded; its local copy is kept for a while");
    let changed = core
        .change(item, |data| {
            data.entry.stage = Stage::Failed;
            data.entry.error = Some(error.message.chars().take(ERROR_CHARS_MAX).collect());
            data.entry.error_class = Some(error.class);
            data.restarts_failing();
            let upload = data.entry.upload.take();
            remember_stale(data, upload.map(|upload| upload.id));
        })
        .await;
    if let Err(error) = changed {
        tracing::error!(recording = item.file_name, %error, "the journal of a failed recording cannot be written");
    }
    // Parts that nobody completes cost money at the store. What cannot be ended now is when it is uploaded or deleted.
    end_uploads(core, item).await;
}

/// Ends what is open at the store, as far as that goes.
pub(crate) async fn end_uploads(core: &Arc<Core>, item: &Arc<Item>) {
    if let Err(fault) = ending::end_uploads(core, item).await {
        tracing::debug!(recording = item.file_name, reason = %fault, "its upload could not be ended at the store");
    }
}

fn remember_stale(data: &mut Data, upload: Option<String>) {
    data.entry.stale.extend(upload);
    let surplus = data.entry.stale.len().saturating_sub(STALE_MAX);
    data.entry.stale.drain(..surplus);
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault { kind: Kind::Other, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Entry, Upload};

    const MIB: u64 = 1024 * 1024;

    fn decide(stage: Stage, is_live: bool, bytes: u64, parts: Option<usize>) -> Step {
        let mut entry = Entry::new("a/b.mp4".into(), 0);
        (entry.stage, entry.bytes) = (stage, bytes);
        entry.upload =
            parts.map(|parts| Upload { id: "u".into(), parts: vec![String::new(); parts], has_sums: true });
        let item = Item::new(entry, None, is_live);
        let data = item.data();
        step(&data)
    }

    #[test]
    fn only_so_many_earlier_uploads_are_remembered() {
        let item = Item::new(Entry::new("a/b.mp4".into(), 0), None, false);
        let mut data = item.data();
        (0..STALE_MAX + 3).for_each(|number| remember_stale(&mut data, Some(number.to_string())));
        remember_stale(&mut data, None);
        assert_eq!((data.entry.stale.len(), data.entry.stale[0].as_str()), (STALE_MAX, "3"));
    }

    #[test]
    fn every_state_has_its_step() {
        let part = |index: u64, bytes| Part { index: index as usize, offset: index * 8 * MIB, bytes };
        let table = [
            (Stage::Recording, true, 0, None, Step::Wait),
            (Stage::Recording, true, 1, None, Step::Open),
            (Stage::Recording, true, 7 * MIB, Some(0), Step::Wait),
            (Stage::Recording, true, 9 * MIB, Some(0), Step::Send(vec![part(0, 8 * MIB)])),
            (Stage::Recording, true, 9 * MIB, Some(1), Step::Wait),
            (Stage::Recording, true, 30 * MIB, Some(1), Step::Send(vec![part(1, 8 * MIB), part(2, 8 * MIB)])),
            (Stage::Recording, false, 9 * MIB, Some(1), Step::Repair),
            (Stage::Uploading, false, 9 * MIB, Some(1), Step::Send(vec![part(1, MIB)])),
            (Stage::Uploading, false, 9 * MIB, Some(2), Step::Complete),
            (Stage::Uploading, false, 1, None, Step::Open),
            (Stage::Uploading, false, 0, None, Step::Forget),
            (Stage::Ready, false, 1, None, Step::Done),
            (Stage::Failed, false, 1, None, Step::Done),
            (Stage::Leaving, false, 1, Some(1), Step::Leave),
            (Stage::Gone, false, 1, None, Step::Done),
        ];
        for (stage, is_live, bytes, parts, expected) in table {
            assert_eq!(decide(stage, is_live, bytes, parts), expected, "{stage:?} {bytes} {parts:?}");
        }
    }
}
