//! Keeps the running destinations of a session equal to those in the database.

use std::collections::BTreeMap;
use std::time::Duration;

use super::schedule::{Pending, Wait, Wanted};
use super::{Run, millis};
use crate::destination::{Destination, Parts};
use crate::shown::{Delayed, DestState};
use satcast_core::ids::{DestinationId, UnixMillis};
use satcast_store::{Delays, DestinationRecord};

impl Run {
    /// Starts, stops and restarts destinations to match the database, each after its delay.
    pub(super) async fn reload(&mut self) {
        let wanted = match self.live.store.destinations_of(self.session.stream.id).await {
            Ok(wanted) => wanted,
            Err(error) => {
                tracing::error!(session = %self.session.id, %error, "cannot read the destinations; retrying soon");
                self.reload_due = true;
                return;
            }
        };
        self.reload_due = false;
        self.read_requirements(wanted.iter().filter(|destination| destination.enabled));
        // A destination with a start delay gets no backfill.
        let late = wanted.iter().filter(|destination| destination.delays.start_secs > 0);
        self.had_backfill.lock().extend(late.map(|late| late.id));
        let wanted = self.due(wanted);
        let running: Vec<_> = self.session.shared.lock().destinations.values().cloned().collect();
        let mut stopped = Vec::new();
        for destination in running {
            let record = destination.record();
            let same = match wanted.get(&record.id) {
                Some(wanted) => *wanted == *record || destination.reconfigure(wanted).await,
                None => false,
            };
            if !same {
                if wanted.contains_key(&record.id) {
                    destination.mark_replaced();
                }
                self.stop_destination(record.id);
                stopped.push(record.id);
            }
        }
        let mut started = Vec::new();
        for (id, record) in wanted {
            if !self.session.shared.lock().destinations.contains_key(&id) {
                self.start_destination(record);
                started.push(id);
            }
        }
        self.note_forwarding(&started, &stopped).await;
    }

    /// The destinations that must run now. Records are returned without delays and as enabled, so that a change of delays or a
    /// delayed stop does not restart a running destination.
    fn due(&mut self, all: Vec<DestinationRecord>) -> BTreeMap<DestinationId, DestinationRecord> {
        let now = self.live.clock.monotonic();
        let running = self.session.shared.lock().destinations.clone();
        let wanted = all.iter().map(|record| {
            let state = running.get(&record.id).map(|destination| destination.snapshot().state);
            let (runs, forwards) = (state.is_some(), state == Some(DestState::Live));
            Wanted { id: record.id, enabled: record.enabled, delays: record.delays, runs, forwards }
        });
        let due = self.schedule.plan(wanted, now);
        let wall_now = self.live.clock.now();
        let delayed = self.schedule.waits().map(|(id, wait)| (id, delayed(wait, now, wall_now)));
        self.session.shared.lock().delayed = delayed.collect();
        let due = all.into_iter().filter(|record| due.contains(&record.id));
        due.map(|record| {
            (record.id, DestinationRecord { enabled: true, delays: Delays::default(), ..record })
        })
        .collect()
    }

    /// Writes the history rows. Destinations do not wait for the database.
    async fn note_forwarding(&self, started: &[DestinationId], stopped: &[DestinationId]) {
        let (store, session, now) = (&self.live.store, &self.session.id, self.live.clock.now());
        for destination in stopped {
            if let Err(error) = store.end_forwarding(session, *destination, now).await {
                tracing::error!(%session, %destination, %error, "cannot record the end of a destination");
            }
        }
        if let Err(error) = store.begin_forwarding(session, started, now).await {
            tracing::error!(%session, %error, "cannot record the destinations of a session");
        }
    }

    fn start_destination(&mut self, record: DestinationRecord) {
        let id = record.id;
        let parts = Parts {
            drivers: self.live.drivers.clone(),
            clock: self.live.clock.clone(),
            stop_deadline: self.live.stop_deadline,
            hub: self.session.hub.clone(),
            source: self.session.number,
            via: self.session.via.clone(),
            mark: self.live.marks.of(self.session.stream.id),
            session: self.session.id.clone(),
            label: self.session.stream.label.clone(),
            // Always set: destinations start after the session.
            started_at: self.session.shared.lock().started_at.unwrap_or_else(|| self.live.clock.now()),
            openings: self.live.openings.clone(),
            spools: self.live.spools.clone(),
            troubles: self.live.troubles.clone(),
            feed: self.live.store.feed().clone(),
            notifier: self.notifier.clone(),
            account: self.session.stream.account_id,
            usage: self.usage.clone(),
            flows: self.session.flows.subscribe(),
            had_backfill: self.had_backfill.clone(),
        };
        let (destination, task) = Destination::start(record, parts);
        self.session.shared.lock().destinations.insert(id, destination);
        self.tasks.insert(id, task);
    }

    // The task flushes and ends within the stop deadline, and delays no other destination.
    fn stop_destination(&mut self, id: DestinationId) {
        if let Some(destination) = self.session.shared.lock().destinations.remove(&id) {
            destination.stop();
        }
        self.tasks.remove(&id);
    }
}

/// Converts a wait to wall clock time.
fn delayed(wait: Wait, now: Duration, wall_now: UnixMillis) -> Delayed {
    let left = i64::try_from(millis(wait.until.saturating_sub(now))).unwrap_or(i64::MAX);
    let at = UnixMillis(wall_now.0.saturating_add(left));
    match wait.kind {
        Pending::ToStart => Delayed::StartsAt(at),
        Pending::ToStop => Delayed::StopsAt(at),
    }
}
