//! Destination types, and who serves each.

use std::path::PathBuf;
use std::sync::Arc;

use satcast_plugin_api::Route;

use crate::load::schema::ConfigSchema;
use crate::load::wishes::Wishes;
use crate::run::loaded::Loaded;
use satcast_core::config::QueueLimits;

/// Folder of packets that wait on disk, beside the folders of the drivers: no driver has such a name.
pub(super) const SPOOL_FOLDER: &str = ".spool";

/// Where packets wait that a destination cannot take at once and must not lose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolPlace {
    /// Where its file is made.
    pub folder: PathBuf,
    /// Most bytes of one destination.
    pub bytes_max: u64,
}

/// One destination type, and who serves it.
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

/// One destination type.
pub(super) struct KindFacts {
    pub(super) title: String,
    pub(super) playback: bool,
    /// It begins with what viewers can go back to.
    pub(super) wants_past: bool,
    /// The entry of the operator's settings that makes it; `None` for one that its driver declares.
    pub(super) made_by: Option<String>,
    /// Viewers' requests that it answers itself.
    pub(super) routes: Vec<Route>,
    pub(super) schema: ConfigSchema,
    /// Where its packets wait rather than being lost.
    pub(super) spool: Option<SpoolPlace>,
    /// What waits in memory where there is no such place.
    pub(super) queue: QueueLimits,
    /// What the service behind it asks of streams.
    pub(super) wishes: Option<Arc<Wishes>>,
}
