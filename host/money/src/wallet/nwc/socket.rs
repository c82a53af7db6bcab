//! A websocket to a relay, with limits on its messages.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio_tungstenite::tungstenite::{Message, protocol::WebSocketConfig};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::wallet::address::HttpAddress;
use crate::wallet::failure::Trouble;
use satcast_net::outbound::http::{Channel, Client};

/// Largest message of a relay in bytes: an answer of the largest size in NIP-44 has some 90,000.
pub const MESSAGE_BYTES_MAX: usize = 128 * 1_024;
/// Most messages of a relay during one request, of any kind; some five are usual.
pub const MESSAGES_MAX: usize = 100;
/// Initial size of the socket's buffers in bytes.
const BUFFER_BYTES: usize = 4 * 1_024;

/// A connection to a relay; dropping it closes it.
pub(super) struct Socket {
    stream: WebSocketStream<Channel>,
    heard: usize,
}

impl Socket {
    /// Connects within `limit`; TLS and the upgrade are under the caller's own time limit.
    pub(super) async fn open(client: &Client, relay: &HttpAddress, limit: Duration) -> Result<Self, Trouble> {
        let channel = client.open(relay.place(), limit).await.map_err(Trouble::Open)?;
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(0)
            .max_write_buffer_size(MESSAGE_BYTES_MAX)
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        let upgraded = client_async_with_config(relay.to_string(), channel, Some(config)).await;
        let (stream, _) = upgraded.map_err(|_| Trouble::BrokeBefore)?;
        Ok(Self { stream, heard: 0 })
    }

    /// Starts the count of messages for another request.
    pub(super) fn begin(&mut self) {
        self.heard = 0;
    }

    pub(super) async fn say(&mut self, message: &Value) -> Result<(), Trouble> {
        self.stream.send(Message::text(message.to_string())).await.map_err(|_| Trouble::Broke)
    }

    /// The next message that is a JSON array; other messages are counted and ignored.
    pub(super) async fn receive(&mut self) -> Result<Vec<Value>, Trouble> {
        use tokio_tungstenite::tungstenite::Error;
        loop {
            let message = match self.stream.next().await {
                Some(Ok(message)) => message,
                Some(Err(Error::Capacity(_))) => return Err(Trouble::TooMuch),
                Some(Err(_)) | None => return Err(Trouble::Broke),
            };
            self.heard += 1;
            if self.heard > MESSAGES_MAX {
                return Err(Trouble::TooMuch);
            }
            if let Message::Text(text) = message
                && let Ok(Value::Array(parts)) = serde_json::from_str(text.as_str())
            {
                return Ok(parts);
            }
        }
    }
}
