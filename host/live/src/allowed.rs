//! Changes of a stream's allowed addresses while it is live.

use super::codes;
use super::live::Live;
use satcast_core::ids::{EndReason, StreamId};
use satcast_core::networks::Networks;

impl Live {
    /// Only `allowed` addresses may publish the stream from now on. Its session ends if the encoder has another address. An encoder
    /// that is away is checked when it returns.
    pub async fn addresses_changed(&self, stream: StreamId, allowed: &Networks) {
        let Some(session) = self.find(stream) else { return };
        if session.disconnect_unless(allowed) {
            tracing::info!(session = %session.id, "the address of the encoder is no longer allowed; the session ends");
            self.stop(stream, EndReason::KeyRevoked).await;
        }
    }
}

impl super::session::Session {
    /// Disconnects the encoder unless its address is allowed. Returns whether it did.
    fn disconnect_unless(&self, allowed: &Networks) -> bool {
        self.close_encoder_if(codes::wrong_address(), |address| !allowed.allow(address))
    }
}
