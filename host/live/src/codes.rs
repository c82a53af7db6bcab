//! RTMP status codes and texts an encoder gets.

use std::time::Duration;

use satcast_core::ids::EndReason;

/// Why an encoder has to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// RTMP status code.
    pub code: &'static str,
    /// One sentence for the person at the encoder; no secrets.
    pub reason: String,
}

/// This name cannot be published.
pub(super) const BAD_NAME: &str = "NetStream.Publish.BadName";
/// Publishing is not allowed now.
pub(super) const DENIED: &str = "NetStream.Publish.Denied";
/// The service could not.
pub(super) const FAILED: &str = "NetStream.Failed";
/// The stream was ended by the service.
pub(super) const ENDED: &str = "NetStream.Unpublish.Success";

/// What is told to a destination that leads back to its own stream.
pub(super) const LOOP: &str =
    "this media comes from this very stream: a destination sends it back here; delete that destination";
/// What is told to the end of a chain that nobody meant.
pub(super) const CHAIN: &str =
    "this media came through too many streams that forward to each other; delete a destination among them";

/// What is told to an encoder that was silent when another one came.
pub(super) const TOOK_OVER: &str = "another encoder took over this stream key";

/// What an encoder is told whose address was allowed when it came.
pub(super) fn wrong_address() -> Closed {
    let reason = "this stream key may not be used from your address any more; add the address to allowedAddresses of the stream";
    Closed { code: DENIED, reason: reason.into() }
}

pub(super) fn reason_text(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Unpublished => "the encoder stopped",
        EndReason::Stopped => "the stream was stopped by its owner",
        EndReason::MaxSats => "the stream reached its budget (maxSats)",
        EndReason::MaxDuration => "the stream reached its longest duration (maxDurationMinutes)",
        EndReason::InsufficientFunds => "the account's balance is used up",
        EndReason::KeyRevoked => "the stream key was deleted or replaced",
        EndReason::Shutdown => "the service is shutting down; reconnect in a moment",
        EndReason::Interrupted | EndReason::Error => "the service ended the stream after a fault; try again",
    }
}

/// What an encoder is told that comes back by itself after its stream was ended: why, and what its user can do.
pub(super) fn quiet_text(reason: EndReason, wait: Duration) -> String {
    let way_out = match reason {
        EndReason::MaxSats | EndReason::MaxDuration => "raise the limit, or ",
        _ => "",
    };
    let why = reason_text(reason);
    format!("{why}; {way_out}stop the encoder and start it again after {} s", wait.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_refused_learns_why_and_what_to_do_texts() {
        let text = |reason| quiet_text(reason, Duration::from_secs(60));
        let stopped = "the stream was stopped by its owner; stop the encoder and start it again after 60 s";
        assert_eq!(text(EndReason::Stopped), stopped);
        let budget = "the stream reached its budget (maxSats); raise the limit, or stop the encoder and start it again \
                      after 60 s";
        assert_eq!(text(EndReason::MaxSats), budget);
        let duration = "the stream reached its longest duration (maxDurationMinutes); raise the limit, or stop the \
                        encoder and start it again after 60 s";
        assert_eq!(text(EndReason::MaxDuration), duration);
        assert_eq!(
            LOOP,
            "this media comes from this very stream: a destination sends it back here; delete that destination"
        );
        assert_eq!(
            CHAIN,
            "this media came through too many streams that forward to each other; delete a destination among them"
        );
        assert_eq!(reason_text(EndReason::KeyRevoked), "the stream key was deleted or replaced");
        assert_eq!(TOOK_OVER, "another encoder took over this stream key");
        assert_eq!(
            wrong_address().reason,
            "this stream key may not be used from your address any more; add the address to allowedAddresses of the \
             stream"
        );
    }
}
