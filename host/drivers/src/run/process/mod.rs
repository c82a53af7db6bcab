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
//! - [`spec`]: what it is made from; [`spawn`]: its process; [`cgroup`]: the memory of all that it starts.
//! - [`session`]: one child, and calls into it; [`media`] with a [`feed`] for each destination: its media; [`requests`]: what it asks for;
//!   [`recordings`]: what it is asked across its lives; [`held`]: answers that wait for viewers.
//! - [`child`]: the other side. It is a small host itself: it loads the library with the same code, and its services ask
//!   over the socket.
//! - [`channel`], [`message`]: one socket, messages in the contract's own types with bytes behind them; [`payloads`]: each payload crosses once
//!   for all destinations of a stream; [`limits`]: what both sides keep to.
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
mod feed;
mod held;
mod limits;
mod media;
mod message;
mod payloads;
mod recordings;
mod remote;
mod requests;
mod session;
mod shortage;
mod spawn;
mod spec;

pub use limits::RUNNER_COMMAND;
pub(crate) use message::ToOpen;
pub(crate) use remote::{Accept, Hooks, Remote};
pub(crate) use session::RemoteInstance;
pub(crate) use spec::Spec;

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
