//! The host functions that the window uses.

use satcast_plugin_api::driver::Ctx;
use satcast_plugin_api::{Asset, Error, Playback};
use serde_json::Value;

/// The host, as the window sees it; tests have a fake one.
pub(crate) trait Host {
    /// Publishes an asset for viewers.
    fn publish(&self, asset: Asset) -> Result<(), Error>;
    /// Withdraws an asset.
    fn retract(&self, name: &str);
    /// Reports the playback state for viewers.
    fn playback(&self, playback: &Playback) -> Result<(), Error>;
    /// Reports an event to the owner.
    fn event(&self, name: &str, data: &Value);
    /// Adds to a counter.
    fn count(&self, name: &str, more: u64);
}

impl Host for Ctx {
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
