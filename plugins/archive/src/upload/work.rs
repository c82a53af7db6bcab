//! The steps of an upload.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::future::join_all;
use satcast_plugin_api::{Class, Error};

use super::fault::{Fault, Kind};
use super::remember_stale;
use super::store::{Found, Labels, Store, bare};
use super::sums::{composite, is_composite, is_md5, md5_hex};
use crate::boxes;
use crate::item::Item;
use crate::journal::{Stage, Upload};
use crate::limits::{ETAG_BYTES_MAX, RESTARTS_MAX, TOKEN_BYTES_MAX};
use crate::names;
use crate::parts::{self, Part};
use crate::state::{Core, blocking};

/// A part is read and sent in pieces of this size.
const PIECE_BYTES: usize = 256 * 1024;

/// A recording that a crash cut off: what is whole of it is all of it.
pub(super) async fn repair(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Fault> {
    let path = core.path(&item.file_name);
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
    let now_ms = core.outside.now_ms();
    core.change(item, |data| {
        let sent = data.entry.upload.as_ref().map_or(0, |upload| upload.parts.len());
        // Only whole parts were sent while it ran.
        if parts::part(sent).is_none_or(|next| next.offset > whole.bytes) {
            // The machine lost what the store has: the object shall be what is here.
            let upload = data.entry.upload.take();
            remember_stale(data, upload.map(|upload| upload.id));
        }
        data.entry.stage = Stage::Uploading;
        data.entry.bytes = whole.bytes;
        data.entry.duration_ms = whole.duration_ms;
        data.entry.closed_at_ms = Some(now_ms);
    })
    .await?;
    Ok(())
}

/// Has the store open an upload.
pub(super) async fn open(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Fault> {
    let (store, key) = core.store(item)?;
    match store.find(&key).await {
        Ok(None) => {}
        Ok(Some(_)) => return Err(taken(&key)),
        // Who may write may not be allowed to look: the store says so again, or not, when the upload is opened.
        Err(fault) if fault.kind == Kind::Refused => {}
        Err(fault) => return Err(fault),
    }
    let is_first = item.data().entry.key.is_none();
    if is_first {
        core.change(item, |data| data.entry.key = Some(key.clone())).await?;
    } else {
        end_unknown(item, &store, &key).await;
    }
    let id = store.open(&key, &labels(item)).await?;
    if id.is_empty() || id.len() > TOKEN_BYTES_MAX {
        return Err(Fault::remote("the store opened an upload without a usable id"));
    }
    let answer = core
        .change(item, |data| {
            data.entry.upload = Some(Upload { id, parts: Vec::new(), has_sums: true });
            data.entry.attempt_opened = true;
            data.answer.take()
        })
        .await?;
    if let Some(answer) = answer {
        answer.give(Ok(()));
    }
    tidy(core, item, &store).await;
    Ok(())
}

/// Ends every upload of the key that is open: none of them is ours any more. A crash, or an answer that was lost, leaves one of which
/// only the store knows. Stores that do not list uploads keep it; a rule of the bucket can end those.
async fn end_unknown(item: &Item, store: &Store, key: &str) {
    match store.uploads(key).await {
        Ok(ids) => {
            for id in ids {
                tracing::info!(
                    recording = item.file_name,
                    "an upload that nobody continues is ended at the store"
                );
                if let Err(fault) = store.abort(key, &id).await {
                    tracing::debug!(recording = item.file_name, reason = %fault, "it could not be ended");
                }
            }
        }
        Err(fault) => {
            tracing::debug!(recording = item.file_name, reason = %fault, "the store does not list open uploads");
        }
    }
}

/// Ends earlier uploads, as far as that goes.
async fn tidy(core: &Arc<Core>, item: &Arc<Item>, store: &Store) {
    if let Err(fault) = end_stale(core, item, store).await {
        tracing::debug!(recording = item.file_name, reason = %fault, "an earlier upload could not be ended at the store");
    }
}

fn taken(key: &str) -> Fault {
    let text = format!("the store has another object under the name {key}; it is not overwritten");
    Fault::new(Kind::Final, Class::Remote, text)
}

fn labels(item: &Item) -> Labels {
    let entry = item.entry();
    Labels { title: entry.label, session: entry.session_id, started: names::iso(entry.started_at_ms) }
}

/// Sends parts, side by side. Those that arrived in order are in the journal before this returns, also when a later one failed.
pub(super) async fn send(core: &Arc<Core>, item: &Arc<Item>, parts: Vec<Part>) -> Result<(), Fault> {
    let (store, key) = core.store(item)?;
    let Some(upload) = item.data().entry.upload.clone() else { return Ok(()) };
    let path = core.path(&item.file_name);
    // What the store has must never be more than what survives a crash here.
    let file = blocking(move || {
        let file = File::open(path)?;
        file.sync_data()?;
        Ok(Arc::new(file))
    });
    let file = file.await.map_err(lost)?;
    let one = |part: Part| send_one(core, &store, &key, &upload, file.clone(), part);
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
        core.change(item, |data| {
            let Some(upload) = &mut data.entry.upload else { return };
            for (etag, is_sum) in arrived {
                upload.has_sums &= is_sum;
                upload.parts.push(etag);
            }
            data.entry.failing_since_ms = None;
            data.refusals = 0;
        })
        .await?;
    }
    match fault {
        None => Ok(()),
        Some(fault) => Err(unknown_upload(core, item, &store, &key, fault).await),
    }
}

/// The ETag of the part, and whether it is its MD5.
async fn send_one(
    core: &Arc<Core>,
    store: &Store,
    key: &str,
    upload: &Upload,
    file: Arc<File>,
    part: Part,
) -> Result<(String, bool), Fault> {
    let closed = |_| Fault::internal("the driver ends");
    let _permit = core.permits.acquire().await.map_err(closed)?;
    let read = blocking(move || {
        let pieces = read_part(&file, part)?;
        let sum = md5_hex(pieces.iter().map(Bytes::as_ref));
        Ok((pieces, sum))
    });
    let (pieces, sum) = read.await.map_err(lost)?;
    let etag = store.part(key, &upload.id, part.index, pieces).await?;
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
fn lost(error: Error) -> Fault {
    let text = format!("the local copy of the recording cannot be read: {}", error.message);
    Fault::new(Kind::Final, Class::Internal, text)
}

/// Makes one object of the parts, and has the store confirm it.
pub(super) async fn complete(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Fault> {
    let (store, key) = core.store(item)?;
    let (upload, bytes) = {
        let data = item.data();
        (data.entry.upload.clone(), data.entry.bytes)
    };
    let Some(upload) = upload else { return Ok(()) };
    let count = upload.parts.len();
    let sum = composite(upload.parts.iter().map(|etag| bare(etag))).filter(|_| upload.has_sums);
    let fits = |found: &Found| {
        let other =
            found.etag.as_ref().is_some_and(|etag| is_composite(etag, count) && sum.as_ref() != Some(etag));
        found.bytes == bytes && !(other && sum.is_some())
    };
    match store.complete(&key, &upload.id, upload.parts.clone()).await {
        Ok(etag) => {
            let is_proved = etag.is_some() && etag == sum;
            match store.find(&key).await {
                Ok(Some(found)) if fits(&found) => done(core, item, &store, &key).await,
                Ok(found) => {
                    let has = found.map_or(0, |found| found.bytes);
                    let fault = Fault::remote(format!(
                        "the store has {has} bytes of the recording after its upload, or other ones, and not its {bytes} bytes"
                    ));
                    restart(core, item, fault, None).await
                }
                // Who may write may not be allowed to look; the sum of all parts says as much.
                Err(fault) if fault.kind == Kind::Refused && is_proved => {
                    done(core, item, &store, &key).await
                }
                Err(fault) => Err(fault),
            }
        }
        Err(fault) if fault.kind == Kind::Network => Err(fault),
        Err(fault) => match store.find(&key).await {
            // It was done, and we did not hear of it.
            Ok(Some(found)) if fits(&found) => done(core, item, &store, &key).await,
            Ok(Some(_)) => Err(taken(&key)),
            Ok(None) if matches!(fault.kind, Kind::Missing | Kind::Other) => {
                restart(core, item, fault, None).await
            }
            _ => Err(unknown_upload(core, item, &store, &key, fault).await),
        },
    }
}

/// The store has it: that is noted, then the local copy goes.
async fn done(core: &Arc<Core>, item: &Arc<Item>, store: &Store, key: &str) -> Result<(), Fault> {
    tidy(core, item, store).await;
    core.change(item, |data| {
        data.entry.stage = Stage::Ready;
        data.entry.url = Some(store.url(key));
        data.entry.upload = None;
        data.entry.failing_since_ms = None;
        data.entry.is_local = false;
    })
    .await?;
    tracing::info!(recording = item.file_name, "a recording is in its store");
    if let Err(error) = core.remove_local(item).await {
        tracing::warn!(recording = item.file_name, %error, "the local copy of an uploaded recording cannot be removed");
    }
    Ok(())
}

/// A request that belongs to an upload was refused. Some stores say 403 of an upload they do not know: whether it is that, or our
/// keys, shows when another one is opened.
async fn unknown_upload(core: &Arc<Core>, item: &Arc<Item>, store: &Store, key: &str, fault: Fault) -> Fault {
    match fault.kind {
        Kind::Missing => restart(core, item, fault.clone(), None).await.err().unwrap_or(fault),
        Kind::Refused if is_repeated(item) => match store.open(key, &labels(item)).await {
            Ok(id) => restart(core, item, fault.clone(), Some(id)).await.err().unwrap_or(fault),
            Err(_) => fault,
        },
        _ => fault,
    }
}

/// True from the second refusal in a row on.
fn is_repeated(item: &Item) -> bool {
    let mut data = item.data();
    data.refusals += 1;
    data.refusals > 1
}

/// Begins the upload anew, with one that is open already if there is; always an error, as there is a pause before.
async fn restart(
    core: &Arc<Core>,
    item: &Arc<Item>,
    fault: Fault,
    opened: Option<String>,
) -> Result<(), Fault> {
    tracing::warn!(recording = item.file_name, reason = %fault, "the store lost what was uploaded; it is sent again");
    let restarts = core
        .change(item, |data| {
            let upload = data.entry.upload.take();
            remember_stale(data, upload.map(|upload| upload.id));
            data.entry.upload = opened.map(|id| Upload { id, parts: Vec::new(), has_sums: true });
            data.restarts += 1;
            data.refusals = 0;
            data.restarts
        })
        .await?;
    let kind = if restarts > RESTARTS_MAX { Kind::Final } else { fault.kind };
    Err(Fault { kind, ..fault })
}

/// Ends what is open at the store.
pub(super) async fn end_uploads(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Fault> {
    core.touch(item, false, |data| {
        let upload = data.entry.upload.take();
        remember_stale(data, upload.map(|upload| upload.id));
    });
    if item.data().entry.stale.is_empty() {
        return Ok(());
    }
    let (store, _) = core.store(item)?;
    end_stale(core, item, &store).await
}

async fn end_stale(core: &Arc<Core>, item: &Arc<Item>, store: &Store) -> Result<(), Fault> {
    let (key, stale) = {
        let data = item.data();
        (data.entry.key.clone(), data.entry.stale.clone())
    };
    let Some(key) = key.filter(|_| !stale.is_empty()) else { return Ok(()) };
    for id in stale {
        match store.abort(&key, &id).await {
            // Whatever it says of it, it was asked: an upload it does not know is refused by some.
            Ok(()) | Err(Fault { kind: Kind::Refused | Kind::Other, .. }) => {}
            Err(fault) => return Err(fault),
        }
    }
    core.change(item, |data| data.entry.stale.clear()).await?;
    Ok(())
}
