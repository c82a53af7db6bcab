//! What every part of the host shares: identifiers, clock, secrets, limits, configuration. Knows no other part.

pub mod clock;
pub mod config;
pub mod feed;
pub mod ids;
pub mod log_limit;
pub mod networks;
pub mod rate;
pub mod secret;
pub mod troubles;
