//! `[driver.<name>]`: what operators set for one driver.

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
    /// Most MiB of packets that wait on disk for each destination of a driver that must not lose any, 0 (none) to 1,048,576.
    #[serde(default = "spool_mb")]
    pub spool_mb: u64,
    /// Packets that wait for each destination of another driver.
    #[serde(default)]
    pub queue: QueueLimits,
    /// Everything else: the driver's own settings, checked by the driver.
    #[serde(flatten)]
    pub settings: BTreeMap<String, serde_json::Value>,
    /// What `[archive]` sets, for a driver that asks for it.
    #[serde(skip)]
    pub archive: BTreeMap<String, serde_json::Value>,
}

/// [`DriverSettings::spool_mb`] where nothing is set.
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

/// What the child process of a driver may use; with `isolation = "thread"` nothing is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessLimits {
    /// Memory in MiB that it and what it starts use, where the service has a control group of its own; otherwise what each process asks for;
    /// 128 to 1,048,576.
    pub memory_mb: u64,
    /// Open files and sockets, 64 to 1,048,576.
    pub open_files: u64,
    /// Processor time in seconds over the life of the process, which then ends and is started anew; 0 = no limit.
    pub cpu_secs: u64,
}

impl Default for ProcessLimits {
    fn default() -> Self {
        Self { memory_mb: 4096, open_files: 8192, cpu_secs: 0 }
    }
}

/// What may wait in memory for a destination that does not keep up, before packets are left out up to the newest keyframe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueLimits {
    /// Packets, 64 to 65,536.
    pub packets: u64,
    /// MiB of payloads, 1 to 1,024.
    pub mb: u64,
    /// Seconds for which a packet may wait, 1 to 60.
    pub secs: u64,
    /// Seconds for which more than a fifth of the packets may be left out before the destination is opened anew, in steps of 30 s up to
    /// 3,600; 0 = never.
    pub reopen_secs: u64,
}

impl Default for QueueLimits {
    /// What an encoder catches up at once after a minute without network.
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
    /// As it is written in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::Thread => "thread",
            Isolation::Process => "process",
        }
    }
}
