//! Published assets: named files of drivers for viewers, from the opening of a destination until some time after its
//! end.
//!
//! - [`asset`]: one asset and its bytes, assets by name, and requests of viewers that a driver answers itself.
//! - [`assets`]: the assets of one opening; [`budget`]: the memory limit for those of an isolated driver.
//! - [`cache`]: files that several viewers want, in memory; [`mod@counted`]: memory that counts until it is dropped.
//! - [`versions`]: viewers that wait for the next version of a playlist.
//! - [`openings`]: the openings of all destinations, also those that have ended.
//!
//! This module is below `drivers`, `live` and `playback`, and imports none of them: drivers fill it, viewers read it.

mod asset;
mod assets;
mod budget;
mod cache;
mod counted;
mod openings;
mod versions;

pub(crate) use asset::placed;
pub use asset::{Answer, Answering, Edge, Handler, Published, Unanswered};
pub use assets::{Assets, PlaybackFacts};
pub(crate) use budget::Budget;
pub use cache::{CACHE_BYTES_MAX, Cache, Slot, Unkept};
pub use counted::counted;
pub use openings::{KEPT_AFTER_END, Opening, Openings};
pub use versions::{WAITERS_MAX, Waiter, longest_wait};
