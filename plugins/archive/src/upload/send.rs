//! Sends parts.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::future::join_all;
use satcast_plugin_api::{Class, Error};

use super::fault::{Fault, Kind};
use super::permits::Client;
use super::restart::unknown_upload;
use super::store::{Store, bare};
use super::sums::{is_md5, md5_hex};
use crate::core::Core;
use crate::disk::blocking;
use crate::entry::Upload;
use crate::limits::ETAG_BYTES_MAX;
use crate::parts::Part;
use crate::table::Item;

/// Size of the chunks in which a part is read and sent.
const READ_BYTES: usize = 256 * 1024;

/// Sends parts concurrently. Parts that arrived in order are in the journal before this returns, also when a later one
/// failed.
pub(super) async fn send(core: &Arc<Core>, item: &Arc<Item>, parts: Vec<Part>) -> Result<(), Fault> {
    let (store, key) = core.store(item)?;
    let Some(upload) = item.data().entry.upload().cloned() else { return Ok(()) };
    let path = core.table.path(&item.file_name);
    // The store must never have more than survives a crash here.
    let file = blocking(move || {
        let file = File::open(path)?;
        file.sync_data()?;
        Ok(Arc::new(file))
    });
    let file = file.await.map_err(lost)?;
    let client = core.client(item);
    let to = To { client: &client, store: &store, key: &key, upload: &upload };
    let one = |part: Part| send_one(core, to, file.clone(), part);
    let outcomes = join_all(parts.into_iter().map(one)).await;
    let mut fault = None;
    let mut arrived = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(sent) if fault.is_none() => arrived.push(sent),
            Ok(_) => {}
            Err(failed) => {
                fault.get_or_insert(failed);
            }
        }
    }
    if !arrived.is_empty() {
        core.table
            .change(item, |data| {
                let at_store = data.entry.at_store.as_mut();
                let Some(upload) = at_store.and_then(|at_store| at_store.upload.as_mut()) else { return };
                for (etag, is_sum) in arrived {
                    upload.has_sums &= is_sum;
                    upload.parts.push(etag);
                }
                data.progressed();
                data.refusals = 0;
            })
            .await?;
    }
    match fault {
        None => Ok(()),
        Some(fault) => Err(unknown_upload(core, item, &store, &key, fault).await),
    }
}

/// Target of the parts.
#[derive(Clone, Copy)]
struct To<'a> {
    client: &'a Client,
    store: &'a Store,
    key: &'a str,
    upload: &'a Upload,
}

/// Returns the ETag of the part, and whether it is its MD5.
async fn send_one(
    core: &Arc<Core>,
    to: To<'_>,
    file: Arc<File>,
    part: Part,
) -> Result<(String, bool), Fault> {
    let To { client, store, key, upload } = to;
    let _memory = core.memory.take(client, part.bytes.div_ceil(1024 * 1024)).await;
    let _request = core.requests.take(client, 1).await;
    let chunks = blocking(move || read_part(&file, part)).await.map_err(lost)?;
    let summed = chunks.clone();
    // Only the store's answer is compared with it, so it is computed while the part is sent.
    let sum = blocking(move || Ok(md5_hex(summed.iter().map(Bytes::as_ref))));
    let (etag, sum) = tokio::join!(store.part(key, &upload.id, part.index, chunks), sum);
    let (etag, sum) = (etag?, sum.map_err(lost)?);
    if etag.len() > ETAG_BYTES_MAX {
        return Err(Fault::remote("the store gave a part an ETag that is too long"));
    }
    let is_sum = bare(&etag).eq_ignore_ascii_case(&sum);
    // A store whose ETags have been MD5s so far received other bytes than were sent.
    if !is_sum && part.index > 0 && upload.has_sums && !upload.parts.is_empty() && is_md5(bare(&etag)) {
        return Err(Fault::remote("the store received other bytes than were sent"));
    }
    Ok((etag, is_sum))
}

fn read_part(file: &File, part: Part) -> io::Result<Vec<Bytes>> {
    let (mut chunks, mut at, end) = (Vec::new(), part.offset, part.offset + part.bytes);
    while at < end {
        let bytes = usize::try_from(end - at).unwrap_or(usize::MAX).min(READ_BYTES);
        let mut chunk = BytesMut::zeroed(bytes);
        file.read_exact_at(&mut chunk, at)?;
        chunks.push(chunk.freeze());
        at += bytes as u64;
    }
    Ok(chunks)
}

/// The local copy cannot be read: no further try helps.
pub(crate) fn lost(error: Error) -> Fault {
    let text = format!("the local copy of the recording cannot be read: {}", error.message);
    Fault::new(Kind::Final, Class::Internal, text)
}
