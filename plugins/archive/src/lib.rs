//! Destination type `cloud-archive`: recordings in S3-compatible storage.
//!
//! Packets become fragmented MP4 (`cut`), which is spooled to the local disk (`recorder`) and brought to the store in parts while it
//! grows (`upload`). Recording never waits for the store. `journal` keeps, for each recording, what a crash must not lose; `boxes`
//! finds what of a torn file is whole; `state` holds all recordings; `desk` does what owners ask of them, `keeper` what goes by
//! itself. `outside` is all that the driver needs of its host apart from media.
//!
//! Invariants: the local copy stays until the store has confirmed the whole object; an object is never overwritten; a kill at any
//! point leads to one whole object; keys of stores are in no log, error or file; everything held is bounded by `limits`.

mod boxes;
mod config;
mod contract;
mod cut;
mod desk;
mod item;
mod journal;
mod keeper;
mod limits;
mod names;
mod outside;
mod parts;
mod recorder;
mod state;
mod upload;

#[cfg(test)]
mod tests;

pub use config::{Config, RETENTION_DAYS_MAX, Settings};
