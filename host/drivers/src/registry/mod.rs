//! Which drivers are loaded and what they serve, and how the rest of the host uses them.
//!
//! - [`drivers`]: all of them; [`opening`]: their destinations; [`recordings`]: what they keep beyond a session.
//! - [`entries`]: those of one moment, by name and by the types ([`kinds`]) they serve; [`catalog`]: what is shown of them.
//! - [`loading`], [`change`]: how they come and go; [`keeper`]: what the operator chose; [`starting`]: how one starts.

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
