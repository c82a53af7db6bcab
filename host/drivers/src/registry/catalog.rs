//! What stands in the drivers folder and what became of each file.

use std::path::PathBuf;

use satcast_core::config::{Config, Isolation};
use satcast_core::ids::{AccountId, UnixMillis};

/// Where drivers come from.
pub struct LoadOptions<'a> {
    /// `[drivers]` and `[driver.<name>]`.
    pub config: &'a Config,
    /// This binary, which runs probes and drivers in processes of their own.
    pub exe: PathBuf,
    /// Folder of private copies.
    pub images: PathBuf,
}

/// What became of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Serves its types.
    Loaded,
    /// Loaded, but its process crashed or it failed too often, and what follows.
    Failing(String),
    /// A valid library that is not enabled.
    Disabled,
    /// Not loaded, and why.
    Refused(String),
    /// Enabled, but there is no file.
    Missing,
}

impl State {
    /// As the API shows it.
    pub fn as_str(&self) -> &'static str {
        match self {
            State::Loaded => "loaded",
            State::Failing(_) => "failing",
            State::Disabled => "disabled",
            State::Refused(_) => "refused",
            State::Missing => "missing",
        }
    }
}

/// An account that a driver does nothing new for at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// The account.
    pub account: AccountId,
    /// What the driver did, and what follows.
    pub why: String,
    /// When that ends by itself; `None` = when an operator enables the driver.
    pub until: Option<UnixMillis>,
}

/// One driver of the folder or of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Id, from the file name.
    pub id: String,
    /// The file; `None` when there is none.
    pub file: Option<PathBuf>,
    /// Version; empty when it is not known.
    pub version: String,
    /// Destination types.
    pub types: Vec<String>,
    /// What became of it.
    pub state: State,
    /// Why what was to take its place, another library or other settings, was refused when it was looked at last, or an entry that makes
    /// a type; it goes on without. `None` when it is what it should be.
    pub refused: Option<String>,
    /// Where it runs; `None` when it does not.
    pub isolation: Option<Isolation>,
    /// How often its process crashed since it was loaded; on threads, how often it panicked.
    pub crashes: u64,
    /// Accounts that it does nothing new for.
    pub set_aside: Vec<SetAside>,
}

/// Logs what became of a driver.
pub(super) fn report(summary: &Summary) {
    let driver = summary.id.as_str();
    if let Some(refused) = &summary.refused {
        tracing::error!(driver, "driver {driver}: {refused}");
    }
    let file = summary.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
    match &summary.state {
        State::Loaded => {
            let isolation = summary.isolation.map(Isolation::name);
            tracing::info!(driver, version = %summary.version, types = ?summary.types, isolation, "driver loaded")
        }
        State::Failing(reason) => tracing::error!(driver, "driver {driver}: {reason}"),
        State::Disabled => tracing::info!(driver, file, "driver is there but not in [drivers] enabled"),
        State::Refused(reason) => tracing::error!(driver, file, "driver {file}: {reason}"),
        State::Missing => {
            tracing::warn!(driver, "driver is enabled, but there is no {driver}.so in the drivers folder")
        }
    }
}
