//! What drivers with recordings are told of destinations: recordings go on without a session, so they must hear of new keys without one.
//!
//! A change is told when it is committed, from the database, one at a time, so that the last one told is the last one written. What a
//! driver did not hear of, and everything after a start of a driver, is told again: a crash between commit and word loses nothing.

use std::sync::atomic::Ordering;

use satcast_plugin_api::Class;

use super::account::Archive;
use satcast_core::ids::DestinationId;
use satcast_drivers::RecordingsError;
use satcast_store::RecordedDestination;

impl Archive {
    /// A destination was changed or deleted: tells its driver what it is now. Waits for the driver a second at most.
    pub async fn destination_changed(&self, destination: DestinationId) {
        let _ = self.tell(destination).await;
    }

    /// More than one destination may have changed: all are told again soon.
    pub fn destinations_changed(&self) {
        self.inner.untold.store(true, Ordering::Release);
    }

    /// Something was not told; from now on it counts as told.
    pub(super) fn take_untold(&self) -> bool {
        self.inner.untold.swap(false, Ordering::AcqRel)
    }

    /// Tells every driver about all destinations of which it has recordings.
    pub(crate) async fn tell_all(&self) {
        for driver in self.inner.drivers.loaded_ids() {
            match self.inner.store.recorded_destinations(&driver).await {
                Ok(destinations) => {
                    for destination in destinations {
                        if !self.tell(destination).await {
                            // It would be waited for as often as there are destinations.
                            break;
                        }
                    }
                }
                Err(error) => {
                    tracing::error!(driver, %error, "destinations of recordings were not told to their driver; tried again");
                    self.destinations_changed();
                }
            }
        }
    }

    /// False when nobody can be told now.
    async fn tell(&self, id: DestinationId) -> bool {
        let _one_at_a_time = self.inner.telling.lock().await;
        let destination = match self.inner.store.recorded_destination(id).await {
            Ok(Some(destination)) => destination,
            Ok(None) => return true,
            Err(error) => {
                tracing::error!(destination_id = id.0, %error, "a destination was not told to its driver; tried again");
                self.destinations_changed();
                return false;
            }
        };
        let RecordedDestination { kind, config, .. } = &destination;
        match self.inner.drivers.configured(kind, id.0, config.as_ref()).await {
            Ok(()) => true,
            Err(RecordingsError::Refused(error)) if error.class == Class::Config => {
                // The same words would be refused again.
                tracing::warn!(destination_id = id.0, %error, "recordings do not follow their destination's configuration");
                true
            }
            Err(error) => {
                tracing::warn!(destination_id = id.0, %error, "a driver did not hear of a destination's configuration; tried again");
                self.destinations_changed();
                matches!(error, RecordingsError::Refused(_))
            }
        }
    }
}
