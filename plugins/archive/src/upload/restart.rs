//! What the store lost is sent again.

use std::sync::Arc;

use super::fault::{Fault, Kind};
use super::store::{Labels, Store};
use crate::core::Core;
use crate::limits::RESTARTS_MAX;
use crate::table::Item;

/// A request that belongs to an upload was refused. Some stores say 403 of an upload they do not know: whether it is that, or our
/// keys, shows when another one is opened.
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
                Ok(id) => restart(core, item, fault, Some((key, id))).await,
                Err(_) => fault,
            }
        }
        _ => fault,
    }
}

/// Begins the upload anew, with one that is open already (its key and id) if there is; always a fault, as there is a pause before.
pub(super) async fn restart(
    core: &Arc<Core>,
    item: &Arc<Item>,
    fault: Fault,
    opened: Option<(&str, String)>,
) -> Fault {
    tracing::warn!(recording = item.file_name, reason = %fault, "the store lost what was uploaded; it is sent again");
    let restarts = core.table.change(item, |data| {
        data.entry.abandon_upload();
        if let Some((key, id)) = opened {
            data.entry.open_upload(key, id);
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
