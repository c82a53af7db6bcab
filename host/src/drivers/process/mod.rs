//! Drivers in child processes: the same library behind the same table, where a memory fault, an abort, an exit, a hang or a leak
//! ends the child and nothing else.
//!
//! ```text
//!  host process                                       child process (`satcast driver-runner`)
//!  live ── Control ── Remote ── Session ══ socket ══ child ── plugin-api host table ── library
//!             queue ── feed ───────┘                    └── packets
//! ```
//!
//! - [`remote`]: starts the child and restarts it after a crash; [`apart`]: whom a crash counts for; [`shortage`]: what is nobody's fault.
//! - [`spawn`]: its process; [`cgroup`]: the memory of all that it starts.
//! - [`session`]: one child, and calls into it; [`media`]: its media; [`requests`]: what it asks for; [`recordings`]: what it is asked across
//!   its lives; [`http`]: answers that wait for viewers.
//! - [`child`]: the other side. It is a small host itself: it loads the library with the same code, and its services ask
//!   over the socket.
//! - [`channel`], [`message`]: one socket, messages in the contract's own types with bytes behind them; [`payloads`]: each payload crosses once
//!   for all destinations of a stream.
//!
//! # What it is for
//!
//! A crash or a hang of the driver ends the driver's process and nothing else. It is no defence against a hostile library: that runs as the
//! service's user, and can read and write that user's files, open connections of its own past the guard, and send signals. So nothing here is
//! built as if it were: the child is believed as the same library on threads would be.
//!
//! Memory is bounded by a control group, where one was delegated to the service: all that the process and what it started take. Without one
//! each process may ask for so much private memory, whether it uses it or not; shared memory and files in memory are left out.

mod apart;
mod cgroup;
mod channel;
pub mod child;
mod http;
mod media;
mod message;
mod payloads;
mod recordings;
mod remote;
mod requests;
mod session;
mod shortage;
mod spawn;

pub(super) use remote::{Accept, Facts, Hooks, Remote, Spec};
pub(super) use session::RemoteInstance;

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

#[cfg(test)]
mod testing {
    use bytes::Bytes;
    use satcast_plugin_api::{Codec, Packet};

    /// A packet of its own.
    pub(super) fn packet(sequence: u64, len: usize) -> Packet {
        let payload = Bytes::from(vec![sequence as u8; len]);
        let keyframe = sequence.is_multiple_of(10);
        let packet = Packet::media(Codec::H264, keyframe, sequence as i64, -1, payload);
        Packet { source: 1, sequence, ..packet }
    }
}
