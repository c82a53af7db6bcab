//! The beginning: closes a recording that a crash interrupted, and opens an upload at the store.

use std::fs::OpenOptions;
use std::io;
use std::sync::Arc;

use super::complete;
use super::ending::{end_unknown, tidy};
use super::fault::{Fault, Kind};
use super::store::Labels;
use crate::boxes;
use crate::core::Core;
use crate::disk::{blocking, remove_if_there};
use crate::entry::AtStore;
use crate::index;
use crate::limits::TOKEN_BYTES_MAX;
use crate::parts;
use crate::table::Item;

/// Closes a recording that a crash interrupted at its last whole fragment.
pub(super) async fn repair(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Fault> {
    let path = core.table.path(&item.file_name);
    let index = core.table.index_path(&item.file_name);
    let whole = blocking(move || {
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(boxes::Whole::default()),
            file => file?,
        };
        let whole = boxes::whole(&file)?;
        file.set_len(whole.bytes)?;
        file.sync_all()?;
        // What a crash left of it may be of other fragments. Without one it is made again when somebody watches.
        if let Err(error) = index::write(&index, whole.init_bytes, &whole.fragments) {
            tracing::warn!(%error, "the index of an interrupted recording cannot be written");
            remove_if_there(&index)?;
        }
        Ok(whole)
    })
    .await?;
    tracing::info!(
        recording = item.file_name,
        bytes = whole.bytes,
        seconds = whole.duration_ms / 1000,
        "an interrupted recording is closed"
    );
    core.table
        .change(item, |data| {
            // Only whole parts were sent during the recording.
            if parts::part(data.entry.parts()).is_none_or(|next| next.offset > whole.bytes) {
                // The machine lost data that the store has: the object must match the local copy.
                data.entry.abandon_upload();
            }
            // A crash can change media before the end too. Only parts that the store has keep their checksums.
            let sent = data.entry.parts();
            data.entry.crcs.truncate(sent);
            data.entry.bytes = whole.bytes;
            data.entry.duration_ms = whole.duration_ms;
            data.entry.close();
        })
        .await?;
    Ok(())
}

/// Opens an upload at the store.
pub(super) async fn open(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Fault> {
    let (store, key) = core.store(item)?;
    let sum = item.data().entry.sum().map(str::to_owned);
    match store.find(&key, sum.as_deref()).await {
        Ok(None) => {}
        // An earlier attempt made the object, and its answer was lost.
        Ok(Some(found)) if complete::is_ours(item, &found) => {
            complete::done(core, item, &store, &key).await?;

            if let Some(answer) = item.take_answer() {
                answer.give(Ok(()));
            }
            return Ok(());
        }
        Ok(Some(_)) => return Err(Fault::taken(&key)),
        // A key that may write may not be allowed to read; opening the upload shows whether it may write.
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
    let opened = store.open(&key, &labels).await?;
    if opened.id.is_empty() || opened.id.len() > TOKEN_BYTES_MAX {
        return Err(Fault::remote("the store opened an upload without a usable id"));
    }
    core.table
        .change(item, |data| {
            data.entry.open_upload(&key, opened);
            data.entry.attempt_opened = true;
            // The first part will show whether the recovery lasts.
            data.entry.clear_trouble();
        })
        .await?;
    // Only after it is in the journal: an upload that is not is aborted and not paid for.

    if let Some(answer) = item.take_answer() {
        answer.give(Ok(()));
    }
    tidy(core, item, &store).await;
    Ok(())
}
