//! Makes the index of a recording from the recording: from the local copy, or by ranged reads of the store.

use std::sync::Arc;

use bytes::Bytes;
use satcast_plugin_api::Error;

use super::{Page, Writer, page};
use crate::boxes::{Taken, Walk};
use crate::core::Core;
use crate::disk::blocking;
use crate::reading::Source;
use crate::table::Item;

/// Bytes that are read at a place where a fragment begins. The head of most fragments is shorter.
const LOOK_BYTES: u64 = 64 * 1024;
/// Longest head of a fragment or initialization segment; this driver writes about 100 KB at most.
const HEAD_BYTES_MAX: u64 = 1024 * 1024;

/// Completes the index of a recording that is no longer recorded. Goes on where an earlier try ended. One at a time for
/// each recording; a second caller waits for the first.
///
/// # Errors
/// The recording cannot be read, or is not as this driver wrote it.
pub(crate) async fn complete(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Error> {
    let _one = item.indexing.lock().await;
    let bytes = item.data().entry.bytes;
    let (path, known) = (core.table.index_path(&item.file_name), known(core, item, bytes).await?);
    if known.as_ref().is_some_and(|known| known.bytes == bytes) {
        return Ok(());
    }
    let source = Source::of(core, item)?;
    let mut walk = Walk::default();
    while walk.init_bytes() == 0 {
        if take(core, item, &source, &mut walk, bytes).await? != Taken::Init {
            return Err(not_ours());
        }
    }
    let init_bytes = walk.init_bytes();
    let known = known.filter(|known| known.init_bytes == init_bytes && known.count > 0);
    let mut writer = match &known {
        Some(Page { count, fragments, .. }) => {
            fragments.iter().for_each(|last| walk.skip(last));
            let count = *count;
            blocking(move || Writer::resume(&path, count)).await?
        }
        None => blocking(move || Writer::create(&path, init_bytes)).await?,
    };
    tracing::info!(recording = item.file_name, from = walk.at(), "the index of a recording is made");
    while walk.at() < bytes {
        match take(core, item, &source, &mut walk, bytes).await? {
            Taken::Fragment(fragment) if fragment.end() <= bytes => {
                writer = blocking(move || {
                    writer.append(&fragment)?;
                    Ok(writer)
                })
                .await?;
            }
            _ => return Err(not_ours()),
        }
    }
    blocking(move || writer.sync()).await
}

/// The valid part of the present index, with its last fragment.
async fn known(core: &Arc<Core>, item: &Arc<Item>, bytes: u64) -> Result<Option<Page>, Error> {
    let path = core.table.index_path(&item.file_name);
    blocking(move || {
        let Some(Page { count, .. }) = page(&path, bytes, 0, 0)? else { return Ok(None) };
        page(&path, bytes, count.saturating_sub(1), 1)
    })
    .await
}

async fn take(
    core: &Arc<Core>,
    item: &Arc<Item>,
    source: &Source,
    walk: &mut Walk,
    end: u64,
) -> Result<Taken, Error> {
    let mut look = LOOK_BYTES;
    loop {
        let at = walk.at();
        let len = u32::try_from(look.min(end.saturating_sub(at))).map_err(|_| not_ours())?;
        let bytes: Bytes =
            if len == 0 { return Err(not_ours()) } else { source.read(core, item, at, len).await? };
        // The boxes before the one that needs more are taken again with it.
        let mut ahead = walk.clone();
        match ahead.take_from(&bytes).map_err(|_| not_ours())? {
            Taken::Needs(_) if u64::from(len) < look || look >= HEAD_BYTES_MAX => return Err(not_ours()),
            Taken::Needs(_) => look = HEAD_BYTES_MAX,
            taken => {
                *walk = ahead;
                return Ok(taken);
            }
        }
    }
}

fn not_ours() -> Error {
    Error::remote("the recording is not as it was recorded, so it cannot be watched")
}
