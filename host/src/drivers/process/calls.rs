//! Calls into a child.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use satcast_plugin_api::{Class, Error};

use super::CALL_MS;
use super::message::{self, Failure, ToChild};
use super::session::Session;

/// A call that has no answer yet.
pub(super) struct Call {
    answer: SyncSender<Result<Reply, Failure>>,
    /// Who it is for; `None` = it is not known.
    account: Option<i64>,
}

/// A call that did not return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hung {
    /// Who it was for.
    pub(super) account: Option<i64>,
    /// Whoever opens notes the fault.
    pub(super) is_open: bool,
}

/// What a child answers a call.
#[derive(Default)]
pub(super) struct Reply {
    pub(super) is_taken: bool,
    /// What came beside the answer.
    pub(super) descriptors: Vec<OwnedFd>,
}

impl Session {
    /// Calls the child and waits for its answer; one that does not come in time ends it.
    pub(super) fn call(
        &self,
        account: Option<i64>,
        message: impl FnOnce(u64) -> ToChild,
    ) -> Result<bool, Error> {
        self.call_for(Hung { account, is_open: false }, message, None).map(|reply| reply.is_taken)
    }

    /// As [`Session::call`], to open a destination.
    pub(super) fn call_to_open(
        &self,
        account: i64,
        message: impl FnOnce(u64) -> ToChild,
    ) -> Result<bool, Error> {
        self.call_for(Hung { account: Some(account), is_open: true }, message, None)
            .map(|reply| reply.is_taken)
    }

    /// As [`Session::call`], for nobody known and with a descriptor beside the message.
    pub(super) fn call_with(
        &self,
        message: impl FnOnce(u64) -> ToChild,
        descriptor: Option<&OwnedFd>,
    ) -> Result<Reply, Error> {
        self.call_for(Hung { account: None, is_open: false }, message, descriptor)
    }

    /// `hung` is noted where it does not return.
    fn call_for(
        &self,
        hung: Hung,
        message: impl FnOnce(u64) -> ToChild,
        descriptor: Option<&OwnedFd>,
    ) -> Result<Reply, Error> {
        let number = self.number();
        let (answer, outcome) = sync_channel(1);
        self.calls.lock().insert(number, Call { answer, account: hung.account });
        if self.is_over.load(Ordering::Acquire) {
            self.calls.lock().remove(&number);
            return Err(self.has_ended());
        }
        self.send(&message::text(&message(number)), descriptor);
        let outcome = outcome.recv_timeout(Duration::from_millis(CALL_MS));
        self.calls.lock().remove(&number);
        match outcome {
            Ok(outcome) => outcome.map_err(Error::from),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone(Class::Internal)),
            Err(RecvTimeoutError::Timeout) => {
                self.hung.lock().get_or_insert(hung);
                self.fail(&not_returned());
                // A fault of what was asked for: as with a panic, it is not asked for again and again.
                Err(self.gone(Class::Panic))
            }
        }
    }

    /// The accounts with open destinations or calls. To be asked before it is buried.
    pub(super) fn inside(&self) -> BTreeSet<i64> {
        let mut inside: BTreeSet<i64> = self.dests.lock().values().map(|feed| feed.account).collect();
        inside.extend(self.calls.lock().values().filter_map(|call| call.account));
        inside
    }

    pub(super) fn has_ended(&self) -> Error {
        Error::internal(format!("the process of driver {} has ended", self.id))
    }

    fn gone(&self, class: Class) -> Error {
        Error::new(class, format!("the process of driver {} ended while it was called", self.id))
    }

    /// Hands the answer of a call over.
    pub(super) fn answered(&self, call: u64, outcome: Result<bool, Failure>, descriptors: Vec<OwnedFd>) {
        if let Some(call) = self.calls.lock().remove(&call) {
            // The caller may have given up meanwhile.
            let _ = call.answer.try_send(outcome.map(|is_taken| Reply { is_taken, descriptors }));
        }
    }

    /// Asks about a configuration, for `account`.
    pub(super) fn validate(&self, account: i64, kind: &str, config: &str) -> Result<(), Error> {
        let (kind, config) = (kind.to_owned(), config.to_owned());
        self.call(Some(account), |call| ToChild::Validate { call, kind, config }).map(drop)
    }

    /// Hands a request of a viewer of a destination over, and waits until it was taken; false when nobody answers it.
    pub(super) fn request(&self, dest: u64, message: impl FnOnce(u64) -> ToChild) -> bool {
        self.call(self.account_of(dest), message).unwrap_or(false)
    }

    pub(super) fn account_of(&self, dest: u64) -> Option<i64> {
        self.dests.lock().get(&dest).map(|feed| feed.account)
    }

    /// Answers the calls that are left.
    pub(super) fn end_calls(&self) {
        let left: Vec<Call> = self.calls.lock().drain().map(|(_, call)| call).collect();
        for call in left {
            // As in `answered`.
            let _ = call.answer.try_send(Err(self.gone(Class::Internal).into()));
        }
    }
}

/// Why a child is ended whose call takes too long.
pub(super) fn not_returned() -> String {
    format!("did not return from a call within {CALL_MS} ms")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::process::channel::MESSAGE_BYTES_MAX;
    use crate::drivers::process::message::{Message, read};
    use crate::drivers::process::recordings::tests::begin;

    #[test]
    fn who_has_a_call_in_progress_is_inside_and_hears_of_the_end() {
        let (session, child, _) = begin();
        assert!(session.inside().is_empty());
        let asking = session.clone();
        let asked = std::thread::spawn(move || asking.validate(7, "kind", "{}"));
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let (len, _) = child.recv(&mut buffer).unwrap();
        let Ok(Message::Text(_)) = read::<ToChild>(&buffer[..len]) else { panic!("no call") };
        assert_eq!(session.inside(), BTreeSet::from([7]));
        session.end_calls();
        assert!(asked.join().unwrap().is_err());
        assert!(session.inside().is_empty() && session.hung.lock().is_none());
    }
}
