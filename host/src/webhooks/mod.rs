//! Webhooks: what may be one, and how its deliveries are signed.

mod sign;
mod target;

pub use sign::{SecretError, check_secret};
pub use target::{Target, TargetError, Targets, URL_BYTES_MAX};
