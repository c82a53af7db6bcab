//! What the store lost is sent again.

use std::sync::Arc;

use super::begin::labels;
use super::fault::{Fault, Kind};
use super::store::Store;
use crate::item::Item;
use crate::limits::RESTARTS_MAX;
use crate::state::Core;

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
        Kind::Refused if is_repeated(item) => match store.open(key, &labels(item)).await {
            Ok(id) => restart(core, item, fault, Some((key, id))).await,
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

/// Begins the upload anew, with one that is open already (its key and id) if there is; always a fault, as there is a pause before.
pub(super) async fn restart(
    core: &Arc<Core>,
    item: &Arc<Item>,
    fault: Fault,
    opened: Option<(&str, String)>,
) -> Fault {
    tracing::warn!(recording = item.file_name, reason = %fault, "the store lost what was uploaded; it is sent again");
    let restarts = core.change(item, |data| {
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
