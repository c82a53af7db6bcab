//! The end: makes one object of all parts, which the store confirms.

use std::sync::Arc;

use tokio::time::sleep;

use super::ending::tidy;
use super::fault::{Fault, Kind};
use super::restart::{restart, unknown_upload};
use super::store::{Found, Store, bare, header_text};
use super::sums::{composite, is_composite, is_crc};
use crate::core::Core;
use crate::crc::Crc;
use crate::disk::blocking;
use crate::entry::{AtStore, State};
use crate::limits::SAVE_RETRY;
use crate::table::{Data, Item};

/// Makes one object of the parts, and has the store confirm it.
pub(super) async fn complete(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Fault> {
    let (store, key) = core.store(item)?;
    let (upload, crcs, bytes) = {
        let data = item.data();
        (data.entry.upload().cloned(), data.entry.crcs.clone(), data.entry.bytes)
    };
    let Some(upload) = upload else { return Ok(()) };
    let count = upload.parts.len();
    let by_etag = composite(upload.parts.iter().map(|etag| bare(etag))).filter(|_| upload.has_sums);
    let crc = match by_etag.is_none() && upload.takes_crcs {
        // Many parts take a while.
        true => blocking(move || Ok(Crc::of_file(&crcs, bytes))).await?,
        false => None,
    };
    let sum = by_etag.or(crc.map(Crc::text));
    let fits = |found: &Found| {
        let differs = sum.as_deref().is_some_and(|sum| {
            let theirs = found.sums.like(sum);
            // An ETag of another form says nothing: the store may have encrypted the object.
            theirs.is_some_and(|theirs| theirs != sum && (is_crc(sum) || is_composite(theirs, count)))
        });
        found.bytes == bytes && !differs
    };
    // Saved before the request: if the answer is lost, the object is recognised by it, however much later.
    let is_noted = item.data().entry.sum() == sum.as_deref();
    if !is_noted {
        let note = |data: &mut Data| {
            if let Some(at_store) = &mut data.entry.at_store {
                at_store.sum.clone_from(&sum);
            }
        };
        core.table.change(item, note).await?;
    }
    match store.complete(&key, &upload.id, upload.parts.clone(), crc).await {
        Ok(sums) => {
            let is_proved = sum.as_deref().is_some_and(|sum| sums.like(sum) == Some(sum));
            match store.find(&key, sum.as_deref()).await {
                Ok(Some(found)) if fits(&found) => done(core, item, &store, &key).await,
                Ok(found) => {
                    let has = found.map_or(0, |found| found.bytes);
                    let fault = Fault::remote(format!(
                        "after the upload the store has an object of {has} bytes that does not match the recording of {bytes} bytes"
                    ));
                    Err(restart(core, item, fault, None).await)
                }
                // A key that may write may not be allowed to read; the checksum of all parts proves the same.
                Err(fault) if fault.kind == Kind::Refused && is_proved => {
                    done(core, item, &store, &key).await
                }
                Err(fault) => Err(fault),
            }
        }
        Err(fault) if fault.kind == Kind::Network => Err(fault),
        Err(fault) => match store.find(&key, sum.as_deref()).await {
            // The object was made, and the answer was lost.
            Ok(Some(found)) if is_ours(item, &found) => done(core, item, &store, &key).await,
            Ok(Some(_)) => Err(Fault::taken(&key)),
            Ok(None) if matches!(fault.kind, Kind::Missing | Kind::NoBucket | Kind::Other) => {
                Err(restart(core, item, fault, None).await)
            }
            _ => Err(unknown_upload(core, item, &store, &key, fault).await),
        },
    }
}

/// Whether an existing object is this whole recording and not another object of the same name. The checksum decides
/// where the store gives one; else the session in its metadata.
pub(super) fn is_ours(item: &Item, found: &Found) -> bool {
    let data = item.data();
    let entry = &data.entry;
    let is_it = match entry.sum().and_then(|sum| Some(found.sums.like(sum)? == sum)) {
        Some(is_it) => is_it,
        None => found.session.is_some() && found.session == Some(header_text(&entry.about.session_id)),
    };
    // A running recording has no object yet.
    matches!(entry.state, State::Uploading { .. }) && found.bytes == entry.bytes && is_it
}

/// The store has the object: saves that, then removes the local copy.
pub(super) async fn done(core: &Arc<Core>, item: &Arc<Item>, store: &Store, key: &str) -> Result<(), Fault> {
    tidy(core, item, store).await;
    let ready = |data: &mut Data| {
        data.failed_at = None;
        data.entry.crcs = Vec::new();
        data.entry.at_store = Some(AtStore { has_begun: true, ..AtStore::new(key.to_owned()) });
        data.entry.state = State::Done { url: store.url(key) };
    };
    // The copy stays until the journal says that the store has the object.
    while let Err(error) = core.table.change(item, ready).await {
        tracing::error!(recording = item.file_name, %error, "the journal of an uploaded recording cannot be written; the driver tries again");
        sleep(SAVE_RETRY).await;
    }
    tracing::info!(recording = item.file_name, "recording uploaded");
    if let Err(error) = core.table.remove_local(item).await {
        tracing::warn!(recording = item.file_name, %error, "the local copy of an uploaded recording cannot be removed");
    }
    Ok(())
}
