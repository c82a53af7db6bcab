//! What the window can do to the outside.

use satcast_plugin_api::driver::Ctx;
use satcast_plugin_api::{Asset, Error, Playback};
use serde_json::Value;

/// The host, as the window sees it.
pub(crate) trait Shelf {
    /// Gives viewers a piece.
    fn publish(&self, asset: Asset) -> Result<(), Error>;
    /// Takes a piece away.
    fn retract(&self, name: &str);
    /// Says what viewers can see.
    fn playback(&self, playback: &Playback) -> Result<(), Error>;
    /// Tells the owner something.
    fn event(&self, name: &str, data: &Value);
    /// Adds to a counter.
    fn count(&self, name: &str, more: u64);
}

impl Shelf for Ctx {
    fn publish(&self, asset: Asset) -> Result<(), Error> {
        Ctx::publish(self, asset)
    }

    fn retract(&self, name: &str) {
        Ctx::retract(self, name);
    }

    fn playback(&self, playback: &Playback) -> Result<(), Error> {
        Ctx::playback(self, playback)
    }

    fn event(&self, name: &str, data: &Value) {
        Ctx::event(self, name, data);
    }

    fn count(&self, name: &str, more: u64) {
        if let Some(counter) = self.counter(name) {
            counter.fetch_add(more, std::sync::atomic::Ordering::Relaxed);
        }
    }
}
