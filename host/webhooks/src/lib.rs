//! Webhooks: what may be one, how a delivery is signed and sent, when it is tried again, and the worker that does it.
//!
//! What is to be sent was written by the store in the transaction of its cause. Here it is claimed, sent to an address that
//! the guard checked, and settled. What is deliberately absent: proxies, redirects, cookies.

mod courier;
mod schedule;
mod send;
mod sign;
mod target;
#[cfg(test)]
mod tests;
mod worker;

pub use courier::{LEASE, TestError, Webhooks};
pub use send::{ATTEMPT_TIMEOUT, Sender, TlsError};
pub use sign::{SecretError, check_secret};
pub use target::{Target, TargetError, Targets, URL_BYTES_MAX};
pub use worker::{CAPS, SENDING_MAX};
