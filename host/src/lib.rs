//! The Satcast host: takes a live stream from an encoder and forwards it to any number of destinations.
//!
//! Who may use whom, lower rows never use higher ones:
//! `cli` -> `boot` -> `http`, `api`, `playback`, `ingest` -> `archive`, `auth`, `billing`, `live`, `webhooks` -> `drivers`, `outbound`,
//! `published`, `usage` -> `store` -> `config`, `feed`, `secret`, `clock`, `rate`, `places`, `ids`.
//!
//! What is deliberately absent: SQL outside `store`, HTTP-JSON outside `api`, `unsafe` outside `drivers` and `allocator`,
//! wall clock reads outside `clock`, randomness outside `secret`, and any import of a driver.

pub mod allocator;
pub mod api;
pub mod archive;
pub mod auth;
pub mod banner;
pub mod billing;
pub mod boot;
pub mod certificates;
pub mod cli;
pub mod clock;
pub mod config;
pub mod data_dir;
pub mod drivers;
pub mod feed;
pub mod http;
pub mod ids;
pub mod ingest;
pub mod live;
pub mod log_limit;
pub mod logging;
pub mod networks;
pub mod outbound;
pub mod playback;
pub mod published;
pub mod rate;
pub mod secret;
pub mod store;
pub mod troubles;
pub mod usage;
pub mod wallet;
pub mod watch;
pub mod webhooks;
