//! Published assets: named files of drivers for viewers, from the opening of a destination until some time after its
//! end.
//!
//! - [`asset`]: one asset and its bytes, assets by name, and requests of viewers that a driver answers itself.
//! - [`assets`]: the assets of one opening; [`budget`]: the memory limit for those of an isolated driver.
//! - [`versions`]: viewers that wait for the next version of a playlist.
//! - [`openings`]: the openings of all destinations, also those that have ended.
//!
//! This module is below `drivers`, `live` and `playback`, and imports none of them: drivers fill it, viewers read it.

mod asset;
mod assets;
mod budget;
mod openings;
mod versions;

pub(crate) use asset::placed;
pub use asset::{Answer, Answering, Handler, Published, Unanswered};
pub use assets::{Assets, PlaybackFacts};
pub(crate) use budget::{Budget, counted};
pub use openings::{KEPT_AFTER_END, Opening, Openings};
pub use versions::{WAITERS_MAX, Waiter, longest_wait};
