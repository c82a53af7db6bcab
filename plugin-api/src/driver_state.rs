//! The state a driver reports of a running destination.

use crate::abi;

/// Ends are reported by returning from `run`, not by a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

    /// From the number on the wire. Unknown states of newer drivers are not live.
    pub fn from_abi(state: u32) -> Self {
        if state == abi::STATE_LIVE { State::Live } else { State::Connecting }
    }
}
