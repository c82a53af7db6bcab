//! Published assets: what drivers have for viewers, by name, from the opening of a destination until some time after its end.
//!
//! - [`asset`]: one of them, and where its bytes are.
//! - [`assets`]: those of one opening; [`budget`]: what those of an isolated driver take of memory.
//! - [`versions`]: viewers who wait for the next version of a playlist.
//! - [`handler`]: requests of viewers that a driver answers itself.
//! - [`openings`]: the openings of all destinations, also those that have ended.
//!
//! This module stands below `drivers`, `live` and `playback`, and imports none of them: drivers fill it, viewers read it.

mod asset;
mod assets;
mod budget;
mod by_name;
mod handler;
mod openings;
mod versions;

pub use asset::Published;
pub(crate) use asset::placed;
pub use assets::{Assets, PlaybackFacts};
pub(crate) use budget::{Budget, counted};
pub use handler::{Answer, Answering, Handler, Unanswered};
pub use openings::{KEPT_AFTER_END, Opening, Openings};
pub use versions::{WAITERS_MAX, Waiter, longest_wait};
