//! Parts on their way.

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

/// A part is read and sent in pieces of this size.
const PIECE_BYTES: usize = 256 * 1024;

/// Sends parts, side by side. Those that arrived in order are in the journal before this returns, also when a later one failed.
pub(super) async fn send(core: &Arc<Core>, item: &Arc<Item>, parts: Vec<Part>) -> Result<(), Fault> {
    let (store, key) = core.store(item)?;
    let Some(upload) = item.data().entry.upload().cloned() else { return Ok(()) };
    let path = core.table.path(&item.file_name);
    // What the store has must never be more than what survives a crash here.
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

/// Where parts go.
#[derive(Clone, Copy)]
struct To<'a> {
    client: &'a Client,
    store: &'a Store,
    key: &'a str,
    upload: &'a Upload,
}

/// The ETag of the part, and whether it is its MD5.
async fn send_one(
    core: &Arc<Core>,
    to: To<'_>,
    file: Arc<File>,
    part: Part,
) -> Result<(String, bool), Fault> {
    let To { client, store, key, upload } = to;
    let _memory = core.memory.take(client, part.bytes.div_ceil(1024 * 1024)).await;
    let _request = core.requests.take(client, 1).await;
    let pieces = blocking(move || read_part(&file, part)).await.map_err(lost)?;
    let summed = pieces.clone();
    // Only what the store answers is held against it: it is made while the part is on its way.
    let sum = blocking(move || Ok(md5_hex(summed.iter().map(Bytes::as_ref))));
    let (etag, sum) = tokio::join!(store.part(key, &upload.id, part.index, pieces), sum);
    let (etag, sum) = (etag?, sum.map_err(lost)?);
    if etag.len() > ETAG_BYTES_MAX {
        return Err(Fault::remote("the store gave a part a mark that is too long"));
    }
    let is_sum = bare(&etag).eq_ignore_ascii_case(&sum);
    // A store whose ETags have been MD5s so far has something else than was sent.
    if !is_sum && part.index > 0 && upload.has_sums && !upload.parts.is_empty() && is_md5(bare(&etag)) {
        return Err(Fault::remote("the store has other bytes than were sent to it"));
    }
    Ok((etag, is_sum))
}

fn read_part(file: &File, part: Part) -> io::Result<Vec<Bytes>> {
    let (mut pieces, mut at, end) = (Vec::new(), part.offset, part.offset + part.bytes);
    while at < end {
        let bytes = usize::try_from(end - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let mut piece = BytesMut::zeroed(bytes);
        file.read_exact_at(&mut piece, at)?;
        pieces.push(piece.freeze());
        at += bytes as u64;
    }
    Ok(pieces)
}

/// The local copy cannot be read: no further try helps.
pub(crate) fn lost(error: Error) -> Fault {
    let text = format!("the local copy of the recording cannot be read: {}", error.message);
    Fault::new(Kind::Final, Class::Internal, text)
}
