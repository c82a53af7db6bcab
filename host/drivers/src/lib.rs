//! Drivers: found in a folder, checked, loaded, and called in a way that cannot block the host's threads.
//!
//! Three layers; none imports a higher one:
//! - [`load`]: from a file to a driver that may be started; all `unsafe` code of the host is there.
//! - [`run`]: a running driver, on threads of this process or in a child process, and its services.
//! - [`registry`]: the loaded drivers and their types, and changes to them while the service runs.
//!
//! [`published`] holds the assets that drivers publish for viewers; it is below all three. This crate knows no
//! sessions and no retries: `live` decides when a destination is opened again.

pub mod load;
pub mod published;
mod registry;
pub mod run;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use load::error::LoadError;
pub use load::masking::ConfigRefused;
pub use load::requirements::Requirements;
pub use registry::change::{Change, ChangeError, LINKED_IN};
#[cfg(any(test, feature = "testing"))]
pub use registry::drivers::REFUSED;
pub use registry::drivers::{Drivers, OpenDestination, OpenRequest, TypeSchema, ValidateError};
pub use registry::entries::{SetAside, SpoolPlace, State, Summary};
pub use registry::keeper::LoadOptions;
pub use registry::recordings::{ProbeError, RecordingsError};
pub use run::control::{CALL_TIMEOUT_MS, silence};
pub use run::pump::{Waker, gather_wakeups};
pub use run::reports::{REPORTS_WAITING_MAX, RecordingParts, ReportBatch, Reports};
pub use run::services::{Counters, EVENT_BYTES_MAX, Observer, SENT_BYTES_PER_SEC_MAX};
pub use run::{HostParts, set_log_level};
