//! What drivers are started with.

use std::path::PathBuf;

use super::reports::RecordingParts;
use satcast_core::clock::Clock;
use satcast_net::outbound::Guard;

/// What driver code needs of the host.
#[derive(Clone)]
pub struct HostParts {
    /// Checks and makes outbound connections.
    pub guard: Guard,
    /// The host's runtime, for connections.
    pub runtime: tokio::runtime::Handle,
    /// Time for log limits.
    pub clock: Clock,
    /// Folder below which each driver gets its own.
    pub data_dir: PathBuf,
    /// What is needed of recordings.
    pub recordings: RecordingParts,
}
