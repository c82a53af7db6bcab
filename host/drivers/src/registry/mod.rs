//! The loaded drivers and their types, and their use by the rest of the host.
//!
//! - [`drivers`]: all of them, and their destinations; [`recordings`]: recordings that outlive a session.
//! - [`entries`]: a snapshot by name and by type, with the state that is shown.
//! - [`change`]: enabling and replacing; [`keeper`]: the operator's choices; [`starting`]: how a driver starts.

pub(super) mod change;
pub(super) mod drivers;
pub(super) mod entries;
pub(super) mod keeper;
pub(super) mod recordings;
mod starting;
