//! Clips in the making.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use satcast_core::ids::AccountId;
use satcast_quota::Quota;

/// Most clips that are cut at one time; others wait in order.
pub const CLIPS_AT_ONCE: u64 = 2;
/// Most clips of one account that are cut at one time.
const CLIPS_AT_ONCE_OF_ACCOUNT: u64 = 1;

/// Most clips whose media is copied from a recording at one time, to be cut; others wait in order. Each takes disk.
pub const COPIES_AT_ONCE: u64 = 8;
/// Most such clips of one account.
const COPIES_AT_ONCE_OF_ACCOUNT: u64 = 1;

/// Clips in the making.
pub(super) struct Making {
    pub(super) copies: Quota<AccountId>,
    pub(super) at_once: Quota<AccountId>,
    /// Names of the files that this process makes.
    pub(super) names: Mutex<HashSet<String>>,
    /// Held while files of deleted and failed clips are removed.
    pub(super) discarding: Arc<tokio::sync::Mutex<()>>,
}

impl Default for Making {
    fn default() -> Self {
        Self {
            copies: Quota::new(COPIES_AT_ONCE, COPIES_AT_ONCE_OF_ACCOUNT),
            at_once: Quota::new(CLIPS_AT_ONCE, CLIPS_AT_ONCE_OF_ACCOUNT),
            names: Mutex::default(),
            discarding: Arc::default(),
        }
    }
}
