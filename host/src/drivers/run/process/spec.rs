//! What a child is made from, and what its library says of itself.

use std::path::PathBuf;

use satcast_plugin_api::manifest::Manifest;

use satcast_core::config::ProcessLimits;

/// What a child is made from.
#[derive(Clone)]
pub(in crate::drivers) struct Spec {
    /// This binary.
    pub(in crate::drivers) exe: PathBuf,
    /// Id of the driver.
    pub(in crate::drivers) id: String,
    /// Absolute path of the private copy of its library.
    pub(in crate::drivers) image: PathBuf,
    /// Limits of the process.
    pub(in crate::drivers) limits: ProcessLimits,
}

/// What a driver says of itself.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::drivers) struct Facts {
    pub(in crate::drivers) id: String,
    pub(in crate::drivers) version: String,
    pub(in crate::drivers) manifest: Manifest,
    /// It must not lose packets.
    pub(in crate::drivers) is_lossless: bool,
}
