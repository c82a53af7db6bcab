//! The state a driver reports of a running destination.

use serde::{Deserialize, Serialize};

/// Ends are reported by returning from `run`, not by a state. The numbers are those of the C table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Connecting, or connected without media flowing.
    Connecting = 1,
    /// Media was written or acknowledged within the last five seconds.
    Live = 2,
}

impl State {
    /// The state of a number of the C table; `None` for an unknown number, which the host ignores.
    pub fn from_number(number: u32) -> Option<Self> {
        [State::Connecting, State::Live].into_iter().find(|state| *state as u32 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_numbers_are_no_state() {
        for state in [State::Connecting, State::Live] {
            assert_eq!(State::from_number(state as u32), Some(state));
        }
        assert_eq!([0, 3, u32::MAX].map(State::from_number), [None; 3]);
    }
}
