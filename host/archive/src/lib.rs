//! Recordings that outlive their sessions, as the service keeps account of them.
//!
//! The truth is in the journals of the drivers that record. [`mirror`] writes down what they tell and compares it with what they
//! list; [`recovery`] has a failed upload tried again for money; [`told`] tells them what destinations are configured as. This crate
//! knows no HTTP and no media.

mod account;
mod mirror;
mod objections;
mod recovery;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod told;

pub use account::{Archive, DELETE_LIMIT, DeleteError, OPEN_LIMIT, SIGNED_FOR};
pub use recovery::RecoveryError;
