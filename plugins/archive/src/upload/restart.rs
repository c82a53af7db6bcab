//! Restarts an upload whose parts the store lost.

use std::sync::Arc;

use super::fault::{Fault, Kind};
use super::store::{Labels, Store};
use crate::core::Core;
use crate::entry::Opened;
use crate::limits::RESTARTS_MAX;
use crate::table::Item;

/// A request of an upload was refused. Some stores answer 403 for an upload that they do not know; opening another one
/// shows whether the keys are the cause.
pub(super) async fn unknown_upload(
    core: &Arc<Core>,
    item: &Arc<Item>,
    store: &Store,
    key: &str,
    fault: Fault,
) -> Fault {
    match fault.kind {
        Kind::Missing => restart(core, item, fault, None).await,
        // From the second refusal in a row on.
        Kind::Refused if item.refused() > 1 => {
            let labels = Labels::of(&item.data().entry);
            match store.open(key, &labels).await {
                Ok(opened) => restart(core, item, fault, Some((key, opened))).await,
                Err(_) => fault,
            }
        }
        _ => fault,
    }
}

/// Restarts the upload, with an already open one and its key if there is one. Always a fault, so that a pause
/// comes first.
pub(super) async fn restart(
    core: &Arc<Core>,
    item: &Arc<Item>,
    fault: Fault,
    opened: Option<(&str, Opened)>,
) -> Fault {
    tracing::warn!(recording = item.file_name, reason = %fault, "the store lost what was uploaded; it is sent again");
    let restarts = core.table.change(item, |data| {
        data.entry.abandon_upload();
        if let Some((key, opened)) = opened {
            data.entry.open_upload(key, opened);
        }
        data.restarts += 1;
        data.refusals = 0;
        data.restarts
    });
    match restarts.await {
        Ok(restarts) if restarts > RESTARTS_MAX => Fault { kind: Kind::Final, ..fault },
        Ok(_) => fault,
        Err(error) => error.into(),
    }
}
