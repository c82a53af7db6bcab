//! `[driver.<name>]`: the operator's settings of one driver.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::value;

/// `[driver.<name>]`
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct DriverSettings {
    /// Where the library runs; `None` lets the host decide by its origin.
    pub isolation: Option<Isolation>,
    /// Expected SHA-256 of the library, 64 hexadecimal digits.
    #[serde(default, deserialize_with = "value::plain_text")]
    pub sha256: Option<String>,
    /// Limits of the child process.
    #[serde(default)]
    pub limits: ProcessLimits,
    /// Size in MiB of the spool on disk of each destination, for drivers that must not lose packets; 0 (none) to 1,048,576.
    #[serde(default = "spool_mb")]
    pub spool_mb: u64,
    /// Memory queue of each destination of other drivers.
    #[serde(default)]
    pub queue: QueueLimits,
    /// Everything else: the driver's own settings, checked by the driver.
    #[serde(flatten)]
    pub settings: BTreeMap<String, serde_json::Value>,
    /// The keys set in `[archive]`, for a driver that requests them.
    #[serde(skip)]
    pub archive: BTreeMap<String, serde_json::Value>,
}

/// Default of [`DriverSettings::spool_mb`].
pub const SPOOL_MB_DEFAULT: u64 = 2048;

fn spool_mb() -> u64 {
    SPOOL_MB_DEFAULT
}

impl Default for DriverSettings {
    fn default() -> Self {
        let (limits, queue) = (ProcessLimits::default(), QueueLimits::default());
        let (settings, archive) = (BTreeMap::new(), BTreeMap::new());
        Self { isolation: None, sha256: None, limits, spool_mb: SPOOL_MB_DEFAULT, queue, settings, archive }
    }
}

/// Limits of a driver's child process; they do not apply with `isolation = "thread"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessLimits {
    /// Memory in MiB of the process and its children, where the service has a control group of its own; otherwise of each process;
    /// 128 to 1,048,576.
    pub memory_mb: u64,
    /// Open files and sockets, 64 to 1,048,576.
    pub open_files: u64,
    /// Processor time in seconds over the life of the process, which then ends and is started again; 0 = no limit.
    pub cpu_secs: u64,
}

impl Default for ProcessLimits {
    fn default() -> Self {
        Self { memory_mb: 4096, open_files: 8192, cpu_secs: 0 }
    }
}

/// Limits of a destination's memory queue. A full queue drops packets up to the newest keyframe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueLimits {
    /// Packets, 64 to 65,536.
    pub packets: u64,
    /// MiB of payloads, 1 to 1,024.
    pub mb: u64,
    /// Seconds for which a packet may wait, 1 to 60.
    pub secs: u64,
    /// Seconds for which more than a fifth of the packets may be dropped before the destination is reopened, in steps of 30 s up to
    /// 3,600; 0 = never.
    pub reopen_secs: u64,
}

impl Default for QueueLimits {
    /// Enough for the packets that an encoder sends at once after a minute without network.
    fn default() -> Self {
        Self { packets: 8192, mb: 32, secs: 5, reopen_secs: 120 }
    }
}

/// Where a driver's library runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// On threads of the host's process.
    Thread,
    /// In a child process.
    Process,
}

impl Isolation {
    /// The value in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::Thread => "thread",
            Isolation::Process => "process",
        }
    }
}
