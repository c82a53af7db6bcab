//! Retries of uploads that somebody pays for.
//!
//! A row and its charge are written together, before the driver is asked. It ends kept or given back, once.

use async_trait::async_trait;

use super::Result;
use super::archives::ArchiveState;
use super::audit::Actor;
use satcast_core::ids::{Msat, UnixMillis};

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

/// Paid retries.
#[async_trait]
pub trait Recoveries: Send + Sync {
    /// Charges a retry of a recording of the actor's account, unless another one runs. `driver_attempt` is what its driver has
    /// counted so far; a charge of 0 posts nothing.
    ///
    /// # Errors
    /// [`NotFound`](super::StoreError::NotFound) for a recording that is not the account's.
    async fn begin_recovery(
        &self,
        actor: &Actor,
        archive: i64,
        driver_attempt: u32,
        fee: Msat,
    ) -> Result<RecoveryBegun>;
    /// The store opened the upload: the charge stays, unless the upload fails because of us.
    async fn recovery_opened(&self, id: i64, now: UnixMillis) -> Result<()>;
    /// The upload was not opened: the charge is given back; `false` when it is not the turn of this any more.
    async fn recovery_refused(&self, id: i64, now: UnixMillis) -> Result<bool>;
    /// Retries of a driver's recordings whose answer nobody has written down.
    async fn asked_recoveries(&self, driver: &str) -> Result<Vec<AskedRecovery>>;
    /// The same of all drivers, for retries that began before a time.
    async fn unanswered_recoveries(&self, before: UnixMillis) -> Result<Vec<AskedRecovery>>;
    /// Retries whose upload goes on.
    async fn opened_recoveries(&self) -> Result<Vec<OpenedRecovery>>;
    /// Nobody goes on with an upload that had begun: the charge is given back, once.
    async fn recovery_abandoned(&self, id: i64, now: UnixMillis) -> Result<()>;
}

/// A failure of this class is ours, and what was paid for it is given back.
pub(super) fn is_ours(class: Option<&str>) -> bool {
    matches!(class, Some("internal" | "panic"))
}
