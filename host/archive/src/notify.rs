//! Notifies drivers of the configuration of destinations. Recordings go on without a session, so their drivers need new
//! keys without one.
//!
//! A notification follows the commit and is read from the database, one at a time, so that the last one sent is the
//! last one written. Failed notifications are repeated, and all are repeated after a driver starts: a crash between
//! commit and notification loses nothing.

use std::sync::atomic::Ordering;

use satcast_plugin_api::Class;

use super::account::Archive;
use satcast_core::ids::DestinationId;
use satcast_drivers::RecordingsError;
use satcast_store::RecordedDestination;

impl Archive {
    /// Notifies the driver of a changed or deleted destination. Waits for the driver for at most a second.
    pub async fn destination_changed(&self, destination: DestinationId) {
        let _ = self.notify(destination).await;
    }

    /// More than one destination may have changed: all are sent again soon.
    pub fn destinations_changed(&self) {
        self.inner.unnotified.store(true, Ordering::Release);
    }

    /// Whether a notification is missing; resets the flag.
    pub(super) fn take_unnotified(&self) -> bool {
        self.inner.unnotified.swap(false, Ordering::AcqRel)
    }

    /// Notifies every driver of all destinations for which it has recordings.
    pub(crate) async fn notify_all(&self) {
        for driver in self.inner.drivers.loaded_ids() {
            match self.inner.store.recorded_destinations(&driver).await {
                Ok(destinations) => {
                    for destination in destinations {
                        if !self.notify(destination).await {
                            // The next destinations would wait as long.
                            break;
                        }
                    }
                }
                Err(error) => {
                    tracing::error!(driver, %error, "a driver was not notified of the destinations of its recordings; retrying");
                    self.destinations_changed();
                }
            }
        }
    }

    /// False when the driver cannot be notified now.
    async fn notify(&self, id: DestinationId) -> bool {
        let _one_at_a_time = self.inner.notifying.lock().await;
        let destination = match self.inner.store.recorded_destination(id).await {
            Ok(Some(destination)) => destination,
            Ok(None) => return true,
            Err(error) => {
                tracing::error!(destination_id = id.0, %error, "a driver was not notified of a destination; retrying");
                self.destinations_changed();
                return false;
            }
        };
        let RecordedDestination { kind, config, .. } = &destination;
        match self.inner.drivers.configured(kind, id.0, config.as_ref()).await {
            Ok(()) => true,
            Err(RecordingsError::Refused(error)) if error.class == Class::Config => {
                // The same configuration would be refused again.
                tracing::warn!(destination_id = id.0, %error, "a driver refused the configuration of a destination for its recordings");
                true
            }
            Err(error) => {
                tracing::warn!(destination_id = id.0, %error, "a driver was not notified of a destination's configuration; retrying");
                self.destinations_changed();
                matches!(error, RecordingsError::Refused(_))
            }
        }
    }
}
