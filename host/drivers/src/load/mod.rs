//! From a file in the drivers folder to a driver that may be started, and the declarations of its manifest.
//!
//! - [`loader`]: file to checked table; all `unsafe` code of the host is there and in [`probe`]. [`error`]: why a
//!   file is refused.
//! - [`probe`]: a first check in a child process; [`images`]: several uses of one library at a time.
//! - [`schema`]: checks configurations of destinations; [`masking`] hides their secrets by the marks of schemas.
//! - [`annotations`]: other annotations of schemas; [`requirements`]: requirements of platforms for streams.
//! - [`settings`]: the operator's settings for a driver; [`made`]: types that operators make with them.

pub(super) mod annotations;
pub(super) mod error;
pub(super) mod images;
pub mod loader;
pub(super) mod made;
pub(super) mod masking;
pub mod probe;
pub(super) mod requirements;
pub(super) mod schema;
pub(super) mod settings;
