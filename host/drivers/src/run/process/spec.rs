//! What a child is made from, and what its library says of itself.

use std::path::PathBuf;

use satcast_plugin_api::manifest::Manifest;

use satcast_core::config::ProcessLimits;

/// What a child is made from.
#[derive(Clone)]
pub(crate) struct Spec {
    /// This binary.
    pub(crate) exe: PathBuf,
    /// Id of the driver.
    pub(crate) id: String,
    /// Absolute path of the private copy of its library.
    pub(crate) image: PathBuf,
    /// Limits of the process.
    pub(crate) limits: ProcessLimits,
}

/// What a driver says of itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    pub(crate) id: String,
    pub(crate) version: String,
    pub(crate) manifest: Manifest,
    /// It must not lose packets.
    pub(crate) is_lossless: bool,
}
