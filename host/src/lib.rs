//! The Satcast host: takes a live stream from an encoder and forwards it to any number of destinations.
//!
//! This crate starts it and ends it (`cli` -> `boot`); what the service does is in the crates below.
//!
//! What is deliberately absent: HTTP (`satcast-web`), SQL (`satcast-store`), `unsafe` outside `allocator`, wall clock reads and randomness
//! (`satcast-core`), and any import of a driver.

pub mod activation;
pub mod allocator;
pub mod banner;
pub mod boot;
pub mod cli;
pub mod data_dir;
pub mod first_link;
pub mod logging;
pub mod notify;
pub mod telemetry;
