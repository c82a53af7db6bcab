//! What host and child keep to.

/// Name of the hidden subcommand the child runs.
pub const RUNNER_COMMAND: &str = "driver-runner";
pub(super) const BYTES_PER_MB: u64 = 1024 * 1024;
/// How long a call into a child may take; below the limit of the control thread, which would give up the driver.
pub(super) const CALL_MS: u64 = 900;
/// How long a child may take from its start to a loaded library.
pub(super) const START_MS: u64 = 4_500;
/// A child that has nothing to say says so after this time.
pub(super) const ALIVE_MS: u64 = 2_000;
/// A child that says nothing for so long is killed.
pub(super) const SILENCE_MS: u64 = 8_000;
/// What a child gets to end by itself before it is killed.
pub(super) const END_MS: u64 = 2_000;
/// Packets of a destination that were sent and that its library has not read.
pub(super) const UNREAD_PACKETS_MAX: usize = 64;
/// Their bytes, but for one packet.
pub(super) const UNREAD_BYTES_MAX: usize = 1024 * 1024;
