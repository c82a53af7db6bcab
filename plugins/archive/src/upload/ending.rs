//! Uploads that nobody will complete are ended at the store: their parts cost money there.

use std::sync::Arc;

use super::fault::{Fault, Kind};
use super::store::{Store, header_text};
use crate::core::Core;
use crate::entry::{Fate, State};
use crate::table::Item;

/// Does at the store what is left to do of a recording that is deleted.
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

/// Ends what is open at the store, and deletes what an upload became just then, or once without our hearing of it. What others
/// put there under its name stays.
async fn remove(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Fault> {
    end_uploads(core, item).await?;
    if item.data().entry.at_store.is_none() {
        return Ok(());
    }
    let (store, key) = core.store(item)?;
    let session = header_text(&item.data().entry.about.session_id);
    match store.find(&key).await? {
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

/// Ends what is open at the store.
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
            // Whatever it says of it, it was asked: an upload it does not know is refused by some.
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

/// Ends every upload of the key that is open: none of them is ours any more. A crash, or an answer that was lost, leaves one of which
/// only the store knows. Stores that do not list uploads keep it; a rule of the bucket can end those.
pub(crate) async fn end_unknown(item: &Item, store: &Store, key: &str) {
    match store.uploads(key).await {
        Ok(ids) => {
            for id in ids {
                // Another attempt may have begun meanwhile.
                if item.data().entry.upload().is_some_and(|upload| upload.id == id) {
                    continue;
                }
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
pub(super) async fn tidy(core: &Arc<Core>, item: &Arc<Item>, store: &Store) {
    if let Err(fault) = end_stale(core, item, store).await {
        tracing::debug!(recording = item.file_name, reason = %fault, "an earlier upload could not be ended at the store");
    }
}
