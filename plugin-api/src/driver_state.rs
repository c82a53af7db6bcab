//! The state a driver reports of a running destination.

use serde::{Deserialize, Serialize};

use crate::abi;

/// Ends are reported by returning from `run`, not by a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Connecting, or connected without media flowing.
    Connecting,
    /// Media was written or acknowledged within the last five seconds.
    Live,
}

impl State {
    /// Number on the wire.
    pub fn to_abi(self) -> u32 {
        match self {
            State::Connecting => abi::STATE_CONNECTING,
            State::Live => abi::STATE_LIVE,
        }
    }

    /// From the number on the wire; `None` for one that this version does not know, which changes nothing.
    pub fn from_abi(state: u32) -> Option<Self> {
        match state {
            abi::STATE_CONNECTING => Some(State::Connecting),
            abi::STATE_LIVE => Some(State::Live),
            _ => None,
        }
    }
}

/// What was told of a state last: a driver may report the same with each packet, which is no news.
#[derive(Debug, Default)]
pub struct Reported(Option<State>);

impl Reported {
    /// Whether a report is to be passed on. One with a reason always is, and so is what comes after it.
    pub fn is_news(&mut self, state: State, has_reason: bool) -> bool {
        let told = (!has_reason).then_some(state);
        std::mem::replace(&mut self.0, told) != told || has_reason
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_mean_nothing_are_no_state() {
        for state in [State::Connecting, State::Live] {
            assert_eq!(State::from_abi(state.to_abi()), Some(state));
        }
        assert_eq!([0, 3, u32::MAX].map(State::from_abi), [None; 3]);
    }

    #[test]
    fn what_was_told_is_told_again_only_after_something_else() {
        let mut reported = Reported::default();
        let reports = [
            (State::Live, false, true),
            (State::Live, false, false),
            (State::Connecting, true, true),
            (State::Connecting, true, true),
            (State::Connecting, false, true),
            (State::Connecting, false, false),
            (State::Live, false, true),
        ];
        for (number, (state, has_reason, is_news)) in reports.into_iter().enumerate() {
            assert_eq!(reported.is_news(state, has_reason), is_news, "report {number}");
        }
    }
}
