//! A running driver, in this process or in a child, and the services that the host gives it.
//!
//! - [`loaded`]: a running driver; [`parts`]: input for its start; [`level`]: its log level.
//! - [`control`], [`pump`]: the threads that run driver code; [`waker`]: wakes drivers that wait for media.
//! - [`backend`]: where it runs, on these threads or in a child ([`process`]).
//! - [`services`]: the host's services for a driver; [`redact`]: removes secrets from its texts; [`reports`]: its
//!   reports about recordings.
//! - [`requests`], [`routes`]: viewers' requests that it answers itself.
//! - [`quarantine`]: when a failing driver gets nothing new, and for which accounts.

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
