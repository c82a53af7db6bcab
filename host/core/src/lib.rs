//! Shared by every part of the host: identifiers, clock, secrets, limits, configuration. Depends on no other part.

pub mod clock;
pub mod config;
pub mod feed;
pub mod ids;
pub mod log_limit;
pub mod networks;
pub mod rate;
pub mod secret;
pub mod trace;
pub mod troubles;
