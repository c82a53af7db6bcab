//! Aborts uploads that will not be completed: their parts cost money at the store.

use std::sync::Arc;

use super::fault::{Fault, Kind};
use super::store::{Store, header_text};
use crate::core::Core;
use crate::entry::{Fate, State};
use crate::table::Item;

/// Does the rest of a deletion at the store.
pub(crate) async fn delete(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Fault> {
    let State::Deleting { object, .. } = item.data().entry.state else { return Ok(()) };
    match object {
        Fate::Stays => end_uploads(core, item).await,
        Fate::GoesIfOurs => remove(core, item).await,
        Fate::Goes => {
            let (store, key) = core.store(item)?;
            store.delete(&key).await
        }
    }
}

/// Aborts open uploads, and deletes the object if it is ours, also one whose answer was lost. Objects of others under
/// its name stay.
async fn remove(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Fault> {
    end_uploads(core, item).await?;
    if item.data().entry.at_store.is_none() {
        return Ok(());
    }
    let (store, key) = core.store(item)?;
    let session = header_text(&item.data().entry.about.session_id);
    match store.find(&key, None).await? {
        Some(found) if found.session.as_ref() == Some(&session) => store.delete(&key).await,
        Some(_) => {
            tracing::warn!(
                recording = item.file_name,
                "the store has another object of this name; it is not deleted"
            );
            Ok(())
        }
        None => Ok(()),
    }
}

/// Aborts the open uploads of a recording.
pub(super) async fn end_uploads(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Fault> {
    core.table.touch(item, false, |data| data.entry.abandon_upload());
    if item.data().entry.at_store.is_none() {
        return Ok(());
    }
    let (store, key) = core.store(item)?;
    end_stale(core, item, &store).await?;
    end_unknown(item, &store, &key).await;
    Ok(())
}

async fn end_stale(core: &Arc<Core>, item: &Arc<Item>, store: &Store) -> Result<(), Fault> {
    let at_store = item.data().entry.at_store.clone();
    let Some(at_store) = at_store.filter(|at_store| !at_store.stale.is_empty()) else { return Ok(()) };
    for id in &at_store.stale {
        match store.abort(&at_store.key, id).await {
            // Any answer ends it: some stores refuse an upload that they do not know.
            Ok(()) | Err(Fault { kind: Kind::Refused | Kind::NoBucket | Kind::Other, .. }) => {}
            Err(fault) => return Err(fault),
        }
    }
    core.table
        .change(item, |data| {
            if let Some(at_store) = &mut data.entry.at_store {
                at_store.stale.clear();
            }
        })
        .await?;
    Ok(())
}

/// Aborts every open upload of the key: none is in use any more. A crash or a lost answer leaves one that only the
/// store knows. Stores that do not list uploads keep it; a bucket rule can abort those.
pub(crate) async fn end_unknown(item: &Item, store: &Store, key: &str) {
    match store.uploads(key).await {
        Ok(ids) => {
            for id in ids {
                // Another attempt may have begun meanwhile.
                if item.data().entry.upload().is_some_and(|upload| upload.id == id) {
                    continue;
                }
                tracing::info!(recording = item.file_name, "an abandoned upload is aborted at the store");
                if let Err(fault) = store.abort(key, &id).await {
                    tracing::debug!(recording = item.file_name, reason = %fault, "an abandoned upload could not be aborted at the store");
                }
            }
        }
        Err(fault) => {
            tracing::debug!(recording = item.file_name, reason = %fault, "the store does not list open uploads");
        }
    }
}

/// Aborts earlier uploads, as far as possible.
pub(super) async fn tidy(core: &Arc<Core>, item: &Arc<Item>, store: &Store) {
    if let Err(fault) = end_stale(core, item, store).await {
        tracing::debug!(recording = item.file_name, reason = %fault, "an earlier upload could not be aborted at the store");
    }
}
