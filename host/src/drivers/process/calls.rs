//! Calls into a child, and what is known of the one that ended it.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use satcast_plugin_api::{Class, Error};

use super::CALL_MS;
use super::blame::{Blame, CALL_MARK, Marked};
use super::message::{self, Failure, ToChild};
use super::session::{Session, lock};

/// A call that has no answer yet.
pub(super) struct Call {
    answer: SyncSender<Result<Reply, Failure>>,
    /// Who it is for; `None` = it is not known.
    account: Option<i64>,
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
        self.call_for(account, message, None).map(|reply| reply.is_taken)
    }

    /// As [`Session::call`], for nobody known and with a descriptor beside the message.
    pub(super) fn call_with(
        &self,
        message: impl FnOnce(u64) -> ToChild,
        descriptor: Option<&OwnedFd>,
    ) -> Result<Reply, Error> {
        self.call_for(None, message, descriptor)
    }

    fn call_for(
        &self,
        account: Option<i64>,
        message: impl FnOnce(u64) -> ToChild,
        descriptor: Option<&OwnedFd>,
    ) -> Result<Reply, Error> {
        let number = self.number();
        let (answer, outcome) = sync_channel(1);
        lock(&self.calls).insert(number, Call { answer, account });
        if self.is_over.load(Ordering::Acquire) {
            lock(&self.calls).remove(&number);
            return Err(self.has_ended());
        }
        self.send(&message::text(&message(number)), descriptor);
        let outcome = outcome.recv_timeout(Duration::from_millis(CALL_MS));
        lock(&self.calls).remove(&number);
        match outcome {
            Ok(outcome) => outcome.map_err(Error::from),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone(Class::Internal)),
            Err(RecvTimeoutError::Timeout) => {
                lock(&self.marked).get_or_insert(Marked { account, call: Some(number) });
                self.fail(&not_returned());
                Err(self.gone(Class::Panic))
            }
        }
    }

    /// The last words of a child: whom the thread worked for that met its end.
    pub(super) fn mark(&self, mark: u64) {
        let marked = if mark & CALL_MARK != 0 {
            let call = mark & !CALL_MARK;
            lock(&self.calls).get(&call).map(|it| Marked { account: it.account, call: Some(call) })
        } else {
            lock(&self.dests).get(&mark).map(|feed| Marked { account: Some(feed.account), call: None })
        };
        // A number that is none tells nothing.
        if marked.is_some() {
            *lock(&self.marked) = marked;
        }
    }

    /// Whom its end is laid to. To be asked before it is buried.
    pub(super) fn blame(&self) -> Blame {
        if self.is_for_service() {
            return Blame::Service;
        }
        let mut inside: BTreeSet<_> = lock(&self.dests).values().map(|feed| Some(feed.account)).collect();
        inside.extend(lock(&self.calls).values().map(|call| call.account));
        Blame::of(*lock(&self.marked), &inside)
    }

    pub(super) fn has_ended(&self) -> Error {
        Error::internal(format!("the process of driver {} has ended", self.id))
    }

    // A call that ends the process is a fault of what was asked for: as with a panic, it is not asked for again and again. The others are.
    fn gone(&self, class: Class) -> Error {
        Error::new(class, format!("the process of driver {} ended while it was called", self.id))
    }

    /// Hands the answer of a call over.
    pub(super) fn answered(&self, call: u64, outcome: Result<bool, Failure>, descriptors: Vec<OwnedFd>) {
        if let Some(call) = lock(&self.calls).remove(&call) {
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
        lock(&self.dests).get(&dest).map(|feed| feed.account)
    }

    /// Answers the calls that are left: the one that ended the child is a fault of what was asked for.
    pub(super) fn end_calls(&self) {
        let marked = *lock(&self.marked);
        let left: Vec<(u64, Call)> = lock(&self.calls).drain().collect();
        for (number, call) in left {
            let is_it = marked.is_some_and(|marked| marked.call == Some(number));
            let error = self.gone(if is_it { Class::Panic } else { Class::Internal });
            // As in `answered`.
            let _ = call.answer.try_send(Err(error.into()));
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
    use crate::drivers::process::notes::FORM_CRASH;
    use crate::drivers::process::recordings::tests::begin;

    #[test]
    fn the_last_words_of_a_child_name_whose_work_it_was() {
        let (session, child, _) = begin();
        assert_eq!(session.blame(), Blame::Nobody);
        let asking = session.clone();
        let asked = std::thread::spawn(move || asking.validate(7, "kind", "{}"));
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let (len, _) = child.recv(&mut buffer).unwrap();
        let Ok(Message::Text(text)) = read::<ToChild>(&buffer[..len]) else { panic!("no call") };
        let ToChild::Validate { call, .. } = *text else { panic!("{text:?}") };
        assert_eq!(session.blame(), Blame::Account(7), "the only one inside");
        let other = Call { answer: sync_channel(1).0, account: Some(8) };
        lock(&session.calls).insert(call + 100, other);
        assert_eq!(session.blame(), Blame::Somebody);
        for (mark, expected) in [(99, Blame::Somebody), (CALL_MARK | call, Blame::Account(7))] {
            let mut note = vec![FORM_CRASH];
            note.extend_from_slice(&mark.to_le_bytes());
            child.send(&note, &[]).unwrap();
            let (len, descriptors) = session.channel.recv(&mut buffer).unwrap();
            assert!(session.handle(&buffer[..len], descriptors).unwrap().is_none());
            assert_eq!(session.blame(), expected);
        }
        session.end_calls();
        assert_eq!(asked.join().unwrap().unwrap_err().class, Class::Panic, "it is not asked for again");
        assert!(session.handle(&[FORM_CRASH, 1], Vec::new()).is_err(), "half a number");
    }
}
