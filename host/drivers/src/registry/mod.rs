//! The loaded drivers and their types, and their use by the rest of the host.
//!
//! - [`drivers`]: all of them; [`opening`]: their destinations; [`recordings`]: recordings that outlive a session.
//! - [`entries`]: a snapshot by name and by type ([`kinds`]); [`catalog`]: the state that is shown.
//! - [`loading`], [`change`]: loading and replacing; [`keeper`]: the operator's choices; [`starting`]: how a driver
//!   starts.

pub(super) mod catalog;
pub(super) mod change;
pub(super) mod drivers;
mod entries;
mod keeper;
pub(super) mod kinds;
mod loading;
pub(super) mod opening;
pub(super) mod recordings;
mod starting;
