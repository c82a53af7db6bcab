//! The files of the drivers folder and the state of each.

use std::path::PathBuf;

use satcast_core::config::{Config, Isolation};
use satcast_core::ids::{AccountId, UnixMillis};

/// The source of drivers.
pub struct LoadOptions<'a> {
    /// `[drivers]` and `[driver.<name>]`.
    pub config: &'a Config,
    /// This binary, which runs probes and isolated drivers in child processes.
    pub exe: PathBuf,
    pub images: PathBuf,
}

/// State of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Loaded,
    /// Loaded, but its process crashed or it failed too often; the text says why and what happens next.
    Failing(String),
    /// A valid library that is not enabled.
    Disabled,
    /// Not loaded; the reason.
    Refused(String),
    Missing,
}

impl State {
    /// The value in the API.
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

/// An account for which a driver currently opens nothing new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    pub account: AccountId,
    /// The fault of the driver, and what happens next.
    pub why: String,
    /// When the quarantine ends by itself; `None` = when an operator enables the driver.
    pub until: Option<UnixMillis>,
}

/// One driver of the folder or of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub id: String,
    /// The file; `None` when there is none.
    pub file: Option<PathBuf>,
    /// Empty when it is not known.
    pub version: String,
    pub types: Vec<String>,
    pub state: State,
    /// Why the latest replacement (another library or other settings) was refused, or an entry that makes a type; the
    /// driver runs without it. `None` when nothing was refused.
    pub refused: Option<String>,
    /// Where it runs; `None` when it does not run.
    pub isolation: Option<Isolation>,
    /// Crashes of its process since it was loaded; on threads, panics.
    pub crashes: u64,
    /// Accounts for which it opens nothing new.
    pub set_aside: Vec<SetAside>,
}

/// Logs the state of a driver.
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
        State::Disabled => tracing::info!(driver, file, "driver found but not in [drivers] enabled"),
        State::Refused(reason) => tracing::error!(driver, file, "driver {file}: {reason}"),
        State::Missing => {
            tracing::warn!(driver, "driver is enabled, but there is no {driver}.so in the drivers folder")
        }
    }
}
