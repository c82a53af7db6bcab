//! Requests that may be sent twice and must be done once.

use satcast_core::ids::{AccountId, UnixMillis};
use satcast_core::secret::Redacted;

/// A request with an idempotency key.
#[derive(Clone, Copy, Debug)]
pub struct IdempotentRequest {
    /// Who asks.
    pub account_id: AccountId,
    /// SHA-256 over method, path and key.
    pub request_hash: [u8; 32],
    /// SHA-256 over key and body.
    pub body_hash: [u8; 32],
    /// The time.
    pub now: UnixMillis,
}

/// What is known of a request with an idempotency key.
#[derive(Debug, PartialEq, Eq)]
pub enum Begun {
    /// Nothing: do it, then call [`Store::finish_request`] or [`Store::release_request`] with this name.
    New(String),
    /// It was done, with this answer.
    Done {
        /// HTTP status.
        status: u16,
        /// Body.
        answer: Redacted<Vec<u8>>,
    },
    /// It is being worked on.
    InProgress,
    /// It was sent before with another body.
    OtherBody,
    /// The account has as many requests on record as are kept.
    Full,
}
