//! An open destination: offered new configurations, asked to end, freed.

use std::sync::Arc;
use std::time::Duration;

use satcast_plugin_api::Error;
use satcast_plugin_api::host::Instance;
use serde_json::Value;

use super::{Drivers, Loaded, limit};

/// An open destination.
pub struct Opening {
    pub(super) drivers: Drivers,
    pub(super) kind: String,
    pub(super) driver: Arc<Loaded>,
    pub(super) dest: u64,
    pub(super) instance: Option<Instance>,
}

impl Opening {
    /// Offers a running destination a new configuration, which was validated; false when it must be opened again for it.
    pub async fn reconfigure(&mut self, config: &Value) -> bool {
        let (Some(entry), Some(instance)) = (self.drivers.inner.kinds.get(&self.kind), self.instance.take())
        else {
            return false;
        };
        self.driver.services.hide_more(self.dest, entry.schema.secrets(config));
        let json = config.to_string();
        let offer = move |_: &satcast_plugin_api::host::Driver| {
            let outcome = instance.reconfigure(&json);
            (instance, outcome)
        };
        // Nobody knows what a late one made of it, and the destination is opened again: this opening is asked to end.
        let late = |(instance, _): (Instance, Result<bool, Error>)| instance.stop(0);
        let Ok((instance, outcome)) = self.driver.control.call(limit(), offer, late).await else {
            return false;
        };
        self.instance = Some(instance);
        outcome.unwrap_or_else(|error| {
            let reason = entry.driver.services.redactor(entry.schema.secrets(config)).clean(&error.message);
            tracing::warn!(kind = %self.kind, reason, "driver refuses a new configuration of a running destination");
            false
        })
    }

    /// Asks for the end; the observer is told when it has come, within `deadline` if the driver obeys.
    pub async fn stop(&mut self, deadline: Duration) {
        let Some(instance) = self.instance.take() else { return };
        let deadline_ms = u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX);
        let stop = move |_: &satcast_plugin_api::host::Driver| {
            instance.stop(deadline_ms);
            instance
        };
        self.instance = self.driver.control.call(limit(), stop, drop).await.ok();
    }

    /// Frees it after the observer was told of its end.
    pub fn ended(mut self) {
        if let Some(instance) = self.instance.take() {
            // A driver that takes no calls keeps the instance; that is a leak of a driver that hangs, and harmless.
            let _ = self.driver.control.post(move |_| instance.destroy());
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.driver.services.remove(self.dest);
    }
}
