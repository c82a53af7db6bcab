//! Retries of uploads that somebody pays for.
//!
//! A row and its charge are written together, before the driver is asked. It ends kept or given back, once.

use super::archives::ArchiveState;
use satcast_core::ids::Msat;

/// A retry whose driver was asked, and whose answer nobody has written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedRecovery {
    /// Its id.
    pub id: i64,
    /// The recording.
    pub archive: i64,
    /// Its name.
    pub file_name: String,
    /// Retries that the driver had taken up before.
    pub driver_attempt: u32,
}

/// A retry whose upload was opened and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedRecovery {
    /// Its id.
    pub id: i64,
    /// Id of the driver that uploads.
    pub driver: String,
    /// Name of the recording.
    pub file_name: String,
}

/// What became of the wish for a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryBegun {
    /// It is charged, and has this id.
    Begun(i64),
    /// The recording has not failed.
    NotFailed(ArchiveState),
    /// Another one has not ended.
    Running,
    /// The account has too little: this much.
    Insufficient(Msat),
}

/// A failure of this class is ours, and what was paid for it is given back.
pub(super) fn is_ours(class: Option<&str>) -> bool {
    matches!(class, Some("internal" | "panic"))
}
