//! A driver that runs, in this process or in a child, and what it can ask of the host.
//!
//! - [`loaded`]: one that runs; [`parts`]: what it is started with; [`level`]: how much it logs.
//! - [`control`], [`pump`]: the threads that run driver code; [`waker`]: how drivers that wait for media are woken.
//! - [`backend`]: where it runs, on these threads or in a child ([`process`]).
//! - [`services`]: what it can ask of the host; [`redact`]: its texts without secrets; [`reports`]: what it tells of recordings.
//! - [`requests`], [`routes`]: viewers' requests that it answers itself.
//! - [`quarantine`]: when one that fails is used for nothing new, by whom.

pub(super) mod backend;
pub(super) mod control;
pub(super) mod level;
pub(super) mod loaded;
pub(super) mod parts;
pub mod process;
pub(super) mod pump;
pub(super) mod quarantine;
mod redact;
pub(super) mod reports;
mod requests;
pub(super) mod routes;
pub(super) mod services;
pub(super) mod waker;
