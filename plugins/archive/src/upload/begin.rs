//! The beginning: what a crash left is closed, and the store opens an upload.

use std::fs::OpenOptions;
use std::io;
use std::sync::Arc;

use super::complete;
use super::ending::{end_unknown, tidy};
use super::fault::{Fault, Kind};
use super::store::Labels;
use crate::boxes;
use crate::core::Core;
use crate::disk::blocking;
use crate::entry::AtStore;
use crate::limits::TOKEN_BYTES_MAX;
use crate::parts;
use crate::table::Item;

/// A recording that a crash cut off: what is whole of it is all of it.
pub(super) async fn repair(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Fault> {
    let path = core.table.path(&item.file_name);
    let whole = blocking(move || {
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(boxes::Whole::default()),
            file => file?,
        };
        let whole = boxes::whole(&file)?;
        file.set_len(whole.bytes)?;
        file.sync_all()?;
        Ok(whole)
    })
    .await?;
    tracing::info!(
        recording = item.file_name,
        bytes = whole.bytes,
        seconds = whole.duration_ms / 1000,
        "a recording that was cut off is closed"
    );
    core.table
        .change(item, |data| {
            // Only whole parts were sent while it ran.
            if parts::part(data.entry.parts()).is_none_or(|next| next.offset > whole.bytes) {
                // The machine lost what the store has: the object shall be what is here.
                data.entry.abandon_upload();
            }
            data.entry.bytes = whole.bytes;
            data.entry.duration_ms = whole.duration_ms;
            data.entry.close();
        })
        .await?;
    Ok(())
}

/// Has the store open an upload.
pub(super) async fn open(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Fault> {
    let (store, key) = core.store(item)?;
    match store.find(&key).await {
        Ok(None) => {}
        // An earlier attempt made it, and its end was not heard of.
        Ok(Some(found)) if complete::is_ours(item, &found) => {
            complete::done(core, item, &store, &key).await?;

            if let Some(answer) = item.take_answer() {
                answer.give(Ok(()));
            }
            return Ok(());
        }
        Ok(Some(_)) => return Err(Fault::taken(&key)),
        // Who may write may not be allowed to look: the store says so again, or not, when the upload is opened.
        Err(fault) if fault.kind == Kind::Refused => {}
        Err(fault) => return Err(fault),
    }
    let is_first = item.data().entry.at_store.is_none();
    if is_first {
        core.table.change(item, |data| data.entry.at_store = Some(AtStore::new(key.clone()))).await?;
    } else {
        end_unknown(item, &store, &key).await;
    }
    let labels = Labels::of(&item.data().entry);
    let id = store.open(&key, &labels).await?;
    if id.is_empty() || id.len() > TOKEN_BYTES_MAX {
        return Err(Fault::remote("the store opened an upload without a usable id"));
    }
    core.table
        .change(item, |data| {
            data.entry.open_upload(&key, id);
            data.entry.attempt_opened = true;
            // It goes on; whether that holds shows with the first part.
            data.entry.clear_trouble();
        })
        .await?;
    // Not before it is in the journal: an upload that is not is ended, and nobody pays for it.

    if let Some(answer) = item.take_answer() {
        answer.give(Ok(()));
    }
    tidy(core, item, &store).await;
    Ok(())
}
