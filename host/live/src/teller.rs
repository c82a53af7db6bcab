//! What webhooks are told of a session while it runs: written to the store by a task of its own, so that neither media nor
//! destinations wait for it.

use tokio::sync::mpsc;

use super::shown::DestState;
use satcast_core::ids::{SessionId, UnixMillis};
use satcast_store::{Happening, Notice, Store};

/// Most of what happened in one session that waits to be written; what comes then is not told.
pub(super) const NOTICES_WAITING_MAX: usize = 256;

/// Tells webhooks of one session; cheap to clone. Its task ends after the last clone.
#[derive(Clone, Debug)]
pub(super) struct Teller {
    session: SessionId,
    notices: mpsc::Sender<Notice>,
}

impl Teller {
    /// Starts the task.
    pub(super) fn start(store: Store, session: SessionId) -> Self {
        let (teller, mut queue) = Self::new(session);
        tokio::spawn(async move {
            while let Some(notice) = queue.recv().await {
                if let Err(error) = store.note(&notice).await {
                    tracing::error!(session = %notice.session, %error, "webhooks are not told of the session");
                }
            }
        });
        teller
    }

    fn new(session: SessionId) -> (Self, mpsc::Receiver<Notice>) {
        let (notices, queue) = mpsc::channel(NOTICES_WAITING_MAX);
        (Self { session, notices }, queue)
    }

    /// Tells without waiting.
    pub(super) fn tell(&self, what: Happening, at: UnixMillis) {
        let notice = Notice { session: self.session.clone(), what, at };
        if let Err(error) = self.notices.try_send(notice) {
            tracing::warn!(session = %self.session, %error, "webhooks are not told of the session");
        }
    }
}

/// What webhooks know of a destination. Between two failures there is a back-off, so that even one that fails for ever is not
/// told of often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing.
    #[default]
    Nothing,
    /// It forwards.
    Live,
    /// It failed; whether it had ever forwarded.
    Failed {
        /// Whether it had.
        was_live: bool,
    },
}

/// What they are told next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It forwards for the first time.
    Connected,
    /// It failed.
    Failed,
    /// It forwards again.
    Recovered,
}

impl Known {
    /// What to tell of a destination that is now in this state, if anything. Pure.
    pub(super) fn turn(&mut self, state: DestState) -> Option<Turn> {
        let (next, turn) = match (*self, state) {
            (Known::Nothing | Known::Failed { was_live: false }, DestState::Live) => {
                (Known::Live, Turn::Connected)
            }
            (Known::Failed { was_live: true }, DestState::Live) => (Known::Live, Turn::Recovered),
            (Known::Nothing, DestState::Retrying | DestState::Failed) => {
                (Known::Failed { was_live: false }, Turn::Failed)
            }
            (Known::Live, DestState::Retrying | DestState::Failed) => {
                (Known::Failed { was_live: true }, Turn::Failed)
            }
            _ => return None,
        };
        *self = next;
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use satcast_core::secret::new_session_id;
    use satcast_store::Limit;

    #[test]
    fn only_real_changes_are_told() {
        use DestState::{Connecting, Failed, Live, Retrying, Stopped};
        let turns = |states: &[DestState]| {
            let mut known = Known::default();
            states.iter().filter_map(|state| known.turn(*state)).collect::<Vec<_>>()
        };
        let quiet = [Connecting, Live, Connecting, Live, Stopped, Connecting, Live];
        assert_eq!(turns(&quiet), [Turn::Connected], "words of a driver, and orders, are no failures");
        let flaky = [Live, Retrying, Connecting, Retrying, Failed, Live, Retrying];
        assert_eq!(turns(&flaky), [Turn::Connected, Turn::Failed, Turn::Recovered, Turn::Failed]);
        let late = [Connecting, Retrying, Connecting, Retrying, Live];
        assert_eq!(turns(&late), [Turn::Failed, Turn::Connected]);
    }

    #[tokio::test]
    async fn so_much_waits_and_nobody_waits_for_it() {
        let (teller, mut queue) = Teller::new(new_session_id());
        for _ in 0..=NOTICES_WAITING_MAX {
            teller.tell(Happening::LimitWarning(Limit::MaxSats), UnixMillis(1));
        }
        drop(teller);
        let mut waiting = 0;
        while queue.recv().await.is_some() {
            waiting += 1;
        }
        assert_eq!(waiting, NOTICES_WAITING_MAX);
    }
}
