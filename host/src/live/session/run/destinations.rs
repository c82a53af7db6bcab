//! Which destinations of a session run: those of the database.

use std::collections::BTreeMap;

use super::Run;
use crate::ids::DestinationId;
use crate::live::destination::{Destination, Parts};
use crate::store::DestinationRecord;

impl Run {
    /// Starts, stops and restarts destinations so that they are those of the database.
    pub(super) async fn reload(&mut self) {
        let wanted = match self.live.store.destinations_of(self.session.stream.id).await {
            Ok(wanted) => wanted,
            Err(error) => {
                tracing::error!(session = %self.session.id, %error, "destinations cannot be read, tried again in a moment");
                self.reload_due = true;
                return;
            }
        };
        self.reload_due = false;
        let wanted: BTreeMap<DestinationId, DestinationRecord> = wanted
            .into_iter()
            .filter(|destination| destination.enabled)
            .map(|destination| (destination.id, destination))
            .collect();
        self.read_wishes(wanted.values());
        let running: Vec<_> = self.session.lock().destinations.values().cloned().collect();
        let mut stopped = Vec::new();
        for destination in running {
            let record = destination.record();
            let same = match wanted.get(&record.id) {
                Some(wanted) => *wanted == *record || destination.reconfigure(wanted).await,
                None => false,
            };
            if !same {
                self.stop_destination(record.id);
                stopped.push(record.id);
            }
        }
        let mut started = Vec::new();
        for (id, record) in wanted {
            if !self.session.lock().destinations.contains_key(&id) {
                self.start_destination(record);
                started.push(id);
            }
        }
        self.note_forwarding(&started, &stopped).await;
    }

    /// The rows of the history. They follow the destinations, which wait for no database.
    async fn note_forwarding(&self, started: &[DestinationId], stopped: &[DestinationId]) {
        let (store, session, now) = (&self.live.store, &self.session.id, self.live.clock.now());
        for destination in stopped {
            if let Err(error) = store.end_forwarding(session, *destination, now).await {
                tracing::error!(%session, %destination, %error, "the end of a destination cannot be recorded");
            }
        }
        if let Err(error) = store.begin_forwarding(session, started, now).await {
            tracing::error!(%session, %error, "destinations of a session cannot be recorded");
        }
    }

    fn start_destination(&mut self, record: DestinationRecord) {
        let id = record.id;
        let parts = Parts {
            drivers: self.live.drivers.clone(),
            clock: self.live.clock.clone(),
            hub: self.session.hub.clone(),
            source: self.session.number,
            session: self.session.id.clone(),
            // Destinations start after the session has begun.
            started_at: self.session.lock().started_at.unwrap_or_else(|| self.live.clock.now()),
            shelves: self.live.shelves.clone(),
            feed: self.live.store.feed().clone(),
            teller: self.teller.clone(),
            account: self.session.stream.account_id,
            usage: self.usage.clone(),
        };
        let (destination, task) = Destination::start(record, parts);
        self.session.lock().destinations.insert(id, destination);
        self.tasks.insert(id, task);
    }

    // Its task flushes and ends by itself within the stop deadline; the others are not held up by it.
    fn stop_destination(&mut self, id: DestinationId) {
        if let Some(destination) = self.session.lock().destinations.remove(&id) {
            destination.stop();
        }
        self.tasks.remove(&id);
    }
}
