//! Limits that host and child share.

/// Name of the hidden subcommand that the child runs.
pub const RUNNER_COMMAND: &str = "driver-runner";
pub(super) const BYTES_PER_MB: u64 = 1024 * 1024;
/// Time limit of a call into a child; below the limit of the control thread, which would give up the driver.
pub(super) const CALL_MS: u64 = 900;
/// Time limit from the start of a child to a loaded library.
pub(super) const START_MS: u64 = 4_500;
/// Interval of signs of life of a child without other messages.
pub(super) const ALIVE_MS: u64 = 2_000;
/// A child that is silent for this long is killed.
pub(super) const SILENCE_MS: u64 = 8_000;
/// Time for a child to end by itself before it is killed.
pub(super) const END_MS: u64 = 2_000;
/// Most packets of a destination that were sent and that its library has not read.
pub(super) const UNREAD_PACKETS_MAX: usize = 64;
/// Most bytes of these packets, plus one packet.
pub(super) const UNREAD_BYTES_MAX: usize = 1024 * 1024;
