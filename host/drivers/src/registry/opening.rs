//! Openings of destinations: from a configuration to a running instance, and to its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::RwLock;
use satcast_plugin_api::Error;
use satcast_plugin_api::host::MediaSource;
use satcast_plugin_api::recording::About;
use serde_json::Value;

use super::drivers::{Drivers, unserved};
use crate::published::Assets;
use crate::run::backend::{Backend, Held};
use crate::run::control::{CallOwner, limit};
use crate::run::loaded::Loaded;
use crate::run::process::ToOpen;
use crate::run::routes::RouteHandler;
use crate::run::services::{Counters, EVENTS_PER_SEC_MAX, LOG_LINES_PER_SEC_MAX, Observer, Opened, shown};
use satcast_core::ids::{AccountId, DestinationId};
use satcast_core::log_limit::LogLimit;

/// Input of [`Drivers::open`].
pub struct OpenRequest {
    pub kind: String,
    pub config: Value,
    /// The destination, for logs.
    pub destination: DestinationId,
    /// Account, stream and session, as passed to the driver.
    pub about: About,
    /// Number of the session; the same for all its destinations.
    pub source: u64,
    /// The queue.
    pub media: Arc<dyn MediaSource>,
    /// Gets state changes, events and the end.
    pub observer: Arc<dyn Observer>,
    /// Counters that outlive this opening.
    pub counters: Arc<Counters>,
    /// Holds its assets for viewers.
    pub assets: Arc<Assets>,
}

/// An open destination: can be reconfigured, stopped and freed.
pub struct OpenDestination {
    drivers: Drivers,
    kind: String,
    driver: Arc<Loaded>,
    dest: u64,
    owner: Option<CallOwner>,
    instance: Option<Held>,
    assets: Arc<Assets>,
}

impl Drivers {
    /// Whether the driver of a type is not available, or opens nothing for `account` now, whatever the destination.
    pub fn is_away(&self, kind: &str, account: AccountId) -> bool {
        self.registry().kind(kind).is_some_and(|kind| kind.driver.may_open(account.0).is_err())
    }

    /// Opens a destination. From then on `request.observer` gets its state changes.
    ///
    /// # Errors
    /// Class `Internal` for a type that no driver serves, `Config` for a refused configuration, else the error of the
    /// driver.
    pub async fn open(&self, request: OpenRequest) -> Result<OpenDestination, Error> {
        let entry = self.registry().kind(&request.kind).ok_or_else(|| unserved(&request.kind))?;
        let account = request.about.account_id;
        entry.driver.services.may_open(account)?;
        let secrets = entry.schema.secrets(&request.config);
        let dest = self.inner.next_dest.fetch_add(1, Ordering::Relaxed) + 1;
        let driver = entry.driver.clone();
        let services = driver.services.clone();
        let redactor = services.redactor(secrets);
        let opened = Opened {
            destination: request.destination,
            observer: request.observer,
            counters: request.counters,
            assets: request.assets.clone(),
            redactor: RwLock::new(redactor.clone()),
            log_limit: LogLimit::per_second(LOG_LINES_PER_SEC_MAX),
            event_limit: LogLimit::per_second(EVENTS_PER_SEC_MAX),
            account,
        };
        services.insert(dest, opened);
        let (kind, config, media) = (request.kind.clone(), request.config.to_string(), request.media);
        let to_open = ToOpen { dest, source: request.source, kind, config, about: request.about };
        let owner = Some(CallOwner { account, destination: Some(request.destination.0) });
        let open = move |driver: &Backend| driver.open(&to_open, media);
        // Too late: nothing will drive this instance, so it is asked to stop; it cannot be freed, as its end is not
        // observed.
        let late = |outcome: Result<Held, Error>| {
            if let Ok(instance) = outcome {
                instance.stop(0);
            }
        };
        let outcome = driver.control.call_for(owner, limit(), open, late).await.and_then(|outcome| outcome);
        match outcome {
            Ok(instance) => {
                let (drivers, kind, assets) = (self.clone(), request.kind, request.assets);
                if !entry.routes.is_empty() {
                    let handler = RouteHandler::new(&driver, dest, entry.routes.clone());
                    assets.set_handler(Some(Arc::new(handler)));
                }
                Ok(OpenDestination { drivers, kind, driver, dest, owner, instance: Some(instance), assets })
            }
            Err(mut error) => {
                services.remove(dest);
                error.message = shown(&redactor, &error.message);
                driver.note(account, dest, &error);
                Err(error)
            }
        }
    }
}

impl OpenDestination {
    /// Offers a running destination a new, validated configuration; false when it must be opened again for it.
    pub async fn reconfigure(&mut self, config: &Value) -> bool {
        let Some(entry) = self.drivers.registry().kind(&self.kind) else { return false };
        // Another driver serves the type now.
        if !Arc::ptr_eq(&entry.driver, &self.driver) {
            return false;
        }
        let Some(instance) = self.instance.take() else { return false };
        self.driver.services.hide_more(self.dest, entry.schema.secrets(config));
        let json = config.to_string();
        let offer = move |_: &Backend| {
            let outcome = instance.reconfigure(&json);
            (instance, outcome)
        };
        // The effect of a late call is unknown, and the destination is opened again: this opening is asked to stop.
        let late = |(instance, _): (Held, Result<bool, Error>)| instance.stop(0);
        let Ok((instance, outcome)) = self.driver.control.call_for(self.owner, limit(), offer, late).await
        else {
            return false;
        };
        self.instance = Some(instance);
        outcome.unwrap_or_else(|error| {
            let reason = shown(&entry.driver.services.redactor(entry.schema.secrets(config)), &error.message);
            tracing::warn!(kind = %self.kind, reason, "driver refuses a new configuration for a running destination");
            false
        })
    }

    /// Requests the stop; the observer gets the end, within `deadline` if the driver obeys.
    pub async fn stop(&mut self, deadline: Duration) {
        let Some(instance) = self.instance.take() else { return };
        let deadline_ms = u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX);
        let stop = move |_: &Backend| {
            instance.stop(deadline_ms);
            instance
        };
        self.instance = self.driver.control.call_for(self.owner, limit(), stop, drop).await.ok();
    }

    /// Frees it after the observer got its end.
    pub fn ended(mut self) {
        if let Some(instance) = self.instance.take() {
            // A driver that takes no calls keeps the instance; that is a leak of a driver that hangs, and harmless.
            let _ = self.driver.control.post(move |_| instance.destroy());
        }
    }
}

impl Drop for OpenDestination {
    fn drop(&mut self) {
        self.assets.set_handler(None);
        self.driver.services.remove(self.dest);
    }
}
