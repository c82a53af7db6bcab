//! From a file in the drivers folder to a driver that may be started, and what its manifest declares.
//!
//! - [`loader`]: file to checked table; all `unsafe` of the host is there and in [`probe`]. [`error`]: why a file is refused.
//! - [`probe`]: a first look in a child process; [`images`]: how a library runs beside itself.
//! - [`schema`]: configurations of destinations, refused ([`refused`]) or with their secrets masked ([`masking`], by the [`marks`] of schemas).
//! - [`annotations`]: what schemas tell the host beside that; [`wishes`]: what platforms ask of streams.
//! - [`settings`]: what operators write for a driver; [`made`]: types that they make by it.

pub(super) mod annotations;
pub(super) mod error;
pub(super) mod images;
pub mod loader;
pub(super) mod made;
mod marks;
pub(super) mod masking;
pub mod probe;
pub(super) mod refused;
pub(super) mod schema;
pub(super) mod settings;
pub(super) mod wishes;
