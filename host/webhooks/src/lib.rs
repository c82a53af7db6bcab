//! Webhooks: allowed targets, signatures, attempts, the schedule of retries, and the worker that runs them.
//!
//! The store writes the deliveries in the transaction of their event. This crate claims them, sends them to addresses
//! that the guard has checked, and records the results. Deliberately absent: proxies, redirects, cookies.

mod notifier;
mod schedule;
mod send;
mod sign;
mod target;
#[cfg(test)]
mod tests;
mod worker;

pub use notifier::{LEASE, TestError, Webhooks};
pub use send::{ATTEMPT_TIMEOUT, Sender, TlsError};
pub use sign::{SecretError, check_secret};
pub use target::{Target, TargetError, Targets, URL_BYTES_MAX};
pub use worker::{CAPS, SENDING_MAX};
