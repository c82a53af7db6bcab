//! Destination types and their drivers.

use std::path::PathBuf;
use std::sync::Arc;

use satcast_plugin_api::Route;

use crate::load::requirements::Requirements;
use crate::load::schema::ConfigSchema;
use crate::run::loaded::Loaded;
use satcast_core::config::QueueLimits;

/// Folder of spooled packets, beside the folders of the drivers: no driver has such a name.
pub(super) const SPOOL_FOLDER: &str = ".spool";

/// Disk spool for packets that a destination cannot take at once and must not lose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolPlace {
    /// Folder of the spool file.
    pub folder: PathBuf,
    /// Most bytes of one destination.
    pub bytes_max: u64,
}

/// A destination type and its driver.
pub(super) struct Kind {
    pub(super) driver: Arc<Loaded>,
    pub(super) facts: Arc<KindFacts>,
}

impl std::ops::Deref for Kind {
    type Target = KindFacts;

    fn deref(&self) -> &KindFacts {
        &self.facts
    }
}

pub(super) struct KindFacts {
    pub(super) title: String,
    pub(super) playback: bool,
    /// It begins with a backfill of the DVR window.
    pub(super) wants_backfill: bool,
    /// The entry of the operator's settings that makes it; `None` for a type that its driver declares.
    pub(super) made_by: Option<String>,
    /// Viewers' requests that the driver answers itself.
    pub(super) routes: Vec<Route>,
    pub(super) schema: ConfigSchema,
    /// Spool of a type that must not lose packets.
    pub(super) spool: Option<SpoolPlace>,
    /// Limits of the memory queue of a type without a spool.
    pub(super) queue: QueueLimits,
    /// Requirements of the service behind the type.
    pub(super) requirements: Option<Arc<Requirements>>,
}
