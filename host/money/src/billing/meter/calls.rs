//! Calls from `live` and from passes over hours of playback. Each call takes the lock, changes the state, and returns;
//! the meter's task does the rest.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::{Means, Meter};
use satcast_core::ids::{DestinationId, EndReason, Msat};
use satcast_store::{StreamLimits, Totals};
use satcast_usage::{Orders, Usage};

#[async_trait]
impl Usage for Meter {
    fn orders(&self) -> watch::Receiver<Orders> {
        self.orders.subscribe()
    }

    fn claims(&self, destination: DestinationId) {
        let now = self.billing.clock.monotonic();
        let mut state = self.state.lock();
        self.advance(&mut state, now);
        state.claims.remove(&destination);
        state.running.remove(&destination);
        match state.check_one_more() {
            Ok(()) => {
                state.claims.insert(destination);
                self.release(destination);
            }
            Err(short) => self.hold(destination, short),
        }
    }

    fn forwards(&self, destination: DestinationId, at: Duration) {
        let mut state = self.state.lock();
        self.advance(&mut state, at);
        state.claims.remove(&destination);
        state.running.insert(destination);
        // It was ordered to stop and has not seen the order yet.
        if state.over || self.orders.borrow().held.contains_key(&destination) {
            return;
        }
        let grown = (state.minutes.forwarding() + 1).saturating_sub(state.minutes.covered());
        // The budget is known here; the balance is checked when the charge is posted.
        let means = Means { balance: None, ..state.means() };
        match means.allows(state.times(grown)) {
            Ok(()) => state.minutes.starts(destination),
            Err(short) => self.hold(destination, short),
        }
        self.changed.notify_one();
    }

    fn pauses(&self, destination: DestinationId, at: Duration) {
        let mut state = self.state.lock();
        self.advance(&mut state, at);
        state.claims.remove(&destination);
        state.running.remove(&destination);
        state.minutes.pauses(destination);
        self.review(&state);
    }

    fn leaves(&self, destination: DestinationId, at: Duration) {
        self.pauses(destination, at);
        self.release(destination);
    }

    fn flows(&self, flows: bool, at: Duration) {
        let mut state = self.state.lock();
        self.advance(&mut state, at);
        if !state.over {
            state.minutes.flows(flows);
        }
        self.changed.notify_one();
    }

    fn limits(&self, limits: StreamLimits) {
        let now = self.billing.clock.monotonic();
        let mut state = self.state.lock();
        // Minutes that began before the change began under the old limits.
        self.advance(&mut state, now);
        state.limits = limits;
        if !state.over && state.means().is_exceeded() {
            self.end(&mut state, EndReason::MaxSats);
        }
        self.review(&state);
        self.changed.notify_one();
    }

    fn ends(&self, at: Duration) {
        let mut state = self.state.lock();
        // A minute that would open exactly at the end does not open.
        self.advance(&mut state, at.saturating_sub(Duration::from_nanos(1)));
        state.over = true;
        self.changed.notify_one();
    }

    async fn settled(&self) {
        // The sender is held beside it.
        self.done.cancelled().await;
        self.billing.bill_playback(Some(self.session.account)).await;
    }
}

impl Meter {
    /// The session was charged for something other than minutes.
    pub(in crate::billing) fn was_charged(&self, totals: Totals) {
        self.absorb(&mut self.state.lock(), totals);
        self.billing.has_spent(self.session.account, Msat(0));
    }

    /// Ends the session for a reason other than a minute.
    pub(in crate::billing) fn order_end(&self, reason: EndReason) {
        let mut state = self.state.lock();
        if !state.over {
            self.end(&mut state, reason);
        }
    }
}
