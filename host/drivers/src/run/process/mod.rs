//! Drivers in child processes: the same library behind the same table, but a memory fault, an abort, an exit, a hang
//! or a leak ends only the child.
//!
//! ```text
//!  host process                                       child process (`satcast driver-runner`)
//!  live ── Control ── Remote ── Session ══ socket ══ child ── plugin-api host table ── library
//!             queue ── feed ───────┘                    └── packets
//! ```
//!
//! - [`remote`]: starts the child and restarts it after a crash; [`bisect`]: finds the account that crashes it;
//!   [`shortage`]: failures that are no driver's fault.
//! - [`spawn`]: its process; [`cgroup`]: the memory limit of it and its own children.
//! - [`session`]: one child, and calls into it; [`media`]: its media; [`requests`]: its calls to the host;
//!   [`recordings`]: calls about recordings, across its children.
//! - [`child`]: the other side. It is a small host itself: it loads the library with the same code, and its services
//!   call the host over the socket.
//! - [`channel`], [`message`]: one socket, messages in the contract's own types followed by bytes, and limits that both
//!   sides share; [`payloads`]: each payload crosses once for all destinations of a stream.
//!
//! # Purpose
//!
//! A crash or a hang of the driver ends the driver's process and nothing else. Isolation is no defence against a
//! hostile library: the library runs as the service's user, and can read and write that user's files, open its own
//! connections past the guard, and send signals. So the service trusts the child as it trusts the same library on
//! threads.
//!
//! A control group limits the memory of the process and its own children, if one was delegated to the service.
//! Without a group the private memory of each single process is limited, whether it is used or not; shared memory and
//! files in memory do not count.

mod bisect;
mod cgroup;
mod channel;
pub mod child;
mod media;
mod message;
mod payloads;
mod recordings;
mod remote;
mod requests;
mod session;
mod shortage;
mod spawn;

pub use message::RUNNER_COMMAND;
pub(crate) use message::ToOpen;
pub(crate) use remote::{Accept, Hooks, Remote};
pub(crate) use session::RemoteInstance;
pub(crate) use spawn::Spec;

#[cfg(test)]
mod testing {
    use bytes::Bytes;
    use satcast_plugin_api::{Codec, Packet};

    /// A packet with its own payload.
    pub(super) fn packet(sequence: u64, len: usize) -> Packet {
        let payload = Bytes::from(vec![sequence as u8; len]);
        let keyframe = sequence.is_multiple_of(10);
        let packet = Packet::media(Codec::H264, keyframe, sequence as i64, -1, payload);
        Packet { source: 1, sequence, ..packet }
    }
}
