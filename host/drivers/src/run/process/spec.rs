//! Input for the start of a child, and the declarations of its library.

use std::path::PathBuf;

use satcast_plugin_api::manifest::Manifest;

use satcast_core::config::ProcessLimits;

#[derive(Clone)]
pub(crate) struct Spec {
    /// This binary.
    pub(crate) exe: PathBuf,
    /// Id of the driver.
    pub(crate) id: String,
    /// Absolute path of the private copy of its library.
    pub(crate) image: PathBuf,
    pub(crate) limits: ProcessLimits,
}

/// The declarations of a driver.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    pub(crate) id: String,
    pub(crate) version: String,
    pub(crate) manifest: Manifest,
    /// It must not lose packets.
    pub(crate) is_lossless: bool,
}
