//! Content for viewers, and why it is missing.

use std::sync::Arc;

use crate::base::ApiError;
use satcast_drivers::published::{Opening, Published};

/// Content for viewers, of this node or from the owner of the session.
#[derive(Clone, Debug)]
pub(in crate::playback) struct Content {
    /// At another node: an opening without assets.
    pub(in crate::playback) opening: Arc<Opening>,
    /// `None`: not published, the driver may answer.
    pub(in crate::playback) asset: Option<Arc<Published>>,
    /// How long caches may keep it, if different from the driver's value.
    pub(in crate::playback) max_age_secs: Option<u32>,
    /// Whether time may have passed since the request came.
    pub(in crate::playback) waited: bool,
}

/// Why the content is missing.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// As the owner answered.
    Refused(ApiError),
    /// No whole answer came.
    Silent,
}
