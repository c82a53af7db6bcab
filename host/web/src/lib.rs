//! Everything the HTTP port serves.
//!
//! Who may use whom, lower rows never use higher ones:
//! - [`site`]: the API and the player page in the shell, playback beside it.
//! - [`api`]: the only HTTP-JSON; [`watch`]: the player page. Neither knows the other.
//! - [`playback`]: what viewers fetch.
//! - [`base`]: what every request goes through; [`auth`]: who asks.
//!
//! What is deliberately absent: sockets (`satcast-net`), SQL (`satcast-store`), and decisions about money, sessions and recordings.

pub mod api;
pub mod auth;
pub mod base;
pub mod playback;
pub mod site;
pub mod watch;
