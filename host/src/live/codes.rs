//! RTMP status codes and texts an encoder gets.

use crate::ids::EndReason;

/// This name cannot be published.
pub(super) const BAD_NAME: &str = "NetStream.Publish.BadName";
/// Publishing is not allowed now.
pub(super) const DENIED: &str = "NetStream.Publish.Denied";
/// The service could not.
pub(super) const FAILED: &str = "NetStream.Failed";
/// The stream was ended by the service.
pub(super) const ENDED: &str = "NetStream.Unpublish.Success";

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
