//! Drivers in child processes: the same library behind the same table, where a memory fault, an abort, an exit or a leak
//! ends the child and nothing else.
//!
//! ```text
//!  host process                                       child process (`satcast driver-runner`)
//!  live ── Control ── Remote ── Session ══ socket ══ child ── plugin-api host table ── library
//!             queue ── feed ──> Slots ──> memory (host writes, child reads) ──> packets ──┘
//! ```
//!
//! - [`remote`]: starts the child and restarts it after a crash; [`apart`]: whom a crash counts for; [`shortage`]: what is nobody's fault.
//! - [`session`]: one child: its media; [`calls`]: calls into it; [`requests`]: what it asks for; [`recordings`], [`http`]: what it is
//!   asked about them, and by viewers.
//! - [`child`]: the other side. It is a small host itself: it loads the library with the same code, and its services ask
//!   over the socket.
//! - [`channel`], [`message`], [`notes`]: one packet socket, one bounded message in each packet, descriptors beside it; [`handed`]:
//!   bytes that are too many for a message.
//! - [`memory`], [`slots`]: payloads, one copy for all destinations of a driver. [`usage`]: how much memory a child takes.
//!
//! # What the host relies on
//!
//! The child is taken for hostile. The host reads nothing of memory that the child can write to: the shared memory is
//! sealed against writes and resizing before the child gets it, and everything the child says comes as bounded messages,
//! whose names, numbers and descriptors are checked as if they came from the network. Notes that media is there go over the
//! socket as well, one for each batch, so that there is no shared word that a child could corrupt. A child that breaks the
//! rules, does not read, does not answer, or does not live is killed with its process group.
//!
//! # What it does not do
//!
//! There is no sandbox. The library runs as the service's user: it can read and write that user's files, open connections
//! of its own past the guard, and send signals. What the host does for it is checked; what it does by itself is not. A
//! library that leaves its process group and clears its death signal can outlive the host. Processes that it starts count with it and are ended with it;
//! those that left its group outlive it where it ends before the host ends it; memory that it holds where nobody looks (in descriptors on their way through a socket,
//! say) is not counted. A system that has groups of processes with limits (systemd's `MemoryMax`) bounds that, too.

mod apart;
mod calls;
mod channel;
pub mod child;
mod handed;
mod http;
#[allow(unsafe_code)] // Maps shared memory.
mod memory;
mod message;
mod notes;
mod recordings;
mod remote;
mod requests;
mod session;
mod shortage;
mod slots;
mod spawn;
mod usage;

pub(super) use remote::{Accept, Facts, Hooks, Remote, Spec};
pub(super) use session::RemoteInstance;

/// Name of the hidden subcommand the child runs.
pub const RUNNER_COMMAND: &str = "driver-runner";
/// Bytes of the memory one child shares with the host. Pages that were never needed take none.
pub(super) const SHARED_BYTES: usize = 256 * 1024 * 1024;
pub(super) const BYTES_PER_MB: u64 = 1024 * 1024;
/// How long a call into a child may take; below the limit of the control thread, which would give up the driver.
pub(super) const CALL_MS: u64 = 900;
/// How long a child may take from its start to a loaded library.
pub(super) const START_MS: u64 = 4_500;
/// A child that says nothing is asked for a sign of life after this time.
pub(super) const PING_MS: u64 = 2_000;
/// A child that says nothing for so long is killed.
pub(super) const SILENCE_MS: u64 = 8_000;
/// What a child gets to end by itself before it is killed.
pub(super) const END_MS: u64 = 2_000;
