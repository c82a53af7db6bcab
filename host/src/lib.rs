//! The Satcast host: takes a live stream from an encoder and forwards it to any number of destinations.
//!
//! Who may use whom, lower rows never use higher ones:
//! `cli` -> `boot` -> `api`, `playback` -> `archive`, `auth`, `webhooks`; all of them stand on the crates `satcast-money`,
//! `satcast-live`, `satcast-drivers`, `satcast-store`, `satcast-net` and `satcast-core`.
//!
//! What is deliberately absent: SQL (`satcast-store`), HTTP-JSON outside `api`, `unsafe` outside `allocator` (and `satcast-drivers`), wall clock
//! reads and randomness (`satcast-core`), and any import of a driver.

pub mod allocator;
pub mod api;
pub mod archive;
pub mod auth;
pub mod banner;
pub mod boot;
pub mod cli;
pub mod data_dir;
pub mod logging;
pub mod playback;
pub mod watch;
pub mod webhooks;
