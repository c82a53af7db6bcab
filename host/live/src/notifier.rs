//! Sends events of a running session to webhooks. A separate task writes them to the store, so media and destinations do not wait
//! for the database.

use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::shown::DestState;
use satcast_core::ids::{SessionId, UnixMillis};
use satcast_store::{Notice, NoticeKind, Store};

/// Most notices of one session that wait to be written. Further ones are dropped.
pub(super) const NOTICES_WAITING_MAX: usize = 256;

/// Notifies webhooks of one session. Cheap to clone; the task ends after the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Notifier {
    session: SessionId,
    notices: mpsc::Sender<Notice>,
}

impl Notifier {
    /// Its lines are of the current span.
    pub(super) fn start(store: Store, session: SessionId) -> Self {
        let (notifier, mut queue) = Self::new(session);
        let writing = async move {
            while let Some(notice) = queue.recv().await {
                if let Err(error) = store.note(&notice).await {
                    tracing::error!(%error, "cannot store a session event; webhooks do not get it");
                }
            }
        };
        tokio::spawn(writing.in_current_span());
        notifier
    }

    fn new(session: SessionId) -> (Self, mpsc::Receiver<Notice>) {
        let (notices, queue) = mpsc::channel(NOTICES_WAITING_MAX);
        (Self { session, notices }, queue)
    }

    /// Queues a notice without waiting; drops it when the queue is full.
    pub(super) fn notify(&self, what: NoticeKind, at: UnixMillis) {
        let notice = Notice { session: self.session.clone(), what, at };
        if let Err(error) = self.notices.try_send(notice) {
            tracing::warn!(%error, "too many session events wait; webhooks do not get this one");
        }
    }
}

/// State of a destination as last sent to webhooks. The back-off between failures limits the rate of notices, also for a
/// destination that never works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WebhookState {
    /// Nothing was sent.
    #[default]
    Nothing,
    Live,
    Failed {
        /// Whether it was live before.
        was_live: bool,
    },
}

/// A change that webhooks are notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    /// Live for the first time.
    Connected,
    Failed,
    /// Live again after a failure.
    Recovered,
}

impl WebhookState {
    /// Takes the new state; returns the change to send, if any. Pure.
    pub(super) fn transition(&mut self, state: DestState) -> Option<Transition> {
        let (next, transition) = match (*self, state) {
            (WebhookState::Nothing | WebhookState::Failed { was_live: false }, DestState::Live) => {
                (WebhookState::Live, Transition::Connected)
            }
            (WebhookState::Failed { was_live: true }, DestState::Live) => {
                (WebhookState::Live, Transition::Recovered)
            }
            (WebhookState::Nothing, DestState::Retrying | DestState::Failed) => {
                (WebhookState::Failed { was_live: false }, Transition::Failed)
            }
            (WebhookState::Live, DestState::Retrying | DestState::Failed) => {
                (WebhookState::Failed { was_live: true }, Transition::Failed)
            }
            _ => return None,
        };
        *self = next;
        Some(transition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use satcast_core::secret::new_session_id;
    use satcast_store::Limit;

    #[test]
    fn only_real_changes_are_reported() {
        use DestState::{Connecting, Failed, Live, Retrying, Stopped};
        let transitions = |states: &[DestState]| {
            let mut reported = WebhookState::default();
            states.iter().filter_map(|state| reported.transition(*state)).collect::<Vec<_>>()
        };
        let steady = [Connecting, Live, Connecting, Live, Stopped, Connecting, Live];
        assert_eq!(
            transitions(&steady),
            [Transition::Connected],
            "reports of a driver and orders are no failures"
        );
        let flaky = [Live, Retrying, Connecting, Retrying, Failed, Live, Retrying];
        assert_eq!(
            transitions(&flaky),
            [Transition::Connected, Transition::Failed, Transition::Recovered, Transition::Failed]
        );
        let late = [Connecting, Retrying, Connecting, Retrying, Live];
        assert_eq!(transitions(&late), [Transition::Failed, Transition::Connected]);
    }

    #[tokio::test]
    async fn notices_over_the_limit_are_dropped_without_waiting() {
        let (notifier, mut queue) = Notifier::new(new_session_id());
        for _ in 0..=NOTICES_WAITING_MAX {
            notifier.notify(NoticeKind::LimitWarning(Limit::MaxSats), UnixMillis(1));
        }
        drop(notifier);
        let mut waiting = 0;
        while queue.recv().await.is_some() {
            waiting += 1;
        }
        assert_eq!(waiting, NOTICES_WAITING_MAX);
    }
}
