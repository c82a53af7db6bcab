//! The Satcast host: takes a live stream from an encoder and forwards it to any number of destinations.
//!
//! Who may use whom, lower rows never use higher ones:
//! `cli` -> `boot` -> `site` -> `api`, `watch` -> `playback` -> `base`, `auth`; all of them stand on the other crates of the host.
//!
//! What is deliberately absent: SQL (`satcast-store`), HTTP-JSON outside `api`, `unsafe` outside `allocator` (and `satcast-drivers`), wall clock
//! reads and randomness (`satcast-core`), and any import of a driver.

pub mod allocator;
pub mod api;
pub mod auth;
pub mod banner;
pub mod base;
pub mod boot;
pub mod cli;
pub mod data_dir;
pub mod logging;
pub mod playback;
pub mod site;
pub mod watch;
