use std::path::PathBuf;

use super::reports::RecordingParts;
use satcast_core::clock::Clock;
use satcast_net::outbound::Guard;

/// Parts of the host that driver code needs.
#[derive(Clone)]
pub struct HostParts {
    pub guard: Guard,
    /// The host's runtime, for connections.
    pub runtime: tokio::runtime::Handle,
    /// Time for log limits.
    pub clock: Clock,
    /// Each driver gets a folder of its own below this one.
    pub data_dir: PathBuf,
    pub recordings: RecordingParts,
}
