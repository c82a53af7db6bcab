//! Reads recordings for viewers: ranges of their bytes, and their index.
//!
//! The local copy is read while it is there, then the object in the store. Reads have permits of their own and a deadline,
//! so they hold up no upload, and one account or store has a quarter of them at most.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use satcast_plugin_api::driver::{BytesAnswer, IndexAnswer, RecordingIndex};
use satcast_plugin_api::{Class, Error};
use tokio::time::timeout;

use crate::actions::{Refusal, unknown};
use crate::core::Core;
use crate::disk::{blocking, remove_if_there};
use crate::entry::State;
use crate::index::{self, Page};
use crate::limits::{INDEX_WAIT, READ_MAX};
use crate::table::{Data, Item};
use crate::upload::fault::{Fault, Kind};
use crate::upload::store::Store;

/// Where the bytes of a recording are.
#[derive(Debug)]
pub(crate) enum Source {
    Local(Arc<File>),
    Store(Store, String),
}

/// Whether the local copy has the bytes of a recording.
fn is_local(data: &Data) -> Result<bool, Refusal> {
    match data.entry.state {
        State::Recording { .. } | State::Uploading { .. } | State::Failed { has_copy: true, .. } => Ok(true),
        State::Done { .. } => Ok(false),
        State::Failed { has_copy: false, .. } => Err(Refusal::CopyGone),
        State::Deleting { .. } | State::Gone { is_deleted: true } => Err(Refusal::Deleted),
        State::Gone { is_deleted: false } => Err(Refusal::Expired),
    }
}

impl Source {
    /// # Errors
    /// `Config`: the recording is gone, or its store is.
    pub(crate) fn of(core: &Core, item: &Item) -> Result<Self, Error> {
        let is_local = is_local(&item.data());
        if is_local.map_err(|refusal| refusal.of(&item.file_name))?
            && let Ok(file) = File::open(core.table.path(&item.file_name))
        {
            return Ok(Source::Local(Arc::new(file)));
        }
        // The copy may have gone to the store at this moment, or it was removed by hand.
        if !matches!(item.data().entry.state, State::Done { .. }) {
            return Err(Refusal::CopyGone.of(&item.file_name));
        }
        if !item.begin_read(core.outside.elapsed()) {
            return Err(Refusal::Expired.of(&item.file_name));
        }
        let (store, key) = core.store(item)?;
        Ok(Source::Store(store, key))
    }

    /// `len` bytes, which the recording has.
    ///
    /// # Errors
    /// The disk or the store failed, or the store has other bytes.
    pub(crate) async fn read(&self, core: &Core, item: &Item, offset: u64, len: u32) -> Result<Bytes, Error> {
        match self {
            Source::Local(file) => {
                let file = file.clone();
                blocking(move || {
                    let mut bytes = vec![0; len as usize];
                    file.read_exact_at(&mut bytes, offset)?;
                    Ok(bytes.into())
                })
                .await
            }
            Source::Store(store, key) => {
                let _permit = core.reads.take(&core.client(item), 1).await;
                store.read(key, offset, len).await.map_err(|fault| match fault.kind {
                    Kind::Missing => Fault::config("the store no longer has the recording").error,
                    // The recording is there, and viewers try again.
                    _ if fault.error.class == Class::Config => Error::new(Class::Remote, fault.error.message),
                    _ => fault.error,
                })
            }
        }
    }
}

/// Answers with a range of a recording.
pub(crate) fn range(core: &Arc<Core>, file_name: &str, offset: u64, len: u32, answer: BytesAnswer) {
    let Some(item) = core.table.find(file_name) else { return answer.give(Err(unknown(core, file_name))) };
    let core = core.clone();
    tokio::spawn(async move {
        let read = timeout(READ_MAX, read(&core, &item, offset, len)).await;
        answer.give(read.unwrap_or_else(|_| Err(late())));
    });
}

async fn read(core: &Core, item: &Item, offset: u64, len: u32) -> Result<Bytes, Error> {
    let end = offset.checked_add(u64::from(len));
    if end.is_none_or(|end| end > item.data().entry.bytes) {
        return Err(Refusal::NoRange.of(&item.file_name));
    }
    Source::of(core, item)?.read(core, item, offset, len).await
}

/// Answers with a page of the index of a recording.
pub(crate) fn index(core: &Arc<Core>, file_name: &str, first: u64, most: u32, answer: IndexAnswer) {
    let Some(item) = core.table.find(file_name) else { return answer.give(Err(unknown(core, file_name))) };
    let core = core.clone();
    tokio::spawn(async move {
        let page = timeout(READ_MAX, page(&core, &item, first, most)).await;
        answer.give(page.unwrap_or_else(|_| Err(late())));
    });
}

async fn page(core: &Arc<Core>, item: &Arc<Item>, first: u64, most: u32) -> Result<RecordingIndex, Error> {
    let (bytes, is_closed) = {
        let data = item.data();
        is_local(&data).map_err(|refusal| refusal.of(&item.file_name))?;
        (data.entry.bytes, !matches!(data.entry.state, State::Recording { .. }))
    };
    let mut found = known(core, item, bytes, first, most).await?;
    if is_closed && found.as_ref().is_none_or(|page| page.bytes != bytes) {
        if found.is_none() {
            // Missing or damaged.
            let path = core.table.index_path(&item.file_name);
            let free = item.indexing.try_lock().is_ok();
            if free {
                blocking(move || remove_if_there(&path)).await?;
            }
        }
        let (task_core, task_item) = (core.clone(), item.clone());
        // It goes on when this request ends.
        let built = tokio::spawn(async move { index::build::complete(&task_core, &task_item).await });
        if let Ok(built) = timeout(INDEX_WAIT, built).await {
            built.map_err(|_| Error::internal("the index of a recording was not made"))??;
        }
        found = known(core, item, bytes, first, most).await?;
    }
    let Page { init_bytes, count, bytes: end, fragments } = found.unwrap_or_default();
    let is_complete = is_closed && count > 0 && end == bytes;
    Ok(RecordingIndex { init_bytes, bytes: end, count, is_complete, first, fragments })
}

async fn known(core: &Core, item: &Item, bytes: u64, first: u64, most: u32) -> Result<Option<Page>, Error> {
    let path = core.table.index_path(&item.file_name);
    blocking(move || index::page(&path, bytes, first, u64::from(most))).await
}

fn late() -> Error {
    Error::network(format!("the recording could not be read within {} s; try again", READ_MAX.as_secs()))
}
