//! Recordings that outlive their sessions.
//!
//! The journals of the recording drivers are the truth. [`mirror`] saves their reports and compares them with their
//! lists; [`recovery`] retries a failed upload for a fee; [`notify`] notifies drivers of the configuration of
//! destinations. This crate knows no HTTP and no media.

mod account;
mod mirror;
mod notify;
mod objections;
mod recovery;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod uploads;

pub use account::{Archive, DELETE_LIMIT, DeleteError, OPEN_LIMIT, SIGNED_FOR};
pub use recovery::RecoveryError;
