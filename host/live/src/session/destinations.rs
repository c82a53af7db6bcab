//! Which destinations of a session run: those of the database.

use std::collections::BTreeMap;
use std::time::Duration;

use super::schedule::{Wait, Waits, Wanted};
use super::{Run, millis};
use crate::destination::{Destination, Parts};
use crate::shown::Delayed;
use crate::shown::DestState;
use satcast_core::ids::{DestinationId, UnixMillis};
use satcast_store::{Delays, DestinationRecord};

impl Run {
    /// Starts, stops and restarts destinations so that they are those of the database, each after its delay.
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
        self.read_wishes(wanted.iter().filter(|destination| destination.enabled));
        // Whoever is to start later wants nothing of before.
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
                    destination.give_way();
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

    /// Those of all destinations that are to run now. What runs is the same whatever its delays are, and goes on as enabled while
    /// its stop is delayed.
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
            stop_deadline: self.live.stop_deadline,
            hub: self.session.hub.clone(),
            source: self.session.number,
            via: self.session.via.clone(),
            mark: self.live.marks.of(self.session.stream.id),
            session: self.session.id.clone(),
            label: self.session.stream.label.clone(),
            // Destinations start after the session has begun.
            started_at: self.session.shared.lock().started_at.unwrap_or_else(|| self.live.clock.now()),
            openings: self.live.openings.clone(),
            spools: self.live.spools.clone(),
            troubles: self.live.troubles.clone(),
            feed: self.live.store.feed().clone(),
            teller: self.teller.clone(),
            account: self.session.stream.account_id,
            usage: self.usage.clone(),
            flows: self.session.flows.subscribe(),
            had_backfill: self.had_backfill.clone(),
        };
        let (destination, task) = Destination::start(record, parts);
        self.session.shared.lock().destinations.insert(id, destination);
        self.tasks.insert(id, task);
    }

    // Its task flushes and ends by itself within the stop deadline; the others are not held up by it.
    fn stop_destination(&mut self, id: DestinationId) {
        if let Some(destination) = self.session.shared.lock().destinations.remove(&id) {
            destination.stop();
        }
        self.tasks.remove(&id);
    }
}

/// A wait on the clock that people read.
fn delayed(wait: Wait, now: Duration, wall_now: UnixMillis) -> Delayed {
    let left = i64::try_from(millis(wait.until.saturating_sub(now))).unwrap_or(i64::MAX);
    let at = UnixMillis(wall_now.0.saturating_add(left));
    match wait.what {
        Waits::ToStart => Delayed::StartsAt(at),
        Waits::ToStop => Delayed::StopsAt(at),
    }
}
