//! From where a stream may be published, when that changes while it is.

use super::codes;
use super::live::Live;
use satcast_core::ids::{EndReason, StreamId};
use satcast_core::networks::Networks;

impl Live {
    /// The addresses from which a stream may be published are `allowed` now: its session ends when its encoder is at another. One that
    /// is away is checked when it returns.
    pub async fn addresses_changed(&self, stream: StreamId, allowed: &Networks) {
        let Some(session) = self.find(stream) else { return };
        if session.send_away_unless(allowed) {
            tracing::info!(session = %session.id, "the encoder's address is not allowed any more");
            self.stop(stream, EndReason::KeyRevoked).await;
        }
    }
}

impl super::session::Session {
    /// Tells the encoder to leave unless it is at one of these addresses; whether it did.
    fn send_away_unless(&self, allowed: &Networks) -> bool {
        self.close_encoder_if(codes::wrong_address(), |address| !allowed.allow(address))
    }
}
