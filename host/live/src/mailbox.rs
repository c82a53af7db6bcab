//! Reports of a destination's driver, kept until the destination's task reads them.

use std::collections::VecDeque;

use parking_lot::Mutex;
use satcast_plugin_api::Error;
use satcast_plugin_api::driver_state::State as DriverState;
use tokio::sync::Notify;

use satcast_drivers::Observer;

/// Most unread driver events; older ones are dropped.
pub(crate) const EVENTS_MAX: usize = 64;

/// Unread reports of a driver.
#[derive(Default)]
pub(super) struct Mailbox {
    mail: Mutex<Mail>,
    /// The last reported state, read or not.
    last: Mutex<Option<Report>>,
    pub(super) arrived: Notify,
}

/// A state, and the reason why it is not live.
type Report = (DriverState, Option<Error>);

#[derive(Default)]
pub(super) struct Mail {
    pub(super) state: Option<Report>,
    pub(super) events: VecDeque<(String, serde_json::Value)>,
    pub(super) outcome: Option<Result<(), Error>>,
}

impl Mailbox {
    /// Everything reported since the last call.
    pub(super) fn take(&self) -> Mail {
        std::mem::take(&mut *self.mail.lock())
    }
}

impl Observer for Mailbox {
    /// A driver may report the same state with each packet. A repeated state does not wake the task.
    fn state(&self, state: DriverState, reason: Option<Error>) {
        let report = (state, reason);
        let mut last = self.last.lock();
        if last.as_ref() == Some(&report) {
            return;
        }
        // Under the lock, so that reports of several threads leave both in the same state.
        self.mail.lock().state = Some(report.clone());
        *last = Some(report);
        drop(last);
        self.arrived.notify_one();
    }

    fn stopped(&self, outcome: Result<(), Error>) {
        // A second end is a fault of the driver. The first one counts.
        self.mail.lock().outcome.get_or_insert(outcome);
        self.arrived.notify_one();
    }

    fn event(&self, name: &str, data: serde_json::Value) {
        let mut mail = self.mail.lock();
        if mail.events.len() >= EVENTS_MAX {
            mail.events.pop_front();
        }
        mail.events.push_back((name.to_string(), data));
        self.arrived.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_repeated_state_is_not_reported_again() {
        let mailbox = Mailbox::default();
        let news = |mailbox: &Mailbox| mailbox.take().state;
        mailbox.state(DriverState::Live, None);
        assert_eq!(news(&mailbox), Some((DriverState::Live, None)));
        mailbox.state(DriverState::Live, None);
        assert_eq!(news(&mailbox), None);
        let why = |text| (DriverState::Connecting, Some(Error::network(text)));
        for text in ["one", "another"] {
            let (state, reason) = why(text);
            mailbox.state(state, reason);
            assert_eq!(news(&mailbox), Some(why(text)));
        }
        mailbox.state(DriverState::Live, None);
        assert_eq!(
            news(&mailbox),
            Some((DriverState::Live, None)),
            "a state after a different one is reported"
        );
    }

    #[test]
    fn the_last_state_the_first_end_and_the_newest_events_are_kept() {
        let mailbox = Mailbox::default();
        mailbox.state(DriverState::Connecting, None);
        mailbox.state(DriverState::Live, None);
        mailbox.stopped(Err(Error::network("first")));
        mailbox.stopped(Ok(()));
        for n in 0..=EVENTS_MAX {
            mailbox.event(&n.to_string(), json!({}));
        }
        let mail = mailbox.take();
        assert_eq!(mail.state, Some((DriverState::Live, None)));
        assert_eq!(mail.outcome, Some(Err(Error::network("first"))));
        assert_eq!((mail.events.len(), mail.events[0].0.as_str()), (EVENTS_MAX, "1"));
        assert!(mailbox.take().outcome.is_none());
    }
}
