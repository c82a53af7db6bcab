//! RTMP status codes and texts for encoders.

use std::time::Duration;

use satcast_core::ids::EndReason;

/// Why an encoder has to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// RTMP status code.
    pub code: &'static str,
    /// One sentence for the user of the encoder, without secrets.
    pub reason: String,
}

/// The stream key is already in use.
pub(super) const BAD_NAME: &str = "NetStream.Publish.BadName";
/// Publishing is not allowed now.
pub(super) const DENIED: &str = "NetStream.Publish.Denied";
/// The service failed.
pub(super) const FAILED: &str = "NetStream.Failed";
/// The stream was ended by the service.
pub(super) const ENDED: &str = "NetStream.Unpublish.Success";

/// Refusal while another encoder publishes the stream.
pub(super) const BUSY: &str = "this stream key is already publishing; stop the other encoder first";
/// Refusal of a second backup encoder.
pub(super) const BACKUP_BUSY: &str =
    "this backup key is already publishing; stop the other backup encoder first";
/// Refusal of a node that is being drained.
pub(super) const DRAINING: &str = "this server is being taken out of service and accepts no new streams; connect again to reach another one";
/// Refusal while the node of the previous session does not answer.
pub(super) const NOT_GIVEN_UP: &str =
    "the server of the previous session of this stream does not answer; try again in a moment";
/// Sent to an encoder whose session another node took, or ended, at the same moment.
pub(super) const TAKEN_OVER_ELSEWHERE: &str =
    "the previous session of this stream has just ended or gone on at another server; try again in a moment";
/// Refusal when the database cannot be asked for the previous session.
pub(super) const NO_PREVIOUS: &str =
    "the service cannot look for the previous session of this stream; try again in a moment";
/// Sent to encoders of a node that gives its sessions up.
pub(super) const MOVES: &str =
    "this server is being taken out of service; connect again, and the stream goes on at another one";
/// Refusal of a node that has no lease.
pub(super) const NO_LEASE: &str =
    "this server cannot reach its database; connect again in a moment, or to another server";

/// Refusal of media that a destination of the stream sends back to it.
pub(super) const LOOP: &str =
    "this media comes from this stream itself: a destination sends it back here; delete that destination";
/// Refusal of media that passed through more than `VIA_MAX` streams.
pub(super) const CHAIN: &str = "this media came through too many streams that forward to each other; delete one of the destinations between them";

/// Sent to a silent encoder that a newer one replaces.
pub(super) const TOOK_OVER: &str = "another encoder took over this stream key";

/// Refusal while an encoder of the stream sends to another node.
pub(super) fn busy_elsewhere(node: &str) -> String {
    format!(
        "this stream is publishing at the server {node}; stop that encoder, or connect the primary and the backup encoder \
         to the same server"
    )
}

/// A newer encoder replaces a silent one.
pub(super) fn took_over() -> Closed {
    Closed { code: BAD_NAME, reason: TOOK_OVER.into() }
}

/// The session of a connected encoder is given up.
pub(super) fn moves() -> Closed {
    Closed { code: FAILED, reason: MOVES.into() }
}

/// The address of a connected encoder is no longer allowed.
pub(super) fn wrong_address() -> Closed {
    let reason = "this stream key may no longer be used from your address; add the address to allowedAddresses of the stream";
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
        EndReason::AccountDisabled => "the account is disabled; ask the operator of the service",
        EndReason::Shutdown => "the service is shutting down; reconnect in a moment",
        EndReason::Interrupted | EndReason::Error => "the service ended the stream after a fault; try again",
    }
}

/// Refusal during the cooldown: the reason of the stop, and what the user can do.
pub(super) fn cooldown_text(reason: EndReason, wait: Duration) -> String {
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
    fn refusal_texts() {
        let text = |reason| cooldown_text(reason, Duration::from_secs(60));
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
            "this media comes from this stream itself: a destination sends it back here; delete that destination"
        );
        assert_eq!(
            CHAIN,
            "this media came through too many streams that forward to each other; delete one of the destinations between them"
        );
        assert_eq!(reason_text(EndReason::KeyRevoked), "the stream key was deleted or replaced");
        let disabled = "the account is disabled; ask the operator of the service";
        assert_eq!(reason_text(EndReason::AccountDisabled), disabled);
        assert_eq!(
            DRAINING,
            "this server is being taken out of service and accepts no new streams; connect again to reach another one"
        );
        assert_eq!(
            NO_LEASE,
            "this server cannot reach its database; connect again in a moment, or to another server"
        );
        assert_eq!(BUSY, "this stream key is already publishing; stop the other encoder first");
        assert_eq!(TOOK_OVER, "another encoder took over this stream key");
        assert_eq!(
            wrong_address().reason,
            "this stream key may no longer be used from your address; add the address to allowedAddresses of the \
             stream"
        );
    }
}
